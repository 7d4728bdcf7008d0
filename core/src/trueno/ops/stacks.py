"""Stacks of matrices with broadcast leading axes: the offset of each matrix of an operand, over few axes."""

from collections.abc import Sequence


def leading(lead: Sequence[int], whole: Sequence[int], elements: int) -> list[int] | None:
    """Elements between neighbours along each leading axis of an operand that is broadcast to `whole`; None if not."""
    if len(lead) > len(whole):
        return None
    gaps, step = [0] * len(whole), elements
    for axis in range(1, len(lead) + 1):
        if lead[-axis] not in (1, whole[-axis]):
            return None
        gaps[-axis] = step if lead[-axis] > 1 else 0
        step *= lead[-axis]
    return gaps


def merged(whole: Sequence[int], *gaps: Sequence[int]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Fewer leading axes that visit the same offsets: neighbours are merged where every operand allows it."""
    lead: list[int] = []
    strides: list[list[int]] = [[] for _ in gaps]
    for axis, size in enumerate(whole):
        if size == 1:
            continue
        if lead and all(f[-1] == g[axis] * size for f, g in zip(strides, gaps, strict=True)):
            lead[-1] *= size
            for f, g in zip(strides, gaps, strict=True):
                f[-1] = g[axis]
        else:
            lead.append(size)
            for f, g in zip(strides, gaps, strict=True):
                f.append(g[axis])
    return tuple(lead), [tuple(f) for f in strides]
