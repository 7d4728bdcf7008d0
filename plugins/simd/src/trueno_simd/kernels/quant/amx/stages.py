"""One panel of W times many blocks of x on AMX's tiles: sums of integers on the tiles, their scales by vectors.

    flat    total += d_x · (d · sum(codes)), + m · (d_x · sum of x), group by group
    nested  total += d_x · (d · (sum + 256 sum of the second part) - dmin · sum(min · sum of x))

Tiles and vectors work at the same time: while the tiles multiply one block, the vectors finish the block before it, a
few rows after each step.  The sums go from one to the other through memory, a *stage* each.  Flat results are those of
the vector kernel (`tile.micro_kernel`) bit for bit: their sums are whole, and scaled in its order.  Nested ones are
rounded less often.

Cycles for a block and a panel (16 · 32 · 256 products), by count, on a core that takes 16 for a tile product, and two
vector operations, two loads and one store in each; beside what two VNNI products in each take (`tile.micro_kernel`):

                    tiles   vectors   loads   stores    VNNI   at most
    q2_k              160        64     176       96    1728   9.8 times as fast
    q3_k              128        48     136       64    1568   11
    q4_k, q5_k        288        96     256      128    1408   4.9
    q6_k              256        80     216       96    1568   6.1
    iq4_xs            256        80     216       96    1312   5.1
    flat              256       384     384      288    1408   3.7
    flat with m       256       512     512      288    1536   3

Measured on one core of Zen 5, which has no tiles: the vectors' part of a block takes 75 ns for q4_0 and 24 for q4_k,
its whole product by VNNI 347 and 337; decoding a panel takes 158 and 171, for VNNI 150 and 79.
"""

from typing import Any

from numba import types
from numba.extending import intrinsic

from trueno_simd.kernels.quant.amx.records import CODES, LINE, STEP, SUMS, Records
from trueno_simd.llvm.amx import HARDWARE, ROW, ROWS, TILE, Tiles
from trueno_simd.llvm.jit import inner, outer, special
from trueno_simd.llvm.vectors import Vector, converted, number_reader, reader, splat, write

_FLOATS = Vector(types.float32, ROWS)
_floats, _integers, _number = reader(_FLOATS), reader(Vector(types.int32, ROWS)), number_reader(types.float32)
_converted = converted(types.float32)

# One form of the instructions, and what differs between formats.
zero, load, store = HARDWARE.zero, HARDWARE.load, HARDWARE.store
dot, dot_bytes = HARDWARE.dot, HARDWARE.dot_bytes
PARTS = GROUPS = W_SCALES = W_MINS = W_D = X_MINS = X_D = X_M = X_BYTES = STAGE = 1
MINS = FLAT_M = False
begin = step = end = finish = None


@intrinsic
def fused(_: Any, a: Any, factor: Any, c: Any) -> Any:
    """a · factor + c, fused where that is cheap; factor: a vector, or one number."""

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        a, factor, c = values
        factor = factor if isinstance(sig.args[1], Vector) else splat(builder, factor, ROWS)
        return builder.fadd(builder.fmul(a, factor, flags=("contract",)), c, flags=("contract",))

    return _FLOATS(_FLOATS, _FLOATS if isinstance(factor, Vector) else types.float32, _FLOATS), emit


# ---- nested formats


@inner
def begin_nested(file):
    zero(file, 0)
    zero(file, 1)
    if PARTS == 2:
        zero(file, 2)
        zero(file, 3)


@inner
def step_nested(file, panel, block, s, stage):
    """STEP elements."""
    left = panel + s * ROWS * LINE
    load(file, 4, block + s * TILE, ROW)
    load(file, 5, left, LINE)
    dot_bytes(file, 0, 4, 5)
    load(file, 6, left + ROW, LINE)
    dot_bytes(file, 1, 4, 6)
    if PARTS == 2:
        load(file, 7, left + CODES, LINE)
        dot_bytes(file, 2, 4, 7)
        load(file, 5, left + CODES + ROW, LINE)
        dot_bytes(file, 3, 4, 5)


@inner
def end_nested(file, panel, block, stage):
    store(file, 0, stage, LINE)
    store(file, 1, stage + ROW, LINE)
    if PARTS == 2:
        store(file, 2, stage + SUMS, LINE)
        store(file, 3, stage + SUMS + ROW, LINE)
    if MINS:
        zero(file, 0)
        zero(file, 1)
        load(file, 4, block + X_MINS, ROW)
        load(file, 5, panel + W_MINS, LINE)
        dot(file, 0, 4, 5)
        load(file, 6, panel + W_MINS + ROW, LINE)
        dot(file, 1, 4, 6)
        store(file, 0, stage + PARTS * SUMS, LINE)
        store(file, 1, stage + PARTS * SUMS + ROW, LINE)


@inner
def whole(stage):
    """16 sums of a superblock."""
    sums = _integers(stage)
    if PARTS == 2:
        sums = sums + (_integers(stage + SUMS) << 8)
    return _converted(sums)


@outer
def finish_nested(panel, block, stage, sums, first, last, groups):
    """Add a stage's rows `first` to `last` to their sums."""
    d, d2 = _floats(panel + W_D), _floats(panel + W_D + ROW)
    m, m2 = d, d2
    if MINS:
        m, m2 = _floats(panel + W_D + LINE), _floats(panel + W_D + LINE + ROW)
    for r in range(first, last):
        place, to = stage + r * LINE, sums + r * LINE
        total, total2 = whole(place) * d, whole(place + ROW) * d2
        if MINS:
            below = place + PARTS * SUMS
            total, total2 = fused(_floats(below), m, total), fused(_floats(below + ROW), m2, total2)
        scale = _number(block + X_D + r * 4)
        write(to, fused(total, scale, _floats(to)))
        write(to + ROW, fused(total2, scale, _floats(to + ROW)))


# ---- flat formats


@inner
def begin_flat(file):
    pass


@inner
def step_flat(file, panel, block, s, stage):
    """Two groups."""
    left = panel + s * ROWS * LINE
    block, stage = block + 2 * s * TILE, stage + 2 * s * SUMS
    zero(file, 0)
    zero(file, 1)
    load(file, 4, block, ROW)
    load(file, 6, left, LINE)
    dot_bytes(file, 0, 4, 6)
    load(file, 7, left + ROW, LINE)
    dot_bytes(file, 1, 4, 7)
    zero(file, 2)
    zero(file, 3)
    load(file, 5, block + TILE, ROW)
    dot_bytes(file, 2, 5, 6)
    dot_bytes(file, 3, 5, 7)
    store(file, 0, stage, LINE)
    store(file, 1, stage + ROW, LINE)
    store(file, 2, stage + SUMS, LINE)
    store(file, 3, stage + SUMS + ROW, LINE)


@inner
def end_flat(file, panel, block, stage):
    pass


@inner
def scaled(place, scale, d, total):
    """`total` with 16 sums of a group, times their scales."""
    return fused(_converted(_integers(place)) * scale, _number(d), total)


@outer
def finish_flat(panel, block, stage, sums, first, last, groups):
    """Add a stage's rows `first` to `last` to their sums, group by group; two rows at a time, as they share scales."""
    for r in range(first, last, 2):
        to, below = sums + r * LINE, sums + (r + 1) * LINE
        a, a2, b, b2 = _floats(to), _floats(to + ROW), _floats(below), _floats(below + ROW)
        for g in range(groups):
            place, scales, d = (
                stage + g * SUMS + r * LINE,
                panel + W_SCALES + g * LINE,
                block + X_D + (r * GROUPS + g) * 4,
            )
            left, right = _floats(scales), _floats(scales + ROW)
            a, a2 = scaled(place, left, d, a), scaled(place + ROW, right, d, a2)
            b = scaled(place + LINE, left, d + GROUPS * 4, b)
            b2 = scaled(place + LINE + ROW, right, d + GROUPS * 4, b2)
            if FLAT_M:
                offsets, d_sum = scales + GROUPS * LINE, d + X_M - X_D
                left, right = _floats(offsets), _floats(offsets + ROW)
                factor, factor2 = _number(d_sum), _number(d_sum + GROUPS * 4)
                a, a2 = fused(left, factor, a), fused(right, factor, a2)
                b, b2 = fused(left, factor2, b), fused(right, factor2, b2)
        write(to, a)
        write(to + ROW, a2)
        write(below, b)
        write(below + ROW, b2)


# ---- both


@outer
def pass_over(file, panel, x, sums, count, depth, stages):
    """sums[count · ROWS, COLUMNS] += `count` blocks of x times a panel, of whose elements `depth` exist."""
    steps, groups = (depth + STEP - 1) // STEP, GROUPS * depth // (CODES // LINE * 4)
    rows = (ROWS + steps - 1) // steps
    for t in range(count + 1):
        block, stage, other = x + t * X_BYTES, stages + (t & 1) * STAGE, stages + (1 - (t & 1)) * STAGE
        if t < count:
            begin(file)
        for s in range(steps):
            if t < count:
                step(file, panel, block, s, stage)
            if t > 0:
                finish(panel, block - X_BYTES, other, sums + (t - 1) * SUMS, s * rows, min((s + 1) * rows, ROWS),
                       groups)  # fmt: skip
        if t < count:
            end(file, panel, block, stage)


def over(records: Records, tiles: Tiles, word: str, known: dict[str, Any]) -> Any:
    """`pass_over` of a format over one form of the instructions; word: in its name."""
    namespace = known | {name: getattr(tiles, name) for name in Tiles.__slots__ if name != "name"}
    for name, function in (("whole", whole), ("scaled", scaled)):
        namespace[name] = inner(special(function, f"{name}_{word}", namespace))
    parts = (
        (begin_nested, step_nested, end_nested, finish_nested)
        if records.nested
        else (begin_flat, step_flat, end_flat, finish_flat)
    )
    for name, function in zip(("begin", "step", "end", "finish"), parts, strict=True):
        compiled = outer if name == "finish" else inner
        namespace[name] = compiled(special(function, f"{name}_{word}", namespace))
    return outer(special(pass_over, f"pass_over_{word}", namespace))
