"""How products by `tiles` are launched: x is rounded once, and as many matrices as can be are one launch.

A matrix whose epilogue reads another one's result is beside it in a section, if both have the same activations and
their sums fit into registers; otherwise the first leaves its result in memory, and the second is a launch behind it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import gcd
from typing import Any, NamedTuple

from trueno.backend import FORMATS, Format

from trueno_cuda.device.protocol import Device
from trueno_cuda.kernels.quant.blocks import access_of
from trueno_cuda.kernels.quant.fragments import EIGHT, Fragments, Layout
from trueno_cuda.kernels.quant.rows import Part
from trueno_cuda.kernels.quant.task import Norm, Numbered, Task, shares
from trueno_cuda.kernels.quant.tile_ring import CHUNK, ROWS, SPAN
from trueno_cuda.kernels.quant.tiles import Form, tiles
from trueno_cuda.ptx import TARGETS

MOST_COLUMNS = 8
"""Times EIGHT rows of x in a launch; more take several."""
MOST_SUMS = 8
"""The same times matrices of a section: more sums do not fit into registers."""
RESERVED = 1 << 10
"""Bytes of shared memory that each block takes beside its own."""
MANY = 3
"""Tiles for each multiprocessor from which on blocks have few warps for each of them."""
TURNS, KEPT = 7, 2
"""Warps of a tile with bulk copies, and spans of each whose part of x stays in registers."""
LONG = 32
"""Spans of a row from which on more warps share it."""
BULK = 90
"""The first architecture with bulk copies."""


class Tuning(NamedTuple):
    """Of a launch: tiles of a block at once, warps of a tile, blocks of a multiprocessor, spans of a warp in shared
    memory; 0: as planned, and all of them or none.  bulk: whether these come by bulk copies, where the GPU and the
    matrices allow that.  kept: whether what a warp takes of x then stays in registers, from one tile to the next.
    """

    high: int = 0
    turns: int = 0
    resident: int = 0
    stages: int = 0
    bulk: bool = False
    kept: bool = False


PLANNED = Tuning()


def choose(
    sections: tuple[tuple[Part, ...], ...], columns: int, tiles: int, spans: int, device: Device, staged: bool,
    guarded: bool, tuning: Tuning = PLANNED,
) -> Form:  # fmt: skip
    """The form for so many tiles of all sections.  spans: of a row; staged: whether rows go through shared memory.

    Measured on an H200 with cold weights, 134 forms each: 12 to 16 warps of a multiprocessor are best, and two spans
    of each in shared memory, for what x takes of the first cache counts more than what is on its way.  Bulk copies gain
    3 to 9 % for up to 8 rows, and for large matrices 5 to 7 % for more; others lose.  Where a warp has two spans of a
    row at most, x in registers gains 4 to 6 % more.
    """
    if tuning.turns:
        bulk = tuning.bulk and staged and tuning.stages > 1 and TARGETS[device.arch].number >= BULK
        kept = -(-spans // tuning.turns) if bulk and tuning.kept else 0
        return Form(sections, columns, *tuning[:4], guarded, bulk, kept)
    wide, many = columns * max(map(len, sections)), tiles >= MANY * device.sms
    stages, bulk = 2 * staged, staged and TARGETS[device.arch].number >= BULK and (many or columns == 1)
    keep, short = False, spans <= KEPT * TURNS
    if tiles <= device.sms:
        high, turns, resident, bulk = 1, 12, 1, False
    elif bulk and columns == 1 and short and tiles >= 2 * device.sms:
        high, turns, resident, keep = 1, TURNS, 2, True
    elif bulk:
        high, turns, resident = (1, 4, 3) if many else (1, 5 if short else TURNS, 2)
        stages = 3 if columns <= 2 else 2
    elif many:
        high, turns, resident = (1, 4, 3) if wide >= MOST_SUMS else (2, 2, 3)
    else:
        high, turns, resident = 1, 8 if wide == 1 and spans >= LONG else 6, 2
    form = Form(sections, columns, high, min(turns, max(spans, 1)), resident, stages, guarded, bulk)
    while form.shared > device.shared and form.turns > 1:
        form = replace(form, turns=form.turns // 2)
    kept = -(-spans // form.turns)  # fewer warps have more of a row each
    if keep and kept <= KEPT:
        form = replace(form, kept=kept)
    return replace(form, resident=max(min(resident, (device.shared + RESERVED) // (form.shared + RESERVED)), 1))


class Planned(NamedTuple):
    """A launch for the rows of x from number `first` on: the names of its inputs, and its products with their numbers
    in the call; stored: the numbers of those whose results are; guarded: whether it looks at them."""

    launch: Any
    first: int
    inputs: tuple[str, ...]
    tasks: list[Numbered]
    stored: set[int]
    guarded: bool


class Tiled:
    """Some products of one x[m, k] with 8-bit activations of one kind, all of them with rows.

    tasks: with their numbers in the call, one that reads another's result behind it.  wide: all arrays begin at
    multiples of 16 bytes.  nbytes: of scratch that `run` needs.
    """

    def __init__(
        self, device: Device, tasks: Sequence[Numbered], m: int, k: int, wide: bool, *, guarded: bool = False,
        tuning: Tuning = PLANNED, norm: Norm | None = None,
    ) -> None:  # fmt: skip
        self.norm = norm
        self.device, self.sizes, self.wide, self.guarded, self.tuning = device, (m, k), wide, guarded, tuning
        layout = Layout.of([FORMATS[task.format] for _, task in tasks])
        self.names, self.fragments = list(layout.pointers), Fragments(device, layout, m, k, wide, norm is not None)
        self.nbytes = self.fragments.nbytes
        self.launches: list[Planned] = []
        for first in range(0, m, EIGHT * MOST_COLUMNS):
            count = min(m - first, EIGHT * MOST_COLUMNS)
            for sections in _launches(tasks, -(-count // EIGHT)):
                self.launches.append(self._launch(sections, first, count))

    def _launch(self, sections: Sequence[Sequence[Numbered]], first: int, count: int) -> Planned:
        device, (_, k), tasks = self.device, self.sizes, [each for section in sections for each in section]
        read = {i for section in sections for _, task in section for where, i in task.beside if where == "result"}
        read &= {i for i, _ in tasks}  # by others of its section
        stored = {i for i, task in tasks if task.result >= 0 or i not in read}
        guarded = self.guarded and all(task.result >= 0 for i, task in tasks if i in stored)
        parts = tuple(tuple(self._part(section, task, i in stored) for i, task in section) for section in sections)
        staged = all(part.access == CHUNK for section in parts for part in section) and k > 0
        heights = [-(-section[0][1].n // ROWS) for section in sections]
        form = choose(parts, -(-count // EIGHT), sum(heights), -(-k // SPAN), device, staged, guarded, self.tuning)
        nbytes = [ROWS * sum(FORMATS[task.format].row_bytes(k) for _, task in section) for section in sections]
        each = shares(device.sms * form.resident, list(zip(heights, nbytes, strict=True)))
        numbers, start = [count, k], 0
        for section, high, share in zip(sections, heights, each, strict=True):
            numbers += [section[0][1].n, share, start]
            start += -(-high // share)
        kernel = tiles(device.arch, form).behind()  # x's rounding, or a launch like this one, which have waited
        launch = device.prepare(kernel, (start, 1, 1), numbers)
        return Planned(launch, first, tuple(form.layout.pointers), tasks, stored, guarded)

    def _part(self, section: Sequence[Numbered], task: Task, kept: bool) -> Part:
        """The matrix of a task, as the kernel reads it."""
        f, places = FORMATS[task.format], {i: at for at, (i, _) in enumerate(section)}
        nbytes = f.row_bytes(self.sizes[1])
        beside = tuple(("result", places[i]) if where == "result" and i in places else ("operand", 0)
                       for where, i in task.beside)  # fmt: skip
        access = access_of(f, 0, task.n * nbytes) if self.wide else 1
        return Part(task.format, access, gcd(nbytes, CHUNK), task.epilogue, beside, kept)

    def run(
        self, scratch: int, x: int, operands: Sequence[int], made: Sequence[int], floats: Sequence[float] = (),
        status: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """Launch it all, on these addresses.  made: of every product's result, by its number in the call."""
        norm = self.norm
        before, eps = ((operands[norm.weight],), (floats[norm.eps],)) if norm else ((), ())
        self.fragments.launch((x, *before, *self.fragments.places(scratch)), eps)
        for launch, first, inputs, tasks, stored, guarded in self.launches:
            places = dict(zip(self.names, self.fragments.places(scratch, first), strict=True))
            pointers, numbers, here = [places[name] for name in inputs], list[float](), {i for i, _ in tasks}
            for i, task in tasks:
                moved = {"e": 4 * first * task.n, "r": 4 * first, "w": 0, "u": 0}
                pointers.append(operands[task.matrix])
                if i in stored:
                    pointers.append(made[i] + moved["e"])
                for (where, n), kind in zip(task.beside, task.epilogue.beside if task.epilogue else "", strict=True):
                    if where == "operand" or n not in here:
                        pointers.append((operands if where == "operand" else made)[n] + moved[kind])
                numbers += floats[task.floats]
            launch([*pointers, *(status if guarded else ())], numbers)


def _launches(tasks: Sequence[Numbered], columns: int) -> Iterator[list[list[Numbered]]]:
    """Sections of launches one after the other: nothing reads what another section of its launch stores, and guards
    see either all of what a launch stores or nothing."""
    launch, stored, groups, inner = list[list[Numbered]](), set[int](), dict[int, list[Numbered]](), False
    for each in tasks:
        groups.setdefault(each[1].group, []).append(each)
    for group in groups.values():
        joint = len(group) * columns <= MOST_SUMS and len({task.n for _, task in group}) == 1
        for section in [group] if joint else [[each] for each in group]:
            own, before = {i for i, _ in section}, inner
            inner = not joint and any(task.result < 0 for _, task in section)
            reads = any(where == "result" and i not in own and i in stored for _, t in section for where, i in t.beside)
            if launch and (reads or inner is not before):
                yield launch
                launch, stored = [], set()
            launch.append(section)
            stored |= own
    if launch:
        yield launch


def alone(device: Device, f: Format, m: int, n: int, k: int, wide: bool, **given: Any) -> Tiled:
    """One product: operand 0 is the matrix, and result 0 all there is."""
    return Tiled(device, [(0, Task(f.name, None, 0, (), 0, n, slice(0, 0), 0))], m, k, wide, **given)
