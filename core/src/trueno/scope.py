"""Scopes: what holds inside of a `with`, or of a function: the backends asked for, a guard, a trace.

One ContextVar says which scopes a thread or task is inside of.  What they come to is computed when one is entered or
left, and never on the path of a call.
"""

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, Self, TypeVar

from trueno.errors import ParameterError, TruenoError

P = ParamSpec("P")
R = TypeVar("R")


class Scope:
    """Holds inside of a `with`, or of a function that it decorates, plain or async.

    A scope is local to the thread or task that enters it.  It may be used again, nested, and by many threads at once.
    One that is left in another order than it was entered takes only its own part away.

    A kind of scope sets some of three attributes, which the code that decides how calls run reads off the open scopes.
    request: for backends.  rules: the guard's; () is a guard that lets everything pass, None no guard.
    traced: whether every call is an event.
    """

    request: Any = None
    rules: Any = None
    traced: bool = False
    _name: str = "a scope"
    """What messages call it."""

    def _follow(self, scopes: "tuple[Scope, ...]") -> None:
        """Have calls run from now on as these scopes want it, the innermost last."""

    def _for_call(self, decorated: Callable[..., Any]) -> "Scope":
        """The scope of one call of a function that this one decorates."""
        return self

    def __enter__(self) -> Self:
        scopes: tuple[Scope, ...] = (*_open.get(), self)
        self._follow(scopes)
        _open.set(scopes)
        return self

    def __exit__(self, *error: Any) -> None:
        scopes = _open.get()
        for last in range(len(scopes) - 1, -1, -1):  # by identity: two guards may be equal
            if scopes[last] is self:
                break
        else:
            raise TruenoError(
                f"{self._name} must be left where it was entered, in the same thread, task and context, and once; keep "
                "the whole `with` in one of them (a generator that pauses inside may be resumed elsewhere)"
            )
        scopes = scopes[:last] + scopes[last + 1 :]
        _open.set(scopes)
        self._follow(scopes)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """`function`, plain or async, such that it runs inside: `guard(trueno.log)(x)`, or as a decorator.

        ParameterError for a generator: its body runs in its caller's context, piece by piece.
        """
        if not callable(function):
            raise ParameterError(f"{self._name}: {function!r} is not a function; give a function, or `with` a block")
        bodies = (function, getattr(type(function), "__call__", None))  # noqa: B004 - an object's call may be async
        if any(inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body) for body in bodies):
            raise ParameterError(
                f"{self._name}: {getattr(function, '__name__', repr(function))} is a generator, whose body runs where "
                "its items are asked for, and not inside; write `with` around the loop that asks"
            )
        decorated: Any
        if any(inspect.iscoroutinefunction(body) for body in bodies):

            @wraps(function)
            async def decorated(*args: P.args, **kwargs: P.kwargs) -> Any:
                with self._for_call(decorated):
                    return await function(*args, **kwargs)  # type: ignore[misc]

        else:

            @wraps(function)
            def decorated(*args: P.args, **kwargs: P.kwargs) -> R:
                with self._for_call(decorated):
                    return function(*args, **kwargs)

        return decorated  # type: ignore[no-any-return]


_open: ContextVar[tuple[Scope, ...]] = ContextVar("trueno_scopes", default=())


def opened() -> tuple[Scope, ...]:
    """The scopes that this thread or task is inside of, outermost first."""
    return _open.get()
