"""Calls on a device's arrays that are like an earlier one: same op, shapes, dtypes, scalars and state.

What `trueno.dispatch.resident` found out then (who runs it, with which kernel, how the arrays look to it) is kept, and
a repetition goes straight to the kernel.  Anything unlike goes the long way, which also finds the words for errors.
"""

from collections.abc import Callable
from math import copysign
from typing import Any, Final, NamedTuple

import numpy as np

from trueno.discovery.protocol import Kernel, Refused
from trueno.discovery.registry import Entry
from trueno.dispatch import state
from trueno.dispatch.fallback import telling
from trueno.dispatch.state import State
from trueno.dispatch.table import Table
from trueno.ops.op import Op

Shape = tuple[int, ...]
NEVER = object()
"""No result: the long way."""
KEPT = 1024
"""Calls that a state remembers; then it begins again."""
PLAIN = (int, str, bool)
types: set[type] = set()
"""Array types that calls have been kept for: one look says that an operand is none of them."""


class Ready(NamedTuple):
    """Of a call that went well.

    shaped: shapes as the kernel wants its arrays, operands and results, None where they are those already.
    direct: whether a kernel that fails leaves an `out` of the caller's as it was.
    """

    entry: Entry
    kernel: Kernel
    empty: Callable[[Shape, np.dtype[Any]], Any]
    params: tuple[float, ...]
    results: tuple[tuple[Shape, np.dtype[Any]], ...]
    shaped: tuple[Shape, ...] | None
    direct: bool


def key(op: Op, operands: tuple[Any, ...], scalars: dict[str, Any]) -> tuple[Any, ...] | None:
    """What makes calls alike; None for one that is not kept.  `RUNS` have the part for operands written out."""
    parts: list[Any] = [op.name]
    for x in operands:
        parts += x.__class__, x.shape, x.dtype
    return told_apart(tuple(parts), scalars)


def told_apart(made: tuple[Any, ...], scalars: dict[str, Any]) -> tuple[Any, ...] | None:
    """The key of a call with these scalars, or None.

    Equal keys must mean equal calls: 1, 1.0 and True are equal, as are 0.0 and −0.0, and NaN is not even itself.  An
    object of any other class may be another number the next time, or hide a −0.0.
    """
    parts: list[Any] = []
    for value in scalars.values():
        kind = value.__class__
        if kind is float:
            if value != value or (value == 0.0 and copysign(1.0, value) < 0):
                return None
        elif kind not in PLAIN and value is not None:
            return None
        parts += kind, value
    return (*made, *parts)


def _at_length(op: Op, ready: Ready, operands: tuple[Any, ...], out: Any) -> Any:
    """A call with anything beside its operands and one result, whose shapes the kernel may want otherwise."""
    entry, kernel, empty, params, results, shaped, direct = ready
    try:
        if out is None:
            outs = [empty(shape, dtype) for shape, dtype in results]
        else:
            outs = [out]
            shape, dtype = results[0]
            if not direct or len(results) > 1 or out.__class__ is not operands[0].__class__:
                return NEVER
            if out.shape != shape or out.dtype != dtype:
                return NEVER
        if shaped is None:
            status = kernel(*operands, *params, *outs)
        elif not all(map(in_order, (*operands, *outs))):  # another shape would be a copy
            return NEVER
        else:
            views = [x if x.shape == s else x.reshape(s) for x, s in zip((*operands, *outs), shaped, strict=True)]
            status = kernel(*views[: len(operands)], *params, *views[len(operands) :])
    except Refused:
        return NEVER
    except Exception:  # a context manager around all of it takes a microsecond, even where nothing is wrong
        with telling(op.name, entry.name):
            raise
    if status:
        return NEVER
    return outs[0] if len(outs) == 1 else tuple(outs)


def in_order(x: Any) -> bool:
    """Whether an array's elements lie in C order, as those of types that cannot say do: a reshape is no copy then."""
    flags = getattr(x, "flags", None)
    return flags is None or bool(flags.c_contiguous)


def keep(now: State, op: Op, operands: tuple[Any, ...], scalars: dict[str, Any], ready: Ready, drops: int) -> None:
    """Remember a call that went well, unless plans were dropped since `drops`."""
    types.update(x.__class__ for x in operands)
    try:
        made = key(op, operands, scalars)
        hash(made)
    except (TypeError, AttributeError):
        return
    if made is None or drops != state.drops:
        return
    if len(now.resident) >= KEPT:
        now.resident.clear()
    shape, dtype = ready.results[0]
    kernel = None
    if len(ready.results) == 1 and not ready.params:
        bind = getattr(ready.kernel, "bind", None)
        if bind is not None:
            kernel = bind(ready.shaped or (*(tuple(x.shape) for x in operands), shape))
        elif ready.shaped is None:
            kernel = ready.kernel
    now.resident[made] = ready, ready.entry.load, kernel, shape, dtype


def _written(operands: int) -> Callable[..., Any]:
    """`run(op, operands, scalars, out)` for so many operands: the result, or `NEVER`.

    Loops over operands would take as long as the rest of it.
    """
    names = [f"a{i}" for i in range(operands)]
    listed = ", ".join(names)
    lines = [
        "def run(op, operands, scalars, out):",
        f"    {listed}, = operands",
        "    try:",
        f"        key = op.name, {', '.join(f'{x}.__class__, {x}.shape, {x}.dtype' for x in names)}",
        "        found = current().resident.get(told_apart(key, scalars) if scalars else key)",
        "    except Exception:",  # what cannot be a key, or is no array
        "        return NEVER",
        "    if found is None:",
        "        return NEVER",
        "    ready, load, kernel, shape, dtype = found",
        "    load()",  # a device that is lost, or stayed in the parent, says so
        "    if kernel is None:",
        "        return at_length(op, ready, operands, out)",
        "    try:",
        "        if out is None:",
        "            out = ready.empty(shape, dtype)",
        "        elif not ready.direct or out.__class__ is not a0.__class__ or out.shape != shape:",
        "            return NEVER",
        "        elif out.dtype is not dtype and out.dtype != dtype:",
        "            return NEVER",
        f"        return NEVER if kernel({listed}, out) else out",
        "    except Refused:",
        "        return NEVER",
        "    except Exception:",
        "        with telling(op.name, ready.entry.name):",
        "            raise",
    ]
    space: dict[str, Any] = {
        "current": state.current.get, "told_apart": told_apart, "NEVER": NEVER, "at_length": _at_length,
        "telling": telling, "Refused": Refused,
    }  # fmt: skip
    exec(compile("\n".join(lines), "<trueno.dispatch.repeated>", "exec"), space)
    return space["run"]  # type: ignore[no-any-return]


RUNS: Final = Table(_written)
"""By the number of operands."""
