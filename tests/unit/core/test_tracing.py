"""`trueno.trace()`: what it keeps and what not, of which threads, and the files that it writes."""

import asyncio
import contextvars
import json
import threading

import numpy as np
import pytest
import trueno
from trueno import hooks
from trueno.discovery import index
from trueno.dispatch import state
from trueno.errors import ParameterError, TruenoError, TruenoWarning
from trueno.events.stream import KINDS, active, emit
from trueno.events.summary import SORTS, groups
from trueno.events.tracing import Trace, trace
from trueno.settings import settings


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """No hooks and no verbose output; as before afterwards."""
    monkeypatch.setattr(hooks, "_state", hooks._State())
    monkeypatch.setattr(index, "points", lambda refresh=False: [])
    monkeypatch.delenv("TRUENO_VERBOSE", raising=False)
    settings.reload()
    yield
    monkeypatch.undo()
    settings.reload()


X = np.linspace(0, 1, 1000, dtype=np.float32)


def some_events():
    emit("decision", "add", "simd", "fastest", refused={"cuda": "missing", "scalar": "slower_declared"})
    emit("run", "add", "simd", seconds=1e-3, shapes=[(1000,)], dtype="float32")
    emit("run", "add", "simd", seconds=3e-3, shapes=[(1000,)], dtype="float32")
    emit("run", "exp", "fake", seconds=4e-3)
    emit("transfer", "exp", "fake", "to device", seconds=1e-3, bytes=4_000_000)
    emit("fallback", "exp", "fake", 'OutOfMemory: "full"\nat last', to="simd")
    emit("probe", backend="cuda", detail="no device", ok=False, seconds=0.5)


def kinds(t):
    return [e.kind for e in t.events]


# ---- what is kept ----------------------------------------------------------------------------------


def test_the_public_names():
    from trueno.events.stream import stats

    assert trueno.trace is trace and trueno.stats is stats


def test_calls_are_traced_inside_and_cost_nothing_outside():
    with trace() as t:
        y = trueno.add(X, X)
    trueno.add(X, X)
    assert np.array_equal(y, X + X)
    runs = [e for e in t.events if e.kind == "run"]
    assert [(e.op, e.data["dtype"]) for e in runs] == [("add", "float32")]
    assert runs[0].seconds >= 0 and runs[0].data["shapes"] == [(1000,), (1000,)]
    assert state.current.get().traced is False
    assert not t.wants("run") and not active("run")


def test_each_trace_shows_the_decisions():
    for _ in range(2):
        with trace() as t:
            trueno.add(X, X)
            trueno.add(X, X)
        assert kinds(t).count("decision") == 1
        assert kinds(t).count("run") == 2


def test_decisions_show_where_plans_are_warm():
    trueno.add(X, X)
    guard = trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP)
    for _ in range(2):
        with trace("decision") as t:
            trueno.add(X, X)
            with trueno.use("reference"):
                trueno.add(X, X)
            with guard:
                trueno.add(X, X)
        assert kinds(t) == ["decision"] * 3
    assert state.current.get().traced is False


def test_making_a_kernel_is_an_event():
    with trace() as t:
        trueno.add(X, X)
    (made,) = [e for e in t.events if e.kind == "compile"]
    (ran,) = [e for e in t.events if e.kind == "run"]
    assert (made.op, made.backend) == (ran.op, ran.backend)
    assert 0 < made.seconds < t.seconds
    assert made.start + made.seconds <= ran.start
    (shown,) = [e for e in t.chrome()["traceEvents"] if e.get("cat") == "compile"]
    assert shown["ph"] == "X" and shown["name"] == "compile add"
    assert "making kernels" in str(t)


def test_times_outside_of_runs_add_up():
    t = trace()
    with t:
        for kind, start, seconds in (
            ("probe", 1, 2), ("compile", 3, 4), ("run", 7, 1), ("transfer", 7.5, 1), ("run", 9, 1)
        ):  # fmt: skip
            emit(kind, "add", "fake", "to device", start=float(start), seconds=float(seconds))
    t._began, t.seconds = 0.0, 12.0
    (line,) = [line for line in str(t).splitlines() if line.startswith("outside")]
    assert line == (
        "outside of runs: 10 s: making kernels 4 s; trying backends 2 s; moving arrays 500 ms; "
        "the rest, Python and choosing, 3.5 s"
    )


def test_explicit_choices_hold_inside_and_around():
    with trueno.use("reference"), trace() as t:
        trueno.add(X, X)
    with trace() as u, trueno.use("reference"):
        trueno.add(X, X)
    for traced in (t, u):
        assert {e.backend for e in traced.events if e.kind == "run"} == {"reference"}


def test_kinds_are_chosen():
    with trace("fallback") as t, trace(["run", "probe"]) as u:
        some_events()
    assert kinds(t) == [e.kind for e in t] == ["fallback"]
    assert kinds(u) == ["run", "run", "run", "probe"]
    with trace("fallback"):
        assert state.current.get().traced is False


def test_nested_traces_each_get_their_events():
    with trace() as outer:
        emit("run", "add", "simd")
        with trace() as inner:
            emit("run", "exp", "simd")
            emit("probe", backend="simd")
        emit("run", "log", "simd")
    assert [e.op for e in outer.events if e.kind == "run"] == ["add", "exp", "log"]
    assert [e.op for e in inner.events if e.kind == "run"] == ["exp"]
    assert kinds(outer).count("probe") == kinds(inner).count("probe") == 1


def test_a_bound_on_the_number_of_events():
    with trace(limit=3) as t:
        for _ in range(5):
            emit("probe", backend="simd")
    assert len(t.events) == 3 and t.dropped == 2
    assert "2 more were not kept (limit 3)" in t.summary()
    assert t.json()["dropped"] == 2 and t.chrome()["otherData"]["dropped"] == "2"


def test_an_error_inside_passes_and_the_events_stay():
    with pytest.raises(KeyError), trace() as t:  # noqa: PT012 - the order of the two is the point
        emit("run", "add", "simd")
        raise KeyError
    assert kinds(t) == ["run"]
    assert state.current.get().traced is False


# ---- threads and tasks -----------------------------------------------------------------------------


def test_other_threads_show_their_fallbacks_and_not_their_runs():
    with trace() as t:
        inside = contextvars.copy_context()

        def work(op):
            emit("run", op, "simd")
            emit("fallback", op, "fake", to="simd")

        for target in (lambda: work("add"), lambda: inside.run(work, "exp")):
            thread = threading.Thread(target=target, name="worker")
            thread.start()
            thread.join()
    assert [(e.kind, e.op) for e in t.events] == [("fallback", "add"), ("run", "exp"), ("fallback", "exp")]
    assert set(t.json()["threads"].values()) == {"worker"}


def test_a_context_that_outlives_the_trace_adds_nothing():
    with trace() as t:
        inside = contextvars.copy_context()
    inside.run(trueno.add, X, X)
    assert not t.events


def test_tasks_are_traced_one_by_one():
    async def one(op):
        with trace() as t:
            await asyncio.sleep(0)
            emit("run", op, "simd")
            await asyncio.sleep(0)
        return t

    async def both():
        return await asyncio.gather(one("add"), one("exp"))

    first, second = asyncio.run(both())
    assert [e.op for e in first.events] == ["add"]
    assert [e.op for e in second.events] == ["exp"]


def test_events_of_many_threads_are_all_kept():
    def work():
        for _ in range(300):
            emit("probe", backend="simd")

    with trace(limit=1000) as t:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(t.events) + t.dropped == 1200 and len(t.events) == 1000


# ---- used once, or as a decorator ------------------------------------------------------------------


def test_a_trace_is_used_once():
    t = trace()
    with t, pytest.raises(TruenoError, match="make a new one"):
        t.__enter__()
    with pytest.raises(TruenoError, match="make a new one"):
        t.__enter__()
    with pytest.raises(TruenoError, match="decorate with a new one"):
        t(print)


def test_a_decorator_traces_each_call():
    @trace("run")
    def work(op, *, times=1):
        """Do it."""
        for _ in range(times):
            emit("run", op, "simd")
        return op.upper()

    assert work.__name__ == "work" and work.__doc__ == "Do it." and work.trace is None
    assert work("add", times=2) == "ADD"
    first = work.trace
    assert work("exp") == "EXP"
    assert [e.op for e in first.events] == ["add", "add"]
    assert [e.op for e in work.trace.events] == ["exp"]


def test_a_decorated_function_that_raises_keeps_its_trace():
    @trace()
    def work():
        emit("run", "add", "simd")
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        work()
    assert kinds(work.trace) == ["run"]


def test_a_decorator_on_a_coroutine():
    @trace()
    async def work():
        await asyncio.sleep(0)
        emit("run", "add", "simd")
        return 1

    assert asyncio.run(work()) == 1
    assert kinds(work.trace) == ["run"]


def test_a_generator_is_refused():
    def pieces():
        yield 1

    with pytest.raises(ParameterError, match="pieces is a generator"):
        trace()(pieces)


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ({"kinds": "runs"}, "there is no kind 'runs'.*did you mean \"run\""),
        ({"kinds": ["run", 3]}, "there is no kind 3"),
        ({"path": "trace.csv"}, "must end in .json"),
        ({"kinds": 5}, "kinds is 5"),
        ({"kinds": [["run"]]}, "there is no kind \\['run'\\]"),
        ({"path": 5}, "path is 5; give the name of a file"),
        ({"limit": -1}, "limit is -1"),
        ({"limit": True}, "limit is True"),
    ],
)
def test_bad_arguments(arguments, sentence):
    with pytest.raises(ParameterError, match=sentence):
        trace(**arguments)


# ---- the summary -----------------------------------------------------------------------------------


def test_the_summary_says_who_ran_who_was_refused_and_what_moved():
    with trace() as t:
        some_events()
    assert str(t) == t.summary()
    lines = [" ".join(line.split()) for line in t.summary().splitlines()]
    assert lines[0].startswith("trace of ") and lines[0].endswith(": 7 events")
    for line in (
        "exp fake 1 4 ms 4 ms 4 ms 4 ms 50 %",
        "add simd 2 4 ms 1 ms 2 ms 2 ms 50 %",
        "moved to device fake 1 array 4.0 MB 1 ms 4.0 GB/s",
        "cuda missing add",
        "scalar slower_declared add",
        'fallback exp fake -> simd OutOfMemory: "full" at last',
        "probe cuda no device 500 ms",
    ):
        assert line in lines, t.summary()
    assert "7 events" in repr(t) and "closed" in repr(t)


def test_the_first_run_of_a_kernel_stands_apart(rng):
    """What numbers a row has, from random times: the oracle is NumPy."""
    times = rng.uniform(1e-3, 2e-3, 7)
    with trace() as t:
        emit("compile", "add", "simd", seconds=0.1)
        emit("run", "add", "simd", seconds=5.0, bytes=10, shapes=[(3,)], dtype="float32")
        for seconds in times:
            emit("run", "add", "simd", seconds=float(seconds), bytes=4_000_000, shapes=[(2, 5)], dtype="float32")
    (row,) = groups(t.events)
    assert (row.calls, row.first, row.min) == (8, [5.0], times.min())
    assert row.time == pytest.approx(5 + times.sum()) and row.speed == pytest.approx(np.median(4e6 / times))
    assert row.median == pytest.approx(np.median(times)) and row.mean == pytest.approx(times.mean())
    for name in ("first", "min", "median", "mean", "GB/s"):
        assert f" {name}" in t.summary()
    by_shape = groups(t.events, "shape")
    assert [(r.shapes, r.calls, r.min) for r in by_shape] == [("3 float32", 1, 5.0), ("2×5 float32", 7, times.min())]
    assert "2×5 float32" in t.summary(by="shape") and "2×5" not in t.summary()


@pytest.mark.parametrize("sort", SORTS)
def test_the_order_of_rows(sort, rng):
    with trace() as t:
        for op in rng.permutation(["add", "exp", "log"]):
            for _ in range(int(rng.integers(1, 5))):
                emit("run", str(op), "simd", seconds=float(rng.uniform(0.1, 1)), bytes=int(rng.integers(1, 1000)))
    values = [getattr(row, sort) for row in groups(t.events, "op", sort)]
    assert values == sorted(values, reverse=sort != "op") and len(values) == 3
    lines = t.summary(sort=sort).splitlines()
    assert [line.split()[0] for line in lines[3:6]] == [row.op for row in groups(t.events, "op", sort)]


def test_a_summary_of_wrong_words():
    with trace() as t:
        some_events()
    with pytest.raises(ParameterError, match=r"by is 'shapes'.*did you mean \"shape\""):
        t.summary(by="shapes")
    with pytest.raises(ParameterError, match="sort is 3; it is one of time"):
        t.summary(sort=3)


def test_a_notebook_shows_a_table_and_no_markup_from_outside():
    with trace() as t:
        some_events()
        emit("run", "<img src=x onerror=alert(1)>", "simd", seconds=1e-3)
        emit("fallback", "exp", "fake", "<b>&</b>", to="simd")
    page = t._repr_html_()
    assert "<img" not in page and "<b>" not in page and "&lt;img" in page and "&lt;b&gt;&amp;" in page
    assert page.count("<tr>") == 4 and "moved to device" in page and page.count("<div>") == page.count("</div>") == 1
    with trace() as empty:
        pass
    assert "0 events" in empty._repr_html_() and "<table" not in empty._repr_html_()


def test_runs_say_how_many_bytes_they_read_and_write(rng):
    x = rng.standard_normal((30, 20)).astype(np.float32)
    table, ids = rng.standard_normal((1000, 8)).astype(np.float32), np.array([1, 2])
    with trace("run") as t:
        trueno.softmax(x)
        trueno.sum(x)
        trueno.embedding_lookup(table, ids)
    assert [e.bytes for e in t.events] == [2 * x.nbytes, x.nbytes + 30 * 4, 0]  # a part of a table: not known


def test_counter_tracks_are_the_sum_of_what_lasts():
    with trace() as t:
        for start, seconds, moved in ((1.0, 2.0, 6_000_000_000), (2.0, 2.0, 2_000_000_000), (5.0, 1.0, 0)):
            emit("run", "add", "simd", start=start, seconds=seconds, bytes=moved)
        emit("transfer", "add", "fake", "to device", start=0.0, seconds=0.5, bytes=1_000_000_000)
    t._began = 0.0
    tracks = {}
    for e in t.chrome()["traceEvents"]:
        if e["ph"] == "C":
            tracks.setdefault(e["name"], []).append((e["ts"] / 1e6, e["args"]["GB/s"]))
    assert sorted(tracks.values()) == [[(0, 2), (0.5, 0)], [(1, 3), (2, 4), (3, 1), (4, 0)]]


def test_an_empty_trace():
    with trace() as t:
        assert "open" in repr(t)
    assert "0 events" in t.summary() and t.json()["events"] == []
    assert [e["ph"] for e in t.chrome()["traceEvents"]] == ["M"]
    assert "not used yet" in repr(trace())


# ---- files -----------------------------------------------------------------------------------------


def test_json_is_complete():
    with trace() as t:
        some_events()
    data = json.loads(json.dumps(t.json(), allow_nan=False))
    assert [e["kind"] for e in data["events"]] == kinds(t)
    assert data["events"][1]["data"] == {"shapes": [[1000]], "dtype": "float32"}
    assert data["events"][5]["detail"] == 'OutOfMemory: "full"\nat last'
    assert data["seconds"] == t.seconds > 0
    assert data["began"].endswith("+00:00")
    assert all(e["start"] <= t.seconds for e in data["events"])


def check_chrome(document):
    """What the Trace Event Format asks of its JSON object form, and viewers of its events."""
    assert set(document) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert document["displayTimeUnit"] == "ns"
    assert all(isinstance(v, str) for v in document["otherData"].values())
    last, named, used = 0.0, set(), set()
    for event in document["traceEvents"]:
        assert isinstance(event["name"], str) and event["name"]
        assert isinstance(event["pid"], int) and 0 <= event["tid"] < 2**31
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name") and isinstance(event["args"]["name"], str)
            named.add(event["tid"])
            continue
        if event["ph"] == "C":
            assert event["ts"] >= last and all(v >= 0 for v in event["args"].values())
            last = event["ts"]
            continue
        used.add(event["tid"])
        assert event["cat"] in KINDS and isinstance(event["args"], dict)
        assert event["ts"] >= last
        last = event["ts"]
        if event["ph"] == "X":
            assert event["dur"] >= 0
        else:
            assert event["ph"] == "i" and event["s"] == "t" and "dur" not in event
    assert used <= named


def test_chrome_is_valid(tmp_path):
    with trace() as t:
        some_events()
        thread = threading.Thread(
            target=lambda: emit("fallback", 'an "op"\n\t\x00é\ud800', "fake", to="simd"), name='"w"'
        )
        thread.start()
        thread.join()
        emit("run", "add", "simd", start=0.0, seconds=-1.0)  # a clock that went wrong
        emit("calibrate", backend="simd", rate=float("inf"))
    t.save(tmp_path / "trace.json")
    text = (tmp_path / "trace.json").read_text("ascii")
    document = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    check_chrome(document)
    shown = [e for e in document["traceEvents"] if e["ph"] not in "MC"]
    assert sorted(e["ph"] for e in shown) == ["X"] * 6 + ["i"] * 4
    by = {e["cat"]: e for e in shown}
    assert by["transfer"]["ph"] == "X" and by["transfer"]["args"]["bytes"] == 4_000_000
    assert by["probe"]["ph"] == "X" and by["probe"]["dur"] == 5e5 and by["probe"]["args"]["ok"] is False
    assert by["decision"]["ph"] == "i" and by["decision"]["args"]["refused"]["cuda"] == "missing"
    assert 'fallback an "op"\n\t\x00é\ud800' in [e["name"] for e in shown]
    assert '"w"' in [e["args"]["name"] for e in document["traceEvents"] if e["ph"] == "M"]


def test_spans_of_real_calls_nest_in_the_trace():
    with trace() as t:
        trueno.exp(trueno.add(X, X))
    check_chrome(t.chrome())
    spans = [e for e in t.chrome()["traceEvents"] if e["ph"] == "X" and e["cat"] == "run"]
    assert [e["name"] for e in spans] == ["add", "exp"]
    assert spans[0]["ts"] + spans[0]["dur"] <= spans[1]["ts"] + 0.01


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".txt"])
def test_a_path_is_written_at_the_end(tmp_path, suffix):
    path = tmp_path / f"t{suffix}"
    with trace(path=path) as t:
        some_events()
        emit("probe", backend="\ud800")
        assert not path.exists()
    text = path.read_text("utf-8")
    if suffix == ".json":
        check_chrome(json.loads(text))
    elif suffix == ".jsonl":
        assert [json.loads(line) for line in text.splitlines()] == t.json()["events"]
    else:
        assert text.startswith("trace of ") and "OutOfMemory" in text


def test_a_path_that_cannot_be_written(tmp_path):
    path = tmp_path / "missing" / "t.json"
    with pytest.raises(FileNotFoundError), trace(path=path):
        pass
    with pytest.warns(TruenoWarning, match="cannot be written"), pytest.raises(ValueError, match="inside"):  # noqa: SIM117
        with trace(path=path):
            raise ValueError("inside")
    assert not state.current.get().traced


def test_a_trace_is_what_trace_gives():
    assert isinstance(trace(), Trace)
