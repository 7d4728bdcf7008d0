"""Float32 arithmetic as ggml's C does it on x86-64, for many blocks at once.

Encoders are compared byte for byte, so every rounding counts: sums run from the first element to the last, in
float32; products associate as in C; conversions to integers do what the machine's instruction does, out of range too.
Arrays of this family are [n, s]: element i of every group of n is in row i, and s groups are processed in lockstep.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Halves = npt.NDArray[np.float16]
Bools = npt.NDArray[np.bool_]

T = TypeVar("T", bound=np.generic)

CHUNK = 1 << 17
"""Elements encoded at a time: the temporaries of the widest search then fit into 32 MB."""


@dataclass(frozen=True, slots=True)
class Importance:
    """An importance matrix for some blocks: a weight of each element, float32 [blocks, elements], and the
    mean of x² over the row that each block is of, float32 [blocks]."""

    weights: Floats
    row_mean: Floats


def chunks(n: int, elements: int) -> Iterator[tuple[int, int]]:
    """Ranges of n blocks of `elements` each, CHUNK elements per range."""
    step = max(1, CHUNK // elements)
    for start in range(0, n, step):
        yield start, min(n, start + step)


def nearest_int(x: Floats) -> Ints:
    """Half to even; by adding 1.5 · 2²³, as ggml's function of this name: beyond 2²² it wraps as ggml's does."""
    return ((x + np.float32(12582912)).view(np.int32) & 0x007FFFFF) - 0x00400000


def to_int(x: Floats) -> Ints:
    """Toward zero; NaN and values out of range become −2³¹, as in the machine's conversion."""
    return np.where(np.abs(x) < 2147483648.0, x, np.float32(-2147483648.0)).astype(np.int32)


def half_away(x: Floats) -> Floats:
    """C's roundf."""
    whole = np.trunc(x)
    return whole + np.copysign((np.abs(x - whole) >= 0.5).astype(np.float32), x)


def half(x: Floats) -> Halves:
    """To float16, half to even; values out of range become Inf."""
    return x.astype(np.float16)


def total(terms: Floats) -> Floats:
    """Σ over the rows of terms[n, s], in order from the first row, starting at 0."""
    sums = np.zeros(terms.shape[1:], np.float32)
    for row in terms:
        sums += row
    return sums


def peak(x: Floats) -> tuple[Floats, Floats]:
    """The element of largest magnitude of each group (the first of equals, +0 if all are zero), and its magnitude."""
    largest = np.zeros(x.shape[1:], np.float32)
    signed = np.zeros(x.shape[1:], np.float32)
    for row, size in zip(x, np.abs(x), strict=True):
        better = size > largest
        np.copyto(largest, size, where=better)
        np.copyto(signed, row, where=better)
    return signed, largest


def reciprocal(d: Floats) -> Floats:
    """1 / d, and 0 where d is 0."""
    return np.where(d != 0, np.float32(1) / d, np.float32(0))


def in_lockstep(blocks: Floats, n: int) -> Floats:
    """blocks[b, elements] as groups of n: [n, b · groups]."""
    return np.ascontiguousarray(blocks.reshape(-1, n).T)


def in_blocks(found: npt.NDArray[T], elements: int) -> npt.NDArray[T]:
    """The inverse of the above: [n, b · groups] as [b, elements]."""
    return np.ascontiguousarray(found.T).reshape(-1, elements)


def emphasis(weights: Floats, x: Floats, mean: Floats) -> Floats:
    """Weights of the error under an importance matrix: weights · √(mean + x²), the mean of x² around each group."""
    scaled: Floats = weights * np.sqrt(mean + x * x)
    return scaled


def lowest(x: Floats) -> Floats:
    """The least element of each group, the first of equals (−0 and +0 are)."""
    minima: Floats = x[0].copy()
    for row in x[1:]:
        np.copyto(minima, row, where=row < minima)
    return minima
