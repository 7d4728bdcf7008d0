"""`trueno.explain(op, *operands)`: who would run this call, and why nobody else, without running it."""

from dataclasses import dataclass, field, fields, replace
from math import prod
from typing import Any

import numpy as np

from trueno.discovery import registry
from trueno.discovery.protocol import Call
from trueno.select.policy import Candidate, Decision
from trueno.select.reasons import REASONS
from trueno.text import columns, duration, number

ABLE = ("named", "less_preferred", "preferred", "resident")
"""Reasons of candidates that can run the call, and whose predicted time decided nothing."""


@dataclass(frozen=True, slots=True)
class Explained(Decision):
    """A decision about one call, with the operands' own shapes, which a decision's size classes stand for."""

    shapes: tuple[tuple[int, ...], ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return text(self)

    def json(self) -> dict[str, Any]:
        """As plain data."""
        return plain(self) | {"shapes": [list(shape) for shape in self.shapes]}


def explain(op: Any, *operands: Any, **parameters: Any) -> Decision:
    """The decision for a call of `op` (a function of trueno, or its name) with these arguments.

    Nothing is run, moved or compiled; plugins that may be chosen are probed.  `print` it: every candidate with its
    reason, its predicted time, where that figure comes from, and the bytes that would move.
    """
    from trueno.dispatch import general, state

    row = _op(op)
    call = general.request(row, operands, parameters)
    from trueno.select import policy

    found = policy.decide(call, state.current.get().asked)
    given = {**dict(zip(row.operands, operands, strict=False)), **parameters}
    known = {f.name: getattr(found, f.name) for f in fields(found)}
    known["candidates"] = tuple(_priced(c, call) for c in found.candidates)
    return Explained(**known, shapes=tuple(_shape(given[name]) for name in row.operands))


def _shape(operand: Any) -> tuple[int, ...]:
    found = getattr(operand, "shape", None)
    return tuple(found) if isinstance(found, tuple) else np.shape(operand)


def _priced(c: Candidate, call: Call) -> Candidate:
    """A candidate that was named, with the time that it would have been weighed by."""
    from trueno.select import cost

    if c.seconds is not None or c.code not in ABLE:
        return c
    try:
        estimate = cost.predict(call, c.name, registry.load(c.name).rates(call))
    except Exception:  # rates are a plugin's, and whoever is named runs whatever they are
        return c
    moved = registry.foreign(registry.entries()[c.name]) and call.residency == "host"
    return replace(c, seconds=estimate.seconds, source=estimate.source, moved=int(cost.work(call).moved * moved))


def _op(op: Any) -> Any:
    from trueno.dispatch.function import function
    from trueno.errors import ParameterError, suggestion
    from trueno.ops import ALIASES, TABLE

    if isinstance(op, str):
        try:
            return function(op).op  # type: ignore[attr-defined]
        except KeyError:
            raise ParameterError(f"explain: there is no op {op!r}{suggestion(op, [*TABLE, *ALIASES])}") from None
    row = getattr(op, "op", None)
    if row is None or TABLE.get(getattr(row, "name", "")) is not row:
        raise ParameterError(f"explain: {op!r} is no op; give trueno.add or its name")
    return row


def text(decision: Decision) -> str:
    """The decision as a table."""
    call = decision.call
    where = "" if call.residency == "host" else f", operands on {call.residency}"
    head = f"{call.op.name} in {call.dtype}, {_sizes(decision)}{where}: "
    if not all(call.sizes):
        return f"{head}nothing is computed for empty operands, so no backend runs" + (
            "; an empty row is an error" if call.op.empty_is_error else ""
        )
    why = REASONS.get(decision.by, decision.by)
    why = f"{why.partition(':')[0]} ({decision.origin})" if decision.origin else why
    rows = [("backend", "reason", "predicted", "from", "moves", "meaning"), *map(_row, decision.candidates)]
    if not any(c.moved for c in decision.candidates):
        rows = [(*r[:4], *r[5:]) for r in rows]
    return "\n".join(
        [f"{head}{decision.chosen}, {why}", "", *columns(rows, right=(2, 4) if len(rows[0]) == 6 else (2,))]
    )


def _sizes(decision: Decision) -> str:
    """The operands' shapes where they are known, else how many elements the size classes stand for."""
    shapes = getattr(decision, "shapes", ())
    if not shapes:
        return f"{' and '.join(_class(s) for s in decision.call.sizes)} elements"
    said = []
    for name, shape in zip(decision.call.op.operands, shapes, strict=False):
        said.append(f"{name} {'×'.join(map(number, shape)) or 'a number'}")
    largest = max(map(prod, shapes))
    plural = "" if largest == 1 else "s"
    most = "" if max(map(len, shapes)) < 2 else f" (up to {number(largest)} element{plural})"
    return ", ".join(said) + most


def _class(size: int) -> str:
    low, high = (1 << size) >> 1, (1 << size) - 1
    return number(low) if low == high else f"{number(low)} to {number(high)}"


def _row(c: Candidate) -> tuple[str, ...]:
    seconds = "" if c.seconds is None else duration(c.seconds)
    moved = f"{number(c.moved)} B" if c.moved else ""
    return c.name, c.code, seconds, c.source, moved, c.detail or REASONS.get(c.code, "")


def plain(decision: Decision) -> dict[str, Any]:
    """The decision as data that JSON can hold."""
    call = decision.call
    return {
        "op": call.op.name,
        "dtype": call.dtype.name,
        "rank": call.rank,
        "layout": call.layout,
        "sizes": list(call.sizes),
        "static": dict(call.static),
        "residency": call.residency,
        "chosen": decision.chosen,
        "by": decision.by,
        "origin": decision.origin,
        "candidates": [
            {
                "name": c.name,
                "code": c.code,
                "reason": REASONS.get(c.code, ""),
                "detail": c.detail,
                "seconds": c.seconds,
                "source": c.source,
                "moved_bytes": c.moved,
            }
            for c in decision.candidates
        ],
    }
