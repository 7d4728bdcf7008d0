"""The state that decides how calls run: which backends were asked for, and the plans made under it.

One immutable choice in a ContextVar: `trueno.use` is local to a thread or task, `trueno.set_default` is
for the whole process.  Plans are dictionaries that fill themselves: a key that is missing asks the
selector once.  Nothing here is locked on reads; two threads that miss at once make the same plan twice.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from trueno.discovery import registry
from trueno.discovery.protocol import Call, Kernel
from trueno.ops import TABLE
from trueno.ops.op import Op
from trueno.select import policy

if TYPE_CHECKING:
    from trueno.guards import JidokaGuard

FLOATS = {np.dtype(np.float32), np.dtype(np.float64)}
CLASSES = 64


def refuse(*_: Any) -> int:
    """The kernel of keys that have none: sends the call to the general path."""
    return -1


class Plans(dict[Any, Kernel]):
    """The plans of one op under one state: key → bare kernel.

    The key is what the op's generated function reads off its first operand: type, dtype, rank, size
    class, then the static parameters.
    """

    __slots__ = ("op", "state")

    def __init__(self, op: Op, state: "State") -> None:
        super().__init__()
        self.op = op
        self.state = state

    def __missing__(self, key: tuple[Any, ...]) -> Kernel:
        kernel = self._plan(*key)
        self[key] = kernel
        return kernel

    def _plan(self, kind: type, dtype: np.dtype[Any], rank: int, size: int, *static: Any) -> Kernel:
        op = self.op
        plain = kind is np.ndarray and dtype in FLOATS and rank > 0 and size > 0
        if not plain or self.state.guarded or (rank > 2 and not op.structured):
            return refuse
        values = tuple((p.name, v) for p, v in zip(op.static, static, strict=True))
        if any(p.choices and v not in p.choices for p, v in zip(op.static, static, strict=True)):
            return refuse
        chosen = policy.choose(Call(op, dtype, op.layout, rank, (size,), values), self.state.names)
        return chosen.kernel if chosen else refuse


class State:
    """Which backends were asked for, and all plans made under that: `plans_add`, `plans_softmax` … an attribute an op.

    `general` holds the plans of canonicalised calls.  A slot is the fastest thing that Python can read by name.
    """

    __slots__ = ("general", "guarded", "names", *(f"plans_{name}" for name in TABLE))

    def __init__(self, names: tuple[str, ...] = (), guarded: bool = False) -> None:
        self.names = names
        self.guarded = guarded
        self.general: dict[Any, policy.Chosen | None] = {}
        for name, op in TABLE.items():
            setattr(self, f"plans_{name}", Plans(op, self))

    def plans(self, op: str) -> Plans:
        """The plans of one op."""
        return getattr(self, f"plans_{op}")  # type: ignore[no-any-return]

    def forget(self) -> None:
        """Drop every plan; the next call of each key chooses again."""
        self.general.clear()
        for name in TABLE:
            self.plans(name).clear()

    def chosen(self, call: Call, skip: int = 0) -> policy.Chosen | None:
        """The plan of a canonicalised call; `skip` leaves out candidates that already refused it."""
        key = (call.op.name, call.dtype, call.layout, call.rank, call.sizes, call.static, call.guarded, skip)
        try:
            return self.general[key]
        except KeyError:
            self.general[key] = found = policy.choose(call, self.names, skip)
            return found


_base = State()
current: ContextVar[State] = ContextVar("trueno_state", default=_base)
guard: "ContextVar[JidokaGuard | None]" = ContextVar("trueno_guard", default=None)
_states: dict[tuple[tuple[str, ...], bool], State] = {}


def _state(names: tuple[str, ...], guarded: bool) -> State:
    """States are kept, so that entering a context again finds its plans warm."""
    if not names and not guarded:
        return _base
    key = (names, guarded)
    if key not in _states:
        for name in names:
            registry.load(name)
        _states[key] = State(names, guarded)
    return _states[key]


@contextmanager
def use(*names: str) -> Iterator[None]:
    """Run everything inside on these backends, best first; an error if none of them can.

    UnknownBackend for a name that is not installed, BackendUnavailable with the reason for one that cannot run.
    """
    token = current.set(_state(tuple(n.lower() for n in names), current.get().guarded))
    try:
        yield
    finally:
        current.reset(token)


@contextmanager
def guarded(by: "JidokaGuard") -> Iterator[None]:
    """Run everything inside under a guard."""
    token, inner = current.set(_state(current.get().names, True)), guard.set(by)
    try:
        yield
    finally:
        guard.reset(inner)
        current.reset(token)


def set_default(*names: str) -> None:
    """The backends for the whole process, every thread included; no name: choose automatically again."""
    for name in names:
        registry.load(name.lower())
    _base.names = tuple(n.lower() for n in names)
    forget_plans()


def forget_plans() -> None:
    """Drop every plan of every state."""
    for state in (_base, *_states.values()):
        state.forget()
