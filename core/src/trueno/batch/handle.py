"""Handles: placeholders that a batch returns for arrays that do not exist yet."""

from math import prod
from typing import Any, NoReturn, Protocol

import numpy as np

from trueno.batch.views import reshaped
from trueno.hints import product


class Owner(Protocol):
    """The batch of a handle."""

    name: str
    _closed: bool

    def _view(self, h: "Handle", shape: tuple[int, ...]) -> "Handle": ...


class Handle:
    """An upload or a result of one batch: it has `shape` and `dtype`, and cannot be used outside of that batch.

    Pass it to the batch's ops (`b.relu(h)`), or write `h + 1.0`, which records `b.add(h, 1.0)`; `b.read(h)` gives its
    array once the batch has been executed.  blocks, columns: those of its value in the graph.
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

    def __add__(self, other: "Handle | float") -> "Handle":
        return self._op("add", self, other)

    def __radd__(self, other: "Handle | float") -> "Handle":
        return self._op("add", other, self)

    def __sub__(self, other: "Handle | float") -> "Handle":
        return self._op("sub", self, other)

    def __rsub__(self, other: "Handle | float") -> "Handle":
        return self._op("sub", other, self)

    def __mul__(self, other: "Handle | float") -> "Handle":
        return self._op("mul", self, other)

    def __rmul__(self, other: "Handle | float") -> "Handle":
        return self._op("mul", other, self)

    def __truediv__(self, other: "Handle | float") -> "Handle":
        return self._op("div", self, other)

    def __rtruediv__(self, other: "Handle | float") -> "Handle":
        return self._op("div", other, self)

    def __pow__(self, other: "Handle | float") -> "Handle":
        return self._op("pow", self, other)

    def __rpow__(self, other: "Handle | float") -> "Handle":
        return self._op("pow", other, self)

    def __neg__(self) -> "Handle":
        return self._op("neg", self)

    def __abs__(self) -> "Handle":
        return self._op("abs", self)

    def __matmul__(self, other: "Handle") -> "Handle":
        """The product of two handles: dot, vecmat, matvec, matmul or batched_matmul, by their ranks."""
        return self._times(self, other)

    def __rmatmul__(self, other: "Handle") -> "Handle":
        return self._times(other, self)  # the batch's error for what is not a handle

    def _op(self, name: str, *operands: "Handle | float") -> "Handle":
        """Record an op: the batch's error for an operand that it does not take."""
        return getattr(self.batch, name)(*operands)  # type: ignore[no-any-return]

    def _times(self, left: "Handle", right: "Handle") -> "Handle":
        if any(isinstance(x, Handle) and x._format for x in (left, right)):
            return NotImplemented  # type: ignore[no-any-return]  # a product with blocks has a name of its own
        ranks = [getattr(x, "ndim", 0) for x in (left, right)]
        return self._op(product(ranks) if min(ranks) else "matmul", left, right)

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a handle holds no array: b.execute(), then b.read(h)")

    def __bool__(self) -> NoReturn:
        raise TypeError("a handle has no truth value: its batch has not been read; b.read(h) gives the array")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a handle belongs to its batch and cannot be pickled or copied; b.read(h) gives the array")

    def __repr__(self) -> str:
        return f"<handle {self.value} of {self.batch.name}: {self.shape} {self.dtype}>"
