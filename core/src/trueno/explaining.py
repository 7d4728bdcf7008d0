"""`trueno.explain(op, *operands)`: which backend would run a call, and why not another, without running it."""

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from trueno.discovery import registry
from trueno.discovery.protocol import Call
from trueno.dispatch import state
from trueno.dispatch.call import request
from trueno.dispatch.function import function
from trueno.dispatch.half import is_float
from trueno.errors import ParameterError, TruenoError, suggestion
from trueno.formats.table import Format
from trueno.ops import ALIASES, TABLE
from trueno.ops.op import Op
from trueno.ops.signature import ArraySpec
from trueno.select import cost, policy, predict
from trueno.select.decision import Candidate, Decision, plain
from trueno.showing import Shown

ABLE = ("named", "less_preferred", "preferred", "resident")
"""Reasons of candidates that can run the call, but whose predicted times the selector does not compare."""


@dataclass(frozen=True, slots=True, repr=False)
class Explained(Shown, Decision):
    """A decision about one call, with the operands' own shapes, in elements, instead of size classes.

    It shows itself as a table.
    """

    shapes: tuple[tuple[int, ...], ...] = field(default=(), compare=False)

    def json(self) -> dict[str, Any]:
        """The decision as plain data."""
        return plain(self) | {"shapes": [list(shape) for shape in self.shapes]}


def explain(op: Any, *operands: Any, **parameters: Any) -> Decision:
    """The decision for a call of `op` (a function of trueno, or its name) with these arguments.

    A tuple of whole numbers is an operand of that shape, in elements: `explain("matmul", (512, 512), (512, 8))`,
    in the dtype of the other operands, or float32.
    It runs, moves and compiles nothing, but probes the plugins that may be chosen.  The result shows every candidate
    with its reason, its predicted time, the origin of that time, and the bytes that would move.
    """
    row = _op(op)
    operands = _stand_ins(row, operands, parameters)
    call = request(row, operands, parameters)
    decision = policy.decide(call, state.current.get().request)
    named_arguments = {**dict(zip(row.operands, operands, strict=False)), **parameters}
    values = {f.name: getattr(decision, f.name) for f in fields(decision)}
    values["candidates"] = tuple(priced(c, call) for c in decision.candidates)
    blocks = row.blocks(dict(call.static))
    shapes = (_shape(row, spec, named_arguments[spec.name], blocks) for spec in row.signature.inputs)
    return Explained(**values, shapes=tuple(shapes))


def _stand_ins(op: Op, operands: tuple[Any, ...], parameters: dict[str, Any]) -> tuple[Any, ...]:
    """The operands, with an array that takes no memory for each shape."""
    if not any(map(_is_shape, operands)):
        return operands
    if op.quantized and not parameters.get("format"):
        raise ParameterError(
            f"explain: shapes in blocks need a format, such as format='q4_k': {op.name} reads its bytes"
        )
    blocks = op.blocks({p.name: p.default for p in op.static} | parameters)
    dtypes = (np.dtype(x.dtype) for x in operands if hasattr(x, "dtype") and is_float(np.dtype(x.dtype)))
    dtype = next(dtypes, np.dtype(np.float32))
    stand_ins = list(operands)
    for i, (spec, x) in enumerate(zip(op.signature.inputs, operands, strict=False)):
        if _is_shape(x):
            try:
                stand_ins[i] = np.broadcast_to(np.zeros((), spec.holds(dtype)), spec.held(op.name, x, blocks))
            except ValueError as error:
                if isinstance(error, TruenoError):
                    raise
                raise ParameterError(f"explain: {spec.name} cannot have shape {x}: {error}") from None
    return tuple(stand_ins)


def _is_shape(x: Any) -> bool:
    return isinstance(x, tuple) and all(isinstance(n, int) and not isinstance(n, bool) for n in x)


def _shape(op: Op, spec: ArraySpec, operand: Any, blocks: Format | None) -> tuple[int, ...]:
    """The shape of an operand in elements, also where it is the bytes of blocks."""
    shape = getattr(operand, "shape", None)
    shape = tuple(shape) if isinstance(shape, tuple) else np.shape(operand)
    return spec.meant(op.name, shape, blocks) if getattr(operand, "dtype", None) == np.uint8 else shape


def priced(c: Candidate, call: Call) -> Candidate:
    """A candidate in `ABLE` with its predicted time; any other candidate unchanged."""
    if c.seconds is not None or c.code not in ABLE:
        return c
    try:
        estimate = predict.predict(call, c.name, registry.load(c.name).rates(call))
    except Exception:  # the plugin computes rates, and a named backend runs even if they fail
        return c
    moved = registry.entries()[c.name].foreign and call.residency == "host"
    return replace(c, seconds=estimate.seconds, source=estimate.source, moved=int(cost.work(call).moved * moved))


def _op(op: Any) -> Any:
    if isinstance(op, str):
        try:
            return function(op).op  # type: ignore[attr-defined]
        except KeyError:
            raise ParameterError(f"explain: there is no op {op!r}{suggestion(op, [*TABLE, *ALIASES])}") from None
    row = getattr(op, "op", None)
    if row is None or TABLE.get(getattr(row, "name", "")) is not row:
        raise ParameterError(f"explain: {op!r} is not an op; give trueno.add or its name")
    return row
