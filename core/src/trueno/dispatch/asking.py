"""The user's choice of backends: `use` and `prefer` in a `with`, `set_default` for the process, `forgive`."""

from trueno.discovery import registry
from trueno.dispatch.fallback import say_again
from trueno.dispatch.state import Under, forget_plans, set_asked
from trueno.errors import ParameterError
from trueno.select import quarantine
from trueno.select.decision import Asked


def _names(function: str, names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not isinstance(name, str):
            raise ParameterError(f'{function}: {name!r} is not the name of a backend; write trueno.{function}("simd")')
    return tuple(n.lower() for n in names)


def use(*names: str) -> Under:
    """Run everything inside on these backends, best first; an error if none of them can run a call.

    UnknownBackend for a name that is not installed, BackendUnavailable with the reason for one that cannot run.
    No name: choose automatically inside, whatever TRUENO_BACKEND or `set_default` say.
    """
    asked = Asked(_names("use", names), (), not names, "trueno.use")
    for name in asked.names:
        registry.load(name)
    return Under(f"use({', '.join(map(repr, names))})", asked)


def prefer(*names: str) -> Under:
    """Inside, use the first of these backends that can run a call; choose automatically if none can.

    UnknownBackend for a name that is not installed.  If TRUENO_BACKEND names backends, only those may run.
    """
    preferred = _names("prefer", names)
    for name in preferred:
        if name not in registry.entries():
            registry.load(name)  # raises with a suggestion
    return Under(f"prefer({', '.join(map(repr, names))})", Asked((), preferred, False, "trueno.prefer"))


def set_default(*names: str) -> None:
    """Set the backends for the whole process, every thread included; no name: choose automatically again.

    Inside a `use` or `prefer` those still apply.
    """
    for name in _names("set_default", names):
        registry.load(name)
    set_asked(Asked(_names("set_default", names), (), False, "trueno.set_default") if names else Asked())


def forgive(backend: str | None = None) -> None:
    """End the quarantine of a backend (or of all), so that it gets calls again; `trueno.stats()` lists the quarantine.

    UnknownBackend for a name that is not installed.
    """
    if backend is not None:
        if not isinstance(backend, str):
            raise ParameterError(f'forgive: {backend!r} is not the name of a backend; write trueno.forgive("simd")')
        backend = backend.lower()
    if backend is not None and backend not in registry.entries():
        registry.load(backend)  # raises with a suggestion
    quarantine.release(backend)
    say_again(backend)
    forget_plans()
