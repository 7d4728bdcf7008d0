"""What was requested, which backends could run a call, and which one does: a decision, which prints itself."""

from dataclasses import dataclass
from math import prod
from typing import Any

from trueno.discovery.protocol import Call
from trueno.select.reasons import REASONS
from trueno.text import columns, duration, number


@dataclass(frozen=True, slots=True)
class Request:
    """The caller's request: `names` strictly, `preferred` softly; origin says where it comes from.

    automatic: explicitly nothing, so that TRUENO_BACKEND is ignored, too.
    """

    names: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    automatic: bool = False
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One backend in a decision: a reason code, predicted seconds and their origin, bytes that would move."""

    name: str
    code: str
    detail: str = ""
    seconds: float | None = None
    source: str = ""
    moved: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """Which backend runs a call, and why no other.  ranking: the capable ones, in the order in which they are tried."""

    call: Call
    chosen: str
    by: str
    origin: str
    candidates: tuple[Candidate, ...]
    ranking: tuple[str, ...]

    def __str__(self) -> str:
        return text(self)

    def json(self) -> dict[str, Any]:
        """As plain data."""
        return plain(self)


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
    """The operands' shapes if known, otherwise the element counts of the size classes."""
    shapes = getattr(decision, "shapes", ())
    if not shapes:
        return f"{' and '.join(_class(s) for s in decision.call.sizes)} elements"
    stored = f" in {dict(decision.call.static)['format']}" if decision.call.op.quantized else ""
    operands = zip(decision.call.op.signature.inputs, shapes, strict=False)
    words = [
        f"{spec.name} {'×'.join(map(number, shape)) or 'a number'}{stored * spec.blocks}" for spec, shape in operands
    ]
    largest = max(map(prod, shapes))
    plural = "" if largest == 1 else "s"
    most = "" if max(map(len, shapes)) < 2 else f" (up to {number(largest)} element{plural})"
    return ", ".join(words) + most


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
