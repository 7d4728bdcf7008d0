"""One cell: an op at one shape against its peers, checked before it is timed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import trueno
from trueno.ops.op import Op

from benchmarks.floors import Floor, floor
from benchmarks.inputs import Arena, complete
from benchmarks.machine import cores
from benchmarks.peers import peers_of, torch
from benchmarks.timing import OURS, Budget, Thunk, bind, compare

EDGE = 65536  # elements at each end of a result that are compared
LOOSE = 1e-3  # of the value and of the largest value: NumPy sums 16 M float32 squares to four digits


@dataclass
class Record:
    """What one cell gave.  `value` is the figure that its target is about, in `unit`."""

    group: str
    name: str
    shape: str
    unit: str = "×"
    value: float | None = None
    peer: str = ""
    ratios: list[float] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    family: str = ""
    problem: str = ""
    floor: float | None = None
    """Seconds below which no kernel can come on this machine, where they are known (`benchmarks.floors`)."""
    limit: str = ""
    """What sets the floor: `bytes` or `flops`."""

    @property
    def floors(self) -> float | None:
        """Our time in floors: 1 is as fast as the machine."""
        return self.seconds[OURS] / self.floor if self.floor and OURS in self.seconds else None


@contextmanager
def python_functions() -> Iterator[None]:
    """Inside, calls run as Python functions: what they cost without compiled entries."""
    trueno.settings.override("TRUENO_DOOR", "off")
    try:
        yield
    finally:
        trueno.settings.override("TRUENO_DOOR", None)


def title(op: Op, given: dict[str, Any]) -> str:
    """The op's name and its static choices, where they are not the defaults."""
    return " ".join([op.name, *(str(v) for v in given.values() if isinstance(v, str))])


def function(op: Op) -> Any:
    """The public function of an op."""
    return getattr(trueno, op.name)


def ours(op: Op, operands: tuple[Any, ...], given: dict[str, Any], out: Any) -> Thunk:
    """The public call."""
    return bind(function(op), *operands, **given, out=out)


def ways(op: Op, operands: tuple[Any, ...], given: dict[str, Any], out: Any, arena: Arena) -> dict[str, Thunk]:
    """Every peer's call: `numpy`, `torch`, and `numpy 2` … where a library has several ways."""
    row, params = peers_of(op), complete(op, given)
    calls: dict[str, Thunk] = {}
    for library, listed in (("numpy", row.numpy), ("torch", row.torch if torch is not None else ())):
        thunks = [way(*operands, out=out, scratch=arena.scratch(), **params) for way in listed]
        for i, call in enumerate(thunk for thunk in thunks if thunk is not None):
            calls[library if i == 0 else f"{library} {i + 1}"] = call
    return calls


def results(call: Thunk, out: Any) -> list[np.ndarray[Any, Any]]:
    """Copies of the ends of what a call computes, in `out` or returned."""
    outs = out if isinstance(out, tuple) else (out,)
    for o in outs:
        o.fill(np.nan if o.dtype.kind == "f" else -1)
    returned = call()
    copies = []
    for i, o in enumerate(outs):
        untouched = np.isnan(_ends(o)).all() if o.dtype.kind == "f" else (_ends(o) == -1).all()
        if untouched and returned is not None:
            o = np.asarray(returned[i] if isinstance(returned, tuple) else returned).reshape(o.shape)
        copies.append(_ends(o).copy())
    return copies


def _ends(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    flat = x.reshape(-1)
    return flat if flat.size <= 2 * EDGE else np.concatenate((flat[:EDGE], flat[-EDGE:]))


def wrong(op: Op, operands: tuple[Any, ...], out: Any, calls: dict[str, Thunk]) -> list[str]:
    """Names of the calls whose results are not ours, loosely."""
    wanted = results(calls[OURS], out)
    names = []
    for name, call in calls.items():
        got = results(call, out)
        if any(not _close(op, operands, a, b) for a, b in zip(got, wanted, strict=True)):
            names.append(name)
    return names


def _close(op: Op, operands: tuple[Any, ...], got: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> bool:
    if got.shape != wanted.shape:
        return False
    if op.over is not None and wanted.dtype.kind == "i":  # of equal elements any may be named
        rows = operands[0].reshape(-1, operands[0].shape[-1])[: wanted.size]
        inside = (got >= 0) & (got < rows.shape[-1])
        if not inside.all():
            return False
        at = np.arange(len(rows))
        return bool((rows[at, got.reshape(-1)] == rows[at, wanted.reshape(-1)]).all())
    return bool(np.allclose(got, wanted, LOOSE, LOOSE * np.abs(wanted).max(initial=0.0)))


def measure(
    group: str,
    op: Op,
    shape: str,
    operands: tuple[Any, ...],
    given: dict[str, Any],
    arena: Arena,
    budget: Budget,
) -> Record:
    """Ours against every peer; one that computes something else is left out and named."""
    record = Record(group, title(op, given), shape, family=op.family)
    out = arena.out(op, operands, given)
    calls = {OURS: ours(op, operands, given, out), **ways(op, operands, given, out, arena)}
    disagree = wrong(op, operands, out, calls)
    if OURS in disagree:
        record.problem = "ours gives NaN, or another result each time"
        return record
    if disagree:
        record.problem = f"disagrees with ours: {', '.join(disagree)}"
    elif len(calls) == 1:
        record.problem = "no peer applies to this shape: fix its row in benchmarks/peers/"
    comparison = compare({name: call for name, call in calls.items() if name not in disagree}, budget)
    record.seconds, record.ratios, record.peer = comparison.seconds, comparison.ratios, comparison.peer
    record.value = comparison.ratio if comparison.ratios else None
    least = floor_of(op, operands, out, threads())
    record.floor, record.limit = least.seconds, least.limit
    return record


def floor_of(op: Op, operands: tuple[Any, ...], out: Any, threads: int) -> Floor:
    """The least time of a call on these arrays: every operand is read once, every result is written once."""
    outs = out if isinstance(out, tuple) else (out,)
    written = sum(o.nbytes for o in outs)
    inputs = zip(op.signature.inputs, operands, strict=True)
    gathers = any(spec.index for spec in op.signature.inputs)
    read = sum(min(x.nbytes, written) if gathers and not spec.index else x.nbytes for spec, x in inputs)
    sizes, leading = op.signature.bind(op.name, tuple(x.shape for x in operands))
    return floor(read, written, op.flops(sizes, prod(leading)), threads)


def threads() -> int:
    """The threads that everybody has in this run."""
    return int(os.environ.get("TRUENO_THREADS") or cores())
