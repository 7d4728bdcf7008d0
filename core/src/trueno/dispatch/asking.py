"""Requests for backends: `use` and `prefer` in a `with`, `set_default` and `reset_quarantine` for the process."""

from trueno.discovery import registry
from trueno.dispatch.fallback import say_again
from trueno.dispatch.state import follow, forget_plans, set_asked
from trueno.errors import ParameterError
from trueno.kinds import named
from trueno.scope import Scope
from trueno.select import quarantine
from trueno.select.decision import Request


def _names(function: str, names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not isinstance(name, str):
            raise ParameterError(f'{function}: {name!r} is not the name of a backend; write trueno.{function}("simd")')
    return named(function, tuple(map(registry.named, names)))


class BackendScope(Scope):
    """The scope that `use` and `prefer` return: calls inside run under its request for backends."""

    def __init__(self, function: str, names: tuple[str, ...], request: Request) -> None:
        self.request = request
        self._name = f"{function}({', '.join(map(repr, names))})"

    def _follow(self, scopes: tuple[Scope, ...]) -> None:
        follow(scopes)

    def __repr__(self) -> str:
        return f"<trueno.{self._name}>"


def use(*names: str) -> BackendScope:
    """Run everything inside on these backends, best first; a call that none of them can run raises an error.

    UnknownBackend for a name that is not installed, BackendUnavailable with the reason for one that cannot run.
    "cpu" and "gpu" name all of that kind.  Without a name, the choice is automatic, whatever TRUENO_BACKEND says.
    """
    request = Request(_names("use", names), (), not names, "trueno.use")
    for name in request.names:
        registry.load(name)
    return BackendScope("use", names, request)


def prefer(*names: str) -> BackendScope:
    """Use, inside, the first of these backends that can run a call; choose automatically if none can.

    UnknownBackend for a name that is not installed.  If TRUENO_BACKEND names backends, only those may run.
    """
    preferred = _names("prefer", names)
    for name in preferred:
        if name not in registry.entries():
            registry.load(name)  # raises with a suggestion
    return BackendScope("prefer", names, Request((), preferred, False, "trueno.prefer"))


def set_default(*names: str) -> None:
    """Set the backends for the whole process, including every thread; without a name, the choice is automatic again.

    `use` and `prefer` override it inside their scopes.
    """
    for name in _names("set_default", names):
        registry.load(name)
    set_asked(Request(_names("set_default", names), (), False, "trueno.set_default") if names else Request())


def reset_quarantine(backend: str | None = None) -> None:
    """End the quarantine of a backend (or of all), so that it runs calls again; `trueno.stats()` lists the quarantine.

    UnknownBackend for a name that is not installed.
    """
    if backend is not None:
        if not isinstance(backend, str):
            raise ParameterError(
                f'reset_quarantine: {backend!r} is not the name of a backend; write trueno.reset_quarantine("simd")'
            )
        backend = registry.named(backend)
    if backend is not None and backend not in registry.entries():
        registry.load(backend)  # raises with a suggestion
    quarantine.release(backend)
    say_again(backend)
    forget_plans()


forgive = reset_quarantine
"""The earlier name of `reset_quarantine`."""
