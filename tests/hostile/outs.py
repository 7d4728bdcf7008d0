"""`out=` of every kind, right and wrong, with watched memory around it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .arrays import Odd

OUTS = ("none", "fresh", "strided", "reversed", "Fortran", "unaligned", "operand", "shifted", "subclass", "wrong")
GUARD = 0x5A


@dataclass
class Outs:
    """What is given as `out`; `wrong`: the call must fail, `overlaps`: operands may change."""

    given: Any = None
    wrong: bool = False
    overlaps: bool = False
    watched: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)

    def check(self) -> None:
        """Assert that nothing beside the arrays was written."""
        for raw, beside in self.watched:
            assert (raw[beside] == GUARD).all(), "memory beside out was written"


def _buffer(shape: tuple[int, ...], dtype: np.dtype, how: str, made: Outs, rng: np.random.Generator) -> np.ndarray:
    """An array inside watched memory."""
    size, item = int(np.prod(shape, dtype=int)), dtype.itemsize
    step = int(rng.integers(2, 4)) if how == "strided" else 1
    odd = int(rng.integers(1, item)) if how == "unaligned" and item > 1 else 0
    raw = np.full(128 * item + size * item * step + odd, GUARD, np.uint8)
    start = 64 * item + odd
    strides = np.array([int(np.prod(shape[i + 1 :], dtype=int)) for i in range(len(shape))], int) * item * step
    if how == "Fortran":
        strides = np.array([int(np.prod(shape[:i], dtype=int)) for i in range(len(shape))], int) * item
    view = np.ndarray(shape, dtype, raw.data, start, tuple(int(s) for s in strides))
    if how == "reversed":
        view = view[(..., *(slice(None, None, -1) for _ in shape))]
    beside = np.ones(raw.size, bool)
    spread = np.ndarray((size * step, item), bool, beside.data, start)
    spread[::step] = False
    made.watched.append((raw, beside))
    return view.view(Odd) if how == "subclass" else view


def outs(
    rng: np.random.Generator, how: str, wanted: list[tuple[tuple[int, ...], np.dtype]], operands: list[Any]
) -> Outs:
    """`out` of kind `how` for results of these shapes and dtypes."""
    made = Outs()
    if how == "none":
        return made
    if how in ("operand", "shifted"):
        return _over(how, wanted, operands) or outs(rng, "fresh", wanted, operands)
    arrays: list[Any] = [_buffer(s, t, how, made, rng) for s, t in wanted]
    if how == "wrong":
        made.wrong, k = True, int(rng.integers(len(arrays)))
        arrays[k] = _wrong(rng, *wanted[k])
        if len(arrays) > 1 and rng.random() < 0.3:
            arrays = arrays[:1]
    made.given = tuple(arrays) if len(wanted) > 1 else arrays[0]
    return made


def _wrong(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    good = np.zeros(shape, dtype)
    still = good.copy()
    still.flags.writeable = False
    other = np.float64 if dtype != np.float64 else np.float32
    choices = [
        np.zeros((*shape, 2), dtype), np.zeros((*shape, 1), dtype), np.zeros([n + 1 for n in shape] or [2], dtype),
        np.zeros(shape, other), np.zeros(shape, np.complex64), np.zeros(shape, object), np.zeros(shape, np.int8),
        np.ma.masked_array(good), still, good.tolist() or [0.0], "out", 3, object(), np.float32(1), good.tobytes(), {},
    ]  # fmt: skip
    if dtype.name != "bfloat16" and dtype.itemsize > 1:
        choices.append(np.zeros(shape, dtype.newbyteorder()))
    return choices[int(rng.integers(len(choices)))]


def _over(how: str, wanted: list[tuple[tuple[int, ...], np.dtype]], operands: list[Any]) -> Outs | None:
    """The first operand itself, or the same memory some elements on; None where that cannot be."""
    if len(wanted) > 1 or not isinstance(operands[0], np.ndarray):
        return None
    (shape, dtype), x = wanted[0], operands[0]
    if type(x) is not np.ndarray or not x.flags.writeable or x.dtype != dtype or not x.dtype.isnative:
        return None
    if how == "operand":
        if x.shape != shape or 0 in [s for s, n in zip(x.strides, x.shape, strict=True) if n > 1]:
            return None
        if np.lib.array_utils.byte_bounds(x)[1] - np.lib.array_utils.byte_bounds(x)[0] < x.nbytes:
            return None  # its elements overlap one another
        return Outs(x, overlaps=True)
    size = int(np.prod(shape, dtype=int))
    raw = np.zeros(x.size + size + 8, dtype)
    operands[0] = raw[4 : 4 + x.size].reshape(x.shape)
    operands[0][...] = x
    at = min(4 + max(1, size // 3), raw.size - size)
    return Outs(raw[at : at + size].reshape(shape), overlaps=True)
