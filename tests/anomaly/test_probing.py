"""Plugins that fail before they run anything: the host lives, doctor says why, and naming one raises."""

import os
import re

import pytest

# What each must be blamed for: words that have to be in the sentence, and the codes that fit.
FAILED = ("probe_failed", "load_failed", "probe_crashed")
REFUSED = {
    "raises_at_import": (FAILED, "libchaos.so.7: undefined symbol: chaos_init"),
    "raises_in_factory": (FAILED, "licence server"),
    "raises_in_probe": (FAILED, "version 3, but 4 is needed"),
    "says_no": (("probe_failed",), "no chaos device; plug one in"),
    "says_nothing": (("probe_failed",), "without a reason"),
    "says_too_much": (("probe_failed",), "chaos is büsy"),
    "probe_is_no_probe": (FAILED, "str"),
    "dies_in_probe": (("probe_crashed",), "SIGSEGV"),
    "exits_in_probe": (("probe_crashed",), "without an answer"),
    "exits_at_import": (FAILED, "exit"),
    "incomplete": (FAILED, "supports", "kernel", "rates"),
    "misnamed": (FAILED, "scalar"),
    "no_factory_there": (FAILED, "NotThere"),
    "wrong_api": (("api_mismatch",), "7", "pip install --upgrade"),
    "needs_a_module": (("missing",), "no_such_module"),
    "always_nan": (FAILED, "nan where", "expected"),
    "always_wrong": (FAILED, "where", "expected"),
    "kernel_raises": (FAILED, "registers"),
    "kernel_is_none": (FAILED, "kernel", "NoneType"),
    "bad_toml": (("bad_manifest",), "bad_toml.toml"),
    "bad_bytes": (("bad_manifest",), "bad_bytes.toml"),
    "bad_key": (("bad_manifest",), "teir", "tier"),
    "bad_name": (("bad_manifest",), "another", "bad_name"),
    "bad_kind": (("bad_manifest",), "toaster"),
    "bad_factory": (("bad_manifest",), "trueno_chaos.forbidden.Backend"),
    "bad_api": (("bad_manifest",), "api"),
    "bad_setting": (("bad_manifest",), "TRUENO_BACKEND"),
    "bad_file": (("bad_manifest",), "bad_file.toml"),
    "bad_point": (("bad_manifest",), "trueno_chaos.probing:raises_in_probe.toml"),
    "bad_package": (("bad_manifest",), "no_such_package"),
}
RAISING = ("raises_at_import", "raises_in_factory", "raises_in_probe")
UNTOUCHED = ("wrong_api", "needs_a_module", *(name for name in REFUSED if name.startswith("bad_")))
MEET = """
import json
names = json.loads(os.environ["CHAOS_NAMES"])
x = np.arange(5, dtype=np.float32)
report = {}
with warnings.catch_warnings():
    warnings.simplefilter("error")
    total = trueno.add(x, x).tolist()
    chosen = trueno.explain("add", x, x).chosen
for name in names:
    try:
        with trueno.use(name):
            report[name] = {"type": "", "message": str(trueno.add(x, x).tolist())}
    except Exception as error:
        cause = error.__cause__
        report[name] = {
            "type": type(error).__name__, "message": str(error), "cause": type(cause).__name__ if cause else "",
            "ours": isinstance(error, trueno.TruenoError), "code": trueno.backends()[name].code,
        }
again = trueno.add(x, x).tolist()
say(report=report, total=total, again=again, chosen=chosen,
    imported=sorted(n for n in sys.modules if n.startswith("trueno_chaos")))
"""


@pytest.fixture(scope="module")
def zoo(host, tmp_path_factory):
    """Every refused kind at once: doctor's exit code and rows, and what a program met that named each."""
    import json

    marks = tmp_path_factory.mktemp("marks")
    there = host(chaos=list(REFUSED))
    there.environment["CHAOS_MARKS"] = str(marks)
    code, report = there.doctor(TRUENO_PROBE_TIMEOUT="60")
    met = there.says(MEET, TRUENO_PROBE_TIMEOUT="60", CHAOS_NAMES=json.dumps(list(REFUSED)))
    return {
        "code": code,
        "report": report,
        "rows": {row["name"]: row for row in report["backends"]},
        "met": met,
        "marks": sorted(os.listdir(marks)),
    }


def test_the_host_works_among_all_of_them(zoo):
    assert zoo["met"]["total"] == zoo["met"]["again"] == [0, 2, 4, 6, 8]
    assert zoo["met"]["chosen"] in ("scalar", "reference")


def test_doctor_is_degraded(zoo):
    assert zoo["report"]["health"] == "degraded"
    assert zoo["code"] == 1


@pytest.mark.parametrize("name", REFUSED)
def test_doctor_says_why(zoo, name):
    row = zoo["rows"][name]
    assert not row["available"]
    for word in REFUSED[name][1:]:
        assert word.lower() in row["reason"].lower()
    assert any(name in line for line in zoo["report"]["advice"])


@pytest.mark.parametrize("name", REFUSED)
def test_naming_it_raises(zoo, name):
    met = zoo["met"]["report"][name]
    assert met["type"] == "BackendUnavailable" and met["ours"]
    assert met["message"].startswith(f"{name}: ")
    for word in REFUSED[name][1:]:
        assert word.lower() in met["message"].lower()
    assert met["code"] in REFUSED[name][0]


@pytest.mark.parametrize("name", RAISING)
def test_the_cause_is_chained(zoo, name):
    assert zoo["met"]["report"][name]["cause"]


@pytest.mark.parametrize("name", REFUSED)
def test_a_reason_is_a_sentence_for_a_screen(zoo, name):
    """Short, of one line, printable: whatever the plugin put into it."""
    reason = zoo["rows"][name]["reason"]
    assert 3 < len(reason) < 2000
    assert not re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", reason), repr(reason[:200])


def test_what_is_refused_by_its_manifest_is_never_imported(zoo):
    assert not [m for m in zoo["marks"] if m.startswith("forbidden")]
    assert "trueno_chaos.forbidden" not in zoo["met"]["imported"]


def test_the_host_imports_no_plugin_that_failed_elsewhere(zoo):
    """What raised, died or answered wrongly in the child process never runs in this one."""
    assert not {n for n in zoo["met"]["imported"] if n in ("trueno_chaos.raises_at_import", "trueno_chaos.probing")}


def test_doctor_for_people(host):
    pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")
    there = host(chaos=["says_too_much", "raises_at_import", "bad_key"])
    done = there.finish(there.start("-m", "trueno.cli", "doctor"))
    assert done.code == 1, str(done)
    assert "undefined symbol" in done.out and "teir" in done.out and "chaos is" in done.out
    assert "Traceback" not in done.err and "\x1b[31m" not in done.out
    assert len(done.out) < 30_000


HANGING = ("hangs_in_probe", "hangs_at_import")


@pytest.fixture(scope="module")
def hung(host, tmp_path_factory):
    marks = tmp_path_factory.mktemp("marks")
    there = host(own_cache=tmp_path_factory.mktemp("hung"), chaos=[*HANGING, "says_no"])
    there.environment |= {"CHAOS_MARKS": str(marks), "TRUENO_PROBE_TIMEOUT": "2"}
    code = """
import time
x = np.ones(3, np.float32)
reasons = {n: (e.available, e.code, e.reason) for n, e in trueno.backends().items()}
try:
    trueno.use("hangs_in_probe").__enter__()
    raised = ""
except trueno.BackendUnavailable as error:
    raised = str(error)
say(reasons=reasons, raised=raised, total=trueno.add(x, x).tolist())
"""
    return there.says(code), marks


def test_hanging_is_a_reason(hung):
    met, _ = hung
    assert met["total"] == [2, 2, 2]
    for name in HANGING:
        available, code, reason = met["reasons"][name]
        assert not available and code == "probe_timeout"
        assert "2" in reason and "TRUENO_PROBE_TIMEOUT" in reason
    assert met["raised"].startswith("hangs_in_probe: ")


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="looks for processes in /proc")
def test_what_hung_is_gone(hung):
    """The child that hung does not stay behind."""
    _, marks = hung
    pids = [name.partition(".")[2] for name in os.listdir(marks) if name.startswith("hangs")]
    assert pids
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as file:
                assert file.read().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            pass


def test_a_verdict_is_cached_between_processes(host, tmp_path):
    """The second process tries nothing again; --refresh does."""
    (tmp_path / "cache").mkdir(mode=0o700)
    (tmp_path / "marks").mkdir()
    there = host(own_cache=tmp_path / "cache", chaos=["exits_in_probe", "circular"])
    there.environment["CHAOS_MARKS"] = str(tmp_path / "marks")
    ask = "say(**{n: [e.available, e.reason, e.probed] for n, e in trueno.backends().items()})"
    first, second = there.says(ask), there.says(ask)
    assert first["exits_in_probe"][:2] == second["exits_in_probe"][:2]
    assert first["exits_in_probe"][2] == "now" and second["exits_in_probe"][2] == "cached"
    before = len(os.listdir(tmp_path / "marks"))
    there.doctor("--refresh")
    assert len(os.listdir(tmp_path / "marks")) > before


def test_an_upgraded_plugin_is_tried_again(host, tmp_path):
    """A verdict belongs to the code that was tried: another version, or an edited file, is another plugin."""
    (tmp_path / "cache").mkdir(mode=0o700)
    there = host(own_cache=tmp_path / "cache", chaos=["says_no"])
    ask = "e = trueno.backends()['says_no']; say(available=e.available, reason=e.reason, probed=e.probed)"
    assert "plug one in" in there.says(ask)["reason"]
    (info,) = there.site.glob("trueno_chaos-*.dist-info")
    metadata = (info / "METADATA").read_text().replace("0.1.0", "0.1.1")
    renamed = info.rename(info.with_name("trueno_chaos-0.1.1.dist-info"))
    (renamed / "METADATA").write_text(metadata)
    probing = there.site / "trueno_chaos" / "probing.py"
    probing.write_text(probing.read_text().replace("plug one in", "plug two in"))
    assert "plug two in" in there.says(ask)["reason"]


def test_a_plugin_that_comes_and_goes(host, tmp_path):
    """Installed, then removed, then installed again, between processes that share a cache."""
    (tmp_path / "cache").mkdir(mode=0o700)
    there = host(own_cache=tmp_path / "cache", fake=None)
    ask = "say(names=list(trueno.backends()))"
    assert "fake" in there.says(ask)["names"]
    (info,) = there.site.glob("*.dist-info")
    info.rename(there.site / "hidden")
    assert "fake" not in there.says(ask)["names"]
    (there.site / "hidden").rename(info)
    assert "fake" in there.says(ask)["names"]


def test_two_distributions_with_one_name(host):
    there = host(chaos=["prints", "says_no"], twin=None)
    code, report = there.doctor()
    rows = {row["name"]: row for row in report["backends"]}
    assert code == 1
    for name, rival in (("scalar", "trueno-scalar"), ("prints", "trueno-chaos")):
        assert not rows[name]["available"]
        assert re.search(rf"{rival}\b(?!-)", rows[name]["reason"]) and "trueno-chaos-twin" in rows[name]["reason"]
    met = there.says("""
x = np.ones(3, np.float32)
try:
    trueno.use("scalar").__enter__()
    raised = ""
except trueno.BackendUnavailable as error:
    raised = str(error)
say(raised=raised, total=trueno.add(x, x).tolist(), twin="trueno_chaos_twin" in sys.modules,
    code=trueno.backends()["scalar"].code)
""")
    assert "trueno-chaos-twin" in met["raised"] and met["code"] == "duplicate"
    assert met["total"] == [2, 2, 2] and not met["twin"]


def test_software_is_used_only_when_named(host):
    met = host(chaos=["software"]).says("""
x = np.ones(1 << 18, np.float32)
entry = trueno.backends()["software"]
decision = trueno.explain("add", x, x)
with trueno.use("software"):
    total = float(trueno.add(x, x)[0])
say(available=entry.available, chosen=decision.chosen, total=total,
    code={c.name: c.code for c in decision.candidates}["software"])
""")
    assert met == {"available": True, "chosen": "scalar", "total": 2.0, "code": "software"}


def test_a_plugin_that_uses_trueno_while_it_is_loaded(host, tmp_path):
    """It neither deadlocks nor starts ever new processes that try it."""
    there = host(own_cache=tmp_path, chaos=["circular"])
    marks = tmp_path / "marks"
    marks.mkdir()
    there.environment |= {"CHAOS_MARKS": str(marks), "TRUENO_PROBE_TIMEOUT": "20"}
    met = there.says("""
x = np.ones(3, np.float32)
entry = trueno.backends()["circular"]
say(total=trueno.add(x, x).tolist(), entry=[entry.available, entry.reason])
""")
    assert met["total"] == [2, 2, 2]
    assert len(os.listdir(marks)) <= 3
    assert met["entry"][0] or met["entry"][1]


def test_it_passes_elsewhere_and_fails_here(host):
    met = host(chaos=["fails_at_home"]).says("""
os.environ["CHAOS_HOME"] = str(os.getpid())
x = np.ones(3, np.float32)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    total = trueno.add(x, x).tolist()
try:
    trueno.use("fails_at_home").__enter__()
    raised = cause = ""
except trueno.BackendUnavailable as error:
    raised, cause = str(error), type(error.__cause__).__name__
entry = trueno.backends()["fails_at_home"]
say(total=total, raised=raised, cause=cause, code=entry.code, available=entry.available)
""")
    assert met["total"] == [2, 2, 2]
    assert met["code"] == "load_failed" and not met["available"]
    assert "one process at a time" in met["raised"] and met["cause"] == "RuntimeError"


def test_manners_are_noted(host, tmp_path):
    """Printing in a probe does not spoil the verdict; both habits are told to who asks doctor."""
    there = host(chaos=["prints", "edits_environment"])
    code, report = there.doctor(CHAOS_PRECIOUS="kept")
    assert code in (0, 1)
    rows = {row["name"]: row for row in report["backends"]}
    text = str(report)
    assert rows["prints"]["available"], rows["prints"]["reason"]
    assert rows["edits_environment"]["available"], rows["edits_environment"]["reason"]
    notes = {name: " ".join(rows[name]["notes"]) for name in rows}
    assert "print" in notes["prints"] or "wrote" in notes["prints"], text[:3000]
    assert "CHAOS_WAS_HERE" in notes["edits_environment"] and "CHAOS_PRECIOUS" in notes["edits_environment"]
    assert not notes["scalar"]


def test_json_stays_json_although_the_best_backend_prints(host):
    """Doctor may load what would be chosen; what that prints is not on its stdout."""
    code, report = host(chaos=["prints"]).doctor()
    assert code == 0 and {row["name"] for row in report["backends"]} >= {"prints", "scalar"}


def test_devices_that_are_none(host):
    code, report = host(chaos=["devices_are_none"]).doctor()
    row = next(r for r in report["backends"] if r["name"] == "devices_are_none")
    assert (code == 0 and row["available"]) or (code == 1 and "a Probe was expected" in row["reason"])


@pytest.mark.parametrize("mode", ["off", "cached"])
def test_without_children(host, tmp_path, mode):
    """TRUENO_PROBE=off: no child, level 1 here; cached: only verdicts that are known."""
    there = host(
        own_cache=tmp_path, chaos=["dies_in_probe", "raises_in_factory", "raises_at_import", "exits_at_import"]
    )
    met = there.says(
        """
x = np.ones(3, np.float32)
total = trueno.add(x, x).tolist()
say(total=total, probed={n: e.probed for n, e in trueno.backends().items()},
    reasons={n: e.reason for n, e in trueno.backends().items()}, again=trueno.add(x, x).tolist())
""",
        TRUENO_PROBE=mode,
    )
    assert met["total"] == met["again"] == [2, 2, 2]
    assert "now" not in met["probed"].values()
    if mode == "off":
        assert "licence server" in met["reasons"]["raises_in_factory"]
        assert "undefined symbol" in met["reasons"]["raises_at_import"]
        assert met["reasons"]["exits_at_import"]
