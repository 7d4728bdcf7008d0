"""Selection: structured ops that rank the numbers of a row, so each body is NumPy code and defines the meaning."""

from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.ops.op import op

Array = npt.NDArray[Any]


def _ranked(x: Array, k: int) -> Array:
    """Positions of the k largest numbers of each row: NaN first, then descending; equal ones in order of position."""
    nan = np.isnan(x)
    return np.lexsort((-np.where(nan, 0, x), ~nan), axis=-1)[..., :k]


@op("x[...,n] -> values[...,k] indices[...,k]:index", structured=True, flops="rows*n", rules="1 <= k <= 1e18",
    extents=("k <= n",))  # fmt: skip
def topk(x, k: int = 1):
    """The k largest elements of each row, the largest first, and their positions, int64.

    Shapes: k values and k positions a row.
    Edges: equal elements in order of position, and +0 equals −0; NaN is larger than every number, so the first is that
    of argmax; bits are copied; k > n is a ShapeError.
    """
    indices = _ranked(x, k)
    return np.take_along_axis(x, indices, -1), indices
