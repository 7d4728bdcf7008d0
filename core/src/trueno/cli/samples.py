"""One call of an op at a given size: typical operands that fit its signature, for any op.

Row programs get operands that repeat a short part, so that the judge, which works in float64 with bounds,
checks the short part once while the kernel computes every element.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.formats import lz4_samples
from trueno.formats.samples import random_rows
from trueno.ops.op import Op
from trueno.testing.cases import keywords, natural, rng_for

ROW = 1000  # elements per row
STACK = 4  # leading extent of structured operands that have one
WINDOW = 3  # extents of a filter
MOST_FLOPS = 2.1e9  # per structured call: a matmul of 1000³ fits, an eigenproblem that takes seconds does not


@dataclass(frozen=True)
class Sample:
    """`op(*operands, **kwargs)`; the operands repeat their first `1/repeat` along the first axis."""

    operands: tuple[npt.NDArray[Any], ...]
    kwargs: dict[str, Any]
    repeat: int = 1

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [x.shape for x in self.operands]


def sample(
    op: Op, dtype: npt.DTypeLike, size: int, seed: int = 0, *, parameters: dict[str, Any] | None = None
) -> Sample:
    """Operands of about `size` elements: exactly so for elementwise ops, the largest array for structured ones.

    parameters: values in place of the usual ones.
    """
    T, rng = np.dtype(dtype), rng_for(op, dtype, seed)
    kwargs = keywords(op)[0] | (parameters or {})
    if op.structured:
        return _structured(op, T, size, rng, parameters or {})
    if op.over is None:
        repeat = _repeat(size, 3000)
        base = [natural(op, rng, size // repeat).astype(T) for _ in op.operands]
        return Sample(tuple(np.tile(x, repeat) for x in base), kwargs, repeat)
    n, rows = min(size, ROW), max(size // ROW, 1)
    lead = (rows,) if rows > 1 else ()
    repeat = _repeat(rows, 16)
    short = (rows // repeat,) if lead else ()
    operands = []
    for letter in op.layout:
        shape = {"e": (*short, n), "w": (n,), "r": short}[letter]
        x = np.asarray(natural(op, rng, shape)).astype(T)
        operands.append(x if letter == "w" or not lead else np.tile(x, (repeat, *(1,) * (x.ndim - 1))))
    return Sample(tuple(operands), kwargs, repeat)


def _repeat(size: int, least: int) -> int:
    """The number of equal parts into which `size` may be cut.

    A power of two takes the twos out of the part, so that its copies start in different lanes of a vector.
    """
    parts = 1
    while size % (2 * parts) == 0 and size // (2 * parts) >= least:
        parts *= 2
    return parts


def _structured(op: Op, T: np.dtype[Any], size: int, rng: np.random.Generator, parameters: dict[str, Any]) -> Sample:
    if op.family == "compression":
        return _pages(op, size, rng, parameters)
    rank = max(len(s.dims) for s in (*op.signature.inputs, *op.signature.outputs))  # of the largest array
    stacked = op.shapes is None and any(s.leading and not s.index for s in op.signature.inputs)
    lead = (STACK,) if stacked else ()
    side = max(round((size / (STACK if stacked else 1)) ** (1 / max(rank, 1))), WINDOW if rank < 3 else 2)
    symbols = {d for s in op.signature.inputs for d in s.dims}

    def sizes(side: int) -> dict[str, int]:
        return {d: min(WINDOW, side) if d in "pq" else side for d in symbols}

    while side > 1 and op.flops(sizes(side), rows=STACK if stacked else 1) > MOST_FLOPS:
        side = side * 9 // 10
    static = {p.name: p.typical for p in op.params if not p.required or p.choices} | parameters
    while op.misfit(sizes(side), static):
        side += 1
    extents = sizes(side)
    operands: list[Any] = []
    for spec, held in zip(op.signature.inputs, op.held(extents, static), strict=True):
        shape = (*(lead if spec.leading and stacked else ()), *held)
        if spec.index:
            indices = rng.integers(0, len(operands[0]), shape or (side,))
            operands.append(np.sort(indices) if spec.name.startswith("offsets") else indices)
        elif spec.blocks:
            operands.append(random_rows(op.blocks(static), shape, rng))
        else:
            operands.append(natural(op, rng, shape).astype(T))
    if op.name in _SYMMETRIC:
        operands[0] = np.ascontiguousarray((operands[0] + operands[0].T) / 2)
    return Sample(tuple(operands), {**keywords(op)[0], **static})


def _pages(op: Op, size: int, rng: np.random.Generator, parameters: dict[str, Any]) -> Sample:
    """Pages of 4 KiB; one page for fewer bytes."""
    page = parameters.get("page", min(max(size, 1), 4096))
    more = {"page": page} if op.name == "lz4_decompress" else {}
    operands = lz4_samples.operands(op.name, lz4_samples.shapes(op.name, size, page), rng)
    return Sample(operands, {**keywords(op)[0], **parameters, **more})


_SYMMETRIC = {"symmetric_eigen"}
