"""`trueno qa` as a user runs it: the report, its JSON, its exit codes; and gates of a third party."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")
pytest.importorskip("trueno_cuda")

from trueno import hooks
from trueno.cli import qa
from trueno.cli.app import app
from trueno.discovery import index
from trueno.qa import registry
from trueno.qa.measurement import GateFailed, GateSkipped, Measurement
from trueno.qa.registry import Gate, run
from typer.testing import CliRunner

KEYS = ["id", "title", "result", "reason", "measured", "seconds"]


def test_every_gate_passes_here():
    """All of them at once, in a child process; where CI has an adapter none is skipped."""
    code = "import sys; sys.argv = ['trueno', 'qa', '--json']; from trueno.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    assert list(report) == ["trueno", "gates", "summary"]
    assert "XDG_RUNTIME_DIR" not in done.stderr  # what Mesa prints where the variable is missing
    assert [one["id"] for one in report["gates"]] == list(registry.TITLES)
    assert all(list(one) == KEYS for one in report["gates"])
    for one in report["gates"]:
        provided = "no installed plugin" not in one["reason"]
        assert provided, f"{one['id']}: install the plugins again, so that their entry points are known: make setup"
        assert one["result"] in ("passed", "skipped"), f"{one['id']}: {one['reason']} {one['measured']}"
        assert bool(one["measured"]) == (one["result"] == "passed") or one["reason"], one["id"]
    skipped = [one["id"] for one in report["gates"] if one["result"] == "skipped"]
    assert not skipped or not os.environ.get("REQUIRE_WGPU"), f"skipped: {skipped}"
    assert done.returncode == 0
    assert report["summary"]["passed"] + report["summary"]["skipped"] == len(registry.TITLES)


@pytest.fixture
def third_party(monkeypatch):
    """Three gates of a plugin, in place of all others."""

    def add(gates):
        gates.add("ACME-001", good)
        gates.add("ACME-002", bad)
        gates.add("ACME-003", absent)

    def good(m):
        """A promise that holds."""
        m.note(numbers=3, share=0.25, names=["a", "b"], flag=True, text="x" * 200)

    def bad(m):
        """A promise that does not."""
        m.note(numbers=4)
        m.need(False, "4 is not 3")

    def absent(m):
        """A promise that cannot be tried."""
        m.skip("there is no moon")

    monkeypatch.setattr(hooks, "_state", hooks._State())
    monkeypatch.setattr(index, "points", lambda refresh=False: [index.Point(hooks.GATES, "acme", "acme:add", "acme")])
    monkeypatch.setattr(hooks, "load", lambda value: add)
    monkeypatch.setattr(qa, "_software_adapter", lambda: None)
    monkeypatch.setattr(registry, "TITLES", {})
    monkeypatch.setattr(registry, "own", registry.Gates())
    monkeypatch.setattr(registry, "CORE", ())


def invoke(*words):
    return CliRunner().invoke(app, ["qa", *words])


@pytest.mark.usefixtures("third_party")
@pytest.mark.parametrize(
    "words, code",
    [
        (["--gate", "ACME-001"], 0),
        (["--gate", "acme-001", "--gate", "ACME-003"], 0),
        (["--gate", "ACME-003", "--strict"], 1),
        (["--gate", "ACME-002"], 1),
        ([], 1),
        (["--gate", "ACME-004"], 2),
    ],
)
def test_exit_codes(words, code):
    result = invoke(*words)
    assert result.exit_code == code
    if code == 2:
        assert "no gate is called 'ACME-004'" in result.stderr and "did you mean" in result.stderr


@pytest.mark.usefixtures("third_party")
def test_the_table_fits_in_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = invoke().stdout.splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    assert "A promise that holds" in text and "4 is not 3" in text and "there is no moon" in text
    assert "numbers 3; share 0.25; names a, b; flag yes;" in text
    assert lines[-1].startswith("1 passed, 1 failed, 1 skipped")


@pytest.mark.usefixtures("third_party")
def test_json_has_a_fixed_shape():
    report = json.loads(invoke("--json").stdout)
    assert [(one["id"], one["result"]) for one in report["gates"]] == [
        ("ACME-001", "passed"), ("ACME-002", "failed"), ("ACME-003", "skipped")
    ]  # fmt: skip
    assert all(list(one) == KEYS for one in report["gates"])
    assert report["gates"][1]["measured"] == {"numbers": 4} and report["gates"][2]["reason"] == "there is no moon"
    assert list(report["summary"]) == ["passed", "failed", "skipped", "seconds"]


def test_what_a_gate_may_not_do():
    def silent(m):
        """Measures nothing."""

    def raises(m):
        m.note(x=1)
        raise KeyError("y")

    outcomes = list(run([Gate("A", "a", silent), Gate("B", "b", raises), Gate("C", "c", None)]))
    assert [(o.result, o.reason) for o in outcomes[:2]] == [
        ("failed", "the gate measured nothing"), ("failed", "KeyError: 'y'")
    ]  # fmt: skip
    assert outcomes[2].result == "skipped" and "trueno[cuda]" in outcomes[2].reason


def test_a_measurement():
    m = Measurement()
    m.note(a=1)
    m.note(a=2, b=3)
    m.need([1], "not raised")
    assert m.facts == {"a": 2, "b": 3}
    with pytest.raises(GateFailed, match="empty"):
        m.need([], "empty")
    with pytest.raises(GateSkipped, match="why"):
        m.skip("why")
    answer = m.python("import sys; print(sys.argv[1]); sys.stderr.write('e'); sys.exit(3)", "word")
    assert (answer.code, answer.out, answer.err) == (3, "word\n", "e")


def test_two_plugins_with_one_gate():
    first, second = registry.Gates(), registry.Gates()
    first.add("ACME-001", lambda m: m.note(by="first"))
    second.add("ACME-001", lambda m: m.note(by="second"))
    with pytest.warns(Warning, match='"b" brings the gate ACME-001, which exists already'):
        every = registry.collected([("a", first), ("b", second)])
    (outcome,) = run([one for one in every if one.id == "ACME-001"])
    assert outcome.measured == {"by": "first"}
