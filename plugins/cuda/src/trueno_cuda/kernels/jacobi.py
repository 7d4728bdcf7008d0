# mypy: disable-error-code="valid-type"
"""The kernels of `eigen`: a pair of blocks is rotated, the product applied to tiles; and what is before and after."""

from functools import cache
from math import inf, nan
from typing import Any

from trueno_cuda.kernels.codes import code_of
from trueno_cuda.kernels.operands import element, look, status_parameter, tell, typed
from trueno_cuda.ptx import Pointer, Source, Value, f32, f64, ptr, u32, u64

THREADS = 256
SIDES = (16, 32)
"""Rows of two blocks.  On an H200, float32, n = 256 and 1024: 3.4 and 27 ms with 32 rows, 5.0 and 37 with 64."""
SMALL = {f32: 2.0**-25, f64: 2.0**-54}
"""What an element off the diagonal may be, of the largest of all: the bound of residuals is 32 n times it, and more."""


def _partners(k: Any, round_: Value, pair: Value, players: Value | int) -> tuple[Value, Value]:
    """The pair's members in a round of a tournament: the last player stays, the others go around."""
    others = players - 1
    up, down = round_ + pair, round_ + others - pair
    first = k.select(up >= others, up - others, up)
    second = k.select(down >= others, down - others, down)
    return k.select(pair == 0, others, first), k.select(pair == 0, round_, second)


def _start(k: Any, largest: Pointer, words: Pointer, count: Value) -> None:
    """One block: the words of sweeps, the first of which says that there is work, and the largest element so far.

    Floor: 4 bytes a word written, which is less than a launch takes.
    """
    for at in k.range(k.tid, count, THREADS):
        words.store(at, k.select(at == 0, k.const(u32, 1), 0))
    largest.store(0, 0, where=k.tid == 0)


def _begin(
    k: Any, a: Pointer, work: Pointer, vectors: Pointer, largest: Pointer, n: Value, side: Value
) -> None:  # fmt: skip
    """A block for a row: of a's lower triangle as a symmetric matrix, with zeros beyond n, and of 1; the largest.

    Floor: n (n + 1) / 2 elements of a read, 2 side² written.
    """
    kind, row = a.element, k.ctaid
    most = k.var(largest.element, 0)
    for column in k.range(k.tid, side, THREADS):
        below, beside = k.max(row, column), k.min(row, column)
        value = a.load(below.to(u64) * n.to(u64) + beside.to(u64), where=below < n)
        at = row.to(u64) * side.to(u64) + column.to(u64)
        work.store(at, value)
        vectors.store(at, k.select(row == column, k.const(kind, 1.0), 0.0))
        most.update("max", abs(value).bits(largest.element))
    whole = k.block_max(most)
    largest.reduce("max", 0, whole, where=k.tid == 0)


def _rotation(k: Any, p: Value, q: Value, off: Value) -> tuple[Value, Value, Value]:
    """Sine, tangent, and tangent of the half, of the smaller angle that makes `off` of [[p, off], [off, q]] zero."""
    ratio = (q - p) / (off + off)
    size = abs(ratio)
    tangent = k.copysign(k.div(1.0, size + k.sqrt(k.fma(ratio, ratio, 1.0))), ratio)
    tangent = k.select(off == 0.0, 0.0, tangent)
    cosine = k.div(1.0, k.sqrt(k.fma(tangent, tangent, 1.0)))
    sine = tangent * cosine
    return sine, tangent, k.div(sine, cosine + 1.0)


def _turned(k: Any, sine: Value, half: Value, x: Value, y: Value) -> tuple[Any, Any]:
    """cosine · x - sine · y and sine · x + cosine · y, as changes of x and y.

    The cosine of a small angle, rounded, would make every vector longer, and a thousand times so.
    """
    return k.fma(-sine, k.fma(half, x, y), x), k.fma(sine, k.fma(-half, y, x), y)


def _solve(
    k: Any, work: Pointer, turned: Pointer, moved: Pointer, largest: Pointer, words: Pointer, step: Value,
    blocks: Value, *, M: int, SWEEPS: int,
) -> None:  # fmt: skip
    """Rotate one pair of blocks: its part of `work`, the rotations' product in `turned`, and whether there were any.

    Floor: M² elements read and 2 M² written for each pair; some 12 M³ flops a sweep, in M - 1 rounds that wait for each
    other twice, so that latency decides.
    """
    kind, half = work.element, M // 2
    side = blocks * half
    first, second = _partners(k, step, k.ctaid, blocks)
    part, product, decision = k.shared(kind, M, M + 1), k.shared(kind, M, M + 1), k.shared(u32, 1)
    # Of each pair of indices: sine, tangent of the half angle, and the two new numbers on the diagonal.
    numbers = [k.shared(kind, half) for _ in range(4)]

    def place(i: Value) -> Any:
        return k.select(i < half, first * half + i, k.sub(second * half + i, half))

    busy = words.load(0) != 0
    with k.when(busy):
        bound = largest.load(0).bits(kind) * SMALL[kind]
        for at in k.range(k.tid, M * M, THREADS):
            row, column = at // M, at % M
            part.store((row, column), work.load(place(row).to(u64) * side.to(u64) + place(column).to(u64)))
            product.store((row, column), k.select(row == column, k.const(kind, 1.0), 0.0))
        k.sync()
        did = k.var(u32, 0)
        left = k.var(u32, SWEEPS)
        with k.loop() as sweeps:
            off = k.var(kind, 0.0)
            for at in k.range(k.tid, M * M, THREADS):
                row, column = at // M, at % M
                off.set(k.max(off, k.select(row == column, 0.0, abs(part.load((row, column))))))
            again = k.block_reduce((off > bound).to(u32), "or_")
            with k.when(k.tid == 0):
                decision.store(0, again)
            k.sync()
            sweeps.leave_if((decision.load(0) == 0) | (left == 0))  # one word, which all threads of the block read
            did.set(1)
            left -= 1
            for round_ in k.range(M - 1):
                _round(k, part, product, numbers, round_, M)
        with k.when(k.tid == 0):
            moved.store(k.ctaid, did)
            words.store(1, 1, where=did != 0)
        with k.when(did != 0):
            for at in k.range(k.tid, M * M, THREADS):
                row, column = at // M, at % M
                work.store(place(row).to(u64) * side.to(u64) + place(column).to(u64), part.load((row, column)))
                turned.store(k.ctaid * (M * M) + at, product.load((row, column)))


def _round(k: Any, part: Any, product: Any, numbers: list[Any], round_: Value, M: int) -> None:
    """M/2 rotations at once: no two of them share an index."""
    half = M // 2
    with k.when(k.tid < half):
        p, q = _partners(k, round_, k.tid, M)
        pp, qq, off = part.load((p, p)), part.load((q, q)), part.load((p, q))
        sine, tangent, half_angle = _rotation(k, pp, qq, off)
        for array, value in zip(numbers, (sine, half_angle, pp - tangent * off, qq + tangent * off), strict=True):
            array.store(k.tid, value)
    k.sync()
    blocks = []
    for turn in range(-(-half * half // THREADS)):
        at = k.tid + turn * THREADS
        live = at < half * half if half * half < THREADS else None
        i, j = at // half, at % half
        if live is not None:
            i, j = k.select(live, i, 0), k.select(live, j, 0)
        (p, q), (r, s) = _partners(k, round_, i, M), _partners(k, round_, j, M)
        places = [(p, r), (p, s), (q, r), (q, s)]
        a, b, c, d = (part.load(x) for x in places)
        across, along = ((numbers[0].load(x), numbers[1].load(x)) for x in (i, j))
        (a, c), (b, d) = _turned(k, *across, a, c), _turned(k, *across, b, d)
        (a, b), (c, d) = _turned(k, *along, a, b), _turned(k, *along, c, d)
        same = i == j
        a, d = k.select(same, numbers[2].load(i), a), k.select(same, numbers[3].load(i), d)
        b, c = k.select(same, 0.0, b), k.select(same, 0.0, c)
        blocks.append((live, places, (a, b, c, d)))
    columns = []
    for turn in range(-(-M * half // THREADS)):
        at = k.tid + turn * THREADS
        live = at < M * half if M * half < THREADS else None
        row, pair = at % M, at // M
        if live is not None:
            pair = k.select(live, pair, 0)
        p, q = _partners(k, round_, pair, M)
        a, b = product.load((row, p)), product.load((row, q))
        columns.append((live, row, p, q, *_turned(k, numbers[0].load(pair), numbers[1].load(pair), a, b)))
    k.sync()
    for live, places, values in blocks:
        for x, value in zip(places, values, strict=True):
            part.store(x, value, where=live)
    for live, row, p, q, a, b in columns:
        product.store((row, p), a, where=live)
        product.store((row, q), b, where=live)
    k.sync()


def _apply(
    k: Any, work: Pointer, vectors: Pointer, turned: Pointer, moved: Pointer, words: Pointer, step: Value,
    blocks: Value, *, M: int,
) -> None:  # fmt: skip
    """One tile: of `work` Qᵢᵀ X Qⱼ for pairs i and j of a step, but where they are one; of `vectors` Qᵢᵀ X.

    vectors: one in each row.
    Floor: `work` and `vectors` read once and written once, 4 side² elements a step, and 6 M side² flops where every
    pair was rotated.
    """
    kind, half, each = work.element, M // 2, M // 16
    side, pairs = blocks * half, blocks // 2
    of_work, i, j = k.ctaid < pairs * pairs, k.ctaid // pairs % pairs, k.ctaid % pairs
    rows, columns = _partners(k, step, i, blocks), _partners(k, step, j, blocks)
    tile, left, right = (k.shared(kind, M, M) for _ in range(3))

    def place(members: tuple[Value, Value], at: Value) -> Any:
        return k.select(at < half, members[0] * half + at, k.sub(members[1] * half + at, half))

    def where(row: Value, column: Value) -> Any:
        own = k.select(of_work, place(columns, column), j * M + column)
        return place(rows, row).to(u64) * side.to(u64) + own.to(u64)

    turns = k.select(of_work & (moved.load(j) != 0), k.const(u32, 1), 0)
    needed = (words.load(0) != 0) & ((moved.load(i) != 0) | (turns != 0)) & (~of_work | (i != j))
    with k.when(needed):
        some = moved.load(i) != 0
        for at in k.range(k.tid, M * M, THREADS):
            row, column = at // M, at % M
            one = k.select(row == column, k.const(kind, 1.0), 0.0)
            index = where(row, column)
            tile.store((row, column), k.select(of_work, work.load(index, where=of_work),
                                               vectors.load(index, where=~of_work)))  # fmt: skip
            left.store((row, column), k.select(some, turned.load(i * (M * M) + at, where=some), one))
            right.store((row, column), k.select(turns != 0, turned.load(j * (M * M) + at, where=turns != 0), one))
        k.sync()
        down, across = k.tid // 16 * each, k.tid % 16 * each
        sums = k.vars(kind, each * each, 0.0)
        for depth in k.range(M):
            a = (
                left.load((depth, down), vec=each)[:each]
                if each * kind.bytes <= 16
                else _several(left, depth, down, each)
            )
            b = tile.load((depth, across), vec=each) if each * kind.bytes <= 16 else _several(tile, depth, across, each)
            for r, p in enumerate(a):
                for c, q in enumerate(b):
                    sums[r * each + c].fma(p, q)
        k.sync()
        for r in range(each):
            for c in range(each):
                tile.store((down + r, across + c), sums[r * each + c])
                sums[r * each + c].set(k.select(of_work, 0.0, sums[r * each + c]))
        k.sync()
        with k.when(of_work):
            for depth in k.range(M):
                a = [tile.load((down + r, depth)) for r in range(each)]
                b = (
                    right.load((depth, across), vec=each)
                    if each * kind.bytes <= 16
                    else _several(right, depth, across, each)
                )
                for r, p in enumerate(a):
                    for c, q in enumerate(b):
                        sums[r * each + c].fma(p, q)
        for r in range(each):
            for c in range(each):
                index = where(down + r, across + c)
                work.store(index, sums[r * each + c], where=of_work)
                vectors.store(index, sums[r * each + c], where=~of_work)


def _several(array: Any, row: Value, column: Value, count: int) -> list[Value]:
    return [v for c in range(0, count, 2) for v in array.load((row, column + c), vec=2)]


def _end(
    k: Any, work: Pointer, vectors: Pointer, values: Pointer, out: Pointer, largest: Pointer, words: Pointer, n: Value,
    side: Value, last: Value, status: Pointer | None = None,
) -> None:  # fmt: skip
    """A block for a value: its place in descending order, and its vector with the largest component above 0.

    Floor: n² elements of `vectors` read and n² written; the diagonal, which every block reads, is in L2.
    """
    kind = work.element
    wide, own = side.to(u64), k.ctaid
    failed = (words.load(last) != 0) | ~(largest.load(0).bits(kind) < inf)
    value = work.load(own.to(u64) * wide + own.to(u64))
    code = code_of(k, value)
    before, bits = k.var(u32, 0), k.var(u32, 0)
    most, at = k.var(kind, -1.0), k.var(u32, 0)
    for i in k.range(k.tid, n, THREADS):
        other = code_of(k, work.load(i.to(u64) * wide + i.to(u64)))
        before += ((other < code) | ((other == code) & (i < own))).to(u32)
        size = abs(vectors.load(own.to(u64) * wide + i.to(u64)))
        better = size > most
        at.set(k.select(better, i, at))
        most.set(k.select(better, size, most))
    rank = k.block_sum(before)
    _, top = k.block_argmax(most.value, at.value)
    sign = k.select(vectors.load(own.to(u64) * wide + top.to(u64)) < 0.0, k.const(kind, -1.0), 1.0)
    sign = k.select(failed, nan, sign)
    stored = k.select(failed, nan, value)
    values.store(rank, stored, where=k.tid == 0)
    for i in k.range(k.tid, n, THREADS):
        component = vectors.load(own.to(u64) * wide + i.to(u64)) * sign
        out.store(i.to(u64) * n.to(u64) + rank.to(u64), component)
        if status is not None:
            look(k, bits, component)
    if status is not None:
        look(k, bits, stored)
        tell(k, bits, status)


@cache
def source(what: str, itemsize: int, guarded: bool = False) -> Source:
    """The kernel of a part of the work: `start`, `begin`, `solve`, `apply` or `end`."""
    kind = element(itemsize)
    bits = ptr({f32: u32, f64: u64}[kind])
    function: Any
    function, arrays, marks, sizes = {
        "start": (_start, (), ("largest", "words"), ("count",)),
        "begin": (_begin, ("a", "work", "vectors"), ("largest",), ("n", "side")),
        "solve": (_solve, ("work", "turned"), ("largest", "moved", "words"), ("step", "blocks")),
        "apply": (_apply, ("work", "vectors", "turned"), ("moved", "words"), ("step", "blocks")),
        "end": (_end, ("work", "vectors", "values", "out"), ("largest", "words"), ("n", "side", "last")),
    }[what]
    told = guarded and what == "end"
    pointers = dict.fromkeys(arrays, ptr(kind)) | dict.fromkeys(marks, ptr(u32))
    if "largest" in marks:
        pointers["largest"] = bits
    name = f"eigen_{what}_{kind}{'_guarded' * told}"
    return typed(function, name, THREADS, {**pointers, **status_parameter(told), **dict.fromkeys(sizes, u32)})
