"""Quality guards: stop the line when a result is not healthy.

A guard is a tuple of rules, a condition and an action each.  It holds for the calls made under it: inside `with`,
in a function that it decorates, or in every call of a process through TRUENO_GUARD.  The inner guard replaces the
outer one.

    with trueno.JidokaGuard().on(Condition.NAN, Action.STOP):
        y = trueno.log(x)

Plans made under a guard are watched: `watch` puts itself around the kernel.  A healthy call costs a look at the
status bits that the kernel folded into its own pass (`trueno.ops.guarded`); a kernel without them has its results
read once more.  Operands are scanned only after a trip; a watched call never writes over them.
"""

import inspect
import os
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from functools import reduce, wraps
from math import isfinite
from operator import or_
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar

import numpy as np

from trueno.discovery import registry
from trueno.discovery.protocol import Call, Kernel
from trueno.dispatch import state
from trueno.errors import GuardError, ParameterError, TruenoError, suggestion
from trueno.guards import health

if TYPE_CHECKING:
    from trueno.guards.inspection import Inspection

P = ParamSpec("P")
R = TypeVar("R")


BITS = {"nan": health.NAN, "inf": health.INF, "overflow": health.INF, "divergence": 0}
"""Kinds of condition, and the status bits with which each becomes worth a closer look."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What is not healthy in a result.

    `Condition.NAN`: a NaN, though no float operand and no parameter holds one.
    `Condition.INF`: an Inf, though no float operand and no parameter holds one.
    `Condition.OVERFLOW`: an Inf, though operands and parameters are all finite.
    `Condition.divergence(1e-5)`: further from the reference than that.
    """

    kind: str
    tolerance: float | None = None

    NAN: ClassVar["Condition"]
    INF: ClassVar["Condition"]
    OVERFLOW: ClassVar["Condition"]

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in BITS:
            near = suggestion(self.kind, BITS) if isinstance(self.kind, str) else ""
            raise ParameterError(f"Condition({self.kind!r}): the conditions are {', '.join(BITS)}{near}")
        if self.kind == "divergence":
            object.__setattr__(self, "tolerance", _tolerance(self.tolerance))
        elif self.tolerance is not None:
            raise ParameterError(f"Condition({self.kind!r}, {self.tolerance!r}): only divergence has a tolerance")

    @staticmethod
    def divergence(tolerance: float) -> "Condition":
        """A result that differs from the reference by more than `tolerance`, 0 or more.

        The reference is the op's own body, computed in float64 from the call's operands and rounded to its dtype.
        Differences count in units of the largest finite |value| of that result.  A NaN or an Inf where the
        reference has none, or the reverse, always diverges; so does another position of an argmax.
        """
        return Condition("divergence", _tolerance(tolerance))

    def __repr__(self) -> str:
        return f"Condition.{self.kind.upper() if self.tolerance is None else f'divergence({self.tolerance:g})'}"


def _tolerance(given: Any) -> float:
    """A tolerance as a float; ParameterError for what is none."""
    found = None
    if isinstance(given, (float, int, np.floating, np.integer)) and not isinstance(given, bool):
        try:
            found = float(given)
        except OverflowError:  # a whole number beyond every float
            found = None
    if found is None or not (isfinite(found) and found >= 0):
        said = "no tolerance" if given is None else repr(given) if len(repr(given)) < 40 else f"{repr(given)[:36]}…"
        raise ParameterError(f"divergence({said}): the tolerance is a finite number, 0 or more")
    return found


Condition.NAN = Condition("nan")
Condition.INF = Condition("inf")
Condition.OVERFLOW = Condition("overflow")


class Action(Enum):
    """What happens when a condition is met.

    STOP: GuardError.  LOG: an event and a warning of the logger `trueno`; the result stands.
    PROMOTE_F64: computed again in float64 and rounded to the call's dtype; GuardError if that is no better.
    FALL_BACK: computed again by the reference; a backend that the reference had to repair three times is left out
    for calls like that one.
    """

    STOP = "stop"
    LOG = "log"
    PROMOTE_F64 = "promote_f64"
    FALL_BACK = "fall_back"


Rule = tuple[Condition, Action]


@dataclass(frozen=True, repr=False)
class JidokaGuard:
    """Rules for results, in order; a context manager, and a decorator of functions.

    It keeps no state of its own: one guard may be entered again, and by many threads and tasks at once.
    A guard without rules switches guarding off inside.
    """

    rules: tuple[Rule, ...] = ()

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
        made = []
        for word, action in rules:
            kind, _, rest = word.partition("(")
            condition = Condition.divergence(float(rest.rstrip(")"))) if rest else Condition(kind)
            made.append((condition, Action(action)))
        return cls(tuple(made))

    def __repr__(self) -> str:
        return "JidokaGuard()" + "".join(f".on({condition}, {action})" for condition, action in self.rules)

    def __enter__(self) -> "JidokaGuard":
        context = state.guarded(self)
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
_locks: dict[str, RLock] = {}
"""One for each device whose kernels may leave their bits to `synchronize`: so each call gets its own."""
if hasattr(os, "register_at_fork"):  # a thread of the parent may have held one
    os.register_at_fork(after_in_child=_locks.clear)


def watch(kernel: Kernel, call: Call, name: str, guard: JidokaGuard, fused: bool) -> Kernel:
    """The kernel of backend `name`, such that its results obey `guard`; it returns 0 or -1, or raises GuardError.

    fused: the kernel returns status bits.  On the host, results that overlap operands are refused before anything is
    written, and the general path offers fresh ones: if a guard stops, or computes again, operands are as they were.
    """
    from trueno.guards.inspection import Inspection

    kinds = [condition.kind for condition, _ in guard.rules]
    always = "divergence" in kinds
    # What an op only moves, an operand explains.
    wanted = 0 if call.op.flops_text == "0" else reduce(or_, (BITS[kind] for kind in kinds), 0)
    device = call.residency != "host"
    if fused and (device or registry.foreign(registry.entries()[name])):
        kernel = _one_by_one(kernel, name, device)
    if not wanted and not always:
        return _deaf(kernel) if fused else kernel
    judge = Inspection(call, name, guard.rules)
    specs = call.op.signature.outputs
    blocks = any(spec.blocks for spec in specs)  # bytes, of which a kernel's bits say nothing
    if device:
        return _on_device(kernel, call, name, judge, wanted, always, fused and not blocks)
    inputs, outs, share = len(call.op.operands), len(call.op.signature.outputs), np.may_share_memory
    look = wanted and (blocks or not fused)

    def watched(*args: Any) -> int:
        for out in args[-outs:]:
            own = out.flags.owndata
            for x in args[:inputs]:  # two arrays that both own their memory share none, which is cheaper to know
                if out is x or (not (own and x.flags.owndata) and share(out, x)):
                    return -1
        status = kernel(*args)
        if status == -1:
            return -1
        if look:
            status = health.status(health.floats(call, args[-outs:], specs) if blocks else args[-outs:])
        if always or (status and status & wanted):
            results = args[-outs:]
            for out, better in zip(results, judge(args[:inputs], args[inputs:-outs], results), strict=True):
                if better is not out:
                    np.copyto(out, better)
        return 0

    return watched


def _deaf(kernel: Kernel) -> Kernel:
    """A guarded kernel whose bits nobody wants."""
    return lambda *args: -1 if kernel(*args) == -1 else 0


def _one_by_one(kernel: Kernel, name: str, wait: bool) -> Kernel:
    """A guarded kernel of a device, one call at a time; wait: for the bits that it leaves to `synchronize`."""

    def alone(*args: Any) -> int:
        with _locks.setdefault(name, RLock()):
            status: int = kernel(*args) or 0
            if wait and status != -1:
                status |= registry.load(name).synchronize() or 0
            return status

    return alone


def _on_device(
    kernel: Kernel, call: Call, name: str, judge: "Inspection", wanted: int, always: bool, fused: bool
) -> Kernel:
    """`watch` for arrays that live on a device; they come home to be looked at, after a trip if the kernel is fused.

    Where a result is an operand, scratch takes the first try, and only a healthy call is made again in place.
    """
    from trueno.dispatch.transfer import download, empty

    op = call.op.name
    backend = registry.load(name)
    inputs, outs = len(call.op.operands), len(call.op.signature.outputs)

    def home(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(download(backend, x, None, op) for x in arrays)

    def watched(*args: Any) -> int:
        results = targets = args[-outs:]
        inside = any(out is x for out in results for x in args[:inputs])
        if inside:
            targets = tuple(empty(backend, tuple(r.shape), np.dtype(r.dtype)) for r in results)
        status: int = kernel(*args[:-outs], *targets) or 0
        if status == -1:
            return -1
        found: tuple[Any, ...] = ()
        if wanted and not fused:
            found = home(targets)
            status = health.status(health.floats(call, found, call.op.signature.outputs))
        if always or status & wanted:
            found = found or home(targets)
            healthy = judge(home(args[:inputs]), args[inputs:-outs], found)
            if any(better is not r for better, r in zip(healthy, found, strict=True)):
                for out, better in zip(results, healthy, strict=True):
                    _put(call, name, out, better)
                return 0
        return -1 if inside and kernel(*args) == -1 else 0

    return watched


def _put(call: Call, name: str, out: Any, result: np.ndarray[Any, Any]) -> None:
    """Write a host array into one on a device; `scale` by 1 is the copy that every backend can make."""
    from trueno.dispatch.transfer import upload
    from trueno.ops import TABLE

    backend = registry.load(name)
    n = result.size
    copy = Call(TABLE["scale"], result.dtype, "e", 1, (n.bit_length(),), (), name)
    if result.dtype.kind != "f" or backend.supports(copy) is not None:
        raise GuardError(
            f"{call.op.name}: {name} cannot put the repaired result into its own array; "
            "bring the operands home with trueno.numpy(x)"
        )
    there = upload(backend, np.ascontiguousarray(result).reshape(n), call.op.name)
    if backend.kernel(copy)(there, 1.0, out.reshape((n,))) == -1:
        raise GuardError(f"{call.op.name}: {name} refused to copy the repaired result of shape {result.shape}")
