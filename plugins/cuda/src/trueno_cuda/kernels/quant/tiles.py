"""Products of 5 and more rows of x with 8-bit activations: int8 tensor cores read the blocks as they are.

    fragments   x once a call: codes in the order in which mma.sync wants them, scales, and sums for formats with mins
    tiles       a warp has 16 rows of w and up to 64 rows of x; 32 elements of k are one mma for each 8 rows of x

A lane reads the words of its two rows' codes alone, 8 bytes at a time where the format allows (`in_order`), so nothing
goes through shared memory.  Whole numbers are summed over a block of w: groups' scales and mins are whole numbers as
well; a block becomes float32 once, by the scales of w and x.  Warps that share rows take turns along k, and meet in
shared memory.

Floor: the bytes of w, at 4.28 TB/s on an H200; int8 mma.sync is the limit from some 32 rows on.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from trueno.backend import COLUMN, FORMATS, Format

from trueno_cuda.device.protocol import Device
from trueno_cuda.kernels.epilogue import Epilogue
from trueno_cuda.kernels.quant.blocks import Block, Blocks, Head, access_of
from trueno_cuda.kernels.quant.parts import SMALL, coded
from trueno_cuda.kernels.source import build
from trueno_cuda.kernels.store import Finish, Store
from trueno_cuda.ptx import Kernel, Value, f32, ptr, s8x4, s32, u8, u32, u64
from trueno_cuda.ptx.builder import ParamType

ROWS = 16
"""Of w, in a tile."""
EIGHT = 8
"""Rows of x in one mma."""
MOST_COLUMNS = 8
"""Times EIGHT rows of x in a launch; more take several."""
WARPS = 8
THREADS = 32 * WARPS
SPAN = 256
"""Elements of k that a warp takes at a time."""
FILLING = 12
"""Warps that a multiprocessor is to have, where more is not known."""
MEASURED = 4
"""Times EIGHT rows of x up to which `choose` knows more."""
MANY = 8
"""Tiles of w for each multiprocessor from which on they fill it without many turns."""
ROUNDING = 8
"""Blocks that a multiprocessor is to have while x is rounded: all of its threads."""
ALIGN = 256


def grain_of(f: Format) -> int:
    """Elements of x whose sum a group's min is multiplied by; 0 where there is none."""
    return 0 if not f.m else COLUMN if f.mins and f.group == COLUMN else SMALL


def in_order(f: Format) -> bool:
    """Whether lane t has 8 neighbours of 32 elements, and not words t and t + 4 of them.

    The order of k within an mma is free, if x has the same.  Where all 32 lie in one run of every plane, 8 neighbours
    are one load of 8 bytes, if blocks begin at multiples of 8.  In a run of 16 the halves are the high and low bits of
    the same bytes, so that one word has what a lane needs of both.  Groups of 16 are an mma each.
    """
    return f.group != COLUMN and all(p.run == 1 or p.run % SMALL == 0 for p in f.planes)


@cache
def fragments(arch: str, partner: str, grain: int, ordered: bool, wide: bool) -> Kernel:
    """x in codes of `partner`, as mma.sync reads them; zeros for rows behind the last.

    Grid: rows, in whole eights, and the blocks that share a row (`sharing`).  wide: x allows accesses of 16 bytes.

    codes: for 8 rows and 32 elements 64 words, two for each lane, of row lane / 4: words t and t + 4, where t is
    lane % 4; or 2 t and the next one, where `ordered` (`in_order`).
    scales: for 8 rows and a block 8 floats; sums: for 8 rows and `grain` elements 8 whole numbers.
    """
    f = FORMATS[partner]
    each = f.elements // 32
    vec = 4 if wide and each > 1 else 1

    def body(k: Any, p: Any) -> None:
        lane, eight, g = k.lane, k.ctaid // EIGHT, k.ctaid % EIGHT
        there = k.ctaid < p.m
        line = p.x + k.multiple_of(k.mul_wide(k.select(there, k.ctaid, 0), p.depth), f.elements)
        groups, blocks = p.depth // SMALL, p.depth // f.elements
        for block in k.range(k.ctaid_y * WARPS + k.warp, blocks, k.nctaid_y * WARPS):
            own = line + (block * f.elements + lane * each)
            numbers = [v for i in range(0, each, vec) for v in own.load(i, vec=vec, where=there)]
            codes, d = coded(k, f, numbers)
            whole = [c.to(s32, "rn") for c in codes]
            p.scales.store((eight * blocks + block) * EIGHT + g, d, where=lane == 0)
            if each == 1:
                place = lane if ordered else lane % COLUMN // 4 * 8 + lane // COLUMN * 4 + lane % 4
                at = ((eight * groups + block) * 32 + g * 4) * 8 + place
                p.codes.store(at, whole[0].bits(u32))
            else:
                group = block * (f.elements // SMALL) + lane // 4
                words = [k.pack(s8x4, *whole[i : i + 4]).bits(u32) for i in range(0, each, 4)]
                first = (eight * groups + group) * 32 + g * 4  # of the row's four lanes
                if ordered:
                    p.codes.cast(u32).store((first + lane % 4) * 2, words)
                else:
                    for i, word in enumerate(words):
                        p.codes.cast(u32).store((first + lane % 2 * 2 + i) * 2 + lane % 4 // 2, word)
            if grain:
                total = whole[0]
                for number in whole[1:]:
                    total = total + number
                lanes = grain // each
                total = k.warp_sum(total, lanes)
                place = block * (f.elements // grain) + lane // lanes
                at = (eight * (p.depth // grain) + place) * EIGHT + g
                p.sums.store(at, total, where=lane % lanes == 0)

    params: dict[str, ParamType] = {
        "x": ptr(f32), "codes": ptr(u8), "scales": ptr(f32), "sums": ptr(s32), "m": u32, "depth": u32,
    }  # fmt: skip
    name = f"quant_fragments_{partner}_{grain}{'_ordered' * ordered}{'_unaligned' * (not wide)}"
    return build(name, arch, params, body, THREADS)


def sharing(sms: int, rows: int, blocks: int) -> int:
    """How many thread blocks share a row of so many blocks of x, of which a warp rounds one at a time."""
    return max(min(-(-blocks // WARPS), sms * ROUNDING // rows), 1)


class Words:
    """What one lane reads of a block of a row: its head, and of 32 elements two words of codes, of those in `in_order`.

    Words of planes that several units share are read once.  t: the lane's number among four.
    read: what an earlier turn of a loop read, as `values` gave it.
    """

    def __init__(self, w: Blocks, block: Block, t: Value, read: Sequence[Value] = ()) -> None:
        self.w, self.t, f = w, t, w.f
        self.ordered, s = in_order(f), w.shape
        units = [w.first(unit) for unit in range(s.units)]
        assert all(isinstance(e, int) for e in units) and s.units * s.ways * COLUMN == f.elements
        own = iter(read)
        self.planes: dict[tuple[int, int], list[Value]] = {}  # by plane, and by where in the block the words begin
        for e in units:
            for n, (at, count) in enumerate(w.planes(e)):
                if (n, at) in self.planes or (self.ordered and count > 1 and e % SMALL):
                    continue
                several = 2 if self.ordered and count > 1 else 1
                if read:
                    self.planes[n, at] = [next(own) for _ in range(several)]
                else:
                    place = at + t * (4 * several) if count > 1 else at
                    self.planes[n, at] = w.words(block, place, several)
        if read:
            words = {n: next(own) for start, count in w.spans() for n in range(start, start + count)}
            fields = [None if not n else words[f.fields[n].offset // 4] if w.paired(n) else next(own)
                      for n in (f.d, f.m)]  # fmt: skip
            self.head = Head(block, words, *fields)
        else:
            self.head = w.head(block)

    def values(self) -> list[Value]:
        """All that was read."""
        w, head = self.w, self.head
        alone = [v for n, v in ((w.f.d, head.d), (w.f.m, head.m)) if n and not w.paired(n)]
        return [*(v for some in self.planes.values() for v in some), *head.words.values(), *alone]

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


@cache
def tiles(
    arch: str, name: str, access: int, columns: int, turns: int, store: Store, resident: int = 0, ahead: bool = False
) -> Kernel:
    """out[c, i] = sum over k of x[c, k] w[i, k], for EIGHT * columns rows of x.  Grid: WARPS / turns tiles of w.

    turns: warps that share a tile, of which each takes every so many spans of k.  resident: blocks that are to fit a
    multiprocessor, 0 where that is open.  ahead: whether the next span of w is read before one is multiplied.
    """
    f = FORMATS[name]
    partner, grain = FORMATS[f.activations], grain_of(f)
    subs = SPAN // f.elements
    halves = f.group == COLUMN

    def body(k: Any, p: Any) -> None:
        finish, lane = Finish(k, p, store), k.lane
        w = Blocks(k, f, p.w, access)
        g, t = lane // 4, lane % 4
        tile, turn = k.ctaid * (WARPS // turns) + k.warp // turns, k.warp % turns
        top = tile * ROWS + g
        rows = [k.min(top, p.n - 1), k.min(top + EIGHT, p.n - 1)]
        lines = [w.line(row.to(u64) * (p.across.to(u64) * f.nbytes)) for row in rows]
        groups = p.across * (f.elements // SMALL)
        blocks = p.across * f.elements // partner.elements
        sums = [k.vars(f32, 4, 0.0) for _ in range(columns)]

        def places(span: Value) -> Iterator[tuple[Value, Value | None]]:
            """The blocks of a span, and whether they are there."""
            for sub in range(subs):
                number = span * subs + sub
                yield (number, None) if subs == 1 else (k.min(number, p.across - 1), number < p.across)

        def fetched(span: Value) -> list[Value]:
            return [v for number, _ in places(span) for line in lines for v in Words(w, line.block(number), t).values()]

        def block(number: Value, inside: Value | None, words: Sequence[Words]) -> None:
            heads = [own.head for own in words]
            whole = [k.vars(s32, 4, 0) for _ in range(columns)]
            least = [k.vars(s32, 4, 0) for _ in range(columns)] if grain else []
            for i in range(f.elements // SMALL):
                codes = [own.codes(i, half) for half in range(2) for own in words]
                a = w.values(codes)
                group = number * (f.elements // SMALL) + i
                scales = [[w.scale(head, (SMALL * i + h * COLUMN) // f.group) for head in heads]
                          for h in range(1 + halves)] if f.scales else []  # fmt: skip
                mins = [[w.least(head, (SMALL * i + h * COLUMN) // f.group) for head in heads]
                        for h in range(1 + halves)] if f.mins else []  # fmt: skip
                for c in range(columns):
                    at = ((groups * c + group) * 32 + lane) * 2
                    b = [v.bits(s8x4) for v in p.codes.load(at, vec=2, where=inside)]
                    if halves:
                        for h in range(2):
                            acc = k.vars(s32, 4, 0)
                            k.mma("m16n8k16", acc, a[2 * h : 2 * h + 2], [b[h]])
                            for j in range(4):
                                whole[c][j].set(k.mad(acc[j].value, scales[h][j // 2], whole[c][j].value))
                    else:
                        acc = k.vars(s32, 4, 0)
                        k.mma("m16n8k32", acc, a, b)
                        for j in range(4):
                            whole[c][j].set(
                                k.mad(acc[j].value, scales[0][j // 2], whole[c][j].value) if scales else acc[j].value
                            )
                    for h in range(SMALL // grain if grain else 0):
                        place = number * (f.elements // grain) + (i * (SMALL // grain) + h)
                        at = (p.across * (f.elements // grain) * c + place) * EIGHT + t * 2
                        added = p.sums.load(at, vec=2, where=inside)
                        for j in range(4):
                            least[c][j].set(
                                k.mad(added[j % 2], mins[h][j // 2], least[c][j].value) if mins else added[j % 2]
                            )
            ds = [w.d(head) for head in heads]
            ms = [w.m(head) for head in heads] if grain else []
            for c in range(columns):
                x_block = number if partner.elements == f.elements else number // (partner.elements // f.elements)
                dx = p.scales.load((blocks * c + x_block) * EIGHT + t * 2, vec=2, where=inside)
                for j in range(4):
                    y = whole[c][j].value.to(f32) * ds[j // 2]
                    if grain:
                        more = least[c][j].value.to(f32) * ms[j // 2]
                        y = y - more if f.mins else y + more
                    sums[c][j].fma(y, dx[j % 2])

        spans = (p.across * f.elements + (SPAN - 1)) // SPAN
        held = [k.var(v) for v in fetched(k.min(turn, spans - 1))] if ahead else []
        for span in k.range(turn, spans, turns):
            now = [v.value for v in held] if ahead else fetched(span)
            following = fetched(k.min(span + turns, spans - 1)) if ahead else []  # while these are multiplied
            each = len(now) // (subs * len(lines))
            for sub, (number, inside) in enumerate(places(span)):
                starts = [(sub * len(lines) + i) * each for i in range(len(lines))]
                words = [
                    Words(w, line.block(number), t, now[start : start + each])
                    for line, start in zip(lines, starts, strict=True)
                ]
                block(number, inside, words)
            for var, value in zip(held, following, strict=True):
                var.set(value)

        if turns > 1:
            room = k.shared(f32, WARPS, 4 * columns, 32)
            for c in range(columns):
                for j in range(4):
                    room.store((k.warp, 4 * c + j, lane), sums[c][j])
            k.sync()
            for c in range(columns):
                for j in range(4):
                    for other in range(1, turns):
                        sums[c][j] += room.load((k.min(k.warp + other, WARPS - 1), 4 * c + j, lane))
        for c in range(columns):
            for j in range(4):
                column, row = t * 2 + (c * EIGHT + j % 2), top + j // 2 * EIGHT
                inside = (column < p.m) & (row < p.n) & (turn == 0)
                at = column.to(u64) * p.n.to(u64) + row.to(u64)
                p.out.store(at, finish([sums[c][j]], at, column, row, inside), where=inside)
        finish.end()

    params: dict[str, ParamType] = {
        "w": ptr(u8), "codes": ptr(u32), "scales": ptr(f32), "sums": ptr(s32), "out": ptr(f32), **store.pointers(f32),
        "m": u32, "n": u32, "across": u32, **store.floats(f32),
    }  # fmt: skip
    words = f"quant_tiles_{name}_{columns}x{turns}_r{resident}{'_ahead' * ahead}_a{access}{store.word}"
    return build(words, arch, params, body, THREADS, resident or None)


def choose(f: Format, columns: int, high: int, spans: int, sms: int) -> tuple[int, int, bool]:
    """Warps that share a tile, blocks of a multiprocessor (0: open), and whether a span is read ahead.

    high: tiles of w; spans: of a row.  Measured on an H200 with cold weights in q4_k: 18944 x 3584 for 8, 16 and 32
    rows of x 16.9, 24.0 and 39.7 us, where as many turns as fill it and open blocks take 21.4, 31.4 and 56.9;
    3584 x 18944 16.9, 22.0 and 36.4, and 24.1, 37.4 and 52.4.
    """
    if columns > MEASURED:
        return next((c for c in (1, 2, 4) if high * c >= sms * FILLING or 2 * c > spans), WARPS), 0, False
    many, whole = high >= sms * MANY, f.group == COLUMN
    turns = WARPS if not many or (columns == 1 and whole) else 4 if columns > 1 else 2
    while turns > max(spans, 1):
        turns //= 2
    return turns, 3 if columns == 1 else 2, many and columns == 1 and not whole and f.elements == SPAN


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


class Tiles:
    """out[m, n] = x[m, k] · w[n, k]ᵀ with 8-bit activations, for one set of sizes, none of them 0 (see `many.Many`)."""

    def __init__(
        self, device: Device, f: Format, m: int, n: int, k: int, wide: bool, *, epilogue: Epilogue | None = None,
        guarded: bool = False, turns: int = 0, resident: int = 0, ahead: bool = False,
    ) -> None:  # fmt: skip
        self.kinds, self.n, grain = epilogue.beside if epilogue else "", n, grain_of(f)
        self.partner = f"{f.activations} by {grain}{' in order' * in_order(f)}"
        partner, padded = FORMATS[f.activations], -(-m // EIGHT) * EIGHT
        grid = padded, sharing(device.sms, padded, k // partner.elements), 1
        kernel = fragments(device.arch, f.activations, grain, in_order(f), wide)
        self.rounding = device.prepare(kernel, grid, (m, k))
        self.strides = k * EIGHT, 4 * EIGHT * (k // partner.elements), 4 * EIGHT * (k // grain) if grain else 0
        sizes = [_aligned(padded // EIGHT * stride) for stride in self.strides]
        self.places = [0, sizes[0], sizes[0] + sizes[1]]
        self.nbytes = sum(sizes)
        access = access_of(f, 0, n * f.row_bytes(k)) if wide else 1
        high, spans = -(-n // ROWS), -(-k // SPAN)
        self.launches = []
        for first in range(0, m, EIGHT * MOST_COLUMNS):
            count = min(m - first, EIGHT * MOST_COLUMNS)
            store, columns = Store(guarded, epilogue), -(-count // EIGHT)
            usual = choose(f, columns, high, spans, device.sms)
            each = turns or usual[0]
            kernel = tiles(device.arch, f.name, access, columns, each, store, resident or usual[1], ahead or usual[2])
            launch = device.prepare(kernel, (-(-high // (WARPS // each)), 1, 1), (count, n, k // f.elements))
            self.launches.append((first, launch))

    def run(
        self, scratch: int, w: int, x: int, out: int, *, beside: Sequence[int] = (), status: Sequence[int] = (),
        floats: Sequence[float] = (), rounded: bool = False,
    ) -> None:  # fmt: skip
        codes = [scratch + place for place in self.places]
        if not rounded:
            self.rounding((x, *codes))
        for first, launch in self.launches:
            here = [at + first // EIGHT * stride for at, stride in zip(codes, self.strides, strict=True)]
            moved = {"e": 4 * first * self.n, "r": 4 * first, "w": 0, "u": 0}
            others = [p + moved[kind] for p, kind in zip(beside, self.kinds, strict=True)]
            launch((w, *here, out + 4 * first * self.n, *others, *status), floats)
