"""Layers of Dask's graph: a task for each chunk, and trees of tasks.

Axes have labels: equal labels of two operands are one axis.  A layer of one task per chunk is a `Blockwise` of Dask, so
that Dask fuses chains of them, and no layer holds data.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import isnan
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask import config
from dask.array.core import unify_chunks
from dask.highlevelgraph import HighLevelGraph
from trueno.errors import ShapeError

from trueno_dask.task import Item, Place, Task

Label = Any
Labels = tuple[Label, ...]
Chunks = tuple[int, ...]
OBJECT = np.dtype(object)


class Labelled(NamedTuple):
    """An array and a label for each of its axes.  name: what an error calls it."""

    array: da.Array
    labels: Labels
    name: str = "an operand"


def aligned(op: str, operands: Sequence[Labelled]) -> tuple[list[Labelled], dict[Label, Chunks]]:
    """The operands with equal chunks along equal labels, and these chunks; ShapeError where they cannot be equal."""
    pairs = [part for x in operands for part in (x.array, x.labels)]
    try:
        chunks, arrays = unify_chunks(*pairs)
    except ValueError as error:
        remedy = "call compute_chunk_sizes() of the operands, or rechunk them alike"
        raise ShapeError(f"{op}: chunks of the operands do not agree ({error}); {remedy}") from None
    return [x._replace(array=a) for a, x in zip(arrays, operands, strict=True)], dict(chunks)


def blocks(
    task: Any, name: str, labels: Labels, operands: Sequence[Labelled], chunks: Mapping[Label, Chunks], meta: Any,
    sizes: Mapping[Label, Chunks] | None = None,
) -> da.Array:  # fmt: skip
    """The array that has `labels`, with one task for each of its chunks.

    operands: aligned; chunks: theirs.  sizes: the result's, where they differ, or where only the result has the label.
    """
    sizes = sizes or {}
    place = Place(tuple(chunks[label] if label in chunks else sizes[label] for label in labels))
    pairs = [part for x in operands for part in (x.array, x.labels)]
    if isinstance(task, Task):
        task.alike = _alike(operands)
    new = {label: sizes[label] for label in labels if label not in chunks}
    adjusted = {label: n for label, n in sizes.items() if label in chunks}
    return da.blockwise(
        task, labels, *pairs, place, labels, name=name, meta=meta, dtype=meta.dtype, align_arrays=False,
        new_axes=new, adjust_chunks=adjusted or None, concatenate=None,
    )  # fmt: skip


def _alike(operands: Sequence[Labelled]) -> tuple[tuple[tuple[int, int, str], ...], ...]:
    """Of each label along which some size is unknown, the axes that must have one size: `Task.alike`.

    An axis of one element is broadcast if that is known, and only then: sizes that data decide are no reason to.
    """
    groups: dict[Label, list[tuple[int, int, str]]] = {}
    unknown: set[Label] = set()
    for i, x in enumerate(operands):
        for axis, (label, sizes) in enumerate(zip(x.labels, x.array.chunks, strict=True)):
            if x.array.dtype != OBJECT and sizes != (1,):
                groups.setdefault(label, []).append((i, axis, x.name))
                unknown |= {label} if any(map(isnan, sizes)) else set()
    return tuple(tuple(group) for label, group in groups.items() if label in unknown and len(group) > 1)


def objects(ndim: int) -> Any:
    """The meta of an array whose chunks are Python objects, which later tasks read."""
    return np.empty((0,) * ndim, OBJECT)


def item(base: Labelled, k: int, name: str, labels: Labels, meta: Any, sizes: Mapping[Label, Chunks]) -> da.Array:
    """Result `k` of tasks that return several; labels beyond those of `base` have one chunk, of these sizes."""
    new = {label: n for label, n in sizes.items() if label not in base.labels}
    adjusted = {label: n for label, n in sizes.items() if label in base.labels}
    return da.blockwise(
        Item(k), labels, base.array, base.labels, name=name, meta=meta, dtype=meta.dtype, align_arrays=False,
        new_axes=new, adjust_chunks=adjusted or None,
    )  # fmt: skip


def tree(
    parts: Labelled, over: Sequence[Label], merge: Callable[[list[Any]], Any], root: Callable[..., Any], name: str,
    chunks: Sequence[Chunks], meta: Any, beside: da.Array | None = None, keepdims: bool = False,
) -> da.Array:  # fmt: skip
    """The chunks of `parts` along the labels `over` merged in order, a few at a time; the result has the other labels.

    merge: of a list of chunks.  root: of the last list and of the chunk of `beside`, which has the result's labels.
    chunks, meta: of the result.  keepdims: whether it has the labels `over` as well, with one chunk.
    """
    array, labels = parts.array, parts.labels
    kept = [i for i, label in enumerate(labels) if label not in over]
    gone = [i for i, label in enumerate(labels) if label in over]
    few = max(2, int(config.get("split_every", 8)))
    graph: dict[Any, Any] = {}
    for at in product(*(range(array.numblocks[i]) for i in kept)):
        index = [0] * array.ndim
        keys = []
        for inner in product(*(range(array.numblocks[i]) for i in gone)):
            for i, k in (*zip(kept, at, strict=True), *zip(gone, inner, strict=True)):
                index[i] = k
            keys.append((array.name, *index))
        level = 0
        while len(keys) > few:
            level += 1
            merged = [(f"{name}-merge-{level}", *at, j) for j in range(-(-len(keys) // few))]
            for j, key in enumerate(merged):
                graph[key] = (merge, keys[j * few : (j + 1) * few])
            keys = merged
        extra = () if beside is None else ((beside.name, *at),)
        number = list(at)
        for i in gone if keepdims else ():
            number.insert(i, 0)
        graph[(name, *number)] = (root, keys, *extra, number)
    needs = [array] if beside is None else [array, beside]
    layers = HighLevelGraph.from_collections(name, graph, dependencies=needs)
    return da.Array(layers, name, tuple(chunks), meta=meta)
