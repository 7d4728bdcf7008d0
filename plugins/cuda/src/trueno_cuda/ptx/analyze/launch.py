"""What is known of a launch: the block, the grid, values of parameters, facts that the user vouches for."""

import re
from dataclasses import dataclass, field

from trueno_cuda.ptx.syntax.tree import Function

Size = tuple[int, int, int]


@dataclass(frozen=True)
class Launch:
    """block, grid: None where they are not known.  multiples: of a parameter, a number that divides it."""

    block: Size | None = None
    grid: Size | None = None
    params: dict[str, int] = field(default_factory=dict)
    multiples: dict[str, int] = field(default_factory=dict)

    def special(self, name: str) -> int | None:
        """The value of a special register that every thread of the grid sees."""
        head, _, axis = name.partition(".")
        k = "xyz".find(axis) if axis else -1
        if k < 0:
            return 32 if head == "WARP_SZ" else None
        if head == "ntid" and self.block:
            return self.block[k]
        if head == "nctaid" and self.grid:
            return self.grid[k]
        if head == "tid" and self.block and self.block[k] == 1:
            return 0
        if head == "ctaid" and self.grid and self.grid[k] == 1:
            return 0
        return None

    def of(self, function: Function) -> "Launch":
        """The launch of one entry, whose text may fix the block."""
        required = function.directives.get("reqntid")
        if self.block is not None or not required:
            return self
        sizes = (*required, 1, 1)[:3]
        return Launch((sizes[0], sizes[1], sizes[2]), self.grid, self.params, self.multiples)

    @property
    def threads(self) -> int | None:
        return self.block[0] * self.block[1] * self.block[2] if self.block else None


ASSUMED = re.compile(r"\s*(\w+)\s*%\s*(\d+)\s*==\s*0\s*")


def assumed(text: str) -> tuple[str, int]:
    """`n % 256 == 0` as name and divisor; ValueError for anything else."""
    match = ASSUMED.fullmatch(text)
    if match is None or int(match[2]) < 1:
        raise ValueError(f"--assume {text!r} must be NAME % NUMBER == 0, as 'n % 256 == 0'")
    return match[1], int(match[2])


def size(text: str, option: str, most: tuple[int, int, int]) -> Size:
    """`128`, `16,16` or `8,8,4`; ValueError for anything else."""
    parts = [p.strip() for p in text.split(",")]
    if not 1 <= len(parts) <= 3 or not all(p.isdecimal() and int(p) > 0 for p in parts):
        raise ValueError(f"{option} {text!r} must be X[,Y[,Z]], as 128 or 16,16")
    x, y, z = (*map(int, parts), 1, 1)[:3]
    for value, limit in zip((x, y, z), most, strict=True):
        if value > limit:
            raise ValueError(f"{option} {text!r} has {value} along an axis; {limit} is the most")
    return x, y, z
