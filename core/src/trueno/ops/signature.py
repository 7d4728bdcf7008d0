"""Signatures: `x[...,n] w[n] -> y[...,n]` states operands, ranks, shared sizes and results.

The notation is NumPy's gufunc notation with names.  `...` broadcasts as in NumPy.  A suffix marks what is not the
call's float: `i[...]:index` is an integer operand, `-> k[...]:index` an int64 result.  `w[n,k]:blocks` are quantized
rows: symbols count elements, while the array holds each row's blocks as uint8; `k[p,n,h,d]:cache` are rows of blocks or
of floats, of any rank; `x[n,p]:bytes` are bytes without a format.  A result's symbol that no operand has is a static
parameter: `x[...,n] -> values[...,k]` with `k: int`.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from trueno.errors import ShapeError, dimensions
from trueno.formats.table import Format
from trueno.hints import by_rank, unequal

_ARRAY = re.compile(r"(?P<name>[a-z_]\w*)\[(?P<dims>[^\]]*)\](?::(?P<type>index|blocks|cache|bytes))?")
DTYPES: dict[str, np.dtype[Any]] = {
    "index": np.dtype(np.int64),
    "blocks": np.dtype(np.uint8),
    "cache": np.dtype(np.uint8),
    "bytes": np.dtype(np.uint8),
}
"""The types of arrays that do not have the call's dtype."""


@dataclass(frozen=True)
class ArraySpec:
    """One operand or result: its name, its trailing symbols, whether `...` leads; type: see above."""

    name: str
    dims: tuple[str, ...]
    leading: bool
    type: str = ""

    def __str__(self) -> str:
        dims = ",".join((["..."] if self.leading else []) + list(self.dims))
        return f"{self.name}[{dims}]" + (f":{self.type}" if self.type else "")

    @property
    def index(self) -> bool:
        return self.type == "index"

    @property
    def blocks(self) -> bool:
        """Whether the parameter `format` says what its bytes mean."""
        return self.type in ("blocks", "cache")

    @property
    def cache(self) -> bool:
        """Whether the bytes may also be those of an array of floats, of any rank."""
        return self.type == "cache"

    def holds(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype of this array in a call of `dtype`."""
        return DTYPES[self.type] if self.type else dtype

    def meant(self, op: str, shape: tuple[int, ...], blocks: Format | None) -> tuple[int, ...]:
        """The shape in elements of an array of this shape; ShapeError for a row of broken blocks."""
        if not self.blocks or blocks is None or not shape:
            return shape
        try:
            return (*shape[:-1], blocks.row_elements(shape[-1]))
        except ShapeError as error:
            raise ShapeError(f"{op}: {self.name}: {error}") from None

    def held(self, op: str, shape: tuple[int, ...], blocks: Format | None) -> tuple[int, ...]:
        """The inverse: the shape of the array that holds this many elements."""
        if not self.blocks or blocks is None:
            return shape
        try:
            return (*shape[:-1], blocks.row_bytes(shape[-1]))
        except ShapeError as error:
            raise ShapeError(f"{op}: {self.name}: {error}") from None


@dataclass(frozen=True)
class Signature:
    """Operands and results of an op."""

    inputs: tuple[ArraySpec, ...]
    outputs: tuple[ArraySpec, ...]

    @classmethod
    def parse(cls, text: str) -> "Signature":
        """Parse `a[m,k] b[k,n] -> c[m,n]`; ValueError for text that is not a signature."""
        left, arrow, right = text.partition("->")
        if not arrow:
            raise ValueError(f"signature {text!r} has no ->")
        return cls(_arrays(left, text), _arrays(right, text))

    @cached_property
    def text(self) -> str:
        return " ".join(map(str, self.inputs)) + " -> " + " ".join(map(str, self.outputs))

    def bind(self, op: str, shapes: tuple[tuple[int, ...], ...]) -> tuple[dict[str, int], tuple[int, ...]]:
        """Sizes of the symbols and the broadcast leading shape; ShapeError naming op, operand and symbol."""
        sizes: dict[str, int] = {}
        owner: dict[str, str] = {}
        leading: list[tuple[str, tuple[int, ...]]] = []
        for spec, shape in zip(self.inputs, shapes, strict=True):
            rank = len(spec.dims)
            if len(shape) < rank or (len(shape) > rank and not spec.leading):
                least, plain = "at least " * spec.leading + dimensions(rank), str(spec).split(":")[0]
                raise ShapeError(f"{op}: {plain} needs {least}, got shape {shape}{by_rank(op, shapes)}")
            cut = len(shape) - rank
            for symbol, size in zip(spec.dims, shape[cut:], strict=True):
                if sizes.setdefault(symbol, size) != size:
                    first = owner[symbol]
                    raise ShapeError(unequal(op, spec.name, symbol, size, first, sizes[symbol], shape))
                owner.setdefault(symbol, spec.name)
            if spec.leading:
                leading.append((spec.name, shape[:cut]))
        return sizes, _broadcast(op, leading)

    def result_shapes(self, sizes: dict[str, int], leading: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Shapes of the results for bound sizes."""
        return tuple((leading if o.leading else ()) + tuple(sizes[d] for d in o.dims) for o in self.outputs)


def _arrays(text: str, whole: str) -> tuple[ArraySpec, ...]:
    specs = []
    rest = text.strip()
    while rest:
        match = _ARRAY.match(rest)
        if match is None:
            raise ValueError(f"signature {whole!r}: cannot read {rest!r}")
        dims = [d.strip() for d in match["dims"].split(",") if d.strip()]
        leading = bool(dims) and dims[0] == "..."
        specs.append(ArraySpec(match["name"], tuple(dims[leading:]), leading, match["type"] or ""))
        rest = rest[match.end() :].strip()
    return tuple(specs)


def _broadcast(op: str, leading: list[tuple[str, tuple[int, ...]]]) -> tuple[int, ...]:
    rank = max((len(shape) for _, shape in leading), default=0)
    result = [1] * rank
    owner = [""] * rank
    for name, shape in leading:
        for i, size in enumerate(shape, rank - len(shape)):
            if size == 1 or size == result[i]:
                continue
            if result[i] != 1:
                raise ShapeError(
                    f"{op}: {name} has {size} along axis {i - rank}, but {owner[i]} has {result[i]}; "
                    f"sizes must agree or be 1"
                )
            result[i], owner[i] = size, name
    return tuple(result)
