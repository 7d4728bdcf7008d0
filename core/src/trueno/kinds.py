"""Kinds of backends where names are expected: `trueno.use("gpu")`."""

from trueno.discovery import registry
from trueno.errors import BackendUnavailable

KINDS = frozenset(("cpu", "gpu"))


def named(function: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names, with each kind replaced by its backends that can run here, best first.

    Such are neither emulated by software nor used only when they are named.  BackendUnavailable if there are none, but
    for `prefer`, which then prefers nothing.
    """
    if KINDS.isdisjoint(names):
        return names
    installed, listed = registry.entries(), []
    for name in names:
        if name not in KINDS or name in installed:
            listed.append(name)
            continue
        own = [e for e in installed.values() if e.kind == name and not e.opt_in]
        able = [e.name for e in own if e.available and not e.software]
        if not able and function != "prefer":
            reasons = "; ".join(f"{e.name}: {e.reason or 'software emulates it, so name it'}" for e in own)
            problem = f"no backend of kind {name} can run here ({reasons or 'none is installed'})"
            raise BackendUnavailable(f"{function}: {problem}; trueno.backends() lists all")
        listed += able
    return tuple(dict.fromkeys(listed))
