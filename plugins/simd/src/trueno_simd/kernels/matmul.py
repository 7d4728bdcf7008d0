"""matmul and batched_matmul, row-major: c[m,n] = a[m,k] b[k,n].

Floor: 2 m n k operations at the multiply-add units' peak (258 GFLOP/s a core where this was measured, Zen 5
with AVX-512).  On one thread this reaches 224 of them at 64x64, 264 at 128x128, 247 at 512x512 and 198 at 2048x2048;
NumPy's OpenBLAS 90 to 120 on one thread, 210 to 250 on two.

`direct` reads A and B where they are: best while B stays in L2.  `packed` first copies a slab of B into
panels one tile wide and a slab of A into rows of one pitch, because the rows of a large matrix lie so far
apart (often a power of two) that they fall into few cache sets and touch a page each.

An epilogue (`trueno_simd.rows.epilogue`) is a compiled function that finishes a block of C: it is called by address, on
the thread that made the block, while the block is in L2.  So no chain compiles the product again.

The BLAS inside NumPy is used only for large products on a CPU without AVX-512 and without a cap: there it
is as wide as ours and better tuned (at AVX2 these tiles make 1.33x its speed at 64x64, 1.04x at 128x128, 0.82 to
0.95x from 256x256 on, one thread each).  With AVX-512 they are 1.7 to 2.2x as fast, as this BLAS runs AVX2 kernels on
Zen 5; under a cap of the ISA level it would not obey; and it has its own threads, so no chunk of ours calls it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from trueno.backend import Call, Kernel, Rates

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels import tile
from trueno_simd.kernels.operands import F32, F64, SCRATCH, number, overlaps, reader, source, target, with_scratch
from trueno_simd.kernels.table import KERNELS, PRODUCTS, Product
from trueno_simd.kernels.tile import LOW, TALL, WIDTH, address, size_of, strip
from trueno_simd.llvm import elsewhere, isa
from trueno_simd.llvm.calls import acquire_gil, address_of, call_finish, call_piece, pack, release_gil
from trueno_simd.llvm.jit import inner, outer
from trueno_simd.threads.pool import parallel_for

DEPTH = 256  # steps of k between two visits of C: a panel of B is then 32 KiB and stays in L1
GROUP = 8  # panels of B in one block, which then stay in L2
BLOCK = 16 * TALL  # rows of A in one block, which then stay in L2
COPIED = 64  # rows of A that one chunk copies
PITCH = DEPTH + 16  # elements between two packed rows of A; not a power of two, so that they spread over the sets
NEAR = 1 << 20  # bytes of B up to which it is read in place
BLAS = 192**3 if isa.detect().level == isa.level() in ("avx2", "neon") else 0  # m n k from which on; 0: never
ELSEWHERE = -2  # the operands are fine, and the product is the BLAS's
CHUNK = 1 << 20  # operations that justify a separate chunk (4 us)


@outer
def block(like, job, index):
    """One block of C; blocks are counted down the rows first, so that neighbours share B's panels."""
    a, a_row, b, b_step, b_panel, c, c_row, m, n, k, accumulate, rows, columns, finish, more, above = job
    size = size_of(like)
    step = WIDTH // size
    down = (m + rows - 1) // rows
    top, left = index % down * rows, index // down * columns
    bottom, right = min(top + rows, m), min(left + columns, n)
    # What is to be finished is made in parts that are still near by then.
    height, width = (BLOCK, GROUP * step) if finish else (rows, columns)
    for first in range(left, right, width):
        last = min(first + width, right)
        for i in range(top, bottom, height):
            tall = min(height, bottom - i)
            for j in range(first, last, step):
                panel = b + j // step * b_panel
                strip(like, a + i * a_row, a_row, panel, b_step, c + i * c_row + j * size, c_row,
                      tall, k, n - j, accumulate)  # fmt: skip
            if finish:
                call_finish(finish, more, above + i, tall, first, last - first)


@outer
def pack_slab(like, job, index):
    """Copy a group of B's panels, or some rows of A, into the order in which tiles read them."""
    a, a_row, b, b_row, m, n, k, a_packed, b_packed = job
    size = size_of(like)
    step = WIDTH // size
    groups = (n + GROUP * step - 1) // (GROUP * step)
    if index >= groups:
        first = (index - groups) * COPIED
        for i in range(first, min(first + COPIED, m)):
            tile.copy(a_packed + i * PITCH * size, a + i * a_row, k * size)
        return
    first, panel = index * GROUP, k * WIDTH
    full = min(first + GROUP, n // step)
    for p in range(k):
        for j in range(first, full):
            tile.move(like, b_packed + j * panel + p * WIDTH, b + p * b_row + j * WIDTH)
    if full < first + GROUP and n % step:
        for p in range(k):
            place = b_packed + full * panel + p * WIDTH
            tile.clear(place, WIDTH)
            tile.copy(place, b + p * b_row + full * WIDTH, n % step * size)


@outer
def item(like, job, index):
    """One product of a batch, alone."""
    a, b, c, m, n, k, finish, more = job
    size = size_of(like)
    block(like, (a + index * m * k * size, k * size, b + index * k * n * size, n * size, WIDTH,
                 c + index * m * n * size, n * size, m, n, k, 0, m, n, finish, more, index * m), 0)  # fmt: skip


BLOCK_JOB, SLAB_JOB, ITEM_JOB, PRODUCT_JOB = reader(16), reader(9), reader(8), reader(11)


@outer
def block32(args, index):
    block(F32, BLOCK_JOB(args), index)
    return 0


@outer
def block64(args, index):
    block(F64, BLOCK_JOB(args), index)
    return 0


@outer
def slab32(args, index):
    pack_slab(F32, SLAB_JOB(args), index)
    return 0


@outer
def slab64(args, index):
    pack_slab(F64, SLAB_JOB(args), index)
    return 0


@outer
def item32(args, index):
    item(F32, ITEM_JOB(args), index)
    return 0


@outer
def item64(args, index):
    item(F64, ITEM_JOB(args), index)
    return 0


@inner
def direct(like, block_piece, a, b, c, m, n, k, finish, more, above):
    size = size_of(like)
    step = WIDTH // size
    wanted = min(max(2 * m * n * k // CHUNK, 1), 32)
    down = min(wanted, (m + TALL - 1) // TALL)
    rows = ((m + down - 1) // down + LOW - 1) // LOW * LOW
    panels = (n + step - 1) // step
    across = min((wanted + down - 1) // down, panels)
    columns = (panels + across - 1) // across * step
    chunks = ((m + rows - 1) // rows) * ((n + columns - 1) // columns)
    args = pack((a, k * size, b, n * size, WIDTH, c, n * size, m, n, k, 0, rows, columns, finish, more, above))
    parallel_for(address_of(block_piece), args, chunks)


@inner
def packed(like, block_piece, slab_piece, a, b, c, m, n, k, scratch, finish, more, above):
    size = size_of(like)
    columns = GROUP * (WIDTH // size)
    groups = (n + columns - 1) // columns
    rows = min(BLOCK, ((m + 1) // 2 + TALL - 1) // TALL * TALL)
    b_packed = (scratch + 63) // 64 * 64
    a_packed = b_packed + groups * GROUP * WIDTH * DEPTH
    for p in range(0, k, DEPTH):
        depth = min(DEPTH, k - p)
        slab = pack((a + p * size, k * size, b + p * n * size, n * size, m, n, depth, a_packed, b_packed))
        parallel_for(address_of(slab_piece), slab, groups + (m + COPIED - 1) // COPIED)
        done = finish if p + depth == k else 0
        args = pack((a_packed, PITCH * size, b_packed, WIDTH, depth * WIDTH, c, n * size, m, n, depth,
                     int(p > 0), rows, columns, done, more, above))  # fmt: skip
        parallel_for(address_of(block_piece), args, (m + rows - 1) // rows * groups)


@outer
def scratch_bytes(like, m, n, k):
    """Bytes that `packed` needs; 0 where `direct` is better: B is near, or A has too few rows to pay for packing."""
    size = size_of(like)
    if k * n * size <= NEAR or m <= 2 * TALL:
        return 0
    columns = GROUP * (WIDTH // size)
    return 64 + (n + columns - 1) // columns * GROUP * WIDTH * DEPTH + m * PITCH * size


@inner
def product(like, block_piece, slab_piece, a, b, c, m, n, k, scratch, finish, more, above):
    if scratch_bytes(like, m, n, k) == 0:
        direct(like, block_piece, a, b, c, m, n, k, finish, more, above)
    else:
        packed(like, block_piece, slab_piece, a, b, c, m, n, k, scratch, finish, more, above)


@inner
def multiply(like, block_piece, slab_piece, a, b, c, m, n, k, scratch, room, finish, more):
    """C of agreeing sizes, finished if there is a `finish`: 0, or the bytes that it needs, or ELSEWHERE."""
    if m == 0 or n == 0:
        return 0
    if k == 0:
        tile.clear(c, m * n * size_of(like))
        if finish:
            call_finish(finish, more, 0, m, 0, n)
        return 0
    if BLAS and m * n * k >= BLAS:
        return ELSEWHERE
    need = scratch_bytes(like, m, n, k)
    if need > room:
        return need
    if need == 0:
        direct(like, block_piece, a, b, c, m, n, k, finish, more, 0)
        return 0
    state = release_gil()
    packed(like, block_piece, slab_piece, a, b, c, m, n, k, scratch, finish, more, 0)
    acquire_gil(state)
    return 0


@inner
def multiply_batch(like, item_piece, block_piece, slab_piece, a, b, c, batch, m, n, k, scratch, room, finish, more):
    """The same for `batch` products."""
    if batch * m * n == 0:
        return 0
    if k == 0:
        tile.clear(c, batch * m * n * size_of(like))
        if finish:
            call_finish(finish, more, 0, batch * m, 0, n)
        return 0
    need, size = scratch_bytes(like, m, n, k), size_of(like)
    if need > room:
        return need
    state = release_gil()
    if need == 0 and m * n * k <= 4 * CHUNK:
        chunks = batch
        parallel_for(address_of(item_piece), pack((a, b, c, m, n, k, finish, more)), chunks)
    else:
        for i in range(batch):
            product(like, block_piece, slab_piece, a + i * m * k * size, b + i * k * n * size,
                    c + i * m * n * size, m, n, k, scratch, finish, more, i * m)  # fmt: skip
    acquire_gil(state)
    return 0


@inner
def fits(a, b, c):
    """Whether operands and result agree, leading axes included."""
    for axis in range(a.ndim - 2):
        if b.shape[axis] != a.shape[axis] or c.shape[axis] != a.shape[axis]:
            return False
    agree = a.shape[-1] == b.shape[-2] and c.shape[-2] == a.shape[-2] and c.shape[-1] == b.shape[-1]
    return agree and not overlaps(c, a) and not overlaps(c, b)


@inner
def run(multiply_at, a, b, c, scratch, finish, more):
    """The product by the compiled function at the address `multiply_at`, and its blocks finished."""
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    batch = c.size // max(m * n, 1)
    job = pack((address(a), address(b), address(c), batch, m, n, k, address(scratch), scratch.size, finish, more))
    return call_piece(multiply_at, job, 0)


@outer
def product32(args, i):
    a, b, c, _, m, n, k, scratch, room, finish, more = PRODUCT_JOB(args)
    return multiply(F32, block32, slab32, a, b, c, m, n, k, scratch, room, finish, more)


@outer
def product64(args, i):
    a, b, c, _, m, n, k, scratch, room, finish, more = PRODUCT_JOB(args)
    return multiply(F64, block64, slab64, a, b, c, m, n, k, scratch, room, finish, more)


@outer
def product_batch32(args, i):
    a, b, c, batch, m, n, k, scratch, room, finish, more = PRODUCT_JOB(args)
    return multiply_batch(F32, item32, block32, slab32, a, b, c, batch, m, n, k, scratch, room, finish, more)


@outer
def product_batch64(args, i):
    a, b, c, batch, m, n, k, scratch, room, finish, more = PRODUCT_JOB(args)
    return multiply_batch(F64, item64, block64, slab64, a, b, c, batch, m, n, k, scratch, room, finish, more)


def _matmul32(a, b, out, scratch):
    if not fits(a, b, out):
        return -1
    (m, k), n = a.shape, b.shape[1]
    return multiply(F32, block32, slab32, address(a), address(b), address(out), m, n, k,
                    address(scratch), scratch.size, 0, 0)  # fmt: skip


def _matmul64(a, b, out, scratch):
    if not fits(a, b, out):
        return -1
    (m, k), n = a.shape, b.shape[1]
    return multiply(F64, block64, slab64, address(a), address(b), address(out), m, n, k,
                    address(scratch), scratch.size, 0, 0)  # fmt: skip


def _batch32(a, b, out, scratch):
    return run(address_of(product_batch32), a, b, out, scratch, 0, 0) if fits(a, b, out) else -1


def _batch64(a, b, out, scratch):
    return run(address_of(product_batch64), a, b, out, scratch, 0, 0) if fits(a, b, out) else -1


def _address32():
    return address_of(product32)


def _address64():
    return address_of(product64)


def _batch_address32():
    return address_of(product_batch32)


def _batch_address64():
    return address_of(product_batch64)


PRODUCTS["matmul"] = Product(fits, run, (2, 2, 2), {"float32": _address32, "float64": _address64})
PRODUCTS["batched_matmul"] = Product(fits, run, (0, 0, 0), {"float32": _batch_address32, "float64": _batch_address64})


@KERNELS.add("matmul", rates=Rates(0.3e-6, 1e11, 5e10))
def matmul(device: None, call: Call) -> Kernel:
    """a[m,k] b[k,n] -> out[m,n]."""
    kind = number(call.dtype)
    signature = types.intp(source(kind, 2), source(kind, 2), target(kind, 2), SCRATCH)
    ours = with_scratch(kernel_entry(signature)(_matmul32 if kind == types.float32 else _matmul64))
    if not BLAS:
        return ours

    def kernel(a: Any, b: Any, out: Any) -> int:
        status = ours(a, b, out)
        if status != ELSEWHERE:
            return status
        np.matmul(a, b, out=out)
        return 0

    return kernel


@KERNELS.add("batched_matmul", rates=Rates(0.5e-6, 7e10, 6e10))
def batched_matmul(device: None, call: Call) -> Kernel:
    """a[...,m,k] b[...,k,n] -> out[...,m,n], the leading axes equal; one batch axis or two are compiled as such."""
    kind = number(call.dtype)
    function = _batch32 if kind == types.float32 else _batch64
    kernels: dict[int, Callable[..., int]] = {}

    def compiled(ndim: int) -> Kernel:
        if ndim == 2:
            return matmul(device, call)
        signature = types.intp(source(kind, ndim), source(kind, ndim), target(kind, ndim), SCRATCH)
        return with_scratch(kernel_entry(signature)(function))

    def kernel(a: Any, b: Any, out: Any) -> int:
        ndim = a.ndim
        if ndim < 2 or b.ndim != ndim or out.ndim != ndim:  # before anything is compiled for it
            return -1
        if ndim > 4:
            if not a.shape[:-2] == b.shape[:-2] == out.shape[:-2] or not out.flags.c_contiguous:
                return -1
            a, b, out = (x.reshape(-1, *x.shape[-2:]) for x in (a, b, out))
            ndim = 3
        if ndim not in kernels:
            kernels[ndim] = elsewhere.run(lambda: compiled(ndim))
        return kernels[ndim](a, b, out)

    return kernel
