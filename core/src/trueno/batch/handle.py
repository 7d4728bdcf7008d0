"""Handles: placeholders that a batch returns for arrays that do not exist yet."""

from math import prod
from typing import Any, NoReturn, Protocol

import numpy as np

from trueno.batch.views import reshaped


class Owner(Protocol):
    """The batch of a handle."""

    name: str
    _closed: bool

    def _view(self, h: "Handle", shape: tuple[int, ...]) -> "Handle": ...


class Handle:
    """An upload or a result of one batch: it has `shape` and `dtype`, and cannot be used outside of that batch.

    Pass it to the batch's ops (`b.relu(h)`); `b.read(h)` gives its array once the batch has been executed.  blocks,
    columns: those of its value in the graph.
    """

    __slots__ = ("__weakref__", "_columns", "_format", "batch", "dtype", "shape", "value")
    __array_ufunc__ = None  # NumPy's operators raise at once

    def __init__(
        self, batch: Owner, value: int, shape: tuple[int, ...], dtype: np.dtype[Any], blocks: str, columns: bool
    ) -> None:
        self.batch = batch
        self.value = value
        self.shape = shape
        self.dtype = dtype
        self._format = blocks
        self._columns = columns

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def _blocks(self) -> "tuple[Handle, str, bool] | None":
        """The QuantizedMatrix fields, if this handle is for quantized rows."""
        return (self, self._format, self._columns) if self._format else None

    def reshape(self, shape: tuple[int, ...]) -> "Handle":
        """The same elements under another shape, in which -1 is what remains; no kernel runs and nothing is copied."""
        return self.batch._view(self, reshaped(self.shape, shape))

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a handle holds no array: b.execute(), then b.read(h)")

    def __bool__(self) -> NoReturn:
        raise TypeError("a handle has no truth value: its batch has not been read; b.read(h) gives the array")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a handle belongs to its batch and cannot be pickled or copied; b.read(h) gives the array")

    def __repr__(self) -> str:
        return f"<handle {self.value} of {self.batch.name}: {self.shape} {self.dtype}>"
