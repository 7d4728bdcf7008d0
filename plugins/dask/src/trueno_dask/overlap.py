"""Convolution: every chunk of x is computed with the rows and columns of its neighbours that the kernel reaches."""

from math import isnan
from typing import Any

import dask.array as da
import numpy as np
from dask.array.overlap import ensure_minimum_chunksize
from dask.array.overlap import overlap as overlapped

from trueno_dask.layers import Chunks, Label, Labelled, aligned, blocks
from trueno_dask.request import Request, refused, whole
from trueno_dask.task import Call

REACH = "the kernel reaches over all of it"


class Convolve(Call):
    """A chunk of x with its surroundings.

    skip: rows and columns before what the kernel reaches.  pad: zeros before and after, along an axis of one chunk.
    """

    __slots__ = ("pad", "skip")

    def __init__(self, *facts: Any, skip: tuple[int, ...], pad: tuple[tuple[int, int], ...]) -> None:
        super().__init__(*facts)
        self.skip, self.pad = skip, pad

    def compute(self, blocks: list[Any], place: Any) -> Any:
        """The chunk of the result."""
        x, kernel = blocks
        x = x[..., self.skip[0] :, self.skip[1] :]
        if any(map(any, self.pad)):
            x = np.pad(x, [(0, 0)] * (x.ndim - 2) + list(self.pad))
        return super().compute([x, kernel], place)


def run(request: Request) -> da.Array:
    """The lazy result of convolve2d."""
    x, kernel = request.arrays[0], request.arrays[1]
    if request.unknown:
        raise refused(request, "surroundings need sizes of chunks that are known; call compute_chunk_sizes() first")
    many = x.ndim == 3
    for i, axes in ((0, (0,) if many else ()), (1, (1, 2, 3) if many else (0, 1))):
        for axis in axes:
            whole(request, i, axis, REACH if i else "every result sums over it")
    sizes = tuple(int(n) for n in kernel.shape[-2:])
    same = request.scalars["mode"] == "same"
    chunks = [_chunks(c, size, same) for c, size in zip(x.chunks[-2:], sizes, strict=True)]
    x = x.rechunk((*x.chunks[:-2], *chunks))
    axes = (x.ndim - 2, x.ndim - 1)
    cut = [len(c) > 1 for c in chunks]
    depth = {axis: (n // 2 if same else (0, n - 1)) if several else 0
             for axis, n, several in zip(axes, sizes, cut, strict=True)}  # fmt: skip
    around = overlapped(x, depth, dict.fromkeys(axes, 0 if same else "none"), allow_rechunk=False)
    skip = tuple(n // 2 - (n - 1) // 2 if same and several else 0 for n, several in zip(sizes, cut, strict=True))
    pad = tuple(
        ((n - 1) // 2, n // 2) if same and not several else (0, 0) for n, several in zip(sizes, cut, strict=True)
    )
    facts = (request.op.name, request.scopes, request.numbers, {**request.scalars, "mode": "valid"})
    operands = [
        Labelled(around, (*"c" * many, "h", "w")),
        Labelled(kernel, ("o", "c", "p", "q") if many else ("p", "q")),
    ]
    operands, known = aligned(request.op.name, operands)
    result: dict[Label, Chunks] = {
        label: c if same else (*c[:-1], c[-1] - n + 1) for label, c, n in zip("hw", chunks, sizes, strict=True)
    }
    labels = ("o", "h", "w") if many else ("h", "w")
    task = Convolve(*facts, skip=skip, pad=pad)
    return blocks(task, request.name(), labels, operands, known, request.meta(0, len(labels)), result)


def _chunks(chunks: tuple[float, ...], size: int, same: bool) -> Chunks:
    """Chunks that hold what their neighbours need of them, the last one at least one result."""
    filled = tuple(int(n) for n in chunks if n and not isnan(n)) or (0,)
    if sum(filled) < size:  # of mode "same" alone
        return (sum(filled),)
    kept = list(ensure_minimum_chunksize(max(size // 2 if same else size - 1, 1), filled))
    while len(kept) > 1 and kept[-1] < size:
        kept[-2:] = [kept[-2] + kept[-1]]
    return tuple(int(n) for n in kept)
