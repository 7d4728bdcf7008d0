"""Running a kernel of one's own: `run` for a try, `prepared` for one that is launched often."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from trueno.errors import DtypeError, ParameterError

from trueno_cuda.ptx import Kernel, f64, ptr
from trueno_cuda.ptx.types import Type

Grid = int | tuple[int, ...]


def prepared(
    kernel: Kernel, grid: Grid, numbers: Sequence[int] = (), *, block: Grid | None = None, backend: str = "cuda"
) -> Callable[..., None]:
    """A launch of `kernel` with all fixed but arrays and floats: `launch(*arrays, *floats)`, as often as you like.

    kernel: what `build` gave; its parameters are pointers, then whole numbers, then floats.  grid: blocks, x y z.
    block: threads, where the kernel leaves them open.  backend: `cuda`, or `cuda_emulated`, which needs no GPU.
    The launch checks the dtypes of arrays, not their sizes; it runs on the current stream, and does not wait.
    BackendUnavailable without a GPU; KernelError for what the driver refuses, with its log.
    """
    pointers, wholes, floats = _groups(kernel)
    if len(numbers) != wholes:
        raise ParameterError(f"{kernel.name} takes {wholes} whole numbers; {len(numbers)} were given")
    device: Any = getattr(_loaded(backend), "device", None)
    if device is None or not hasattr(device, "prepare"):
        raise ParameterError(f"{backend} runs no PTX; name cuda or cuda_emulated")
    launch = device.prepare(kernel, _three(grid), tuple(numbers), None if block is None else _three(block))
    names = [p.name for p in kernel.params[:pointers]]
    wanted = [p.type.element.bytes for p in kernel.params[:pointers] if isinstance(p.type, ptr)]

    def run(*given: Any) -> None:
        if len(given) != pointers + floats:
            raise ParameterError(f"{kernel.name} takes {pointers} arrays and {floats} floats; {len(given)} were given")
        addresses = []
        for name, size, x in zip(names, wanted, given, strict=False):
            if not hasattr(x, "data") or not hasattr(x.data, "ptr"):
                raise ParameterError(f"{kernel.name}: {name} is {type(x).__name__}; move it: trueno.to(x, {backend!r})")
            if x.dtype.itemsize != size:
                raise DtypeError(f"{kernel.name}: {name} is {x.dtype}; its elements have {size} bytes")
            addresses.append(x.data.ptr)
        launch(addresses, given[pointers:])

    return run


def run(
    kernel: Kernel, grid: Grid, arrays: Sequence[Any], numbers: Sequence[int] = (), floats: Sequence[float] = (), *,
    block: Grid | None = None, backend: str = "cuda",
) -> None:  # fmt: skip
    """Launch `kernel` once, as `prepared` does, and wait for it."""
    prepared(kernel, grid, numbers, block=block, backend=backend)(*arrays, *floats)
    _loaded(backend).synchronize()


def _loaded(name: str) -> Any:
    """The backend object; UnknownBackend or BackendUnavailable with reason and remedy."""
    trueno: Any = import_module("trueno")  # asked as users ask: nothing of a plugin needs the registry
    with trueno.use(name):
        return trueno.backends()[name.lower()].load()


def _groups(kernel: Kernel) -> tuple[int, int, int]:
    """How many pointers, whole numbers and floats a kernel takes; ParameterError if they stand in another order."""
    kinds = "".join("p" if isinstance(p.type, ptr) else "f" if _floating(p.type) else "n" for p in kernel.params)
    counts = kinds.count("p"), kinds.count("n"), kinds.count("f")
    if kinds != "p" * counts[0] + "n" * counts[1] + "f" * counts[2]:
        raise ParameterError(f"{kernel.name}: parameters must be pointers, then whole numbers, then floats")
    return counts


def _floating(kind: Any) -> bool:
    return isinstance(kind, Type) and kind.kind == "f" and kind.bits in (32, f64.bits)


def _three(size: Grid) -> tuple[int, int, int]:
    x, y, z = (*((size,) if isinstance(size, int) else size), 1, 1)[:3]
    return x, y, z
