"""Leading axes of an op's operands, which are broadcast, as few axes with the steps of each operand."""

from collections.abc import Sequence

from trueno.ops import stacks

Shape = tuple[int, ...]


def stacked(whole: Shape, leads: Sequence[Shape], elements: Sequence[int]) -> tuple[Shape, tuple[Shape, ...]] | None:
    """Fewest axes that visit all problems of `whole`, and of each operand the elements between neighbours along them.

    leads: leading axes of the operands, broadcast to `whole`; elements: of one problem, by operand.  A step is 0 where
    an operand is broadcast.  None if `leads` do not broadcast to `whole`, or `whole` has an axis that no operand has.
    """
    if not leads or len(whole) != max(map(len, leads)):
        return None
    gaps = [stacks.leading(lead, whole, size) for lead, size in zip(leads, elements, strict=True)]
    aligned = [(1,) * (len(whole) - len(lead)) + tuple(lead) for lead in leads]
    if None in gaps or any(size != 1 and all(a[i] == 1 for a in aligned) for i, size in enumerate(whole)):
        return None
    lead, steps = stacks.merged(whole, *(gap for gap in gaps if gap is not None))
    return lead, tuple(steps)
