"""Quality guards: they stop the line when a result is unhealthy.

A guard is a tuple of rules, each with a condition and an action.  It applies to calls inside its `with`, in a function
that it decorates, or, through TRUENO_GUARD, to every call of a process.  The inner guard replaces the outer one.

    with trueno.JidokaGuard().on(Condition.NAN, Action.STOP):
        y = trueno.log(x)

A plan made under a guard contains the layer `trueno.dispatch.watch` around its kernel.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trueno.dispatch.state import follow
from trueno.errors import ParameterError
from trueno.guards.rules import Action, Condition, Rule, Rules, parse
from trueno.scope import Scope


@dataclass(frozen=True, repr=False)
class JidokaGuard(Scope):
    """Rules for results, in order; a context manager, and a decorator of functions.

    It keeps no state of its own: one guard may be entered again, and by many threads and tasks at once.
    A guard without rules switches guarding off inside.
    """

    rules: Rules = ()
    _name = "JidokaGuard"

    def __post_init__(self) -> None:
        pairs: Any = self.rules
        if isinstance(pairs, str) or not isinstance(pairs, Iterable):
            raise ParameterError(
                f"JidokaGuard({self.rules!r}): give pairs of a condition and an action, "
                "or write JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP)"
            )
        rules: list[Rule] = []
        for rule in pairs:
            pair = tuple(rule) if isinstance(rule, Iterable) else (rule,)
            if len(pair) != 2 or not isinstance(pair[0], Condition) or not isinstance(pair[1], Action):
                shown = ", ".join(map(repr, pair))
                raise ParameterError(f"on({shown}): give a trueno.Condition and a trueno.Action")
            rules.append((pair[0], pair[1]))
        object.__setattr__(self, "rules", tuple(rules))

    def on(self, condition: Condition, action: Action) -> "JidokaGuard":
        """A guard with one more rule; this guard stays unchanged."""
        return JidokaGuard((*self.rules, (condition, action)))

    @classmethod
    def parse(cls, rules: Iterable[tuple[str, str]]) -> "JidokaGuard":
        """The guard of TRUENO_GUARD: `("nan", "stop")`, `("divergence(1e-5)", "fall_back")` …"""
        return cls(parse(rules))

    def __repr__(self) -> str:
        return "JidokaGuard()" + "".join(f".on({condition}, {action})" for condition, action in self.rules)

    def _follow(self, scopes: tuple[Scope, ...]) -> None:
        follow(scopes)


JidokaCondition = Condition
JidokaAction = Action
