"""Scopes: settings that apply inside a `with` or a function: the requested backends, a guard, a trace.

One ContextVar holds the open scopes of a thread or task.  Their combined effect is computed when a scope is entered or
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
    """A setting that applies inside a `with`, or inside a function that it decorates, plain or async.

    A scope is local to the thread or task that enters it.  It may be used again, nested, and by many threads at once.
    Scopes may be left in any order: each removes only its own settings.

    A kind of scope sets some of three attributes, which the code that decides how calls run reads from the open scopes.
    request: the request for backends.  rules: the guard's; () is a guard without conditions, None is no guard.
    traced: whether every call emits an event.
    """

    request: Any = None
    rules: Any = None
    traced: bool = False
    _name: str = "a scope"
    """The name of the scope in messages."""

    def _follow(self, scopes: "tuple[Scope, ...]") -> None:
        """Apply these scopes, the innermost last, to later calls."""

    def _for_call(self, decorated: Callable[..., Any]) -> "Scope":
        """The scope of one call of a function that this scope decorates."""
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
        """`function`, plain or async, wrapped so that it runs inside: `guard(trueno.log)(x)`, or as a decorator.

        ParameterError for a generator: its body runs in its caller's context, piece by piece.
        """
        if not callable(function):
            raise ParameterError(f"{self._name}: {function!r} is not a function; give a function, or `with` a block")
        bodies = (function, getattr(type(function), "__call__", None))  # noqa: B004 - an object's call may be async
        if any(inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body) for body in bodies):
            raise ParameterError(
                f"{self._name}: {getattr(function, '__name__', repr(function))} is a generator, whose body runs where "
                "its items are requested, outside the scope; write `with` around the loop that requests them"
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
    """The open scopes of this thread or task, outermost first."""
    return _open.get()
