"""The state that decides how calls run: which backends were asked for, under which guard, and the plans made so.

One choice in a ContextVar: `trueno.use`, `trueno.prefer`, guards and traces are local to a thread or task;
`trueno.set_default` is for the whole process.  Plans are tables that fill themselves: a key that is missing
asks the selector once.  Nothing here is locked on reads; two threads that miss at once make the same plan twice.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from trueno.discovery import registry
from trueno.discovery.protocol import Call, Kernel
from trueno.dispatch import plan
from trueno.dispatch.plan import Plan
from trueno.errors import KernelError, ParameterError
from trueno.ops import TABLE
from trueno.ops.op import Op
from trueno.select import policy
from trueno.select.policy import Asked, Decision
from trueno.settings import settings

if TYPE_CHECKING:
    from trueno.guards.guard import JidokaGuard

DTYPES: dict[str, np.dtype[Any]] = {"f4": np.dtype(np.float32), "f8": np.dtype(np.float64)}
CLASSES = 65  # size classes: bit lengths of any array's size
RANKS = 65  # NumPy's arrays have up to 64 axes


drops = 0
"""How often plans were dropped: whoever keeps a kernel beyond a call asks again when this has changed."""


def refuse(*_: Any) -> int:
    """The kernel of keys that have none: sends the call to the general path."""
    return -1


class Table(dict[Any, Any]):
    """One level of a plan table that makes its entries at first sight."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[Any], Any]) -> None:
        super().__init__()
        self.make = make

    def __missing__(self, key: Any) -> Any:
        value = self[key] = self.make(key)
        return value


class State:
    """What was asked for, and all plans made under that: `f4_add`, `f8_add` … an attribute an op and dtype.

    Such an attribute is a list by rank of lists by size class of the first operand: small integers are the fastest
    keys, and a slot the fastest thing that Python reads by name.  Static parameters come before (`f4_gelu["tanh"]`),
    size classes of further operands of structured ops after.  `general` holds the plans of canonicalised calls.
    """

    __slots__ = ("asked", "general", "guard", "traced", *(f"{d}_{name}" for name in TABLE for d in DTYPES))

    def __init__(self, asked: Asked = Asked(), guard: "JidokaGuard | None" = None, traced: bool = False) -> None:  # noqa: B008 - frozen
        self.asked = asked
        self.guard = guard
        self.traced = traced
        self.general: dict[Any, tuple[Decision, dict[int, Plan | None]]] = {}

    def __getattr__(self, name: str) -> Any:
        """A table that is not there yet; slots that hold something never come here."""
        d, _, op = name.partition("_")
        if d not in DTYPES or op not in TABLE:
            raise AttributeError(name)
        table = self._table(TABLE[op], DTYPES[d], ())
        setattr(self, name, table)
        return table

    def _table(self, op: Op, dtype: np.dtype[Any], static: tuple[Any, ...]) -> Any:
        if len(static) < len(op.static):
            return Table(lambda value: self._table(op, dtype, (*static, value)))
        rows: list[Any] = []

        def first(*args: Any) -> int:
            """Stands where a plan is not made yet: makes it, takes its own place out, and calls it."""
            x = args[0]
            sizes = tuple(a.size.bit_length() for a in args[: plan.keys(op)])
            kernel = self.kernel(op, dtype, static, x.ndim, sizes)
            row = rows[x.ndim]
            for size in sizes[:-1]:
                row = row[size]
            row[sizes[-1]] = kernel
            return kernel(*args)  # type: ignore[no-any-return]

        def level(depth: int) -> Any:
            return [first] * CLASSES if depth == 1 else Table(lambda _: level(depth - 1))

        none: Any = [refuse] * CLASSES
        for _ in range(plan.keys(op) - 1):
            none = [none] * CLASSES
        most = 4 if op.structured else 2
        rows += [level(plan.keys(op)) if 0 < rank <= most else none for rank in range(RANKS)]
        return rows

    def kernel(
        self, op: Op, dtype: np.dtype[Any], static: tuple[Any, ...], rank: int, sizes: tuple[int, ...]
    ) -> Kernel:
        """The kernel of a key of the fast path; `refuse` where the general path decides."""
        if not all(sizes) or any(p.choices and v not in p.choices for p, v in zip(op.static, static, strict=True)):
            return refuse
        values = tuple((p.name, v) for p, v in zip(op.static, static, strict=True))
        chosen = self.chosen(Call(op, dtype, op.layout, rank, sizes, values))
        return chosen.kernel if chosen else refuse

    def forget(self, op: str | None = None) -> None:
        """Drop the plans of an op, or all; the next call of each key chooses again."""
        global drops
        drops += 1
        for key in list(self.general):
            if op is None or key[0] == op:
                self.general.pop(key, None)
        for name in TABLE if op is None else (op,):
            for d in DTYPES:
                try:
                    delattr(self, f"{d}_{name}")
                except AttributeError:  # not made yet
                    continue

    def _choice(self, call: Call) -> tuple[Decision, dict[int, Plan | None]]:
        key = plan.key(call)
        found = self.general.get(key)
        if found is None:
            found = self.general[key] = (policy.decide(call, self.asked), {})
            policy.announce(found[0])
        return found

    def chosen(self, call: Call, skip: int = 0) -> Plan | None:
        """The plan of a call; `skip` leaves out candidates that already refused it.  None when none is left."""
        decision, plans = self._choice(call)
        while skip not in plans:
            if skip >= len(decision.ranking):
                return None
            name = decision.ranking[skip]
            try:
                plans[skip] = plan.prepare(call, name, self, guarded=self.guarding())
            except Exception as error:
                self.failed(call, name, error)
                decision, plans = self._choice(call)
        return plans[skip]

    def guarding(self) -> "JidokaGuard | None":
        """The guard in force: the state's own, else TRUENO_GUARD's; None for one without rules."""
        guard = self.guard
        if guard is None and settings.get("TRUENO_GUARD"):
            from trueno.guards.guard import JidokaGuard

            guard = JidokaGuard.parse(settings.get("TRUENO_GUARD"))
        return guard if guard is not None and guard.rules else None

    def run(self, call: Call, arguments: tuple[Any, ...], *, further: bool = True) -> tuple[Plan | None, int]:
        """Call the plan, and (`further`) the next candidates while they refuse: who answered, and the status."""
        skip, failures = 0, 0
        refused: list[str] = []
        cause: TypeError | None = None
        while chosen := self.chosen(call, skip):
            before = self.general.get(chosen.key)
            try:
                status = chosen.kernel(*arguments) or 0
            except TypeError as error:  # a refusal, says the protocol
                status, cause = -1, error
            if status != -1 or not further:
                return chosen, status
            if self.general.get(chosen.key) is not before and failures < 64:  # it failed, and is in quarantine now
                failures += 1
                continue
            refused.append(chosen.backend.name)
            skip += 1
        shapes = ", ".join(str(a.shape) for a in arguments[: len(call.op.operands)])
        why = f" ({type(cause).__name__}: {cause})" if cause else ""
        who = ", ".join(refused) or "every backend"
        raise KernelError(f"{call.op.name}: {who} refused operands of shapes {shapes}{why}") from cause

    def failed(self, call: Call, name: str, error: Exception) -> None:
        """A backend failed: leave it out for calls like this one and say so, or raise if it was asked for by name."""
        from trueno.dispatch import fallback

        fallback.failed(self, call, name, error)


_base = State()
current: ContextVar[State] = ContextVar("trueno_state", default=_base)
_states: dict[Any, State] = {}


def _state(asked: Asked, guard: "JidokaGuard | None", traced: bool) -> State:
    """States are kept, so that entering a context again finds its plans warm."""
    if guard is None and not traced and asked == _base.asked:
        return _base
    key = (asked, None if guard is None else guard.rules, traced)
    found = _states.get(key)
    if found is None:
        if len(_states) >= 256:  # guards with ever new tolerances
            _states.clear()
        found = _states[key] = State(asked, guard, traced)
    return found


@contextmanager
def _under(state: State) -> Iterator[None]:
    token = current.set(state)
    try:
        yield
    finally:
        current.reset(token)


def _names(function: str, names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not isinstance(name, str):
            raise ParameterError(f'{function}: {name!r} is no name of a backend; write trueno.{function}("simd")')
    return tuple(n.lower() for n in names)


def use(*names: str) -> Any:
    """Run everything inside on these backends, best first; an error if none of them can.

    UnknownBackend for a name that is not installed, BackendUnavailable with the reason for one that cannot run.
    No name: choose automatically inside.
    """
    asked = Asked(_names("use", names), (), "trueno.use")
    for name in asked.names:
        registry.load(name)
    now = current.get()
    return _under(_state(asked if names else Asked(), now.guard, now.traced))


def prefer(*names: str) -> Any:
    """Inside, take the first of these backends that can run a call; choose automatically where none can.

    UnknownBackend for a name that is not installed.
    """
    known = registry.entries()
    for name in _names("prefer", names):
        if name not in known:
            registry.load(name)  # raises with a suggestion
    now = current.get()
    return _under(_state(Asked((), _names("prefer", names), "trueno.prefer"), now.guard, now.traced))


def choosing(names: tuple[str, ...], origin: str) -> State:
    """The state that runs on these backends, under the guard and the trace in force; no name: the current state."""
    now = current.get()
    return _state(Asked(names, (), origin), now.guard, now.traced) if names else now


def entered(state: State) -> Any:
    """Run everything inside in `state`."""
    return _under(state)


def guarded(by: "JidokaGuard") -> Any:
    """Run everything inside under a guard."""
    now = current.get()
    return _under(_state(now.asked, by, now.traced))


def tracing() -> Any:
    """Run everything inside in the traced twin of the current state: every call emits a `run` event."""
    now = current.get()
    return _under(_state(now.asked, now.guard, True))


def set_default(*names: str) -> None:
    """The backends for the whole process, every thread included; no name: choose automatically again."""
    for name in _names("set_default", names):
        registry.load(name)
    _base.asked = Asked(_names("set_default", names), (), "trueno.set_default") if names else Asked()
    forget_plans()


def forget_plans(op: str | None = None) -> None:
    """Drop every plan (of one op) of every state."""
    for state in (_base, *list(_states.values())):
        state.forget(op)


settings.on_reload(forget_plans)
