"""`trueno.explain(op, *operands)`: who would run this call, and why nobody else, without running it."""

from typing import Any

from trueno.select.policy import Candidate, Decision
from trueno.select.reasons import REASONS


def explain(op: Any, *operands: Any, **parameters: Any) -> Decision:
    """The decision for a call of `op` (a function of trueno, or its name) with these arguments.

    Nothing is run, moved or compiled; plugins that may be chosen are probed.  `print` it: every candidate with its
    reason, its predicted time, where that figure comes from, and the bytes that would move.
    """
    from trueno.dispatch import general, state

    row = _op(op)
    call = general.request(row, operands, parameters)
    from trueno.select import policy

    return policy.decide(call, state.current.get().asked)


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
    sizes = " and ".join(_class(s) for s in call.sizes)
    where = "" if call.residency == "host" else f", operands on {call.residency}"
    why = REASONS.get(decision.by, decision.by) + (f" ({decision.origin})" if decision.origin else "")
    lines = [f"{call.op.name} in {call.dtype}, {sizes} elements{where}: {decision.chosen}, {why}", ""]
    rows = [("backend", "reason", "predicted", "moves", "")]
    rows += [_row(c) for c in decision.candidates]
    widths = [max(len(r[i]) for r in rows) for i in range(4)]
    for r in rows:
        cells = [f"{r[0]:<{widths[0]}}", f"{r[1]:<{widths[1]}}", f"{r[2]:>{widths[2]}}", f"{r[3]:>{widths[3]}}", r[4]]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _class(size: int) -> str:
    low, high = 1 << (size - 1), (1 << size) - 1
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _row(c: Candidate) -> tuple[str, str, str, str, str]:
    seconds = "" if c.seconds is None else f"{_seconds(c.seconds)} {c.source}"
    moved = f"{c.moved:,} B" if c.moved else ""
    return c.name, c.code, seconds, moved, c.detail or REASONS.get(c.code, "")


def _seconds(s: float) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if s >= scale:
            return f"{s / scale:.3g} {unit}"
    return f"{s / 1e-9:.3g} ns"


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
