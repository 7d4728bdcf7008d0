"""Lookups in a table of which the rows, or the numbers of a row, lie in several chunks.

Every chunk of the table is searched for the rows that it has, and what it finds is joined: no chunk of the result ever
waits for the whole table in one place.
"""

from math import isnan
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
import numpy.typing as npt
from trueno.deferred import Scopes, StandIn
from trueno.dispatch.function import function
from trueno.ops import TABLE
from trueno.ops.op import Op

from trueno_dask.layers import Labelled, Labels, aligned, blocks, objects, tree
from trueno_dask.request import Request, refused, whole
from trueno_dask.task import Task

Array = npt.NDArray[Any]


class Found(NamedTuple):
    """Rows of the result: their places in it, counted in C order, and themselves.  shape: of the indices."""

    places: Array
    rows: Array
    shape: tuple[int, ...]


class Look(Task):
    """The rows that a chunk of the table has.  table: the shape of the whole."""

    __slots__ = ("scalars", "table")

    def __init__(self, op: str, scopes: Scopes, scalars: dict[str, Any], table: tuple[int, ...]) -> None:
        super().__init__(op, scopes)
        self.scalars, self.table = scalars, table

    def compute(self, blocks: list[Any], place: Any) -> Found:
        """blocks: of the table and of the indices; the first axis of the place is that of the table's rows."""
        op = TABLE[self.op]
        table, i = blocks[0], np.asarray(blocks[1]).astype(np.int64)
        first = place[1][0]
        if first == 0 and op.check is not None:
            op.check(StandIn(self.table, table.dtype).array, i)
        here = (i >= first) & (i < first + len(table))
        rows = function(self.op)(table, i[here] - first, **self.scalars)
        return Found(np.flatnonzero(here), rows, i.shape)

    def where(self, place: Any) -> Any:
        """The place in the result, which has no axis of the table's rows."""
        number, start = place
        return number[1:], start and start[1:]


def fits(op: Op) -> bool:
    """Whether an op takes rows of its first operand by the indices that are its second."""
    inputs, outputs = op.signature.inputs, op.signature.outputs
    if len(inputs) != 2 or len(outputs) != 1 or op.chain or op.params[1:]:
        return False
    table, i = inputs
    indexed = i.index and i.leading and not i.dims and not table.leading and len(table.dims) == 2
    return indexed and outputs[0].leading and outputs[0].dims == table.dims[1:]


def cut(request: Request) -> bool:
    """Whether the table lies in several chunks."""
    return any(n > 1 for n in request.arrays[0].numblocks)


def run(request: Request) -> da.Array:
    """The lazy rows."""
    op, table, i = request.op, request.arrays[0], request.arrays[1]
    if any(map(isnan, table.shape)):
        raise refused(
            request, "the rows of a table need sizes of chunks that are known; call compute_chunk_sizes() first"
        )
    coded = bool(op.signature.inputs[0].blocks)
    if coded:
        whole(request, 0, 1, "bytes of a row belong together")
    lead: Labels = tuple(f"... {i.ndim - j}" for j in range(i.ndim))
    operands, chunks = aligned(op.name, [Labelled(table, ("v", "bytes" if coded else "d")), Labelled(i, lead)])
    width = request.checked.shapes[0][-1]
    sizes = {"d": (width,)} if coded else {}
    labels = ("v", *lead, "d")
    task = Look(op.name, request.scopes, request.scalars, tuple(int(n) for n in table.shape))
    parts = Labelled(blocks(task, request.name("parts"), labels, operands, chunks, objects(len(labels)), sizes), labels)
    result = [*(chunks[label] for label in lead), sizes.get("d") or chunks["d"]]
    return tree(parts, ("v",), together, placed, request.name(), result, request.meta(0, len(result)))


def together(parts: list[Found]) -> Found:
    """What several chunks of a table have."""
    places, rows = (np.concatenate([getattr(part, name) for part in parts]) for name in ("places", "rows"))
    return Found(places, rows, parts[0].shape)


def placed(parts: list[Found], number: Any) -> Array:
    """The rows in the order of the indices; each index is in one of the parts."""
    found = together(parts)
    y = np.empty((len(found.places), found.rows.shape[1]), found.rows.dtype)
    y[found.places] = found.rows
    return y.reshape(*found.shape, found.rows.shape[1])
