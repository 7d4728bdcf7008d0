"""Run your own kernel: `run` to try it, `prepared` to launch it often."""

from collections.abc import Callable, Sequence
from importlib import import_module
from numbers import Integral
from typing import Any

from trueno.errors import BackendUnavailable, DtypeError, KernelError, ParameterError

from trueno_cuda.device.emulated import runs
from trueno_cuda.ptx import Kernel, f64, ptr
from trueno_cuda.ptx.types import Type

Grid = int | tuple[int, ...]
DTYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
    **{f"u{n}": f"uint{n}" for n in (8, 16, 32, 64)}, **{f"s{n}": f"int{n}" for n in (8, 16, 32, 64)},
}  # fmt: skip
"""NumPy's names of the builder's types; for other types only the size is checked."""

EMULATED = 'backend="cuda_emulated"'
"""How a program names the emulator."""


def prepared(
    kernel: Kernel, grid: Grid, numbers: Sequence[int] = (), *, block: Grid | None = None, backend: str = "cuda"
) -> Callable[..., None]:
    """A launch of `kernel` with all fixed but arrays and floats: `launch(*arrays, *floats)`, as often as you like.

    kernel: the result of `build`; its signature has pointers, then integers, then floats.  grid: blocks, x y z.
    block: threads of a block, if the kernel leaves them open with max_threads=.  backend: `cuda`, or
    `cuda_emulated`, which needs no GPU.
    The launch checks the dtypes of arrays, not their sizes; it runs on the current stream, asynchronously.
    BackendUnavailable without a GPU; KernelError for what the driver refuses, with its log.
    """
    if not isinstance(kernel, Kernel):
        raise ParameterError(f"prepared: {getattr(kernel, 'name', kernel)!r} is not built; give kernel.build(...)")
    pointers, wholes, floats = _groups(kernel)
    if not isinstance(numbers, Sequence) or isinstance(numbers, str):
        raise ParameterError(f"{kernel.name}: numbers is {numbers!r}; give a tuple of {_count(wholes, 'whole number')}")
    if len(numbers) != wholes:
        names = [p.name for p in kernel.params[pointers : pointers + wholes]]
        missing = f"; {names[len(numbers)]} is missing" if len(numbers) < wholes else ""
        raise ParameterError(
            f"{kernel.name} takes {_count(wholes, 'whole number')}, and got {len(numbers)}{missing}; "
            "floats go with the arrays"
        )
    for p, value in zip(kernel.params[pointers:], numbers, strict=False):
        _check_number(kernel, p, value)
    if block is not None and kernel.threads is not None and _three(kernel, "block", block) != kernel.threads:
        raise ParameterError(f"{kernel.name}: block is {block}, but the kernel is built for {kernel.threads} threads")
    if block is None and kernel.threads is None:
        raise ParameterError(
            f"{kernel.name} leaves its threads open: give block=, the threads of a block, up to {kernel.max_threads}"
        )
    device = opened(backend)
    if getattr(device, "software", False) and not runs(kernel.arch, device.arch):
        raise KernelError(
            f"{kernel.name} is built for {kernel.arch}, and {backend} plays {device.arch}: say "
            f'build(arch="{device.arch}"), or set TRUENO_CUDA_EMULATED_ARCH={kernel.arch}'
        )
    threads = None if block is None else _three(kernel, "block", block)
    launch = device.prepare(kernel, _three(kernel, "grid", grid), tuple(numbers), threads)
    arrays = [(p.name, p.type.element) for p in kernel.params if isinstance(p.type, ptr)]

    def run(*given: Any) -> None:
        if len(given) != pointers + floats:
            wanted = f"{_count(pointers, 'array')} and {_count(floats, 'float')}"
            names = [p.name for p in kernel.params if not _whole(p.type)]
            missing = f"; {names[len(given)]} is missing" if len(given) < len(names) else ""
            raise ParameterError(f"{kernel.name} takes {wanted}, and got {len(given)}{missing}")
        addresses = []
        for (name, element), x in zip(arrays, given, strict=False):
            if not hasattr(x, "dtype") or not hasattr(getattr(x, "data", None), "ptr"):
                raise ParameterError(f"{kernel.name}: {name} is {type(x).__name__}; move it: trueno.to(x, {backend!r})")
            if x.dtype.name != DTYPES.get(element.name, x.dtype.name) or x.dtype.itemsize != element.bytes:
                raise DtypeError(f"{kernel.name}: {name} is {x.dtype}, but its elements are {element}")
            addresses.append(x.data.ptr)
        try:
            values = [float(v) for v in given[pointers:]]
        except (TypeError, ValueError):
            raise ParameterError(f"{kernel.name}: {given[pointers:]!r} are not the floats that it takes") from None
        launch(addresses, values)

    return run


def run(
    kernel: Kernel, grid: Grid, arrays: Sequence[Any], numbers: Sequence[int] = (), floats: Sequence[float] = (), *,
    block: Grid | None = None, backend: str = "cuda",
) -> None:  # fmt: skip
    """Launch `kernel` once, as `prepared` does, and wait for it."""
    prepared(kernel, grid, numbers, block=block, backend=backend)(*arrays, *floats)
    _loaded(backend, EMULATED).synchronize()


def opened(backend: str, option: str = EMULATED) -> Any:
    """The device of a backend; ParameterError for a backend without one.

    option: how the caller's user names the emulator, where there is no GPU.
    """
    device = getattr(_loaded(backend, option), "device", None)
    if device is None or not hasattr(device, "prepare"):
        raise ParameterError(f"{backend} runs no PTX; name cuda or cuda_emulated")
    return device


def _loaded(name: str, option: str) -> Any:
    """The backend object; UnknownBackend or BackendUnavailable with reason and remedy."""
    trueno: Any = import_module("trueno")  # through the public API: a plugin must not use the registry
    try:
        return trueno.backends()[trueno.device(name).name].load()
    except BackendUnavailable as error:
        if name.lower() != "cuda":
            raise
        raise BackendUnavailable(f"{error}; without a GPU: {option}") from None


def _groups(kernel: Kernel) -> tuple[int, int, int]:
    """How many pointers, integers and floats a kernel takes; ParameterError if they are in another order."""
    kinds = "".join("p" if isinstance(p.type, ptr) else "f" if _floating(p.type) else "n" for p in kernel.params)
    for p, kind, before in zip(kernel.params, kinds, ("", *kinds), strict=False):
        if before and "pnf".index(kind) < "pnf".index(before):
            raise ParameterError(
                f"{kernel.name}: {p.name} ({p.type}) stands too late in the signature: a launch wants pointers, then "
                "whole numbers, then floats"
            )
    return kinds.count("p"), kinds.count("n"), kinds.count("f")


def _whole(kind: Any) -> bool:
    return not isinstance(kind, ptr) and not _floating(kind)


def _floating(kind: Any) -> bool:
    return isinstance(kind, Type) and kind.kind == "f" and kind.bits in (32, f64.bits)


def _three(kernel: Kernel, what: str, size: Grid) -> tuple[int, int, int]:
    parts = size if isinstance(size, tuple) else (size,)
    if not 1 <= len(parts) <= 3 or not all(isinstance(n, int) and n > 0 for n in parts):
        raise ParameterError(f"{kernel.name}: {what} is {size!r}; give one to three positive ints")
    x, y, z = (*parts, 1, 1)[:3]
    return x, y, z


def _check_number(kernel: Kernel, p: Any, value: Any) -> None:
    bits, signed = p.type.bits, p.type.kind == "s"
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if not isinstance(value, Integral) or isinstance(value, bool) or not low <= int(value) <= high:
        raise ParameterError(f"{kernel.name}: {p.name} is {value!r}; it must be a whole number of {p.type}")


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
