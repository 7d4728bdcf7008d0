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
from trueno.errors import KernelError
from trueno.ops import TABLE
from trueno.ops.op import Op
from trueno.select import policy

if TYPE_CHECKING:
    from trueno.guards import JidokaGuard

DTYPES: dict[str, np.dtype[Any]] = {"f4": np.dtype(np.float32), "f8": np.dtype(np.float64)}
CLASSES = 65  # size classes: bit lengths of any array's size


def refuse(*_: Any) -> int:
    """The kernel of keys that have none: sends the call to the general path."""
    return -1


class Plans(dict[Any, Any]):
    """The plans of one op and dtype under one state: `plans[rank][size class]` is a kernel.

    With static parameters these come first: `plans["tanh"][rank][size class]`.  Rank and size are those of the first
    operand.  A row of kernels starts as a placeholder that plans at its first call and takes its own place.
    """

    __slots__ = ("dtype", "op", "state", "static")

    def __init__(self, op: Op, dtype: np.dtype[Any], state: "State", static: tuple[Any, ...] = ()) -> None:
        super().__init__()
        self.op = op
        self.dtype = dtype
        self.state = state
        self.static = static

    def __missing__(self, key: Any) -> Any:
        if len(self.static) < len(self.op.static):
            self[key] = inner = Plans(self.op, self.dtype, self.state, (*self.static, key))
            return inner

        def first(*args: Any) -> Any:
            size = args[0].size.bit_length()
            row[size] = kernel = self.plan(key, size)
            return kernel(*args)

        row = [first] * CLASSES
        self[key] = row
        return row

    def plan(self, rank: int, size: int) -> Kernel:
        """The kernel for first operands of this rank and size class; `refuse` where the general path decides."""
        op = self.op
        if self.state.guarded or not rank or not size or (rank > 2 and not op.structured):
            return refuse
        if any(p.choices and v not in p.choices for p, v in zip(op.static, self.static, strict=True)):
            return refuse
        values = tuple((p.name, v) for p, v in zip(op.static, self.static, strict=True))
        chosen = policy.choose(Call(op, self.dtype, op.layout, rank, (size,), values), self.state.names)
        return chosen.kernel if chosen else refuse


class State:
    """Which backends were asked for, and all plans made under that: `f4_add`, `f8_add` … an attribute an op and dtype.

    `general` holds the plans of canonicalised calls.  A slot is the fastest thing that Python can read by name,
    and small integers the fastest keys: the two dtypes are told apart by identity in the ops' functions.
    """

    __slots__ = ("general", "guarded", "names", *(f"{d}_{name}" for name in TABLE for d in DTYPES))

    def __init__(self, names: tuple[str, ...] = (), guarded: bool = False) -> None:
        self.names = names
        self.guarded = guarded
        self.general: dict[Any, policy.Chosen | None] = {}
        for name, op in TABLE.items():
            for d, dtype in DTYPES.items():
                setattr(self, f"{d}_{name}", Plans(op, dtype, self))

    def plans(self, op: str, dtype: str) -> Plans:
        """The plans of one op and dtype, `f4` or `f8`."""
        return getattr(self, f"{dtype}_{op}")  # type: ignore[no-any-return]

    def forget(self) -> None:
        """Drop every plan; the next call of each key chooses again."""
        self.general.clear()
        for name in TABLE:
            for d in DTYPES:
                self.plans(name, d).clear()

    def chosen(self, call: Call, skip: int = 0) -> policy.Chosen | None:
        """The plan of a canonicalised call; `skip` leaves out candidates that already refused it."""
        key = (call.op.name, call.dtype, call.layout, call.rank, call.sizes, call.static, call.guarded, skip)
        if key not in self.general:
            self.general[key] = policy.choose(call, self.names, skip)
        return self.general[key]

    def run(self, call: Call, arguments: tuple[Any, ...], *, further: bool = True) -> tuple[policy.Chosen, int]:
        """Call the plan, and (`further`) the next candidates while they refuse: who answered, and the status."""
        skip = 0
        while chosen := self.chosen(call, skip):
            status = chosen.kernel(*arguments) or 0
            if status != -1 or not further:
                return chosen, status
            skip += 1
        shapes = [a.shape for a in arguments[: len(call.op.operands)]]
        raise KernelError(f"{call.op.name}: every backend refused operands of shapes {shapes}")


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
