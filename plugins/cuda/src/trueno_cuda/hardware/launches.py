# mypy: disable-error-code="valid-type"
"""Launches that are prepared once: the driver's two structures are filled, and a call writes what changes.

A call costs one `struct.pack_into` and one function of the driver with four arguments, all made beforehand.
`cuLaunchKernelEx` takes the grid in a structure, and so needs seven arguments less to be converted each time than
`cuLaunchKernel` does.
"""

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from ctypes import byref, c_void_p
from threading import Lock
from typing import Any, Final

from trueno.errors import KernelError

from trueno_cuda.device import Grid
from trueno_cuda.hardware.contexts import Context
from trueno_cuda.hardware.driver import PROGRAMMATIC, Attribute, Config
from trueno_cuda.hardware.failures import PASSING
from trueno_cuda.ptx import Kernel, ptr
from trueno_cuda.ptx.types import TensorMap, Type

_LETTERS: Final = {
    "u8": "B", "s8": "b", "u16": "H", "s16": "h", "u32": "I", "s32": "i", "u64": "Q", "s64": "q",
    "f16": "e", "f32": "f", "f64": "d",
}  # fmt: skip
_MOST: Final = (2**31 - 1, 65535, 65535)
"""Blocks of a grid along x, y, z."""
_MOST_THREADS: Final = (1024, 1024, 64)
_STREAM: Final = Config.stream.offset
_OVERLAPS: Final = "griddepcontrol.wait"
"""A kernel with this instruction waits by itself for what came before, and may be started early."""


def prepared(
    context: Context,
    stream: Callable[[], int],
    kernel: Kernel,
    function: int,
    grid: Grid,
    numbers: Sequence[int],
    block: Grid,
    shared: int,
) -> Callable[..., None]:
    """The launch of a loaded function; KernelError for a grid, block or parameters that do not fit the kernel.

    stream: gives the handle of the calling thread's stream, or raises why there is none.
    """
    _check(kernel, grid, block)
    room, leading, floats = _block(kernel, numbers)
    pack = struct.Struct(leading).pack_into
    first_float, letters = floats or (0, "<")
    pack_floats, takes_floats = struct.Struct(letters).pack_into, letters != "<"
    values = (c_void_p * max(len(kernel.params), 1))(*[ctypes.addressof(room) + p.offset for p in kernel.params])
    config, kept = _config(kernel, grid, block, shared)
    write_stream = struct.Struct("P").pack_into
    given_config, given_function, given_values = byref(config), c_void_p(function), byref(values)
    driver, alone, lock = context.driver, context.alone, Lock()
    run = driver.run

    def launch(pointers: Sequence[int | bytes], floats: Sequence[float] = ()) -> None:
        on = stream()
        with lock:
            try:
                pack(room, 0, *pointers)
                if floats or takes_floats:
                    pack_floats(room, first_float, *floats)
            except OverflowError:  # too large for the parameter's type, where NumPy has infinity
                pack_floats(room, first_float, *_rounded(letters, floats))
            except (struct.error, TypeError) as error:
                raise _mismatch(kernel, pointers, floats, error) from None
            write_stream(config, _STREAM, on)
            if alone:
                code = run(given_config, given_function, given_values, None)
                if code in PASSING:  # a new thread, or one in which somebody else's context is current
                    context.enter()
                    code = run(given_config, given_function, given_values, None)
            else:
                with context:
                    code = run(given_config, given_function, given_values, None)
        if code:
            raise driver.failure(code, _described(kernel, grid, block, shared))

    launch.keeps = (room, values, config, kept)  # type: ignore[attr-defined]  # what the driver's structures point to
    return launch


def _check(kernel: Kernel, grid: Grid, block: Grid) -> None:
    for what, given, most in (("grid", grid, _MOST), ("block", block, _MOST_THREADS)):
        if len(given) != 3 or any(not 1 <= g <= m for g, m in zip(given, most, strict=True)):
            raise KernelError(f"{kernel.name}: a {what} of {tuple(given)}; it goes from (1, 1, 1) to {most}")
    threads = block[0] * block[1] * block[2]
    if threads > (kernel.max_threads or 1024):
        raise KernelError(f"{kernel.name}: {threads} threads a block, and it takes {kernel.max_threads or 1024}")
    for axis, (blocks, cluster) in enumerate(zip(grid, kernel.cluster or (1, 1, 1), strict=True)):
        if blocks % cluster:
            raise KernelError(
                f"{kernel.name}: {blocks} blocks along {'xyz'[axis]} are no whole number of clusters of {cluster}"
            )


def _block(kernel: Kernel, numbers: Sequence[int]) -> tuple[Any, str, tuple[int, str] | None]:
    """The parameters' memory with the numbers in it; the format of the pointers; where floats begin, and their format.

    Tensor maps count as pointers: each is given as its 128 bytes.
    """
    room = (ctypes.c_uint64 * (kernel.param_bytes // 8 + 9))()
    start = -ctypes.addressof(room) % 64
    memory = (ctypes.c_char * (kernel.param_bytes or 1)).from_buffer(room, start)
    leading, floats, at, first = "<", "<", 0, 0
    left = list(numbers)
    order = 0
    for p in kernel.params:
        if isinstance(p.type, (ptr, TensorMap)):
            rank, letter = 0, "Q" if isinstance(p.type, ptr) else "128s"
            leading += f"{p.offset - at}x{letter}"
            at = p.offset + p.bytes
        elif p.type.kind in "us":
            rank = 1
            if not left:
                raise KernelError(f"{kernel.name}: the number {p.name} is missing; {len(numbers)} were given")
            _write_number(memory, p.offset, p.type, p.name, left.pop(0), kernel)
        else:
            rank = 2
            if p.type.name not in _LETTERS:
                raise KernelError(f"{kernel.name}: the parameter {p.name} is a {p.type}, which no launch passes")
            if floats == "<":
                first = at_float = p.offset
            floats += f"{p.offset - at_float}x{_LETTERS[p.type.name]}"
            at_float = p.offset + p.bytes
        if rank < order:
            raise KernelError(f"{kernel.name}: its parameters must be pointers, then whole numbers, then floats")
        order = rank
    if left:
        raise KernelError(f"{kernel.name} takes {len(numbers) - len(left)} whole numbers, not {len(numbers)}")
    return memory, leading, None if floats == "<" else (first, floats)


def _write_number(memory: Any, offset: int, kind: Type, name: str, value: int, kernel: Kernel) -> None:
    try:
        struct.pack_into(f"<{_LETTERS[kind.name]}", memory, offset, value)
    except (struct.error, KeyError):
        raise KernelError(f"{kernel.name}: {name} is {value!r}, which is no {kind}") from None


def _rounded(letters: str, floats: Sequence[float]) -> list[float]:
    """Floats as parameters of these types hold them: those that are too large are infinite."""
    kept = []
    for letter, value in zip([c for c in letters if c in "efd"], floats, strict=True):
        try:
            struct.pack(f"<{letter}", value)
            kept.append(value)
        except OverflowError:
            kept.append(math.copysign(math.inf, value))
    return kept


def _config(kernel: Kernel, grid: Grid, block: Grid, shared: int) -> tuple[Config, Any]:
    """The launch's structure, and the attributes that it points to."""
    config = Config()
    config.grid[:], config.block[:], config.shared = grid, block, shared
    if _OVERLAPS not in kernel.text:
        return config, None
    attributes = (Attribute * 1)()
    attributes[0].id = PROGRAMMATIC
    attributes[0].value[0] = 1
    config.attributes, config.count = ctypes.addressof(attributes), 1
    return config, attributes


def _mismatch(kernel: Kernel, pointers: Sequence[Any], floats: Sequence[Any], error: Exception) -> KernelError:
    wanted = sum(isinstance(p.type, (ptr, TensorMap)) for p in kernel.params)
    wanted_floats = sum(isinstance(p.type, Type) and p.type.kind == "f" for p in kernel.params)
    if len(pointers) != wanted:
        return KernelError(f"{kernel.name} takes {wanted} pointers, not {len(pointers)}")
    if len(floats) != wanted_floats:
        return KernelError(f"{kernel.name} takes {wanted_floats} floats, not {len(floats)}")
    return KernelError(
        f"{kernel.name}: {tuple(pointers)} and {tuple(floats)} are not its pointers and floats ({error})"
    )


def _described(kernel: Kernel, grid: Grid, block: Grid, shared: int) -> str:
    return (
        f"cuda: {kernel.name} (grid {'x'.join(map(str, grid))}, block {'x'.join(map(str, block))}, "
        f"{shared} bytes of dynamic shared memory)"
    )
