"""Opening and closing doors: a backend's entries in front of the public functions of ops.

`offer` is called for each plan whose kernel has machine code.  It asks the plan's backend for the op's entry, once,
and diverts the public function to it.  From then on a table for each op and state says, for each key of a plan, which
machine code a call may run.  A call that finds no valid slot runs the Python function, which makes the plan, and `fill`
copies the plan's machine code, if it has any, into the slot.
"""

import sys
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np

from trueno.discovery.protocol import Backend, Call
from trueno.dispatch import plan, state
from trueno.dispatch.state import DTYPES, State
from trueno.door import abi, functions, words
from trueno.door.contract import CLASSES, FORMS, SLOT, EntryKind, EntryLayout, EntrySpec
from trueno.door.kinds import fixed, kind_of
from trueno.door.words import DESCRIPTOR, DESCRIPTOR_WORDS, Words
from trueno.errors import SettingError
from trueno.locks import ForkSafeLock
from trueno.ops.op import Op
from trueno.settings import settings

_doors: "dict[str, Door | None]" = {}
"""By op; None for an op that keeps its Python function."""
_lock = ForkSafeLock()


class Door:
    """One op's entry, its descriptor, and the Python function behind it.  It lives as long as the process."""

    def __init__(self, op: Op, kind: EntryKind, function: FunctionType, backend: Any) -> None:
        self.op, self.kind, self.function, self.backend = op, kind, function, backend
        self.descriptor: Words = np.zeros(DESCRIPTOR_WORDS, np.int64)
        self._statics = tuple((p.name, p.default) for p in op.static)
        self.slow = functions.copied(function)
        floats = [p for p in op.params if p.symbolic]
        constants = fixed(op)
        self._put("slow", id(self.slow))
        self._put("fill", abi.keep(self.fill))
        self._put("table", 8 * state.TABLES[op.name])
        for i, name in enumerate([*(p.name for p in floats), *(name for name, _ in constants)]):
            self._put("names", abi.keep(sys.intern(name)), i)
        for i, (_, value) in enumerate(constants):
            self._put("values", abi.keep(value), i)
        for i, p in enumerate(floats):
            if not p.required:
                words.set_double(self.descriptor, "defaults", i, float(p.default))
        abi.keep(self)
        self.entry = self._asked("")

    def _asked(self, form: str) -> int:
        """The address of the entry for calls of this form; 0 if the backend has none."""
        spec = EntrySpec(self.op.name, self.kind, words.address(self.descriptor), form)
        return int(self.backend.entries((spec,), _layout()).get(self.op.name, 0))

    def _put(self, name: str, value: int, index: int = 0) -> None:
        self.descriptor[DESCRIPTOR[name] // 8 + index] = value

    def open(self) -> None:
        """Let calls of the public function go to the entry."""
        functions.divert(self.function, self.entry)

    def close(self) -> None:
        """Let calls of the public function run its Python code."""
        functions.restore(self.function)

    def fill(self, slot: int) -> None:
        """Fill a slot of the current state's table, after a call that found nothing valid there and succeeded.

        The call made the plan, if there is one; nothing is decided here.  The generation is read first: if plans
        are dropped meanwhile, the slot is as invalid as before.  A negative number is a form whose entry is needed.
        """
        try:
            if slot < 0:
                self._fill_twin(-slot)
                return
            now = state.current.get()
            generation = int(now.words[0])
            plans = self._plans(now, slot)
            if plans is None:  # dropped meanwhile, or not stored because a backend is asked: the next call tries again
                return
            ready = plans.get(0)
            # Machine code of another backend may have another convention, which only its own entries know.
            code = ready.code if ready is not None and ready.backend is self.backend else 0
            self._table(now)[slot] = generation, code  # at once: no thread may see this code with a later generation
        except Exception:  # at the interpreter's end modules are empty, while finalizers still call ops
            return

    def _fill_twin(self, form: int) -> None:
        layout = next(layout for (layout, _), number in FORMS.items() if number == form)
        try:
            entry = self._asked(layout)
        except Exception:  # a plugin's code may raise anything; an interrupt leaves the form to be asked for again
            entry = 0
        self._put("twins", entry or 1, form)

    def _plans(self, now: State, slot: int) -> dict[int, plan.Plan | None] | None:
        """The plans of a slot's key, by rank; None if nothing is decided."""
        rest, size = divmod(slot, CLASSES)
        layout, rank = next(key for key, form in FORMS.items() if form == rest // 2)
        dtype = DTYPES["f8" if rest % 2 else "f4"]
        call = Call(self.op, dtype, layout or self.op.layout, rank, (size,), self._statics)
        decision = now.general.get(plan.key(call))
        return None if decision is None else decision[1]

    def _table(self, now: State) -> Words:
        """The table of this op in a state, which owns it."""
        name = self.op.name
        table = now.tables.get(name)
        if table is None:
            slots = self.kind.forms * 2 * CLASSES
            table = now.tables.setdefault(name, np.zeros((slots, SLOT // 8), np.int64))
            now.words[state.TABLES[name]] = words.address(table)
        return table


def offer(op: Op, function: Callable[..., Any], backend: Backend) -> None:
    """Open the door of an op whose plan on `backend` has machine code, if the backend compiles entries."""
    if op.name in _doors:
        return
    door = None
    try:
        door = _made(op, function, backend)
        if door is not None:
            door.open()
    except Exception:  # Unverified, or whatever a plugin raises: the Python function is as right
        door = None
    with _lock:
        _doors.setdefault(op.name, door)


def _made(op: Op, function: Callable[..., Any], backend: Backend) -> Door | None:
    kind = kind_of(op)
    if not hasattr(backend, "entries") or kind is None or not isinstance(function, FunctionType):
        return None
    door = Door(op, kind, function, backend)
    return door if door.entry else None


@cache
def _layout() -> EntryLayout:
    """What entries read in this process; Unverified where something is not as assumed."""
    abi.verify()
    base = state.base()
    offset = words.offset_of(base, base.words)
    if offset is None:
        raise abi.Unverified("a state is laid out otherwise")
    abi.keep(base)
    return words.layout(base.words, state.overridden, state.current, offset)


def door_of(name: str) -> Door | None:
    """The open or closed door of an op; None for an op that has none."""
    return _doors.get(name)


def _follow() -> None:
    """Open or close all doors, as TRUENO_DOOR says."""
    try:
        wanted = settings.get("TRUENO_DOOR") != "off"
    except SettingError:  # of any setting; the next use of one raises it
        return
    with _lock:
        for door in _doors.values():
            if door is not None:
                (door.open if wanted else door.close)()


settings.on_reload(_follow)
