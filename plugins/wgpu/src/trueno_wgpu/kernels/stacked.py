"""Ops on stacks of small problems: leading axes that are broadcast, as uniforms, and in bands where bindings end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from trueno.backend import stacked
from trueno.errors import KernelError

from trueno_wgpu.device.gpu import Limits
from trueno_wgpu.kernels.dispatches import Shape
from trueno_wgpu.kernels.memory import Band, bands

MOST_AXES = 4


@dataclass(frozen=True, slots=True)
class Stack:
    """Leading axes, at most four; of each operand the elements from one problem to the next along each (0: broadcast).

    operands: which part of an operand is bound, None for all; out: which part of the result.
    """

    lead: Shape
    steps: tuple[Shape, ...]
    operands: tuple[Band | None, ...]
    out: Band | None = None

    @property
    def count(self) -> int:
        """Problems in it."""
        return prod(self.lead)

    def words(self) -> list[int]:
        """The uniforms `lead` and one `NAME_step` per operand, vec4<u32> each."""
        lead = [1] * (MOST_AXES - len(self.lead)) + list(self.lead)
        return lead + [w for step in self.steps for w in [0] * (MOST_AXES - len(step)) + list(step)]


def place(number: str, **bases: str) -> str:
    """WGSL: `index`, problem `number`'s place along the axes, and a variable for where it begins in each operand."""
    lines = [
        "let lead = sizes.lead;",
        f"let index = vec4<u32>({number} / (lead.y * lead.z * lead.w), {number} / (lead.z * lead.w) % lead.y,",
        f"                      {number} / lead.w % lead.z, {number} % lead.w);",
    ]
    lines += [f"let {base} = dot(index, sizes.{step});" for base, step in bases.items()]
    return "".join(f"    {line}\n" for line in lines)


def stack(whole: Shape, leads: Sequence[Shape], elements: Sequence[int]) -> Stack | None:
    """Leading axes `leads` of operands with so many elements per problem, which are broadcast to `whole`.

    None where they are not, or where more than four axes remain after merging neighbours.
    """
    common = stacked(whole, leads, elements)
    if common is None or len(common[0]) > MOST_AXES:
        return None
    return Stack(*common, (None,) * len(leads))


def parts(
    op: str, whole: Stack, sizes: Sequence[int], out: int, limits: Limits, most: int = 0, spare: Sequence[int] = ()
) -> Iterator[Stack]:
    """All of it, or as many problems at a time as bindings hold and `most` allows (0: any number).

    sizes, out: bytes per problem of each operand and of the result.  spare: bytes per problem of other bound arrays.
    KernelError where neither the whole nor bands of one axis can be bound.
    """
    reach = [
        size + sum((n - 1) * step * 4 for n, step in zip(whole.lead, steps, strict=True))
        for size, steps in zip(sizes, whole.steps, strict=True)
    ]
    count = whole.count
    fits = max([*reach, count * out, *(count * size for size in spare)]) <= limits.binding
    if fits and count <= (most or count):
        yield whole
        return
    if len(whole.lead) != 1:
        if fits:  # more work at once than is wished for, but bound
            yield whole
            return
        raise KernelError(
            f"{op}: operands that are broadcast along {len(whole.lead)} axes need {max(*reach, count * out)} bytes in "
            f"one binding, and this adapter binds {limits.binding}; call it for parts of the leading axes"
        )
    each = tuple(size if steps[0] else 0 for size, steps in zip(sizes, whole.steps, strict=True))
    for first, some in bands(op, "the leading axis", count, (*each, out, *spare), limits, most):
        operands = tuple(Band(first, some, size) if size else None for size in each)
        yield replace(whole, lead=(some,), operands=operands, out=Band(first, some, out))
