"""Products of a few rows of x with rows of blocks, for one matrix or several of one x, in one launch.

    y[c, i] = Σ x[c, k] · w[i, k]    c below `columns`, i over the rows of every matrix

A block of threads owns some rows of a matrix, and each lane one unit (`blocks`) of every one of these rows: the lane's
elements of x stay in its registers, quantized there once, and neither a barrier nor shared memory stands between the
matrix and dp4a.  The next units are on their way while one is multiplied, which is decoded once for all columns.  With
8-bit activations a unit's products and the scales of its groups are whole numbers, and become a float32 once a unit
and column; with "f32" codes become floats.  Lanes of a warp add up several rows at once (`folded`); warps meet in
shared memory once for `BAND` rows.  Rows that have more units than a block may have threads are taken in chunks.

Where x is normalized first (`norm`), lanes round x times the norm's weights, and 1 / sqrt(sum of x^2 / k + eps)
multiplies the sums at the end: codes do not depend on it, the float32 scales of `q8_k` carry it, and nothing waits for
the squares, which meet in shared memory beside the partial sums.  Where x times weights, or sums of it, leave float32's
range and the normalized ones do not, results are zeros, Inf or NaN.

Blocks that begin anywhere, as q6_k's, are dear to hold in registers; for one or two rows of x a warp copies its part of
the next rows into a ring of its own in shared memory (`staging`).

Floor: the bytes of w, at 4.28 TB/s on an H200.  Measured there in a chain of a graph, weights cold, one vector in 8
bits: 37888x3584 in q4_k 20.6 us, 87 % of the floor (normalized first 21.5); 3584x18944 in q4_k 12.1 us, 74 %;
152064x3584 in q6_k 115 us, 91 % (in registers 142); 3584x18944 in q6_k 18.1 us, 72 % (20.6); 4608x3584 and 3584x3584 in
q4_k 5.5 (normalized 5.8) and 4.7 us, 40 and 36 %.

The kernel waits for the one before it, and then reads.  Reading the matrix before the wait, where nothing in flight
writes it, gained 0 to 2 % for large matrices and lost 2 to 10 % for small ones: x then comes last, and has to be
quantized before anything is multiplied.
"""

from dataclasses import dataclass
from functools import cache
from inspect import Parameter, Signature
from types import SimpleNamespace
from typing import Any

from trueno.backend import FORMATS, Format, UnitShape, unit_shape

from trueno_cuda.kernels.epilogue import Epilogue
from trueno_cuda.kernels.quant.activations import Seen, columns, seen
from trueno_cuda.kernels.quant.blocks import Blocks
from trueno_cuda.kernels.quant.ending import Element, Ending, each_section
from trueno_cuda.kernels.quant.staging import WORD, Ring, slot_bytes
from trueno_cuda.kernels.quant.sums import Weights, folded
from trueno_cuda.kernels.quant.units import Decoded, Unit
from trueno_cuda.ptx import Kernel, Source, Value, Var, f32, ptr, u8, u32, u64
from trueno_cuda.ptx.builder import ParamType
from trueno_cuda.rows.elementary32 import rsqrt

BAND = 64
"""About how many rows of a matrix have partial sums in shared memory at once."""
SHARED = 48 << 10
"""Bytes of shared memory that the partial sums of all parts may take, unless one turn's take more."""
FEW = 2
"""Columns whose elements of x are on their way at once, one order of them counted as one column."""
MOST_SUMS = 32
"""Sums of a lane at once, over its rows and columns."""
MOST_COLUMNS = {"q8": 8, "f32": 2}
"""Rows of x at a time: more do not fit into registers."""


@dataclass(frozen=True, slots=True)
class Part:
    """One matrix: its format, how its bytes may be read (`access_of`), and what happens to its sums.

    pitch: the power of two up to 16 that divides the bytes of a row.
    sources: of what the epilogue reads beside the sum: ("operand", _), or ("result", number of an earlier part of the
    same section).  kept: whether the result is stored.
    """

    format: str
    access: int
    pitch: int = 1
    epilogue: Epilogue | None = None
    sources: tuple[tuple[str, int], ...] = ()
    kept: bool = True

    @property
    def word(self) -> str:
        """Part of a kernel's name."""
        return f"{self.format}{self.epilogue.name if self.epilogue else ''}"


Section = tuple[Part, ...]
"""Matrices of equally many rows, of which a block has the same: a part's epilogue may read another's result."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a kernel is built for.

    chunks: of a row, each of as many units as a block has threads.  resident: blocks that a multiprocessor holds.
    ahead: rows of each part that are on their way at once.  wide: whether x allows accesses of 16 bytes.
    staged: groups of so many rows that each warp has in shared memory (`staging`); 0: rows are read into registers.
    norm: whether x is normalized first; in one chunk, with 8 bits in blocks whose scales are float32.
    """

    sections: tuple[Section, ...]
    activations: str
    columns: int
    threads: int
    chunks: int
    resident: int
    ahead: int
    wide: bool
    guarded: bool = False
    staged: int = 0
    norm: bool = False

    @property
    def band(self) -> int:
        """Rows whose partial sums are in shared memory at once: some turns."""
        each = 4 * self.chunks * (self.threads // 32) * self.columns * len(self.parts)
        return self.ahead * max(min(BAND, SHARED // each) // self.ahead, 1)

    @property
    def parts(self) -> list[Part]:
        return [part for section in self.sections for part in section]

    @property
    def nbytes(self) -> int:
        """Bytes of shared memory: of each section partial sums, squares and rings."""
        warps = self.threads // 32
        sums = 4 * self.columns * warps * (self.chunks * self.band * len(self.parts) + self.norm * len(self.sections))
        return sums + self.staged * warps * self.ahead * sum(slot_bytes(p.format) for p in self.parts if self.staged)


def units_of(f: Format, k: int) -> int:
    """Units of a row of k elements."""
    return k // f.elements * unit_shape(f.name).units


def pointers_of(form: Any) -> tuple[dict[str, ParamType], dict[str, ParamType]]:
    """Parameters of a kernel's parts: pointers and floats.

    Of each part, matrix, result where it is kept, and what its epilogue reads; then the status word.
    """
    pointers: dict[str, ParamType] = {}
    floats: dict[str, ParamType] = {}
    for i, part in enumerate(form.parts):
        pointers[f"w{i}"] = ptr(u8)
        if part.kept:
            pointers[f"out{i}"] = ptr(f32)
        pointers |= {f"beside{i}_{j}": ptr(f32) for j, (where, _) in enumerate(part.sources) if where == "operand"}
        floats |= {f"number{i}_{j}": f32 for j in range(part.epilogue.numbers if part.epilogue else 0)}
    if form.guarded:
        pointers["status"] = ptr(u32)
    return pointers, floats


def sizes_of(form: Any) -> dict[str, ParamType]:
    """Parameters of a kernel's sections: rows, what a block has of them, and the first block."""
    return {f"{name}{n}": u32 for n in range(len(form.sections)) for name in ("rows", "share", "start")}


def params(form: Form) -> dict[str, ParamType]:
    """Parameters of the kernel: x, then those of its parts, with their sizes."""
    pointers, floats = pointers_of(form)
    wholes: dict[str, ParamType] = {"depth": u32}
    wholes |= {f"row_bytes{i}": u32 for i in range(len(form.parts))}
    norm: tuple[dict[str, ParamType], ...] = ({"norm": ptr(f32)}, {"eps": f32}) if form.norm else ({}, {})
    return {"x": ptr(f32)} | norm[0] | pointers | wholes | sizes_of(form) | norm[1] | floats


@cache
def rows(arch: str, form: Form) -> Kernel:
    """The kernel.  Grid: blocks, of which section n has those from start{n} on, each with share{n} of its rows{n}."""
    names = params(form)

    def function(k: Any, *given: Any) -> None:
        _write(k, SimpleNamespace(**dict(zip(names, given, strict=True))), form)

    function.__name__ = "_".join(
        ["quant_rows", *(["normed"] if form.norm else []), *dict.fromkeys(p.word for p in form.parts),
         form.activations, str(form.columns),
         *([f"s{form.staged}x{form.ahead}"] if form.staged else []), *(["guarded"] if form.guarded else [])]
    )  # fmt: skip
    place = Parameter.POSITIONAL_OR_KEYWORD
    parameters = [Parameter("k", place), *(Parameter(n, place, annotation=t) for n, t in names.items())]
    function.__signature__, function.body = Signature(parameters), _write  # type: ignore[attr-defined]
    return Source(function, threads=form.threads, blocks_per_sm=form.resident, overlap=True).build(arch)


def _write(k: Any, p: Any, form: Form) -> None:
    ending = Ending(k, p, form)
    each_section(k, p, form, lambda n, at: _Section(k, p, form, n, at, ending).write())
    ending.end()


class _Section:
    """Writes one section's part of the kernel: parts number `at` and on."""

    def __init__(self, k: Any, p: Any, form: Form, n: int, at: int, ending: Ending) -> None:
        self.k, self.p, self.form, self.at, self.ending = k, p, form, at, ending
        section = self.section = form.sections[n]
        self.rows, self.share, self.start = (getattr(p, f"{name}{n}") for name in ("rows", "share", "start"))
        self.formats = [FORMATS[part.format] for part in section]
        policy = k.l2_policy("evict_first") if k.target.number >= 80 else None
        self.matrices = [
            Blocks(k, f, getattr(p, f"w{at + i}"), part.access, policy=policy)
            for i, (part, f) in enumerate(zip(section, self.formats, strict=True))
        ]
        self.staged = [Blocks(k, f, getattr(p, f"w{at + i}"), WORD) for i, f in enumerate(self.formats) if form.staged]
        self.row_bytes = [k.multiple_of(getattr(p, f"row_bytes{at + i}"), part.pitch) for i, part in enumerate(section)]
        self.partial = k.shared(f32, form.chunks * (form.threads // 32), len(section), form.columns, form.band)
        self.squares: Any = k.shared(f32, form.columns, form.threads // 32) if form.norm else None

    def write(self) -> None:
        k, p, form = self.k, self.p, self.form
        first = (k.ctaid - self.start) * self.share
        last = k.min(first + self.share, self.rows)
        if form.chunks == 1:
            lane = _Lane(self, 0, first, last)
            lane.fetch(p.x)  # before the matrix, behind which it would queue
            lane.read()
            lane.see()
            for band in k.range(first, last, form.band):
                asked = self._ask(band, last)
                lane.multiply(band, k.min(band + form.band, last))
                self._finish(asked)
            if form.staged:
                lane.ring.end()
            return
        for band in k.range(first, last, form.band):
            stop, asked = k.min(band + form.band, last), self._ask(band, last)
            for chunk in k.range(0, form.chunks):
                lane = _Lane(self, chunk, band, stop)
                lane.fetch(p.x)
                lane.read()
                lane.see()
                lane.multiply(band, stop)
            self._finish(asked)

    def _ask(self, band: Value, last: Value) -> list[tuple[Value, Element, Any]]:
        """The elements of a band that the thread stores, by their rows in the band, and what it reads beside them.

        That is asked for before the sums, behind which nothing would hide it.
        """
        k, form, asked = self.k, self.form, []
        for begin in range(0, form.band * form.columns, form.threads):
            index = k.tid + begin
            row, column = index % form.band, index // form.band
            live = (band + row < last) & (index < form.band * form.columns)
            row, column = k.min(row, last - band - 1), k.min(column, form.columns - 1)
            at = band + row
            whole = column.to(u64) * self.rows.to(u64) + at.to(u64) if form.columns > 1 else at
            element = Element(whole, at, column, live)
            asked.append((row, element, self.ending.beside(self.section, self.at, element)))
        return asked

    def _finish(self, asked: list[tuple[Value, Element, Any]]) -> None:
        """Add up what the warps have, and store a band of every part."""
        k, form = self.k, self.form
        k.sync()
        slots = form.chunks * (form.threads // 32)
        for row, element, beside in asked:
            column, totals = element.column, []
            for i in range(len(self.section)):
                total = self.partial.load((0, i, column, row))
                for slot in range(1, slots):
                    total = total + self.partial.load((slot, i, column, row))
                totals.append(total)
            if form.norm:
                factor = self._factor(column)
                totals = [total * factor for total in totals]
            self.ending.store(self.section, self.at, totals, element, beside)
        k.sync()

    def _factor(self, column: Value) -> Value:
        """What `rms_norm` multiplies the elements of a column by, beside weights."""
        total = self.squares.load((column, 0))
        for warp in range(1, self.form.threads // 32):
            total = total + self.squares.load((column, warp))
        return rsqrt(self.k, total / self.p.depth.to(f32) + self.p.eps)


class _Lane:
    """What one lane does with its unit of each row from `first` on, up to `last`."""

    def __init__(self, section: _Section, chunk: Any, first: Value, last: Value) -> None:
        self.section, self.k, self.form, self.chunk = section, section.k, section.form, chunk
        self.first, self.last = first, last
        k, form = self.k, self.form
        number = k.tid + chunk * form.threads
        self.units, self.places, self.starts, self.live = [], [], [], []
        for f, w in zip(section.formats, section.staged or section.matrices, strict=True):
            count = section.p.depth // f.elements * w.shape.units
            unit = k.min(number, count - 1)
            e = w.first(unit % w.shape.units)
            self.units.append(Unit(w, e))
            self.places.append(unit // w.shape.units)
            self.starts.append(unit // w.shape.units * f.elements + e)
            self.live.append(number < count)
        self.held: list[list[list[list[Var]]]] = []
        self.fetched: dict[tuple[UnitShape, str], list[Any]] = {}
        self.weights: dict[tuple[UnitShape, str], list[list[Value]]] = {}
        self.seen: list[list[Seen]] = []

    def _block(self, part: int, row: Value) -> Any:
        w = self.section.matrices[part]
        return w.line(self.k.mul_wide(row, self.section.row_bytes[part])).block(self.places[part])

    def read(self) -> None:
        """Begin to read the first rows."""
        form, section = self.form, self.section
        if form.staged:
            sizes = form.threads // 32, form.ahead, form.staged
            rows = self.first, self.last
            self.ring = Ring(self.k, section.staged, section.row_bytes, self.places, *rows, *sizes)
            return
        for u in range(form.ahead):
            row = self.k.min(self.first + u, self.last - 1)
            loaded = [unit.load(self._block(i, row)) for i, unit in enumerate(self.units)]
            self.held.append([[[self.k.var(v) for v in values] for values in part] for part in loaded])

    def fetch(self, x: Any) -> None:
        """Begin to read the lane's elements of x; once for parts that have them in the same order."""
        k, form, section = self.k, self.form, self.section
        orders = {(w.shape, f.activations) for f, w in zip(section.formats, section.matrices, strict=True)}
        for f, w, start, live in zip(section.formats, section.matrices, self.starts, self.live, strict=True):
            key = w.shape, f.activations
            if key in self.fetched:
                continue
            self.fetched[key], place = [], (start, w.shape.run, w.shape.ways, live, form.wide)
            for c in range(form.columns):
                line = x + k.multiple_of(section.p.depth * c, 32) if c else x
                self.fetched[key].append(columns(k, line, *place))
                if form.norm and not c:
                    self.weights[key] = columns(k, section.p.norm, *place)
                if form.columns * len(orders) > FEW:  # whose floats do not all fit into registers
                    self.fetched[key][c] = self._seen(key, c)

    def see(self) -> None:
        """Quantize them."""
        section = self.section
        known = {
            key: [r if isinstance(r, Seen) else self._seen(key, c) for c, r in enumerate(read)]
            for key, read in self.fetched.items()
        }
        self.seen = [known[w.shape, f.activations] for f, w in zip(section.formats, section.matrices, strict=True)]

    def _seen(self, key: tuple[UnitShape, str], c: int) -> Seen:
        """The lane's elements of column c, in one order of them."""
        k, read = self.k, self.fetched[key][c]
        if self.form.norm:
            if key == next(iter(self.fetched)):  # another order has the same elements
                total: Any = k.const(f32, 0.0)
                for v in (v for column in read for v in column):
                    total = k.fma(v, v, total)
                self.section.squares.store((c, k.warp), k.warp_sum(total), where=k.lane == 0)
            weights = self.weights[key]
            read = [[v * w for v, w in zip(a, b, strict=True)] for a, b in zip(read, weights, strict=True)]
        return seen(k, read, FORMATS[key[1]], self.form.activations)

    def multiply(self, band: Value, stop: Value) -> None:
        """Products of the rows of a band; their sums over each warp go to shared memory."""
        k, form, section = self.k, self.form, self.section
        warp = k.warp + self.chunk * (form.threads // 32)
        for row in k.range(band, stop, form.ahead):
            sums: list[list[Value]] = [[] for _ in section.section]
            if form.staged:
                for blocks in self.ring.step(row):
                    for i, (unit, block) in enumerate(zip(self.units, blocks, strict=True)):
                        self._add(sums, i, unit.decode(block, unit.load(block)))
            for u, held in enumerate(self.held):
                mine = row + u
                for i, unit in enumerate(self.units):
                    self._add(sums, i, unit.decode(self._block(i, k.min(mine, self.last - 1)), held[i]))
                following = mine + form.ahead
                with k.when(following < self.last):
                    for i, unit in enumerate(self.units):
                        for old, new in zip(held[i], unit.load(self._block(i, following)), strict=True):
                            for var, value in zip(old, new, strict=True):
                                var.set(value)
            for i, values in enumerate(sums):
                total, number, writes = folded(k, values)
                u, c = number // form.columns, number % form.columns
                section.partial.store((warp, i, c, row - band + u), total, where=writes)

    def _add(self, sums: list[list[Value]], part: int, decoded: Decoded) -> None:
        """Append the products of a unit with every column."""
        weights = Weights(self.k, self.section.matrices[part], decoded, self.form.activations)
        sums[part] += [weights.product(s) for s in self.seen[part]]
