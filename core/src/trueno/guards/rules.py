"""Rules for results: the conditions of unhealthy results, and the actions."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from math import isfinite
from typing import Any, ClassVar

import numpy as np

from trueno.errors import ParameterError, suggestion
from trueno.guards import health

BITS = {"nan": health.NAN, "inf": health.INF, "overflow": health.INF, "divergence": 0}
"""The kinds of condition, each with the status bits that require a closer check."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition under which a result is unhealthy.

    `Condition.NAN`: the result has a NaN, though no float operand and no parameter has one.
    `Condition.INF`: the result has an Inf, though no float operand and no parameter has one.
    `Condition.OVERFLOW`: the result has an Inf, though operands and parameters are all finite.
    `Condition.divergence(1e-5)`: the result differs from the reference by more than that.
    """

    kind: str
    tolerance: float | None = None

    NAN: ClassVar["Condition"]
    INF: ClassVar["Condition"]
    OVERFLOW: ClassVar["Condition"]

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in BITS:
            near = suggestion(self.kind, BITS) if isinstance(self.kind, str) else ""
            raise ParameterError(f"Condition({self.kind!r}): the conditions are {', '.join(BITS)}{near}")
        if self.kind == "divergence":
            object.__setattr__(self, "tolerance", _tolerance(self.tolerance))
        elif self.tolerance is not None:
            raise ParameterError(f"Condition({self.kind!r}, {self.tolerance!r}): only divergence has a tolerance")

    @staticmethod
    def divergence(tolerance: float) -> "Condition":
        """A result that differs from the reference by more than `tolerance`, 0 or more.

        The reference is the op's own body, computed in float64 from the call's operands and rounded to its dtype.
        Differences count in units of the largest finite |value| of that result.  A NaN or an Inf where the
        reference has none, or the reverse, always diverges; so does another position of an argmax.
        """
        return Condition("divergence", _tolerance(tolerance))

    def __repr__(self) -> str:
        return f"Condition.{self.kind.upper() if self.tolerance is None else f'divergence({self.tolerance:g})'}"


def _tolerance(given: Any) -> float:
    """A tolerance as a float; ParameterError for an invalid one."""
    tolerance = None
    if isinstance(given, (float, int, np.floating, np.integer)) and not isinstance(given, bool):
        try:
            tolerance = float(given)
        except OverflowError:  # an integer beyond every float
            tolerance = None
    if tolerance is None or not (isfinite(tolerance) and tolerance >= 0):
        text = "no tolerance" if given is None else repr(given) if len(repr(given)) < 40 else f"{repr(given)[:36]}…"
        raise ParameterError(f"divergence({text}): the tolerance is a finite number, 0 or more")
    return tolerance


Condition.NAN = Condition("nan")
Condition.INF = Condition("inf")
Condition.OVERFLOW = Condition("overflow")


class Action(Enum):
    """The action that runs when a result meets a condition.

    STOP: raise GuardError.  LOG: emit an event and a warning of the logger `trueno`, and keep the result.
    PROMOTE_F64: compute again in float64 and round to the call's dtype; GuardError if the result is still unhealthy.
    FALL_BACK: compute again with the reference; after three results that the reference has repaired, the backend is
    quarantined for calls like that one.
    """

    STOP = "stop"
    LOG = "log"
    PROMOTE_F64 = "promote_f64"
    FALL_BACK = "fall_back"


Rule = tuple[Condition, Action]
Rules = tuple[Rule, ...]


def parse(words: Iterable[tuple[str, str]]) -> Rules:
    """The rules of TRUENO_GUARD from pairs of words: a kind of condition, with its tolerance, and an action."""
    rules = []
    for word, action in words:
        kind, _, rest = word.partition("(")
        condition = Condition.divergence(float(rest.rstrip(")"))) if rest else Condition(kind)
        rules.append((condition, Action(action)))
    return tuple(rules)
