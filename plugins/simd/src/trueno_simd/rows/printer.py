"""The Numba printer: a lowered row program becomes a Python module with one function, or a few.

    kernel    what Python calls: checks what the plan's key does not say, then runs all rows; it alone when serial
    tile      all passes over 64 short rows at once (`trueno_simd.rows.short_rows`)
    piece_k   pass k over a slice of one long row, for the thread pool
    piece     all passes over a range of rows, for the thread pool
    find_k    where in its block the winner of an argmax is

A fold runs over blocks of 64 elements a lane, and sums over runs of 8, whose results are joined in float64: the
chain of additions that a term passes through stays short however long the row, which is the accuracy that the
backend declares.
Pieces depend on the row's length and never on the number of threads, so results do not either.
Everything serial is one function: Numba optimizes a nested function again in each of its callers.
"""

from textwrap import fill

from trueno.backend import NUMBERS, Lowering, Pass

from trueno_simd.llvm.isa import RUNS
from trueno_simd.rows.expressions import FUNCTIONS, IDIOMS, FoldText, expression, fold_text
from trueno_simd.rows.imports import IMPORTS
from trueno_simd.rows.variant import Variant
from trueno_simd.rows.width import computes

Lines = list[str]
SHORT_ROW, LONGER_ROW = 32, 64
"""Elements of a row up to which rows are taken TILE at a time.

Longer ones where sums of so many terms are within the backend's `chain`, and a tile takes no more of the frame.
"""


class Printer:
    """Emits the Python source of one lowered program, innermost loop first."""

    span = ("0", "n")  # which elements of a row a pass goes over

    def __init__(self, plan: Lowering, dtype: str, block: int, variant: Variant) -> None:
        self.plan = plan
        self.program = plan.program
        self.nodes = plan.program.nodes
        self.dtype = dtype
        self.block = block
        self.variant = variant
        self.kinds = dict(self.program.operands)
        self.outs = {f"out{k}": k for k in range(len(self.program.outputs)) if k not in variant.flags}
        self.slots = {name: i for i, name in enumerate([*self.kinds, *self.outs])}
        # Nothing folds and nothing varies by row alone: rows × n is one long row; health flags fold over all of it.
        flags = {self.program.outputs[k] for k in variant.flags}
        folds = {self.nodes[f].kind for f in self.program.folds if f not in flags}
        self.flat = not folds and set(self.kinds.values()) <= {"e", "u"}
        read = {str(n.value) for n in self.nodes if n.kind == "leaf"}
        self.arrays = [n for n in self.kinds if n in read] + list(self.outs)
        self.params = [f"p_{n}" for n in self.program.params]
        # Many short rows have a schedule of their own; a compensated sum keeps its own loop.
        self.wide = computes(plan)
        self.tiled = variant.rank == 2 and bool(folds) and "fsum" not in folds

    def text(self) -> str:
        """The whole module."""
        head = f'"""{self.variant.title}\n\n{self.program.text}\n"""\n\n'
        parts = [head + self.imports() + "\n".join(self.constants())]
        parts += [self.find(f) for f in self.program.folds if self.position(f)]
        by_rows = self.variant.rank == 2 and not self.flat
        parts += self.tiles()
        if self.variant.parallel:
            parts += [self.piece_of_rows()] if by_rows else [self.piece(k, s) for k, s in enumerate(self.plan.passes)]
        return "\n\n\n".join([*parts, self.kernel(by_rows)]) + "\n"

    @property
    def itemsize(self) -> int:
        return 8 if self.dtype == "float64" else 4

    @property
    def register(self) -> int:
        """Bytes of a vector register, of which 64 elements a lane are a block."""
        return max(self.block * self.itemsize // 256, 16)

    def tiles(self) -> Lines:
        """The functions that `all_rows` calls for tiles of short rows, which `trueno_simd.rows.source` adds."""
        return []

    def imports(self) -> str:
        facts = {"dtype": self.dtype, "block": self.block, "run": self.block // RUNS, "piece": self.variant.piece}
        facts["short"] = self.short_row()
        names = ", ".join(sorted((*FUNCTIONS, *IDIOMS[self.dtype], "pow", "sqrt")))
        functions = fill(names, 110, initial_indent="    ", subsequent_indent="    ")
        return IMPORTS.format(**facts, functions=functions, outer="outer_wide as outer" if self.wide else "outer")

    def short_row(self) -> int:
        """The longest row that is taken in tiles; alone 64 elements of one sum took 0.8 of the time."""
        if self.dtype != "float32" or self.register != 64:
            return SHORT_ROW
        return LONGER_ROW - ([self.nodes[f].kind for f in self.program.folds] == ["sum"])

    def constants(self) -> Lines:
        special = {"inf": "INF", "-inf": "-INF", "nan": "INF - INF"}
        values = {i: repr(n.value) for i, n in enumerate(self.nodes) if n.kind == "const"}
        return [f"c{i} = {special.get(v, f'T({v})')}" for i, v in values.items()]

    # ---- values -------------------------------------------------------------------------------------

    def name(self, i: int) -> str:
        """How node `i` is called where it is visible."""
        node = self.nodes[i]
        match node.kind:
            case "const":
                return f"c{i}"
            case "param":
                return f"p_{node.value}"
            case "count":
                return "count"
        return f"{'v' if node.space == 'e' else 'r'}{i}"

    def expression(self, i: int) -> str:
        return expression(self.nodes, i, self.name, self.dtype)

    def element_type(self, i: int) -> str:
        return {"T": f"types.{self.dtype}", "bool": "boolean", "index": "int64"}[self.nodes[i].type]

    def is_element(self, k: int) -> bool:
        return self.nodes[self.program.outputs[k]].space == "e"

    def outside(self, body: tuple[int, ...] | Lines) -> Lines:
        """Row and uniform values that element nodes need from outside their loop; constants are global."""
        needed = [a for i in body for a in self.nodes[int(i)].args]
        return list(dict.fromkeys(
            self.name(a) for a in needed if self.nodes[a].space != "e" and self.nodes[a].kind != "const"
        ))  # fmt: skip

    def elements(self, loads: tuple[tuple[int, str | int], ...], body: tuple[int, ...]) -> Lines:
        """One element: its loads, then its ops."""
        lines = []
        for i, source in loads:
            array = source if isinstance(source, str) else f"out{source}"
            at = "i" if self.kinds.get(array) == "w" else "base + i"
            lines.append(f"v{i} = load({array}, {at}, {self.slots[array]})")
        return lines + [f"v{i} = {self.expression(i)}" for i in body]

    # ---- folds --------------------------------------------------------------------------------------

    def fold(self, f: int) -> FoldText:
        return fold_text(self.nodes[f].kind, self.dtype, self.nodes[f].value == NUMBERS)

    def position(self, f: int) -> bool:
        return self.nodes[f].kind in ("argmax", "argmin")

    def states(self, f: int) -> Lines:
        """Names of what a fold carries from block to block."""
        return [f"a{f}", f"b{f}"][: len(self.fold(f).state)]

    def state_pair(self, f: int) -> dict[str, str]:
        return dict(zip("ab", [*self.states(f), ""], strict=False))

    def finish(self, f: int) -> str:
        """A fold's value from its state."""
        if not self.position(f):
            return f"r{f} = {self.fold(f).result.format(**self.state_pair(f))}"
        loads, body = self.argument(f)
        arrays = [str(source) for _, source in loads]
        arguments = ", ".join(["base", f"b{f}", "n", f"a{f}", *arrays, *self.outside(body)])
        return f"r{f} = find_{f}({arguments})"

    def argument(self, f: int) -> tuple[tuple[tuple[int, str | int], ...], tuple[int, ...]]:
        """Loads and element ops that compute a fold's argument from leaves."""
        need = [i for i in sorted(self.program.live(self.nodes[f].args)) if self.nodes[i].space == "e"]
        leaves = tuple((i, str(self.nodes[i].value)) for i in need if self.nodes[i].kind == "leaf")
        return leaves, tuple(i for i in need if self.nodes[i].kind != "leaf")

    def find(self, f: int) -> str:
        """Where in its block the winner is: in float32 run by run, in lanes of 32 bits; in float64 that lost 5 %."""
        (loads, body), value = self.argument(f), self.name(self.nodes[f].args[0])
        names = ["base", "at", "n", "best", *(str(source) for _, source in loads), *self.outside(body)]
        runs = self.dtype == "float32"
        start, step, far, j = ("lo", "RUN", "FAR", "narrow(j)") if runs else ("at", "BLOCK", "int64(FAR)", "j")
        lines = [f"k = {far}", f"for j in range(min({step}, n - {start})):", f"    i = {start} + j"]
        lines += indent(self.elements(loads, body))
        lines.append(f"    k = least(k, select(either({value} == best, {value} != {value}), {j}, {far}))")
        if runs:
            lines += ["if k != FAR:", "    return lo + k"]
            lines = ["for lo in range(at, min(at + BLOCK, n), RUN):", *indent(lines), "return at"]
        else:
            lines.append("return at + (0 if k == FAR else k)")
        return "\n".join(["@outer", f"def find_{f}({', '.join(names)}):", *indent(lines)])

    # ---- passes -------------------------------------------------------------------------------------

    def loop(self, pass_: Pass, start: str, stop: str) -> Lines:
        """One pass over elements start … stop of the row at `base`; leaves its folds in their states."""
        inside = self.elements(pass_.loads, pass_.body)
        for f in pass_.folds:
            v = self.nodes[f].args[0]
            truth = self.nodes[f].type == "bool" and self.nodes[v].type == "T"
            value = f"{self.name(v)} != T(0)" if truth else self.name(v)
            inside.append(f"s{f} = {self.fold(f).step.format(s=f's{f}', v=value)}")
        inside += [f"store(out{k}, base + i, {self.name(v)}, {self.slots[f'out{k}']})" for k, v in pass_.stores]
        if not pass_.folds:
            return [f"for i in range({start}, {stop}):", *indent(inside)]
        lines = []
        for f in pass_.folds:
            lines += [f"{name} = {value}" for name, value in zip(self.states(f), self.fold(f).state, strict=True)]
        step = "RUN" if any(self.nodes[f].kind == "sum" for f in pass_.folds) else "BLOCK"
        lines.append(f"for lo in range({start}, {stop}, {step}):")
        lines += [f"    s{f} = {self.fold(f).start}" for f in pass_.folds]
        lines += [f"    for i in range(lo, min(lo + {step}, {stop})):", *indent(inside, 2)]
        for f in pass_.folds:
            lines += indent(self.fold(f).join.format(q=f"s{f}", **self.state_pair(f)).split("\n"))
        return lines

    def row(self, split: bool) -> Lines:
        """All passes of row `r`: its own values, each pass here or (`split`) in pieces, then its results."""
        lines = ["base = r * n", *["count = T(n)"][: any(n.kind == "count" for n in self.nodes)]]
        for i, node in enumerate(self.nodes):
            if node.kind == "leaf" and node.space != "e":
                name = str(node.value)
                lines.append(f"r{i} = load({name}, {'r' if self.kinds[name] == 'r' else '0'}, {self.slots[name]})")
        for k, pass_ in enumerate(self.plan.passes):
            lines += [f"r{i} = {self.expression(i)}" for i in pass_.before]
            lines += self.split(k, pass_) if split else self.loop(pass_, *self.span)
            lines += [self.finish(f) for f in pass_.folds]
        lines += [f"r{i} = {self.expression(i)}" for i in self.plan.tail]
        for out, k in self.outs.items():
            if not self.is_element(k):
                lines.append(f"store({out}, r, {self.name(self.program.outputs[k])}, {self.slots[out]})")
        return lines + [f"bad |= int64({self.name(self.program.outputs[k])})" for k in self.variant.flags]

    # ---- pieces for the thread pool -----------------------------------------------------------------

    def parts(self, k: int, pass_: Pass) -> dict[str, str]:
        """Arrays of partial states, one element a piece, with their types."""
        kinds = [kind.replace("T", f"types.{self.dtype}") for f in pass_.folds for kind in self.fold(f).types]
        return {f"part{k}_{j}": kind for j, kind in enumerate(kinds)}

    def values(self, pass_: Pass) -> Lines:
        """What a pass reads from outside: arrays, then row values."""
        arrays = [s if isinstance(s, str) else f"out{s}" for _, s in pass_.loads] + [f"out{k}" for k, _ in pass_.stores]
        return [*dict.fromkeys(arrays), *self.outside(pass_.body)]

    def type_of(self, name: str) -> str:
        """Numba type of a value that travels to a piece."""
        if name in self.slots:
            out = self.outs.get(name)
            kind = f"types.{self.dtype}" if out is None else self.element_type(self.program.outputs[out])
            return f"types.CPointer({kind})"
        return self.element_type(int(name[1:])) if name[1:].isdigit() else f"types.{self.dtype}"

    def function(self, name: str, integers: Lines, values: Lines, parts: dict[str, str], body: Lines) -> str:
        """A function of (args, i) that unpacks what the caller packed."""
        kinds = ["int64" for _ in integers] + [self.type_of(v) for v in values]
        kinds += [f"types.CPointer({kind})" for kind in parts.values()]
        lines = [f"load_{name} = unpack(types.Tuple(({', '.join(kinds)},)))", "", "", "@outer", f"def {name}(args, i):"]
        names = ", ".join([*integers, *values, *parts])
        return "\n".join([*lines, f"    {names} = load_{name}(args)", *indent(body)])

    def piece(self, k: int, pass_: Pass) -> str:
        parts = self.parts(k, pass_)
        states = [name for f in pass_.folds for name in self.states(f)]
        body = ["start = i * step", "stop = min(start + step, n)", "piece = i", *self.loop(pass_, "start", "stop")]
        body += [f"{part}[piece] = {state}" for part, state in zip(parts, states, strict=True)]
        rooms = [f"room_{part} = stack({kind}, PIECES)" for part, kind in parts.items()]
        function = self.function(f"piece_{k}", ["base", "n", "step"], self.values(pass_), parts, [*body, "return 0"])
        return "\n".join([*rooms, function])

    def split(self, k: int, pass_: Pass) -> Lines:
        """A pass in pieces, its folds joined in order."""
        parts = list(self.parts(k, pass_))
        lines = [f"{part} = room_{part}()" for part in parts]
        packed = ", ".join(["base", "n", "step", *self.values(pass_), *parts])
        lines += self.region(k, pass_, packed)
        if not parts:
            return lines
        joins = []
        for f in pass_.folds:
            mine = [parts.pop(0) for _ in self.states(f)]
            truth = " != 0" if self.nodes[f].type == "bool" else ""
            lines += [f"{state} = {part}[0]{truth}" for state, part in zip(self.states(f), mine, strict=True)]
            later = dict(zip(("qa", "qb"), [f"{part}[c]" for part in mine], strict=False))
            joins += self.fold(f).merge.format(**self.state_pair(f), **later).split("\n")
        return [*lines, "for c in range(1, pieces):", *indent(joins)]

    def region(self, k: int, pass_: Pass, packed: str) -> Lines:
        return [f"parallel_for(address_of(piece_{k}), pack(({packed},)), pieces, n // PIECE * PIECE_NS)"]

    def all_rows(self, start: str, stop: str) -> Lines:
        """Rows start … stop, short ones in tiles."""
        if not self.tiled:
            return [f"for r in range({start}, {stop}):", *indent(self.row(False))]
        arguments = ", ".join(["first", "n", *self.arrays, *self.params])
        tiles = [
            "if n <= SHORT_ROW:",
            f"    while first + TILE <= {stop}:",
            f"        bad |= tile({arguments})",
            "        first += TILE",
        ]
        return [f"first = {start}", *tiles, f"for r in range(first, {stop}):", *indent(self.row(False))]

    def piece_of_rows(self) -> str:
        body = ["bad = 0", "stop = min(i * step + step, rows)", *self.all_rows("i * step", "stop"), "return bad"]
        return self.function("piece", ["n", "rows", "step"], [*self.arrays, *self.params], {}, body)

    # ---- the kernel ---------------------------------------------------------------------------------

    def kernel(self, by_rows: bool) -> str:
        rank, scalar = self.variant.rank, f"types.{self.dtype}"
        dims = {"e": rank, "w": 1, "r": rank - 1, "u": 0}
        kinds = [f'types.Array({scalar}, {dims[kind]}, "C", readonly=True)' for kind in self.kinds.values()]
        kinds += ["float64"] * len(self.params)
        for k in self.outs.values():
            kind = self.element_type(self.program.outputs[k])
            kinds.append(f'types.Array({kind}, {rank if self.is_element(k) else rank - 1}, "C")')
        lines = self.checks()
        lines += [f"{p} = T({p}_)" for p in self.params] + [f"{a} = pointer({a}_)" for a in self.arrays]
        lines += ["n, rows = n * rows, 1"] if self.flat and rank == 2 else []
        lines += ["bad = 0", *self.run(by_rows)]
        arguments = ", ".join(f"{name}_" for name in [*self.kinds, *self.params, *self.outs])
        head = [self.entry(kinds), f"def kernel({arguments}):"]
        return "\n".join([*head, *indent(lines)])

    def entry(self, kinds: Lines) -> str:
        """The kernel's decorator."""
        return f"@kernel_entry(int64({', '.join(kinds)}){', wide=True' if self.wide else ''})"

    def checks(self) -> Lines:
        """What the key does not say: lengths, and that results are operands or overlap none."""
        whole = next((n for n, kind in self.kinds.items() if kind == "e"), None)
        whole = whole or next((out for out, k in self.outs.items() if self.is_element(k)), None)
        last = self.variant.rank - 1
        wrong = []
        for name, kind in [
            *self.kinds.items(),
            *((o, "e" if self.is_element(k) else "r") for o, k in self.outs.items()),
        ]:
            if kind == "w" or (kind == "e" and name != whole):
                wrong.append(f"{name}_.shape[{last if kind == 'e' else 0}] != n")
            if last and (kind == "r" or (kind == "e" and name != whole)):
                wrong.append(f"{name}_.shape[0] != rows")
        wrong += self.overlaps()
        if last and self.variant.parallel and not self.flat:
            wrong.append("rows == 1")  # the general path calls the kernel for one row, which splits it
        return [
            f"n, rows = {self.extents(whole)}",
            "if (",
            *(f"    {'or ' if i else ''}{w}" for i, w in enumerate(wrong)),
            "):",
            "    return -1",
        ]

    def overlaps(self) -> Lines:
        """Conditions under which a result overlaps an operand that it is not, or another result."""
        wrong = []
        for out, k in self.outs.items():
            for name, kind in self.kinds.items():
                same = kind == "e" and self.is_element(k) and (k, name) not in self.plan.hazards
                same = same and self.nodes[self.program.outputs[k]].type == "T"
                wrong.append(f"not {'apart_or_same' if same else 'apart'}({out}_, {name}_)")
            wrong += [f"not apart({out}_, {other}_)" for other, j in self.outs.items() if j < k]
        return wrong

    def extents(self, whole: str | None) -> str:
        """Elements of a row, and rows: of an array that fills them, else of a shared row and of what has one a row."""
        if whole is not None:
            return f"{whole}_.shape[1], {whole}_.shape[0]" if self.variant.rank == 2 else f"{whole}_.shape[0], 1"
        shared = next(n for n, kind in self.kinds.items() if kind == "w")  # every fold runs over something
        each = next(iter(self.outs))
        return f"{shared}_.shape[0], {f'{each}_.shape[0]' if self.variant.rank == 2 else '1'}"

    def run(self, by_rows: bool) -> Lines:
        if not self.variant.parallel:
            lines = self.all_rows("0", "rows")
        elif by_rows:
            packed = ", ".join(["n", "rows", "step", *self.arrays, *self.params])
            call = f"parallel_for(address_of(piece), pack(({packed},)), pieces, rows * n // PIECE * PIECE_NS)"
            lines = [
                "gil = release_gil()",
                "pieces, step = row_spans(rows, n, PIECE)",
                f"bad = {call}",
                "acquire_gil(gil)",
            ]
        else:
            lines = [
                "gil = release_gil()",
                "pieces, step = spans(n, PIECE, RUN)",
                "r = 0",
                *self.row(True),
                "acquire_gil(gil)",
            ]
        return [*lines, *self.status()]

    def status(self) -> Lines:
        """What the kernel returns: of a guarded program what its results hold, which is looked for if a flag is set."""
        if not self.variant.flags:
            return ["return 0"]
        floats = [k for k in self.outs.values() if self.nodes[self.program.outputs[k]].type == "T"]
        status = " | ".join(f"finiteness(out{k}, out{k}_.size)" for k in floats) or "0"
        return ["if bad == 0:", "    return 0", f"return {status}"]


def indent(lines: Lines, by: int = 1) -> Lines:
    return ["    " * by + line for line in lines]
