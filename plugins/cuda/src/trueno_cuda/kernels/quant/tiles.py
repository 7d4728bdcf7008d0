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
162 and 248 us.  Of 32 rows, x does not fit the first cache, and is read from the second again for each tile: where w
was not copied, the first took 18 us without reading x, and 39 with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from trueno.backend import COLUMN, FORMATS, Format

from trueno_cuda.kernels.quant.blocks import Block, Blocks, Head
from trueno_cuda.kernels.quant.ending import Ending, each_section
from trueno_cuda.kernels.quant.fragments import EIGHT, Layout, grain_of, in_order, pairs_of
from trueno_cuda.kernels.quant.parts import SMALL
from trueno_cuda.kernels.quant.rows import Part, pointers_of, sizes_of
from trueno_cuda.kernels.quant.tile_ring import ROWS, SPAN, Direct, TileRing, row_bytes
from trueno_cuda.kernels.source import build
from trueno_cuda.ptx import Kernel, Value, f32, s8x4, s32, u8, u32, u64
from trueno_cuda.ptx.builder import ParamType


@dataclass(frozen=True, slots=True)
class Form:
    """What a kernel is built for.

    columns: times EIGHT rows of x.  high: tiles that a block has at once.  turns: warps that share each of them.
    resident: blocks that are to fit a multiprocessor.  stages: spans of a warp that have a place in shared memory
    (`TileRing`); 0: read where they are.
    """

    sections: tuple[tuple[Part, ...], ...]
    columns: int
    high: int
    turns: int
    resident: int
    stages: int
    guarded: bool = False

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
        """Bytes of a warp's place for one span of a section."""
        return max(sum(ROWS * row_bytes(FORMATS[p.format], p.pitch) for p in section) for section in self.sections)

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        return self.warps * (self.slot * self.stages + 128 * self.numbers)

    @property
    def layout(self) -> Layout:
        return Layout.of([FORMATS[part.format] for part in self.parts])


class Words:
    """What one lane reads of a block of a row: its head, and of 32 elements two words of codes, of those in `in_order`.

    Words of planes that several units share are read once.  t: the lane's number among four.
    """

    def __init__(self, w: Blocks, block: Block, t: Value) -> None:
        self.w, self.t, f = w, t, w.f
        self.ordered, s = in_order(f), w.shape
        units = [w.first(unit) for unit in range(s.units)]
        assert all(isinstance(e, int) for e in units) and s.units * s.ways * COLUMN == f.elements
        self.planes: dict[tuple[int, int], list[Value]] = {}  # by plane, and by where in the block the words begin
        for e in units:
            for n, (at, count) in enumerate(w.planes(e)):
                if (n, at) in self.planes or (self.ordered and count > 1 and e % SMALL):
                    continue
                several = 2 if self.ordered and count > 1 else 1
                self.planes[n, at] = w.words(block, at + t * (4 * several) if count > 1 else at, several)
        self.head: Head = w.head(block)

    def codes(self, i: int, half: int) -> Value:
        """Four codes of the 32 elements number i of the block: the lane's first or second word of them."""
        w, s, ordered = self.w, self.w.shape, self.ordered
        element = SMALL * i + (0 if ordered else half * COLUMN)
        period = s.run * s.ways
        way, e = element % period // s.run, element // period * period + element % s.run
        code = None
        for n, (plane, (at, _)) in enumerate(zip(w.f.planes, w.planes(e), strict=True)):
            words = self.planes[n, at]
            if plane.run == 1:
                start = self.t * 8 + half * 4 if ordered else self.t * 4 + (e % 32 + way * s.run)
                part = (words[0] >> start & 15) * 0x00204081 & 0x01010101
                part = part << plane.to
            else:
                (part,) = w._part(plane, [words[half if ordered else 0]], e, way, not n)
            code = part if code is None else code | part
        assert code is not None
        return code


class Inputs:
    """What a lane reads of x: each number once for all matrices of a section, and for 32 elements at a time.

    Where the last span is short, `inside` says whether these elements are there.
    """

    def __init__(self, k: Any, p: Any, layout: Layout, lane: Value, t: Value) -> None:
        self.k, self.p, self.lane, self.t = k, p, lane, t
        self.partner = FORMATS[layout.partner].elements
        self.places: dict[Any, Any] = {}
        self.seen: dict[Any, Any] = {}

    def begin(self, span: Value) -> None:
        """A span begins: what lies in it is read at constants from few addresses."""
        self.span = span
        self.places.clear()

    def enter(self, i: int) -> None:
        """Elements number i times 32 of the span begin."""
        self.seen.clear()
        self.i = i
        groups = self.p.depth // SMALL
        self.inside = self.span * (SPAN // SMALL) + i < groups if self.partner < SPAN else None

    def _read(self, name: str, each: int, own: Value | int, c: int, at: int, vec: int) -> list[Value]:
        """`vec` words of those that lie in pieces, one for each `each` elements and column, in pieces of a span.

        own: the lane's place among the words of a piece, which are 64 of codes and of pairs of sixteen sums, 32 of
        pairs of eight, and 8 of others.
        """
        words = {"codes0": 64, "codes1": 64, "pairs16": 64, "pairs32": 32}.get(name, EIGHT)
        if (name, c) not in self.places:
            pieces = self.p.depth // each
            first = (pieces * c + self.span * (SPAN // each) if c else self.span * (SPAN // each)) * words + own
            self.places[name, c] = getattr(self.p, name) + first
        key = name, c, at
        if key not in self.seen:
            self.seen[key] = self.places[name, c].load(at * words, vec=vec, where=self.inside)
        loaded = self.seen[key]
        return loaded if isinstance(loaded, list) else [loaded]

    def codes(self, ordered: bool, c: int) -> list[Value]:
        """The lane's two words of column c."""
        loaded = self._read(f"codes{int(ordered)}", SMALL, self.lane * 2, c, self.i, 2)
        return [v.bits(s8x4) for v in loaded]

    def sums(self, grain: int, h: int, c: int) -> list[Value]:
        """Of the h-th `grain` elements, the sums of two rows of x."""
        return self._read(f"sums{grain}", grain, self.t * 2, c, self.i * (SMALL // grain) + h, 2)

    def scales(self, c: int) -> list[Value]:
        """Of the block of x with these elements, the scales of two rows."""
        return self._read("scales", self.partner, self.t * 2, c, self.i * SMALL // self.partner, 2)

    def pairs(self, grain: int, c: int) -> list[Value]:
        """The lane's words of the sums of a block in pairs of bytes."""
        several = SMALL // grain
        loaded = self._read(f"pairs{grain}", SPAN, self.lane * several, c, 0, several)
        return [word.bits(s8x4) for word in loaded]


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


class Section:
    """Writes one section's part of the kernel: parts number `at` and on."""

    def __init__(self, k: Any, p: Any, form: Form, n: int, at: int, ending: Ending, shared: tuple[Any, Any]) -> None:
        self.k, self.p, self.form, self.at, self.ending, (self.ring, self.room) = k, p, form, at, ending, shared
        self.parts = form.sections[n]
        self.rows, self.share, self.start = (getattr(p, f"{name}{n}") for name in ("rows", "share", "start"))
        self.depth, self.spans = p.depth, (p.depth + (SPAN - 1)) // SPAN
        self.formats = [FORMATS[part.format] for part in self.parts]
        self.matrices = [getattr(p, f"w{at + i}") for i in range(len(self.parts))]
        self.group, self.t = k.lane // 4, k.lane % 4
        self.place, self.turn = k.warp // form.turns, k.warp % form.turns

    def own_rows(self, tile: Value) -> list[Value]:
        """The lane's two rows of a tile; the last row stands for those behind it."""
        return [self.k.min(tile * ROWS + self.group + more, self.rows - 1) for more in (0, ROWS // 2)]

    def write(self) -> None:
        k, form = self.k, self.form
        first = (k.ctaid - self.start) * self.share
        last = k.min(first + self.share, (self.rows + (ROWS - 1)) // ROWS)
        w = TileRing(self, first, last) if form.stages else Direct(self, first, last)
        k.wait_previous()
        x = Inputs(k, self.p, form.layout, k.lane, self.t)
        for top in k.range(first, last, form.high):
            w.enter(top + self.place)
            sums = [Sums(k, f, b, form.columns, self.t) for f, b in zip(self.formats, w.blocks, strict=True)]
            for span in k.range(self.turn, k.select(top + self.place < last, self.spans, 0), form.turns):
                w.step(span)
                self._span(w, x, sums, span)
            self._finish(sums, top, last)
        w.end()

    def _span(self, w: TileRing | Direct, x: Inputs, sums: Sequence[Sums], span: Value) -> None:
        x.begin(span)
        for i in range(SPAN // SMALL):
            x.enter(i)
            for part, (f, own) in enumerate(zip(self.formats, sums, strict=True)):
                sub, within = divmod(i, f.elements // SMALL)
                if not within:
                    own.enter([Words(own.w, block, self.t) for block in w.block(part, sub)])
                own.add(within, x)
                if within == f.elements // SMALL - 1:
                    own.leave(x)

    def _finish(self, sums: Sequence[Sums], top: Value, last: Value) -> None:
        """Add up what the warps of each tile have, and store the tiles from `top` on."""
        k, form, room = self.k, self.form, self.room
        numbers = 4 * form.columns
        for part, own in enumerate(sums):
            for c, four in enumerate(own.totals):
                for j, total in enumerate(four):
                    room.store((k.warp, part * numbers + 4 * c + j, k.lane), total)
        k.sync()
        count = form.high * 32 * numbers
        for begin in range(0, count, 32 * form.warps):
            index = k.tid + begin
            here = k.min(index, count - 1)
            row, column, place = here % ROWS, here // ROWS % (EIGHT * form.columns), here // (32 * numbers)
            slot = column // EIGHT * 4 + row // EIGHT * 2 + column % 2
            lane = row % EIGHT * 4 + column % EIGHT // 2
            at = (top + place) * ROWS + row
            live = (index < count) & (column < self.p.m) & (at < self.rows) & (top + place < last)
            totals = []
            for part in range(len(sums)):
                total = room.load((place * form.turns, slot + part * numbers, lane))
                for turn in range(1, form.turns):
                    total = total + room.load((place * form.turns + turn, slot + part * numbers, lane))
                totals.append(total)
            at, column = k.min(at, self.rows - 1), k.min(column, self.p.m - 1)
            whole = column.to(u64) * self.rows.to(u64) + at.to(u64)
            self.ending.store(self.parts, self.at, totals, whole, column, at, live)
        k.sync()


@cache
def tiles(arch: str, form: Form) -> Kernel:
    """The kernel.  Grid: blocks, of which section n has those from start{n} on, each with share{n} tiles of rows{n}."""

    def body(k: Any, p: Any) -> None:
        ending, room = Ending(k, p, form), k.shared(f32, form.warps, form.numbers, 32)
        ring = k.shared(u8, form.warps, form.slot, stages=form.stages, per="warp") if form.stages else None
        each_section(k, p, form, lambda n, at: Section(k, p, form, n, at, ending, (ring, room)).write())
        ending.end()

    pointers, floats = pointers_of(form)
    wholes: dict[str, ParamType] = {"m": u32, "depth": u32, **sizes_of(form)}
    names = "_".join(dict.fromkeys(part.word for part in form.parts))
    sizes = f"{form.columns}x{form.high}x{form.turns}_r{form.resident}_s{form.stages}"
    name = f"quant_tiles_{names}_{sizes}{'_guarded' * form.guarded}"
    return build(
        name, arch, form.layout.pointers | pointers | wholes | floats, body, 32 * form.warps, form.resident, "late"
    )
