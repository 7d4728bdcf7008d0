"""The recorded contents of a batch: values, and the ops that compute them.

The rows of an op are determined when it is recorded.  Its *domain* is the shape that all its elements span;
`split` is the number of the domain's axes before the row, or None if rows do not matter.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any, Literal

import numpy as np

from trueno.dispatch.axes import result_shapes
from trueno.dispatch.canonical import groups, varies
from trueno.errors import BatchError
from trueno.ops.op import Op

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Number:
    """A number in place of an array operand: a parameter of the kernel, which has no buffer."""

    value: float


@dataclass(slots=True)
class Value:
    """An upload (maker −1) or result `part` of op `maker`.

    blocks: the format of quantized rows, whose shape counts bytes; columns: whether they are a transposed matrix.
    upload: the upload in whose memory an op that updates one left this; -1 for others.  updated: the op that has
    changed the memory since.  whole: the value that this is under another shape; -1 for none.
    """

    shape: Shape
    dtype: np.dtype[Any]
    maker: int = -1
    part: int = 0
    blocks: str = ""
    columns: bool = False
    upload: int = -1
    updated: str = ""
    whole: int = -1

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


@dataclass(slots=True)
class Recorded:
    """One call of an op.

    form: `program` runs as a row program over `domain` and may fuse; `structured` has a kernel of its own; `call` is
    for operands that no kernel can use in their layout, and goes through the general path, for `reason`.  So does a
    structured op with a reason on a device, unless its kernels check indices there.  `view` has no kernel: its result
    is in the memory of its operand.  pointwise: whether a `program` needs no whole rows, though it may have an axis of
    rows.
    """

    op: Op
    dtype: np.dtype[Any]
    operands: tuple[int | Number, ...]
    params: tuple[float, ...]
    static: dict[str, Any]
    axis: Any
    keepdims: bool
    form: Literal["program", "structured", "call", "view"]
    domain: Shape = ()
    split: int | None = None
    reason: str = ""
    results: tuple[int, ...] = ()
    pointwise: bool = False

    @property
    def inputs(self) -> list[int]:
        """The values among the operands."""
        return [v for v in self.operands if isinstance(v, int)]


@dataclass(slots=True)
class Graph:
    """Everything recorded, in order."""

    values: list[Value] = field(default_factory=list)
    ops: list[Recorded] = field(default_factory=list)

    def upload(self, shape: Shape, dtype: np.dtype[Any], blocks: str = "", columns: bool = False) -> int:
        self.values.append(Value(shape, dtype, blocks=blocks, columns=columns))
        return len(self.values) - 1

    def record(self, op: Op, operands: tuple[int | Number, ...], dtype: np.dtype[Any], params: tuple[float, ...],
               static: dict[str, Any], axis: Any, keepdims: bool) -> tuple[int, ...]:  # fmt: skip
        """Append a call; returns the values of its results.  Errors of shapes and axes are those of the op itself."""
        for name, v in zip(op.operands, operands, strict=True):
            if isinstance(v, int) and (by := self.values[self.whole(v)].updated):
                raise BatchError(f"{op.name}: {name} was updated by {by}; use the handle that it returned")
        memory = self._updated(op, operands[0]) if op.updates else -1
        shapes = tuple(self.values[v].shape if isinstance(v, int) else () for v in operands)
        output_shapes = result_shapes(op, shapes, static, axis, keepdims)
        entry = Recorded(op, dtype, operands, params, static, axis, keepdims, "call")
        entry.form, entry.domain, entry.split, entry.reason = _form(op, shapes, output_shapes, axis)
        if entry.form == "program":
            entry.pointwise = op.over is None or _pointwise(op, tuple(static.items()))
        for part, (shape, spec) in enumerate(zip(output_shapes, op.signature.outputs, strict=True)):
            blocks = static["format"] if spec.blocks else ""
            self.values.append(Value(shape, spec.holds(dtype), len(self.ops), part, blocks, upload=memory))
        if memory >= 0:
            self.values[operands[0]].updated = op.name  # type: ignore[index]
        entry.results = tuple(range(len(self.values) - len(output_shapes), len(self.values)))
        self.ops.append(entry)
        return entry.results

    def view(self, op: Op, v: int, shape: Shape) -> int:
        """Append `v` under another shape."""
        dtype, result = self.values[v].dtype, len(self.values)
        self.values.append(Value(shape, dtype, len(self.ops), whole=self.whole(v)))
        self.ops.append(Recorded(op, dtype, (v,), (), {}, None, False, "view", results=(result,)))
        return result

    def whole(self, v: int) -> int:
        """The value in whose memory a value is: itself, but for one under another shape."""
        return v if self.values[v].whole < 0 else self.values[v].whole

    def _updated(self, op: Op, v: int | Number) -> int:
        """The upload that an op updates: its first operand, or the one that this is the latest state of."""
        value = self.values[v] if isinstance(v, int) else None
        if value is None or (value.maker >= 0 and value.upload < 0):
            source = self.ops[value.maker].op.name if value is not None else "a number"
            raise BatchError(f"{op.name}: {op.operands[0]} is a result of {source}; an upload is updated")
        return value.upload if value.maker >= 0 else v  # type: ignore[return-value]


CHECKED = "the host checks its operands' values where it can"
"""Why an op with a check fuses with nothing, and goes through the general path unless a device's kernel takes it."""


def _form(op: Op, shapes: tuple[Shape, ...], made: tuple[Shape, ...], axis: Any) -> Any:
    """Form, domain, split and reason of a call."""
    if not all(map(all, (*shapes, *made))):
        return "call", (), None, "it has no elements"
    if op.structured:
        if op.shapes is None and sum(s.leading for s in op.signature.inputs) > 1:
            pairs = zip(shapes, op.signature.inputs, strict=True)
            lead = {s[: len(s) - len(spec.dims)] for s, spec in pairs if spec.leading}
            if len(lead) > 1:
                return "call", (), None, "its stacks are broadcast"
        return "structured", (), None, "" if op.check is None else CHECKED
    sizes, leading = op.signature.bind(op.name, shapes)
    if op.over is None:
        domain, split = made[0], None
    else:
        domain = (*leading, sizes[op.over])
        rank = len(domain)
        if axis is None:
            if set(op.layout) != {"e"} or any(s != domain for s in shapes):
                return "call", (), None, "axis=None with operands that are broadcast"
            split = 0
        elif int(axis) in (-1, rank - 1):
            split = rank - 1
        else:
            return "call", (), None, f"axis={axis} is not the last, so rows are not contiguous"
    if arranged(domain, split, shapes) is None:
        return "call", (), None, "an operand is broadcast over only some of the rows' axes"
    return "program", domain, split, ""


@lru_cache(maxsize=256)
def _pointwise(op: Op, static: tuple[tuple[str, Any], ...]) -> bool:
    """Whether no result depends on its row, as that of `bias_activation` depends on its column alone."""
    program = op.program(**dict(static))
    return not program.folds and not any(node.kind in ("count", "position") for node in program.nodes)


def arranged(domain: Shape, split: int | None, shapes: Any) -> int | None:
    """Where a row begins among the axes of `domain`, such that operands of these shapes need no copy, or None.

    0 is one row of everything.
    """
    if split is None:
        runs = groups([varies(s, domain) for s in shapes], domain)
        split = 0 if len(runs) <= 1 else runs[-1][0]
    return split if all(kind(s, domain, split) for s in shapes) else None


def kind(shape: Shape, domain: Shape, split: int) -> str:
    """Kind letter of an operand of `shape`: `e`, `w`, `r` or `u`; empty if it varies along part of an axis group."""
    cut = split - (len(domain) - len(shape))
    outer, inner = prod(shape[: max(cut, 0)]), prod(shape[max(cut, 0) :])
    rows, n = prod(domain[:split]), prod(domain[split:])
    if outer not in (1, rows) or inner not in (1, n):
        return ""
    if rows == 1:
        return "e" if inner == n else "u"
    if outer == rows:
        return "e" if inner == n else "r"
    return "w" if inner == n else "u"
