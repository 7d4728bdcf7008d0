"""Quality guards: stop the line when a result is not healthy.

A guard belongs to the calls made under it.  A guarded call computes into scratch and delivers only on
success, so that a trip leaves the caller's data as it was; inputs are looked at only after a trip.

    with trueno.JidokaGuard().on(Condition.NAN, Action.STOP):
        y = trueno.log(x)
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

import trueno.state as state
from trueno.discovery.protocol import Call
from trueno.errors import GuardError, ParameterError
from trueno.ops.op import Op

Array = npt.NDArray[Any]


class Condition(Enum):
    """What is not healthy: a NaN or an Inf in a result that no input holds."""

    NAN = "NaN"
    INF = "Inf"


class Action(Enum):
    """What happens then: STOP raises GuardError, LOG writes a warning to the logger `trueno` and goes on."""

    STOP = "stop"
    LOG = "log"


@dataclass(eq=False)
class JidokaGuard:
    """Conditions and what to do about each; a context manager."""

    rules: tuple[tuple[Condition, Action], ...] = ()
    _open: list[AbstractContextManager[None]] = field(default_factory=list, repr=False)

    def on(self, condition: Condition, action: Action) -> "JidokaGuard":
        """This guard with one more rule."""
        if not isinstance(condition, Condition) or not isinstance(action, Action):
            raise ParameterError(f"on({condition!r}, {action!r}): give a trueno.Condition and a trueno.Action")
        return replace(self, rules=(*self.rules, (condition, action)), _open=[])

    def __enter__(self) -> "JidokaGuard":
        context = state.guarded(self)
        context.__enter__()
        self._open.append(context)
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.pop().__exit__(*error)

    def attempt(
        self, op: Op, request: Call, arrays: list[Array], params: tuple[float, ...], targets: list[Array]
    ) -> int:
        """Run the guarded plan of `request` into scratch, check, and deliver into `targets`."""
        request = replace(request, guarded=True)
        scratch = [np.empty(t.shape, t.dtype) for t in targets]
        chosen, status = state.current.get().run(request, (*arrays, *params, *scratch))
        if status:
            self._tripped(op, chosen.backend.name, status, arrays, params, scratch)
        for target, result in zip(targets, scratch, strict=True):
            np.copyto(target, result)
        return 0

    def _tripped(
        self, op: Op, backend: str, status: int, arrays: list[Array], params: tuple[float, ...], results: list[Array]
    ) -> None:
        for condition, action in self.rules:
            bit, test = (1, np.isnan) if condition is Condition.NAN else (2, np.isinf)
            floats = [a for a in arrays if a.dtype.kind == "f"]
            if not status & bit or any(test(a).any() for a in floats) or any(test(p) for p in params):
                continue
            for spec, result in zip(op.signature.outputs, results, strict=True):
                if result.dtype.kind != "f" or not test(result).any():
                    continue
                bad = np.flatnonzero(test(result))
                first = tuple(int(i) for i in np.unravel_index(bad[0], result.shape)) if result.ndim else ()
                message = (
                    f"{op.name} on {backend} made {bad.size} {condition.value}: the first is {spec.name}{list(first)}"
                )
                if action is Action.STOP:
                    raise GuardError(message + "; no input holds one")
                from logging import getLogger

                getLogger("trueno").warning(message)


JidokaCondition = Condition
JidokaAction = Action
