"""The inspection of an unhealthy guarded call: every rule is checked, in order, and its action runs.

A later rule checks the result that an earlier action has recomputed.  If two rules apply, both actions run:
LOG, then STOP; or PROMOTE_F64, then a check of the repaired result for divergence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from math import isfinite
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from trueno.discovery.protocol import Call
from trueno.errors import DtypeError, GuardError, KernelError
from trueno.events.stream import emit, logger
from trueno.guards import health
from trueno.guards.health import Finding
from trueno.guards.rules import Action, Condition, Rules
from trueno.select import quarantine
from trueno.select.keeper import Keeper
from trueno.settings import settings
from trueno.text import number

Array = npt.NDArray[Any]
PATIENCE = 3
"""The number of results that the reference must repair before a backend is quarantined for calls of that key."""
WORDS = {"nan": "a NaN", "inf": "an Inf"}
TESTS: dict[str, health.Test] = {"nan": np.isnan, "inf": np.isinf, "overflow": np.isinf}

_trips: dict[Any, "count[int]"] = {}


@dataclass(frozen=True, slots=True)
class Inspection:
    """The rules of a guard, for calls of one key on one backend."""

    call: Call
    name: str
    rules: Rules
    state: Keeper

    def __call__(self, operands: Sequence[Array], params: Sequence[float], results: Sequence[Array]) -> list[Array]:
        """The results after all rules; GuardError from a rule that stops.  All arrays are on the host."""
        now = _Results(self.call, operands, params, list(results))
        for condition, action in self.rules:
            finding = now.find(condition)
            if finding is None:
                continue
            trip = _Trip(self.call, self.name, self.state, condition, action, finding, now.held(condition))
            if action is Action.STOP:
                trip.stop()
            elif action is Action.LOG:
                trip.log()
            elif action is Action.PROMOTE_F64:
                now.results = trip.promote(now)
            else:
                now.results = trip.fall_back(now)
        return now.results


class _Results:
    """Results under inspection, with the operands that may explain them."""

    def __init__(self, call: Call, operands: Sequence[Array], params: Sequence[float], results: list[Array]) -> None:
        self.call, self.operands, self.params, self.results = call, operands, params, results
        self._held: dict[Any, bool] = {}
        self._reference: list[Array] | None = None

    def find(self, condition: Condition) -> Finding | None:
        """The elements of the results that meet a condition which no operand explains; None if there are none."""
        if condition.tolerance is not None:
            if self._reference is None:
                self._reference = health.reference(self.call, self.operands, self.params, np.float64)
            return health.divergence(self.call, self.results, self._reference, condition.tolerance)
        test = TESTS[condition.kind]
        finding = health.where(test, [s.name for s in self.call.op.signature.outputs], self.seen)
        if finding is None or self._hold(test) or (condition.kind == "overflow" and self._hold(np.isnan)):
            return None
        return finding

    @cached_property
    def numbers(self) -> list[Array]:
        """The operands, decoded; they are computed only after a result is found unhealthy."""
        return health.floats(self.call, self.operands, self.call.op.signature.inputs)

    @property
    def seen(self) -> list[Array]:
        """The results, decoded."""
        return health.floats(self.call, self.results, self.call.op.signature.outputs)

    def _hold(self, test: health.Test) -> bool:
        if test not in self._held:
            self._held[test] = health.holds(test, self.numbers, self.params)
        return self._held[test]

    def held(self, condition: Condition) -> str:
        """The non-finite values of the inputs, as the last part of a message."""
        if condition.kind not in WORDS:
            return "its inputs are finite" if condition.kind == "overflow" else ""
        word = WORDS[condition.kind]
        tests = [("NaN", np.isnan), ("Inf", np.isinf)]
        parts = []
        for name, x in zip(self.call.op.operands, self.numbers, strict=True):
            for other, test in tests if x.dtype.kind == "f" else ():
                if many := int(np.count_nonzero(test(x))):
                    parts.append(f"{name} holds {number(many)} {other}")
        symbols = [p.name for p in self.call.op.params if p.symbolic]
        parts += [f"{name} is {p}" for name, p in zip(symbols, self.params, strict=False) if not isfinite(p)]
        return "; ".join([f"no input holds {word}", ", ".join(parts)] if parts else ["its inputs are finite"])

    def other(self, results: list[Array]) -> "_Results":
        """The same call with other results."""
        copy = _Results(self.call, self.operands, self.params, results)
        copy._held, copy._reference = self._held, self._reference
        return copy


@dataclass(frozen=True, slots=True)
class _Trip:
    """One condition that was met."""

    call: Call
    name: str
    state: Keeper
    condition: Condition
    action: Action
    finding: Finding
    inputs: str

    def said(self) -> str:
        """The message: op, backend, number of elements, and the position of the first."""
        f, op = self.finding, f"{self.call.op.name} on {self.name}"
        first = f"the first is {f.place}" + (f" of shape {f.shape}" if len(f.shape) > 0 else "")
        places = f"{number(f.count)} place{'s' * (f.count != 1)}"
        if (limit := self.condition.tolerance) is not None:
            return f"{op} differs from the reference by more than {limit:g} at {places}: {f.detail}"
        if self.condition.kind == "overflow":
            return f"{op} overflowed {self.call.dtype} at {places}: {first}; {self.inputs}"
        word = {"nan": "NaN", "inf": "Inf"}[self.condition.kind]
        return f"{op} made {number(f.count)} {word}: {first}; {self.inputs}"

    def tell(self, more: str = "") -> str:
        """Emit the event, and return its message."""
        message = self.said() + more
        emit(
            "guard",
            self.call.op.name,
            self.name,
            message,
            condition=self.condition.kind,
            action=self.action.value,
        )
        return message

    def stop(self, more: str = "") -> NoReturn:
        """Raise the GuardError; it carries op, backend, condition, result, index, shape and count as attributes."""
        error = GuardError(self.tell(more))
        f = self.finding
        facts = {"result": f.result, "index": f.index, "shape": f.shape, "count": f.count}
        vars(error).update(facts, op=self.call.op.name, backend=self.name, condition=self.condition)
        raise error

    def log(self) -> None:
        logger().warning("%s", self.tell())

    def promote(self, now: _Results) -> list[Array]:
        """The results computed in float64 and rounded; GuardError if they are still unhealthy."""
        call = self.call
        if call.dtype == np.float64:
            self.stop("; it is computed in float64 already, and there is no wider type to promote it to")
        wide = _in_float64(self.state, call, now.operands, now.params)
        with np.errstate(all="ignore"):
            rounded = [w.astype(r.dtype) for w, r in zip(wide, now.results, strict=True)]
        again = now.other(rounded)
        for condition in (self.condition, Condition.NAN, Condition.INF):
            if still := again.find(condition):
                value = again.seen[_number(call, still)][still.index]
                self.stop(f"; computed in float64 and rounded to {call.dtype}, {still.place} is {value!s}")
        self.tell("; computed again in float64")
        return rounded

    def fall_back(self, now: _Results) -> list[Array]:
        """The reference's results; a backend that needs it repeatedly is quarantined."""
        call = self.call
        results = health.reference(call, now.operands, now.params, call.dtype)
        if now.other(results).find(self.condition):  # the data are the cause, not the backend
            self.tell("; so does the reference")
            return results
        self.tell("; the reference computed it again")
        if self._asked_for():
            return results
        key = quarantine.key(call, self.name)
        if next(_trips.setdefault(key, count(1))) >= PATIENCE:
            _trips.pop(key, None)
            self._leave_out()
        return results

    def _asked_for(self) -> bool:
        """Whether the backend runs this call because it was named; a named backend is not quarantined."""
        named = (*self.state.request.names, *settings.get("TRUENO_BACKEND"))
        return self.name in named or self.name == "reference" or self.call.residency == self.name

    def _leave_out(self) -> None:
        call = self.call
        reason = (
            f"{call.op.name} tripped the guard on {self.condition.kind} {PATIENCE} times, and the reference did not"
        )
        self.state.leave_out(call, self.name, reason)
        emit("quarantine", call.op.name, self.name, reason)
        logger().warning(
            "%s: %s is quarantined for calls like it from now on; trueno.reset_quarantine() ends that",
            reason,
            self.name,
        )


def _number(call: Call, finding: Finding) -> int:
    return [s.name for s in call.op.signature.outputs].index(finding.result)


def _in_float64(state: Keeper, call: Call, operands: Sequence[Array], params: Sequence[float]) -> list[Array]:
    """The results in float64 from the best backend that supports it, without a guard, or else from the reference."""
    wide = np.dtype(np.float64)
    request = replace(call, dtype=wide, residency="host", guarded=False)
    widened = [x.astype(wide) if x.dtype.kind == "f" else x for x in operands]
    results = [np.empty(r, spec.holds(wide)) for r, spec in health.shapes(call, operands)]
    try:
        with state.unguarded() as plain:
            plain.run(request, (*widened, *params, *results))
    except (DtypeError, KernelError):  # the named backend does not support float64
        return health.reference(call, operands, params, wide)
    return results
