"""embedding_lookup and outer: rows copied, and rows scaled.

Floor: the bytes of the result written, and for the look-up read from the table as well.

The outer product stores results that no cache holds past the caches, without reading their lines first.  Measured on
two cores of a Zen 5 with 32 MB of L3, float32, over ordinary stores: 32 MB 0.99, 64 MB 1.10, 144 MB 1.42, 256 MB 1.31.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from trueno.backend import Call, Kernel, Rates

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels import tile
from trueno_simd.kernels.operands import F32, F64, number, overlaps, reader, resolving, source, target
from trueno_simd.kernels.table import KERNELS
from trueno_simd.kernels.tile import address, at, call, get_int32, get_word, masks, size_of, splat, vector
from trueno_simd.llvm import elsewhere
from trueno_simd.llvm.caches import last_cache, uncached
from trueno_simd.llvm.calls import address_of, pack
from trueno_simd.llvm.jit import inner, outer
from trueno_simd.llvm.streaming import LINE, fence
from trueno_simd.threads.pool import parallel_for

CHUNK = 1 << 16  # bytes of the result that justify a separate chunk
SHARES = 64  # chunks at most
LONG_ROW = 1 << 11  # bytes of a row from which on the lines that it shares with its neighbours matter little

LOOKUP_JOB = reader(7)


@inner
def shares(rows, size):
    """Split rows of `size` bytes in all into chunks: rows of a chunk, and how many chunks."""
    wanted = min(max(size // CHUNK, 1), SHARES)
    share = (rows + wanted - 1) // wanted
    return share, (rows + share - 1) // share


@outer
def look_up(args, index):
    """Copy the rows that some of the indices name."""
    table, indices, is_int32, out, count, row, share = LOOKUP_JOB(args)
    for i in range(index * share, min((index + 1) * share, count)):
        number_ = get_int32(indices, i) if is_int32 else get_word(indices, i)
        tile.copy(out + i * row, table + number_ * row, row)
    return 0


def _embedding(table, indices, out):
    v, d = table.shape
    if out.shape[0] != indices.size or out.shape[1] != d or overlaps(out, table) or overlaps(out, indices):
        return -1
    # all are checked before anything is written; as a fold without an early exit this is a vector loop
    wrong = 0
    for i in range(indices.size):
        wrong |= (indices[i] < 0) | (indices[i] >= v)
    if wrong:
        return -1
    if out.size == 0:
        return 0
    share, chunks = shares(indices.size, out.nbytes)
    args = pack((address(table), address(indices), int(indices.itemsize == 4), address(out),
                 indices.size, out.nbytes // indices.size, share))  # fmt: skip
    parallel_for(address_of(look_up), args, chunks)
    return 0


@KERNELS.add("embedding_lookup", rates=Rates(0.3e-6, 1e11, 1.2e11))
def embedding_lookup(device: None, call: Call) -> Kernel:
    """table[v,d] indices[...] -> out[...,d]; int64 or int32 indices.

    An index below 0 or from v on: -1 with nothing written, and the core raises; none wraps around.
    """
    kind = number(call.dtype)
    kernels: dict[np.dtype, Any] = {}

    def resolve(table: Any, indices: Any, out: Any) -> tuple[Any, tuple[Any, ...], int] | None:
        compiled = kernels.get(indices.dtype)
        if compiled is None:
            which = {"i4": types.int32, "i8": types.int64}.get(indices.dtype.str[1:])
            if which is None or not indices.dtype.isnative:
                return None
            signature = types.intp(source(kind, 2), source(which, 1), target(kind, 2))
            compiled = kernels[indices.dtype] = elsewhere.run(lambda: kernel_entry(signature)(_embedding))
        if indices.ndim != 1:
            if out.shape[:-1] != indices.shape or not (indices.flags.c_contiguous and out.flags.c_contiguous):
                return None
            # views, as both are contiguous; the width is spelled out because -1 has no answer for empty arrays
            indices, out = indices.reshape(-1), out.reshape(indices.size, out.shape[-1])
        return compiled, (table, indices, out), 0

    return resolving(resolve)


@intrinsic
def scaled_row(typing: Any, like: Any, value: Any, y: Any, out: Any, n: Any) -> Any:
    """out[j] = value * y[j]; `value` is an address.  The tile's sums would begin at +0 and so lose a product's -0."""
    kind, lanes, size = vector(like)
    scalar, suffix = kind.element, f"v{lanes}f{size * 8}"

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        _, value, y, out, n = values

        def const(number: int) -> Any:
            return ir.Constant(ir.IntType(64), number)

        factor = splat(builder, builder.load(at(builder, value, scalar), align=size), kind)
        whole = builder.mul(builder.sdiv(n, const(lanes)), const(lanes))
        with cgutils.for_range_slice(builder, const(0), whole, const(lanes)) as (j, _):
            shift = builder.mul(j, const(size))
            product = builder.fmul(factor, builder.load(at(builder, builder.add(y, shift), kind), align=size))
            builder.store(product, at(builder, builder.add(out, shift), kind), align=size)
        with builder.if_then(builder.icmp_signed("<", whole, n)):
            shift, lane = builder.mul(whole, const(size)), masks(builder, builder.sub(n, whole), lanes, 1)[0]
            align, zero = ir.Constant(ir.IntType(32), size), ir.Constant(kind, [0.0] * lanes)
            args = [at(builder, builder.add(y, shift), kind), align, lane, zero]
            product = builder.fmul(factor, call(builder, f"llvm.masked.load.{suffix}.p0", kind, args))
            args = [product, at(builder, builder.add(out, shift), kind), align, lane]
            call(builder, f"llvm.masked.store.{suffix}.p0", ir.VoidType(), args)
        return context.get_dummy_value()

    return types.void(like, *[types.intp] * 4), emit


@intrinsic
def scaled_lines(typing: Any, like: Any, value: Any, y: Any, out: Any, n: Any) -> Any:
    """out[j] = value * y[j] past the caches; `out` begins a line, and n fills lines."""
    scalar, size = vector(like)[0].element, vector(like)[2]
    kind = ir.VectorType(scalar, LINE // size)

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        _, value, y, out, n = values

        def const(number: int) -> Any:
            return ir.Constant(ir.IntType(64), number)

        factor = splat(builder, builder.load(at(builder, value, scalar), align=size), kind)
        with cgutils.for_range_slice(builder, const(0), n, const(LINE // size)) as (j, _):
            shift = builder.mul(j, const(size))
            product = builder.fmul(factor, builder.load(at(builder, builder.add(y, shift), kind), align=size))
            store = builder.store(product, at(builder, builder.add(out, shift), kind), align=LINE)
            store.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))
        return context.get_dummy_value()

    return types.void(like, *[types.intp] * 4), emit


@outer
def scaled_rows(like, job, index):
    """Some rows of the outer product."""
    x, y, out, m, n, share = job
    size = size_of(like)
    for i in range(index * share, min((index + 1) * share, m)):
        scaled_row(like, x + i * size, y, out + i * n * size, n)


@outer
def streamed_rows(like, job, index):
    """The same past the caches, but for the lines that a row shares with another."""
    x, y, out, m, n, share = job
    size = size_of(like)
    for i in range(index * share, min((index + 1) * share, m)):
        row, value = out + i * n * size, x + i * size
        head = min(-row % LINE // size, n)
        stop = head + (n - head) // (LINE // size) * (LINE // size)
        scaled_row(like, value, y, row, head)
        scaled_lines(like, value, y + head * size, row + head * size, stop - head)
        scaled_row(like, value, y + stop * size, row + stop * size, n - stop)
    fence()


OUTER_JOB = reader(6)


@outer
def rows32(args, index):
    scaled_rows(F32, OUTER_JOB(args), index)
    return 0


@outer
def rows64(args, index):
    scaled_rows(F64, OUTER_JOB(args), index)
    return 0


@outer
def streamed32(args, index):
    streamed_rows(F32, OUTER_JOB(args), index)
    return 0


@outer
def streamed64(args, index):
    streamed_rows(F64, OUTER_JOB(args), index)
    return 0


@inner
def product(piece, x, y, out):
    m, n = out.shape
    if x.size != m or y.size != n or overlaps(out, x) or overlaps(out, y):
        return -1
    if out.size == 0:
        return 0
    share, chunks = shares(m, out.nbytes)
    parallel_for(address_of(piece), pack((address(x), address(y), address(out), m, n, share)), chunks)
    return 0


def _outer32(x, y, out):
    return product(rows32, x, y, out)


def _outer64(x, y, out):
    return product(rows64, x, y, out)


def _streamed32(x, y, out):
    return product(streamed32, x, y, out)


def _streamed64(x, y, out):
    return product(streamed64, x, y, out)


@KERNELS.add("outer", rates=Rates(0.2e-6, 3e10, 1.2e11))
def outer_product(device: None, call: Call) -> Kernel:
    """x[m] y[n] -> out[m,n]."""
    kind, single = number(call.dtype), call.dtype.itemsize == 4
    signature = types.intp(source(kind, 1), source(kind, 1), target(kind, 2))
    ordinary = kernel_entry(signature)(_outer32 if single else _outer64)
    least = uncached(last_cache())
    if call.dtype.itemsize << sum(call.sizes) <= least:
        return ordinary  # no call of this key is so large
    streamed = kernel_entry(signature)(_streamed32 if single else _streamed64)

    def resolve(x: Any, y: Any, out: Any) -> tuple[Any, tuple[Any, ...], int]:
        return streamed if out.nbytes >= least and y.nbytes >= LONG_ROW else ordinary, (x, y, out), 0

    return resolving(resolve)
