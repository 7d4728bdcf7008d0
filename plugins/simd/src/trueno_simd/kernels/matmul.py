"""matmul and batched_matmul, row-major: c[m,n] = a[m,k] b[k,n].

Floor: 2 m n k operations at the multiply-add units' peak (258 GFLOP/s a core where this was measured, Zen 5
with AVX-512).  On one thread this reaches 224 of them at 64x64, 264 at 128x128, 247 at 512x512 and 219 at 2048x2048;
NumPy's OpenBLAS 90 to 120 on one thread, 210 to 250 on two.

`panels` multiplies by register tiles.  Where the CPU has AMX, and it is faster there (`amx.choice`), large float32
products are made of bfloat16 parts instead (`amx.product`, docs/adr/0024), with an error below the same bound.

An epilogue (`trueno_simd.rows.epilogue`) is a compiled function that finishes a block of C: it is called by address, on
the thread that made the block, while the block is in L2.  So no chain compiles the product again.

The BLAS inside NumPy is used only for large products on a CPU without AVX-512 and without a cap: there it
is as wide as ours and better tuned (at AVX2 these tiles make 1.33x its speed at 64x64, 1.04x at 128x128, 0.82 to
0.95x from 256x256 on, one thread each).  With AVX-512 they are 1.7 to 2.2x as fast, as this BLAS runs AVX2 kernels on
Zen 5; under a cap of the ISA level it would not obey; and it has its own threads, so no chunk of ours calls it.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numba import types
from trueno.backend import Call, Kernel, Rates

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels import tile
from trueno_simd.kernels.amx import attempts, choice, halves
from trueno_simd.kernels.amx.attempts import leave, no_room
from trueno_simd.kernels.operands import F32, F64, SCRATCH, number, overlaps, reader, source, target, with_scratch
from trueno_simd.kernels.panels import (
    CHUNK,
    block32,
    block64,
    direct,
    item32,
    item64,
    product,
    scratch_bytes,
    slab32,
    slab64,
)
from trueno_simd.kernels.table import KERNELS, PRODUCTS, Product
from trueno_simd.kernels.tile import address, size_of
from trueno_simd.llvm import amx, elsewhere, isa
from trueno_simd.llvm.calls import acquire_gil, address_of, call_finish, call_piece, pack, release_gil
from trueno_simd.llvm.jit import inner, outer, special
from trueno_simd.threads.pool import parallel_for

BLAS = 192**3 if isa.detect().level == isa.level() in ("avx2", "neon") else 0  # m n k from which on; 0: never
ELSEWHERE = -2  # the operands are fine, and the product is the BLAS's


PRODUCT_JOB = reader(11)

# The other way for float32, which `over` puts in its place: bytes that it needs for a product, 0 if it leaves it to
# register tiles; and the way itself, which may leave it, too.
room_for, attempt = no_room, leave


@inner
def one(like, room_for, attempt, block_piece, slab_piece, a, b, c, m, n, k, scratch, finish, more, above):
    """A product that has its scratch."""
    if room_for(m, n, k) == 0 or attempt(a, b, c, m, n, k, scratch, finish, more, above) == 0:
        product(like, block_piece, slab_piece, a, b, c, m, n, k, scratch, finish, more, above)


@inner
def multiply(like, blas, room_for, attempt, block_piece, slab_piece, a, b, c, m, n, k, scratch, room, finish, more):
    """C of agreeing sizes, finished if there is a `finish`: 0, or the bytes that it needs; ELSEWHERE from `blas` on."""
    if m == 0 or n == 0:
        return 0
    if k == 0:
        tile.clear(c, m * n * size_of(like))
        if finish:
            call_finish(finish, more, 0, m, 0, n)
        return 0
    if blas and m * n * k >= blas:
        return ELSEWHERE
    need = max(scratch_bytes(like, m, n, k), room_for(m, n, k))
    if need > room:
        return need
    if need == 0:
        direct(like, block_piece, a, b, c, m, n, k, finish, more, 0)
        return 0
    state = release_gil()
    one(like, room_for, attempt, block_piece, slab_piece, a, b, c, m, n, k, scratch, finish, more, 0)
    acquire_gil(state)
    return 0


@inner
def multiply_batch(like, room_for, attempt, item_piece, block_piece, slab_piece, a, b, c, batch, m, n, k,
                   scratch, room, finish, more):  # fmt: skip
    """The same for `batch` products."""
    if batch * m * n == 0:
        return 0
    if k == 0:
        tile.clear(c, batch * m * n * size_of(like))
        if finish:
            call_finish(finish, more, 0, batch * m, 0, n)
        return 0
    need, size = max(scratch_bytes(like, m, n, k), room_for(m, n, k)), size_of(like)
    if need > room:
        return need
    state = release_gil()
    if need == 0 and m * n * k <= 4 * CHUNK:
        chunks = batch
        parallel_for(address_of(item_piece), pack((a, b, c, m, n, k, finish, more)), chunks)
    else:
        for i in range(batch):
            one(like, room_for, attempt, block_piece, slab_piece, a + i * m * k * size, b + i * k * n * size,
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
    return multiply(F32, BLAS, room_for, attempt, block32, slab32, a, b, c, m, n, k, scratch, room, finish, more)


@outer
def product64(args, i):
    a, b, c, _, m, n, k, scratch, room, finish, more = PRODUCT_JOB(args)
    return multiply(F64, BLAS, no_room, leave, block64, slab64, a, b, c, m, n, k, scratch, room, finish, more)


@outer
def product_batch32(args, i):
    a, b, c, batch, m, n, k, scratch, room, finish, more = PRODUCT_JOB(args)
    return multiply_batch(F32, room_for, attempt, item32, block32, slab32, a, b, c, batch, m, n, k,
                          scratch, room, finish, more)  # fmt: skip


@outer
def product_batch64(args, i):
    a, b, c, batch, m, n, k, scratch, room, finish, more = PRODUCT_JOB(args)
    return multiply_batch(F64, no_room, leave, item64, block64, slab64, a, b, c, batch, m, n, k,
                          scratch, room, finish, more)  # fmt: skip


def _matmul32(a, b, out, scratch):
    if not fits(a, b, out):
        return -1
    (m, k), n = a.shape, b.shape[1]
    return multiply(F32, BLAS, room_for, attempt, block32, slab32, address(a), address(b), address(out), m, n, k,
                    address(scratch), scratch.size, 0, 0)  # fmt: skip


def _matmul64(a, b, out, scratch):
    if not fits(a, b, out):
        return -1
    (m, k), n = a.shape, b.shape[1]
    return multiply(F64, BLAS, no_room, leave, block64, slab64, address(a), address(b), address(out), m, n, k,
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


@cache
def over(tiles: amx.Tiles) -> dict[str, Any]:
    """The float32 functions above that Python compiles, by name, with AMX's way over one form of the tiles."""
    known = dict(zip(("room_for", "attempt", "BLAS"), (*attempts.float32(tiles), 0), strict=True))
    for name, function in (("product32", product32), ("product_batch32", product_batch32)):
        known[name] = outer(special(function, f"{name}_{tiles.name}", known))
    names = (_matmul32, _batch32, _address32, _batch_address32)
    return {f.__name__: special(f, f"{f.__name__}_{tiles.name}", known) for f in names}


def _compiled(function: Any, kind: Any, ndim: int) -> Any:
    signature = types.intp(source(kind, ndim), source(kind, ndim), target(kind, ndim), SCRATCH)
    return with_scratch(kernel_entry(signature)(function))


def _chosen(function: Any, call: Call | None = None) -> Any:
    """One of the functions above, with AMX's way if that is faster here and the call's operands may be large enough."""
    name = function.__name__
    if not name.endswith("32") or (call is not None and sum(call.sizes[:2]) <= attempts.SMALL) or not amx.available():
        return function
    other = over(amx.HARDWARE)
    tiled = choice.faster("matmul", lambda: _compiled(_matmul32, types.float32, 2),
                          lambda: _compiled(other["_matmul32"], types.float32, 2))  # fmt: skip
    return other[name] if tiled else function


def _address(dtype: str) -> Callable[[], int]:
    return _chosen(_address32 if dtype == "float32" else _address64)  # type: ignore[no-any-return]


def _batch_address(dtype: str) -> Callable[[], int]:
    return _chosen(_batch_address32 if dtype == "float32" else _batch_address64)  # type: ignore[no-any-return]


PRODUCTS["matmul"] = Product(fits, run, (2, 2, 2), _address)
PRODUCTS["batched_matmul"] = Product(fits, run, (0, 0, 0), _batch_address)


@KERNELS.add("matmul", rates=Rates(0.3e-6, 1e11, 5e10), dtypes=("float32", "float64", *halves.NAMES))
def matmul(device: None, call: Call) -> Kernel:
    """a[m,k] b[k,n] -> out[m,n]."""
    if call.dtype.name in halves.NAMES:
        single = matmul(device, replace(call, dtype=np.dtype(np.float32)))
        return halves.product(call.dtype, single, amx.HARDWARE if amx.available() else None)
    kind = number(call.dtype)
    ours = _compiled(_chosen(_matmul32 if kind == types.float32 else _matmul64, call), kind, 2)
    if not BLAS:
        return ours

    def kernel(a: Any, b: Any, out: Any) -> int:
        status = ours(a, b, out)
        if status != ELSEWHERE:
            return status
        np.matmul(a, b, out=out)
        return 0

    kernel.resolve = ours.resolve  # type: ignore[attr-defined]  # which answers None where the BLAS computes
    return kernel


@KERNELS.add("batched_matmul", rates=Rates(0.5e-6, 7e10, 6e10))
def batched_matmul(device: None, call: Call) -> Kernel:
    """a[...,m,k] b[...,k,n] -> out[...,m,n], the leading axes equal; one batch axis or two are compiled as such."""
    kind = number(call.dtype)
    function = _chosen(_batch32 if kind == types.float32 else _batch64, call)
    kernels: dict[int, Callable[..., int]] = {}

    def compiled(ndim: int) -> Kernel:
        if ndim == 2:
            return matmul(device, call)
        return _compiled(function, kind, ndim)

    def fitting(a: Any, b: Any, out: Any) -> tuple[Any, ...] | None:
        """The kernel of so many axes, and its arguments."""
        ndim = a.ndim
        if ndim < 2 or b.ndim != ndim or out.ndim != ndim:  # before anything is compiled for it
            return None
        if ndim > 4:
            if not a.shape[:-2] == b.shape[:-2] == out.shape[:-2] or not out.flags.c_contiguous:
                return None
            a, b, out = (x.reshape(-1, *x.shape[-2:]) for x in (a, b, out))
            ndim = 3
        if ndim not in kernels:
            kernels[ndim] = elsewhere.run(lambda: compiled(ndim))
        return kernels[ndim], a, b, out

    def kernel(*arrays: Any) -> int:
        call = fitting(*arrays)
        return -1 if call is None else call[0](*call[1:])

    def resolve(*arrays: Any) -> Any:
        call = fitting(*arrays) if all(x.flags.c_contiguous for x in arrays) else None  # a view, and no copy
        return None if call is None else call[0].resolve(*call[1:])  # type: ignore[attr-defined]

    kernel.resolve = resolve  # type: ignore[attr-defined]
    return kernel
