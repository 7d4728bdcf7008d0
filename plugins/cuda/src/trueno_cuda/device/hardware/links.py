"""NCCL, through CuPy, where it is installed: messages between the GPUs of this process."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from ml_dtypes import bfloat16
from trueno.errors import BackendUnavailable, DtypeError, KernelError

from trueno_cuda.device.hardware import runtime
from trueno_cuda.device.hardware.gpu import Gpu

TYPES: Final = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6, "float32": 7, "float64": 8,
    "bfloat16": 9,
}  # fmt: skip
"""ncclDataType_t by NumPy's names."""
NUMBERS: Final = {np.dtype(name): number for name, number in TYPES.items() if name != "bfloat16"} | {
    np.dtype(bfloat16): TYPES["bfloat16"]}  # fmt: skip
"""The same by dtypes, whose names take microseconds."""
OPS: Final = {"sum": 0, "prod": 1, "max": 2, "min": 3}
"""ncclRedOp_t."""
MISSING: Final = "NCCL is not installed, or CuPy cannot load it; pip install nvidia-nccl-cu13, or nvidia-nccl-cu12"


class Links:
    """A communicator of NCCL's for each of some GPUs.  BackendUnavailable without NCCL."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self.gpus = gpus
        self._library = library = runtime.nccl()
        if library is None:
            raise BackendUnavailable(f"cuda: {MISSING}")
        self._communicators = self._checked(lambda: library.NcclCommunicator.initAll([g.number for g in gpus]))

    def all_reduce(self, arrays: Sequence[Any], results: Sequence[Any], op: str) -> None:
        self._each("allReduce", arrays, results, arrays[0].size, OPS[op])

    def all_gather(self, arrays: Sequence[Any], results: Sequence[Any]) -> None:
        self._each("allGather", arrays, results, arrays[0].size)

    def reduce_scatter(self, arrays: Sequence[Any], results: Sequence[Any], op: str) -> None:
        self._each("reduceScatter", arrays, results, results[0].size, OPS[op])

    def broadcast(self, arrays: Sequence[Any], results: Sequence[Any], root: int) -> None:
        self._each("broadcast", arrays, results, arrays[0].size, root)

    def _each(self, name: str, arrays: Sequence[Any], results: Sequence[Any], size: int, *more: int) -> None:
        """One call for each GPU, on its current stream, as one group; NCCL makes each GPU current itself."""
        library: Any = self._library
        arrays = [gpu.contiguous(x) for gpu, x in zip(self.gpus, arrays, strict=True)]
        kind = NUMBERS.get(arrays[0].dtype)
        if kind is None:
            raise DtypeError(f"cuda: NCCL has no {arrays[0].dtype}; it knows {', '.join(TYPES)}")

        def group() -> None:
            library.groupStart()
            try:
                for gpu, one, x, y in zip(self.gpus, self._communicators, arrays, results, strict=True):
                    getattr(one, name)(x.data.ptr, y.data.ptr, size, kind, *more, gpu.stream())
            finally:
                library.groupEnd()

        self._checked(group)

    def _checked(self, run: Callable[[], Any]) -> Any:
        try:
            return run()
        except self._library.NcclError as error:
            raise KernelError(f"cuda: NCCL: {error}; NCCL_DEBUG=INFO says more") from None

    def close(self) -> None:
        """Wait for what was begun, and let go of NCCL's memory."""
        for gpu in self.gpus:
            gpu.wait()
        for one in self._communicators:
            one.destroy()
        self._communicators = []
