"""Handles: what a batch gives out for arrays that are not there yet."""

from math import prod
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

if TYPE_CHECKING:
    from trueno.batch.record import Batch


class Handle:
    """An upload or a result of one batch: `shape`, `dtype`, and nothing to compute with outside of that batch.

    `b.relu(h)` goes on with it, `b.read(h)` gives its array once the batch has been executed.
    """

    __slots__ = ("__weakref__", "batch", "dtype", "shape", "value")
    __array_ufunc__ = None  # NumPy's operators give up at once

    def __init__(self, batch: "Batch", value: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.batch = batch
        self.value = value
        self.shape = shape
        self.dtype = dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def _blocks(self) -> "tuple[Handle, str, bool] | None":
        """What a QuantizedMatrix says of itself, if this stands for quantized rows."""
        value = self.batch._graph.values[self.value]
        return (self, value.blocks, value.columns) if value.blocks else None

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a handle holds no array: b.execute(), then b.read(h)")

    def __bool__(self) -> NoReturn:
        raise TypeError("a handle has no truth value: its batch has not been read; b.read(h) gives the array")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a handle belongs to its batch and cannot be pickled or copied; b.read(h) gives the array")

    def __repr__(self) -> str:
        return f"<handle {self.value} of {self.batch.name}: {self.shape} {self.dtype}>"
