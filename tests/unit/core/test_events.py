"""Events: who is told what, that telling never fails a call, and that the counters are exact."""

import json
import logging
import math
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
import trueno
from trueno import hooks
from trueno.discovery import index
from trueno.errors import TruenoWarning
from trueno.events import stream as events
from trueno.events.counters import Stats, Sum
from trueno.events.stream import KINDS, Event, Listener, active, emit, stats
from trueno.settings import EVENTS, settings
from trueno.text import columns, duration, plain, size


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """No hooks, no settings, counters at 0; as before afterwards."""
    monkeypatch.setattr(hooks, "_state", hooks._State())
    monkeypatch.setattr(index, "points", lambda refresh=False: [])
    monkeypatch.delenv("TRUENO_VERBOSE", raising=False)
    settings.reload()
    stats(reset=True)
    yield
    monkeypatch.undo()
    settings.reload()


class Kept(Listener):
    """A listener that keeps everything of some kinds."""

    def __init__(self, *kinds):
        self.kinds = kinds or tuple(KINDS)
        self.events = []

    def wants(self, kind):
        return kind in self.kinds

    def take(self, event):
        self.events.append(event)


@pytest.fixture
def kept():
    with Kept() as listener:
        yield listener


def verbose(monkeypatch, words):
    monkeypatch.setenv("TRUENO_VERBOSE", words)
    settings.reload()


# ---- events ----------------------------------------------------------------------------------------


def test_kinds_are_those_of_the_settings():
    assert tuple(KINDS) == EVENTS
    for kind in KINDS.values():
        assert kind.says and not kind.says.endswith(".")
        assert all(kind.data.values())
        known = {*Event.__slots__, *kind.data, "reason", "verdict"}
        assert set(kind.by) <= known


def test_an_event_holds_what_it_was_given(kept):
    emit("transfer", "add", "fake", "to device", start=1.5, seconds=0.25, bytes=4096, extra=np.float32(2))
    (event,) = kept.events
    assert (event.kind, event.op, event.backend, event.detail) == ("transfer", "add", "fake", "to device")
    assert (event.start, event.seconds, event.bytes, event.thread) == (1.5, 0.25, 4096, threading.get_ident())
    assert event.json()["data"] == {"extra": 2.0}
    json.dumps(event.json(), allow_nan=False)
    with pytest.raises(AttributeError):
        event.op = "sub"
    assert hash(event) == hash(event)


def test_an_event_without_a_start_ends_now(kept):
    emit("probe", backend="simd", seconds=3.0)
    emit("probe", backend="simd")
    early, late = kept.events
    assert early.start + 3.0 <= late.start


@pytest.mark.parametrize(
    "event, data, line",
    [
        ("fallback add fake OutOfMemory", {"to": "simd"}, "fallback    add  fake -> simd  OutOfMemory"),
        (
            "decision exp simd fastest",
            {"refused": {"cuda": "missing"}},
            "decision    exp  simd  fastest  (cuda missing)",
        ),
        ("probe  cuda two\nlines", {}, "probe       cuda  two lines"),
        ("transfer add fake moved", {"seconds": 2e-6, "bytes": 4096}, "transfer    add  fake  moved  2 µs  4.1 kB"),
    ],
)
def test_an_event_is_one_line(kept, event, data, line):
    emit(*event.split(" "), **data)
    assert str(kept.events[0]) == line


# ---- who is told -----------------------------------------------------------------------------------


def test_nothing_is_printed_unasked(capfd):
    emit("fallback", "add", "fake", "OutOfMemory: full", to="simd")
    assert capfd.readouterr() == ("", "")


def test_verbose_prints_the_kinds_asked_for(monkeypatch, capsys):
    verbose(monkeypatch, "fallback,probe")
    emit("decision", "add", "simd", "fastest")
    emit("fallback", "add", "fake", "OutOfMemory: full", to="simd")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "trueno: fallback    add  fake -> simd  OutOfMemory: full\n"


def test_verbose_as_json(monkeypatch, capsys):
    verbose(monkeypatch, "fallback,json")
    emit("fallback", "add", "fake", 'a "word"\nand another', to="simd", rate=float("nan"))
    record = json.loads(capsys.readouterr().err)
    assert record["kind"] == "fallback"
    assert record["detail"] == 'a "word"\nand another'
    assert record["data"] == {"to": "simd", "rate": "nan"}


def test_verbose_json_alone_is_everything(monkeypatch, capsys):
    verbose(monkeypatch, "json")
    assert active("probe") and active("run")
    emit("probe", backend="simd", ok=True, level=1)
    assert json.loads(capsys.readouterr().err)["kind"] == "probe"
    verbose(monkeypatch, "fallback,json")
    assert not active("probe")


def test_a_probe_says_its_level(kept):
    emit("probe", backend="cuda", detail="no device", ok=False, level=2)
    emit("probe", backend="simd", ok=True, level=1)
    first, second = (" ".join(str(e).split()) for e in kept.events)
    assert first == "probe cuda level 2, in a child process no device"
    assert second == "probe simd level 1, in this process"


def test_a_variable_that_cannot_be_read_does_not_fail_an_event(monkeypatch, kept):
    verbose(monkeypatch, "fallbak")
    emit("fallback", "add")
    assert len(kept.events) == 1


def test_the_logger_gets_every_event_and_warns_of_none(caplog):
    with caplog.at_level(logging.DEBUG, "trueno"):
        emit("fallback", "add", "fake", "OutOfMemory: full", to="simd")
        emit("calibrate", backend="simd")
    assert [(r.name, r.levelno) for r in caplog.records] == [("trueno", logging.DEBUG), ("trueno", logging.INFO)]
    assert caplog.records[0].event.data["to"] == "simd"
    assert any(isinstance(h, logging.NullHandler) for h in logging.getLogger("trueno").handlers)


def test_the_logger_says_at_info_that_a_program_stood_still(caplog):
    with caplog.at_level(logging.INFO, "trueno"):
        emit("compile", "relu_scale_0123456789abcdef", "simd", seconds=5.0)
        emit("compile", "add", "simd", seconds=0.3)
    (record,) = caplog.records
    assert record.levelno == logging.INFO and record.message.split() == ["compile", "relu_scale", "simd", "5", "s"]


def test_people_read_names_without_hashes():
    name = "matmul_add_relu_0123456789abcdef"
    with trueno.trace() as t:
        emit("run", name, "simd", seconds=0.5, shapes=[], dtype="float32")
        emit("decision", name, "simd", refused={"scalar": "slower"})
        emit("compile", name, "simd", seconds=0.5)
    emit("quarantine", name, "simd")
    for text in (str(t), str(stats()), *map(str, t.events)):
        assert "matmul_add_relu" in text and "0123456789abcdef" not in text
    assert {e.op for e in t.events} == {name} and (name, "simd") in stats().compiles  # data keep them apart
    assert "log_sigmoid" in str(Event("run", "log_sigmoid", "simd", "", 0.0, 0.0, 0, 0))


def test_active_says_who_listens(monkeypatch):
    assert not active("fallback") and not active("run")
    with Kept("fallback"):
        assert active("fallback") and not active("probe")
    assert not active("fallback")
    verbose(monkeypatch, "probe")
    assert active("probe") and not active("fallback")
    monkeypatch.setattr(hooks, "implemented", lambda hook: hook == "trueno_on_event")
    assert active("fallback")


def test_active_counts_a_logger_that_is_set_up(caplog):
    with caplog.at_level(logging.INFO, "trueno"):
        assert active("calibrate") and not active("fallback")


def test_listeners_leave_in_any_order():
    first, second = Kept(), Kept()
    first.__enter__()
    second.__enter__()
    emit("probe")
    first.__exit__()
    emit("run")
    second.__exit__()
    emit("run")
    assert [e.kind for e in first.events] == ["probe"]
    assert [e.kind for e in second.events] == ["probe", "run"]


def test_runs_belong_to_a_context_and_the_rest_to_the_process(kept):
    def other():
        emit("run", "add", "simd")
        emit("fallback", "add", "fake", to="simd")

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert [e.kind for e in kept.events] == ["fallback"]


# ---- nothing that listens can fail a call ----------------------------------------------------------


class Broken:
    def __init__(self):
        self.asked = 0

    def write(self, text):
        self.asked += 1
        raise BrokenPipeError("gone")


def test_a_sink_that_raises_is_reported_once_and_dropped(monkeypatch):
    verbose(monkeypatch, "probe")
    stream = Broken()
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.warns(TruenoWarning, match="TRUENO_VERBOSE is left out of events .* BrokenPipeError: gone"):
        emit("probe")
    emit("probe")  # a second warning would be an error here
    assert stream.asked == 1
    settings.reload()
    with pytest.warns(TruenoWarning):
        emit("probe")
    assert stream.asked == 2


def test_even_where_warnings_are_errors_an_event_raises_nothing(monkeypatch, caplog):
    verbose(monkeypatch, "probe")
    monkeypatch.setattr(sys, "stderr", Broken())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        emit("probe")
    assert "left out of events" in caplog.text


def test_no_stderr_at_all(monkeypatch):
    verbose(monkeypatch, "probe")
    monkeypatch.setattr(sys, "stderr", None)
    emit("probe")


def test_what_is_no_event_is_reported_and_costs_nothing():
    with pytest.warns(TruenoWarning, match="kind 'falback'"):
        emit("falback")


def test_what_a_sink_does_is_counted_and_not_told_again(monkeypatch):
    seen = []

    def sink(event):
        seen.append(event.kind)
        emit("decision", "add", "simd")

    monkeypatch.setitem(events.SINKS, "a test", sink)
    emit("probe", backend="simd")
    assert seen == ["probe"]
    assert stats().events == {"probe": 1, "decision": 1}
    emit("probe", backend="simd")
    assert seen == ["probe", "probe"]


def test_where_nobody_listens_no_event_is_made(monkeypatch):
    """It is counted as before; and a new listener gets the next one."""
    seen = []
    real = events.Event
    monkeypatch.setattr(events, "Event", lambda *given: seen.append(given[0]) or real(*given))
    logging.getLogger("trueno").setLevel(logging.INFO)
    try:
        for _ in range(3):
            emit("transfer", "add", "fake", "to device", bytes=10, seconds=0.5)
        emit("compile", "add", "fake", seconds=0.5)
        assert seen == []
        assert stats().transfers == {("to device", "fake"): Sum(3, 1.5, 30)}
        emit("compile", "add", "fake", seconds=1.5)  # which the logger has at INFO
        with trueno.trace() as traced:
            emit("transfer", "add", "fake", "to device")
        verbose(monkeypatch, "transfer")
        emit("transfer", "add", "fake", "to host")
        assert seen == ["compile", "transfer", "transfer"] and [e.kind for e in traced.events] == ["transfer"]
    finally:
        logging.getLogger("trueno").setLevel(logging.NOTSET)


# ---- counters --------------------------------------------------------------------------------------


def everything():
    emit("decision", "add", "simd", "fastest")
    emit("decision", "exp", "simd", "fastest")
    emit("decision", "exp", "scalar", "named")
    emit("compile", "add", "simd", seconds=1.5)
    emit("run", "add", "simd", seconds=0.5)
    emit("run", "add", "simd", seconds=0.25)
    emit("fallback", "add", "fake", "OutOfMemory: full", to="simd")
    emit("transfer", "add", "fake", "to device", bytes=1000, seconds=1e-3)
    emit("transfer", "exp", "fake", "to device", bytes=24, seconds=1e-3)
    emit("guard", "log", "simd", "made 1 NaN", condition="nan", action="stop")
    emit("probe", backend="cuda", detail="no device", ok=False, level=2)
    emit("probe", backend="simd", ok=True, level=1)
    emit("calibrate", backend="simd")


def test_stats_count_everything():
    everything()
    counts = stats()
    assert counts.decisions == {"simd": 2, "scalar": 1}
    assert counts.runs == {("add", "simd"): Sum(2, 0.75, 0)}
    assert counts.compiles == {("add", "simd"): Sum(1, 1.5, 0)}
    assert counts.fallbacks == {("add", "fake", "simd", "OutOfMemory"): 1}
    assert counts.transfers == {("to device", "fake"): Sum(2, 2e-3, 1024)}
    assert counts.guards == {("log", "nan", "stop"): 1}
    assert counts.probes == {("cuda", "cannot run"): 1, ("simd", "can run"): 1}
    assert counts.events["calibrate"] == 1
    assert isinstance(counts.quarantined, tuple)


def test_stats_are_a_copy_and_can_be_reset():
    everything()
    first = stats(reset=True)
    assert first.decisions["simd"] == 2
    assert stats() == Stats({}, {}, {}, {}, {}, {}, {}, {}, first.quarantined)
    emit("decision", "add", "simd")
    assert stats().decisions == {"simd": 1} and first.decisions == {"simd": 2, "scalar": 1}


def test_stats_as_text_and_as_json():
    if not stats().quarantined:
        assert str(stats()) == "nothing has happened yet"
    everything()
    text = str(stats())
    for line in (
        "add on simd",
        "add: fake -> simd, OutOfMemory",
        "to device, fake",
        "log: nan, stop",
        "cuda: cannot run",
    ):
        assert line in text, text
    data = stats().json()
    json.dumps(data)
    assert data["fallbacks"] == [{"op": "add", "from": "fake", "to": "simd", "reason": "OutOfMemory", "count": 1}]
    assert data["transfers"] == [
        {"direction": "to device", "backend": "fake", "count": 2, "seconds": 2e-3, "bytes": 1024}
    ]


def test_quarantined_plans_are_listed(monkeypatch):
    from trueno.select import quarantine

    held = quarantine.Quarantined("fake", "add", "float32", "ee", 1, (11,), (), "host", "OutOfMemory: full")
    monkeypatch.setattr(quarantine, "quarantined", lambda: (held,))
    assert "quarantined: add on fake: OutOfMemory: full" in str(stats())
    assert stats().json()["quarantined"][0]["sizes"] == [11]


def test_counters_are_exact_under_threads():
    barrier = threading.Barrier(4)

    def work():
        barrier.wait()
        for _ in range(500):
            emit("decision", "add", "simd")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert stats().decisions == {"simd": 2000}


def test_no_event_imports_logging_or_pluggy_for_nobody():
    code = (
        "import sys\n"
        "from trueno.discovery import index\n"
        "index.points = lambda refresh=False: []\n"
        "from trueno.events.stream import emit, stats\n"
        "emit('decision', 'add', 'simd')\n"
        "assert stats().decisions == {'simd': 1}\n"
        "print(*sorted({'pluggy', 'logging', 'asyncio'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


# ---- text ------------------------------------------------------------------------------------------


def test_times_and_sizes_for_people():
    assert [duration(s) for s in (0.0, 5e-9, 1.234e-5, 0.9999, 1.5, 4000.0)] == [
        "0 ns", "5 ns", "12.3 µs", "1 s", "1.5 s", "4\u202f000 s",
    ]  # fmt: skip
    assert [duration(s) for s in (None, 999.6e-9, -2.5e-7, math.inf, math.nan)] == [
        "–", "1 µs", "-250 ns", "inf s", "nan s",
    ]  # fmt: skip
    assert [size(n) for n in (0, 999, 4096, 5_000_000, 7 * 10**9)] == ["0 B", "999 B", "4.1 kB", "5.0 MB", "7.0 GB"]


def test_columns_align():
    assert columns([("a", "1"), ("bcd", "22")], right=(1,)) == ["a     1", "bcd  22"]
    assert columns([]) == []


def test_plain_holds_only_what_json_can():
    class Odd:
        def __str__(self):
            return "odd"

    value = {1: np.int64(2), "x": [np.float32(0.5), float("inf"), None, True, (1,)], "o": Odd(), "s": {3}}
    assert plain(value) == {"1": 2, "x": [0.5, "inf", None, True, [1]], "o": "odd", "s": [3]}
    json.dumps(plain(value), allow_nan=False)
