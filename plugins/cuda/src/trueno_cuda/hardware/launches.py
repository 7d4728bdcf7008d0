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
from typing import Any, Final

from trueno.errors import KernelError

from trueno_cuda.device import Grid
from trueno_cuda.hardware.contexts import Context
from trueno_cuda.hardware.driver import PROGRAMMATIC, Attribute, Config
from trueno_cuda.hardware.failures import ELSEWHERE
from trueno_cuda.ptx import Kernel, ptr
from trueno_cuda.ptx.types import TensorMap, Type

_LETTERS: Final = {
    "u8": "B", "s8": "b", "u16": "H", "s16": "h", "u32": "I", "s32": "i", "u64": "Q", "s64": "q",
    "f16": "e", "f32": "f", "f64": "d",
}  # fmt: skip
_MOST: Final = (2**31 - 1, 65535, 65535)
"""Blocks of a grid along x, y, z."""
_MOST_THREADS: Final = (1024, 1024, 64)
TENSOR_MAP: Final = 128
"""Bytes of a tensor map."""
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
    room, leading, trailing = _block(kernel, numbers)
    pack, mapped = struct.Struct(leading).pack_into, "s" in leading
    driver, given_function = context.driver, c_void_p(function)
    run = driver.run
    # What a call writes to, and the driver's views of it.  A list's `pop` and `append` cannot be interrupted: whoever
    # finds none makes one, so calls at once have each their own, without a lock.
    idle = [_Slot(kernel, room, _config(kernel, grid, block, shared))]

    def launch(pointers: Sequence[int | bytes], floats: Sequence[float] = ()) -> None:
        on = stream()
        try:
            slot = idle.pop()
        except IndexError:
            slot = _Slot(kernel, _block(kernel, numbers)[0], _config(kernel, grid, block, shared))
        room = slot.room
        try:
            pack(room, 0, *pointers)
            if mapped:
                _check_maps(pointers)
            if floats or trailing:
                _write_floats(room, trailing, floats)
        except (struct.error, TypeError, ValueError, OverflowError) as error:
            raise _mismatch(kernel, pointers, floats, error) from None
        if on != slot.stream:
            slot.config.stream = slot.stream = on
        code = run(slot.given_config, given_function, slot.given_values, None)
        if code in ELSEWHERE:  # a new thread, or one in which another context is current; nothing was run
            context.forget()
            with context:
                code = run(slot.given_config, given_function, slot.given_values, None)
        idle.append(slot)
        if code:
            raise driver.failure(code, _described(kernel, grid, block, shared))

    return launch


class _Slot:
    """The driver's two structures for one call at a time.  room: the parameters.  stream: what the second one says."""

    __slots__ = ("config", "given_config", "given_values", "room", "stream")

    def __init__(self, kernel: Kernel, room: Any, config: Config) -> None:
        values = (c_void_p * max(len(kernel.params), 1))(*[ctypes.addressof(room) + p.offset for p in kernel.params])
        self.room, self.config, self.stream = room, config, 0
        self.given_config, self.given_values = byref(config), byref(values)


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


def _block(kernel: Kernel, numbers: Sequence[int]) -> tuple[Any, str, tuple[tuple[int, str], ...]]:
    """The parameters' memory with the numbers in it; the format of the pointers; place and format of each float.

    Tensor maps count as pointers: each is given as its 128 bytes.
    """
    room = (ctypes.c_uint64 * (kernel.param_bytes // 8 + 9))()
    start = -ctypes.addressof(room) % 64
    memory = (ctypes.c_char * (kernel.param_bytes or 1)).from_buffer(room, start)
    pointers, at, order = "<", 0, 0
    floats: list[tuple[int, str]] = []
    left = list(numbers)
    for p in kernel.params:
        before, order = order, 0
        if isinstance(p.type, (ptr, TensorMap)):
            pointers += f"{p.offset - at}x{'Q' if isinstance(p.type, ptr) else '128s'}"
            at = p.offset + p.bytes
        elif p.type.name not in _LETTERS:
            raise KernelError(f"{kernel.name}: the parameter {p.name} is a {p.type}, which no launch passes")
        elif p.type.integer:
            order = 1
            if not left:
                raise KernelError(f"{kernel.name}: the number {p.name} is missing; {len(numbers)} were given")
            _write_number(memory, p.offset, p.type, p.name, left.pop(0), kernel)
        else:
            order = 2
            floats.append((p.offset, f"<{_LETTERS[p.type.name]}"))
        if order < before:
            raise KernelError(f"{kernel.name}: its parameters must be pointers, then whole numbers, then floats")
    if left:
        raise KernelError(f"{kernel.name} takes {len(numbers) - len(left)} whole numbers, not {len(numbers)}")
    return memory, pointers, tuple(floats)


def _write_number(memory: Any, offset: int, kind: Type, name: str, value: int, kernel: Kernel) -> None:
    try:
        struct.pack_into(f"<{_LETTERS[kind.name]}", memory, offset, value)
    except (struct.error, KeyError):
        raise KernelError(f"{kernel.name}: {name} is {value!r}, which is no {kind}") from None


def _check_maps(pointers: Sequence[int | bytes]) -> None:
    """`struct` pads bytes that are too short, and cuts those that are too long."""
    if any(isinstance(p, bytes) and len(p) != TENSOR_MAP for p in pointers):
        raise ValueError(f"a tensor map is {TENSOR_MAP} bytes")


def _write_floats(memory: Any, places: tuple[tuple[int, str], ...], floats: Sequence[float]) -> None:
    for (offset, letter), value in zip(places, floats, strict=True):
        try:
            struct.pack_into(letter, memory, offset, value)
        except OverflowError:  # too large for the parameter's type, where NumPy has infinity
            struct.pack_into(letter, memory, offset, math.copysign(math.inf, value))


def _config(kernel: Kernel, grid: Grid, block: Grid, shared: int) -> Config:
    """The launch's structure."""
    config = Config()
    config.grid[:], config.block[:], config.shared = grid, block, shared
    if _OVERLAPS in kernel.text:
        attributes = (Attribute * 1)()
        attributes[0].id, attributes[0].value[0] = PROGRAMMATIC, 1
        config.attributes, config.count = ctypes.addressof(attributes), 1
        config.kept = attributes  # the structure has but the address
    return config


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
