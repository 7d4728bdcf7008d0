"""Schedules: the Python source that drives a tape over whole arrays.

`one`: everything is a single tile, and the first op of each register allocates it.  `flat`: rows do not matter, so
arrays are one long line.  `rows`: tiles of whole rows.  `across`: short rows, tiles transposed so that NumPy's
inner loop runs over many rows.  `long`: rows longer than a tile, pass by pass as planned, with partial folds combined.
A call runs one short straight function, printed here once per kernel and readable as `kernel.text`.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from trueno.backend import Lowering

from trueno_scalar.operands import seen
from trueno_scalar.rows import functions
from trueno_scalar.rows.tape import REDUCE, Shape, Tape

TILE_BYTES = 262144
"""Bytes of one tile: three of them fit a core's L2.  Half or twice as many cost 5 to 10 % (measured, Zen 5)."""
LONE_TILE = 1 << 22
"""Elements of a tile of a single call, which keeps nothing in cache; bounded only so that sums stay exact."""
ONE = 8192
"""Elements up to which everything is one tile; above, a loop also prepares its registers in advance."""
SHORT_ROW = 16
"""Rows up to this length run across, if there are enough of them (up to twice this, where a maximum is folded,
for which NumPy has no fast loop over short rows)."""

SCHEDULES = ("one", "flat", "rows", "across", "long")


class Schedules:
    """Source of every schedule of one plan; operands are x0 …, parameters p0 …, results y0 …."""

    def __init__(self, plan: Lowering, dtype: np.dtype[Any], rank: int, guarded: bool) -> None:
        self.plan = plan
        self.program = plan.program
        self.dtype = dtype
        self.rank = rank
        self.tile = TILE_BYTES // dtype.itemsize
        self.short_row = SHORT_ROW << any(n.kind in ("max", "min") for n in plan.program.nodes)
        self.guarded = guarded
        nodes = self.program.nodes
        self.kinds = [kind for _, kind in self.program.operands]
        self.slot = {name: j for j, (name, _) in enumerate(self.program.operands)}
        self.element_outputs = {k for k, o in enumerate(self.program.outputs) if nodes[o].space == "e"}
        self.float_outputs = [k for k, o in enumerate(self.program.outputs) if nodes[o].type == "T"]
        self.arguments = ", ".join(
            [f"x{j}" for j in range(len(self.kinds))]
            + [f"p{j}" for j in range(len(self.program.params))]
            + [f"y{k}" for k in range(len(self.program.outputs))]
        )
        folds = bool(self.program.folds)
        self.flat = not folds and len(self.element_outputs) == len(self.program.outputs)
        self.flat &= rank == 1 or not {"w", "r"} & set(self.kinds)
        self.flat &= not any(n.kind in ("count", "position") for n in nodes)

    def text(self, schedule: str, alias: bool) -> str:
        """The function `schedule` as source."""
        lines = getattr(self, f"_{schedule}")(alias)
        body = "\n".join(f"    {line}" for line in [*self._parameters(), *lines])
        return f"def run_{schedule}{'_alias' * alias}({self.arguments}):\n{body}\n"

    def namespace(self) -> dict[str, Any]:
        """The names that the sources refer to."""
        D = self.dtype
        names: dict[str, Any] = {name: getattr(np, name) for name in functions.UFUNC.values()}
        names |= {name: f for name, (_, f) in functions.SCRATCH.items()}
        names |= {
            "T": D.type, "D": D, "W": np.float64 if D.itemsize == 4 else np.longdouble, "one": D.type(1),
            "BOOL": np.dtype(bool), "INDEX": np.dtype(np.intp), "BITS": functions.INTEGER[D],
            "WIDE": np.dtype(np.float64),
            "empty": np.empty, "full": np.full, "array": np.array, "arange": np.arange, "copyto": np.copyto,
            "broadcast_to": np.broadcast_to, "np_copysign": np.copysign, "product": functions.product,
            "seen": seen, "add_reduce": np.add.reduce, "mul_reduce": np.multiply.reduce,
            "max_reduce": np.maximum.reduce, "min_reduce": np.minimum.reduce,
            "any_reduce": np.logical_or.reduce, "all_reduce": np.logical_and.reduce,
        }  # fmt: skip
        with np.errstate(all="ignore"):
            for i, node in enumerate(self.program.nodes):
                if node.kind == "const":
                    names[f"k{i}"] = D.type(node.value)
                    names[f"c{i}"] = np.array(node.value, D)
        return names

    # ---- parts that schedules share ---------------------------------------------------------------

    def _parameters(self) -> list[str]:
        """Parameters are rounded to the call's float before any use."""
        return [f"p{j} = T(p{j})" for j in range(len(self.program.params))]

    def _names(self, row_is: str) -> tuple[dict[int, str], list[str]]:
        """Names of leaves, and lines that compute those of one row: `row_is` is the row's index or ''."""
        names, lines = {}, []
        for i, node in enumerate(self.program.nodes):
            if node.kind == "leaf":
                j = self.slot[str(node.value)]
                names[i] = f"v{i}"
                if self.kinds[j] == "u" or (self.kinds[j] == "r" and row_is):
                    index = row_is if self.kinds[j] == "r" else "()"
                    lines.append(f"v{i} = x{j}[{index}]")
            elif node.kind == "param":
                names[i] = f"p{self.program.params.index(str(node.value))}"
            elif node.kind == "count":
                names[i] = f"v{i}"
                lines.append(f"v{i} = T(n)")
            elif node.kind == "position":
                names[i] = "pos"
        return names, lines

    def _views(self, kinds: str, how: dict[str, str]) -> list[str]:
        """Lines that name the tile of each operand whose kind letter is in `kinds`."""
        lines = []
        for i, node in enumerate(self.program.nodes):
            if node.kind == "leaf" and self.kinds[j := self.slot[str(node.value)]] in kinds:
                lines.append(f"v{i} = x{j}{how[self.kinds[j]]}")
        return lines

    def _results(self, element: str, row: str | None) -> list[str]:
        lines = [f"o{k} = y{k}{element}" for k in sorted(self.element_outputs)]
        if row is not None:
            lines += [f"o{k} = y{k}{row}" for k in range(len(self.program.outputs)) if k not in self.element_outputs]
        return lines

    def _tape(self, shape: Shape, names: dict[int, str]) -> Tape:
        return Tape(self.program, shape, dict(names), f"fma{8 * self.dtype.itemsize}")

    def _whole(self, shape: Shape, names: dict[int, str]) -> Tape:
        """The program in one straight line: each node once, whatever its pass."""
        tape = self._tape(shape, names)
        nodes = self.program.nodes
        order = [i for i, node in enumerate(nodes) if node.args]
        tape.run(order, list(enumerate(self.program.outputs)), self.element_outputs)
        return tape

    def _status(self, outputs: Iterable[int]) -> list[str]:
        return [f"status |= seen(o{k})" for k in outputs] if self.guarded else []

    def _allocate(self, tape: Tape, shape: str, column: str = "()") -> list[str]:
        dtypes = {"s": "D", "b": "BOOL", "i": "INDEX", "j": "BITS", "d": "WIDE", "r": "D", "q": "BOOL", "k": "INDEX"}
        lines = [
            f"{name} = empty({column if kind in 'rqk' else shape}, {dtypes[kind]})"
            for name, kind in tape.registers.items()
        ]
        return lines + [f"{name} = full({shape}, {value}, D)" for name, value in tape.fills.items()]

    def _shorten(self, tape: Tape, cut: str, condition: str) -> list[str]:
        """The last tile is shorter: so are its registers."""
        names = [*tape.registers, *tape.fills]
        return [f"if {condition}:", *(f"    {name} = {name}[{cut}]" for name in names)] if names else []

    # ---- the schedules ----------------------------------------------------------------------------

    def _one(self, alias: bool) -> list[str]:
        columns = self.rank == 2
        names, row_lines = self._names("" if columns else "()")
        lines = self._views("ewr" if columns else "ew", {"e": "", "w": "", "r": "[:, None]"})
        lines += self._results("", "[:, None]" if columns else "")
        if columns:
            lines += ["shape = rows, n = " + self.shape_of(), "column = rows, 1"]
        else:
            lines += ["shape = " + self.shape_of(), "n = shape[0]"]
        lines += row_lines
        if "pos" in names.values():
            lines.append("pos = arange(n)")
        tape = self._whole(Shape(columns, 1, ready=False, alias=alias, early=True), names)
        lines += tape.lines
        needed = " ".join(lines)
        lines = [x for x in lines if self._needed(x, needed)]
        if self.guarded:
            return [*lines, "status = 0", *self._status(self.float_outputs), "return status"]
        return [*lines, "return 0"]

    def _needed(self, line: str, text: str) -> bool:
        """Whether a line that only prepares is used at all: small calls pay for each such line."""
        if line.startswith("column = "):
            return "(column" in text
        if line.startswith("shape = ") and self.rank == 1:
            return "(shape" in text or "T(n)" in text or "arange(n)" in text
        if line.startswith("n = "):
            return "T(n)" in text or "arange(n)" in text
        if line.startswith("shape = rows, n"):
            return "(shape" in text or "(column" in text or "T(n)" in text or "arange(n)" in text or ", shape)" in text
        return True

    def shape_of(self) -> str:
        """An expression for the shape of the elements."""
        for k in sorted(self.element_outputs):
            return f"y{k}.shape"
        for j, kind in enumerate(self.kinds):
            if kind == "e":
                return f"x{j}.shape"
        rows = ("y0.shape[0],",) if self.rank == 2 else ()
        for j, kind in enumerate(self.kinds):
            if kind == "w":
                return f"({' '.join(rows)} x{j}.shape[0],)"
        return f"({' '.join(rows)} 1,)"

    def _flat(self, alias: bool) -> list[str]:
        names, row_lines = self._names("()" if self.rank == 1 else "")
        tape = self._whole(Shape(False, 0, ready=True, alias=alias, early=True), names)
        lines = []
        if self.rank == 2:
            lines += [f"if not ({' and '.join(f'y{k}.flags.c_contiguous' for k in sorted(self.element_outputs))}):"]
            lines += ["    return -1"]
            lines += [f"x{j} = x{j}.reshape(-1)" for j, kind in enumerate(self.kinds) if kind == "e"]
            lines += [f"y{k} = y{k}.reshape(-1)" for k in sorted(self.element_outputs)]
        lines += [
            *row_lines,
            "size = y0.shape[0]",
            f"step = min(size, {self._tile(tape)})",
            *self._allocate(tape, "step"),
        ]
        loop = self._views("ew", {"e": "[lo:hi]", "w": "[lo:hi]"}) + self._results("[lo:hi]", None)
        loop += self._shorten(tape, ":size - lo", "hi > size") + tape.lines + self._status(self.float_outputs)
        return [*lines, "status = 0", *_loop("lo", "size", "step", ["hi = lo + step", *loop]), "return status"]

    def _rows(self, alias: bool) -> list[str]:
        names, row_lines = self._names("")
        tape = self._whole(Shape(True, 1, ready=True, alias=alias, early=True), names)
        lines = [
            "rows, n = " + self.shape_of(),
            *row_lines,
            f"step = min(rows, max(1, {self._tile(tape)} // max(1, n)))",
        ]
        if "pos" in names.values():
            lines.append("pos = arange(n)")
        lines += self._allocate(tape, "(step, n)", "(step, 1)") + self._views("w", {"w": ""})
        loop = ["hi = lo + step", "shape = min(step, rows - lo), n"]
        loop += self._views("er", {"e": "[lo:hi]", "r": "[lo:hi, None]"}) + self._results("[lo:hi]", "[lo:hi, None]")
        loop += self._shorten(tape, ":rows - lo", "hi > rows") + tape.lines + self._status(self.float_outputs)
        return [*lines, "status = 0", *_loop("lo", "rows", "step", loop), "return status"]

    def _across(self, alias: bool) -> list[str]:
        names, row_lines = self._names("")
        tape = self._whole(Shape(True, 0, ready=True, alias=alias, early=False), names)
        lines = [
            "rows, n = " + self.shape_of(),
            *row_lines,
            f"step = min(rows, max(1, {self._tile(tape)} // max(1, n)))",
        ]
        if "pos" in names.values():
            lines.append("pos = arange(n)[:, None]")
        lines += self._allocate(tape, "(n, step)", "(1, step)") + self._views("w", {"w": "[:, None]"})
        loop = ["hi = lo + step", "shape = n, min(step, rows - lo)"]
        for i, node in enumerate(self.program.nodes):
            if node.kind == "leaf" and self.kinds[j := self.slot[str(node.value)]] == "e":
                users = [n for n in self.program.nodes if i in n.args]
                if len(users) < 2 and not any(n.kind in REDUCE for n in users):
                    loop.append(f"v{i} = x{j}[lo:hi].T")
                else:  # one transposing copy is cheaper than two strided reads, or than one strided fold
                    lines.append(f"t{i} = empty((n, step), D)")
                    loop += [f"v{i} = t{i}[:, :min(step, rows - lo)]", f"copyto(v{i}, x{j}[lo:hi].T)"]
        loop += self._views("r", {"r": "[None, lo:hi]"}) + self._results("[lo:hi].T", "[None, lo:hi]")
        loop += self._shorten(tape, ":, :rows - lo", "hi > rows") + tape.lines + self._status(self.float_outputs)
        return [*lines, "status = 0", *_loop("lo", "rows", "step", loop), "return status"]

    def _long(self, alias: bool) -> list[str]:
        """One row after the other; each pass goes over it in tiles and joins its folds before row ops go on."""
        nodes = self.program.nodes
        two = self.rank == 2
        names, row_lines = self._names("row" if two else "()")
        body: list[str] = []
        allocations: dict[str, str] = {}
        scalars = self._tape(Shape(False, 0, True, alias, False), names)
        written: set[int] = set()
        for pass_ in self.plan.passes:
            for i in pass_.before:
                body.append(f"v{i} = {scalars.scalar_text(i)}")
                scalars.names[i] = names[i] = f"v{i}"
            pass_names = dict(names)
            for i, source in pass_.loads:
                pass_names[i] = f"v{i}" if isinstance(source, str) else f"o{source}"
            loaded = {source for _, source in pass_.loads if not isinstance(source, str)}
            stored = {k for k, _ in pass_.stores}
            careful = alias or bool(loaded & stored)
            tape = self._tape(Shape(False, 0, ready=True, alias=careful, early=True), pass_names)
            order = sorted({*pass_.body, *pass_.folds})
            tape.run(order, pass_.stores, stored - written, partial=True)
            written |= stored
            for f in pass_.folds:
                body += self._start(f)
            body.append(f"step = min(n, {self._tile(tape)})")
            for line in self._allocate(tape, "step"):
                name, _, value = line.partition(" = ")
                if name in tape.registers:
                    allocations[name] = value  # passes share their registers
                else:
                    body.append(line)
            loop = ["hi = min(lo + step, n)"]
            if "pos" in names.values():
                loop.append("pos = arange(lo, hi)")
            for _, source in pass_.loads:
                if isinstance(source, str):
                    j = self.slot[source]
                    loop += [
                        f"v{i} = x{j}{'[row, lo:hi]' if two and self.kinds[j] == 'e' else '[lo:hi]'}"
                        for i, node in enumerate(nodes)
                        if node.kind == "leaf" and node.value == source
                    ]
            for k in sorted(loaded | stored):
                loop.append(f"o{k} = y{k}[row, lo:hi]" if two else f"o{k} = y{k}[lo:hi]")
            loop += [f"{r} = {r}_all[:hi - lo]" for r in tape.registers]
            loop += [f"{r} = {r}[:hi - lo]" for r in tape.fills]
            loop += tape.lines
            final = [k for k, o in pass_.stores if self.program.outputs[k] == o and k in self.float_outputs]
            loop += self._status(final)
            body += _loop("lo", "n", "step", loop)
            for f in pass_.folds:
                if nodes[f].kind in ("sum", "fsum", "prod"):
                    body.append(f"v{f} = T(v{f})")
                names[f] = scalars.names[f] = f"v{f}"
        for i in self.plan.tail:
            body.append(f"v{i} = {scalars.scalar_text(i)}")
            scalars.names[i] = names[i] = f"v{i}"
        for k, o in enumerate(self.program.outputs):
            if k not in self.element_outputs:
                body.append(f"y{k}[{'row' if two else '()'}] = {scalars.read(o, scalar=True)}")
                if self.guarded and k in self.float_outputs:
                    body.append(f"status |= seen(y{k}[{'row' if two else '...'}{', ...' * two}])")
        head = [f"{'rows, n' if two else 'n,'} = {self.shape_of()}", f"step = min(n, {self.tile})", "status = 0"]
        head += [f"{name}_all = {value}" for name, value in allocations.items()]
        per_row = row_lines + body
        if two:
            return [*head, "for row in range(rows):", *(f"    {x}" for x in per_row), "return status"]
        return [*head, *per_row, "return status"]

    def _start(self, f: int) -> list[str]:
        """The start value of fold `f`, before the first tile."""
        kind = self.program.nodes[f].kind
        start = {
            "sum": "0.0", "fsum": "W(0)", "prod": "1.0", "any": "False", "all": "True",
            "max": "T('-inf')", "min": "T('inf')",
        }.get(kind)  # fmt: skip
        return [f"v{f} = {start}"] if start else [f"v{f}, v{f}b = 0, T(0)"]

    def _tile(self, tape: Tape) -> int:
        """Elements of a tile: all of 2²² where one call does everything, fewer where many registers are live."""
        if tape.calls < 2 and not tape.registers and not tape.fills:
            return LONE_TILE
        return self.tile // (1 if len(tape.registers) < 4 else 2)


def _loop(variable: str, end: str, step: str, body: list[str]) -> list[str]:
    return [f"for {variable} in range(0, {end}, {step}):", *(f"    {line}" for line in body)]
