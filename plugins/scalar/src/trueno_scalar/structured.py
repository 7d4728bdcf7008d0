"""Structured ops with NumPy: the body in `trueno.ops.matrix` defines them; BLAS, LAPACK or a copy gives the speed.

Each function is `run(*operands, *results, **static)`; `SHAPES` gives the result shapes for operands.
Results must not overlap operands: otherwise the core copies.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from trueno.backend import Call, Op, Rates
from trueno.errors import KernelError, ShapeError

from trueno_scalar.functions import seen
from trueno_scalar.kernel import apart, clash, ignoring

Array = np.ndarray[Any, np.dtype[Any]]
Shapes = tuple[tuple[int, ...], ...] | None
Run = Callable[..., int | None]
Fit = Callable[..., Shapes]

LINE = 64
"""Bytes of a cache line: `transpose` writes whole lines."""
COLUMN_BYTES = 524288
"""Bytes of the windows that `convolve2d` gathers at once: they stay in L2 for the product that follows."""


def matmul(a: Array, b: Array, c: Array) -> None:
    np.matmul(a, b, c)


def transpose(x: Array, y: Array) -> None:
    """Stripes of as many source rows as fill one line of the result: 6 times faster than `y[...] = x.T`."""
    step = LINE // x.itemsize
    for i in range(0, len(x), step):
        y[:, i : i + step] = x[i : i + step].T


def outer(x: Array, y: Array, z: Array) -> None:
    np.multiply(x[:, None], y, z)


def convolve2d(x: Array, kernel: Array, y: Array, *, mode: str = "valid") -> None:
    """Gather the windows of some result rows as columns, then compute one matrix product; a tile at a time."""
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


def embedding_lookup(table: Array, i: Array, y: Array) -> int | None:
    if i.size and (i.min() < 0 or i.max() >= len(table)):
        return -1  # the core raises the error that names the index
    np.take(table, i, 0, y, mode="clip")  # "raise" would use a buffer
    return None


def symmetric_eigen(a: Array, values: Array, vectors: Array) -> None:
    """LAPACK gives ascending values; here they descend, and each vector's largest component is positive."""
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


def _product(a: Array, b: Array) -> Shapes:
    if a.shape[-1] != b.shape[0]:
        return None
    return ((*a.shape[:-1], *b.shape[1:]),)


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


def _convolved(x: Array, kernel: Array, *, mode: str = "valid") -> Shapes:
    if (x.ndim, kernel.ndim) not in ((2, 2), (3, 4)) or (x.ndim == 3 and kernel.shape[1] != x.shape[0]):
        return None
    (h, w), (p, q) = x.shape[-2:], kernel.shape[-2:]
    if not p or not q or (mode == "valid" and (p > h or q > w)):
        return None
    return ((*kernel.shape[:-3], *((h, w) if mode == "same" else (h - p + 1, w - q + 1))),)


def _looked_up(table: Array, i: Array) -> Shapes:
    return ((*i.shape, table.shape[1]),)


def _eigen(a: Array) -> Shapes:
    return ((len(a),), a.shape) if a.shape == (len(a), len(a)) else None


_LISTED: dict[str, tuple[Run, Fit, tuple[int, ...], Rates]] = {
    "matmul": (matmul, _product, (2, 2), Rates(3e-6, 1e11, 2e10)),
    "matvec": (matmul, _product, (2, 1), Rates(3e-6, 3e10, 6e10)),
    "vecmat": (matmul, _product, (1, 2), Rates(3e-6, 3e10, 6e10)),
    "batched_matmul": (matmul, _batched, (), Rates(3e-6, 3e10, 5e10)),
    "transpose": (transpose, lambda x: (x.shape[::-1],), (2,), Rates(2.5e-6, 1e11, 2e10)),
    "outer": (outer, lambda x, y: ((len(x), len(y)),), (1, 1), Rates(2.8e-6, 5e9, 2.2e10)),
    "convolve2d": (convolve2d, _convolved, (), Rates(2e-5, 2.5e10, 2e10)),
    "embedding_lookup": (
        embedding_lookup,
        lambda table, i: ((*i.shape, table.shape[1]),),
        (),
        Rates(4.5e-6, 1e11, 8e10),
    ),
    "symmetric_eigen": (symmetric_eigen, _eigen, (2,), Rates(1.3e-5, 1.5e10, 2e10)),
}
"""Name → function, result shapes for operands (None: they do not fit), their ranks if fixed, and the rates in
float32; products of matrices are BLAS's."""
KERNELS = {name: (run, fit, ranks) for name, (run, fit, ranks, _) in _LISTED.items()}
RATES = {name: rates for name, (*_, rates) in _LISTED.items()}


def _quantized(op: Op) -> tuple[Callable[..., None], Callable[..., Shapes], tuple[int, ...]]:
    """The function for an op on blocks, and the result shapes, from its signature and format."""
    from trueno_scalar.quantized import RUN

    def shapes(*operands: Array, **static: Any) -> Shapes:
        try:
            return op.result_shapes(tuple(x.shape for x in operands), static)
        except ShapeError:
            return None

    return RUN[op.name], shapes, tuple(len(spec.dims) for spec in op.signature.inputs)


def structured_kernel(call: Call) -> Callable[..., int]:
    """The kernel for a structured op's key."""
    run, shapes, ranks = _quantized(call.op) if call.op.quantized else KERNELS[call.op.name]
    if call.static:
        run, shapes = partial(run, **dict(call.static)), partial(shapes, **dict(call.static))
    inputs, outputs = call.op.signature.inputs, call.op.signature.outputs
    count, held = len(inputs), [spec.holds(call.dtype) for spec in inputs]
    floats = [j for j, spec in enumerate(inputs) if not spec.index]  # an index may have any integer dtype
    results = [spec.holds(call.dtype) for spec in outputs]

    def kernel(*arrays: Any) -> int:
        operands, outs = arrays[:count], arrays[count:]
        for j in floats:
            if operands[j].dtype is not held[j] and operands[j].dtype != held[j]:
                return -1
        for x, rank in zip(operands, ranks, strict=False):
            if x.ndim != rank:
                return -1
        expected = shapes(*operands)
        if expected is None or len(expected) != len(outs):
            return -1
        for y, shape, dtype in zip(outs, expected, results, strict=True):
            if y.shape != shape or y.dtype != dtype or not (y.flags.c_contiguous and y.flags.writeable):
                return -1
        if not apart(operands, outs) and clash(operands, outs):
            return -1
        if refused := ignoring(run, *arrays):
            return refused  # type: ignore[no-any-return]
        return ignoring(made, outs) if call.guarded else 0

    return kernel


def made(outs: tuple[Array, ...]) -> int:
    """Status bits of all results together."""
    status = 0
    for y in outs:
        status |= seen(y) if y.dtype.kind == "f" else 0
    return status
