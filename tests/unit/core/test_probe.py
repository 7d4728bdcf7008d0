"""Probes: whatever a plugin does in one becomes a code and a sentence, and what was found out is kept."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import pytest
from fake_plugin import run, tell, write
from trueno.discovery.manifest import parse
from trueno.discovery.protocol import Device
from trueno.probing import child, probe, process, verdicts
from trueno.probing.verdicts import Verdict

ASK = """
import json, sys, trueno
found = {
    e.name: [e.available, e.code, e.reason, list(e.notes), e.probed, [d.name for d in e.devices]]
    for e in trueno.backends().values() if e.name != "reference"
}
found["loaded"] = [m for m in sys.modules if m.endswith("_package.impl") or m in ("trueno.reference", "trueno.ops")]
print(json.dumps(found))
"""

BAD = {
    "raises": (
        "def probe(self, level): raise OSError('libfoo.so is missing')",
        "probe_failed",
        "OSError: libfoo.so is",
    ),
    "exits": ("def probe(self, level): raise SystemExit(3)", "probe_failed", "SystemExit: 3"),
    "leaves": ("def probe(self, level): os._exit(7)", "probe_crashed", "ended with code 7"),
    "dies": (
        """
        def probe(self, level):
            import signal
            os.write(2, b'LLVM ERROR: no\\n')
            os.kill(os.getpid(), signal.SIGSEGV)
        """,
        "probe_crashed",
        'was ended by SIGSEGV; its last words: "LLVM ERROR: no"',
    ),
    "refuses": ("def probe(self, level): return Probe(level < 2, 'no power')", "probe_failed", "no power"),
    "boardless": (
        "def probe(self, level): return Probe(level < 2, 'no board', absent=level > 1)",
        "no_device",
        "no board",
    ),
    "bare_board": ("def probe(self, level): return Probe(False, absent=True)", "no_device", "without a reason"),
    "mute": ("def probe(self, level): return Probe(False)", "probe_failed", "without a reason"),
    "odd": ("def probe(self, level): return True", "probe_failed", "gave a bool where a Probe was expected"),
    "bare": ("close = None", "probe_failed", "without close"),
    "nan": (
        "def kernel(self, call): return lambda x, y, out: out.fill(np.nan)",
        "probe_failed",
        "its add of 37 numbers gave nan where -5.25 was expected, at [0]",
    ),
    "shape": ("def empty(self, shape, dtype): return np.empty(3, dtype)", "probe_failed", "of shape (3,) where (37,)"),
    "dtype": ("def empty(self, shape, dtype): return np.empty(shape)", "probe_failed", "of float64 where float32"),
    "host": ("def to_host(self, x, out=None): return [1]", "probe_failed", "its to_host gave a list"),
    "writes": (
        "def kernel(self, call): return lambda x, y, out: (np.add(x, y, out=out), x.fill(0))[1]",
        "probe_failed",
        "changed an operand",
    ),
    "throws": ("def kernel(self, call): return lambda x, y, out: 1 / 0", "probe_failed", "raised ZeroDivisionError"),
    "answers": ("def kernel(self, call): return lambda x, y, out: 'fine'", "probe_failed", "returned 'fine'"),
}


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    """Every bad plugin in one folder, and what a process says of them, first without and then with their verdicts."""
    folder = tmp_path_factory.mktemp("bad")
    for name, (body, _, _) in BAD.items():
        write(folder, name, body)
    write(folder, "broken", module="import no_such_module")
    return tell(folder, ASK, TRUENO_PROBE_TIMEOUT="60"), tell(folder, ASK)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_plugin_is_a_code_and_a_sentence(bad, name):
    _, code, sentence = BAD[name]
    if name == "dies" and sys.platform == "win32":
        pytest.skip("Windows has no signals that end a process")
    for how, found in zip(("now", "cached"), bad, strict=True):
        available, got, reason, _, probed, _ = found[name]
        assert not available and got == code and sentence in reason, reason
        assert probed == how


def test_trying_imports_no_plugin_here(bad):
    for found in bad:
        assert found["loaded"] == []


def test_an_error_at_import_keeps_its_traceback(tmp_path):
    write(tmp_path, "broken", module="import no_such_module")
    done = run(tmp_path, "import trueno\nwith trueno.use('broken'): pass")
    assert done.returncode == 1
    assert "BackendUnavailable: broken: ModuleNotFoundError: No module named 'no_such_module'" in done.stderr
    assert "in the process that probed it" in done.stderr and "impl.py" in done.stderr
    again = run(tmp_path, "import trueno\nwith trueno.use('broken'): pass")
    assert "Try again: trueno doctor --refresh" in again.stderr


def test_a_plugin_that_hangs_is_ended_and_holds_up_nobody_else(tmp_path):
    body = """
    def probe(self, level):
        import subprocess, sys, time
        own = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        open(FILE, "w").write(f"{os.getpid()} {own.pid}")
        time.sleep(60)
    """
    pids = tmp_path / "pids"
    write(tmp_path, "hangs", body.replace("FILE", repr(str(pids))))
    write(tmp_path, "works")
    report = tell(tmp_path, ASK, TRUENO_PROBE_TIMEOUT="4")
    assert report["works"][0]
    _, code, reason, *_ = report["hangs"]
    assert code == "probe_timeout" and "after 4 s (TRUENO_PROBE_TIMEOUT)" in reason
    if sys.platform == "linux":  # and what it started has gone with it
        deadline = time.monotonic() + 10
        while any(_runs(pid) for pid in pids.read_text().split()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(_runs(pid) for pid in pids.read_text().split())


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_manners_are_noted_and_undone(tmp_path):
    module = "import os\nprint('hello from C')\nos.environ['FAKE_FLAG'] = '1'\nos.environ.pop('FAKE_OTHER', None)\n"
    write(tmp_path, "rude", module=module)
    code = """
    import json, os, sys, trueno
    entry = trueno.backends()["rude"]
    first = [entry.available, entry.notes]
    entry.load()
    print(json.dumps([first, entry.notes, entry.available, os.environ.get("FAKE_FLAG"), os.environ["FAKE_OTHER"]]))
    """
    done = run(tmp_path, code, FAKE_OTHER="kept")
    hello, answer = done.stdout.splitlines()
    assert hello == "hello from C"  # printed by load(), in this process; by the child it was caught
    (available, notes), later, still, flag, other = json.loads(answer)
    assert available and still
    assert notes == ['it prints on stdout: "hello from C"', "it edits the environment: FAKE_FLAG, FAKE_OTHER"]
    assert "it edits the environment, which was undone: FAKE_FLAG, FAKE_OTHER" in later
    assert flag is None and other == "kept"


def test_what_passes_alone_and_fails_here_is_said(tmp_path):
    write(
        tmp_path,
        "shy",
        "def __init__(self):\n    if os.environ.get('TRUENO_PROBE') != 'off': raise OSError('not here')",
    )
    code = """
    import json, trueno
    entry = trueno.backends()["shy"]
    before = entry.available
    try:
        entry.load()
    except trueno.BackendUnavailable as error:
        said, cause = str(error), type(error.__cause__).__name__
    best = trueno.select_best_available_backend().name
    print(json.dumps([before, said, cause, entry.available, entry.code, best]))
    """
    said = "shy: OSError: not here"
    assert tell(tmp_path, code) == [True, said, "OSError", False, "load_failed", "reference"]
    assert tell(tmp_path, code)[0], "the verdict that promised too much is forgotten, and made anew"


@pytest.mark.parametrize("mode, kept", [("off", False), ("cached", True)])
def test_without_a_process_it_is_tried_in_this_one(tmp_path, mode, kept):
    write(tmp_path, "works")
    write(tmp_path, "raises", BAD["raises"][0])
    report = tell(tmp_path, ASK, TRUENO_PROBE=mode)
    assert report["works"][0] and report["works"][4] == "unprobed"
    assert report["raises"][1] == "probe_failed" and report["raises"][4] == "unprobed"
    assert "fake_works_package.impl" in report["loaded"]
    tell(tmp_path, ASK)
    assert (tell(tmp_path, ASK, TRUENO_PROBE=mode)["works"][4] == "cached") is kept


@pytest.mark.parametrize("spell", ["sys.executable = ''", "sys.executable = '/opt/gimp/bin/gimp'", "sys.frozen = True"])
def test_where_this_python_cannot_be_started_it_is_tried_here(tmp_path, spell):
    write(tmp_path, "works")
    assert tell(tmp_path, f"import sys\n{spell}\n" + ASK)["works"][4] == "unprobed"


def test_a_process_that_cannot_start_is_not_the_plugins_fault(tmp_path):
    write(tmp_path, "works")
    report = tell(tmp_path, f"import sys\nsys.executable = {str(tmp_path / 'python-gone')!r}\n" + ASK)
    available, _, _, notes, probed, _ = report["works"]
    assert available and probed == "unprobed" and "no process could be started" in notes[0]


def test_the_child_finds_what_this_process_finds(tmp_path):
    """Started with `-I`, a path that only `sys.path` has, and the current folder as an empty entry."""
    write(tmp_path / "hidden", "far")
    write(tmp_path, "near")
    lines = [
        "import sys, os",
        f"sys.path[:0] = ['', {str(tmp_path / 'hidden')!r}]",
        f"os.environ.update(TRUENO_CACHE_DIR={str(tmp_path / 'cache')!r}, TRUENO_AUTOLOAD='far,near')",
        ASK,
    ]
    done = run(tmp_path, "\n".join(lines), flags=("-I",))
    report = json.loads(done.stdout)
    assert report["far"][4] == report["near"][4] == "now" and report["far"][0] and report["near"][0], report


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_after_probing_works(tmp_path):
    """Also while a process still tries another plugin; and a GPU that was in use is retired in the child."""
    write(tmp_path, "works", tier=7)
    write(tmp_path, "slow", "def probe(self, level):\n    import time; time.sleep(3); return Probe(True)")
    write(tmp_path, "board", kind="gpu")
    write(tmp_path, "idle", kind="gpu")
    code = """
    import json, os, trueno
    from trueno.discovery import registry
    b = trueno.backends()
    assert b["works"].available
    for name in ("board", "idle"): b[name].load()
    b["board"].active = True
    read, write = os.pipe()
    if not (pid := os.fork()):
        import numpy as np
        with trueno.use("works"):
            total = trueno.add(np.ones(3), np.ones(3)).tolist()
        try:
            registry.load("board")
        except trueno.BackendUnavailable as error:
            said = str(error)
        answer = [total, said, b["idle"].available, b["slow"].available, b["board"].code]
        os.write(write, json.dumps(answer).encode())
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    print(json.dumps([json.loads(os.read(read, 9999)), b["board"].available, b["slow"].available]))
    """
    (total, said, idle, slow, code_), board, parent = tell(tmp_path, code)
    assert total == [2.0, 2.0, 2.0] and idle and slow and board and parent
    assert code_ == "lost" and "forked" in said and "spawn" in said


def test_a_read_only_cache_costs_nothing_but_time(tmp_path):
    write(tmp_path, "works")
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    cache.chmod(0o500)
    try:
        if os.access(cache, os.W_OK):  # root may write everywhere: a file in the way does it too
            cache.rmdir()
            cache.write_text("in the way")
        done = run(tmp_path, ASK)
        assert json.loads(done.stdout)["works"][4] == "now", done.stderr
        assert "TruenoWarning" in done.stderr
    finally:
        cache.chmod(0o700)


def test_a_verdict_goes_stale_with_what_it_hangs_on(tmp_path):
    body = "def __init__(self):\n    from trueno.settings import settings; settings.get('TRUENO_WORKS_MODE')"
    package = write(tmp_path, "works", body, settings={"TRUENO_WORKS_MODE": {"type": "str", "help": "a mode"}})

    def probed(**environ):
        return tell(tmp_path, ASK, **environ)["works"][4]

    assert [probed(), probed()] == ["now", "cached"]
    assert probed(TRUENO_WORKS_MODE="other") == "now"
    assert probed(CUDA_VISIBLE_DEVICES="") == "cached" and probed(CUDA_VISIBLE_DEVICES="1") == "now"
    assert probed() == "cached", "the verdict of another environment did not replace it"
    (package / "impl.py").write_text((package / "impl.py").read_text() + "\n")
    assert [probed(), probed()] == ["now", "cached"]


# ---- in this process -------------------------------------------------------------------------------


def manifest():
    return parse({"name": "fake", "api": [1, 1], "kind": "cpu", "factory": "no_such_package.impl:Backend"}, "test")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    from trueno.settings import settings

    monkeypatch.setenv("TRUENO_CACHE_DIR", str(tmp_path / "cache"))
    settings.reload()
    yield tmp_path / "cache" / "probes"
    monkeypatch.undo()
    settings.reload()


@pytest.mark.parametrize(
    "verdict, age, holds",
    [
        (Verdict(True, devices=(Device("d", "i", True),), notes=("n",)), 1e9, True),
        (Verdict(False, "probe_failed", "no"), 23 * 3600, True),
        (Verdict(False, "probe_failed", "no"), 25 * 3600, False),
        (Verdict(False, "probe_timeout", "no", limit=20), 1800, True),
        (Verdict(False, "probe_timeout", "no", limit=19), 1800, False),
        (Verdict(False, "probe_timeout", "no", limit=60), 1800, True),
        (Verdict(False, "probe_timeout", "no", limit=20), 3700, False),
        (Verdict(False, "probe_failed", "no"), -60, False),
    ],
)
def test_how_long_a_verdict_holds(cache, verdict, age, holds):
    verdict = verdict._replace(time=time.time() - age)
    verdicts.keep(manifest(), verdict, verdicts.fingerprint(manifest()))
    assert verdicts.recall(manifest()) == (verdict if holds else None)
    verdicts.drop(manifest())
    assert verdicts.recall(manifest()) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"fingerprint": 1}', "\x00", "[" * 9999])
def test_a_damaged_verdict_is_none(cache, text):
    verdicts.keep(manifest(), Verdict(True), verdicts.fingerprint(manifest()))
    (file,) = cache.glob("fake-*.json")
    file.write_text(text)
    assert verdicts.recall(manifest()) is None


def test_a_changed_letter_in_a_verdict_makes_it_none(cache):
    verdicts.keep(manifest(), Verdict(False, "probe_failed", "no", time=time.time()), verdicts.fingerprint(manifest()))
    (file,) = cache.glob("fake-*.json")
    good = file.read_text()
    assert verdicts.recall(manifest()) is not None
    file.write_text(good.replace("probe_failed", "probe_faiied"))
    assert verdicts.recall(manifest()) is None
    file.write_text(good)
    assert verdicts.recall(manifest()) is not None


def test_only_so_many_verdicts_are_kept(cache):
    for i in range(verdicts.KEPT + 5):
        verdicts.keep(manifest(), Verdict(True), f"fingerprint {i}")
    assert len(list(cache.glob("fake-*.json"))) == verdicts.KEPT


@pytest.mark.parametrize(
    "change",
    [{"ok": 1}, {"reason": "r"}, {"devices": [[]]}, {"devices": [["a", "b", "c"]]}, {"notes": [1]}, {"time": "x"}],
)
def test_what_is_no_verdict_is_refused(change):
    with pytest.raises(ValueError, match=r"no verdict|could not convert"):
        verdicts.parse(Verdict(True).plain() | change)


# ---- processes that we end ourselves ---------------------------------------------------------------

SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]
READY_AND_SLEEPS = [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(60)"]


@pytest.fixture
def started(cache, monkeypatch):
    """`started(command)`: the child that tries a plugin is this command instead; how many were started."""
    processes = []

    def instead(command):
        def start(child):
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True))
            return processes[-1]

        monkeypatch.setattr(process._Child, "_start", start)
        return processes

    yield instead
    for one in processes:
        one.kill()
        one.wait()
        one.stdout.close()
    process._children.clear()


@pytest.mark.skipif(os.name == "nt", reason="nothing is read there before the end")
@pytest.mark.parametrize("way", ["give_up", "late"])
def test_what_we_end_is_never_a_crash_although_ending_it_fails(started, cache, monkeypatch, way):
    started(READY_AND_SLEEPS)
    child = process._Child(manifest())
    kill = process._Child.kill

    def fails(self):
        kill(self)
        raise RecursionError

    while not child.ready:
        assert not child.ended()
        time.sleep(0.01)
    monkeypatch.setattr(process._Child, "kill", fails)
    if way == "late":
        child.deadline = 0
    with pytest.raises(RecursionError):
        child.give_up() if way == "give_up" else child.ended()
    monkeypatch.setattr(process._Child, "kill", kill)
    assert child.ended()
    if way == "give_up":
        assert child.verdict is None and child.failed and not list(cache.glob("fake-*.json"))
    else:
        assert child.verdict.code == "probe_timeout"


def test_one_that_is_never_ready_is_started_again_and_then_refused(started, cache, monkeypatch):
    monkeypatch.setattr(process, "STARTING", 0.2)
    monkeypatch.setitem(process.settings._set, "TRUENO_PROBE_TIMEOUT", 0.1)
    process.settings.reload()
    try:
        processes = started(SLEEPS)
        verdict = process.wait(manifest())
    finally:
        monkeypatch.undo()
        process.settings.reload()
    assert verdict.code == "probe_timeout" and "did not come as far as its code within 0.2 s, 2 times" in verdict.reason
    assert len(processes) == 2 and all(p.poll() is not None for p in processes)
    assert not list(cache.glob("fake-*.json"))


@pytest.mark.skipif(os.name == "nt", reason="nothing is read there before the end")
def test_the_time_begins_when_it_is_ready(started):
    started(READY_AND_SLEEPS)
    child = process._Child(manifest())
    child.deadline = float("inf")
    while not child.ready:
        assert not child.ended()
        time.sleep(0.01)
    assert child.deadline < time.monotonic() + child.limit + 1
    child.give_up()


def test_one_that_was_ended_for_another_thread_is_started_again(started):
    processes = started(READY_AND_SLEEPS)
    answer = json.dumps(Verdict(True).plain())
    seen = []

    def wait():
        seen.append(process.wait(manifest()))

    thread = Thread(target=wait)
    thread.start()
    while not processes:
        time.sleep(0.01)
    started([sys.executable, "-c", f"print('ready'); print({answer!r})"])
    process.abandon()
    thread.join(30)
    assert len(processes) == 2 and seen[0].ok


def test_to_host_must_write_where_it_is_told():
    from trueno.reference import ReferenceBackend

    class Forgetful(ReferenceBackend):
        def to_host(self, x, out=None):
            return x.copy()

    child.check(Forgetful(), False)
    with pytest.raises(child.Wrong, match=r"to_host\(x, out\) gave another array than `out`"):
        child.check(Forgetful(), True)

    class Silent(ReferenceBackend):
        def to_host(self, x, out=None):
            return x.copy() if out is None else None

    with pytest.raises(child.Wrong, match=r"copied back by to_host\(x, out\), gave nan"):
        child.check(Silent(), True)


def test_origin_finds_modules_without_importing_them():
    assert verdicts.origin("trueno.probing.probe") == probe.__file__
    loaded = set(sys.modules)
    assert verdicts.origin("wsgiref.simple_server").endswith("simple_server.py")
    assert set(sys.modules) == loaded
    assert verdicts.origin("no_such_package.impl") == verdicts.origin("trueno.no_such_module") == ""


def test_the_cores_own_check_finds_the_reference_right():
    from trueno.reference import ReferenceBackend

    child.check(ReferenceBackend(), False)
    verdict = child.verify("reference", "trueno.reference:ReferenceBackend", False)
    assert verdict.ok and verdict.devices == (Device("NumPy"),)


def test_settings_of_code_are_spelled_for_the_child():
    assert [process._spelled(v) for v in (True, False, ("a", "b"), (("nan", "stop"),), 2.5)] == [
        "1", "0", "a,b", "nan:stop", "2.5",
    ]  # fmt: skip
