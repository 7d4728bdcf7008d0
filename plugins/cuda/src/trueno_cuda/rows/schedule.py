"""How a row program runs: schedules, and which one a shape gets.

    flat256x4      nothing folds: 256 threads a block, 4 times 16 bytes a thread
    held32x8       rows in registers: a team of 32 lanes a row, 8 times 16 bytes a lane
    swept1024x4    rows read again in every pass: 1 024 threads a row, 4 times 16 bytes a turn
    long256x4      rows in chunks over many blocks: as swept, then a kernel that joins

A forced schedule may leave the groups out (`held256`): they then follow from the row, as in one that is chosen.
"""

import re
from dataclasses import dataclass
from typing import Literal

from trueno.errors import KernelError

Kind = Literal["flat", "held", "swept", "long"]
MOST_GROUPS = 8
"""16-byte groups that a lane holds of a row: 32 registers, beside what a program needs."""
TEAMS = ((8, 2), (32, 8), (128, 4), (256, 8), (512, 8), (1024, 8))
"""Lanes of a team, and the most groups a lane: a row gets the first team that holds it."""
FEW = 2
"""Blocks an SM below which rows do not fill the device: long ones are then cut in chunks."""
LONG = 1 << 16
"""Bytes of a row from which on that is worth another launch."""
FLAT_GROUPS, SWEPT_THREADS, SWEPT_GROUPS, LONG_THREADS, LONG_GROUPS = 4, 1024, 4, 256, 4
CHUNKS = 8
"""Blocks an SM that share a long row."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """One way to run a program.  lanes: threads that share a row, or of a block.  groups: 16 bytes each, 0 if open.
    tails: of held groups, the last ones that may reach beyond the row."""

    kind: Kind
    lanes: int
    groups: int = 0
    tails: int = 1

    def __str__(self) -> str:
        return f"{self.kind}{self.lanes}" + (f"x{self.groups}" if self.groups else "")


def parse(text: str) -> Schedule:
    """A schedule by its name; KernelError where there is none."""
    found = re.fullmatch(r"(flat|held|swept|long)(\d+)?(?:x(\d+))?", text)
    if found is None:
        raise KernelError(f"schedule {text!r} is not known; write flat256x4, held32x8, swept1024x4 or long256x4")
    kind, lanes, groups = found[1], int(found[2] or 0), int(found[3] or 0)
    default = {"flat": (256, FLAT_GROUPS), "held": (256, 0), "swept": (SWEPT_THREADS, SWEPT_GROUPS)}
    usual = default.get(kind, (LONG_THREADS, LONG_GROUPS))
    lanes = lanes or usual[0]
    teams = (1, 2, 4, 8, 16, 32) if kind == "held" else ()
    if lanes not in teams and (lanes % 32 or not 32 <= lanes <= 1024):
        raise KernelError(f"schedule {text!r}: {lanes} lanes are no team; 8, 16, or whole warps up to 1024")
    return Schedule(kind, lanes, groups or usual[1])  # type: ignore[arg-type]


def choose(rows: int, n: int, itemsize: int, sms: int, burden: int = 1) -> Schedule:
    """The schedule of a program that folds, by its shape.  burden: values that a lane holds of every element."""
    groups = -(-n * itemsize // 16)
    if rows <= FEW * sms and n * itemsize >= LONG:
        return Schedule("long", LONG_THREADS, LONG_GROUPS)
    for lanes, most in TEAMS:
        if groups <= lanes * max(most // burden, 1):
            return fitted(Schedule("held", lanes), n, itemsize)
    return Schedule("swept", SWEPT_THREADS, SWEPT_GROUPS)


def fitted(schedule: Schedule, n: int, itemsize: int) -> Schedule:
    """`schedule` for rows of n elements: as few groups as hold them, of which the last alone is masked.

    KernelError where they do not fit.
    """
    if schedule.kind != "held":
        return schedule
    needed = -(-n * itemsize // (16 * schedule.lanes))
    groups = schedule.groups or needed
    if groups < needed or groups > 4 * MOST_GROUPS:
        raise KernelError(f"schedule {schedule} does not hold rows of {n} elements of {itemsize} bytes")
    return Schedule("held", schedule.lanes, groups, groups - needed + 1)
