"""Products over a symbol that lies in several chunks: partial sums of each chunk, added by a tree."""

from typing import Any

import dask.array as da
import numpy as np
from trueno.deferred import Scopes, inside
from trueno.dispatch.function import function
from trueno.errors import TruenoError

from trueno_dask.layers import Chunks, Label, Labelled, Labels, blocks, objects, tree
from trueno_dask.request import Request
from trueno_dask.task import Call, Task, located

WIDE = np.dtype(np.float32)


class Product(Call):
    """A product of chunks; of 16-bit floats in float32, so that a sum of several is rounded once."""

    __slots__ = ()

    def compute(self, blocks: list[Any], place: Any) -> Any:
        """The part of the sum that these chunks have."""
        halves = (x.dtype.itemsize == 2 and x.dtype.kind not in "iu" for x in blocks)
        widened = [x.astype(WIDE) if half else x for x, half in zip(blocks, halves, strict=True)]
        return super().compute(widened, place)


class Sum(Task):
    """The sum of parts.  dtype: of the result; None for that of the parts."""

    __slots__ = ("dtype",)

    def __init__(self, op: str, scopes: Scopes, dtype: Any) -> None:
        super().__init__(op, scopes)
        self.dtype = dtype

    def __call__(self, parts: list[Any], number: Any = None) -> Any:
        """parts: in order, and not changed."""
        with inside(self.scopes):
            try:
                total = parts[0]
                for i, part in enumerate(parts[1:]):
                    total = function("add")(total, part, out=total if i else None)
            except TruenoError as error:
                raise located(error, number and (tuple(number), None)) from error.__cause__
        return total if self.dtype is None else total.astype(self.dtype, copy=False)


def added(request: Request, labels: Labels, summed: Label, operands: list[Labelled], chunks: dict[Label, Chunks],
          sizes: dict[Label, Chunks], meta: Any) -> da.Array:  # fmt: skip
    """The sum over the chunks of `summed`; labels, sizes and meta: of the result."""
    op = request.op.name
    task = Product(op, request.scopes, request.numbers, request.scalars)
    cut = {**sizes, summed: (1,) * len(chunks[summed])}
    every = (summed, *labels)
    parts = Labelled(blocks(task, request.name("parts"), every, operands, chunks, objects(len(every)), cut), every)
    merge, root = Sum(op, request.scopes, None), Sum(op, request.scopes, request.checked.dtypes[0])
    result = [sizes[label] if label in sizes else chunks[label] for label in labels]
    return tree(parts, (summed,), merge, root, request.name(), result, meta)
