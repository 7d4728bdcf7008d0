"""The registry: what is installed, what is switched off, who is refused, and that asking imports nothing."""

import json
import os
import re
import sys
import time
from threading import Thread

import numpy as np
import pytest
from fake_plugin import run, tell, write
from trueno.discovery import index, registry, scan
from trueno.discovery.entry import Entry
from trueno.discovery.manifest import Manifest
from trueno.errors import ParameterError, UnknownBackend
from trueno.remedies import install

NAMES = "import json, trueno; print(json.dumps([e.name for e in trueno.backends().values()]))"
CODES = """
import json, sys, trueno
said = {e.name: [e.available, e.code, e.reason] for e in trueno.backends().values()}
said["loaded"] = [m for m in sys.modules if m.endswith("_package.impl")]
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A CPU's and a GPU's plugin; neither may be imported before it is asked for."""
    folder = tmp_path_factory.mktemp("two")
    write(folder, "works")
    write(folder, "board", kind="gpu", tier=30, settings={"TRUENO_BOARD": {"type": "int", "default": 0, "help": "nr"}})
    return folder


def test_best_tier_first_then_name_and_the_reference_last(tmp_path):
    for name, tier in (("low", 0), ("beta", 20), ("alpha", 20), ("top", 99)):
        write(tmp_path, name, tier=tier)
    assert tell(tmp_path, NAMES) == ["top", "alpha", "beta", "low", "reference"]


def test_a_scan_with_a_warm_index_imports_little(two):
    code = """
    import json, sys, numpy, trueno
    names = list(trueno.backends())
    heavy = ["trueno.reference", "trueno.ops", "importlib.metadata", "tomllib", "pluggy", "subprocess", "numba"]
    print(json.dumps([names, [m for m in heavy if m in sys.modules]]))
    """
    tell(two, code)  # makes the cache's folder
    for path in (two, *two.rglob("backend.toml")):
        os.utime(path, (1e9, 1e9))  # the index trusts nothing that has just changed
    tell(two, code)
    assert tell(two, code) == [["board", "works", "reference"], []]


def test_reading_entries_again_is_the_same_dictionary():
    assert registry.entries() is registry.entries()
    assert list(registry.entries())[-1] == "reference"
    assert registry.entries()["reference"].available and registry.load("reference").name == "reference"


def test_entries_that_another_thread_forgets_at_once(monkeypatch):
    publish = registry._publish

    def forgotten(found):
        published = publish(found)
        registry.forget()
        return published

    registry.forget()
    monkeypatch.setattr(registry, "_publish", forgotten)
    assert "reference" in registry.entries()
    assert registry.owner(np.ndarray) is None and registry.load("reference").name == "reference"


def test_reading_while_another_thread_forgets(monkeypatch):
    interval, wrong, end = sys.getswitchinterval(), [], time.monotonic() + 1
    monkeypatch.setattr(registry, "_scan", lambda: registry._publish({"reference": scan._reference()}))

    class Kind:
        pass

    def read():
        while time.monotonic() < end:
            try:
                assert "reference" in registry.entries()
                assert registry.owner(Kind) is None
                registry.load("reference")
            except Exception as error:
                wrong.append(repr(error))

    threads = [Thread(target=read) for _ in range(3)]
    try:
        sys.setswitchinterval(1e-6)
        for thread in threads:
            thread.start()
        while time.monotonic() < end:
            registry.forget()
    finally:
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
        monkeypatch.undo()
        registry.forget()
    assert not wrong, wrong[0]


def test_a_warning_points_at_the_users_line(two):
    done = run(two, "import trueno\n\ntrueno.backends()", TRUENO_BLOCK="wroks")
    assert "<string>:3: TruenoWarning: TRUENO_BLOCK names" in done.stderr


def test_a_backend_of_ours_that_is_not_installed_says_how(monkeypatch):
    assert {"scalar", "simd", "wgpu", "cuda"} == set(index.extras())
    monkeypatch.setattr(registry, "extras", lambda: {"cyda": "trueno-cyda"})
    with pytest.raises(UnknownBackend, match=rf'"cyda" is not installed: {re.escape(install("cyda"))}; installed: '):
        registry.load("cyda")


# ---- switched off ----------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["FORCE_CPU", "TRUENO_FORCE_CPU"])
def test_force_cpu_keeps_gpus_unloaded_everywhere(two, variable):
    code = (
        CODES
        + """
from threading import Thread
import subprocess
from trueno.discovery import registry
errors = []
def ask():
    try:
        registry.load("board")
    except trueno.BackendUnavailable as error:
        errors.append(str(error))
thread = Thread(target=ask)
thread.start()
thread.join()
inner = "import trueno; print(trueno.backends()['board'].code)"
print(json.dumps([errors, subprocess.check_output([sys.executable, "-c", inner], text=True).strip()]))
"""
    )
    first, second = (json.loads(line) for line in run(two, code, **{variable: "1"}).stdout.splitlines())
    assert first["works"][0] and not first["board"][0] and first["board"][1] == "forced_cpu"
    assert second[1] == "forced_cpu"
    assert second[0][0].startswith(f"board: not loaded: TRUENO_FORCE_CPU (environment {variable}) forces the CPU")
    assert not (two / "cache" / "probes").exists() or not list((two / "cache" / "probes").glob("board-*"))


def test_block_and_a_misspelt_name(two):
    done = run(two, CODES, TRUENO_BLOCK="board,wroks")
    report = json.loads(done.stdout)
    assert report["board"][1] == "blocked" and "TRUENO_BLOCK" in report["board"][2] and report["works"][0]
    assert 'TRUENO_BLOCK names "wroks", which is not installed; did you mean "works"?' in done.stderr
    assert "board" not in done.stderr
    assert "part of trueno" in run(two, NAMES, TRUENO_BLOCK="reference").stderr


def test_autoload_names_what_is_left(two):
    assert tell(two, NAMES, TRUENO_AUTOLOAD="0") == ["reference"]
    done = run(two, NAMES, TRUENO_AUTOLOAD="Works, bord")
    assert json.loads(done.stdout) == ["works", "reference"] and 'did you mean "board"?' in done.stderr
    output = run(two, "import trueno\nwith trueno.use('works'): pass", TRUENO_AUTOLOAD="0").stderr
    assert "UnknownBackend" in output and "TRUENO_AUTOLOAD is '0', from environment TRUENO_AUTOLOAD" in output


def test_settings_of_plugins_are_declared_and_unknown_ones_are_a_warning(two):
    code = "import trueno; trueno.backends(); from trueno.settings import settings; print(settings.get('TRUENO_BOARD'))"
    done = run(two, code, TRUENO_BOARD="3", TRUENO_BORD="1")
    assert done.stdout.strip() == "3"
    assert "TRUENO_BORD is set, but no such setting exists" in done.stderr and "TRUENO_BOARD" in done.stderr
    assert "<string>:1: TruenoWarning" in done.stderr  # the program's line, not ours
    bad = run(two, code, TRUENO_BOARD="many").stderr
    assert "SettingError: TRUENO_BOARD is 'many', but must be a whole number" in bad


# ---- refused ---------------------------------------------------------------------------------------


def test_refused_without_running_any_of_their_code(tmp_path):
    write(tmp_path, "old", api=[7, 9], module="raise SystemExit('imported')")
    write(tmp_path, "later", module="raise SystemExit('imported')", unavailable="not built yet: no kernels")
    write(tmp_path, "needs", module="raise SystemExit('imported')", require={"modules": ["no_such_module"]})
    write(tmp_path, "garbled", manifest="name = \n")
    write(tmp_path, "extra", colour="red")
    write(tmp_path, "twice", distribution="fake-one")
    write(tmp_path, "twice", distribution="fake-other")
    write(tmp_path, "works")
    report = tell(tmp_path, CODES)
    expected = {
        "old": ("api_mismatch", "it implements versions 7 to 9 of the backend protocol"),
        "later": ("not_built", "not built yet"),
        "needs": ("missing", "no_such_module is not installed"),
        "garbled": ("bad_manifest", "its manifest is refused"),
        "extra": ("bad_manifest", "colour"),
        "twice": ("duplicate", "fake-one and fake-other"),
    }
    for name, (code, sentence) in expected.items():
        available, got, reason = report[name]
        assert not available and got == code and sentence in reason, (name, got, reason)
    assert report["works"][0] and report["loaded"] == []


def test_a_duplicate_is_an_error_when_it_is_named(tmp_path):
    write(tmp_path, "twice", distribution="fake-one")
    write(tmp_path, "twice", distribution="fake-other")
    output = run(tmp_path, "import trueno\nwith trueno.use('twice'): pass").stderr
    assert "BackendUnavailable: twice: two distributions bring it, fake-one and fake-other" in output


ADD = "import numpy as np, trueno; trueno.add(np.ones(3), np.ones(3)); trueno.backends(); trueno.add(np.ones(3), 1.0)"


@pytest.mark.parametrize("third", [False, True])
def test_a_clash_that_costs_a_backend_is_one_warning(tmp_path, third):
    write(tmp_path, "twice", distribution="fake-one")
    write(tmp_path, "twice", distribution="fake-other", manifest="garbled" if third else "")
    if third:
        write(tmp_path, "twice", distribution="fake-third")
    output = run(tmp_path, ADD).stderr
    known = "fake-one and fake-other" + " and fake-third" * third
    assert output.count("TruenoWarning") == 1
    assert (
        f'TruenoWarning: the backend "twice" is switched off: {"3" if third else "two"} distributions bring it'
        in output
    )
    assert f"bring it, {known}, and {'none' if third else 'neither'} is used; uninstall " in output
    assert run(tmp_path, ADD, TRUENO_BLOCK="twice").stderr == ""


def test_a_clash_that_costs_nothing_is_none(tmp_path):
    for name, keys in (
        ("asked", {"opt_in": True}),
        ("board", {"kind": "gpu"}),
        ("later", {"unavailable": "not built"}),
    ):
        write(tmp_path, name, distribution=f"fake-one-{name}", **keys)
        write(tmp_path, name, distribution=f"fake-other-{name}", **keys)
    write(tmp_path, "works")
    assert run(tmp_path, ADD, TRUENO_FORCE_CPU="1").stderr == ""
    assert tell(tmp_path, CODES, TRUENO_FORCE_CPU="1")["board"][1] == "duplicate"


def test_a_manifest_that_is_refused_is_no_clash_with_itself(tmp_path):
    home = write(tmp_path, "twice", manifest="garbled")
    info = tmp_path / "fake_twice-1.0.dist-info" / "entry_points.txt"
    (home / "other.toml").write_text("garbled too")
    info.write_text(info.read_text() + f"twice = {home.name}:other.toml\n")
    assert tell(tmp_path, CODES)["twice"][1] == "bad_manifest"


def test_the_name_of_the_reference_is_taken(tmp_path):
    write(tmp_path, "reference", "def probe(self, level): raise OSError")
    done = run(tmp_path, "import trueno; print(trueno.backends()['reference'].manifest.distribution)")
    assert done.stdout.strip() == "trueno" and "the name is trueno's own" in done.stderr


# ---- registered by hand ----------------------------------------------------------------------------

HAND = """
import json, sys
sys.path.insert(0, {folder!r})
from trueno.discovery import registry
from trueno.errors import ParameterError
import trueno
from fake_mine_package.impl import Backend
facts = {{"name": "mine", "api": [1, 1], "kind": "cpu", "tier": 50}}
made = []
class Counted(Backend):
    def __init__(self): made.append(self)
"""


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    """A package that no entry point names, as in a frozen application."""
    folder = tmp_path_factory.mktemp("apart")
    home = "def to_host(self, x, out=None): return x if out is None else np.copyto(out, x) or out"
    write(folder, "mine", home, arrays=["fake_mine_package.impl:Own"])
    for info in folder.glob("*.dist-info"):
        (info / "entry_points.txt").unlink()
    return folder


@pytest.mark.parametrize("first", ["", "registry.entries()"])
def test_registering_by_hand(apart, first):
    code = (
        HAND.format(folder=str(apart))
        + f"""
{first}
for _ in range(2):
    registry.register(facts, factory=Counted)
said = []
for other in (facts | {{"tier": 51}}, facts | {{"kind": "npu"}}, facts | {{"name": "reference"}}):
    try:
        registry.register(other, factory=Counted)
    except ParameterError as error:
        said.append(str(error))
import numpy as np
with trueno.use("mine"):
    total = trueno.add(np.ones(2), np.ones(2)).tolist()
registry.forget()
registry.load("mine")
entry = registry.entries()["mine"]
print(json.dumps([list(registry.entries()), total, said, len(made), entry.probed]))
"""
    )
    names, total, said, made, probed = tell(apart, code)
    assert names == ["mine", "reference"] and total == [2.0, 2.0] and made == 1 and probed == "unprobed"
    assert "there is a backend called 'mine' already, from trueno.register" in said[0]
    assert "kind is 'npu'" in said[1] and "from trueno itself" in said[2]


def test_registering_a_file_or_an_object(apart):
    code = (
        HAND.format(folder=str(apart))
        + """
registry.register(sys.path[0] + "/fake_mine_package/backend.toml")
entry = registry.entries()["mine"]
other = Backend()
other.name = "other"
registry.register(facts | {"name": "other"}, factory=other)
registry.register(facts | {"name": "other"}, factory=other)
same = registry.load("other") is other
print(json.dumps([entry.available, entry.probed, same]))
"""
    )
    assert tell(apart, code) == [True, "now", True]


@pytest.mark.parametrize(
    "given",
    [
        5, None, ["x"], b"/nope", {1: 2}, {b"name": "x"}, "/no/such/backend.toml", "a\0b",
        *({"name": "zz", "api": [1, 1], "kind": "cpu", "factory": "a:B"} | change for change in (
            {1: 2}, {"settings": {1: {}}}, {"settings": [1]}, {"require": {3: 3}}, {"name": None}, {"kind": {}},
            {"tier": "x" * 99}, {"colour": 10**5000}, {"api": [1.0, 1.0]},
        )),
    ],
)  # fmt: skip
def test_what_is_no_manifest_is_a_sentence(given):
    with pytest.raises(ParameterError, match=r"^register: ") as caught:
        registry.register(given)
    assert "zz" not in registry.entries() and "object is not" not in str(caught.value)


def test_a_dict_in_itself_is_a_sentence():
    endless = {"name": "zz"}
    endless["require"] = endless
    with pytest.raises(ParameterError, match="nested"):
        registry.register(endless)


# ---- owners, loss, threads -------------------------------------------------------------------------


def test_owner_of_array_types(tmp_path):
    write(tmp_path, "mine", module="class Own: pass\nclass Child(Own): pass", arrays=["fake_mine_package.impl:Own"])
    write(tmp_path, "also", opt_in=True, tier=90, arrays=["fake_mine_package.impl:Own"])
    code = """
    import json, numpy as np
    from trueno.discovery import registry
    from trueno.discovery.registry import owner
    before = owner(np.ndarray)
    import fake_mine_package.impl as impl
    found = [owner(t) for t in (impl.Own, impl.Child, impl.Child, int, np.ndarray, np.matrix)]
    entries = registry.entries()
    print(json.dumps([before, [e and e.name for e in found], entries["mine"].foreign,
                      entries["reference"].foreign, entries["reference"].atomic]))
    """
    assert tell(tmp_path, code) == [None, ["mine", "mine", "mine", None, None, None], True, False, True]


def test_a_lost_backend_is_not_used_again(tmp_path):
    write(tmp_path, "works")
    code = """
    import json, trueno
    from trueno.discovery import registry
    registry.load("works")
    registry.retire("works", "its device was lost")
    try:
        registry.load("works")
    except trueno.BackendUnavailable as error:
        said = str(error)
    entry = registry.entries()["works"]
    print(json.dumps([said, entry.available, entry.code, repr(entry)]))
    """
    said = "works: its device was lost"
    assert tell(tmp_path, code) == [said, False, "lost", f"<{said}>"]


def test_a_factory_is_called_once_by_many_threads(tmp_path):
    write(tmp_path, "works", "made = []\ndef __init__(self):\n    import time; time.sleep(0.1); self.made.append(1)")
    code = """
    import json
    from threading import Barrier, Thread
    from trueno.discovery import registry
    barrier, found = Barrier(8), []
    def work():
        barrier.wait()
        found.append(registry.load("works"))
    threads = [Thread(target=work) for _ in range(8)]
    for t in threads: t.start()
    for t in threads: t.join()
    print(json.dumps([len(set(map(id, found))), len(found), len(found[0].made)]))
    """
    assert tell(tmp_path, code) == [1, 8, 1]


def test_ctrl_c_as_a_load_begins_does_not_mark_it_as_under_way(tmp_path):
    write(tmp_path, "works")
    code = """
    import json
    from types import SimpleNamespace
    from trueno.discovery import entry, registry
    clock = entry.time
    def interrupted():
        entry.time = clock
        raise KeyboardInterrupt
    entry.time = SimpleNamespace(perf_counter=interrupted)
    try:
        registry.load("works")
    except KeyboardInterrupt:
        print(json.dumps(registry.entries()["works"].name if registry.load("works") else ""))
    """
    assert tell(tmp_path, code, TRUENO_PROBE="off") == "works"


def test_ctrl_c_that_ends_a_wait_for_a_load_leaves_it_to_others(tmp_path):
    write(tmp_path, "works")
    code = """
    import json, signal, threading, time
    from trueno.discovery import registry
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job ignores
    entry, held = registry.entries()["works"], threading.Event()
    def other():
        with entry._lock:
            held.set()
            time.sleep(2)  # until the main thread waits, also on a busy machine
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(1)  # so that its wait ends by this, and not by the lock
    threading.Thread(target=other).start()
    held.wait()
    try:
        registry.load("works")
    except KeyboardInterrupt:
        loaded = threading.Event()
        threading.Thread(target=lambda: (registry.load("works"), loaded.set()), daemon=True).start()
        print(json.dumps(loaded.wait(60)))
    """
    assert tell(tmp_path, code, TRUENO_PROBE="off") is True


def test_a_plugin_that_asks_for_itself_while_it_is_loaded(tmp_path):
    write(tmp_path, "eager", module="from trueno.discovery import registry\nregistry.load('eager')")
    code = """
    import trueno
    with trueno.use("eager"): pass
    """
    output = run(tmp_path, code, TRUENO_PROBE="off").stderr
    assert "eager: it requests itself while it is loaded" in output


def test_a_plugin_that_calls_an_op_while_it_is_made_is_done_without(tmp_path):
    body = """
    def __init__(self):
        import trueno
        from trueno.discovery.registry import entries
        self.seen = [entries()["eager"].available, trueno.add(np.ones(2), np.ones(2)).tolist()]
    """
    write(tmp_path, "eager", body)
    code = """
    import json
    from trueno.discovery import registry
    print(json.dumps(registry.load("eager").seen))
    """
    assert tell(tmp_path, code, TRUENO_PROBE="off") == [False, [2.0, 2.0]]


def test_two_plugins_that_ask_for_each_other_do_not_wait_for_ever(tmp_path):
    body = """
    def __init__(self):
        import time
        from trueno.discovery.registry import entries
        time.sleep(0.5)
        entries()["OTHER"].available
    """
    write(tmp_path, "one", body.replace("OTHER", "other"))
    write(tmp_path, "other", body.replace("OTHER", "one"))
    code = """
    import json
    from threading import Thread
    from trueno.discovery import registry
    threads = [Thread(target=registry.load, args=(name,), daemon=True) for name in ("one", "other")]
    for t in threads: t.start()
    for t in threads: t.join(20)
    print(json.dumps([t.is_alive() for t in threads]))
    """
    assert tell(tmp_path, code, TRUENO_PROBE="off") == [False, False]


def test_best_is_no_emulation_and_nothing_opt_in(tmp_path):
    write(tmp_path, "emulated", "def probe(self, level): return Probe(True, '', (Device('pipe', '', True),))", tier=90)
    write(tmp_path, "asked", tier=80, opt_in=True)
    write(tmp_path, "shy", "def probe(self, level): raise OSError('no')", tier=70)
    write(tmp_path, "works", tier=1)
    code = """
    import json, trueno
    from trueno.discovery import registry
    best = trueno.select_best_available_backend()
    print(json.dumps([best.name, best.isa, registry.entries()["emulated"].software]))
    """
    assert tell(tmp_path, code) == ["works", "isa", True]
    assert tell(tmp_path, code, TRUENO_BACKEND="emulated")[0] == "emulated"


def test_how_an_entry_shows_itself():
    manifest = Manifest("fake", (1, 1), "cpu", 3, "no_such_package:make", "")
    entry = Entry("fake", manifest)
    assert "not probed yet" in repr(entry) and (entry.kind, entry.tier, entry.opt_in) == ("cpu", 3, False)
    refused = Entry("fake", None, "bad_manifest", "its manifest is refused: no")
    assert repr(refused) == "<fake: its manifest is refused: no>" and not refused.available
    assert (refused.kind, refused.tier, refused.opt_in, refused.devices) == ("unknown", -1, False, ())
