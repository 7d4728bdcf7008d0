"""Quality guards: stop the line when a result is not healthy.

A guard is a tuple of rules, a condition and an action each.  It holds for the calls made under it: inside `with`,
in a function that it decorates, or in every call of a process through TRUENO_GUARD.  The inner guard replaces the
outer one.

    with trueno.JidokaGuard().on(Condition.NAN, Action.STOP):
        y = trueno.log(x)

Plans made under a guard are watched: `trueno.dispatch.watch` puts itself around the kernel.
"""

import inspect
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from trueno.dispatch import state
from trueno.errors import ParameterError, TruenoError
from trueno.guards.rules import Action, Condition, Rule, Rules, parse

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, repr=False)
class JidokaGuard:
    """Rules for results, in order; a context manager, and a decorator of functions.

    It keeps no state of its own: one guard may be entered again, and by many threads and tasks at once.
    A guard without rules switches guarding off inside.
    """

    rules: Rules = ()

    def __post_init__(self) -> None:
        given: Any = self.rules
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise ParameterError(
                f"JidokaGuard({self.rules!r}): give pairs of a condition and an action, "
                "or write JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP)"
            )
        rules: list[Rule] = []
        for rule in given:
            pair = tuple(rule) if isinstance(rule, Iterable) else (rule,)
            if len(pair) != 2 or not isinstance(pair[0], Condition) or not isinstance(pair[1], Action):
                shown = ", ".join(map(repr, pair))
                raise ParameterError(f"on({shown}): give a trueno.Condition and a trueno.Action")
            rules.append((pair[0], pair[1]))
        object.__setattr__(self, "rules", tuple(rules))

    def on(self, condition: Condition, action: Action) -> "JidokaGuard":
        """A guard with one more rule; this one stays as it is."""
        return JidokaGuard((*self.rules, (condition, action)))

    @classmethod
    def parse(cls, rules: Iterable[tuple[str, str]]) -> "JidokaGuard":
        """The guard of TRUENO_GUARD: `("nan", "stop")`, `("divergence(1e-5)", "fall_back")` …"""
        return cls(parse(rules))

    def __repr__(self) -> str:
        return "JidokaGuard()" + "".join(f".on({condition}, {action})" for condition, action in self.rules)

    def __enter__(self) -> "JidokaGuard":
        context = state.guarded(self.rules)
        context.__enter__()
        _open.set((*_open.get(), (self, context)))
        return self

    def __exit__(self, *error: Any) -> None:
        entered = _open.get()
        last = max((i for i, (guard, _) in enumerate(entered) if guard is self), default=None)
        if last is None:
            raise TruenoError(
                "a guard must be left where it was entered, in the same thread, task and context; keep the whole "
                "`with guard:` in one of them (a generator that pauses inside may be resumed elsewhere)"
            )
        _open.set(entered[:last] + entered[last + 1 :])
        entered[last][1].__exit__(*error)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """`function`, plain or async, such that it runs under this guard: `guard(trueno.log)(x)`, or as a decorator.

        A generator is refused: its body runs in its caller's context, piece by piece.
        """
        if not callable(function):
            raise ParameterError(f"guard({function!r}): give a function; for a block of code write `with guard:`")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ParameterError(
                f"guard({function.__name__}): a generator runs when it is asked for items, outside of its guard; "
                "write `with guard:` around what asks"
            )
        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def later(*args: P.args, **kwargs: P.kwargs) -> Any:
                with self:
                    return await function(*args, **kwargs)

            return later  # type: ignore[return-value]

        @wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return guarded


_open: ContextVar[tuple[tuple[JidokaGuard, Any], ...]] = ContextVar("trueno_guards", default=())
"""The guards that this thread or task is inside of, and what ends each."""

JidokaCondition = Condition
JidokaAction = Action
