"""Which backend runs a call: explicit choice first, then what is feasible, best tier first.

Decided once per key and kept in the plan tables of the state (`trueno.dispatch`).
"""

from collections.abc import Iterator
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


def candidates(explicit: tuple[str, ...]) -> Iterator[Backend]:
    """The backends to consider, best first; those named explicitly must be available.

    Lazy, so that a backend which is not needed is not loaded.
    """
    asked = explicit or settings.get("TRUENO_BACKEND")
    if asked:
        yield from [registry.load(name) for name in asked]  # raises, with the reason, what cannot be honoured
        return
    for entry in registry.entries().values():
        if not (entry.manifest and entry.manifest.opt_in) and entry.available:
            yield registry.load(entry.name)


def choose(call: Call, explicit: tuple[str, ...] = (), skip: int = 0) -> Chosen | None:
    """The best backend that takes `call`, leaving out the first `skip` that would; None when none is left.

    Raises when none of the backends takes the call at all.
    """
    refusals: list[Reject] = []
    said: list[str] = []
    taken = 0
    for backend in candidates(explicit):
        reject = backend.supports(call)
        if reject is not None:
            refusals.append(reject)
            said.append(f"{backend.name} says {reject.code}" + (f" ({reject.detail})" if reject.detail else ""))
            continue
        taken += 1
        if taken > skip:
            kernel = backend.kernel(call)
            registry.entries()[backend.name].active = True
            return Chosen(backend, kernel)
    if refusals and not taken:
        error = DtypeError if all(r.code == "unsupported_dtype" for r in refusals) else KernelError
        raise error(f"{call.op.name}: no backend takes it: {'; '.join(said)}")
    return None
