"""transpose of the last two axes, in square tiles that fit the vector registers.

A tile of L by L numbers (L lanes a vector: 16 float32 with AVX-512) is read as L row vectors, interleaved
log2(L) times and written as L row vectors of the result: each cache line is touched once on either side, with no
scalar move.  Going element by element touches a new line with every number, on one side or the other.

Floor: every byte read once and written once.  Measured with two threads, float32: 256x256 63 GB/s, 1000x1000 140,
2048x2048 39 (its rows are a power of two apart, so few of them fit into the caches' sets at once).
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from trueno.backend import Call, Kernel, Rates

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels.operands import F32, F64, number, overlaps, reader, resolving, source, target
from trueno_simd.kernels.table import KERNELS
from trueno_simd.kernels.tile import VECTOR_BYTES, address, at, call, masks, size_of, vector
from trueno_simd.llvm import elsewhere
from trueno_simd.llvm.calls import address_of, pack
from trueno_simd.llvm.jit import inner, outer
from trueno_simd.llvm.squares import turned
from trueno_simd.threads.pool import parallel_for

DOWN, ACROSS = 16, 16  # tiles of a chunk
STRIP = 32  # tiles of a chunk, all below each other, where rows alias
ALIAS = 512  # rows this many bytes apart, or a multiple, fall into few cache sets: few may then be written at once
SMALL = 1 << 14  # numbers below which one thread is faster


def _square(*, masked: bool) -> Any:
    """Emit one tile: x, x_row, y, y_row in bytes; `masked`: only `rows` rows and `columns` columns of x exist."""

    @intrinsic
    def square(typing: Any, like: Any, x: Any, x_row: Any, y: Any, y_row: Any, rows: Any, columns: Any) -> Any:
        kind, lanes, size = vector(like)
        suffix = f"v{lanes}f{size * 8}"

        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            _, x, x_row, y, y_row, rows, columns = values

            def const(value: int) -> Any:
                return ir.Constant(ir.IntType(64), value)

            align, zero = ir.Constant(ir.IntType(32), size), ir.Constant(kind, [0.0] * lanes)
            if masked:
                last = builder.sub(rows, const(1))
                across, down = masks(builder, columns, lanes, 1)[0], masks(builder, rows, lanes, 1)[0]
            vectors = []
            for i in range(lanes):
                index = const(i)
                if masked:  # rows that do not exist are read as the last one again, and not written
                    index = builder.select(builder.icmp_signed("<", index, last), index, last)
                pointer = at(builder, builder.add(x, builder.mul(x_row, index)), kind)
                if masked:
                    vectors.append(call(builder, f"llvm.masked.load.{suffix}.p0", kind, [pointer, align, across, zero]))
                else:
                    vectors.append(builder.load(pointer, align=size))
            vectors = turned(builder, vectors)
            for i in range(lanes):
                pointer = at(builder, builder.add(y, builder.mul(y_row, const(i))), kind)
                if masked:
                    with builder.if_then(builder.icmp_signed("<", const(i), columns)):
                        args = [vectors[i], pointer, align, down]
                        call(builder, f"llvm.masked.store.{suffix}.p0", ir.VoidType(), args)
                else:
                    builder.store(vectors[i], pointer, align=size)
            return context.get_dummy_value()

        return types.void(like, *[types.intp] * 6), emit

    return square


tile, edge_tile = _square(masked=False), _square(masked=True)


@outer
def transpose_chunk(like, job, index):
    """One chunk of x, wide by tall numbers, tile by tile."""
    x, y, m, n, wide, tall = job
    size = size_of(like)
    lanes = VECTOR_BYTES // size
    across, down = (n + wide - 1) // wide, (m + tall - 1) // tall
    matrix, index = index // (across * down), index % (across * down)
    x += matrix * m * n * size
    y += matrix * m * n * size
    top, left = index // across * tall, index % across * wide
    for i in range(top, min(top + tall, m), lanes):
        for j in range(left, min(left + wide, n), lanes):
            a, b = x + (i * n + j) * size, y + (j * m + i) * size
            if i + lanes <= m and j + lanes <= n:
                tile(like, a, n * size, b, m * size, lanes, lanes)
            else:
                edge_tile(like, a, n * size, b, m * size, min(m - i, lanes), min(n - j, lanes))


CHUNK_JOB = reader(6)


@outer
def chunk32(args, index):
    transpose_chunk(F32, CHUNK_JOB(args), index)
    return 0


@outer
def chunk64(args, index):
    transpose_chunk(F64, CHUNK_JOB(args), index)
    return 0


@inner
def transpose_all(like, chunk, x, out):
    m, n = x.shape[-2], x.shape[-1]
    for axis in range(x.ndim - 2):
        if out.shape[axis] != x.shape[axis]:
            return -1
    if out.shape[-2] != n or out.shape[-1] != m or overlaps(out, x):
        return -1
    if x.size == 0:
        return 0
    size = size_of(like)
    lanes = VECTOR_BYTES // size
    wide, tall = ACROSS * lanes, DOWN * lanes
    if m * size % ALIAS == 0 or n * size % ALIAS == 0:
        wide, tall = lanes, STRIP * lanes
    chunks = x.size // (m * n) * ((n + wide - 1) // wide) * ((m + tall - 1) // tall)
    job = (address(x), address(out), m, n, wide, tall)
    if x.size < SMALL:
        for index in range(chunks):
            transpose_chunk(like, job, index)
    else:
        parallel_for(address_of(chunk), pack(job), chunks)
    return 0


def _transpose32(x, out):
    return transpose_all(F32, chunk32, x, out)


def _transpose64(x, out):
    return transpose_all(F64, chunk64, x, out)


@KERNELS.add("transpose", rates=Rates(0.3e-6, 1e11, 7e10))
def transpose(device: None, call: Call) -> Kernel:
    """x[...,m,n] -> out[...,n,m]."""
    kind = number(call.dtype)
    function = _transpose32 if kind == types.float32 else _transpose64
    kernels: dict[int, Any] = {}

    def resolve(x: Any, out: Any) -> tuple[Any, tuple[Any, ...], int] | None:
        compiled = kernels.get(x.ndim)
        if compiled is None:
            if x.ndim < 2:
                return None
            signature = types.intp(source(kind, x.ndim), target(kind, x.ndim))
            compiled = kernels[x.ndim] = elsewhere.run(lambda: kernel_entry(signature)(function))
        return compiled, (x, out), 0

    return resolving(resolve)
