"""From an op's row program to a kernel: lower, print, choose a schedule for the shape, launch.

Shaders depend on the program, on the schedule and on which arrays share a buffer; never on a size.  So a kernel has a
few, each printed when a call first needs it, and remembers for the shapes it saw what to launch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, prod
from struct import pack
from typing import TYPE_CHECKING, Any

from trueno.backend import Call, Rates, Reject, extents
from trueno.errors import KernelError

from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.memory import Buffer, View
from trueno_wgpu.rows.multi_pass import AHEAD, BLOCK
from trueno_wgpu.rows.printer import ITEMS, THREADS, Printed
from trueno_wgpu.rows.source import is_flat, planned, shaders, title

if TYPE_CHECKING:
    from trueno_wgpu.device.gpu import Gpu

RATES = Rates(launch_s=1e-4, flops=3e12, bytes=3e11, link_s=6e-5, link_bytes=8e9)
"""Of a discrete GPU, mostly waiting for one: a fence is 50 to 90 µs, and staging copies 8 GB a second."""
BUFFERS = 8
"""Storage buffers of a shader that every device has."""
INF, NAN = float("inf"), float("nan")
NARROW, MEDIUM = 64, 1024
"""Elements of a row up to which 8 lanes take it, or 64; beyond, 256."""
LONG, FEW, VERY_LONG = 32_768, 128, 1 << 20
"""Rows are cut in chunks from LONG elements on where there are FEW of them, from VERY_LONG on always."""
CHUNK, CHUNKS = 4096, 1024
"""Elements of a chunk at least, a multiple of 256; chunks of a row at most, so that joining them stays cheap."""
REMEMBERED = 64
"""Shapes whose launches a kernel keeps."""


def refusal(call: Call) -> Reject | None:
    """Why no call of this key can be taken; None if all can."""
    program = call.op.program(call.layout, **dict(call.static))
    if any((n := program.nodes[o]).type == "bool" or (n.type == "index" and n.space == "e") for o in program.outputs):
        return Reject("unsupported_op", f"{call.op.name} gives truth values, or the position of every element")
    read = {n.value for n in program.nodes if n.kind == "leaf"}
    bound = len(read) + len(program.outputs) + bool(program.folds) + call.guarded
    if bound > BUFFERS:
        return Reject("unsupported_op", f"{call.op.name} needs {bound} buffers; a shader binds {BUFFERS}")
    return None


@dataclass(frozen=True, slots=True)
class Launch:
    """One dispatch of a call.

    ranges: offset and bytes of what is bound of each slot's buffer, None for all of it; () where all are bound whole.
    """

    printed: Printed
    ranges: tuple[tuple[int, int] | None, ...]
    uniforms: bytes
    groups: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Launches:
    """All dispatches of a call, and the bytes of their scratch buffer."""

    each: tuple[Launch, ...]
    scratch: int


class RowKernel:
    """Callable as the protocol's kernels are."""

    def __init__(self, gpu: "Gpu", call: Call) -> None:
        self.gpu, self.guarded, self.rank = gpu, call.guarded, call.rank
        self.name, self.title = call.op.name, title(call.op, call.layout)
        self.plan = planned(call.op.program(call.layout, **dict(call.static)))
        self.program = self.plan.program
        self.kinds = tuple(kind for _, kind in self.program.operands)
        nodes = self.program.nodes
        self.out_spaces = tuple("e" if nodes[o].space == "e" else "r" for o in self.program.outputs)
        self.params = len(self.program.params)
        self.flat = is_flat(self.program)
        self._launches: Callable[..., Launches | None] = lru_cache(REMEMBERED)(self._plan)
        self._shaders = lru_cache(None)(self._print)

    def __call__(self, *given: Any) -> int:
        operands = given[: len(self.kinds)]
        params = given[len(self.kinds) : len(self.kinds) + self.params]
        arrays = (*operands, *given[len(self.kinds) + self.params :])
        first: dict[Buffer, int] = {}
        alias = tuple([first.setdefault(a.buffer, i) for i, a in enumerate(arrays)])
        launches = self._launches(tuple([a.shape for a in arrays]), alias)
        if launches is None:
            return -1
        slots: list[Buffer | None] = [a.buffer for a in arrays]
        slots.append(self.gpu.alloc(launches.scratch) if launches.scratch else None)
        slots.append(self.gpu.status if self.guarded else None)
        tail = pack(f"{self.params}f", *map(_float32, params)) if params else b""
        for launch in launches.each:
            bound: list[Any] = [slots[s] for s in launch.printed.slots]
            if launch.ranges:
                bound = [b if r is None else View(b, *r) for b, r in zip(bound, launch.ranges, strict=True)]
            self.gpu.run(launch.printed.shader, bound, launch.uniforms + tail, launch.groups)
        return 0

    # ---- what a shape needs ---------------------------------------------------------------------------

    def _plan(self, shapes: tuple[tuple[int, ...], ...], alias: tuple[int, ...]) -> Launches | None:
        """What to launch for arrays of these shapes, of which some share buffers; None if they do not agree."""
        extent = extents((*self.kinds, *self.out_spaces), shapes, self.rank)
        if extent is None:
            return None
        rows, n = extent
        if rows * n == 0:
            return Launches((), 0) if not any(prod(s) for s in shapes[len(self.kinds) :]) else None
        schedule = self._schedule(rows, n)
        if not self._may_share(alias):
            return None
        printed = self._shaders(schedule, () if alias == tuple(range(len(alias))) else alias)
        if schedule == "flat":
            return self._flat(printed[0], rows, n)
        return self._long(printed, rows, n) if schedule == "long" else self._rows(printed[0], schedule, rows, n)

    def _print(self, schedule: str, alias: tuple[int, ...]) -> tuple[Printed, ...]:
        return shaders(self.plan, self.title, schedule, self.guarded, alias)

    def _may_share(self, alias: tuple[int, ...]) -> bool:
        """Whether results may be in the buffers that they are in: each its own, or that of operands read before."""
        names = [name for name, _ in self.program.operands]
        for k, space in enumerate(self.out_spaces):
            at = alias[len(names) + k]
            if at >= len(names):
                if at != len(names) + k:
                    return False
                continue
            if alias.count(at) > 1 + sum(a == at for a in alias[: len(names)]):
                return False  # two results in one buffer
            for j, name in enumerate(names):
                if alias[j] == at and (self.kinds[j] != "e" or space != "e" or (k, name) in self.plan.hazards):
                    return False
        return True

    def _schedule(self, rows: int, n: int) -> str:
        if self.flat:
            return "flat"
        passes = max(len(self.plan.passes), 1)
        budget = self.gpu.limits.trips
        over = budget and passes * (n // THREADS + n // (THREADS * AHEAD) + n // (THREADS * BLOCK) + 16) > budget
        if n > VERY_LONG or over or (n >= LONG and rows <= FEW):
            return "long"
        return "rows8" if n <= NARROW else "rows64" if n <= MEDIUM else "rows256"

    def _launch(
        self, printed: Printed, groups: int, numbers: tuple[int, ...], n: int, part: tuple[int, int] | None = None
    ) -> Launch:
        """numbers: items to chunks here, as in `printer.FIELDS`.  part: offset and bytes of what fills rows."""
        limits, ranges = self.gpu.limits, []
        for slot in printed.slots:
            whole = slot < len(self.kinds) + len(self.out_spaces) and (*self.kinds, *self.out_spaces)[slot] == "e"
            shared = slot < len(self.kinds) and self.kinds[slot] == "w" and numbers[4] > numbers[5]
            ranges.append(part if whole or shared else None)
        uniforms = pack("<7I3f", 0, *numbers, INF, NAN, _float32(n))
        return Launch(printed, tuple(ranges) if part else (), uniforms, fold(groups, limits.groups))

    def _check(self, what: str, nbytes: int) -> None:
        if nbytes > self.gpu.limits.binding:
            raise KernelError(
                f"{self.name} on wgpu: {what} takes {nbytes} bytes; this device binds {self.gpu.limits.binding}. "
                "Pass fewer rows at once, or use another backend"
            )

    def _flat(self, printed: Printed, rows: int, n: int) -> Launches:
        total, most = rows * n, self.gpu.limits.binding // 256 * 64
        if total > most:
            self._check("what its rows share", 4 * max(n if "w" in self.kinds else 0, rows if "r" in self.kinds else 0))
        each = []
        for start in range(0, total, most):
            items = min(most, total - start)
            part = None if total <= most else (4 * start, 4 * items)
            groups = ceil(items / (THREADS * ITEMS))
            each.append(self._launch(printed, groups, (items, n, start, 0, 0, 0), n, part))
        return Launches(tuple(each), 0)

    def _rows(self, printed: Printed, schedule: str, rows: int, n: int) -> Launches:
        teams = THREADS // int(schedule.removeprefix("rows"))
        most = self.gpu.limits.binding // (4 * n) // 64 * 64
        if rows * n * 4 > self.gpu.limits.binding and "e" in (*self.kinds, *self.out_spaces):
            self._check("64 rows", 256 * n if most == 0 else 0)
        else:
            most = rows
        if "w" in self.kinds:
            self._check("what its rows share", 4 * n)
        if "r" in (*self.kinds, *self.out_spaces):
            self._check("what there is one of a row", 8 * rows)
        each = []
        for start in range(0, rows, most):
            items = min(most, rows - start)
            part = None if most == rows else (4 * n * start, 4 * n * items)
            each.append(self._launch(printed, ceil(items / teams), (items, n, start, 0, 0, 0), n, part))
        return Launches(tuple(each), 0)

    def _long(self, shaders: tuple[Printed, ...], rows: int, n: int) -> Launches:
        chunk = max(CHUNK, -(-n // CHUNKS))
        chunk = -(-chunk // THREADS) * THREADS
        chunks = -(-n // chunk)
        most = chunks
        if rows * n * 4 > self.gpu.limits.binding:
            if rows > 1:
                self._check(f"{rows} rows of {n}", 4 * rows * n)
            most = self.gpu.limits.binding // (4 * chunk)
        each = []
        passes = len(self.plan.passes)
        for printed in shaders[:passes]:
            for start in range(0, chunks, most):
                here = min(most, chunks - start)
                end = min((start + here) * chunk, n)
                part = None if here == chunks else (4 * start * chunk, 4 * (end - start * chunk))
                each.append(self._launch(printed, rows * here, (rows, n, start, chunk, chunks, here), n, part))
        each += [self._launch(p, rows, (rows, n, 0, chunk, chunks, chunks), n) for p in shaders[passes:]]
        return Launches(tuple(each), 8 * len(self.program.folds) * rows * chunks)


def _float32(value: float) -> float:
    """Rounded to float32 by `pack`, which does not take what lies beyond."""
    value = float(value)
    return value if abs(value) < 3.4028235677973366e38 or value != value else INF if value > 0 else -INF


def kernel(gpu: "Gpu", call: Call) -> RowKernel:
    """The kernel of a call; KernelError where `refusal` says why there is none."""
    if (reject := refusal(call)) is not None:
        raise KernelError(f"{call.op.name} on wgpu: {reject.detail}")
    return RowKernel(gpu, call)
