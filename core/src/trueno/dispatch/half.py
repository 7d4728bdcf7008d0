"""16-bit floats: storage types, in which no op computes.

An op on float16 or bfloat16 is the float32 op on the widened operands, and each floating result is rounded once, to
nearest even, to the operands' type (docs/adr/0013).  bfloat16 is `ml_dtypes.bfloat16`, identified by its name: an array
of it proves that the package is installed, and no other code needs it.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.ops.op import Op

NAMES = ("float16", "bfloat16")
FLOATS = (np.float32, np.float64)
WIDE = np.dtype(np.float32)
TAKEN = "float32, float64, float16 and bfloat16 are accepted"


def is_half(dtype: np.dtype[Any]) -> bool:
    """Whether `dtype` is a 16-bit float."""
    return dtype.itemsize == 2 and dtype.name in NAMES


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether ops accept `dtype` for numbers, in native byte order or not."""
    return dtype.type in FLOATS or is_half(dtype)


def widened(op: Op, operands: list[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """The operands converted exactly to float32, with one new array for each; indices stay unchanged."""
    copies: dict[int, npt.NDArray[Any]] = {}
    for spec, x in zip(op.signature.inputs, operands, strict=True):
        if id(x) not in copies:
            copies[id(x)] = x if spec.type else x.astype(WIDE)
    return [copies[id(x)] for x in operands]


def put(x: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
    """Copy `x` into `out`, rounded to its type; values beyond the largest number become Inf."""
    with np.errstate(all="ignore"):
        np.copyto(out, x)


def rounded(x: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """A copy of `x`, rounded to `dtype`."""
    with np.errstate(all="ignore"):
        return x.astype(dtype)
