"""PyTorch tensors: on the CPU as NumPy arrays, on a GPU as the arrays of the backend there, both in the same memory.

bfloat16, which NumPy and its DLPack lack, is passed as its 16 bits, and is `ml_dtypes.bfloat16` here.  On CUDA, the
call runs on PyTorch's current stream.  PyTorch is imported already where a tensor exists, so nothing here imports it.
"""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import numpy as np

from trueno.discovery import registry
from trueno.errors import DeviceError, DtypeError, OutError
from trueno.interop import devices

NOUN, MIXES = "PyTorch tensor", False
CUDA = 2
"""DLPack's device type of CUDA."""
NOTHING: Final = nullcontext()


def _torch() -> Any:
    return sys.modules["torch"]


def _bfloat16(what: str, name: str) -> np.dtype[Any]:
    try:
        import ml_dtypes
    except ImportError:
        problem = "which NumPy has only with another package; pip install ml_dtypes"
        raise DtypeError(f"{what}: {name} is bfloat16, {problem}") from None
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def _bare(what: str, name: str, x: Any) -> Any:
    """The tensor without what only PyTorch knows of it: a gradient, or a sign that was not applied yet."""
    torch = _torch()
    if x.requires_grad:
        if torch.is_grad_enabled():
            remedy = f"give {name}.detach(), or call the op under torch.no_grad()"
            raise DtypeError(f"{what}: {name} requires a gradient, and Trueno computes none; {remedy}")
        x = x.detach()
    if x.layout is not torch.strided:
        raise DtypeError(f"{what}: {name} is a tensor of layout {x.layout}; give {name}.to_dense()")
    if x.device.type == "meta" or isinstance(x, torch._subclasses.FakeTensor):
        remedy = "import trueno.torch, and call torch.ops.trueno in what torch.compile traces"
        raise DeviceError(f"{what}: {name} is a tensor without data; {remedy}")
    return x.resolve_neg()


def host(what: str, name: str, x: Any) -> np.ndarray[Any, Any]:
    """A tensor of the CPU as a NumPy array in its memory; DeviceError for one elsewhere."""
    x = _bare(what, name, x)
    if not x.is_cpu:
        problem = f"{name} is a PyTorch tensor on {x.device}, which the host cannot access"
        raise DeviceError(f"{what}: {problem}; copy it to the host first, with {name}.cpu()")
    try:
        if x.dtype is _torch().bfloat16:
            return x.view(_torch().int16).numpy().view(_bfloat16(what, name))  # type: ignore[no-any-return]
        return x.numpy()  # type: ignore[no-any-return]
    except (TypeError, RuntimeError) as error:  # a dtype that NumPy lacks, such as float8
        problem = f"{name} is a PyTorch tensor of {x.dtype} that NumPy cannot take ({error})"
        raise DtypeError(f"{what}: {problem}; convert it with {name}.float()") from error


def take(what: str, name: str, x: Any) -> Any:
    """`x` as a NumPy array, or as an array of the backend of its device, in the same memory."""
    if x.is_cpu:
        return host(what, name, x)
    x = _bare(what, name, x)
    if x.device.type != "cuda":  # others have no backend with DLPack
        return host(what, name, x)
    space = devices.namespace(what, name, x, (CUDA, x.device.index))
    if x.dtype is _torch().bfloat16:
        return space.from_dlpack(x.view(_torch().int16)).view(_bfloat16(what, name))
    return space.from_dlpack(x)


def target(what: str, name: str, x: Any) -> Any:
    """`out` as an array in the same memory."""
    if x.is_neg():
        raise OutError(f"{what}: {name} is a tensor whose sign was not applied yet; give {name}.resolve_neg()")
    return take(what, name, x)


def wrong(what: str, name: str, x: Any) -> DtypeError | None:
    """The error for an operand of floats that holds none; None if it does."""
    if x.is_floating_point():
        return None
    remedy = f"convert it with {name}.float()" if not x.is_complex() else "real numbers only"
    problem = f"{name} is a PyTorch tensor of {str(x.dtype).removeprefix('torch.')}"
    return DtypeError(f"{what}: {problem}; float32, float64, float16 and bfloat16 are accepted, {remedy}")


def give(result: Any, like: Any) -> Any:
    """A result as a tensor in the same memory; a NumPy number as a tensor without axes."""
    torch = _torch()
    array = np.asarray(result) if isinstance(result, np.generic) else result
    half = array.dtype.itemsize == 2 and np.dtype(array.dtype).name == "bfloat16"
    array = array.view(np.int16) if half else array
    if isinstance(array, np.ndarray) and not array.flags.writeable:  # PyTorch has no such tensors
        array = array.copy()
    x = torch.from_numpy(array) if isinstance(array, np.ndarray) else torch.from_dlpack(array)
    return x.view(torch.bfloat16) if half else x


class _Handle:
    """A stream by its handle, for libraries that ask for CUDA's protocol of streams."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        """The protocol's version and the handle."""
        return 0, self.handle


def context(x: Any) -> AbstractContextManager[Any]:
    """Where the backend of a tensor on CUDA computes on PyTorch's current stream; nothing elsewhere."""
    if not x.is_cuda:
        return NOTHING
    current = _torch().cuda.current_stream(x.device).cuda_stream
    cuda = getattr(devices.namespace("stream", "x", x, (CUDA, x.device.index)), "cuda", None)
    if cuda is None or cuda.get_current_stream().ptr == current:
        return NOTHING
    known = getattr(cuda.Stream, "from_external", None)  # CuPy 14 names it so, and warns of the older way
    return known(_Handle(current)) if known else cuda.ExternalStream(current, x.device.index)  # type: ignore[no-any-return]


def convert(name: str, other: str) -> str:
    """The remedy for a NumPy array `other` beside `name`."""
    return f"torch.from_numpy({other}), or {name}.numpy()"


def hasten(fast: dict[type, Any]) -> None:
    """Enter the short way for plain tensors of the CPU, see `FAST`: of all floats but bfloat16, without a gradient."""
    torch = sys.modules.get("torch")
    if torch is None or torch.Tensor in fast or registry.owner(torch.Tensor) is not None:
        return
    tensor, single, double, half = torch.Tensor, torch.float32, torch.float64, torch.float16
    int64, strided = torch.int64, torch.strided
    known = registry.entries()

    # A tensor that requires a gradient raises an error in numpy(): to ask each one would cost 2 % of a small call.
    def plain(x: Any) -> Any:
        if x.__class__ is tensor:
            kind = x.dtype
            if (kind is single or kind is double or kind is half) and x.is_cpu:
                if registry._entries is not known:  # entries() would take 15 ns more
                    fast.clear()  # another backend may own tensors now; if not, `run` enters this again
                    return None
                try:
                    return x.numpy()
                except (TypeError, RuntimeError):  # a gradient, a sparse tensor, and others without plain memory
                    return None
        return x if x.__class__ is float or x.__class__ is int else None

    def whole(x: Any) -> Any:
        if x.__class__ is tensor and x.dtype is int64 and x.is_cpu and x.layout is strided:
            return x.numpy()
        return None

    fast[tensor] = plain, whole, torch.from_numpy, _given


def _given(result: Any) -> Any:
    return tuple(give(r, None) for r in result) if isinstance(result, tuple) else give(result, None)
