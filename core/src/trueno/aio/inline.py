"""The calls that run inline in the event loop: those that take less time than a hop to another thread.

A hop costs some 50 to 100 µs, and a small call 1 to 10.  So a call runs inline if all of this is true:

* its operands are NumPy arrays (or hold such) and numbers, and the backend that was chosen computes on host memory;
* its plan is made: nothing is probed, compiled or measured in the event loop;
* its predicted time (what `trueno.explain` shows) is at most `BUDGET`;
* no guard is in force, which may compute everything again with the reference;
* calls of its kind have kept to the limit: after three that took longer than `PROMISE`, or one that took 20 times as
  long, the kind goes to a thread.

Inline calls never suspend, so after `PROMISE` seconds of them the loop gets a turn.
"""

from typing import Any

import numpy as np

from trueno.discovery import registry
from trueno.dispatch import plan, state
from trueno.dispatch.state import State
from trueno.dispatch.transfer import unwrap
from trueno.ops.op import Op
from trueno.select.predict import predict

BUDGET = 100e-6
"""The most predicted seconds of an inline call.  A prediction is for the middle of a size class, at most a third
below its upper end, and is not exact."""
PROMISE = 200e-6
"""The most seconds for which the event loop is blocked, as far as it can be predicted."""
STRIKES = 3
FAR = 20
MOST = 4096


class Kind:
    """Calls that agree in all that a plan depends on, and in their shapes; `fast`: they run inline."""

    __slots__ = ("choice", "fast", "key", "strikes")

    def __init__(self, key: Any, choice: Any, fast: bool) -> None:
        self.key = key
        self.choice = choice
        self.fast = fast
        self.strikes = 0

    def late(self, seconds: float) -> None:
        """A call took longer than promised.  A busy machine does that to any call, so one alone rarely counts."""
        self.strikes += STRIKES if seconds > FAR * PROMISE else 1
        if self.strikes >= STRIKES:
            self.fast = False


_kinds: dict[Any, Kind] = {}


def kind(op: Op, operands: tuple[Any, ...], given: dict[str, Any]) -> Kind | None:
    """The kind of a call that runs inline; None for one that goes to a thread."""
    now = state.current.get()
    seen: list[Any] = [now, op.name]
    for x in operands:
        if x.__class__ is not np.ndarray:
            x = unwrap(x)
        if x.__class__ is np.ndarray:
            seen += (x.shape, x.dtype)
        elif x.__class__ is float or x.__class__ is int:
            seen.append(None)
        else:
            return None
    for name, value in given.items():
        if name not in op.symbolic:
            seen.append(value)
    try:
        key = tuple(seen)
        entry = _kinds.get(key)
    except TypeError:  # an unhashable parameter, which no op accepts
        return None
    if entry is None or now.general.get(entry.key) is not entry.choice:
        entry = _judge(now, op, operands, given)
        if entry is None:
            _kinds.pop(key, None)
            return None
        if len(_kinds) >= MOST:
            _kinds.clear()
        _kinds[key] = entry
    return entry if entry.fast and now.guarding() is None else None


def _judge(now: State, op: Op, operands: tuple[Any, ...], given: dict[str, Any]) -> Kind | None:
    """None as long as there is no plan, and for invalid arguments: the call itself will raise."""
    from trueno.dispatch.call import request  # start-up

    try:
        call = request(op, operands, given)
        key = plan.key(call)
        choice = now.general.get(key)
        if choice is None or not choice[1].get(0):
            return None
        name = choice[0].chosen
        entry = registry.entries()[name]
        predicted = predict(call, name, entry.load().rates(call)).seconds
    except Exception:
        return None
    return Kind(key, choice, predicted <= BUDGET and not entry.foreign)
