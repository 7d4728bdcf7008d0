"""concatenate: for each row above the axis, the bytes of a, then those of b.

Floor: the bytes of both read, and written once.
"""

from math import prod
from typing import Any

from numba import types
from trueno.backend import Call, Kernel, Rates
from trueno.errors import ShapeError

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels.gather import shares
from trueno_simd.kernels.operands import number, overlaps, reader, source, target
from trueno_simd.kernels.table import KERNELS
from trueno_simd.kernels.tile import address, copy
from trueno_simd.llvm.calls import address_of, pack
from trueno_simd.llvm.jit import outer
from trueno_simd.threads.pool import parallel_for

JOB = reader(7)


@outer
def rows(args, index):
    """Some rows of the result."""
    a, b, out, first, second, count, share = JOB(args)
    for i in range(index * share, min((index + 1) * share, count)):
        row = out + i * (first + second)
        copy(row, a + i * first, first)
        copy(row + first, b + i * second, second)
    return 0


def _concatenate(a, b, out):
    count = out.shape[0]
    if a.shape[0] != count or b.shape[0] != count or out.shape[1] != a.shape[1] + b.shape[1]:
        return -1
    if overlaps(out, a) or overlaps(out, b):
        return -1
    if out.size:
        share, chunks = shares(count, out.nbytes)
        args = pack((address(a), address(b), address(out), a.nbytes // count, b.nbytes // count, count, share))
        parallel_for(address_of(rows), args, chunks)
    return 0


@KERNELS.add("concatenate", rates=Rates(2e-6, 1e11, 1e11))
def concatenate(device: None, call: Call) -> Kernel:
    """Two arrays with one shape but along the axis."""
    kind, axis = number(call.dtype), dict(call.static)["axis"]
    compiled = kernel_entry(types.intp(source(kind, 2), source(kind, 2), target(kind, 2)))(_concatenate)

    def kernel(a: Any, b: Any, out: Any) -> int:
        try:
            fits = (out.shape,) == call.op.result_shapes((a.shape, b.shape), {"axis": axis})
        except ShapeError:
            return -1
        if not fits or not all(x.flags.c_contiguous for x in (a, b, out)):
            return -1
        at = axis % a.ndim
        count = prod(a.shape[:at])
        if not count:
            return 0
        status: int = compiled(*(x.reshape(count, x.size // count) for x in (a, b, out)))
        return status

    return kernel
