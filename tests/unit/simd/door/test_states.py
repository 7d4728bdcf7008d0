"""Whatever decides how calls run is honoured through compiled entries: scopes, settings, failures, plans dropped."""

import asyncio
import contextvars
import gc
from collections.abc import Iterator
from threading import Event, Thread

import numpy as np
import pytest
import trueno
from trueno.dispatch import state
from trueno.dispatch.plan import Plan
from trueno.errors import GuardError
from trueno.settings import settings
from unit.simd.door.opened import machine_code_alone, opened, stays

X, Y = np.arange(100, dtype=np.float32), np.ones(100, np.float32)
INFINITE = np.full(100, np.inf, np.float32)


@pytest.fixture(autouse=True)
def warm() -> Iterator[None]:
    opened("add")
    with trueno.use():  # from now on the context is asked
        pass
    for _ in range(2):
        trueno.add(X, Y)
    assert stays("add", X, Y)
    yield
    trueno.set_default()
    trueno.reset_quarantine()


def ran(operands: tuple[np.ndarray, ...] = (X, Y)) -> str:
    """The backend that runs an addition, as a trace says."""
    with trueno.trace() as trace:
        trueno.add(*operands)
    return [event.backend for event in trace.events if event.kind == "run"][-1]


@pytest.mark.parametrize("scope", [trueno.use, trueno.prefer])
def test_use_and_prefer_are_honoured(scope) -> None:  # type: ignore[no-untyped-def]
    with scope("reference"):
        trueno.add(X, Y)
        assert not stays("add", X, Y) and ran() == "reference"
        with scope("simd"):
            trueno.add(X, Y)
            assert stays("add", X, Y) and ran() == "simd"
        assert not stays("add", X, Y)
    assert stays("add", X, Y)


def test_many_states_take_turns_in_machine_code() -> None:
    scopes = [trueno.use("simd"), trueno.prefer("simd"), trueno.use("simd", "scalar"), trueno.use("simd", "reference")]
    for scope in scopes:
        with scope:
            trueno.add(X, Y)
    with machine_code_alone("add"):
        for scope in scopes * 3:
            with scope:
                trueno.add(X, Y)
        trueno.add(X, Y)


def test_a_guard_sees_the_call() -> None:
    with machine_code_alone("add"):
        trueno.add(INFINITE, -INFINITE)
    with trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP), pytest.raises(GuardError):
        trueno.add(INFINITE, -INFINITE)
    assert np.isnan(trueno.add(INFINITE, -INFINITE)).all()


def test_a_guard_for_the_process_sees_the_call() -> None:
    settings.override("TRUENO_GUARD", "nan:stop")
    try:
        with pytest.raises(GuardError):
            trueno.add(INFINITE, -INFINITE)
    finally:
        settings.override("TRUENO_GUARD", None)


def test_a_trace_sees_every_call() -> None:
    with trueno.trace() as trace:
        for _ in range(5):
            trueno.add(X, Y)
    assert [event.op for event in trace.events if event.kind == "run"] == ["add"] * 5
    assert stays("add", X, Y), "a trace drops the plans of its own state alone"


def test_verbose_sees_every_call(capfd: pytest.CaptureFixture[str]) -> None:
    settings.override("TRUENO_VERBOSE", "run")
    try:
        for _ in range(3):
            trueno.add(X, Y)
    finally:
        settings.override("TRUENO_VERBOSE", None)
    assert capfd.readouterr().err.count("add") >= 3


def test_a_default_for_the_process_is_honoured() -> None:
    trueno.set_default("reference")
    assert not stays("add", X, Y) and ran() == "reference"
    trueno.set_default()
    trueno.add(X, Y)
    assert stays("add", X, Y)


def test_quarantine_is_honoured() -> None:
    call = trueno.explain(trueno.add, X, Y).call
    state.current.get().leave_out(call, "simd", "a test")
    trueno.add(X, Y)
    assert not stays("add", X, Y) and ran() != "simd"
    trueno.reset_quarantine("simd")
    trueno.add(X, Y)
    assert stays("add", X, Y)


@pytest.mark.parametrize("drop", [state.forget_plans, lambda: state.forget_plans("add"), settings.reload])
def test_dropped_plans_are_not_called(drop) -> None:  # type: ignore[no-untyped-def]
    assert stays("add", X, Y)
    drop()
    assert not stays("add", X, Y)
    trueno.add(X, Y)
    assert stays("add", X, Y)


def test_a_plan_that_is_dropped_while_its_slot_is_filled_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    door = opened("add")
    plans = type(door)._plans

    def dropping(self: object, now: state.State, slot: int) -> dict[int, Plan | None] | None:
        prepared = plans(self, now, slot)  # type: ignore[arg-type]
        state.forget_plans()
        return prepared

    state.forget_plans()
    monkeypatch.setattr(type(door), "_plans", dropping)
    trueno.add(X, Y)
    monkeypatch.undo()
    assert not stays("add", X, Y)


def test_kernels_with_a_layer_have_no_code() -> None:
    call = trueno.explain(trueno.add, X, Y).call
    base = state.base().chosen(call)
    assert base is not None and base.code
    with trueno.trace():
        traced = state.current.get().chosen(call)
    with trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP):
        guarded = state.current.get().chosen(call)
    assert traced is not None and guarded is not None and (traced.code, guarded.code) == (0, 0)


def test_turning_the_door_off_and_on() -> None:
    before = trueno.add
    settings.override("TRUENO_DOOR", "off")
    try:
        assert type(trueno.add) is type(opened) and trueno.add is before
        with machine_code_alone("add"):  # the Python function does not look at the entry's way out
            trueno.add(X, Y)
        assert ran() == "simd"
    finally:
        settings.override("TRUENO_DOOR", None)
    trueno.add(X, Y)
    assert stays("add", X, Y)


def test_a_setting_that_cannot_be_read_leaves_the_doors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUENO_THREADS", "many")
    settings.reload()
    monkeypatch.undo()
    settings.reload()
    trueno.add(X, Y)
    assert stays("add", X, Y)


def test_tasks_and_copied_contexts_have_their_own_state() -> None:
    async def one(backend: str) -> bool:
        with trueno.use(backend):
            for _ in range(5):
                trueno.add(X, Y)
                await asyncio.sleep(0)
            return stays("add", X, Y)

    async def many() -> list[bool]:
        return await asyncio.gather(*(one(name) for name in ("simd", "reference") * 3))

    assert asyncio.run(many()) == [True, False] * 3
    with trueno.use("reference"):
        copied = contextvars.copy_context()
    assert stays("add", X, Y) and not copied.run(stays, "add", X, Y)
    with trueno.use("simd"):
        assert not copied.run(stays, "add", X, Y)


def test_states_that_die_take_their_tables() -> None:
    for i in range(5):
        own = state.State(state.base().request)
        with state.entered(own):
            trueno.add(X, Y)
            assert stays("add", X, Y)
            assert set(own.tables) == {"add"}, i
        del own
        gc.collect()
    assert stays("add", X, Y)


def test_threads_under_changing_states_are_right() -> None:
    expected, stop, wrong = (X + Y).tobytes(), Event(), []

    def work(backend: str) -> None:
        x, y = X.copy(), Y.copy()
        while not stop.is_set():
            with trueno.use(backend):
                wrong.extend(backend for _ in range(50) if trueno.add(x, y).tobytes() != expected)

    threads = [Thread(target=work, args=(name,)) for name in ("simd", "reference", "simd", "scalar")]
    for thread in threads:
        thread.start()
    for _ in range(40):
        state.forget_plans()
        trueno.add(X, Y)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
