"""vecmat y[n] = x[k] a[k,n].

The floor is one read of the matrix.  STEPS rows of it are added to y at a time, so that y is loaded and stored once for
all of them, and those rows are read side by side from left to right, as the prefetchers like it.  Threads share the
rows where several results have room in the caller's frame, and the columns otherwise: of columns, a thread reads pieces
of rows, which ended every 2 KB in a matrix of 2048x2048.  Parts follow from the shape, so results do not depend on the
number of threads.

Measured on two cores of a Zen 5 with other work on them, float32, best of many in one process, columns shared, rows
shared, NumPy's OpenBLAS: 2048x2048 154, 99 and 113 µs, where a sum of the matrix takes 84; 1024x1024 30, 27 and 38;
100000x32 606, 76 and 456.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from trueno.backend import Call, Kernel, Rates

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels import tile
from trueno_simd.kernels.matvec import FAR, SHARES, shares
from trueno_simd.kernels.operands import F32, F64, number, overlaps, reader, source, target
from trueno_simd.kernels.table import KERNELS, PRODUCTS, Product
from trueno_simd.kernels.tile import LONG, VECTOR_BYTES, WIDTH, address, size_of
from trueno_simd.llvm.calls import address_of, call_finish, call_piece, pack
from trueno_simd.llvm.jit import inner, outer
from trueno_simd.llvm.memory import stack
from trueno_simd.llvm.streaming import LINE
from trueno_simd.llvm.streaming import at as position
from trueno_simd.threads.pool import parallel_for

STEPS, FAR_STEPS = 16, 8  # rows of the matrix between two visits of y; fewer of a matrix that no second cache holds
PARTS = 4  # of the rows at most
PART = 1 << 14  # bytes of y up to which the frame has room for parts of it
PART_ROWS = 32  # that justify a part

reserve = stack(types.int64, ((PARTS - 1) * PART + LINE) // 8)


@intrinsic
def unit(typing: Any, like: Any) -> Any:
    """1 of this type."""
    return like(like), lambda context, builder, sig, values: ir.Constant(values[0].type, 1.0)


@inner
def add_rows(like, a, x, y, n, k, first, last, start, stop):
    """y[j] = sum over p of x[p] a[p, j] for columns start … stop and rows first … last."""
    size = size_of(like)
    if n * size <= WIDTH:
        tile.short_masked(like, x + first * size, 0, size, a + first * n * size, n * size, y, 0, last - first, 1, n, 0)
        return
    step = LONG * VECTOR_BYTES // size
    most = STEPS if k * n * size <= FAR else FAR_STEPS
    if n <= step:  # one group of columns: its sums stay in registers
        most = last - first
    for p in range(first, last, most):
        steps = min(last - p, most)
        for j in range(start, stop, step):
            b = a + (p * n + j) * size
            if j + step <= stop:
                tile.long(like, x + p * size, 0, size, b, n * size, y + j * size, 0, steps, 1, step, p - first)
            else:
                left = stop - j
                tile.long_masked(like, x + p * size, 0, size, b, n * size, y + j * size, 0, steps, 1, left, p - first)


@outer
def columns_of(like, job, index):
    """y for some columns."""
    a, x, y, n, k, share, finish, more = job
    start, stop = index * share, min((index + 1) * share, n)
    add_rows(like, a, x, y, n, k, 0, k, start, stop)
    if finish:
        call_finish(finish, more, 0, 1, start, stop - start)


@outer
def parts_of(like, job, index):
    """All columns of y from some rows: the first part in y itself, the others in the room."""
    a, x, y, n, k, share, room = job
    part = room + (index - 1) * n * size_of(like) if index else y
    add_rows(like, a, x, part, n, k, index * share, min((index + 1) * share, k), 0, n)


JOB, PRODUCT_JOB, PARTS_JOB = reader(8), reader(7), reader(7)


@outer
def columns32(args, index):
    columns_of(F32, JOB(args), index)
    return 0


@outer
def columns64(args, index):
    columns_of(F64, JOB(args), index)
    return 0


@outer
def parts32(args, index):
    parts_of(F32, PARTS_JOB(args), index)
    return 0


@outer
def parts64(args, index):
    parts_of(F64, PARTS_JOB(args), index)
    return 0


@inner
def add_parts(like, room, y, n, parts):
    """Add so many parts to y."""
    size = size_of(like)
    one, step = pack((unit(like),)), LONG * VECTOR_BYTES // size
    for j in range(0, n, step):
        if j + step <= n:
            tile.long(like, one, 0, 0, room + j * size, n * size, y + j * size, 0, parts, 1, step, 1)
        else:
            tile.long_masked(like, one, 0, 0, room + j * size, n * size, y + j * size, 0, parts, 1, n - j, 1)


@inner
def times(like, piece, part, a, x, y, n, k, finish, more):
    if n == 0:
        return 0
    if k == 0:
        tile.clear(y, n * size_of(like))
        if finish:
            call_finish(finish, more, 0, 1, 0, n)
        return 0
    size = size_of(like)
    share, chunks = shares(k, FAR_STEPS, n * k * size, PARTS)
    if chunks > 1 and share >= PART_ROWS and n * size <= PART:
        room = -(-position(reserve(), 0) // LINE) * LINE
        parallel_for(address_of(part), pack((a, x, y, n, k, share, room)), chunks)
        add_parts(like, room, y, n, chunks - 1)
        if finish:
            call_finish(finish, more, 0, 1, 0, n)
        return 0
    share, chunks = shares(n, LONG * VECTOR_BYTES // size, n * k * size, SHARES // 2)
    parallel_for(address_of(piece), pack((a, x, y, n, k, share, finish, more)), chunks)
    return 0


@outer
def times32(args, i):
    a, x, y, n, k, finish, more = PRODUCT_JOB(args)
    return times(F32, columns32, parts32, a, x, y, n, k, finish, more)


@outer
def times64(args, i):
    a, x, y, n, k, finish, more = PRODUCT_JOB(args)
    return times(F64, columns64, parts64, a, x, y, n, k, finish, more)


@inner
def fits(x, a, y):
    return x.size == a.shape[0] and y.size == a.shape[1] and not overlaps(y, a) and not overlaps(y, x)


@inner
def run(multiply_at, x, a, y, scratch, finish, more):
    return call_piece(multiply_at, pack((address(a), address(x), address(y), y.size, x.size, finish, more)), 0)


def _vecmat32(x, a, out):
    if not fits(x, a, out):
        return -1
    return times(F32, columns32, parts32, address(a), address(x), address(out), out.size, x.size, 0, 0)


def _vecmat64(x, a, out):
    if not fits(x, a, out):
        return -1
    return times(F64, columns64, parts64, address(a), address(x), address(out), out.size, x.size, 0, 0)


def _times32():
    return address_of(times32)


def _times64():
    return address_of(times64)


PRODUCTS["vecmat"] = Product(fits, run, (1, 2, 1), {"float32": _times32, "float64": _times64}.__getitem__)


@KERNELS.add("vecmat", rates=Rates(0.2e-6, 4e10, 8e10))
def vecmat(device: None, call: Call) -> Kernel:
    """x[k] a[k,n] -> out[n]."""
    kind = number(call.dtype)
    signature = types.intp(source(kind, 1), source(kind, 2), target(kind, 1))
    return kernel_entry(signature)(_vecmat32 if kind == types.float32 else _vecmat64)
