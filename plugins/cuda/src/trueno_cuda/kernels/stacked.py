"""Ops on stacks of small problems: leading axes of several operands, which are broadcast, as a kernel's numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product as combinations
from math import prod
from typing import Any

from trueno.backend import stacked

from trueno_cuda.kernels.operands import Shape
from trueno_cuda.ptx import Builder, Value, u32, u64

AXES = 4
"""Leading axes that a launch knows, after neighbours are merged; of more the outer ones are walked."""


@dataclass(frozen=True, slots=True)
class Stack:
    """Problems along leading axes, one axis at least.

    steps: of each operand, the elements from one problem to the next along each axis; 0 where it is broadcast.
    first: the number of the first problem.  starts: of each operand, the element where that problem begins.
    """

    lead: Shape
    steps: tuple[Shape, ...]
    first: int
    starts: Shape

    @property
    def count(self) -> int:
        """Problems in it."""
        return prod(self.lead)

    def numbers(self) -> list[int]:
        """What `places` takes: lengths but the first, then the steps of each operand."""
        return [*self.lead[1:], *(step for steps in self.steps for step in steps)]


def stack(whole: Shape, leads: Sequence[Shape], elements: Sequence[int]) -> Stack | None:
    """Leading axes `leads` of operands with so many elements per problem, broadcast to `whole`; None if they are not.

    `whole` has problems, and no axis that no operand has.
    """
    common = stacked(whole, leads, elements)
    if common is None:
        return None
    lead, steps = common
    if not lead:
        lead, steps = (1,), ((0,),) * len(leads)
    return Stack(lead, steps, 0, (0,) * len(leads))


def parts(whole: Stack, most: int) -> Iterator[Stack]:
    """All of it in stacks of at most `AXES` axes and `most` problems each, or of one axis and as many as it takes."""
    lead, steps = whole.lead, whole.steps
    walked = max(len(lead) - AXES, 0)
    while walked < len(lead) - 1 and prod(lead[walked:]) > most:
        walked += 1
    inner = prod(lead[walked + 1 :])
    each = max(most // inner, 1)
    for number, place in enumerate(combinations(*map(range, lead[:walked]))):
        for begin in range(0, lead[walked], each):
            at = (*place, begin)
            starts = tuple(
                start + sum(i * s for i, s in zip(at, own, strict=False))
                for start, own in zip(whole.starts, steps, strict=True)
            )
            some = min(each, lead[walked] - begin)
            first = whole.first + number * prod(lead[walked:]) + begin * inner
            yield Stack((some, *lead[walked + 1 :]), tuple(own[walked:] for own in steps), first, starts)


def parameters(axes: int, *operands: str) -> dict[str, Any]:
    """A kernel's parameters for `Stack.numbers`: n1 …, then NAME_step0 … of each operand."""
    lengths = {f"n{i}": u32 for i in range(1, axes)}
    return lengths | {f"{name}_step{i}": u64 for name in operands for i in range(axes)}


def places(k: Builder, problem: Value, given: dict[str, Value], axes: int, *operands: str) -> list[Value]:
    """The elements before a problem, of each operand, as u64.  given: what `parameters` declares, by name."""
    indices, rest = [], problem
    for axis in range(axes - 1, 0, -1):
        indices.append((rest % given[f"n{axis}"]).to(u64))
        rest = rest // given[f"n{axis}"]
    indices.append(rest.to(u64))
    found = []
    for name in operands:
        before = indices[-1] * given[f"{name}_step0"]
        for axis, index in zip(range(axes - 1, 0, -1), indices, strict=False):
            before = before + index * given[f"{name}_step{axis}"]
        found.append(before)
    return found
