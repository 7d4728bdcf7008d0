"""Matrices by NumPy: their meaning is the body in `trueno.ops.matrix`, the speed is BLAS', LAPACK's or a copy's.

Rates are those of float32; products of matrices are BLAS'.
"""

import numpy as np
from trueno.backend import Call, Kernel, Rates
from trueno.errors import KernelError

from trueno_scalar.kernels.table import KERNELS, Array, Shapes, checked

LINE = 64
"""Bytes of a cache line: `transpose` writes whole lines."""
COLUMN_BYTES = 524288
"""Bytes of the windows that `convolve2d` gathers at once: they stay in L2 for the product that follows."""


def _matmul(a: Array, b: Array, c: Array) -> None:
    np.matmul(a, b, c)


def _product(a: Array, b: Array) -> Shapes:
    if a.shape[-1] != b.shape[0]:
        return None
    return ((*a.shape[:-1], *b.shape[1:]),)


@KERNELS.add("matmul", rates=Rates(3e-6, 1e11, 2e10))
def matmul(device: None, call: Call) -> Kernel:
    return checked(call, _matmul, _product, (2, 2))


@KERNELS.add("matvec", rates=Rates(3e-6, 3e10, 6e10))
def matvec(device: None, call: Call) -> Kernel:
    return checked(call, _matmul, _product, (2, 1))


@KERNELS.add("vecmat", rates=Rates(3e-6, 3e10, 6e10))
def vecmat(device: None, call: Call) -> Kernel:
    return checked(call, _matmul, _product, (1, 2))


def _batched(a: Array, b: Array) -> Shapes:
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        return None
    if a.shape[:-2] == b.shape[:-2]:
        leading = a.shape[:-2]
    else:
        try:
            leading = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except ValueError:
            return None
    return ((*leading, a.shape[-2], b.shape[-1]),)


@KERNELS.add("batched_matmul", rates=Rates(3e-6, 3e10, 5e10))
def batched_matmul(device: None, call: Call) -> Kernel:
    return checked(call, _matmul, _batched)


def _transpose(x: Array, y: Array) -> None:
    """Stripes of as many source rows as fill one line of the result: 6 times faster than `y[...] = x.T`."""
    step = LINE // x.itemsize
    for i in range(0, len(x), step):
        y[:, i : i + step] = x[i : i + step].T


@KERNELS.add("transpose", rates=Rates(2.5e-6, 1e11, 2e10))
def transpose(device: None, call: Call) -> Kernel:
    return checked(call, _transpose, lambda x: (x.shape[::-1],), (2,))


def _outer(x: Array, y: Array, z: Array) -> None:
    np.multiply(x[:, None], y, z)


@KERNELS.add("outer", rates=Rates(2.8e-6, 5e9, 2.2e10))
def outer(device: None, call: Call) -> Kernel:
    return checked(call, _outer, lambda x, y: ((len(x), len(y)),), (1, 1))


def _convolve2d(x: Array, kernel: Array, y: Array, *, mode: str = "valid") -> None:
    """Gather the windows of some result rows as columns, then one matrix product; a tile at a time."""
    p, q = kernel.shape[-2:]
    if mode == "same":
        x = np.pad(x, [(0, 0)] * (x.ndim - 2) + [((s - 1) // 2, s // 2) for s in (p, q)])
    if x.ndim == 2:
        x, kernel, y = x[None], kernel[None, None], y[None]
    outputs, channels = kernel.shape[:2]
    height, width = y.shape[1:]
    taps = np.ascontiguousarray(kernel).reshape(outputs, channels * p * q)
    if not channels:
        y[...] = 0
        return
    windows = np.lib.stride_tricks.sliding_window_view(x, (p, q), axis=(1, 2)).transpose(0, 3, 4, 1, 2)
    lines = y.reshape(outputs, height * width)
    step = min(height, max(1, COLUMN_BYTES // (x.itemsize * max(1, taps.shape[1] * width))))
    scratch = np.empty(taps.shape[1] * step * width, x.dtype)
    for i in range(0, height, step):
        some = windows[:, :, :, i : i + step]
        columns = scratch[: taps.shape[1] * some.shape[3] * width]
        np.copyto(columns.reshape(some.shape), some)
        np.matmul(taps, columns.reshape(taps.shape[1], -1), lines[:, i * width : (i + step) * width])


def _convolved(x: Array, kernel: Array, *, mode: str = "valid") -> Shapes:
    if (x.ndim, kernel.ndim) not in ((2, 2), (3, 4)) or (x.ndim == 3 and kernel.shape[1] != x.shape[0]):
        return None
    (h, w), (p, q) = x.shape[-2:], kernel.shape[-2:]
    if not p or not q or (mode == "valid" and (p > h or q > w)):
        return None
    return ((*kernel.shape[:-3], *((h, w) if mode == "same" else (h - p + 1, w - q + 1))),)


@KERNELS.add("convolve2d", rates=Rates(2e-5, 2.5e10, 2e10))
def convolve2d(device: None, call: Call) -> Kernel:
    return checked(call, _convolve2d, _convolved)


def _embedding_lookup(table: Array, i: Array, y: Array) -> int | None:
    if i.size and (i.min() < 0 or i.max() >= len(table)):
        return -1  # the core names the index
    np.take(table, i.astype(np.intp, copy=False), 0, y, mode="clip")  # "raise" would go through a buffer
    return None


@KERNELS.add("embedding_lookup", rates=Rates(4.5e-6, 1e11, 8e10))
def embedding_lookup(device: None, call: Call) -> Kernel:
    return checked(call, _embedding_lookup, lambda table, i: ((*i.shape, table.shape[1]),))


def _symmetric_eigen(a: Array, values: Array, vectors: Array) -> None:
    """LAPACK gives ascending values; ours descend, and each vector's largest component is positive."""
    try:
        ascending, columns = np.linalg.eigh(a)
    except np.linalg.LinAlgError as error:
        raise KernelError(
            f"symmetric_eigen: a has no eigenvalues that LAPACK finds ({error}); where its numbers are near the "
            "largest that its dtype holds, divide it by a power of two and multiply the values again"
        ) from error
    if a.size:
        largest = np.take_along_axis(columns, np.abs(columns).argmax(0)[None], 0)
        np.multiply(columns, np.where(largest < 0, -1, 1).astype(a.dtype), columns)
    values[...] = ascending[::-1]
    vectors[...] = columns[:, ::-1]


def _eigen(a: Array) -> Shapes:
    return ((len(a),), a.shape) if a.shape == (len(a), len(a)) else None


@KERNELS.add("symmetric_eigen", rates=Rates(1.3e-5, 1.5e10, 2e10))
def symmetric_eigen(device: None, call: Call) -> Kernel:
    return checked(call, _symmetric_eigen, _eigen, (2,))
