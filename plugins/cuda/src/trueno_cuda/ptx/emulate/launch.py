"""A module of PTX, and launching its entries on NumPy arrays."""

import math
import re
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

import numpy as np

from trueno_cuda.ptx.emulate.errors import LaunchError
from trueno_cuda.ptx.emulate.kernel import Kernel
from trueno_cuda.ptx.emulate.launch_state import MAX_STEPS, LaunchState
from trueno_cuda.ptx.emulate.machine import Machine
from trueno_cuda.ptx.emulate.report import Report
from trueno_cuda.ptx.emulate.scheduler import Scheduler
from trueno_cuda.ptx.emulate.shadow_global import GlobalShadow
from trueno_cuda.ptx.emulate.tensor_map import TensorMap
from trueno_cuda.ptx.emulate.traffic import SAMPLE, Traffic
from trueno_cuda.ptx.syntax.errors import no_other_errors
from trueno_cuda.ptx.syntax.limits import LIMITS
from trueno_cuda.ptx.syntax.parse import parse
from trueno_cuda.ptx.syntax.tree import Symbol, Variable
from trueno_cuda.ptx.syntax.types import TYPES, Array, constant

Size = int | Sequence[int]
LANES = 32768
"""Lanes that run together: enough to hide what a NumPy call costs, few enough that registers stay in the cache."""
MEMORY = 256 << 20  # bytes of shared and local memory (with shadow) of the blocks that run together
SHARED_LIMIT = LIMITS["shared"]
MOST_BLOCKS = (2**31 - 1, 65535, 65535)
"""Of a grid, on every architecture."""
BITS: Final = {"bf16": 16, "e4m3": 8, "e5m2": 8, "tf32": 32}


def three(size: Size, name: str) -> tuple[int, int, int]:
    parts = (size,) if isinstance(size, (int, np.integer)) else tuple(size)
    if not 1 <= len(parts) <= 3 or any(int(p) < 1 for p in parts):
        raise LaunchError(f"{name} must be one to three positive numbers, not {size!r}")
    return (*(int(p) for p in parts), *(1,) * (3 - len(parts)))  # type: ignore[return-value]


class Launch(LaunchState):
    """One launch: what its chunks share, and how they run."""

    def __init__(self, kernel: Kernel, grid: tuple[int, int, int], block: tuple[int, int, int]) -> None:
        super().__init__(kernel, grid, block)
        self.kernel = kernel
        self.global_shadow: GlobalShadow | None = None

    def run(self) -> None:
        """All chunks, one after the other; one that spins waits while later ones run."""
        kernel = self.kernel
        lanes = -(-self.threads // 32) * 32
        cost = self.shared_size * (2 + (self.races and lanes // 32)) + kernel.local_size * lanes
        count = max(1, min(LANES // lanes, MEMORY // max(cost, 1)))
        count = max(count // self.cluster_blocks, 1) * self.cluster_blocks
        total = len(self.linear)
        stalled: list[Scheduler] = []
        for first in range(0, total, count):
            machine = Machine(self, first, min(count, total - first), self.global_shadow)
            scheduler = Scheduler(kernel, machine)
            if not scheduler.run():
                stalled.append(scheduler)
            elif stalled:
                stalled = [one for one in stalled if not one.resume()]
        while stalled:
            before = self.changes, len(stalled)
            stalled = [one for one in stalled if not one.resume()]
            if (self.changes, len(stalled)) == before:
                break
        for scheduler in stalled:
            scheduler.deadlock()
            self.report.completed = False

    def count(self) -> None:
        """Instructions and flops, from how often each block ran."""
        report = self.report
        for block, lanes, warps in zip(self.kernel.flow.blocks, self.lane_counts, self.warp_counts, strict=True):
            if not lanes:
                continue
            for name, work in self.kernel.tally[block.start : block.end]:
                report.instructions[name] = report.instructions.get(name, 0) + lanes
                report.warp_instructions[name] = report.warp_instructions.get(name, 0) + warps
                for kind, each in work.items():
                    report.flops[kind] = report.flops.get(kind, 0) + int(each * lanes)
        report.steps = self.steps


class Entry:
    """What a caller may know of an entry.

    params: name, PTX type, bytes, alignment of each.  shared: static bytes.  reqntid, maxntid, cluster: as declared.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.name = kernel.name
        self.params = [(p.name, p.type.name, p.size, p.align) for p in kernel.params]
        self.shared = kernel.static_shared
        self.local = kernel.local_size
        directives = kernel.function.directives
        self.reqntid = directives.get("reqntid")
        self.maxntid = directives.get("maxntid")
        self.cluster = directives.get("reqnctapercluster")

    def __repr__(self) -> str:
        params = ", ".join(f".{kind} {name}" + (f"[{size}]" if size != TYPES[kind].bytes else "")
                           for name, kind, size, _ in self.params)  # fmt: skip
        return f"{self.name}({params}), {self.shared} bytes of shared memory"


class Module:
    """Parsed and compiled PTX.  version, target: as the text declares.  entries: by name."""

    def __init__(self, text: str) -> None:
        self.text = text
        program = parse(text)
        self.version = program.version
        self.target = program.target
        self.program = program
        self._kernels: dict[str, Kernel] = {}
        self.names = [f.name for f in program.functions.values() if f.entry]
        self.elements: dict[tuple[str, str], str] = {}  # of built kernels: entry and parameter, and what it points to
        self.memory = {id(v): _initial(v) for v in program.variables if v.space in ("global", "const")}
        for function in program.functions.values():
            self.memory |= {id(v): _initial(v) for v in function.variables if v.space in ("global", "const")}

    @property
    def entries(self) -> dict[str, Entry]:
        return {name: Entry(self.kernel(name)) for name in self.names}

    def kernel(self, name: str) -> Kernel:
        if name not in self.names:
            raise LaunchError(f"no entry {name!r}; the module has {', '.join(self.names) or 'none'}")
        if name not in self._kernels:
            function = self.program.functions[name]
            with no_other_errors(function.line, name):
                self._kernels[name] = Kernel(self.program, function)
        return self._kernels[name]

    def variable(self, name: str) -> Array:
        """The bytes of a module's `.global` or `.const` variable; write to them before a launch to set it."""
        for v in self.program.variables:
            if v.name == name and id(v) in self.memory:
                return self.memory[id(v)]
        raise LaunchError(f"no variable {name!r}")

    def launch(
        self,
        name: str,
        grid: Size,
        block: Size,
        args: Sequence[Any],
        shared: int = 0,
        cluster: Size | None = None,
        *,
        races: bool = True,
        global_races: bool = False,
        traffic: bool = True,
        sample: int | None = SAMPLE,
        max_steps: int = MAX_STEPS,
    ) -> Report:
        """Run an entry; arrays among `args` are device memory and are changed in place.

        The text has no types of elements: an array of any dtype is taken as bytes, unless the module was loaded from a
        built kernel, whose parameters have them.
        args: one a parameter: C-contiguous arrays for 64-bit pointers, numbers for scalars, `bytes` or a TensorMap for
        structs.  shared: bytes of dynamic shared memory.  races: check shared memory; global_races: and global memory.
        traffic: measure coalescing and bank conflicts, on at most `sample` warps a turn (None: all).
        Raises LaunchError for arguments that do not fit, StepLimit after `max_steps` instructions of groups.
        """
        kernel = self.kernel(name)
        launch = Launch(kernel, three(grid, "grid"), three(block, "block"))
        self._check_sizes(kernel, launch, shared, cluster)
        launch.races = races
        launch.max_steps = max_steps
        if traffic:
            launch.traffic = Traffic(launch.report, sample)
        for v in (*self.program.variables, *kernel.function.variables):
            if id(v) in self.memory:
                allocation = launch.arena.add(v.name, self.memory[id(v)], f".{v.space}")
                launch.addresses[id(v)] = allocation.start
                launch.arrays[v] = allocation._replace(item=v.type.bytes)
        self._bind(kernel, launch, args)
        self._resolve(launch)
        launch.arena.close()
        if global_races:
            launch.global_shadow = GlobalShadow(len(launch.arena.bytes))
        launch.order_blocks()
        start = time.perf_counter()
        try:
            with np.errstate(all="ignore"), no_other_errors(kernel.function.line, name):
                launch.run()
        finally:
            launch.report.seconds = time.perf_counter() - start
            launch.count()
            launch.arena.copy_out()
        return launch.report

    def _check_sizes(self, kernel: Kernel, launch: Launch, shared: int, cluster: Size | None) -> None:
        block, name = launch.block, kernel.name
        directives = kernel.function.directives
        if any(g > most for g, most in zip(launch.grid, MOST_BLOCKS, strict=True)):
            raise LaunchError(f"{name}: a grid of {launch.grid} blocks; {MOST_BLOCKS} is the most along x, y, z")
        if launch.threads > 1024 or block[2] > 64:
            raise LaunchError(f"{name}: block {block} has more than 1024 threads (or 64 in z)")
        wanted = directives.get("reqntid")
        if wanted is not None and (*wanted, 1, 1)[:3] != block:
            raise LaunchError(f"{name}: block is {block}, but .reqntid says {wanted}")
        most = directives.get("maxntid")
        if most is not None and launch.threads > math.prod(most):
            raise LaunchError(f"{name}: block {block} has {launch.threads} threads, .maxntid allows {math.prod(most)}")
        declared = directives.get("reqnctapercluster")
        size = three(cluster if cluster is not None else declared or 1, "cluster")
        if declared and size != (*declared, 1, 1)[:3]:
            raise LaunchError(f"{name}: cluster is {size}, but .reqnctapercluster says {declared}")
        if any(g % c for g, c in zip(launch.grid, size, strict=True)):
            raise LaunchError(f"{name}: grid {launch.grid} is not a multiple of cluster {size}")
        launch.cluster, launch.cluster_blocks = size, math.prod(size)
        if shared < 0 or kernel.shared_before_dynamic + shared > SHARED_LIMIT:
            raise LaunchError(f"{name}: {kernel.static_shared} static and {shared} dynamic bytes of shared memory; "
                              f"a block has {SHARED_LIMIT}")  # fmt: skip
        launch.dynamic_shared = shared
        used = kernel.shared_before_dynamic + shared if shared else kernel.static_shared
        launch.shared_size = -(-used // 16) * 16

    def _bind(self, kernel: Kernel, launch: Launch, args: Sequence[Any]) -> None:
        if isinstance(args, Mapping) or len(args) != len(kernel.params):
            words = ", ".join(p.name for p in kernel.params)
            raise LaunchError(f"{kernel.name} takes {len(kernel.params)} arguments ({words}), {len(args)} were given")
        arrays = [(p, v) for p, v in zip(kernel.params, args, strict=True) if isinstance(v, np.ndarray)]
        for param, value in sorted(arrays, key=lambda one: -one[1].nbytes):  # what lies inside another comes after it
            self._argument(kernel, launch, param, value)
        for param, value in zip(kernel.params, args, strict=True):
            data = self._argument(kernel, launch, param, value)
            at = kernel.offsets[id(param)]
            launch.param_bytes[at : at + len(data)] = np.frombuffer(data, np.uint8)

    def _argument(self, kernel: Kernel, launch: Launch, param: Variable, value: Any) -> bytes:
        kind = param.type
        wrong = f"{kernel.name}: parameter {param.name} is .{kind.name}"
        if isinstance(value, np.ndarray) and value.ndim == 0 and not (kind.bits == 64 and not param.array):
            value = value[()]
        if isinstance(value, TensorMap):
            if param.size != 128:
                raise LaunchError(f"{wrong} of {param.size} bytes; a tensor map needs 128")
            launch.arena.add(param.name, value.array, "tensor map")
            launch.tensor_maps.append(value)
            return value.encode(len(launch.tensor_maps) - 1)
        if param.array:
            data = value.tobytes() if isinstance(value, (np.void, np.ndarray)) else value
            if not isinstance(data, bytes) or len(data) != param.size:
                raise LaunchError(f"{wrong}[{param.size}]: give exactly {param.size} bytes, not {type(value).__name__}")
            return data
        if isinstance(value, np.ndarray):
            if kind.bits != 64 or kind.kind == "f":
                raise LaunchError(f"{wrong}, a number; an array was given (only 64-bit integers hold pointers)")
            if not value.flags.c_contiguous or value.dtype.hasobject:
                raise LaunchError(f"{wrong}: the array must be C-contiguous numbers (shape {value.shape}, "
                                  f"strides {value.strides}, {value.dtype})")  # fmt: skip
            name = param.name.removeprefix("arg_")
            element = self.elements.get((kernel.name, name))
            if element is not None and not holds(value.dtype, element):
                raise LaunchError(f"{kernel.name}: {name} is {value.dtype}, but its elements are {element}")
            words = f"{value.dtype}{list(value.shape)}"
            allocation = launch.arrays[param] = launch.arena.add(name, value, words)
            return allocation.start.to_bytes(8, "little")
        return scalar(wrong, param, value)

    def _resolve(self, launch: Launch) -> None:
        """Addresses in the initial values of global variables are known only now."""
        for v in self.program.variables:
            for k, one in enumerate(v.init):
                if isinstance(one, Symbol) and one.variable is not None:
                    address = launch.addresses[id(one.variable)] + one.offset
                    self.memory[id(v)].view(np.uint64)[k] = address % (1 << 64)


def scalar(wrong: str, param: Variable, value: Any) -> bytes:
    """A number as a parameter's bytes; raises LaunchError where its kind or range does not fit."""
    kind = param.type
    if isinstance(value, np.generic) and value.dtype.kind in "fiub" and not isinstance(value, (bool, np.bool_)):
        same_kind = {"f": "f", "i": "su", "u": "su"}[value.dtype.kind] if value.dtype.kind != "b" else ""
        fits = kind.kind in same_kind or kind.kind == "b" or (value.dtype.kind != "f" and kind.kind in "us")
        if not fits or (value.dtype.kind == "f" and value.dtype.itemsize != kind.bytes):
            raise LaunchError(f"{wrong}; {value!r} is {value.dtype}")
        if value.dtype.kind == "f":
            return value.tobytes()
        value = int(value)
    elif isinstance(value, np.generic) and value.dtype.itemsize == kind.bytes == 2:
        return value.tobytes()  # bfloat16 of a package that adds it to NumPy
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise LaunchError(f"{wrong}; {type(value).__name__} was given")
    if isinstance(value, float):
        if kind.dtype.kind == "f":
            with np.errstate(over="ignore"):
                return constant(value, kind).tobytes()
        raise LaunchError(f"{wrong}; the float {value} was given (give a NumPy scalar of its width)")
    if kind.dtype.kind == "f":
        return constant(float(value), kind).tobytes()
    if not -(1 << (kind.bits - 1)) <= value < 1 << kind.bits:
        raise LaunchError(f"{wrong}; {value} does not fit")
    return constant(value, kind).tobytes()


def _initial(v: Variable) -> Array:
    """A module variable's bytes."""
    data = np.zeros(-(-max(v.size, 1) // 16) * 16, np.uint8)[: v.size]
    element = data.view(v.type.dtype) if v.size % v.type.bytes == 0 else data
    for k, one in enumerate(v.init):
        if not isinstance(one, Symbol):
            element[k] = constant(one, v.type)[0]
    return data


_VARIABLES = re.compile(r"(?:^|[;{}/])\s*(?:\.(?:visible|extern|weak|common)\s+)*\.global\b", re.MULTILINE)
"""The declaration of one, unlike a pointer among parameters, which is `.param .u64 .ptr .global`."""


@lru_cache(maxsize=64)
def _cached(text: str) -> Module:
    return Module(text)


def holds(dtype: np.dtype[Any], element: str) -> bool:
    """Whether NumPy's type is the builder's; of those that NumPy lacks, as bf16, whether it has as many bits."""
    number = re.fullmatch(r"([usf])(8|16|32|64)", element)
    if number is not None:
        return dtype == np.dtype(f"{number[1].replace('s', 'i')}{int(number[2]) // 8}")
    return dtype.itemsize * 8 == BITS.get(element, dtype.itemsize * 8)


class Built(Protocol):
    """A kernel as `build` gives it: its text, and the parameters with their types."""

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def params(self) -> Sequence[Any]: ...


def load(text: str | Built) -> Module:
    """Parse PTX text; raises PtxError or UnknownInstruction naming line and text.

    text: or the built kernel itself; the dtypes of arrays are checked then, of which a text knows nothing.

    The same text gives the same compiled module, unless it has `.global` variables: those are a module's own.
    """
    if not isinstance(text, str) and isinstance(getattr(text, "text", None), str):
        module = Module(text.text)
        pointed = {p.name: getattr(p.type, "element", None) for p in text.params}
        module.elements = {(text.name, name): str(element) for name, element in pointed.items() if element is not None}
        return module
    if not isinstance(text, str):
        raise LaunchError(f"load wants PTX text, not {type(text).__name__}")
    return Module(text) if _VARIABLES.search(text) else _cached(text)
