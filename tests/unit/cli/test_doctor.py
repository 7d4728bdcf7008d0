"""`trueno doctor` on good and bad plugins: the three answers, reasons, manners, settings, and exit codes."""

import json
import os
import shlex
import subprocess
import sys

import pytest

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")

from fake_plugin import run, write
from trueno.cli import examination, findings
from trueno.remedies import install

ABSENT = ["not", "installed", "—", "pip", "install", "'trueno[nix]'"]
DOCTOR = "import sys; sys.argv = ['trueno', 'doctor', *{arguments!r}]; from trueno.cli import main; main()"


def examine(folder, *arguments, **environ):
    """Exit code and output of one `trueno doctor`."""
    done = run(folder, DOCTOR.format(arguments=list(arguments)), COLUMNS="220", **environ)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def texts(lines):
    """Lines of a report without their styles."""
    return ["".join(text for text, _ in line) for line in lines]


def report(folder, *arguments, **environ):
    """Exit code, the report, and its backends by name."""
    code, text = examine(folder, "--json", *arguments, **environ)
    answer = json.loads(text)
    return code, answer, {b["name"]: b for b in answer["backends"]}


def test_all_is_well(tmp_path):
    write(tmp_path, "works", settings={"TRUENO_WORKS_MODE": {"type": "bool", "default": True, "help": "its mode"}})
    code, text = examine(tmp_path, "--verbose")
    assert code == 0 and text.rstrip().endswith("ok")
    line = next(line for line in text.splitlines() if line.startswith("works"))
    assert line.split() == ["works", "1.0", "yes", "yes", "now", "fake", "isa"]
    assert "active" not in text
    assert "works: fake-works 1.0, " in text and "backend.toml" in text
    assert f"Cache: {tmp_path / 'cache'} (" in text and "files" in text
    code, answer, backends = report(tmp_path, TRUENO_WORKS_MODE="off")
    mode = next(s for s in answer["settings"] if s["name"] == "TRUENO_WORKS_MODE")
    assert mode == {
        "name": "TRUENO_WORKS_MODE", "value": False, "origin": "environment TRUENO_WORKS_MODE", "help": "its mode"
    }  # fmt: skip
    assert backends["works"]["active"] is False and backends["works"]["installed"] is True
    assert answer["cache"]["used"] and isinstance(answer["calibration"], str)
    _, text = examine(tmp_path, "--verbose")
    line = next(line for line in text.splitlines() if line.startswith("works"))
    assert "just now" in line  # the verdict that was kept
    setting = next(line for line in text.splitlines() if line.startswith("TRUENO_FORCE_CPU"))
    assert setting.split() == ["TRUENO_FORCE_CPU", "off", "default"]
    code, text = examine(tmp_path, "--settings", TRUENO_WORKS_MODE="off")
    assert code == 0 and "TRUENO_WORKS_MODE = off   (environment TRUENO_WORKS_MODE)\n    its mode\n" in text
    assert "TRUENO_FORCE_CPU = off   (default)\n    use only CPU backends" in text and "works:" not in text


def test_a_failure_is_degraded_and_refresh_tries_again(tmp_path):
    switch = tmp_path / "broken"
    switch.write_text("")
    body = f"def probe(self, level):\n    if os.path.exists({str(switch)!r}): raise OSError('libfoo.so is missing')\n"
    write(tmp_path, "frail", f"{body}    return Probe(True)", install="pip install foo", module="print('hello')")
    code, text = examine(tmp_path)
    assert code == 1 and text.rstrip().endswith("degraded")
    assert "OSError: libfoo.so is missing (probe_failed)" in text
    assert "advice: frail: OSError: libfoo.so is missing\n" in text and "pip install foo" not in text
    assert 'note: frail: it prints on stdout: "hello"' in text
    source = next(tmp_path.rglob("impl.py"))
    line = next(i for i, text in enumerate(source.read_text().splitlines(), 1) if "raise OSError" in text)
    assert f"raised: frail: {source}, line {line}, in probe\n" in text
    switch.unlink()
    code, _, backends = report(tmp_path)
    frail = backends["frail"]
    assert code == 1 and frail["probed"] == "cached" and frail["checked"] > 1e9
    assert "impl.py" in frail["error"] and frail["code"] == "probe_failed" and frail["status"] == "failed"
    code, _, backends = report(tmp_path, "--refresh")
    assert code == 0, backends
    assert backends["frail"]["probed"] == "now" and backends["frail"]["available"]
    assert report(tmp_path)[0] == 0


def test_the_line_where_a_plugin_fails_is_shown(tmp_path):
    """Whatever fails, in whichever process; none where no line of the plugin does."""
    write(tmp_path, "deep", "def probe(self, level): return helper(level)", module="def helper(level):\n    1 / 0\n")
    write(tmp_path, "early", "def __init__(self): raise SystemExit(3)")
    write(tmp_path, "garbled", module="import os\nif True\n")
    write(tmp_path, "lacking", factory="fake_lacking_package.impl:Nothing")
    write(tmp_path, "pathless", "def probe(self, level): return Probe(False, 'no')")
    for environ in ({}, {"TRUENO_PROBE": "off"}):
        code, text = examine(tmp_path, **environ)
        raised = {w[1]: w[2] for w in (line.split(": ", 2) for line in text.splitlines()) if w[0] == "raised"}
        assert code == 1 and set(raised) == {"deep", "early", "garbled"}
        assert raised["deep"] == f"{tmp_path / 'fake_deep_package' / 'impl.py'}, line 2, in helper"
        assert raised["early"].endswith("in __init__")
        assert raised["garbled"] == f"{tmp_path / 'fake_garbled_package' / 'impl.py'}, line 2"


def test_what_nobody_asked_for_is_no_degradation(tmp_path):
    failing = "def probe(self, level): raise OSError('no')"
    write(tmp_path, "later", unavailable="not built yet: no kernels")
    write(tmp_path, "blocked", failing)
    write(tmp_path, "board", failing, kind="gpu")
    write(tmp_path, "asked", failing, opt_in=True)
    code, answer, backends = report(tmp_path, TRUENO_BLOCK="blocked", FORCE_CPU="1")
    assert code == 0 and answer["health"] == "ok"
    assert {name: b["code"] for name, b in backends.items()} == {
        "later": "not_built", "blocked": "blocked", "board": "forced_cpu", "asked": "probe_failed", "reference": ""
    }  # fmt: skip
    code, text = examine(tmp_path, TRUENO_BLOCK="blocked", FORCE_CPU="1")
    for name in ("later", "blocked", "board"):
        assert next(line for line in text.splitlines() if line.startswith(name)).split()[2:4] == ["yes", "–"]


def test_no_device_is_nothing_wrong(tmp_path):
    """Said by a probe, in whichever process, or by the manifest; what is broken beside it counts all the same."""
    body = "def probe(self, level): return Probe(level < 2, 'no board; plug one in', absent=level > 1)"
    write(tmp_path, "boardless", body, kind="gpu")
    write(tmp_path, "at_once", body.replace("level < 2", "False").replace("level > 1", "True"), kind="gpu")
    write(tmp_path, "fileless", require={sys.platform: {"any_path": ["/no/such/device"]}}, install="get it")
    for environ in ({}, {"TRUENO_PROBE": "off", "TRUENO_BLOCK": "boardless"}):
        code, answer, backends = report(tmp_path, **environ)
        assert code == 0 and answer["health"] == "ok"
        named = [n for n in ("boardless", "at_once", "fileless") if n != environ.get("TRUENO_BLOCK")]
        assert [(backends[n]["code"], backends[n]["status"]) for n in named] == [("no_device", "no device")] * len(
            named
        )
        assert not [line for line in answer["advice"] if line.startswith(("boardless", "at_once", "fileless"))]
        assert backends["fileless"]["remedy"] == "" and "get it" not in str(backends)  # it is installed
    code, text = examine(tmp_path)
    line = next(line for line in text.splitlines() if line.startswith("boardless"))
    assert line.split()[2:4] == ["yes", "no"] and "no board; plug one in (no_device)" in line
    write(tmp_path, "frail", "def probe(self, level): raise OSError('libfoo.so is missing')")
    write(tmp_path, "needs", require={"modules": ["no_such_module"]})
    code, answer, backends = report(tmp_path)
    assert code == 1 and answer["health"] == "degraded"
    assert {b["name"] for b in backends.values() if b["status"] == "failed"} == {"frail", "needs"}


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
    code, answer, _ = report(tmp_path, TRUENO_AUTOLOAD="works,ours")
    assert code == 0 and answer["sections"] == [{"plugin": "ours", "lines": ["all boards lit", "[7]"]}]
    code, text = examine(tmp_path)
    assert "all boards lit" in text and "[7]" in text
    assert code == 1 and "trueno_doctor_sektion" in text


def test_a_cache_that_is_not_used_is_said(tmp_path):
    write(tmp_path, "works")
    (tmp_path / "cache").write_text("in the way")
    code, text = examine(tmp_path)
    assert code == 0 and f"Cache: {tmp_path / 'cache'} (not used: " in text and "warning: " in text


def test_only_what_is_missing_is_told_how_to_install(tmp_path):
    write(tmp_path, "needs", require={"modules": ["no_such_module"]}, install="pip install foo")
    write(tmp_path, "newer", api=[7, 9], install="pip install bar")
    _, answer, backends = report(tmp_path)
    assert backends["needs"]["remedy"] == "pip install foo" and backends["newer"]["remedy"] == ""
    (newer,) = [line for line in answer["advice"] if line.startswith("newer")]
    assert newer.count("pip install") == 1 and newer.endswith("pip install --upgrade trueno")
    (needs,) = [line for line in answer["advice"] if line.startswith("needs")]
    assert needs.count("pip install foo") == 1


def test_a_refused_manifest_names_its_distribution_and_file(tmp_path):
    write(tmp_path, "extra", colur="red")
    home = write(tmp_path, "garbled", manifest="name = \n")
    _, text = examine(tmp_path)
    assert f"extra: fake-extra 1.0, {tmp_path}" in text
    line = next(line for line in text.splitlines() if line.startswith("advice: garbled"))
    assert str(home / "backend.toml") in line and "line 1" in line
    assert "garbled: fake-garbled 1.0, " in text


def test_ours_that_are_not_installed_are_said(monkeypatch):
    monkeypatch.setattr(examination, "extras", lambda: {"simd": "trueno-simd", "nix": "trueno-nix"})
    absent = examination._not_installed()
    assert {"name": "nix", "install": install("nix")} in absent and len(absent) <= 2
    lines = texts(findings.backends([], [{"name": "nix", "install": "pip install 'trueno[nix]'"}], None))
    assert lines[-1].split() == ["nix", "–", "no", "–", "–", *ABSENT]


def test_json_of_a_cache_folder_of_nobody(tmp_path):
    write(tmp_path, "works")
    code, answer, _ = report(tmp_path, TRUENO_CACHE_DIR="~nobodyx/y")
    assert code == 2 and answer["health"] == "broken" and len(answer["broken"]) == 1
    assert "TRUENO_CACHE_DIR is '~nobodyx/y'" in answer["broken"][0]


@pytest.mark.skipif(os.name != "posix", reason="a shell of POSIX")
@pytest.mark.parametrize(
    "where, code, said",
    [(">&-", 0, ""), (">&- 2>&-", 0, ""), (">/dev/full", 74, "stdout cannot be written"), ("| true", 141, "")],
)
@pytest.mark.parametrize("arguments", ["", "--json"])
def test_where_stdout_takes_nothing(tmp_path, where, code, said, arguments):
    if "full" in where and not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    write(tmp_path, "works")
    shell = f"{shlex.quote(sys.executable)} -m trueno.cli doctor {arguments} {where}"
    if "|" in where:  # the reader is gone before the report is written
        shell = f"({shell.partition('|')[0]}; echo $? >status) | true"
    env = {n: v for n, v in os.environ.items() if not n.startswith("TRUENO_")}
    env |= {"PYTHONPATH": str(tmp_path), "TRUENO_CACHE_DIR": str(tmp_path / "cache"), "TRUENO_AUTOLOAD": "works"}
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, env=env, cwd=tmp_path, timeout=60)
    got = int((tmp_path / "status").read_text()) if "|" in where else done.returncode
    assert got == code and said in done.stderr and "Traceback" not in done.stderr and "ignored" not in done.stderr


def test_a_name_that_no_file_can_have(tmp_path):
    from trueno.cli.new_backend import create
    from trueno.errors import ParameterError

    with pytest.raises(ParameterError, match="the name has 300 letters; it must have 64 at most"):
        create("a" * 300, tmp_path)


def test_words_for_people():
    assert [findings.ago(s) for s in (-5, 59, 61, 7200, 200_000)] == [
        "just now",
        "just now",
        "1 min ago",
        "2 h ago",
        "2 d ago",
    ]
    values = (True, False, None, (), ("a", "b"), (("nan", "stop"),), 20.0, "x")
    assert [findings.value(v) for v in values] == ["on", "off", "–", "–", "a,b", "nan:stop", "20", "x"]
    row = {
        "name": "x", "version": "", "status": "available", "active": True, "available": True, "probed": "",
        "checked": None, "devices": [], "reason": "", "code": "",
    }  # fmt: skip
    assert texts(findings.backends([row], (), None))[0].split()[4] == "active"


def unlucky():
    """A report in which every backend has a long reason, and six settings are changed."""
    reason = (
        "there is no such board here, only software that emulates one: " + "emulator (version 15.0.6, 256 bits), " * 6
    )
    rows = [
        {
            "name": f"backend_{i}", "version": "0.1.0", "status": "no device", "active": False, "available": False,
            "probed": "now", "checked": None, "devices": [], "reason": reason, "code": "no_device", "notes": [],
            "raised": "", "distribution": f"trueno-{i}", "path": f"/somewhere/{i}/backend.toml",
        }
        for i in range(8)
    ]  # fmt: skip
    report = examination.examine()
    changed = [{"name": f"TRUENO_{i}", "value": i, "origin": f"environment TRUENO_{i}", "help": ""} for i in range(6)]
    return report | {"backends": rows, "settings": report["settings"] + changed}


@pytest.mark.parametrize("width", [80, 60, 120])
def test_one_screen(width):
    report = unlucky()
    lines = texts(findings.lines(report, width))
    assert max(map(len, lines)) <= width and (width < 80 or len(lines) <= 40)
    words = set(" ".join(texts(findings.lines(report, None, verbose=True))).split())
    words |= {"…", "whole", "sentences:", "trueno", "doctor", "--verbose", "─" * width, "at", "the", "their", "other"}
    words |= {
        "Settings:",
        "defaults;",
        "what",
        "each",
        "does:",
        "--settings",
        "are",
        str(sum(s["origin"] == "default" for s in report["settings"])),
    }
    assert {word for line in lines for word in line.split()} <= words | {"no_device"}  # no word is cut
    below = [i for i, line in enumerate(lines) if line.startswith("backend_")]
    assert all(lines[i + 1].startswith("    there is") and not lines[i + 2].startswith(" ") for i in below)
    whole = " ".join(" ".join(texts(findings.lines(report, width, verbose=True))).split())
    assert " ".join(report["backends"][0]["reason"].split()) in whole


def test_a_pipe_gets_each_backend_in_one_line():
    report = unlucky()
    lines = [line for line in texts(findings.lines(report, None)) if line.startswith("backend_")]
    assert len(lines) == 8 and all(line.endswith(f"{report['backends'][0]['reason']} (no_device)") for line in lines)
