"""Which backend runs a call: the requested one, else the data's device, else the fastest of the capable ones.

Decided once per key; the answer, with every candidate's reason, is a `Decision`.  It does not depend on
the order of installation.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from typing import Any

from trueno.discovery import registry
from trueno.discovery.protocol import Backend, Call, Reject
from trueno.discovery.registry import Entry
from trueno.dispatch.half import is_half
from trueno.errors import BackendUnavailable, DeviceError, DtypeError, KernelError, UnknownBackend
from trueno.floatenv import ieee
from trueno.select import quarantine
from trueno.select.decision import Candidate, Decision, Request
from trueno.select.reasons import PLUGIN
from trueno.settings import settings

NEAR = 1.10
"""Predictions within 10 % are a tie, which the tier decides: so choices do not flip with the noise of a measurement."""
GPU_ELEMENTS = 100_000
GPU_FLOPS = 2.5e8
"""A GPU is considered for host arrays from 100 000 elements, for products of matrices from about 500³."""


_thread = local()


@contextmanager
def asking(name: str) -> Iterator[None]:
    """Active while a plugin's code answers.  Other backends run the ops that it calls then, without caching."""
    names: list[str] = _thread.__dict__.setdefault("names", [])
    names.append(name)
    try:
        with ieee():  # what the plugin prints or compiles now is kept
            yield
    finally:
        names.pop()


def nested() -> bool:
    """Whether this decision is made while a plugin or a hook answers for another call."""
    return bool(_thread.__dict__.get("names"))


def rejection(backend: Backend, call: Call) -> Reject | None:
    """The answer of `supports`; an error in it, or an invalid answer, counts as a rejection."""
    host = is_half(call.dtype) and call.residency == "host"
    if host and not registry.entries()[backend.name].half(call.op.name, host):
        return Reject("unsupported_dtype", f"{call.dtype}: its manifest promises no such kernel on the host")
    try:
        with asking(backend.name):
            answer: Any = backend.supports(call)
    except RecursionError:  # the caller's stack is the cause
        raise
    except Exception as error:
        return Reject("unsupported_call", f"its supports() raised {type(error).__name__}: {error}")
    if answer is None:
        return None
    code, detail = getattr(answer, "code", None), str(getattr(answer, "detail", ""))
    if code in PLUGIN:
        return Reject(code, detail)
    reason = f"{code}: {detail}" if isinstance(code, str) else f"its supports() gave {type(answer).__name__}"
    return Reject("unsupported_call", reason)


def decide(call: Call, request: Request) -> Decision:
    """The decision for a call; raises when no backend can take it, or when the request cannot be met."""
    names, origin = request.names, request.origin
    if not names and not request.automatic:
        names = tuple(n if ":" not in n else registry.named(n) for n in settings.get("TRUENO_BACKEND"))
        origin = settings.origin("TRUENO_BACKEND").origin if names else origin
        names = tuple(sorted(names, key=lambda n: request.preferred.index(n) if n in request.preferred else len(names)))
    if call.residency != "host":
        return _resident(call, names, origin)
    if names:
        return _named(call, names, origin)
    return _automatic(call, request)


def _named(call: Call, names: tuple[str, ...], origin: str) -> Decision:
    candidates: list[Candidate] = []
    able: list[str] = []
    for name in names:
        reject = rejection(_loaded(name, origin), call)
        if reject is not None:
            candidates.append(Candidate(name, reject.code, reject.detail))
        else:
            candidates.append(Candidate(name, "less_preferred", "named later") if able else Candidate(name, "named"))
            able.append(name)
    rest = [Candidate(e.name, "not_asked") for e in registry.entries().values() if e.name not in names]
    return _done(call, "named", origin, [*candidates, *rest], able)


def _loaded(name: str, origin: str) -> Backend:
    try:
        return registry.load(name)
    except (UnknownBackend, BackendUnavailable) as error:
        if not origin.startswith("environment"):
            raise
        raise type(error)(f"{origin}: {error}") from error.__cause__


def _resident(call: Call, names: tuple[str, ...], origin: str) -> Decision:
    device, op = call.residency, call.op.name
    if names and device not in names and device.partition(":")[0] not in names:  # "cuda" is any of its devices
        raise DeviceError(
            f"{op}: the operands live on {device}, but {', '.join(names)} was asked for ({origin}); "
            f"move them first: trueno.to(x, {names[0]!r})"
        )
    reject = rejection(registry.load(device), call)
    if reject is not None:
        raise KernelError(
            f"{op}: its operands live on {device}, which does not take the call: {reject.code} ({reject.detail}); "
            f"copy them to the host with trueno.numpy(x)"
        )
    rest = [Candidate(e.name, "not_resident") for e in registry.entries().values() if e.name != device]
    return _done(call, "resident", f"operands on {device}", [Candidate(device, "resident"), *rest], [device])


def _automatic(call: Call, request: Request) -> Decision:
    candidates: list[Candidate] = []
    able: list[tuple[Entry, Candidate]] = []
    for entry in registry.entries().values():
        wanted = entry.name in request.preferred
        code, detail = _barred(entry, call, wanted)
        if code:
            candidates.append(Candidate(entry.name, code, detail))
            continue
        candidate = _priced(entry, call)
        (able.append((entry, candidate)) if not candidate.code else candidates.append(candidate))
    ranked = _ranked(able)
    by, chosen = _pick(call, request, ranked)
    order = sorted(ranked, key=lambda c: c.name != chosen)
    fastest = min((c.seconds for c in ranked if c.seconds is not None), default=0.0)
    for c in ranked:
        code = by if c.name == chosen else _lost(c, by, fastest)
        candidates.append(Candidate(c.name, code, c.detail, c.seconds, c.source, c.moved))
    return _done(call, by, request.origin if by == "preferred" else "", candidates, [c.name for c in order])


def _barred(entry: Entry, call: Call, wanted: bool) -> tuple[str, str]:
    """Why an automatic choice leaves an entry out without calling it, as code and detail; empty if it does not.

    Cheap checks come first: a GPU's plugin is not even probed for an array that is too small for it.
    """
    if entry.opt_in and not wanted:
        return "opt_in", ""
    if entry.kind == "gpu" and not entry.reason and not wanted:
        from trueno.select.cost import work  # start-up

        amount = work(call)
        if amount.flops < GPU_FLOPS if call.op.chain else amount.elements < GPU_ELEMENTS:
            return "too_small", ""
    if not entry.available:
        return entry.code, entry.reason
    if entry.software and not wanted:
        return "software", ", ".join(d.name for d in entry.devices)
    reason = quarantine.reason(call, entry.name)
    return ("quarantined", reason) if reason is not None else ("", "")


def _priced(entry: Entry, call: Call) -> Candidate:
    """A candidate without a code and with its predicted time; with a code if it cannot take the call."""
    from trueno.select import cost, predict  # start-up

    if entry.name in _thread.__dict__.get("names", ()):
        return Candidate(entry.name, "unsupported_call", "it makes this call itself, while it answers for another")
    try:
        backend = entry.load()
    except RecursionError:
        raise
    except Exception as error:
        return Candidate(entry.name, entry.code or "load_failed", entry.reason or str(error))
    reject = rejection(backend, call)
    if reject is not None:
        return Candidate(entry.name, reject.code, reject.detail)
    try:
        with asking(entry.name):
            rates = backend.rates(call)
        estimate = predict.predict(call, entry.name, rates)
    except RecursionError:
        raise
    except Exception as error:
        return Candidate(entry.name, "bad_rates", f"{type(error).__name__}: {error}")
    moved = int(cost.work(call).moved) if entry.foreign and call.residency == "host" else 0
    return Candidate(entry.name, "", "", estimate.seconds, estimate.source, moved)


def _ranked(able: list[tuple[Entry, Candidate]]) -> list[Candidate]:
    """Fastest first; backends within 10 % of the fastest remaining one are ordered by tier, then by name."""
    left = list(able)
    order: list[Candidate] = []
    while left:
        least = min(c.seconds or 0.0 for _, c in left)
        near = [(e, c) for e, c in left if (c.seconds or 0.0) <= least * NEAR]
        best = min(near, key=lambda pair: (-pair[0].tier, pair[0].name))
        order.append(best[1])
        left.remove(best)
    return order


def _pick(call: Call, request: Request, ranked: list[Candidate]) -> tuple[str, str]:
    """Reason code and name of the choice."""
    if not ranked:
        return "only", ""
    names = [c.name for c in ranked]
    from trueno import hooks  # start-up

    if hooks.implemented("trueno_select"):
        with asking("trueno_select"):
            word = hooks.select(call, ranked)
        if word in names:
            return "policy", str(word)
    for name in request.preferred:
        if name in names:
            return "preferred", name
    if len(ranked) == 1:
        return "only", names[0]
    first = ranked[0]
    least = min(c.seconds or 0.0 for c in ranked)
    return ("fastest" if first.seconds == least else "tier"), first.name


def _lost(candidate: Candidate, by: str, fastest: float) -> str:
    if by == "policy":
        return "overruled"
    if by == "preferred":
        return "less_preferred"
    if (candidate.seconds or 0.0) <= fastest * NEAR:
        return "lower_tier"
    return "slower_measured" if candidate.source == "measured" else "slower_declared"


def _done(call: Call, by: str, origin: str, candidates: list[Candidate], ranking: list[str]) -> Decision:
    if not ranking:
        _raise(call, candidates, by == "named")
    order = {name: i for i, name in enumerate(ranking)}
    place = {name: i for i, name in enumerate(registry.entries())}
    candidates.sort(key=lambda c: (order.get(c.name, len(order)), place.get(c.name, 0)))
    return Decision(call, ranking[0], by, origin, tuple(candidates), tuple(ranking))


def _raise(call: Call, candidates: list[Candidate], named: bool) -> None:
    considered = [c for c in candidates if c.code != "not_asked"] if named else candidates
    reasons = "; ".join(f"{c.name} says {c.code}" + (f" ({c.detail})" if c.detail else "") for c in considered)
    refusals = [c.code for c in considered if c.code in PLUGIN]
    error = DtypeError if refusals and all(code == "unsupported_dtype" for code in refusals) else KernelError
    raise error(f"{call.op.name}: no backend takes it: {reasons}")


def announce(decision: Decision) -> None:
    """Emit the event, once per key."""
    from trueno.events.stream import emit  # start-up

    call = decision.call
    chosen = decision.candidates[0]
    emit(
        "decision",
        call.op.name,
        decision.chosen,
        decision.by,
        dtype=call.dtype.name,
        rank=call.rank,
        sizes=list(call.sizes),
        predicted=chosen.seconds,
        refused={c.name: c.code for c in decision.candidates[1:]},
    )
