"""The compiled door without a compiler: what it assumes, which ops have one, and diverted functions."""

import copy
import ctypes
import functools
import inspect
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import trueno
from trueno.dispatch import plan, state
from trueno.door import abi, doors, functions, words
from trueno.door.contract import CLASSES, FORMS, EntryKind
from trueno.door.kinds import fixed, kind_of
from trueno.ops import TABLE

VECTORCALL = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_void_p
)


def entry(answer: object) -> Any:
    """Something at an address that is called by the vectorcall protocol, and answers this."""
    return VECTORCALL(lambda *_: answer)


def address(of: Any) -> int:
    return ctypes.cast(of, ctypes.c_void_p).value or 0


def sample(x: int, *, out: object = None) -> tuple[int, object]:
    """A function to divert."""
    return x, out


@pytest.fixture
def diverted() -> Iterator[Callable[..., Any]]:
    elsewhere = entry("elsewhere")
    functions.divert(sample, address(elsewhere))
    yield sample
    functions.restore(sample)


def test_what_machine_code_assumes_holds_here() -> None:
    abi.verify()


@pytest.mark.parametrize("name", ["tuple_items", "number", "data", "ndim", "shape", "strides", "dtype", "flags", "text",
                                  "metadata"])  # fmt: skip
def test_another_layout_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(abi.OFFSET, name, abi.OFFSET[name] + 8)
    with pytest.raises(abi.Unverified):
        abi.verify()


@pytest.mark.parametrize("sign", ["gettotalrefcount", "pypy", "big"])
def test_other_interpreters_are_refused(sign: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if sign == "pypy":
        monkeypatch.setattr(sys.implementation, "name", sign)
    elif sign == "big":
        monkeypatch.setattr(sys, "byteorder", sign)
    else:
        monkeypatch.setattr(sys, sign, lambda: 0, raising=False)
    with pytest.raises(abi.Unverified):
        abi.verify()


def test_importing_and_calling_without_compiled_entries_loads_nothing() -> None:
    code = """
import sys, numpy as np, trueno
with trueno.use("reference"):
    trueno.add(np.ones(3, np.float32), 1.0)
print([name for name in sys.modules if name.startswith("trueno.door.") and name != "trueno.door.contract"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_most_row_programs_have_a_kind_and_other_ops_have_none() -> None:
    kinds = {name: kind_of(op) for name, op in TABLE.items()}
    assert sum(kind is not None for kind in kinds.values()) > 70
    assert not [name for name, op in TABLE.items() if op.structured and kinds[name]]
    assert len({kind for kind in kinds.values() if kind}) < 20, "ops of one kind share their code"
    assert kinds["add"] == EntryKind("ee", reduces=False, index=False, flat=True)
    clamp = kinds["clamp"]
    assert clamp is not None and clamp.parameters == ((True, True), (True, True)) and clamp.rules == ("p0 <= p1",)
    assert fixed(TABLE["sum"]) == [("axis", -1), ("keepdims", False)]
    assert kind_of(replace(TABLE["exp"], check=lambda: None)) is None


def test_a_diverted_function_is_called_elsewhere(diverted: Callable[..., Any]) -> None:
    assert diverted is sample and diverted(1) == "elsewhere" and diverted(1, 2, 3, wrong=4) == "elsewhere"
    assert list(map(diverted, [1])) == ["elsewhere"] and functools.partial(diverted, 1)() == "elsewhere"

    class Holder:
        method = diverted

    assert Holder().method() == "elsewhere" and Holder.method(1) == "elsewhere"
    assert functions.copied(sample)(1, out=2) == (1, 2)


def test_a_diverted_function_is_a_function(diverted: Callable[..., Any]) -> None:
    assert inspect.isfunction(diverted) and inspect.isroutine(diverted)
    assert str(inspect.signature(diverted)).startswith("(x: int, *, out: object = None)")
    assert (diverted.__name__, diverted.__module__, diverted.__doc__) == ("sample", __name__, "A function to divert.")
    assert diverted.__annotations__["x"] is int
    diverted.note = 1  # type: ignore[attr-defined]
    assert vars(diverted) == {"note": 1}
    del diverted.note  # type: ignore[attr-defined]
    assert weakref.ref(diverted)() is diverted
    assert copy.copy(diverted) is diverted and copy.deepcopy(diverted) is diverted
    assert functools.wraps(diverted)(lambda: 0).__doc__ == diverted.__doc__
    assert repr(diverted).startswith("<function sample at ")


def test_a_diverted_function_is_pickled_by_name(diverted: Callable[..., Any]) -> None:
    module = sys.modules.setdefault(__name__, sys.modules.get(__name__, type(sys)(__name__)))
    if getattr(module, "sample", None) is not sample:
        pytest.skip("this file was not imported under its name")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(diverted, protocol)) is diverted


def test_a_restored_function_runs_its_own_code() -> None:
    elsewhere = entry(7)
    for _ in range(100):  # long enough for CPython to specialize the call
        assert sample(1) == (1, None)
    for _ in range(3):
        functions.divert(sample, address(elsewhere))
        functions.divert(sample, address(elsewhere))
        assert [sample(1) for _ in range(20)] == [7] * 20
        functions.restore(sample)
        assert type(sample) is type(entry) and [sample(2) for _ in range(20)] == [(2, None)] * 20


def test_a_state_counts_what_it_drops() -> None:
    own = state.State()
    counted = [int(own.words[0])]
    for op in (None, "add"):
        own.forget(op)
        counted.append(int(own.words[0]))
    assert counted == sorted(set(counted))
    assert words.offset_of(own, own.words) == words.offset_of(state.base(), state.base().words) is not None


def test_slots_are_numbered_by_form_dtype_and_size() -> None:
    assert sorted(FORMS.values()) == list(range(len(FORMS)))
    own, kind = state.State(), kind_of(TABLE["add"])
    assert kind is not None and kind.forms == len(FORMS) and CLASSES == 33
    door = object.__new__(doors.Door)
    door.op, door.kind, door._statics = TABLE["add"], kind, ()
    key = plan.key(plan.Call(TABLE["add"], np.dtype("f8"), "we", 2, (9,)))
    own.general[key] = (None, {0: "the plan"})  # type: ignore[assignment, dict-item]
    slot = (FORMS["we", 2] * 2 + 1) * CLASSES + 9
    assert door._plans(own, slot) == {0: "the plan"} and door._plans(own, slot + 1) is None
    with state.entered(own):
        door.fill(slot + 1)  # its plan was dropped before it could be looked up
    assert not own.tables, "the next call asks again"


def test_only_the_backend_that_made_the_entry_gives_machine_code() -> None:
    now, op = state.base(), TABLE["asinh"]
    door = object.__new__(doors.Door)
    door.op, door.kind, door._statics, door.backend = op, EntryKind("e", False, False, True), (), "one"  # type: ignore[assignment]
    key = plan.key(plan.Call(op, np.dtype("f4"), "e", 1, (32,)))
    try:
        for backend, code in (("one", 7), ("another", 0)):
            ready = plan.Plan(backend, lambda *_: 0, key, 7)  # type: ignore[arg-type]
            now.general[key] = (None, {0: ready})  # type: ignore[assignment]
            door.fill(32)
            assert now.tables["asinh"][32].tolist() == [now.words[0], code]
    finally:
        state.forget_plans("asinh")


def test_a_scope_is_noticed_for_good() -> None:
    with trueno.use("reference"):
        assert state.overridden[0] == 1
    assert state.overridden[0] == 1


class Broken:
    """A backend whose entries cannot be made."""

    def entries(self, specs: Any, layout: Any) -> dict[str, int]:
        raise RuntimeError("no compiler")


@pytest.mark.parametrize("backend", [Broken(), object()])
def test_without_an_entry_the_function_stays(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "_doors", {})
    op = replace(TABLE["exp"], name="exp")
    doors.offer(op, sample, backend)
    assert doors.door_of("exp") is None and "exp" in doors._doors and sample(1) == (1, None)


def test_an_interpreter_of_another_layout_keeps_the_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    class Willing:
        def entries(self, specs: Any, layout: Any) -> dict[str, int]:
            raise AssertionError("asked, although nothing is verified")

    monkeypatch.setattr(doors, "_doors", {})
    monkeypatch.setitem(abi.OFFSET, "flags", 72)
    doors._layout.cache_clear()
    try:
        doors.offer(TABLE["exp"], sample, Willing())  # type: ignore[arg-type]
    finally:
        doors._layout.cache_clear()
    assert doors.door_of("exp") is None and sample(1) == (1, None)


def test_nothing_decided_before_a_drop_is_kept_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last question before a plan is stored is whether plans were dropped: another thread may run at any other."""
    dropped: list[bool] = []

    def nested() -> bool:
        state.forget_plans()
        dropped.append(True)
        return False

    fresh = state.State(state.Request(("reference",), (), False, "a test"))
    call = state.Call(TABLE["add"], np.dtype(np.float32), "ee", 1, (4,))
    monkeypatch.setattr(state.policy, "nested", nested)
    fresh._choice(call)
    assert dropped and not fresh.general


def test_an_interrupt_while_plans_are_dropped_leaves_no_slot_valid() -> None:
    class Interrupted(dict[Any, Any]):
        def clear(self) -> None:
            raise KeyboardInterrupt

    fresh = state.State()
    fresh.calls = Interrupted()
    before = int(fresh.words[0])
    with pytest.raises(KeyboardInterrupt):
        fresh.forget()
    assert int(fresh.words[0]) > before
