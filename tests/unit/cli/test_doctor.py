"""`trueno doctor` on good and bad plugins: the three answers, reasons, manners, settings, and exit codes."""

import json

import pytest

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")

from fake_plugin import run, write
from trueno.cli import doctor

DOCTOR = "import sys; sys.argv = ['trueno', 'doctor', *{arguments!r}]; from trueno.cli import main; main()"


def examine(folder, *arguments, **environ):
    """Exit code and output of one `trueno doctor`."""
    done = run(folder, DOCTOR.format(arguments=list(arguments)), COLUMNS="220", **environ)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def report(folder, *arguments, **environ):
    """Exit code, the report, and its backends by name."""
    code, text = examine(folder, "--json", *arguments, **environ)
    found = json.loads(text)
    return code, found, {b["name"]: b for b in found["backends"]}


def test_all_is_well(tmp_path):
    write(tmp_path, "works", settings={"TRUENO_WORKS_MODE": {"type": "bool", "default": True, "help": "its mode"}})
    code, text = examine(tmp_path)
    assert code == 0 and text.rstrip().endswith("ok")
    line = next(line for line in text.splitlines() if line.startswith("works"))
    assert line.split() == ["works", "1.0", "yes", "yes", "now", "fake", "isa"]
    assert "active" not in text
    assert "works: fake-works 1.0, " in text and "backend.toml" in text
    assert f"Cache: {tmp_path / 'cache'} (" in text and "files" in text
    code, found, backends = report(tmp_path, TRUENO_WORKS_MODE="off")
    mode = next(s for s in found["settings"] if s["name"] == "TRUENO_WORKS_MODE")
    assert mode == {
        "name": "TRUENO_WORKS_MODE", "value": False, "origin": "environment TRUENO_WORKS_MODE", "help": "its mode"
    }  # fmt: skip
    assert backends["works"]["active"] is False and backends["works"]["installed"] is True
    assert found["cache"]["used"] and isinstance(found["calibration"], str)
    _, text = examine(tmp_path)
    line = next(line for line in text.splitlines() if line.startswith("works"))
    assert "just now" in line  # the verdict that was kept
    setting = next(line for line in text.splitlines() if line.startswith("TRUENO_FORCE_CPU"))
    assert setting.split() == ["TRUENO_FORCE_CPU", "off", "default"]


def test_a_failure_is_degraded_and_refresh_tries_again(tmp_path):
    switch = tmp_path / "broken"
    switch.write_text("")
    body = f"def probe(self, level):\n    if os.path.exists({str(switch)!r}): raise OSError('libfoo.so is missing')\n"
    write(tmp_path, "frail", f"{body}    return Probe(True)", install="pip install foo", module="print('hello')")
    code, text = examine(tmp_path)
    assert code == 1 and text.rstrip().endswith("degraded")
    assert "OSError: libfoo.so is missing (probe_failed)" in text
    assert "advice: frail: OSError: libfoo.so is missing. Install: pip install foo" in text
    assert 'note: frail: it prints on stdout: "hello"' in text
    switch.unlink()
    code, _, backends = report(tmp_path)
    frail = backends["frail"]
    assert code == 1 and frail["probed"] == "cached" and frail["checked"] > 1e9
    assert "impl.py" in frail["error"] and frail["code"] == "probe_failed" and frail["status"] == "failed"
    code, _, backends = report(tmp_path, "--refresh")
    assert code == 0 and backends["frail"]["probed"] == "now" and backends["frail"]["available"]
    assert report(tmp_path)[0] == 0


def test_what_nobody_asked_for_is_no_degradation(tmp_path):
    failing = "def probe(self, level): raise OSError('no')"
    write(tmp_path, "later", unavailable="not built yet: no kernels")
    write(tmp_path, "blocked", failing)
    write(tmp_path, "board", failing, kind="gpu")
    write(tmp_path, "asked", failing, opt_in=True)
    code, found, backends = report(tmp_path, TRUENO_BLOCK="blocked", FORCE_CPU="1")
    assert code == 0 and found["health"] == "ok"
    assert {name: b["code"] for name, b in backends.items()} == {
        "later": "not_built", "blocked": "blocked", "board": "forced_cpu", "asked": "probe_failed", "reference": ""
    }  # fmt: skip
    code, text = examine(tmp_path, TRUENO_BLOCK="blocked", FORCE_CPU="1")
    for name in ("later", "blocked", "board"):
        assert next(line for line in text.splitlines() if line.startswith(name)).split()[2:4] == ["yes", "–"]


@pytest.mark.parametrize(
    "environ", [{"TRUENO_WORKS_NR": "many"}, {"TRUENO_PROBE": "perhaps"}, {"TRUENO_BACKEND": "nix"}]
)
def test_broken(tmp_path, environ):
    write(tmp_path, "works", settings={"TRUENO_WORKS_NR": {"type": "int", "default": 1, "help": "a number"}})
    code, text = examine(tmp_path, **environ)
    assert code == 2 and text.rstrip().endswith("broken")
    (word,) = environ.values()
    assert any(line.startswith("broken: ") and word in line for line in text.splitlines())
    assert text.count("broken: ") == 1


def test_sections_of_plugins_and_what_is_wrong_with_them(tmp_path):
    write(tmp_path, "works")
    home = tmp_path / "site_of_ours"
    home.mkdir()
    mark = "from trueno.hooks import hookimpl\n"
    (home / "__init__.py").write_text(
        mark + "@hookimpl\ndef trueno_doctor_section(): return ['all boards lit', '[7]']\n"
    )
    (tmp_path / "misspelt_site.py").write_text(mark + "@hookimpl\ndef trueno_doctor_sektion(): pass\n")
    for name, value in (("ours", "site_of_ours"), ("typo", "misspelt_site")):
        info = tmp_path / f"fake_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: fake-{name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[trueno.hooks]\n{name} = {value}\n")
    code, found, _ = report(tmp_path, TRUENO_AUTOLOAD="works,ours")
    assert code == 0 and found["sections"] == [{"plugin": "ours", "lines": ["all boards lit", "[7]"]}]
    code, text = examine(tmp_path)
    assert "all boards lit" in text and "[7]" in text
    assert code == 1 and "trueno_doctor_sektion" in text


def test_a_cache_that_is_not_used_is_said(tmp_path):
    write(tmp_path, "works")
    (tmp_path / "cache").write_text("in the way")
    code, text = examine(tmp_path)
    assert code == 0 and f"Cache: {tmp_path / 'cache'} (not used: " in text and "warning: " in text


def test_words_for_people():
    assert [doctor.ago(s) for s in (-5, 59, 61, 7200, 200_000)] == [
        "just now",
        "just now",
        "1 min ago",
        "2 h ago",
        "2 d ago",
    ]
    values = (True, False, None, (), ("a", "b"), (("nan", "stop"),), 20.0, "x")
    assert [doctor._value(v) for v in values] == ["on", "off", "–", "–", "a,b", "nan:stop", "20", "x"]
    row = {
        "name": "x", "version": "", "status": "available", "active": True, "available": True, "probed": "",
        "checked": None, "devices": [], "reason": "", "code": "",
    }  # fmt: skip
    assert [c.header for c in doctor.backend_table([row]).columns][4] == "active"
