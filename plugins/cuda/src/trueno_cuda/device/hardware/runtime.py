"""The wrapper of CuPy: the only file that imports it, and the few functions of it that are used.

Arrays are `cupy.ndarray`, from CuPy's pool, and work goes to CuPy's current stream in the calling
thread.
"""

import ctypes
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Final

import cupy
import numpy as np
from cupy.cuda.memory import OutOfMemoryError
from cupy.cuda.runtime import CUDARuntimeError

VERSION: Final = int(cupy.cuda.runtime.runtimeGetVersion())
"""Of the CUDA that CuPy was built for, as 13020 for 13.2."""


class CudaFailure(Exception):
    """A result code of the driver's that CuPy met."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def ndarray(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """An uninitialised array in C order on the current GPU.  MemoryError where there is no room; else CudaFailure."""
    try:
        return cupy.ndarray(shape, dtype)
    except (OutOfMemoryError, OverflowError) as error:
        raise MemoryError(str(error)) from None
    except CUDARuntimeError as error:
        raise CudaFailure(int(error.status)) from None


def is_array(x: Any) -> bool:
    """Whether it is one of CuPy's."""
    return isinstance(x, cupy.ndarray)


def part(x: Any, start: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """An array in the memory of another one, from byte `start` on."""
    return cupy.ndarray(shape, dtype, memptr=x.data + start)


def current_device() -> int:
    """The number of the GPU that is CuPy's current one; CudaFailure where there is none."""
    try:
        return int(cupy.cuda.runtime.getDevice())
    except CUDARuntimeError as error:
        raise CudaFailure(int(error.status)) from None


def kept() -> int:
    """Bytes that the pool of the current GPU keeps for arrays to come."""
    return int(cupy.get_default_memory_pool().free_bytes())


def give_back() -> None:
    """Give the driver what the pool keeps."""
    cupy.get_default_memory_pool().free_all_blocks()


def unpooled() -> AbstractContextManager[Any]:
    """This thread's arrays come from the driver, one by one."""
    context: AbstractContextManager[Any] = cupy.cuda.using_allocator(None)
    return context


def stream_of(number: int) -> Callable[[], int]:
    """The function that gives the handle of a GPU's current stream in the calling thread, from CuPy.

    CuPy's own function for that takes a Stream object on the way.  The one beneath is exported to other Cython modules
    only, in a capsule whose name is its signature, and takes a third of the time.
    """
    with suppress(Exception):
        from cupy_backends.cuda import stream

        capsule = stream.__pyx_capi__["get_stream_ptr"]
        get = ctypes.pythonapi["PyCapsule_GetPointer"]  # a new object, whose types no other code sets
        get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        function = ctypes.PYFUNCTYPE(ctypes.c_ssize_t)(get(capsule, b"intptr_t (int)"))
        ask = partial(function, ctypes.c_int.from_param(number))  # converted here, and not at every call
        if ask() == cupy.cuda.get_current_stream(number).ptr:
            return ask
    return lambda: int(cupy.cuda.get_current_stream(number).ptr)


def nccl() -> Any:
    """NCCL's module; None where it is not installed.  CuPy's wheels do not bring it, and PyTorch's wheels do."""
    try:
        from cupy.cuda import nccl as module
    except Exception:  # whatever a loader says of a library that is not there
        return None
    return module if getattr(module, "available", True) else None


def blas() -> tuple[Callable[[], int], Any] | None:
    """What gives cuBLAS' handle of the current GPU in the calling thread, and cuBLAS; None where it is not installed.

    CuPy's wheels do not bring it: `cupy-cuda13x[ctk]` does, and PyTorch's wheels do.
    """
    try:
        from cupy.cuda.device import get_cublas_handle
        from cupy_backends.cuda.libs import cublas
    except Exception:  # whatever a loader says of a library that is not there
        return None
    return get_cublas_handle, cublas
