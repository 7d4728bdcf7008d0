"""The third schedule: many short rows, 64 at a time, lanes running over rows instead of elements.

A row shorter than the 64 elements of LLVM's main loop wastes its lanes, and its folds run one by one.  Here a
tile of 64 rows is transposed into the stack, in squares as large as the registers allow; then every value of a row is a
vector over the 64 rows, a fold is a loop over columns, and all inner loops have 64 iterations.  Same plan, same node
text; only the loops differ.

Measured on two cores of a Zen 5, a million float32 in rows of 32, moved one by one and in squares: sum 120 µs and 52,
max 128 and 58, layer_norm 339 and 136.  In rows of 63, taken alone and in tiles: max 147 and 76, softmax 647 and 260.
"""

from trueno_simd.rows.printer import Lines, Printer, indent

ROWS = 64  # of a tile
SQUARES = (16, 8, 4, 2)  # sides of the squares that are moved at once
AT = f"j * {ROWS} + q"  # of an element in the tile: columns outside, rows inside
FAR = "(top + q) * n + j"  # of the same element in the caller's array


class TilePrinter(Printer):
    """Prints `tile`: all passes over rows top … top + 63 of n ≤ SHORT_ROW elements."""

    def tile(self) -> str:
        """The function alone."""
        self.rooms: dict[str, str] = {}  # stack arrays of the tile → their element type and size
        nodes = self.nodes
        leaves = [str(n.value) for n in nodes if n.kind == "leaf" and self.kinds[str(n.value)] == "e"]
        body = ["bad = False"]
        body += ["count = T(n)"] if any(n.kind == "count" for n in nodes) else []
        for name in leaves:
            room = self.room(f"t_{name}", f"types.{self.dtype}", f"{ROWS} * SHORT_ROW")
            body += self.turned(room, AT, ROWS, name, FAR, "n")
            body += self.transposed(f"store({room}, {AT}, load({name}, {FAR}, {self.slots[name]}), {self.slot(room)})")
        for i, n in enumerate(nodes):
            if n.kind == "leaf" and n.space != "e":
                name = str(n.value)
                value = f"load({name}, {'top + q' if self.kinds[name] == 'r' else '0'}, {self.slots[name]})"
                body += self.over_rows([], [f"r{i} = {value}"], [i])
        for pass_ in self.plan.passes:
            for i in pass_.before:
                body += self.row_op(i)
            for f in pass_.folds:
                for room, kind, start in zip(self.fold_rooms(f), self.fold_kinds(f), self.starts(f), strict=True):
                    self.room(room, kind, str(ROWS))
                    body += [f"for q in range({ROWS}):", f"    store({room}, q, {start}, {self.slot(room)})"]
            body += self.columns(pass_)
        for i in self.plan.tail:
            body += self.row_op(i)
        body += self.results()
        arrays = ", ".join(["top", "n", *self.arrays, *self.params])
        rooms = [f"{name} = reserve_{name}()" for name in self.rooms]
        head = [f"reserve_{name} = {reserve}" for name, reserve in self.rooms.items()]
        lines = [*head, "", "", "@outer", f"def tile({arrays}):", *indent([*rooms, *body, "return int64(bad)"])]
        return "\n".join(lines)

    # ---- the tile's own memory ------------------------------------------------------------------------

    def room(self, name: str, kind: str, count: str) -> str:
        self.rooms.setdefault(name, f"stack({kind}, {count})")
        return name

    def slot(self, room: str) -> int:
        return len(self.slots) + list(self.rooms).index(room)

    def fold_rooms(self, f: int) -> Lines:
        return [f"b{f}", f"k{f}"] if self.position(f) else [f"b{f}"]

    def fold_kinds(self, f: int) -> Lines:
        if self.position(f):
            return [f"types.{self.dtype}", "int64"]
        return [self.element_type(f)]

    def starts(self, f: int) -> Lines:
        start = self.fold(f).start
        return [start, "0"] if self.position(f) else [start]

    def room_of(self, i: int) -> str:
        """The room that holds row value `i`: of an argmax the positions, of anything else the value."""
        return f"k{i}" if i in self.program.folds and self.position(i) else f"b{i}"

    def take(self, values: list[int]) -> Lines:
        """Loads of row values for row q."""
        return [f"r{i} = load({self.room_of(i)}, q, {self.slot(self.room_of(i))})" for i in dict.fromkeys(values)]

    def outer_values(self, body: list[int]) -> list[int]:
        """Row values, with a room of their own, that nodes need."""
        skip = ("const", "param", "count")
        needed = [a for i in body for a in self.nodes[i].args]
        return [a for a in needed if self.nodes[a].space != "e" and self.nodes[a].kind not in skip]

    # ---- loops ----------------------------------------------------------------------------------------

    def turned(self, target: str, there: str, down: int | str, source: str, here: str, across: int | str) -> Lines:
        """Move squares of the tile, in registers; `left` is the first column that is in none."""
        lines = ["left = 0"]
        for side in (side for side in SQUARES if side <= self.register // self.itemsize):
            move = f"square({side}, {target}, {there}, {down}, {source}, {here}, {across})"
            lines += [f"while left + {side} <= n:", "    j = left", f"    for q in range(0, {ROWS}, {side}):"]
            lines += [f"        {move}", f"    left += {side}"]
        return lines

    def transposed(self, statement: str) -> Lines:
        """Move the columns from `left` on."""
        return ["for j in range(left, n):", f"    for q in range({ROWS}):", f"        {statement}"]

    def over_rows(self, before: Lines, lines: Lines, results: list[int]) -> Lines:
        """A loop over the tile's rows that leaves the values `results` in rooms."""
        stores = []
        for i in results:
            room = self.room(f"b{i}", self.element_type(i), str(ROWS))
            stores.append(f"store({room}, q, r{i}, {self.slot(room)})")
        return [f"for q in range({ROWS}):", *indent([*before, *lines, *stores])]

    def row_op(self, i: int) -> Lines:
        return self.over_rows(self.take(self.outer_values([i])), [f"r{i} = {self.expression(i)}"], [i])

    def columns(self, pass_) -> Lines:  # type: ignore[no-untyped-def]
        """One pass: columns outside, the 64 rows inside."""
        inside = self.take(self.outer_values(list(pass_.body)))
        shared = []
        for i, source in pass_.loads:
            array = source if isinstance(source, str) else f"out{source}"
            if self.kinds.get(array) == "w":
                shared.append(f"v{i} = load({array}, j, {self.slots[array]})")
            else:
                room = f"t_{array}"
                inside.append(f"v{i} = load({room}, {AT}, {self.slot(room)})")
        inside += [f"v{i} = {self.expression(i)}" for i in pass_.body]
        for f in pass_.folds:
            inside += self.fold_step(f)
        for k, v in pass_.stores:
            room = self.room(f"t_out{k}", self.element_type(self.program.outputs[k]), f"{ROWS} * SHORT_ROW")
            inside.append(f"store({room}, {AT}, {self.name(v)}, {self.slot(room)})")
        return ["for j in range(n):", *indent(shared), f"    for q in range({ROWS}):", *indent(inside, 2)]

    def fold_step(self, f: int) -> Lines:
        v, node = self.nodes[f].args[0], self.nodes[f]
        value = f"{self.name(v)} != T(0)" if node.type == "bool" and self.nodes[v].type == "T" else self.name(v)
        best = self.slot(f"b{f}")
        lines = [f"s{f} = load(b{f}, q, {best})"]
        if not self.position(f):
            return [*lines, f"store(b{f}, q, {self.fold(f).step.format(s=f's{f}', v=value)}, {best})"]
        better = ">" if node.kind == "argmax" else "<"
        where = self.slot(f"k{f}")
        return [
            *lines,
            f"new{f} = either({value} {better} s{f}, both({value} != {value}, s{f} == s{f}))",
            f"store(k{f}, q, select(new{f}, j, load(k{f}, q, {where})), {where})",
            f"store(b{f}, q, select(new{f}, {value}, s{f}), {best})",
        ]

    def results(self) -> Lines:
        lines = []
        for out, k in self.outs.items():
            o = self.program.outputs[k]
            if self.is_element(k):
                room = f"t_{out}"
                lines += self.turned(out, FAR, "n", room, AT, ROWS)
                lines += self.transposed(
                    f"store({out}, {FAR}, load({room}, {AT}, {self.slot(room)}), {self.slots[out]})"
                )
            else:
                room = self.room_of(o)
                lines += [
                    f"for q in range({ROWS}):",
                    f"    store({out}, top + q, load({room}, q, {self.slot(room)}), {self.slots[out]})",
                ]
        for k in self.variant.flags:
            room = self.room_of(self.program.outputs[k])
            lines += [f"for q in range({ROWS}):", f"    bad = either(bad, load({room}, q, {self.slot(room)}))"]
        return lines
