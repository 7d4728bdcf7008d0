"""What calls of kernels with several results, or with floats, have in common with `operands.called`: the checks."""

from collections.abc import Sequence
from typing import Any

from trueno_cuda.device.protocol import Device
from trueno_cuda.kernels.operands import VECTOR


def checked(device: Device, inputs: Sequence[Any], outs: Sequence[Any]) -> list[int] | None:
    """Addresses of operands, copied to C order where they are not in it, and of results.

    None where a result is not in C order, or overlaps an operand or another result.  The copies live until what follows
    is launched, as the stream reuses memory in its order.
    """
    laid = device.contiguous
    arrays = [laid(x) for x in (*inputs, *outs)]
    if any(laid_out is not out for laid_out, out in zip(arrays[len(inputs) :], outs, strict=True)):
        return None
    pointers = [x.data.ptr for x in arrays]
    ends = [p + x.nbytes for p, x in zip(pointers, arrays, strict=True)]
    for i in range(len(inputs), len(arrays)):
        for j in range(i):
            if pointers[j] < ends[i] and pointers[i] < ends[j]:
                return None
    return pointers


def wide(*pointers: int) -> bool:
    """Whether all of them allow the widest accesses."""
    together = 0
    for pointer in pointers:
        together |= pointer
    return together % VECTOR == 0
