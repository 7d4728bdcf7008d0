"""What is known of rows from some of their chunks, and how two such parts become one.

Parts hold one number per row, in float64 beside a number for what rounding has lost, so that a tree of merges adds
nothing visible to the error of the op itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from trueno.programs.fused import two_sum

from trueno_dask.folds.split import Fold

Array = npt.NDArray[Any]
Values = tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class Partial:
    """A stage's folds over some chunks of rows.

    n: the elements of a row in these chunks; where it is 0, there are no values.  values: of each fold, shaped as the
    leading axes.  found: bits of what the operands hold, 1 a NaN, 2 an Inf; only if a guard is in force.
    """

    kinds: tuple[str, ...]
    n: int
    values: tuple[Values, ...]
    lead: tuple[int, ...]
    found: int = 0


def of_chunk(fold: Fold, results: Sequence[Array], n: int) -> Values:
    """The values of a fold from the results of a chunk's part."""
    if fold.kind == "moment":
        return _moment([np.asarray(r, np.float64) for r in results], n)
    if fold.kind == "shifted":
        return tuple(np.asarray(r, np.float64) for r in results)
    if fold.kind == "sum":
        return np.asarray(results[0], np.float64), np.zeros(results[0].shape)
    return tuple(results)


def _moment(results: list[Array], n: int) -> Values:
    """A centre and the mean's distance from it for each operand, and the sum of products about the means."""
    many = len(results) // 2
    centres, totals, products = results[:many], results[many:-1], results[-1]
    with np.errstate(all="ignore"):
        moved = totals[0] * totals[-1] / n
        products = products - np.where(np.isfinite(moved), moved, 0.0)  # else they have overflowed as well
        if many == 1:
            products = np.maximum(products, 0.0)  # which rounding alone would make negative
        return *centres, *(np.where(np.isfinite(t), t / n, 0.0) for t in totals), products


def merged(parts: Sequence[Partial]) -> Partial:
    """Several parts, in the order of their chunks along the rows, as one."""
    found = 0
    for part in parts:
        found |= part.found
    full = [part for part in parts if part.n] or list(parts[:1])
    whole = full[0]
    n, values = whole.n, list(whole.values)
    with np.errstate(all="ignore"):
        for part in full[1:]:
            sizes = (n, part.n)
            values = [MERGES[k](a, b, *sizes) for k, a, b in zip(whole.kinds, values, part.values, strict=True)]
            n += part.n
    return Partial(whole.kinds, n, tuple(values), whole.lead, found)


def _sums(a: Values, b: Values, *_: int) -> Values:
    total, lost = two_sum(a[0], b[0])
    return total, a[1] + b[1] + np.where(np.isfinite(total), lost, 0.0)


def _moments(a: Values, b: Values, n: int, more: int) -> Values:
    many = len(a) // 2
    shifts = [(b[k] - a[k]) + (b[many + k] - a[many + k]) for k in range(many)]
    rest = [a[many + k] + shift * (more / (n + more)) for k, shift in enumerate(shifts)]
    return *a[:many], *rest, a[-1] + b[-1] + shifts[0] * shifts[-1] * (n * (more / (n + more)))


def _shifted(a: Values, b: Values, *_: int) -> Values:
    top = np.maximum(a[0], b[0])

    def below(part: Values) -> Array:
        """Its sum below the common maximum: what lies infinitely far below it is 0, though its own sum is NaN."""
        same, gone = part[0] == top, (part[0] == -np.inf) & (top > -np.inf)
        return np.where(gone, 0.0, part[1] * np.where(same, 1.0, np.exp(part[0] - top)))

    return top, below(a) + below(b)


def _position(better: Callable[[Array, Array], Array]) -> Callable[..., Values]:
    def merge(a: Values, b: Values, n: int, _: int) -> Values:
        (i, x), (j, y) = a, b
        take = better(y, x) | (np.isnan(y) & ~np.isnan(x))
        return np.where(take, j + n, i), np.where(take, y, x)

    return merge


def _place(better: Callable[[Array, Array], Array]) -> Callable[..., Values]:
    """As `_position`, of places in the whole array, in any order."""

    def merge(a: Values, b: Values, *_: int) -> Values:
        (i, x), (j, y) = a, b
        both = np.isnan(x) & np.isnan(y)
        take = better(y, x) | (np.isnan(y) & ~np.isnan(x)) | (((x == y) | both) & (j < i))
        return np.where(take, j, i), np.where(take, y, x)

    return merge


MERGES: dict[str, Callable[..., Values]] = {
    "sum": _sums,
    "fsum": _sums,
    "prod": lambda a, b, *_: (a[0] * b[0],),
    "max": lambda a, b, *_: (np.maximum(a[0], b[0]),),
    "min": lambda a, b, *_: (np.minimum(a[0], b[0]),),
    "any": lambda a, b, *_: (np.maximum(a[0], b[0]),),
    "all": lambda a, b, *_: (np.minimum(a[0], b[0]),),
    "argmax": _position(np.greater),
    "argmin": _position(np.less),
    "argmax everywhere": _place(np.greater),
    "argmin everywhere": _place(np.less),
    "moment": _moments,
    "shifted": _shifted,
}
"""By kind of fold: the values of two parts, and the elements of a row in each, as the values of both."""


def settled(kind: str, values: Values, dtype: np.dtype[Any]) -> Array:
    """The value of a fold of whole rows, in the dtype of its node."""
    with np.errstate(all="ignore"):
        if kind in ("sum", "fsum"):
            total, lost = values
            return np.where(np.isfinite(total), total + lost, total).astype(dtype)
        if kind.startswith("arg"):
            return np.asarray(values[0], np.int64)
        return np.asarray(values[-1]).astype(dtype)
