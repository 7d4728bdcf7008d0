"""What is known of a launch: the block, the grid, values of parameters, facts that the user vouches for."""

import re
from dataclasses import dataclass, field
from math import prod

from trueno_cuda.ptx.syntax.tree import Function

Size = tuple[int, int, int]
OURS = "arg_"
"""What the builder puts before the name of a parameter."""


def called(function: Function) -> dict[str, str]:
    """The parameters of an entry by what a user may call them: their names, their places, names in our builder."""
    own = [param.name for param in function.params]
    short = {name.removeprefix(OURS): name for name in own}
    return short | {str(k): name for k, name in enumerate(own)} | {name: name for name in own}


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
        """The launch of one entry, whose text may fix the block or limit it; names of parameters for other words."""
        names = called(function)
        params = {names.get(name, name): value for name, value in self.params.items()}
        multiples = {names.get(name, name): value for name, value in self.multiples.items()}
        block = sizes(function, "reqntid") or (None if self.refused(function) else self.block)
        return Launch(block, self.grid, params, multiples)

    def refused(self, function: Function) -> str:
        """Why an entry cannot have this block; empty where it can."""
        if self.block is None:
            return ""
        required, most = sizes(function, "reqntid"), sizes(function, "maxntid")
        words = ""
        if required and required != self.block:
            words = f"differs from .{'reqntid'} {shown(required)}"
        elif most and not required and prod(self.block) > prod(most):
            words = f"is more than .{'maxntid'} {shown(most)}"
        return words and f"--block {shown(self.block)} {words}; not applied"

    @property
    def threads(self) -> int | None:
        return prod(self.block) if self.block else None


def sizes(function: Function, directive: str) -> Size | None:
    """What `.reqntid` or `.maxntid` of a function says."""
    numbers = function.directives.get(directive)
    if not numbers:
        return None
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def shown(block: Size) -> str:
    """As `--block` takes it: `256`, `16,16`."""
    used = max(k for k in range(3) if k == 0 or block[k] != 1)
    return ",".join(map(str, block[: used + 1]))


ASSUMED = re.compile(r"\s*([\w$%]*[\w$])\s*%\s*(\d+)\s*==\s*0\s*")


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
