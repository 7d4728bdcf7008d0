"""The command line where typer or rich is missing: the version, help, a plain doctor, and a sentence otherwise."""

import json
import os
import subprocess
import sys

import pytest
from fake_plugin import write
from trueno.cli import plain
from trueno.remedies import install
from trueno.version import __version__

HOOK = """\
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""


@pytest.fixture
def alone(tmp_path):
    """Run `python -m trueno` in a process that finds neither package, with one fake plugin and a cache of its own."""
    write(tmp_path, "works")

    def run(*arguments, missing=("typer", "rich"), **environ):
        (tmp_path / "sitecustomize.py").write_text(HOOK.format(missing=missing))
        env = {n: v for n, v in os.environ.items() if not n.startswith("TRUENO_") and n not in ("FORCE_CPU", "COLUMNS")}
        env |= {"PYTHONPATH": str(tmp_path), "TRUENO_CACHE_DIR": str(tmp_path / "cache"), "TRUENO_AUTOLOAD": "works"}
        env |= {"PYTHONIOENCODING": "utf-8", **environ}
        done = subprocess.run(
            [sys.executable, "-m", "trueno", *arguments], capture_output=True, encoding="utf-8", env=env, check=False
        )
        assert "Traceback" not in done.stderr and "\x1b" not in done.stdout
        return done

    return run


def test_version_and_help(alone):
    assert alone("--version").stdout == f"trueno {__version__}\n"
    shown = alone("--help")
    assert shown.returncode == 0 and "doctor" in shown.stdout and "--version" in shown.stdout
    assert install("cli") in " ".join(shown.stdout.split())


def test_a_plain_doctor(alone):
    done = alone("doctor", COLUMNS="80")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[-1] == "ok"
    assert [line for line in lines if len(line) > 80 and " " in line.strip()] == []  # a path is one word
    row = next(line for line in lines if line.startswith("works"))
    assert row.split() == ["works", "1.0", "yes", "yes", "fake", "isa"]
    data = json.loads(alone("doctor", "--json").stdout)
    assert data["health"] == "ok" and {b["name"] for b in data["backends"]} == {"works", "reference"}
    assert "TRUENO_FORCE_CPU = off   (default)\n    use only CPU" in alone("doctor", "--settings").stdout
    assert alone("doctor", TRUENO_FORCE_CPU="perhaps").returncode == 2


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_other_commands_are_a_sentence(alone, missing):
    done = alone("ops", "softmax", missing=(missing,))
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert done.stderr.startswith("trueno: `trueno ops` needs typer and rich")
    assert done.stderr.endswith("Install: " + install("cli") + "\n")


def test_wrong_words_and_streams_that_take_nothing(monkeypatch, capsys):
    assert plain.run(["doctor", "--nonsense"]) == 2 and "--nonsense" in capsys.readouterr().err
    assert plain.run(["--nonsense"]) == 2
    assert plain.run(["d\x1b[31m"]) == 2 and "\x1b" not in capsys.readouterr().err
    assert plain.run([]) == 0 and "doctor" in capsys.readouterr().out


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_an_exit_code():
    code = "import sys; from trueno.cli.plain import run; sys.exit(run(['--help']))"
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 74 and "stdout cannot be written" in done.stderr
