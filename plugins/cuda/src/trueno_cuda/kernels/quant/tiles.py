"""Products of 3 and more rows of x with 8-bit activations: int8 tensor cores, for one matrix or several in one launch.

    y[c, i] = sum over k of x[c, k] w[i, k]    c below EIGHT · columns, i over the rows of every matrix

A block of threads has some tiles of 16 rows, `high` at once: the warps of a tile take turns along k, and meet in shared
memory at its end.  32 elements of k are one mma for each 8 rows of x.  Matrices of a section have equally many
rows, and a warp multiplies the same rows of all of them by what it reads of x once.  Whole numbers are summed over a
block of w: groups' scales and mins are whole numbers as well; a block becomes float32 once, by the scales of w and x.

The first blocks of w are read while x is still being rounded: a launch is behind that of `fragments`, which lets it
begin after its own wait, or behind one like itself, so what wrote w has ended.

Floor: the bytes of w, at 4.28 TB/s on an H200; int8 mma.sync is the limit from some 32 rows on.  Measured there in a
chain of a graph, weights cold, for 8, 16 and 32 rows of x: two of 18944x3584 in q4_k 26.2, 30.2 and 45.3 us, 68, 59
and 39 % of the floor; 3584x18944 in q4_k 15.6, 17.5 and 24.8 us, in q6_k 21.7, 26.6 and 37.9; 152064x3584 in q6_k 135,
162 and 248 us.  Bulk copies (`tile_bulk`) take 23.2 us for the first of these.  Of 32 rows, x does not fit the first
cache, and is read from the second again for each tile: where w was not copied, the first took 18 us without reading x,
and 39 with it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from trueno.backend import COLUMN, FORMATS, Format

from trueno_cuda.kernels.quant.blocks import Blocks
from trueno_cuda.kernels.quant.ending import Element, Ending, each_section
from trueno_cuda.kernels.quant.fragments import EIGHT, Layout, grain_of, in_order, pairs_of
from trueno_cuda.kernels.quant.parts import SMALL
from trueno_cuda.kernels.quant.rows import Part, pointers_of, sizes_of
from trueno_cuda.kernels.quant.tile_bulk import Barriers, BulkRing, fill
from trueno_cuda.kernels.quant.tile_reads import Inputs, Words
from trueno_cuda.kernels.quant.tile_ring import ROWS, SPAN, Direct, TileRing, row_bytes
from trueno_cuda.kernels.source import build
from trueno_cuda.ptx import Kernel, Value, f32, s8x4, s32, u8, u32, u64
from trueno_cuda.ptx.builder import ParamType

Rows = Direct | TileRing | BulkRing
"""Where the rows of a tile are."""
EARLY = 2
"""Elements of a thread up to which what is read beside their sums is asked for before these."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a kernel is built for.

    columns: times EIGHT rows of x.  high: tiles that a block has at once.  turns: warps that share each of them.
    resident: blocks that are to fit a multiprocessor.  stages: spans of a warp that have a place in shared memory
    (`TileRing`); 0: read where they are.  bulk: whether one more warp lets them come by bulk copies (`tile_bulk`), and
    stages are of all warps.  kept: spans that a warp has of a row, at most, where what they take of x stays in
    registers; 0: it is read for each tile.
    """

    sections: tuple[tuple[Part, ...], ...]
    columns: int
    high: int
    turns: int
    resident: int
    stages: int
    guarded: bool = False
    bulk: bool = False
    kept: int = 0

    @property
    def parts(self) -> list[Part]:
        return [part for section in self.sections for part in section]

    @property
    def warps(self) -> int:
        return self.high * self.turns

    @property
    def numbers(self) -> int:
        """Sums of a lane, over the parts of a section."""
        return 4 * self.columns * max(map(len, self.sections))

    @property
    def slot(self) -> int:
        """Bytes of a place for one span of a section and a warp; with bulk copies, of all warps."""
        high, spans = (self.high, self.turns) if self.bulk else (1, 1)
        return max(
            sum(high * ROWS * row_bytes(FORMATS[p.format], p.pitch, spans) for p in section)
            for section in self.sections
        )

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        sums = 128 * self.warps * self.numbers
        if self.bulk:
            return self.slot * self.stages + 2 * sums + 16 * self.stages
        return self.warps * self.slot * self.stages + sums

    @property
    def layout(self) -> Layout:
        return Layout.of([FORMATS[part.format] for part in self.parts])


class Sums:
    """One matrix' sums of a tile: whole numbers over a block of it, and float32 over all blocks."""

    def __init__(self, k: Any, f: Format, w: Blocks, columns: int, t: Value) -> None:
        self.k, self.f, self.w, self.columns, self.t = k, f, w, columns, t
        self.pairs = pairs_of(f)
        self.grain = 0 if self.pairs else grain_of(f)
        self.totals = [k.vars(f32, 4, 0.0) for _ in range(columns)]

    def enter(self, words: list[Words]) -> None:
        """A block begins, of two rows."""
        k = self.k
        self.words, self.heads = words, [own.head for own in words]
        self.whole = [[k.const(s32, 0)] * 4 for _ in range(self.columns)]
        self.least = [[k.const(s32, 0)] * 4 for _ in range(self.columns)]
        self.quads: dict[tuple[str, int], Any] = {}

    def _quad(self, which: str, g: int) -> list[Value | None]:
        """The numbers of four groups from g on in a word, of both rows; None where they do not lie so."""
        if (which, g) not in self.quads:
            pieces = getattr(self.f, which)
            self.quads[which, g] = [self.w.quad(head, pieces, g) for head in self.heads]
        return self.quads[which, g]  # type: ignore[no-any-return]

    def _scales(self, g: int) -> list[Value]:
        """The whole numbers of group g, of both rows."""
        k, f, quads = self.k, self.f, self._quad("scales", g // 4 * 4)
        if quads[0] is None:
            return [self.w.scale(head, g) for head in self.heads]
        whole = [k.bfe(quad.bits(s32) if f.scale_signed else quad, g % 4 * 8, 8) for quad in quads]
        return [v.bits(s32) - f.scale_bias if f.scale_bias else v.bits(s32) for v in whole]

    def add(self, i: int, x: Inputs) -> None:
        """Multiply the 32 elements number i of the block."""
        k, f, w = self.k, self.f, self.w
        codes = [own.codes(i, half) for half in range(2) for own in self.words]
        a = [code.bits(s8x4) for code in codes] if self.pairs == COLUMN else w.values(codes)
        halves = range(2 if f.group == COLUMN else 1)
        groups = [(SMALL * i + h * COLUMN) // f.group for h in halves] if f.group else []
        scales = [self._scales(g) for g in groups] if f.scales else []
        mins = [[w.least(head, g) for head in self.heads] for g in groups] if f.mins and self.grain else []
        for c, (whole, least) in enumerate(zip(self.whole, self.least, strict=True)):
            b = x.codes(in_order(f), c)
            for h in halves:
                acc = k.vars(s32, 4, 0)
                if len(halves) > 1:
                    k.mma("m16n8k16", acc, a[2 * h : 2 * h + 2], [b[h]])
                else:
                    k.mma("m16n8k32", acc, a, b)
                for j in range(4):  # without scales, a block is one group
                    whole[j] = k.mad(acc[j].value, scales[h][j // 2], whole[j]) if scales else acc[j].value
            for h in range(SMALL // self.grain if self.grain else 0):
                added = x.sums(self.grain, h, c)
                for j in range(4):
                    least[j] = k.mad(added[j % 2], mins[h][j // 2], least[j]) if mins else added[j % 2]

    def _by_mins(self, x: Inputs) -> None:
        """Multiply the block's mins, of which two lanes have four each, and two others the same, by x's sums."""
        k, t = self.k, self.t
        low, high = self._quad("mins", 0), self._quad("mins", 4)
        own = [k.select((t & 1) != 0, b, a) for a, b in zip(low, high, strict=True)]
        first = [k.select(t < 2, word, 0).bits(s8x4) for word in own]
        second = [k.select(t < 2, 0, word).bits(s8x4) for word in own]
        for c in range(self.columns):
            (b,) = x.pairs(SMALL, c)
            self.least[c] = self._pair(first, second, b, b)

    def _by_bias(self, x: Inputs) -> None:
        """Take the bias times the block's scales and x's sums from what codes without it gave."""
        k, t, quads = self.k, self.t, [self._quad("scales", g) for g in range(0, 16, 4)]
        own = []
        for row in range(2):
            halves = [k.select((t & 1) != 0, quads[n + 1][row], quads[n][row]) for n in (0, 2)]
            own.append(k.select(t < 2, *halves).bits(s8x4))
        for c, whole in enumerate(self.whole):
            sums = self._pair(own, own, *x.pairs(COLUMN, c))
            self.whole[c] = [k.mad(more, -self.f.bias, value) for more, value in zip(sums, whole, strict=True)]

    def _pair(self, first: list[Value], second: list[Value], low: Value, high: Value) -> list[Value]:
        """Products with sums in two bytes."""
        k = self.k
        lower, higher = k.vars(s32, 4, 0), k.vars(s32, 4, 0)
        k.mma("m16n8k16", lower, first, [low])
        k.mma("m16n8k16", higher, second, [high])
        return [k.mad(higher[j].value, 128, lower[j].value) for j in range(4)]

    def leave(self, x: Inputs) -> None:
        """The block is over."""
        w, added = self.w, bool(self.grain) or self.pairs == SMALL
        if self.pairs == SMALL:
            self._by_mins(x)
        elif self.pairs:
            self._by_bias(x)
        ds = [w.d(head) for head in self.heads]
        ms = [w.m(head) for head in self.heads] if added else []
        for c, (whole, least) in enumerate(zip(self.whole, self.least, strict=True)):
            dx = x.scales(c)
            for j in range(4):
                if self.f.e8m0:  # a large power of two would overflow before a small scale of x brought it back
                    self.totals[c][j].fma(whole[j].to(f32) * dx[j % 2], ds[j // 2])
                    continue
                y = whole[j].to(f32) * ds[j // 2]
                if added:
                    more = least[j].to(f32) * ms[j // 2]
                    y = y - more if self.f.mins else y + more
                self.totals[c][j].fma(y, dx[j % 2])


class Shared(NamedTuple):
    """Of a block: the ring of slots, room for warps' sums, and the barriers of bulk copies."""

    ring: Any
    room: Any
    barriers: Barriers | None


class Asked(NamedTuple):
    """An element that a thread stores: its tile, slot and lane among the sums of warps, and what is read beside it."""

    place: Value
    slot: Value
    lane: Value
    element: Element
    beside: Any


class Section:
    """Writes one section's part of the kernel: parts number `at` and on."""

    def __init__(self, k: Any, p: Any, form: Form, n: int, at: int, ending: Ending, shared: Shared) -> None:
        self.k, self.p, self.form, self.at, self.ending = k, p, form, at, ending
        self.ring, self.room, self.barriers = shared
        self.parts = form.sections[n]
        self.rows, self.share, self.start = (getattr(p, f"{name}{n}") for name in ("rows", "share", "start"))
        self.depth, self.spans = p.depth, (p.depth + (SPAN - 1)) // SPAN
        self.formats = [FORMATS[part.format] for part in self.parts]
        self.matrices = [getattr(p, f"w{at + i}") for i in range(len(self.parts))]
        self.group, self.t = k.lane // 4, k.lane % 4
        self.place, self.turn = k.warp // form.turns, k.warp % form.turns
        self.begins = range(0, form.high * 128 * form.columns, 32 * form.warps)

    def own_rows(self, tile: Value) -> list[Value]:
        """The lane's two rows of a tile; the last row stands for those behind it."""
        return [self.k.min(tile * ROWS + self.group + more, self.rows - 1) for more in (0, ROWS // 2)]

    def write(self) -> None:
        k, form = self.k, self.form
        first = (k.ctaid - self.start) * self.share
        last = k.min(first + self.share, (self.rows + (ROWS - 1)) // ROWS)
        if self.barriers is None:
            self._multiply(TileRing(self, first, last) if form.stages else Direct(self, first, last), first, last)
            return
        with k.when(k.warp == form.warps):
            fill(self, self.barriers, first, last)
            k.wait_previous()
        with k.otherwise():
            self.turned = k.var(u32, 0)
            self._multiply(BulkRing(self, self.barriers, last), first, last)

    def _multiply(self, w: Rows, first: Value, last: Value) -> None:
        """What warps do that multiply."""
        k, form = self.k, self.form
        k.wait_previous()
        x = Inputs(k, self.p, form.layout, k.lane, self.t)
        if form.kept:
            spans = [k.min(self.turn + number * form.turns, self.spans - 1) for number in range(form.kept)]
            x.keep(spans, self.formats, form.columns)
        for top in k.range(first, last, form.high):
            asked = [self._ask(begin, top, last) for begin in self.begins] if len(self.begins) <= EARLY else []
            w.enter(top + self.place)
            sums = [Sums(k, f, b, form.columns, self.t) for f, b in zip(self.formats, w.blocks, strict=True)]
            for span in w.spans(top + self.place):
                self._span(w, x, sums, span)
            self._finish(sums, asked, top, last)
        w.end()

    @contextmanager
    def _met(self, sums: Sequence[Sums]) -> Iterator[Any]:
        """The sums of all warps in shared memory, until the block is over.

        Beside bulk copies there is room for those of two tiles: a warp that stores the sums of a third one has met all
        others behind the second, and thus behind what they read of the first.
        """
        k, form, room = self.k, self.form, self.room
        if form.bulk:
            room = room[self.turned.value]
            self.turned.set(self.turned ^ 1)
        for part, own in enumerate(sums):
            for c, four in enumerate(own.totals):
                for j, total in enumerate(four):
                    room.store((k.warp, 4 * (part * form.columns + c) + j, k.lane), total)
        if form.bulk:
            k.sync(1, 32 * form.warps)
        else:
            k.sync()
        yield room
        if not form.bulk:
            k.sync()

    def _span(self, w: Rows, x: Inputs, sums: Sequence[Sums], span: Value) -> None:
        x.begin(span, w.number)
        for i in range(SPAN // SMALL):
            x.enter(i)
            for part, (f, own) in enumerate(zip(self.formats, sums, strict=True)):
                sub, within = divmod(i, f.elements // SMALL)
                if not within:
                    own.enter([Words(own.w, block, self.t) for block in w.block(part, sub)])
                own.add(within, x)
                if within == f.elements // SMALL - 1:
                    own.leave(x)

    def _ask(self, begin: int, top: Value, last: Value) -> Asked:
        """The thread's element behind the first `begin` of the tiles from `top` on, and what is read beside it."""
        k, form = self.k, self.form
        numbers = 4 * form.columns
        count, index = form.high * 32 * numbers, k.tid + begin
        here = k.min(index, count - 1)
        row, column, place = here % ROWS, here // ROWS % (EIGHT * form.columns), here // (32 * numbers)
        slot = column // EIGHT * 4 + row // EIGHT * 2 + column % 2
        lane = row % EIGHT * 4 + column % EIGHT // 2
        at = (top + place) * ROWS + row
        live = (index < count) & (column < self.p.m) & (at < self.rows) & (top + place < last)
        at, column = k.min(at, self.rows - 1), k.min(column, self.p.m - 1)
        element = Element(column.to(u64) * self.rows.to(u64) + at.to(u64), at, column, live)
        return Asked(place, slot, lane, element, self.ending.beside(self.parts, self.at, element))

    def _finish(self, sums: Sequence[Sums], asked: Sequence[Asked], top: Value, last: Value) -> None:
        """Add up what the warps of each tile have, and store the tiles from `top` on.  asked: what was asked early."""
        k, form = self.k, self.form
        with self._met(sums) as room:
            for number, begin in enumerate(self.begins):
                # Beside bulk copies, warps that store nothing go on.
                some = form.bulk and begin + 32 * form.warps > form.high * 128 * form.columns
                with k.when(k.warp * 32 + begin < form.high * 128 * form.columns) if some else nullcontext():
                    self._store(room, len(sums), asked[number] if asked else self._ask(begin, top, last))

    def _store(self, room: Any, parts: int, asked: Asked) -> None:
        """Add up and store one element of each part."""
        form, numbers, totals = self.form, 4 * self.form.columns, []
        for part in range(parts):
            slot = asked.slot + part * numbers
            total = room.load((asked.place * form.turns, slot, asked.lane))
            for turn in range(1, form.turns):
                total = total + room.load((asked.place * form.turns + turn, slot, asked.lane))
            totals.append(total)
        self.ending.store(self.parts, self.at, totals, asked.element, asked.beside)


@cache
def tiles(arch: str, form: Form) -> Kernel:
    """The kernel.  Grid: blocks, of which section n has those from start{n} on, each with share{n} tiles of rows{n}."""

    def body(k: Any, p: Any) -> None:
        ending, room = Ending(k, p, form), k.shared(f32, form.warps, form.numbers, 32, stages=1 + form.bulk)
        ring = barriers = None
        if form.bulk:
            ring, barriers = k.shared(u8, form.slot, stages=form.stages, align=128), Barriers(k, form)
        elif form.stages:
            ring = k.shared(u8, form.warps, form.slot, stages=form.stages, per="warp")
        shared = Shared(ring, room, barriers)
        each_section(k, p, form, lambda n, at: Section(k, p, form, n, at, ending, shared).write())
        ending.end()

    pointers, floats = pointers_of(form)
    wholes: dict[str, ParamType] = {"m": u32, "depth": u32, **sizes_of(form)}
    names = "_".join(dict.fromkeys(part.word for part in form.parts))
    sizes = f"{form.columns}x{form.high}x{form.turns}_r{form.resident}_s{form.stages}"
    words = [f"bulk{form.kept or ''}"] * form.bulk + ["guarded"] * form.guarded
    name = "_".join(["quant_tiles", names, sizes, *words])
    threads = 32 * (form.warps + form.bulk)
    return build(name, arch, form.layout.pointers | pointers | wholes | floats, body, threads, form.resident, "late")
