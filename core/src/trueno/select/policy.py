"""Which backend runs a call: explicit choice first, then what is feasible, best tier first.

Decided once per key and kept in the plan tables of the state (`trueno.dispatch`).
"""

from dataclasses import dataclass

from trueno.discovery import registry
from trueno.discovery.protocol import Backend, Call, Kernel, Reject
from trueno.errors import DtypeError, KernelError
from trueno.settings import settings


@dataclass(frozen=True, slots=True)
class Chosen:
    """A plan: the backend that was chosen and its kernel."""

    backend: Backend
    kernel: Kernel


def names(explicit: tuple[str, ...]) -> tuple[str, ...]:
    """The backends to consider, best first; those named explicitly must be available."""
    asked = explicit or settings.get("TRUENO_BACKEND")
    if asked:
        for name in asked:
            registry.load(name)  # raises, with the reason, what cannot be honoured
        return tuple(asked)
    return tuple(
        e.name for e in registry.entries().values() if e.available and not (e.manifest and e.manifest.opt_in)
    )


def choose(call: Call, explicit: tuple[str, ...] = (), skip: int = 0) -> Chosen | None:
    """The best backend that takes `call`, leaving out the first `skip` that would; None when none is left.

    Raises when backends were named explicitly and none of them takes the call.
    """
    refusals: list[str] = []
    for name in names(explicit):
        backend = registry.load(name)
        reject: Reject | None = backend.supports(call)
        if reject is not None:
            refusals.append(f"{name} says {reject.code}" + (f" ({reject.detail})" if reject.detail else ""))
            continue
        if skip:
            skip -= 1
            continue
        kernel = backend.kernel(call)
        registry.entries()[name].active = True
        return Chosen(backend, kernel)
    if refusals and len(refusals) == len(names(explicit)):
        error = DtypeError if all("unsupported_dtype" in r for r in refusals) else KernelError
        raise error(f"{call.op.name}: no backend takes it: {'; '.join(refusals)}")
    return None
