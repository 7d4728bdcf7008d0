"""cuBLAS, through CuPy, where it is installed.  It is optional: our own kernels cover every product."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trueno_cuda.device.hardware import runtime
from trueno_cuda.device.hardware.contexts import Context
from trueno_cuda.device.protocol import Launch


class Blas:
    """cuBLAS on one GPU.  stream: gives the calling thread's; recording: whether it is making a recording.

    A recording gets our kernel instead: cuBLAS wants memory of its own while it runs, which a graph would have to keep.
    """

    def __init__(self, context: Context, stream: Callable[[], int], recording: Callable[[], bool]) -> None:
        self._context = context
        self._stream = stream
        self._recording = recording
        self._library = runtime.blas()

    def product(self, dtype: np.dtype[Any], m: int, n: int, depth: int, instead: Launch) -> Launch | None:
        """A launch of out[m,n] = a[m,depth] b[depth,n], of float32 (never TF32) or float64; None without cuBLAS."""
        if self._library is None or dtype not in (np.float32, np.float64):
            return None
        handle, library = self._library
        multiply = library.sgemm if dtype == np.float32 else library.dgemm
        numbers = np.array([1, 0], dtype)  # what the product and what was there are multiplied by
        one, none = numbers.ctypes.data, numbers.ctypes.data + dtype.itemsize

        def launch(pointers: Sequence[int], floats: Sequence[float] = ()) -> None:
            if self._recording():
                instead(pointers, floats)
                return
            a, b, out = pointers
            with self._context:
                own = handle()
                library.setStream(own, self._stream())
                # cuBLAS counts by columns: seen so, our rows are the transposes, and outᵀ = bᵀ aᵀ
                multiply(own, 0, 0, n, m, depth, one, b, n, a, depth, none, out, n)

        launch.keeps = numbers  # type: ignore[attr-defined]
        return launch
