"""The register tile: the one loop in which matmul and convolve2d spend their time.

A tile keeps `rows` by `vectors` vectors of the result in registers and walks k once:

    C[i, j] (+)= sum over p of A[i, p] * B[p, j]

Each step loads `vectors` vectors of B, broadcasts `rows` values of A and makes rows * vectors fused
multiply-adds, so loads stay below one for each multiply-add and the multiply-add units are the limit.
LLVM does not find this shape by itself in a triple loop (it would keep C in memory), hence the tile is
emitted as IR.  Measured on one Zen 5 core with AVX-512: 258 GFLOP/s from L1, the units' peak.

Addresses are integers in bytes.  Numba's array views would add wrap-around tests and reference counts.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from trueno_simd.llvm.bits import LEVEL
from trueno_simd.llvm.jit import outer

# Registers decide the shape: 32 of 64 bytes (AVX-512) hold 12 x 2 sums, 2 vectors of B and the broadcast;
# 32 of 16 (NEON) the same; 16 registers (AVX2 and below) hold 6 x 2.
VECTOR_BYTES = {"avx512": 64, "avx2": 32, "avx": 32}.get(LEVEL, 16)
WIDE = LEVEL in ("avx512", "neon")
TALL, MIDDLE, LOW = (12, 8, 4) if WIDE else (6, 4, 2)
VECTORS = 2
WIDTH = VECTORS * VECTOR_BYTES  # bytes of a row of the tile
LONG = 8 if WIDE else 4  # vectors of the one-row tile: enough sums in flight to hide an addition's latency

_I32, _I64 = ir.IntType(32), ir.IntType(64)


def _element(dtype: Any) -> tuple[Any, int]:
    """LLVM's type and the size in bytes of Numba's float type."""
    return (ir.FloatType(), 4) if dtype == types.float32 else (ir.DoubleType(), 8)


def vector(dtype: Any) -> tuple[Any, int, int]:
    """The widest vector of `dtype` at this ISA level: LLVM's type, lanes, bytes an element."""
    scalar, size = _element(dtype)
    lanes = VECTOR_BYTES // size
    return ir.VectorType(scalar, lanes), lanes, size


def declare(builder: Any, name: str, kind: Any) -> Any:
    """One of LLVM's own functions (llvmlite's `declare_intrinsic` knows no vectors)."""
    return cgutils.get_or_insert_function(builder.module, kind, name)


def call(builder: Any, name: str, result: Any, args: list[Any]) -> Any:
    return builder.call(declare(builder, name, ir.FunctionType(result, [arg.type for arg in args])), args)


def at(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def splat(builder: Any, value: Any, kind: Any) -> Any:
    undefined = ir.Constant(kind, ir.Undefined)
    lane0 = builder.insert_element(undefined, value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(lane0, undefined, ir.Constant(ir.VectorType(_I32, kind.count), [0] * kind.count))


def masks(builder: Any, columns: Any, lanes: int, vectors: int) -> list[Any]:
    """For each vector of the tile, which of its lanes lie left of `columns`."""
    kind = ir.VectorType(_I64, lanes)
    limit = splat(builder, columns, kind)
    return [
        builder.icmp_signed("<", ir.Constant(kind, list(range(j * lanes, (j + 1) * lanes))), limit)
        for j in range(vectors)
    ]


def _make(rows: int, vectors: int, *, masked: bool, indirect: bool) -> Any:
    """Emit one tile.

    Arguments: `like` (a number, for its type), a, a_row, a_step, b, b_step, c, c_row, k (at least 1), valid,
    columns, accumulate.  A's element (i, p) is at a + i*a_row + p*a_step.  B's row p is at b + p*b_step, or,
    where `indirect`, at b + the p-th int64 at address b_step (convolve2d's taps).  Rows from `valid` on are
    computed from the last valid row and not stored.  `masked`: only the first `columns` columns of B and C
    exist; nothing beyond is touched.  `accumulate` adds to C; else C is overwritten, whatever it held.
    """

    @intrinsic
    def tile(typing: Any, like: Any, a: Any, a_row: Any, a_step: Any, b: Any, b_step: Any, c: Any, c_row: Any,
             k: Any, valid: Any, columns: Any, accumulate: Any) -> Any:  # fmt: skip
        signature = types.void(like, *[types.intp] * 11)
        kind, lanes, size = vector(like)
        scalar = kind.element
        width = lanes * size
        suffix = f"v{lanes}f{size * 8}"

        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            _, a, a_row, a_step, b, b_step, c, c_row, k, valid, columns, accumulate = values

            def const(value: int) -> Any:
                return ir.Constant(_I64, value)

            zero = ir.Constant(kind, [0.0] * lanes)
            mask = masks(builder, columns, lanes, vectors) if masked else []

            def load(address: Any, j: int) -> Any:
                pointer = at(builder, builder.add(address, const(j * width)), kind)
                if not masked:
                    return builder.load(pointer, align=size)
                name = f"llvm.masked.load.{suffix}.p0"
                return call(builder, name, kind, [pointer, ir.Constant(_I32, size), mask[j], zero])

            def store(value: Any, address: Any, j: int) -> None:
                pointer = at(builder, builder.add(address, const(j * width)), kind)
                if not masked:
                    builder.store(value, pointer, align=size)
                    return
                name = f"llvm.masked.store.{suffix}.p0"
                call(builder, name, ir.VoidType(), [value, pointer, ir.Constant(_I32, size), mask[j]])

            last = builder.sub(valid, const(1))
            a_rows = [a]
            for i in range(1, rows):
                row = builder.select(builder.icmp_signed("<", const(i), last), const(i), last)
                a_rows.append(builder.add(a, builder.mul(a_row, row)))

            before = builder.block
            body, end = builder.append_basic_block("k"), builder.append_basic_block("k.end")
            builder.branch(body)
            builder.position_at_end(body)
            p = builder.phi(_I64)
            p.add_incoming(const(0), before)
            sums = [[builder.phi(kind) for _ in range(vectors)] for _ in range(rows)]
            b_row = b
            if indirect:
                slot = builder.add(b_step, builder.mul(p, const(8)))
                b_row = builder.add(b, builder.load(at(builder, slot, _I64)))
            else:
                b_row = builder.add(b, builder.mul(p, b_step))
            a_offset = builder.mul(p, a_step)
            loaded = [load(b_row, j) for j in range(vectors)]
            for i in range(rows):
                value = builder.load(at(builder, builder.add(a_rows[i], a_offset), scalar), align=size)
                value = splat(builder, value, kind)
                for j in range(vectors):
                    # not llvm.fma, which is a libm call a lane where the machine has no such instruction
                    product = builder.fmul(value, loaded[j], flags=("contract",))
                    total = builder.fadd(sums[i][j], product, flags=("contract",))
                    sums[i][j].add_incoming(zero, before)
                    sums[i][j].add_incoming(total, body)
                    sums[i][j] = total
            following = builder.add(p, const(1))
            p.add_incoming(following, body)
            builder.cbranch(builder.icmp_signed("<", following, k), body, end)
            builder.position_at_end(end)

            # the sums of an overwriting call skip the load: what C held (a NaN) must not come in
            adds = builder.icmp_signed("!=", accumulate, const(0))
            for i in range(rows):
                address = builder.add(c, builder.mul(c_row, const(i)))
                with builder.if_then(builder.icmp_signed("<", const(i), valid)), builder.if_else(adds) as (add, write):
                    with add:
                        for j in range(vectors):
                            store(builder.fadd(load(address, j), sums[i][j]), address, j)
                    with write:
                        for j in range(vectors):
                            store(sums[i][j], address, j)
            return context.get_dummy_value()

        return signature, emit

    return tile


tall = _make(TALL, VECTORS, masked=False, indirect=False)
middle = _make(MIDDLE, VECTORS, masked=False, indirect=False)
low = _make(LOW, VECTORS, masked=False, indirect=False)
long = _make(1, LONG, masked=False, indirect=False)
tall_masked = _make(TALL, VECTORS, masked=True, indirect=False)
middle_masked = _make(MIDDLE, VECTORS, masked=True, indirect=False)
low_masked = _make(LOW, VECTORS, masked=True, indirect=False)
long_masked = _make(1, LONG, masked=True, indirect=False)
short_masked = _make(1, VECTORS, masked=True, indirect=False)

taps_middle = _make(MIDDLE, VECTORS, masked=False, indirect=True)
taps_long = _make(1, LONG, masked=False, indirect=True)
taps_middle_masked = _make(MIDDLE, VECTORS, masked=True, indirect=True)
taps_long_masked = _make(1, LONG, masked=True, indirect=True)


@intrinsic
def address(typing: Any, array: Any) -> Any:
    """Where an array's elements begin.  (`array.ctypes.data` is unsigned, and unsigned + signed is a float.)"""

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        view = context.make_array(array)(context, builder, values[0])
        return builder.ptrtoint(view.data, _I64)

    return types.intp(array), emit


@intrinsic
def size_of(typing: Any, like: Any) -> Any:
    """Bytes of a number of this type, as a constant."""

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        return ir.Constant(_I64, like.bitwidth // 8)

    return types.intp(like), emit


@intrinsic
def copy(typing: Any, target: Any, source: Any, size: Any) -> Any:
    """memcpy of `size` bytes between two addresses."""

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        byte, (target, source, size) = ir.IntType(8), values
        pointers = [at(builder, target, byte), at(builder, source, byte)]
        call(builder, "llvm.memcpy.p0.p0.i64", ir.VoidType(), [*pointers, size, ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), emit


@intrinsic
def clear(typing: Any, target: Any, size: Any) -> Any:
    """Set `size` bytes from address `target` to zero."""

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        byte = ir.IntType(8)
        args = [at(builder, values[0], byte), ir.Constant(byte, 0), values[1], ir.Constant(ir.IntType(1), 0)]
        call(builder, "llvm.memset.p0.i64", ir.VoidType(), args)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), emit


@intrinsic
def move(typing: Any, like: Any, target: Any, source: Any) -> Any:
    """Copy one tile's width, which is a few vector moves, where a memcpy of it would be a call."""
    kind, _, _ = vector(like)

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        _, target, source = values
        for j in range(VECTORS):
            shift = ir.Constant(_I64, j * VECTOR_BYTES)
            value = builder.load(at(builder, builder.add(source, shift), kind), align=4)
            builder.store(value, at(builder, builder.add(target, shift), kind), align=4)
        return context.get_dummy_value()

    return types.void(like, types.intp, types.intp), emit


@intrinsic
def put_word(typing: Any, address: Any, index: Any, value: Any) -> Any:
    """Write the index-th int64 from `address`."""

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        place = builder.add(values[0], builder.mul(values[1], ir.Constant(_I64, 8)))
        builder.store(values[2], at(builder, place, _I64))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), emit


def _getter(bits: int) -> Any:
    @intrinsic
    def get(typing: Any, address: Any, index: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            place = builder.add(values[0], builder.mul(values[1], ir.Constant(_I64, bits // 8)))
            value = builder.load(at(builder, place, ir.IntType(bits)))
            return value if bits == 64 else builder.sext(value, _I64)

        return types.intp(types.intp, types.intp), emit

    return get


get_word, get_int32 = _getter(64), _getter(32)  # the index-th integer from an address


@outer
def strip(like, a, a_row, b, b_step, c, c_row, m, k, columns, accumulate):
    """One tile's width of C, all m rows."""
    size, i = size_of(like), 0
    if columns * size >= WIDTH:
        while m - i > MIDDLE:
            tall(like, a + i * a_row, a_row, size, b, b_step, c + i * c_row, c_row, k,
                 min(m - i, TALL), columns, accumulate)  # fmt: skip
            i += TALL
        if m - i > LOW:
            middle(like, a + i * a_row, a_row, size, b, b_step, c + i * c_row, c_row, k,
                   m - i, columns, accumulate)  # fmt: skip
        elif m - i > 0:
            low(like, a + i * a_row, a_row, size, b, b_step, c + i * c_row, c_row, k,
                m - i, columns, accumulate)  # fmt: skip
    else:
        while m - i > MIDDLE:
            tall_masked(like, a + i * a_row, a_row, size, b, b_step, c + i * c_row, c_row, k,
                        min(m - i, TALL), columns, accumulate)  # fmt: skip
            i += TALL
        if m - i > LOW:
            middle_masked(like, a + i * a_row, a_row, size, b, b_step, c + i * c_row, c_row, k,
                          m - i, columns, accumulate)  # fmt: skip
        elif m - i > 0:
            low_masked(like, a + i * a_row, a_row, size, b, b_step, c + i * c_row, c_row, k,
                       m - i, columns, accumulate)  # fmt: skip
