"""From an op's row program to a kernel: choose a schedule for the shape, print, launch.

The text of a kernel depends on the program, the schedule and a few of its constants, never on a size.  So a kernel is
printed and loaded when a call first needs it, and the launches are cached by shape.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from trueno.backend import Call, Kernel, Rates, Reject, extents
from trueno.errors import KernelError

from trueno_cuda import ptx
from trueno_cuda.device.protocol import ArrayLaunch, Device, Launch
from trueno_cuda.device.repeated import READY, quick
from trueno_cuda.rows.flat import MOST, USUAL_GROUPS, division
from trueno_cuda.rows.multi_pass import slots
from trueno_cuda.rows.printer import VECTOR
from trueno_cuda.rows.register_resident import live_values
from trueno_cuda.rows.schedule import Schedule, choose, chunked, fitted, parse
from trueno_cuda.rows.source import KINDS, is_flat, kernels, planned

RATES = Rates(launch_s=5e-6, flops=2e13, bytes=4e12, link_s=2e-5, link_bytes=8e9)
"""An H200's, as measured."""
ALONG_Y = 65535
"""The most blocks along the grid's y."""
REMEMBERED = 64
"""Shapes whose launches a kernel keeps."""
LONGEST = (1 << 32) - (1 << 20)
"""The most elements of a row if rows matter: columns are 32-bit numbers, also for a tile beyond the end."""


def refusal(call: Call) -> Reject | None:
    """Why no call of this key can be taken; None if all can."""
    program = call.op.program(call.layout, **dict(call.static))
    if any((n := program.nodes[o]).type == "bool" or (n.type == "index" and n.space == "e") for o in program.outputs):
        return Reject("unsupported_op", f"{call.op.name} gives truth values, or the position of every element")
    return None


@dataclass(frozen=True, slots=True)
class Launches:
    """All launches of a call.

    sizes: bytes of every operand and result.  same: (operand, result) that may be one array.  scratch: 8-byte words.
    alone: the launch, if there is only one and it needs only the arrays.
    """

    each: tuple[ArrayLaunch, ...]
    sizes: tuple[int, ...]
    same: frozenset[tuple[int, int]]
    scratch: int = 0
    alone: Launch | None = None


class RowKernel:
    """Callable like the protocol's kernels.

    schedule: forces one, by its name (see `trueno_cuda.rows.schedule`).
    """

    def __init__(self, device: Device, call: Call, schedule: str = "") -> None:
        self.device, self.guarded, self.rank, self.name = device, call.guarded, call.rank, call.op.name
        self.dtype = np.dtype(call.dtype)
        self.program = call.op.program(call.layout, **dict(call.static))
        self.kinds = tuple(kind for _, kind in self.program.operands)
        nodes = self.program.nodes
        self.out_spaces = tuple("e" if nodes[o].space == "e" else "r" for o in self.program.outputs)
        self.item_bytes = [self.dtype.itemsize] * len(self.kinds)
        self.item_bytes += [8 if nodes[o].type == "index" else self.dtype.itemsize for o in self.program.outputs]
        self.flat = is_flat(self.program)
        self.forced = parse(schedule) if schedule else None
        if self.forced is not None and (self.forced.kind == "flat") != self.flat:
            raise KernelError(
                f"{self.name} on cuda: schedule {schedule} is for programs that "
                f"{'fold; this one does not' if self.flat else 'do not fold; this one does'}"
            )
        kind, stored = KINDS[self.dtype.name]
        self.narrow = stored is not kind
        self.itemsize = kind.bytes
        """The dtype of the computation, by which schedules count: 16-bit floats go four at a time, as float32."""
        self.first_out = len(self.kinds)
        self.after_params = self.first_out + len(self.program.params)
        self.live_values = live_values(planned(self.program, "held"))
        self.clusters = ptx.TARGETS[device.arch].clusters
        self._contiguous = device.contiguous
        self._ready: dict[tuple[Any, ...], Launches] = {}
        self._launches: Callable[..., Launches | None] = lru_cache(REMEMBERED)(self._plan)
        self._kernels = lru_cache(None)(self._print)

    def __call__(self, *given: Any) -> int:
        contiguous, outs = self._contiguous, given[self.after_params :]
        for out in outs:
            if contiguous(out) is not out:
                return -1
        arrays = [*map(contiguous, given[: self.first_out]), *outs]
        pointers = [a.data.ptr for a in arrays]
        key = (*[a.shape for a in arrays], *pointers)
        launches = self._ready.get(key)
        if launches is None:
            launches = self._look(tuple([a.shape for a in arrays]), pointers)
            if launches is None:
                return -1
            if len(self._ready) >= READY:
                self._ready.clear()
            self._ready[key] = launches
        floats = given[self.first_out : self.after_params]
        if launches.alone is not None:
            launches.alone(pointers, floats)
            return 0
        if launches.scratch:
            scratch = self.device.empty((launches.scratch,), np.dtype(np.int64))  # kept alive until all is submitted
            pointers.append(scratch.data.ptr)
        if self.guarded:
            pointers.append(self.device.status())
        for one in launches.each:
            moved = [p + o for p, o in zip(pointers, one.offsets, strict=False)]
            one.launch([*moved, *pointers[len(moved) :]], floats)
        return 0

    def seen(self, arrays: Sequence[Any]) -> Launch | None:
        """The launch that a call needed for these arrays, which are in C order; None if it needed more."""
        launches = self._ready.get((*[a.shape for a in arrays], *[a.data.ptr for a in arrays]))
        return None if launches is None else launches.alone

    def _look(self, shapes: tuple[tuple[int, ...], ...], pointers: list[int]) -> Launches | None:
        """The launches for these arrays; None if they do not fit."""
        together = 0
        for pointer in pointers:
            together |= pointer
        launches = self._launches(shapes, not together & 15)
        return launches if launches is not None and self._may_share(pointers, launches) else None

    def _may_share(self, pointers: list[int], launches: Launches) -> bool:
        """Whether every result is an operand that may be overwritten, or separate from all other arrays."""
        sizes = launches.sizes
        for k in range(self.first_out, len(sizes)):
            low = pointers[k]
            high = low + sizes[k]
            for j in range(k):
                other = pointers[j]
                if other < high and low < other + sizes[j] and (other != low or (j, k) not in launches.same):
                    return False
        return True

    # ---- what a shape needs ---------------------------------------------------------------------------

    def _plan(self, shapes: tuple[tuple[int, ...], ...], aligned: bool) -> Launches | None:
        """The launches for arrays of these shapes; None if they do not agree."""
        extent = extents((*self.kinds, *self.out_spaces), shapes, self.rank)
        if extent is None:
            return None
        rows, n = extent
        sizes = tuple(prod(s) * b for s, b in zip(shapes, self.item_bytes, strict=True))
        if rows * n == 0:
            return Launches((), sizes, frozenset()) if not any(sizes[self.first_out :]) else None
        if self.flat:
            schedule = self.forced or parse("flat")
            each, scratch = (self._batched if schedule.along_y else self._flat)(schedule, rows, n, aligned), 0
        else:
            self._check(n)
            itemsize = self.itemsize
            schedule = (
                fitted(self.forced, n, itemsize)
                if self.forced
                else choose(rows, n, itemsize, self.device.sms, self.live_values, self.clusters)
            )
            wide = aligned and n * itemsize % VECTOR == 0
            each, scratch = (self._long if schedule.kind == "long" else self._rows)(schedule, rows, n, wide)
        hazards = planned(self.program, schedule.kind, self.narrow).hazards
        same = {
            (j, self.first_out + k)
            for k, space in enumerate(self.out_spaces)
            for j, (name, kind) in enumerate(self.program.operands)
            if kind == space == "e" and (k, name) not in hazards
        }
        simple = len(each) == 1 and not (each[0].offsets or scratch or self.guarded)
        return Launches(tuple(each), sizes, frozenset(same), scratch, each[0].launch if simple else None)

    def _print(self, schedule: Schedule, wide: bool) -> tuple[ptx.Kernel, ...]:
        arch, guarded = self.device.arch, self.guarded
        return kernels(self.program, self.name, self.dtype, schedule, arch=arch, wide=wide, guarded=guarded)

    def _check(self, n: int) -> None:
        if n > LONGEST:
            raise KernelError(
                f"{self.name} on cuda: rows of {n} elements; {LONGEST} is the most where rows matter. "
                "Split them, or use another backend"
            )

    def _rows(self, schedule: Schedule, rows: int, n: int, wide: bool) -> tuple[list[ArrayLaunch], int]:
        """One team or one block per row."""
        (kernel,) = self._kernels(schedule, wide)
        assert kernel.threads is not None
        if schedule.along_y:
            return self._along_y(kernel, 1, max(kernel.threads[0] // schedule.lanes, 1), rows, n), 0
        blocks = -(-rows * schedule.lanes // kernel.threads[0])
        return [ArrayLaunch(self.device.prepare(kernel, (blocks, 1, 1), (rows, n)))], 0

    def _long(self, schedule: Schedule, rows: int, n: int, wide: bool) -> tuple[list[ArrayLaunch], int]:
        """Chunks of rows, one block each; then a kernel that combines them."""
        schedule, chunk = chunked(schedule, rows, n, self.itemsize, self.device.sms)
        chunks = -(-n // chunk)
        printed = self._kernels(schedule, wide)
        passes = len(planned(self.program, "long", self.narrow).passes)
        each = [
            ArrayLaunch(
                self.device.prepare(kernel, (rows * (chunks if i < passes else 1), 1, 1), (rows, n, chunk, chunks))
            )
            for i, kernel in enumerate(printed)
        ]
        return each, slots(self.program) * rows * chunks

    def _along_y(
        self, kernel: ptx.Kernel, across: int, together: int, rows: int, n: int, items: int = 0
    ) -> list[ArrayLaunch]:
        """Launches of grids with `across` blocks along x, and along y one for every `together` rows."""
        each = []
        for row in range(0, rows, ALONG_Y * together):
            some = min(rows - row, ALONG_Y * together)
            launch = self.device.prepare(kernel, (across, -(-some // together), 1), (items or some, n))
            each.append(ArrayLaunch(launch, self._offsets(row, 0, n) if row else ()))
        return each

    def _offsets(self, row: int, column: int, n: int) -> tuple[int, ...]:
        """Bytes of each array before this row and column."""
        start = {"e": row * n + column, "w": column, "r": row, "u": 0}
        return tuple(b * start[kind] for b, kind in zip(self.item_bytes, (*self.kinds, *self.out_spaces), strict=True))

    def _batched(self, schedule: Schedule, rows: int, n: int, aligned: bool) -> list[ArrayLaunch]:
        """All elements, rows along the grid's y."""
        self._check(n)
        wide = aligned and n * self.itemsize % VECTOR == 0
        groups = schedule.groups or USUAL_GROUPS * self.itemsize // self.dtype.itemsize
        (kernel,) = self._kernels(replace(schedule, groups=groups), wide)
        block = schedule.lanes * groups * VECTOR // self.itemsize
        return self._along_y(kernel, -(-n // block), 1, rows, n, n // (VECTOR // self.itemsize if wide else 1))

    def _flat(self, schedule: Schedule, rows: int, n: int, aligned: bool) -> list[ArrayLaunch]:
        """All elements, in launches small enough for 32-bit indices."""
        nodes, itemsize = self.program.nodes, self.itemsize
        by_row = "w" in self.kinds or "r" in self.kinds or any(node.kind == "position" for node in nodes)
        if by_row or any(node.kind == "count" for node in nodes):
            self._check(n)
        total = rows * n
        wide = aligned and (n if by_row else total) * itemsize % VECTOR == 0
        groups = schedule.groups or USUAL_GROUPS * itemsize // self.dtype.itemsize
        (kernel,) = self._kernels(replace(schedule, groups=groups), wide)
        width = VECTOR // itemsize if wide else 1
        block = schedule.lanes * groups * VECTOR // itemsize
        each = []
        for row, column, count, pitch in _ranges(rows, n, by_row):
            numbers = (count // width, min(n, LONGEST), pitch, *division(pitch), column)
            launch = self.device.prepare(kernel, (-(-count // block), 1, 1), numbers)
            offsets = self._offsets(row, column, n)
            each.append(ArrayLaunch(launch, offsets if any(offsets) else ()))
        return each


def _ranges(rows: int, n: int, by_row: bool) -> Iterator[tuple[int, int, int, int]]:
    """Launches that cover all elements: first row and column, elements, and elements of a row as the launch sees it."""
    if not by_row:
        for start in range(0, rows * n, MOST):
            yield 0, start, min(MOST, rows * n - start), 1
    elif n <= MOST:
        most = MOST // n
        for row in range(0, rows, most):
            yield row, 0, min(most, rows - row) * n, n
    else:
        for row in range(rows):
            for column in range(0, n, MOST):
                count = min(MOST, n - column)
                yield row, column, count, count


def kernel(device: Device, call: Call) -> Kernel:
    """The kernel of a call; KernelError if `refusal` says why there is none."""
    if (reject := refusal(call)) is not None:
        raise KernelError(f"{call.op.name} on cuda: {reject.detail}")
    row_kernel = RowKernel(device, call)
    if call.guarded or not device.alone:  # the thread's status word, or the owner of the array, is looked up each time
        return row_kernel
    return quick(
        row_kernel,
        row_kernel.seen,
        row_kernel.first_out,
        row_kernel.after_params - row_kernel.first_out,
        len(row_kernel.out_spaces),
    )
