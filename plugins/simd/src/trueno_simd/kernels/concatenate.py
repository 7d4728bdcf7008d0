"""concatenate: for each row above the axis, the bytes of a, then those of b.

A few long rows are cut where the threads' shares end.  Results that no cache holds are stored past the caches.

Floor: the bytes of both read, and written once.  Measured on two cores of a Zen 5 with 32 MB of L3, axis 0, float32: a
result of 8 MB takes 78 us (102 GB/s written), past the caches 188; of 32 MB 0.95 ms, and 0.85; of 64 MB 2.16, and
1.99.
"""

from math import prod
from typing import Any

from numba import types
from trueno.backend import Call, Kernel, Rates
from trueno.errors import ShapeError

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels.gather import CHUNK, LONG_ROW, SHARES, shares
from trueno_simd.kernels.operands import adapted, number, overlaps, reader, source, target
from trueno_simd.kernels.table import KERNELS
from trueno_simd.kernels.tile import address, copy
from trueno_simd.llvm.caches import last_cache, uncached
from trueno_simd.llvm.calls import address_of, pack
from trueno_simd.llvm.jit import inner, outer
from trueno_simd.llvm.streaming import fence, flush
from trueno_simd.threads.pool import parallel_for

PAGE = 1 << 12  # chunks of long rows are a multiple of so many bytes

JOB, SPAN_JOB = reader(7), reader(8)


@outer
def rows(args, index):
    """Some rows of the result."""
    a, b, out, first, second, count, share = JOB(args)
    for i in range(index * share, min((index + 1) * share, count)):
        row = out + i * (first + second)
        copy(row, a + i * first, first)
        copy(row + first, b + i * second, second)
    return 0


@inner
def put(target, source, count, streamed):
    """Copy bytes, if any, past the caches if that is wanted."""
    if count > 0:
        if streamed:
            flush(target, source, count)
        else:
            copy(target, source, count)


@outer
def spans(args, index):
    """Some bytes of a result whose rows are few and long: parts of the rows that they touch."""
    a, b, out, first, second, size, share, streamed = SPAN_JOB(args)
    row = first + second
    start, stop = index * share, min((index + 1) * share, size)
    while start < stop:
        i = start // row
        left, right = start - i * row, min(stop - i * row, row)
        put(out + start, a + i * first + left, min(right, first) - left, streamed)
        left_of_second = max(left - first, 0)
        put(out + i * row + first + left_of_second, b + i * second + left_of_second,
            right - first - left_of_second, streamed)  # fmt: skip
        start = i * row + right
    if streamed:
        fence()
    return 0


def _concatenate(a, b, out, least):
    count = out.shape[0]
    if a.shape[0] != count or b.shape[0] != count or out.shape[1] != a.shape[1] + b.shape[1]:
        return -1
    if overlaps(out, a) or overlaps(out, b):
        return -1
    streamed = out.nbytes >= least and out.nbytes // max(count, 1) >= LONG_ROW
    if out.size and (streamed or count < min(out.nbytes // CHUNK, SHARES)):
        chunks = min(max(out.nbytes // CHUNK, 1), SHARES)
        share = ((out.nbytes + chunks - 1) // chunks + PAGE - 1) // PAGE * PAGE
        args = pack((address(a), address(b), address(out), a.nbytes // count, b.nbytes // count, out.nbytes,
                     share, int(streamed)))  # fmt: skip
        parallel_for(address_of(spans), args, (out.nbytes + share - 1) // share)
    elif out.size:
        share, chunks = shares(count, out.nbytes)
        args = pack((address(a), address(b), address(out), a.nbytes // count, b.nbytes // count, count, share))
        parallel_for(address_of(rows), args, chunks)
    return 0


@KERNELS.add("concatenate", rates=Rates(2e-6, 1e11, 1e11))
def concatenate(device: None, call: Call) -> Kernel:
    """Two arrays with one shape but along the axis."""
    kind, axis = number(call.dtype), dict(call.static)["axis"]
    compiled = kernel_entry(types.intp(source(kind, 2), source(kind, 2), target(kind, 2), types.int64))(_concatenate)
    least = int(uncached(last_cache())) // 2  # of the result, whose bytes are read as well

    def flat(a: Any, b: Any, out: Any) -> tuple[Any, ...] | None:
        try:
            fits = (out.shape,) == call.op.result_shapes((a.shape, b.shape), {"axis": axis})
        except ShapeError:
            return None
        if not fits or not all(x.flags.c_contiguous for x in (a, b, out)):
            return None
        count = prod(a.shape[: axis % a.ndim])
        return *(x.reshape(count, x.size // max(count, 1)) for x in (a, b, out)), least

    return adapted(flat, compiled)
