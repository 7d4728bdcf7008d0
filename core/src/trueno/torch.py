"""Trueno's ops as PyTorch operators, `torch.ops.trueno.*`, so that `torch.compile` and CUDA graphs take them.

    import trueno.torch

    y = torch.ops.trueno.softmax(x)
    z = torch.ops.trueno.quant_matmul(x, blocks, format="q4_k")
    f = torch.compile(lambda x: trueno.softmax(x), fullgraph=True)  # the operator, in the graph

Every op of the table is one, with its own parameters, made from its row: the schema from the parameters, the kernel
from the public function, the shapes of results, which tracing needs, from the signature.  Operands are tensors; a
quantized matrix is a tensor of bytes with `format` (`blocks` gives both).  No operator has a gradient.  Importing this
module imports PyTorch.
"""

from collections.abc import Callable, Sequence
from inspect import Parameter
from typing import Any, Final

import torch
from torch.library import CustomOpDef, custom_op

from trueno.dispatch.axes import result_shapes
from trueno.dispatch.function import function
from trueno.dispatch.parameters import parameters
from trueno.errors import DtypeError
from trueno.ops import ALIASES, TABLE
from trueno.ops.op import Op
from trueno.ops.signature import ArraySpec
from trueno.quant import QuantizedMatrix

__all__ = ["OPERATORS", "blocks", "schema"]

Shape = tuple[Any, ...]
"""Extents, which are symbols while `torch.compile` traces a call for any size."""
TYPES = {"int | None": "int?", "int | tuple[int, ...] | None": "int?"}
"""Types of a schema, where Python writes them differently."""


def blocks(q: QuantizedMatrix) -> tuple[torch.Tensor, str]:
    """The bytes of a quantized matrix as a tensor uint8 [rows, bytes per row], and the name of its format.

    The tensor shares the memory of a matrix whose bytes can be written, and is a copy of others, as those of a file.
    """
    if not isinstance(q, QuantizedMatrix):
        raise DtypeError(f"blocks: q is {type(q).__name__}; give a QuantizedMatrix, as trueno.quantize makes")
    array = q.bytes
    writeable = getattr(getattr(array, "flags", None), "writeable", True)
    if not hasattr(array, "__array_interface__"):
        return torch.from_dlpack(array), q.format
    return torch.from_numpy(array if writeable else array.copy()), q.format


def schema(op: Op) -> str:
    """The operator's schema: `(Tensor x, int axis=-1) -> Tensor`."""
    written, keyword = [], False
    for p in parameters(op):
        if p.name == "out":
            continue
        if p.kind is Parameter.KEYWORD_ONLY and not keyword:
            written.append("*")
            keyword = True
        kind = "Tensor" if p.name in op.operands else TYPES.get(p.annotation, p.annotation)
        default = "" if p.default is p.empty else f"={_literal(p.default)}"
        written.append(f"{kind} {p.name}{default}")
    results = ", ".join("Tensor" for _ in op.signature.outputs)
    return f"({', '.join(written)}) -> {results if len(op.signature.outputs) == 1 else f'({results})'}"


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _kernel(op: Op) -> Callable[..., Any]:
    run = function(op.name)

    def kernel(*operands: Any, **given: Any) -> Any:
        with torch.no_grad():  # PyTorch itself says at `backward` that the operator has no gradient
            return run(*operands, **given)

    return kernel


def _fake(op: Op) -> Callable[..., Any]:
    """Results without data, for tracing: their shapes and dtypes."""
    names = [p.name for p in parameters(op)]
    defaults = {p.name: p.default for p in parameters(op)}
    static = [p.name for p in op.static]

    def fake(*args: Any, **given: Any) -> Any:
        bound = {**defaults, **dict(zip(names, args, strict=False)), **given}
        tensors = [bound[name] for name in op.operands]
        shapes = _shapes(
            op,
            tuple(tuple(x.shape) for x in tensors),
            {name: bound[name] for name in static},
            bound.get("axis", -1),
            bound.get("keepdims", False),
        )
        results = tuple(
            tensors[0].new_empty(shape, dtype=_dtype(op, spec, tensors))
            for spec, shape in zip(op.signature.outputs, shapes, strict=True)
        )
        return results[0] if len(results) == 1 else results

    return fake


def _dtype(op: Op, spec: ArraySpec, tensors: Sequence[torch.Tensor]) -> torch.dtype:
    if spec.type:
        return torch.int64 if spec.index else torch.uint8
    owner = next((i for i, s in enumerate(op.signature.inputs) if not s.type), None)
    return torch.float32 if owner is None else tensors[owner].dtype


def _shapes(op: Op, shapes: tuple[Shape, ...], static: dict[str, Any], axis: Any, keepdims: bool) -> tuple[Shape, ...]:
    """The results' shapes; extents may be symbols, which have no hash and so do not go through the core's caches."""
    if all(isinstance(n, int) for shape in shapes for n in shape):
        return result_shapes(op, shapes, static, axis, keepdims)
    if op.structured or op.over is None:
        return op.result_shapes(shapes, static)
    along = [spec.leading and op.over in spec.dims for spec in op.signature.inputs]
    rank = max(len(shape) for shape, has in zip(shapes, along, strict=True) if has)
    if axis is None:
        return tuple((1,) * rank if keepdims else () for _ in op.signature.outputs)
    back = axis - rank if axis >= 0 else axis  # counted from the end, where shorter operands have it too
    moved = tuple(_last(shape, back) if has else shape for shape, has in zip(shapes, along, strict=True))
    final = []
    for spec, shape in zip(op.signature.outputs, op.result_shapes(moved, static), strict=True):
        if op.over in spec.dims:
            at = len(shape) + back
            final.append((*shape[:at], shape[-1], *shape[at:-1]))
        else:
            at = len(shape) + 1 + back
            final.append((*shape[:at], 1, *shape[at:]) if keepdims else shape)
    return tuple(final)


def _last(shape: Shape, axis: int) -> Shape:
    """A shape with one axis, counted from the end, moved behind the others."""
    at = len(shape) + axis
    return (*shape[:at], *shape[at + 1 :], shape[at])


def _operator(op: Op, name: str) -> CustomOpDef:
    operator = custom_op(f"trueno::{name}", _kernel(op), mutates_args=(), schema=schema(op))
    operator.register_fake(_fake(op))
    if name == op.name:
        # What is traced instead: `torch.compiler.substitute_in_graph` does this, too, but imports the compiler, which
        # takes seconds.
        function(name)._torchdynamo_inline = _traced(op)  # type: ignore[attr-defined]
    return operator


def _traced(op: Op) -> Callable[..., Any]:
    """What `torch.compile` traces where it finds the public function: the operator, on tensors."""
    name, names, many = op.name, op.operands, op.many
    numbers = [not spec.type for spec in op.signature.inputs]

    def traced(*args: Any, out: Any = None, **given: Any) -> Any:
        operator = getattr(torch.ops.trueno, name)
        args = tuple(args[0]) if many and len(args) == 1 else args
        operands = [*args] if many else [*args[: len(names)]]
        rest = args[len(operands) :]
        operands += [given.pop(other) for other in names[len(operands) :] if other in given]
        like = next(x for x in operands if isinstance(x, torch.Tensor))
        for i, number in enumerate(numbers):
            if number and isinstance(operands[i], (int, float)):
                operands[i] = torch.as_tensor(operands[i], dtype=like.dtype, device=like.device)
        result = operator(*operands[: len(names)], *rest, **given)
        for x in operands[len(names) :]:
            result = operator(result, x, **given)
        if out is None:
            return result
        return out.copy_(result) if isinstance(out, torch.Tensor) else tuple(map(torch.Tensor.copy_, out, result))

    return traced


OPERATORS: Final[dict[str, CustomOpDef]] = {
    name: _operator(TABLE[ALIASES.get(name, name)], name) for name in (*TABLE, *ALIASES)
}
"""The operators by name, aliases too; `torch.ops.trueno` has the same."""
