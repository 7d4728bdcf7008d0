# mypy: disable-error-code="valid-type"
"""Launches that are prepared once: the driver's two structures are filled, and a call writes only what changes.

A call costs one `struct.pack_into` and one driver function with four arguments, all prepared in advance.
`cuLaunchKernelEx` takes the grid in a structure, and so has seven fewer arguments to convert each time than
`cuLaunchKernel`.  The GIL is released meanwhile: the driver waits if a queue is full, and it may wait for
a host function that needs the GIL.
"""

import ctypes
import math
import struct
from collections.abc import Callable, Collection, Sequence
from ctypes import byref, c_void_p
from typing import Any, Final, NamedTuple

from trueno.errors import KernelError

from trueno_cuda.device.hardware.contexts import Context
from trueno_cuda.device.hardware.driver import PROGRAMMATIC, Attribute, Config
from trueno_cuda.device.hardware.failures import ELSEWHERE
from trueno_cuda.device.protocol import Grid
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
OFTEN: Final = 32
"""Launches on the same arrays after which they go as a graph of one kernel."""
_CAPTURING: Final = 12030
"""The first CUDA whose driver keeps that in graphs."""


class Streams(NamedTuple):
    """Where a launch goes.

    current: gives the handle of the calling thread's stream.  unusual: empty as long as that is where launches go; else
    `ask` says where, or raises why there is no such stream.
    """

    current: Callable[[], int]
    unusual: Collection[Any]
    ask: Callable[[], int]


def prepared(
    context: Context,
    streams: Streams,
    kernel: Kernel,
    function: int,
    grid: Grid,
    numbers: Sequence[int],
    block: Grid,
    shared: int,
    single: Callable[[Callable[[], None]], Any] = lambda _: None,
) -> Callable[..., None]:
    """The launch of a loaded function; KernelError for a grid, block or parameters that do not fit the kernel.

    single: makes a recording of one launch, or gives None.
    """
    _check(kernel, grid, block)
    current, unusual, ask = streams
    leading, trailing = _formats(kernel, numbers)
    pack, mapped = struct.Struct(leading).pack_into, "s" in leading
    driver = context.driver
    bare, replay = driver.run, driver.replay

    def inside(*args: Any) -> int:
        with context:
            return int(bare(*args))

    run: Callable[..., int] = bare if context.alone else inside  # of several GPUs, this one first
    given_function = c_void_p.from_param(function)  # what `byref` makes, too: passed on as it is, a c_void_p is read

    def slot() -> list[Any]:
        """What one call at a time writes to, and the driver's views of it: a stream, parameters and their start."""
        room, start = _room(kernel, numbers)
        config = _config(grid, block, shared, kernel.early and driver.version >= _CAPTURING)
        at = ctypes.addressof(ctypes.c_char.from_buffer(room, start))
        values = (c_void_p * max(len(kernel.params), 1))(*[at + p.offset for p in kernel.params])
        return [0, room, start, config, byref(config), byref(values)]

    # A list's `pop` and `append` cannot be interrupted: a call that finds no slot makes one, so concurrent calls
    # each have their own, without a lock.
    idle = [slot()]
    take, give = idle.pop, idle.append

    def launch(pointers: Sequence[int | bytes], floats: Sequence[float] = ()) -> None:
        on = ask() if unusual else current()
        try:
            mine = take()
        except IndexError:
            mine = slot()
        before, room, start, config, given_config, given_values = mine
        try:
            pack(room, start, *pointers)
            if mapped:
                _check_maps(pointers)
            if floats or trailing:
                _write_floats(room, start, trailing, floats)
        except (struct.error, TypeError, ValueError, OverflowError) as error:
            raise _mismatch(kernel, pointers, floats, error) from None
        if on != before:
            config.stream = mine[0] = on
        code = run(given_config, given_function, given_values, None)
        if code:
            unwell(code, mine)
        give(mine)

    def unwell(code: int, mine: list[Any]) -> None:
        """Once more where nothing was run: in a new thread, or one in which another context is current."""
        if code in ELSEWHERE:
            context.forget()
            code = inside(mine[4], given_function, mine[5], None)
        if code:
            raise driver.failure(code, _described(kernel, grid, block, shared))

    def bound(pointers: Sequence[int | bytes]) -> Callable[[], None]:
        """The launch with these pointers: nothing is written any more, so threads may share it."""
        if trailing:
            raise KernelError(
                f"{kernel.name} takes floats, which change from launch to launch; its pointers alone cannot be fixed"
            )
        mine = slot()
        pack(mine[1], mine[2], *pointers)
        mine[3].stream = initial_stream = current()
        _, _, _, _, given_config, given_values = mine
        # A stream under capture cannot take a graph, and checking for that costs what the graph saves; the
        # legacy stream is never captured, and is this GPU's where there is no other one.
        left = OFTEN if not initial_stream and context.alone else 0
        graph: Any = None
        recorded: Any = None

        def again() -> None:
            nonlocal left, graph, recorded
            on = ask() if unusual else current()
            if on != initial_stream:
                launch(pointers)
                return
            if graph is not None and recorded.lock.acquire(False):  # a graph is launched by one thread at a time
                try:
                    if not replay(graph, None):
                        return
                finally:
                    recorded.lock.release()
            elif left:
                left -= 1
                if not left:
                    recorded = single(lambda: launch(pointers))
                    graph = recorded and c_void_p.from_param(recorded.graph)
            code = run(given_config, given_function, given_values, None)
            if code:
                unwell(code, mine)

        return again

    launch.bound = bound  # type: ignore[attr-defined]
    return launch


def _check(kernel: Kernel, grid: Grid, block: Grid) -> None:
    for what, size, most in (("grid", grid, _MOST), ("block", block, _MOST_THREADS)):
        if len(size) != 3 or any(not 1 <= g <= m for g, m in zip(size, most, strict=True)):
            raise KernelError(f"{kernel.name}: a {what} of {tuple(size)}; it goes from (1, 1, 1) to {most}")
    threads = block[0] * block[1] * block[2]
    if threads > (kernel.max_threads or 1024):
        raise KernelError(f"{kernel.name}: {threads} threads a block, and it takes {kernel.max_threads or 1024}")
    for axis, (blocks, cluster) in enumerate(zip(grid, kernel.cluster or (1, 1, 1), strict=True)):
        if blocks % cluster:
            raise KernelError(
                f"{kernel.name}: {blocks} blocks along {'xyz'[axis]} are not a whole number of clusters of {cluster}"
            )


def _formats(kernel: Kernel, numbers: Sequence[int]) -> tuple[str, tuple[tuple[int, str], ...]]:
    """The format of the pointers, which come first; place and format of each float.

    Tensor maps count as pointers: each is given as its 128 bytes.  The format is native, which takes Python half the
    time: sizes and places are the same, as CUDA's are those of the host's C.
    """
    pointers, at, order, wholes = "@", 0, 0, 0
    floats: list[tuple[int, str]] = []
    for p in kernel.params:
        before, order = order, 0
        if isinstance(p.type, (ptr, TensorMap)):
            gap = f"{p.offset - at}x" if p.offset > at else ""
            pointers += gap + ("Q" if isinstance(p.type, ptr) else f"{TENSOR_MAP}s")
            at = p.offset + p.bytes
        elif p.type.name not in _LETTERS:
            raise KernelError(f"{kernel.name}: the parameter {p.name} is a {p.type}, which no launch passes")
        elif p.type.integer:
            order, wholes = 1, wholes + 1
            if wholes > len(numbers):
                raise KernelError(f"{kernel.name}: the number {p.name} is missing; {len(numbers)} were given")
        else:
            order = 2
            floats.append((p.offset, f"<{_LETTERS[p.type.name]}"))
        if order < before:
            raise KernelError(f"{kernel.name}: its parameters must be pointers, then whole numbers, then floats")
    if wholes < len(numbers):
        raise KernelError(f"{kernel.name} takes {wholes} whole numbers, not {len(numbers)}")
    return pointers, tuple(floats)


def _room(kernel: Kernel, numbers: Sequence[int]) -> tuple[bytearray, int]:
    """The parameters' memory with the numbers in it, and where it begins: aligned as tensor maps want it.

    Python writes to a bytearray in half the time that it takes for an array of ctypes'.
    """
    room = bytearray(kernel.param_bytes + 64)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(room)) % 64
    left = iter(numbers)
    for p in kernel.params:
        if isinstance(p.type, Type) and p.type.integer:
            _write_number(room, start + p.offset, p.type, p.name, next(left), kernel)
    return room, start


def _write_number(memory: bytearray, offset: int, kind: Type, name: str, value: int, kernel: Kernel) -> None:
    try:
        struct.pack_into(f"<{_LETTERS[kind.name]}", memory, offset, value)
    except (struct.error, KeyError):
        raise KernelError(f"{kernel.name}: {name} is {value!r}, which is not a {kind}") from None


def _check_maps(pointers: Sequence[int | bytes]) -> None:
    """`struct` pads bytes that are too short, and cuts those that are too long."""
    if any(isinstance(p, bytes) and len(p) != TENSOR_MAP for p in pointers):
        raise ValueError(f"a tensor map is {TENSOR_MAP} bytes")


def _write_floats(memory: bytearray, start: int, places: tuple[tuple[int, str], ...], floats: Sequence[float]) -> None:
    for (offset, letter), value in zip(places, floats, strict=True):
        try:
            struct.pack_into(letter, memory, start + offset, value)
        except OverflowError:  # too large for the parameter's type, where NumPy has infinity
            struct.pack_into(letter, memory, start + offset, math.copysign(math.inf, value))


def _config(grid: Grid, block: Grid, shared: int, early: bool) -> Config:
    """The launch's structure.  early: whether the kernel, which waits by itself, may be started early."""
    config = Config()
    config.grid[:], config.block[:], config.shared = grid, block, shared
    if early:
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
