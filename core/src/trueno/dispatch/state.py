"""The state that decides how calls run: the requested backends, the guard in force, and the plans made under them.

A ContextVar holds the current state, which depends on the open scopes of the thread or task: `trueno.use`,
`trueno.prefer`, guards and traces; `trueno.set_default` is for the whole process.  Plans are in tables that create
missing entries: a missing key calls the selector once.  Reads take no lock; two threads that miss the same key at once
make the same plan twice.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from trueno.changes import on_change
from trueno.discovery.protocol import Backend, Call, Kernel, Refused
from trueno.dispatch import fallback, plan
from trueno.dispatch.plan import Plan, PluginFailed
from trueno.errors import KernelError
from trueno.locks import ForkSafeLock
from trueno.ops import TABLE
from trueno.ops.op import Op
from trueno.scope import Scope
from trueno.select import policy, quarantine
from trueno.select.decision import Decision, Request
from trueno.settings import settings
from trueno.table import Table

if TYPE_CHECKING:
    from trueno.guards.rules import Rules

DTYPES: dict[str, np.dtype[Any]] = {"f4": np.dtype(np.float32), "f8": np.dtype(np.float64)}
CLASSES = 65  # size classes: bit lengths of any array's size
generation = 0
"""How often plans were dropped: a decision from before a drop is not stored after it, and code that keeps a kernel
requests it again."""
CHAINS = 512
"""The most batch-made ops that are kept, with their plans: their number has no limit, and a batch holds its own."""
ACROSS = -1  # the place of a plan for rows that lie across memory, beside those of a decision's candidates
RANKS = 65  # NumPy's arrays have up to 64 axes
TABLES = {name: 1 + i for i, name in enumerate(TABLE)}
"""Where a state's words hold the address of an op's table of machine code."""
overridden = np.zeros(1, np.int64)
"""Not 0 once any state but the base one was ever current: from then on machine code asks the context variable.

It is never set back, because a copied context may outlive the scope that it was copied in.
"""
_on_code: list[Callable[[Op, Backend], None]] = []


def refuse(*_: Any) -> int:
    """The placeholder for keys without a kernel: it sends the call to the general path."""
    return -1


class State:
    """The request in force, and all plans made under it: `f4_add`, `f8_add` …, one attribute per op and dtype.

    Such an attribute is a list by rank of lists by size class of the first operand: small integers are the fastest
    keys, and a slot is the fastest attribute to read.  Static parameters come before (`f4_gelu["tanh"]`),
    size classes of further operands of structured ops after.  `general` holds the plans of calls in canonical form.
    chains: the keys in `general` of ops that batches made, oldest first.
    calls: the calls that go straight to their kernels (`trueno.dispatch.cache`).
    words: what machine code reads (`trueno.door`): the generation of this state's plans, then a table's address for
    each op.  tables: these tables.
    own: the request of this state; None follows `trueno.set_default`.
    """

    __slots__ = (
        "__weakref__", "calls", "chains", "general", "own", "rules", "tables", "traced", "words",
        *(f"{d}_{name}" for name in TABLE for d in DTYPES),
    )  # fmt: skip

    def __init__(self, own: Request | None = None, rules: "Rules | None" = None, traced: bool = False) -> None:
        self.own = own
        self.rules = rules
        self.traced = traced
        self.general: dict[Any, tuple[Decision, dict[int, Plan | None]]] = {}
        self.chains: deque[tuple[Any, ...]] = deque()
        self.calls: dict[Any, Any] = {}
        self.words = np.zeros(1 + len(TABLE), np.int64)
        self.words[0] = 1
        self.tables: dict[str, np.ndarray[Any, Any]] = {}

    @property
    def request(self) -> Request:
        """The request: this state's, else the whole process's."""
        return _default if self.own is None else self.own

    def __getattr__(self, name: str) -> Any:
        """Create a missing table; slots that are set never come here."""
        d, _, op = name.partition("_")
        if d not in DTYPES or op not in TABLE:
            raise AttributeError(name)
        table = self._table(TABLE[op], DTYPES[d], ())
        setattr(self, name, table)
        return table

    def _table(self, op: Op, dtype: np.dtype[Any], static: tuple[Any, ...]) -> Any:
        if len(static) < len(op.static):
            parameter = op.static[len(static)]

            def inner(value: Any) -> Any:
                if not parameter.takes(value):
                    raise KeyError(value)  # the table stores no entry for it, and the general path raises the error
                return self._table(op, dtype, (*static, value))

            return Table(inner)
        rows: list[Any] = []

        def first(*args: Any) -> int | None:
            """A placeholder for a missing plan: it makes the plan, replaces itself, and calls the plan."""
            x = args[0]
            sizes = tuple(a.size.bit_length() for a in args[: plan.keys(op)])
            before = generation
            kernel = self.kernel(op, dtype, static, x.ndim, sizes)
            if not policy.nested() and before == generation:  # compared last: plans may be dropped at any call
                row = rows[x.ndim]
                for size in sizes[:-1]:
                    row = row[size]
                row[sizes[-1]] = kernel
            return kernel(*args)

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
        """The kernel of a key of the fast path; `refuse` if the general path decides."""
        if not all(sizes):
            return refuse
        values = tuple((p.name, v) for p, v in zip(op.static, static, strict=True))
        chosen = self.chosen(Call(op, dtype, op.layout, rank, sizes, values))
        if chosen is None:
            return refuse
        _offer(op, chosen)
        return chosen.kernel

    def forget(self, op: str | None = None) -> None:
        """Drop the plans of an op, or all; the next call of each key chooses again."""
        global generation
        generation += 1
        self.words[0] += 1  # first: an interrupt may end this early
        try:
            self.calls.clear()
            for key in list(self.general):
                if op is None or key[0] == op:
                    self.general.pop(key, None)
            for name in TABLE if op is None else (op,):
                for d in DTYPES:
                    try:
                        delattr(self, f"{d}_{name}")
                    except AttributeError:  # not created yet
                        continue
        finally:
            self.words[0] += 1  # and last: a slot that was filled from a dropped plan holds the generation before

    def _choice(self, call: Call) -> tuple[Decision, dict[int, Plan | None]]:
        """The decision for a call and its plans by rank; both are stored, unless plans were dropped meanwhile."""
        key = plan.key(call)
        choice = self.general.get(key)
        if choice is None:
            before = generation
            choice = (policy.decide(call, self.request), {})
            if not policy.nested() and before == generation:
                self.general[key] = choice
                if call.op.family == "batch":
                    self._keep(key)
                policy.announce(choice[0])
        return choice

    def _keep(self, key: tuple[Any, ...]) -> None:
        """Add the key of a batch-made op, and release the oldest ones."""
        self.chains.append(key)
        while len(self.chains) > CHAINS:
            with suppress(IndexError):  # another thread was faster
                self.general.pop(self.chains.popleft(), None)

    def chosen(self, call: Call, skip: int = 0) -> Plan | None:
        """The plan of a call; `skip` leaves out candidates that already refused it.  None if no candidate is left."""
        decision, plans = self._choice(call)
        while skip not in plans:
            if skip >= len(decision.ranking):
                return None
            name = decision.ranking[skip]
            try:
                plans[skip] = plan.prepare(call, name, self, guarded=self.guarding())
                _offer(call.op, plans[skip])
            except PluginFailed as failure:
                self.failed(call, name, failure.error)
                decision, plans = self._choice(call)
        return plans[skip]

    def across(self, call: Call) -> Plan | None:
        """The plan of a call for rows that lie across memory; None if the best candidate has none."""
        decision, plans = self._choice(call)
        if ACROSS not in plans:
            columns = None
            with suppress(PluginFailed, IndexError):  # calls have another way
                columns = plan.prepare(call, decision.ranking[0], self, self.guarding(), across=True)
            plans[ACROSS] = columns
        return plans[ACROSS]

    def guarding(self) -> "Rules | None":
        """The guard's rules in force: the state's own, else TRUENO_GUARD's; None if there are none."""
        rules = self.rules
        if rules is None and settings.get("TRUENO_GUARD"):
            from trueno.guards.rules import parse  # start-up

            rules = parse(settings.get("TRUENO_GUARD"))
        return rules or None

    @contextmanager
    def unguarded(self) -> Iterator["State"]:
        """Run everything inside without a guard; the context manager returns the unguarded state."""
        state = _state(self.own, (), self.traced)
        with entered(state):
            yield state

    def run(self, call: Call, arguments: tuple[Any, ...], *, further: bool = True) -> tuple[Plan | None, int]:
        """Call the plan, and (`further`) the next candidates while they refuse; return the last plan and its status.

        The arguments satisfy the kernels' contract, so any exception from a kernel here is its failure.
        """
        skip, failures = 0, 0
        refused: list[str] = []
        cause: Refused | None = None
        while chosen := self.chosen(call, skip):
            before = self.general.get(chosen.key)
            try:
                status = chosen.kernel(*arguments) or 0
            except Refused as error:
                status, cause = -1, error
            except BaseException as error:
                if fallback.passes(error):
                    raise
                self.failed(call, chosen.backend.name, error)
                status = -1
            if status != -1 or not further:
                return chosen, status
            if self.general.get(chosen.key) is not before and failures < 64:  # it failed, and is now in quarantine
                failures += 1
                continue
            refused.append(chosen.backend.name)
            skip += 1
        shapes = ", ".join(str(a.shape) for a in arguments[: len(call.op.operands)])
        why = f" ({type(cause).__name__}: {cause})" if cause else ""
        who = ", ".join(refused) or "every backend"
        layout = "" if call.op.structured else f", laid out as {call.layout!r}"
        raise KernelError(f"{call.op.name}: {who} refused operands of shapes {shapes}{layout}{why}") from cause

    def failed(self, call: Call, name: str, error: BaseException) -> None:
        """Quarantine a backend that failed for calls like this one and report that, or raise if it was named."""
        fallback.leave_out(call, name, error, self.request)
        forget_plans(call.op.name)
        fallback.say(call, name, error, self._choice(call)[0].chosen)

    def leave_out(self, call: Call, name: str, reason: str) -> None:
        """Quarantine a backend for calls like this one, and drop their plans."""
        quarantine.add(call, name, reason)
        forget_plans(call.op.name)


def on_code(listener: Callable[[Op, Backend], None]) -> None:
    """Call `listener` with op and backend whenever a plan has machine code that an entry may call."""
    _on_code.append(listener)


def _offer(op: Op, ready: Plan | None) -> None:
    if ready is not None and ready.code:
        for listener in _on_code:
            listener(op, ready.backend)


_default = Request()  # the request of `set_default`
_base = State()
current: ContextVar[State] = ContextVar("trueno_state", default=_base)
_states: dict[Any, State] = {}
_alive: "WeakSet[State]" = WeakSet((_base,))  # also those that `_states` no longer holds, but a context does
_lock = ForkSafeLock()  # for the two above; not on the path of a call
KEPT = 256


def _state(own: Request | None, rules: "Rules | None", traced: bool) -> State:
    """The state of these settings; states are kept, so that a context that is entered again finds its plans."""
    if own is None and rules is None and not traced:
        return _base
    key = (own, rules, traced)
    state = _states.get(key)
    if state is None:
        with _lock:
            if len(_states) >= KEPT:  # a program may create guards with new tolerances without end
                _states.clear()
            state = _states.setdefault(key, State(own, rules, traced))
            _alive.add(state)
    return state


def base() -> State:
    """The state outside of every scope."""
    return _base


def follow(scopes: tuple[Scope, ...]) -> None:
    """Apply these scopes to later calls of this thread or task; the innermost of each kind counts."""
    overridden[0] = 1
    own = rules = None
    traced = False
    for scope in scopes:
        own = own if scope.request is None else scope.request
        rules = rules if scope.rules is None else scope.rules
        traced = traced or scope.traced
    current.set(_state(own, rules, traced))


def choosing(names: tuple[str, ...], origin: str) -> State:
    """The state that runs on these backends under the guard and trace in force; without a name, the current state."""
    now = current.get()
    return _state(Request(names, (), False, origin), now.rules, now.traced) if names else now


@contextmanager
def entered(state: State) -> Iterator[None]:
    """Run everything inside in `state`."""
    overridden[0] = 1
    token = current.set(state)
    try:
        yield
    finally:
        current.reset(token)


def set_asked(asked: Request) -> None:
    """Set the request of the whole process, which applies where there is no other, and drop all plans."""
    global _default
    _default = asked
    forget_plans()


def forget_plans(op: str | None = None) -> None:
    """Drop every plan (or those of one op) of every state."""
    global generation
    with _lock:
        generation += 1
        alive = list(_alive)
    for state in alive:
        state.words[0] += 1  # of all, before any is dropped: an interrupt may end this early
    for state in alive:
        state.forget(op)


def forget_traced() -> None:
    """Drop the plans that were made under a trace, so that the next trace records each decision again."""
    with _lock:
        traced = [state for state in _alive if state.traced]
    for state in traced:
        state.forget()


settings.on_reload(forget_plans)
on_change(forget_plans)
