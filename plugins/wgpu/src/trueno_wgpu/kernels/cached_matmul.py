"""`CachedMatmul`: y = alpha · x Wᵀ with weights that stay on the GPU.

A weight W[n,k] is uploaded once, in row-major order, and found again by its name.  A call uploads x, runs and downloads
y, in one submission; the buffers for x and y only grow.  One layout serves all three ways to multiply:

    1 row          a matrix-vector product along W's rows
    2 or 3 rows    the same, with W read once for all of them
    4 and more     tiles

A weight larger than a binding is kept in blocks of rows, each of which makes its columns of y.
"""

import struct
from collections.abc import Iterator
from threading import Lock
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
from trueno.errors import BackendUnavailable, DtypeError, OutError, ParameterError, ShapeError, suggestion

from trueno_wgpu.device import opened
from trueno_wgpu.device.array import Array
from trueno_wgpu.device.gpu import Gpu
from trueno_wgpu.kernels import gemv
from trueno_wgpu.kernels.dispatches import Dispatch, run
from trueno_wgpu.kernels.matmul import product_dispatches
from trueno_wgpu.kernels.memory import bands
from trueno_wgpu.kernels.store import Store

Floats = npt.NDArray[np.float32]
FLOAT32 = np.dtype(np.float32)
SCALED = Store(scaled=True)
MOST_PLANS = 64
"""Row counts whose plans a weight keeps; the cache is cleared when full."""


class _Weight:
    """One weight on the device: blocks of rows, with the row where each begins, and plans by the rows of x."""

    def __init__(self, gpu: Gpu, name: str, w: Floats) -> None:
        self.n, self.k = w.shape
        self.nbytes = w.nbytes
        self.blocks: list[tuple[int, Array]] = []
        self.plans: dict[int, list[list[Dispatch]]] = {}
        if w.size:
            for first, count in bands(f"CachedMatmul: weight {name!r}", "w", self.n, (self.k * 4,), gpu.limits):
                self.blocks.append((first, Array.of(gpu, w[first : first + count])))

    def dispatches(self, m: int, gpu: Gpu) -> list[list[Dispatch]]:
        """For each block; its operands are x and the block."""
        planned = self.plans.get(m)
        if planned is None:
            if len(self.plans) >= MOST_PLANS:
                self.plans.clear()
            planned = self.plans[m] = [self._dispatches(m, first, block.shape[0], gpu) for first, block in self.blocks]
        return planned

    def _dispatches(self, m: int, first: int, n: int, gpu: Gpu) -> list[Dispatch]:
        if m <= gemv.MOST_VECTORS:
            return gemv.row_dispatches("CachedMatmul", n, self.k, gpu.limits, SCALED, vectors=m, x=0, a=1, first=first,
                                  pitch=self.n)  # fmt: skip
        return product_dispatches(
            "CachedMatmul", m, n, self.k, gpu.limits, SCALED, turned=True, first=first, pitch=self.n
        )


class CachedMatmul:
    """Products with named weights.  It may be used by many threads at once: calls take turns.

    gpu: the device; the process's own if not given.  BackendUnavailable where there is none.
    """

    def __init__(self, gpu: Gpu | None = None) -> None:
        self._gpu = opened.gpu() if gpu is None else gpu
        self._weights: dict[str, _Weight] = {}
        self._lock = Lock()
        self._input: Array | None = None
        self._output: Array | None = None
        self._closed = False

    # ---- weights

    def cache(self, name: str, w: npt.ArrayLike) -> None:
        """Upload w[n,k], float32, as weight `name`; one of that name before is replaced.

        ShapeError, DtypeError; OutOfMemory where the device has no room, and KernelError where 64 rows of w do not fit
        into a binding.
        """
        array = np.asarray(w)
        if array.ndim != 2:
            raise ShapeError(f"CachedMatmul: weight {name!r} has shape {array.shape}; it must be a matrix [n, k]")
        _check_dtype(f"weight {name!r}", array)
        with self._lock:
            self._check()
            self._weights[name] = _Weight(self._gpu, name, np.ascontiguousarray(array, FLOAT32))

    def drop(self, name: str) -> None:
        """Forget a weight; its memory is free for others.  ParameterError where there is none."""
        with self._lock:
            self._check()
            self._find(name)
            del self._weights[name]

    @property
    def weight_count(self) -> int:
        """Weights on the device."""
        return len(self._weights)

    @property
    def weight_bytes(self) -> int:
        """Bytes that they hold."""
        with self._lock:
            return sum(w.nbytes for w in self._weights.values())

    def __contains__(self, name: object) -> bool:
        return name in self._weights

    def __iter__(self) -> Iterator[str]:
        """Names, in the order of their upload."""
        with self._lock:
            return iter(list(self._weights))

    # ---- products

    def matmul(
        self, name: str, x: npt.ArrayLike, *, alpha: float = 1.0, m: int | None = None, out: Floats | None = None
    ) -> Floats:
        """y = alpha · x Wᵀ of weight `name`, W[n,k].

        x: [k], which gives y[n], or [m,k], which gives y[m,n]; float32.  With m it is memory whose first m · k values
        count.  out: an array of y's shape, or memory of one dimension whose first m · n values become y; then it is
        what is returned.  Unknown weights are ParameterErrors, too short an x or out are ShapeErrors.
        """
        array = np.asarray(x)
        _check_dtype("x", array)
        with self._lock:
            self._check()
            weight = self._find(name)
            rows, shape = _rows(name, weight.n, weight.k, array, m)
            target = _target(out, shape)
            flat = target.reshape(-1)[: rows * weight.n]
            if not weight.k:
                flat[...] = 0
            elif flat.size:
                used = np.ascontiguousarray(array, FLOAT32).reshape(-1)[: rows * weight.k]
                self._run(weight, used, rows, alpha, flat)
        return target

    def _run(self, weight: _Weight, x: Floats, m: int, alpha: float, flat: Floats) -> None:
        gpu = self._gpu
        self._input = _grown(gpu, self._input, x.size)
        self._output = _grown(gpu, self._output, flat.size)
        gpu.write(self._input.buffer, x.view(np.uint8))
        inputs = Array((m, weight.k), FLOAT32, self._input.buffer)
        result = Array((m, weight.n), FLOAT32, self._output.buffer)
        word = struct.pack("<f", alpha)
        for (_, block), dispatches in zip(weight.blocks, weight.dispatches(m, gpu), strict=True):
            run(gpu, dispatches, (inputs, block), result, word)
        gpu.read(self._output.buffer, flat.nbytes, into=flat.view(np.uint8))

    def _find(self, name: str) -> _Weight:
        weight = self._weights.get(name)
        if weight is None:
            known = ", ".join(map(repr, self._weights)) or "none"
            raise ParameterError(
                f"CachedMatmul: no weight is called {name!r}{suggestion(name, self._weights) or ';'} there are: {known}"
            )
        return weight

    # ---- the end

    def _check(self) -> None:
        if self._closed:
            raise BackendUnavailable("CachedMatmul: it was closed, and its weights are gone; make another one")

    def close(self) -> None:
        """Let go of weights and buffers.  Again is not an error; anything else is one from now on."""
        with self._lock:
            self._closed = True
            self._weights.clear()
            self._input = self._output = None

    def __enter__(self) -> "CachedMatmul":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.weight_count} weights of {self.weight_bytes} bytes"
        return f"<CachedMatmul on {self._gpu.name}: {state}>"


def _check_dtype(what: str, x: npt.NDArray[Any]) -> None:
    if x.dtype != FLOAT32:
        raise DtypeError(f"CachedMatmul: {what} is {x.dtype}; convert it to float32")


def _grown(gpu: Gpu, array: Array | None, size: int) -> Array:
    """An array of at least `size` elements: the one there is, or one that is twice as large at least."""
    if array is not None and array.size >= size:
        return array
    least = 2 * array.size if array is not None else 0
    return Array.empty(gpu, (min(max(size, least), max(size, gpu.limits.buffer // 4)),), FLOAT32)


def _rows(name: str, n: int, k: int, x: npt.NDArray[Any], m: int | None) -> tuple[int, tuple[int, ...]]:
    """Rows of x, and the shape of y."""
    if m is not None:
        if m < 0:
            raise ParameterError(f"CachedMatmul: m is {m}; it counts rows, so it must be 0 or more")
        if x.size < m * k:
            raise ShapeError(
                f"CachedMatmul: x is too short: {m} rows of weight {name!r} [{n}, {k}] need {m * k} values, "
                f"and x has {x.size}"
            )
        return m, (m, n)
    if x.ndim not in (1, 2) or x.shape[-1] != k:
        have = x.shape[-1] if x.ndim else 1
        raise ShapeError(
            f"CachedMatmul: x has shape {x.shape}, so rows of {have} values, and weight {name!r} [{n}, {k}] needs rows "
            f"of {k}: give x[{k}] or x[m, {k}]"
        )
    return (1, (n,)) if x.ndim == 1 else (len(x), (len(x), n))


def _target(out: Floats | None, shape: tuple[int, ...]) -> Floats:
    """Where y goes."""
    size = int(np.prod(shape, dtype=int))
    if out is None:
        return np.empty(shape, FLOAT32)
    if not isinstance(out, np.ndarray) or out.dtype != FLOAT32:
        kind = out.dtype if isinstance(out, np.ndarray) else type(out).__name__
        raise OutError(f"CachedMatmul: out is {kind}; it must be a NumPy array of float32")
    if out.size < size:
        raise ShapeError(f"CachedMatmul: out is too short: y{list(shape)} needs {size} values, and out has {out.size}")
    if out.shape != shape and out.ndim != 1:
        raise OutError(f"CachedMatmul: out has shape {out.shape}; give it y's shape {shape}, or one dimension")
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise OutError("CachedMatmul: out is strided or read-only; it must be contiguous and writable")
    return out
