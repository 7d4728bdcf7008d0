"""The fourth schedule: rows that lie across memory, as with `axis=0`; lanes run over neighbouring rows.

Operands are [outer, n, inner] in C order, and a row is n elements that lie `inner` apart.  Nothing is transposed: a
strip of neighbouring rows is read in the order of memory, and each fold keeps one state a row in the frame.  `TOGETHER`
elements of a row are folded in registers before they join a state.  Same plan, same node text; only the loops differ.
Health flags of a guarded program are folded over all rows of a strip at once, and change no other value.

    strip     all passes over a strip
    piece     some strips, for the thread pool
    kernel    what Python calls

Lower bound: one read of the operands for each pass.  Narrower strips, which the second cache would hold between passes,
lost: memory is read by the page, and at 32 to 64 rows a strip takes a line or four of each.  Measured on two cores of a
Zen 5, 4 096 × 1 024 in float32: softmax 3.9 ms in strips of 32 rows, 1.3 in strips of 256, 2.4 in one.
"""

from functools import cached_property
from typing import Final

from trueno.backend import Pass

from trueno_simd.rows.printer import Lines, Printer, indent

WIDTH, NARROW, SHARES = 256, 64, 4
"""Rows of a strip at most, at least, and strips that are wanted."""
TOGETHER: Final = 8
"""Elements of a row that are folded before they join a state: 8 additions are within the backend's `chain`."""
LIGHT: Final = 4
"""Nodes of a pass up to which so many elements are written out."""


class ColumnPrinter(Printer):
    """Prints the module of a program whose rows lie across memory."""

    def text(self) -> str:
        head = f'"""{self.variant.title}\n\n{self.program.text}\n"""\n\n'
        parts = [head + self.imports() + "\n".join(self.constants()), self.strip()]
        if self.variant.parallel:
            parts.append(self.pieces())
        return "\n\n\n".join([*parts, self.columns_kernel()]) + "\n"

    def imports(self) -> str:
        return super().imports() + f"WIDTH = {WIDTH}\n"

    @cached_property
    def flags(self) -> set[int]:
        """The nodes of health flags."""
        return {self.program.outputs[k] for k in self.variant.flags}

    @cached_property
    def asked(self) -> set[int]:
        """The nodes that results other than flags need."""
        return set(self.program.live([self.program.outputs[k] for k in self.outs.values()]))

    def folds(self, pass_: Pass) -> list[int]:
        """A pass's folds that are not flags."""
        return [f for f in pass_.folds if f not in self.flags]

    # ---- the frame's memory ---------------------------------------------------------------------------

    def room(self, name: str, kind: str) -> str:
        self.rooms.setdefault(name, kind)
        return name

    def slot(self, room: str) -> int:
        return len(self.slots) + list(self.rooms).index(room)

    def get(self, name: str, room: str) -> str:
        return f"{name} = load({room}, q, {self.slot(room)})"

    def put(self, room: str, value: str) -> str:
        return f"store({room}, q, {value}, {self.slot(room)})"

    def state_rooms(self, f: int) -> dict[str, tuple[str, str, str]]:
        """Of each name of a fold's state its room, its type and its first value."""
        fold, wide = self.fold(f), {"T": f"types.{self.dtype}", "int64": "int64", "float64": "float64"}
        if self.position(f):
            kinds = [wide["T"], "types.int32" if self.dtype == "float32" else "int64"]
        elif self.nodes[f].type == "bool":
            kinds = ["boolean"]
        else:
            kinds = [wide[kind] for kind in fold.types]
        return {
            name: (f"state_{name}", kind, first)
            for name, kind, first in zip(self.states(f), kinds, fold.state, strict=True)
        }

    # ---- loops ----------------------------------------------------------------------------------------

    def strip(self) -> str:
        """The function `strip`: element `base` is the first of the strip's first row, `at` the number of that row."""
        self.rooms: dict[str, str] = {}
        body = ["bad = False"] if self.flags else []
        body += ["count = T(n)"] if any(n.kind == "count" for n in self.nodes) else []
        for i, node in enumerate(self.nodes):
            if node.kind == "leaf" and node.space != "e":
                name = str(node.value)
                where = "at + q" if self.kinds[name] == "r" else "0"
                body += self.over_rows([], [f"r{i} = load({name}, {where}, {self.slots[name]})"], [i])
        for pass_ in self.plan.passes:
            for i in pass_.before:
                body += self.row_value(i)
            body += self.sweep(pass_)
        for i in self.plan.tail:
            body += self.row_value(i)
        for out, k in self.outs.items():
            o = self.program.outputs[k]
            if not self.is_element(k):
                stored = f"store({out}, at + q, {self.name(o)}, {self.slots[out]})"
                body += ["for q in range(beside):", *indent([*self.take([o]), stored])]
        for o in sorted(self.flags - {*self.program.folds}):
            body += ["for q in range(beside):", *indent([*self.take([o]), f"bad = either(bad, r{o})"])]
        body += ["return int64(bad)" if self.flags else "return 0"]
        rooms = [f"{name} = reserve_{name}()" for name in self.rooms]
        head = [f"reserve_{name} = stack({kind}, WIDTH)" for name, kind in self.rooms.items()]
        names = ", ".join(["base", "at", "n", "inner", "beside", *self.arrays, *self.params])
        return "\n".join([*head, "", "", "@outer", f"def strip({names}):", *indent([*rooms, *body])])

    def take(self, values: Lines | list[int]) -> Lines:
        """Loads of row values."""
        skip = ("const", "param", "count")
        each = [int(i) for i in dict.fromkeys(values) if self.nodes[int(i)].kind not in skip]
        return [self.get(f"r{i}", f"row{i}") for i in each]

    def needed(self, body: tuple[int, ...] | list[int]) -> list[int]:
        """Row values that nodes need."""
        return [a for i in body for a in self.nodes[i].args if self.nodes[a].space != "e"]

    def over_rows(self, before: Lines, lines: Lines, results: list[int]) -> Lines:
        """A loop over the strip's rows that leaves the values `results` in rooms."""
        stores = [self.put(self.room(f"row{i}", self.element_type(i)), f"r{i}") for i in results]
        return ["for q in range(beside):", *indent([*before, *lines, *stores])]

    def row_value(self, i: int) -> Lines:
        return self.over_rows(self.take(self.needed([i])), [f"r{i} = {self.expression(i)}"], [i])

    def sweep(self, pass_: Pass) -> Lines:
        """One pass: elements of rows outside, the strip's rows inside; then what the folds give."""
        lines: Lines = []
        for f in self.folds(pass_):
            for room, kind, first in self.state_rooms(f).values():
                lines += ["for q in range(beside):", f"    {self.put(self.room(room, kind), first)}"]
        nodes = len(self.asked.intersection(pass_.body)) + len(pass_.stores)
        together = TOGETHER if self.folds(pass_) and nodes <= LIGHT else 1
        if together > 1:
            lines += [f"whole = n // {together} * {together}"]
            lines += [f"for j in range(0, whole, {together}):", *indent(self.lanes(pass_, together))]
            lines += ["for j in range(whole, n):", *indent(self.lanes(pass_, 1))]
        else:
            lines += ["for j in range(n):", *indent(self.lanes(pass_, 1))]
        for f in self.folds(pass_):
            rooms = self.state_rooms(f)
            names = [self.get(name, room) for name, (room, _, _) in rooms.items()]
            value = f"int64(b{f})" if self.position(f) else self.fold(f).result.format(**self.state_pair(f))
            lines += self.over_rows(names, [f"r{f} = {value}"], [f])
        return lines

    def lanes(self, pass_: Pass, together: int) -> Lines:
        """So many elements of every row of the strip."""
        inside = self.take(self.needed(pass_.body))
        for f in self.folds(pass_):
            inside += [self.get(name, room) for name, (room, _, _) in self.state_rooms(f).items()]
            inside += [] if self.position(f) else [f"s{f} = {self.fold(f).start}"]
        for k in range(together):
            inside += self.element(pass_, f"j + {k}" if k else "j")
        for f in self.folds(pass_):
            if not self.position(f):
                inside += self.fold(f).join.format(q=f"s{f}", **self.state_pair(f)).split("\n")
            inside += [self.put(room, name) for name, (room, _, _) in self.state_rooms(f).items()]
        return ["for q in range(beside):", *indent(inside)]

    def element(self, pass_: Pass, j: str) -> Lines:
        """Element `j` of row `q`: its loads, its ops, a step of each fold, its stores."""
        here, lines = f"base + ({j}) * inner + q", []
        for i, source in pass_.loads:
            array = source if isinstance(source, str) else f"out{source}"
            lines.append(f"v{i} = load({array}, {j if self.kinds.get(array) == 'w' else here}, {self.slots[array]})")
        lines += [f"i = {j}"] if any(self.nodes[i].kind == "position" for i in pass_.body) else []
        lines += [f"v{i} = {self.expression(i)}" for i in pass_.body]
        for f in pass_.folds:
            v, node = self.nodes[f].args[0], self.nodes[f]
            value = f"{self.name(v)} != T(0)" if node.type == "bool" and self.nodes[v].type == "T" else self.name(v)
            if f in self.flags:
                lines.append(f"bad = either(bad, {value})")
            elif self.position(f):
                better = ">" if node.kind == "argmax" else "<"
                lines += [
                    f"new{f} = either({value} {better} a{f}, both({value} != {value}, a{f} == a{f}))",
                    f"b{f} = select(new{f}, {'narrow' if self.dtype == 'float32' else 'int64'}({j}), b{f})",
                    f"a{f} = select(new{f}, {value}, a{f})",
                ]
            else:
                lines.append(f"s{f} = {self.fold(f).step.format(s=f's{f}', v=value)}")
        return lines + [f"store(out{k}, {here}, {self.name(v)}, {self.slots[f'out{k}']})" for k, v in pass_.stores]

    # ---- the kernel -----------------------------------------------------------------------------------

    def strips(self, start: str, stop: str) -> Lines:
        """Strips start … stop."""
        arrays, status = ", ".join([*self.arrays, *self.params]), "bad |= " if self.flags else ""
        return [
            f"for u in range({start}, {stop}):",
            "    o, left = u // across, u % across * width",
            f"    {status}strip(o * n * inner + left, o * inner + left, n, inner, min(width, inner - left), {arrays})",
        ]

    def pieces(self) -> str:
        body = ["stop = min(i * step + step, strips)", *self.strips("i * step", "stop")]
        body = ["bad = 0", *body, "return bad"] if self.flags else [*body, "return 0"]
        integers = ["n", "inner", "width", "across", "strips", "step"]
        return self.function("piece", integers, [*self.arrays, *self.params], {}, body)

    def columns_kernel(self) -> str:
        scalar, dims = f"types.{self.dtype}", {"e": 3, "w": 1, "r": 2, "u": 0}
        kinds = [f'types.Array({scalar}, {dims[kind]}, "C", readonly=True)' for kind in self.kinds.values()]
        kinds += ["float64"] * len(self.params)
        for k in self.outs.values():
            kind = self.element_type(self.program.outputs[k])
            kinds.append(f'types.Array({kind}, {3 if self.is_element(k) else 2}, "C")')
        lines = [*self.column_checks(), *(f"{p} = T({p}_)" for p in self.params)]
        lines += [f"{a} = pointer({a}_)" for a in self.arrays]
        lines += [
            f"width = min(inner, WIDTH, max({NARROW}, inner // {SHARES} // 16 * 16))",
            "across = (inner + width - 1) // width",
            "strips = outer_ * across",
        ]
        if self.variant.parallel:
            packed = ", ".join(["n", "inner", "width", "across", "strips", "step", *self.arrays, *self.params])
            work = "outer_ * n * inner // PIECE * PIECE_NS"
            lines += [
                "gil = release_gil()",
                "pieces, step = row_spans(strips, n * width, PIECE)",
                f"{'bad = ' if self.flags else ''}parallel_for(address_of(piece), pack(({packed},)), pieces, {work})",
                "acquire_gil(gil)",
            ]
        else:
            lines += [*(["bad = 0"] if self.flags else []), *self.strips("0", "strips")]
        names = ", ".join(f"{name}_" for name in [*self.kinds, *self.params, *self.outs])
        return "\n".join([self.entry(kinds), f"def kernel({names}):", *indent([*lines, *self.status()])])

    def column_checks(self) -> Lines:
        """What the key does not say: extents, and that results are operands or overlap none."""
        whole = next(n for n, kind in self.kinds.items() if kind == "e")
        named = [*self.kinds.items(), *((o, "e" if self.is_element(k) else "r") for o, k in self.outs.items())]
        extents = {"e": ("outer_", "n", "inner"), "w": ("n",), "r": ("outer_", "inner"), "u": ()}
        wrong = ["n > FAR"] if any(self.position(f) for f in self.program.folds) else []
        for name, kind in named:
            if name != whole:
                wrong += [f"{name}_.shape[{axis}] != {extent}" for axis, extent in enumerate(extents[kind])]
        wrong += self.overlaps()
        first = "outer_, n, inner = " + ", ".join(f"{whole}_.shape[{axis}]" for axis in range(3))
        return [first, "if (", *(f"    {'or ' if i else ''}{w}" for i, w in enumerate(wrong)), "):", "    return -1"]
