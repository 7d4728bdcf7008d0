"""The execution of a row program: schedules, and the choice of one for a shape.

    flat256x4       nothing folds: 256 threads a block, 4 times 16 bytes a thread and operand
    held32x8        rows in registers: a team of 32 lanes a row, 8 times 16 bytes a lane; of 2048 or 4096 lanes, the
                    blocks of a cluster
    swept1024x4     rows read again in every pass: 1 024 threads a row, 4 times 16 bytes a turn
    long256x4c32    rows in chunks over many blocks, 32 an SM: as swept, then a kernel that joins
    held512x2e      early: what rows share is asked for with the row, not where it is used; for a few rows, which have
                    the device to themselves, so that a second wait for memory is a fifth of the time
    held256x4y      the batched form of a held or flat kernel: its rows lie along the grid's y; only where it is named,
                    because y ends at 65 535 blocks, and rows along x are as fast

`held` kernels are printed by `register_resident`, `swept` and `long` ones by `multi_pass`.  A forced schedule may
leave numbers out (`held256`, `long`): they are then as usual, or follow from the row.
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

from trueno.errors import KernelError

Kind = Literal["flat", "held", "swept", "long"]
TEAMS = ((1, 1), (2, 1), (4, 1), (8, 2), (32, 4), (128, 4), (256, 4), (512, 8), (1024, 8))
"""Lanes of a team, and the most groups of 16 bytes a lane: a row gets the first team that holds it.

Measured on an H200, float32, softmax, layer_norm and rms_norm in hundredths of a copy's speed: 16384 x 1024 with 128
lanes 97, 98 and 96, with 32 lanes 98, 94 and 95; 4096 x 4096 with 256 lanes 99, 95 and 93; 32768 x 8192 with 512 lanes
97, 99 and 97, with 256 lanes 96, 97 and 96.  Loads that leave L1 alone (no_allocate) cost two to five of them.

Eight groups are 32 registers; 1 024 threads have 64 each, so that a program has as many beside."""
CLUSTERED = ((2048, 8), (4096, 16))
"""The same for teams that are clusters of blocks of `OF_CLUSTER` threads, which have 128 registers each.

On an H200, softmax and rms_norm in hundredths of a copy's speed: 8192 x 151936 with 4096 lanes 80 and 83, with 8192
lanes 59 and 69; 1000 x 50257, whose rows begin anywhere, with 2048 lanes 73 and 69, with 4096 lanes 63 and 67.  A
larger cluster waits longer for a place.  Clusters that take several rows in turn, each asked for while the one before
is computed, have 62 and 69, and 49 and 59: a multiprocessor then holds one block, and not two."""
OF_CLUSTER = 512
MOST_GROUPS = 32
"""Of a team that is forced."""
EARLY = 4
"""Groups of a lane up to which it also holds what rows share."""
FEW = 8
"""Blocks an SM below which rows that are swept do not fill the device evenly, and are cut in chunks."""
LONG = 1 << 11
"""Bytes of a row an SM from which on a row is worth all SMs, where there is no row for each."""
USUAL = {"flat": (256, 0, 0), "held": (256, 0, 0), "swept": (1024, 4, 0), "long": (256, 4, 32)}
"""Lanes, groups and chunks where a schedule names none.

Chunks are more than an SM has blocks at once, so that none waits long for the last."""


TILES, SOME = 4, 8
"""Tiles of a chunk at least, unless there are fewer than SOME chunks an SM: each one costs a partial fold."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """One way to run a program.

    lanes: threads that share a row, or of a block.  groups: 16 bytes each, 0 where that is open.  chunks: of all rows
    together, an SM, at most.  joiners: threads that join the chunks of a row.  tails: of held groups, the last ones,
    which may reach beyond the row.  along_y: whether blocks find their rows along the grid's y, not along x.
    early: whether operands that rows share are loaded with the row.
    """

    kind: Kind
    lanes: int
    groups: int = 0
    chunks: int = 0
    joiners: int = 256
    tails: int = 1
    along_y: bool = False
    early: bool = False

    def __str__(self) -> str:
        groups, chunks = f"x{self.groups}" * bool(self.groups), f"c{self.chunks}" * bool(self.chunks)
        return f"{self.kind}{self.lanes}{groups}{chunks}{'e' * self.early}{'y' * self.along_y}"


def parse(text: str) -> Schedule:
    """A schedule by its name; KernelError where there is none."""
    match = re.fullmatch(r"(?:(flat|held|swept)(\d+)?(?:x(\d+))?()|(long)(\d+)?(?:x(\d+))?(?:c(\d+))?)(e)?(y)?", text)
    if match is None:
        raise KernelError(f"schedule {text!r} is not known; write flat256x4, held32x8, swept1024x4 or long256x4c32")
    kind, *numbers = match.groups()[4:8] if match[5] else match.groups()[:4]
    assert kind is not None
    lanes, groups, chunks = (int(n or 0) or usual for n, usual in zip(numbers, USUAL[kind], strict=True))
    part_of_warp = kind == "held" and lanes in (1, 2, 4, 8, 16, *(team for team, _ in CLUSTERED))
    if not part_of_warp and (lanes % 32 or not 32 <= lanes <= 1024):
        raise KernelError(f"schedule {text!r}: {lanes} lanes are not a team; use whole warps up to 1024, or 8 held")
    if kind != "held" and groups & (groups - 1):
        raise KernelError(f"schedule {text!r}: {groups} groups are not a power of two")
    if match[9] and kind != "held":
        raise KernelError(f"schedule {text!r}: only held schedules load early what rows share")
    if match[10] and (kind not in ("flat", "held") or lanes > 1024):
        raise KernelError(f"schedule {text!r}: only flat and held schedules of up to 1024 lanes have rows along y")
    return Schedule(kind, lanes, groups, chunks, along_y=bool(match[10]), early=bool(match[9]))  # type: ignore[arg-type]


def choose(rows: int, n: int, itemsize: int, sms: int, live_values: int = 1, clusters: bool = False) -> Schedule:
    """The schedule of a program that folds, by its shape.

    live_values: values that a lane holds of every element.  clusters: whether the device has them.
    """
    groups = -(-n * itemsize // 16)
    if rows <= sms and n * itemsize >= LONG * sms:
        return parse("long")
    for lanes, most in TEAMS + CLUSTERED * clusters:
        if groups <= lanes * max(most // live_values, 1):
            schedule = fitted(Schedule("held", lanes), n, itemsize)
            return replace(schedule, early=rows <= sms and lanes > 32 and schedule.groups <= EARLY)
    return parse("long" if rows <= FEW * sms else "swept")


def fitted(schedule: Schedule, n: int, itemsize: int) -> Schedule:
    """`schedule` for rows of n elements: as few groups as hold them, of which the last alone is masked.

    KernelError where they do not fit.
    """
    if schedule.kind != "held":
        return schedule
    needed = -(-n * itemsize // (16 * schedule.lanes))
    groups = schedule.groups or needed
    if groups < needed or groups > MOST_GROUPS:
        raise KernelError(f"schedule {schedule} does not hold rows of {n} elements of {itemsize} bytes")
    return replace(schedule, groups=groups, tails=groups - needed + 1)


def chunked(schedule: Schedule, rows: int, n: int, itemsize: int, sms: int) -> tuple[Schedule, int]:
    """`schedule` for long rows, and elements of a chunk, a multiple of a tile."""
    tile = schedule.lanes * schedule.groups * 16 // itemsize
    tiles = -(-n // tile)
    count = min(schedule.chunks * sms, max(SOME * sms, rows * tiles // TILES))
    chunk = -(-tiles * rows // count) * tile
    return replace(schedule, joiners=1024 if rows <= sms else 256), chunk
