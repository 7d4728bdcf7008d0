"""How far the tensors of one file are from those of another: the error of a quantization, tensor by tensor.

Sums are in float64, over a part of a tensor at a time, so that memory does not grow with the files.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, nan, prod, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.dispatch.function import function
from trueno.errors import DtypeError, FileError
from trueno.gguf.file import READ, File, Tensor
from trueno.quant.matrix import QuantizedMatrix

PART = 1 << 19
"""Elements that are compared at a time."""
NAMED = 3
"""The most tensors that an error names."""


@dataclass(slots=True)
class Sums:
    """Of the elements a of one file and b of the other: Σ(a−b)², Σa², Σb², Σab, the largest |a−b|, how many."""

    squares: float = 0.0
    a: float = 0.0
    b: float = 0.0
    product: float = 0.0
    max: float = 0.0
    count: int = 0

    def add(self, a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> None:
        """Count some elements; NaN and infinities make the sums NaN or infinite."""
        off = a - b
        self.squares += float(off @ off)
        self.a += float(a @ a)
        self.b += float(b @ b)
        self.product += float(a @ b)
        self.max = float(np.maximum(self.max, np.max(np.abs(off), initial=0.0)))  # keeps NaN
        self.count += a.size

    def join(self, other: "Sums") -> None:
        """Count what another one has counted."""
        for name in ("squares", "a", "b", "product", "count"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.max = float(np.maximum(self.max, other.max))

    @property
    def rmse(self) -> float:
        """The root of the mean squared error."""
        return sqrt(self.squares / self.count) if self.count else 0.0

    @property
    def nmse(self) -> float:
        """Σ(a−b)² / Σa², as ggml's tests measure it; infinite where a is 0 and b is not."""
        return self.squares / self.a if self.a else (inf if self.squares else 0.0)

    @property
    def cosine(self) -> float:
        """Σab / √(Σa² Σb²); 1 if both are 0, NaN if one of them is."""
        if self.a and self.b:
            return self.product / sqrt(self.a) / sqrt(self.b)
        return 1.0 if self.a == self.b else nan


@dataclass(slots=True)
class Compared:
    """One tensor in both files: ggml's types in lower case, bytes, and sums."""

    name: str
    shape: tuple[int, ...]
    before: str
    after: str
    bytes_before: int
    bytes_after: int
    sums: Sums


def pairs(a: File, b: File) -> list[tuple[Tensor, Tensor]]:
    """The tensors of both files by name; FileError unless both have the same names with the same shapes."""
    for one, other in ((a, b), (b, a)):
        missing = [name for name in one.tensors if name not in other.tensors]
        if missing:
            named = ", ".join(map(repr, missing[:NAMED])) + f" and {len(missing) - NAMED} more" * (len(missing) > NAMED)
            raise FileError(f"{other.path}: tensors of {one.path} are missing: {named}; give two files of one model")
    found = [(a.tensors[name], b.tensors[name]) for name in a.tensors]
    for x, y in found:
        if x.shape != y.shape:
            shapes = " and ".join("×".join(map(str, t.shape)) for t in (x, y))
            raise FileError(f"{b.path}: tensor {x.name!r} differs in shape: {shapes}; give two files of one model")
        for model, t in ((a, x), (b, y)):
            if t.type not in READ:
                raise DtypeError(f"{model.path}: tensor {t.name!r} is in {t.type}, which cannot be read here")
    return found


def compare(x: Tensor, y: Tensor, each: Callable[[int], Any] = lambda count: None) -> Compared:
    """The error of `y` against `x`; `each` is called with the elements of every part that was compared."""
    sums = Sums()
    width = x.shape[-1] if x.shape else 1
    rows, step = prod(x.shape[:-1]), max(PART // max(width, 1), 1)
    with np.errstate(all="ignore"):
        for start in range(0, rows, step):
            a, b = (_wide(t.rows(start, min(start + step, rows))) for t in (x, y))
            sums.add(a, b)
            each(a.size)
    return Compared(x.name, x.shape, x.type, y.type, x.nbytes, y.nbytes, sums)


def _wide(part: Any) -> npt.NDArray[np.float64]:
    if isinstance(part, QuantizedMatrix):
        part = function("dequantize")(part)
    return np.asarray(part, np.float64).ravel()
