"""The tables: analyzers that are known to be good or bad get the numbers that they deserve."""

import json
import subprocess
import sys

import pytest

from .analyzers import loud, silent
from .launches import Launch, Work
from .measure import Case, Finding, Judge, Measured, ask, command, correct, from_json, silence
from .mutants import confirmed, mutants
from .origins import Origin
from .traps import traps


@pytest.fixture(scope="module")
def few():
    """Confirmed mutants of some traps."""
    chosen = [t for t in traps() if t.name in ("uniform-exit", "double-buffer", "copy-two-groups", "bounds-by-a-clamp")]
    found = [Origin(f"trap:{t.name}", t.text, t.launch.entry, t.launch) for t in chosen]
    return [one for one in map(confirmed, mutants(found, 7, 1)) if one.proof]


def measured(analyzer, some) -> Measured:
    judge = Judge(analyzer)
    trap = traps()[0]
    row = correct(analyzer, "kernels", trap.text, {trap.launch.entry: trap.launch})
    return Measured([row], [silence(analyzer, one) for one in traps()], [judge.verdict(one) for one in some])


def test_one_that_finds_nothing(few):
    result = measured(silent, few)
    assert result.alarms == (0, 1) and result.silent == (len(traps()), len(traps()))
    assert result.caught[0] == 0 < result.caught[1]
    assert [kept for *_, kept in result.bars()] == [True, True, False]


def test_one_that_finds_everything(few):
    """What it says of the correct kernel too does not count as found."""
    result = measured(loud, few)
    assert result.alarms == (1, 1) and result.silent[0] == 0 and result.caught[0] == 0
    assert not any(kept for *_, kept in result.bars())
    assert "FALSE ALARM" in result.tables()


def test_one_that_knows_the_mutants(few):
    answers = {one.text: one for one in few}

    def oracle(case: Case):
        one = answers.get(case.text)
        return [] if one is None else [{"rule": one.fault.rules[0], "severity": "medium", "line": one.line}]

    result = measured(oracle, few)
    assert result.caught[0] == result.caught[1] > 20 and all(kept for *_, kept in result.bars())
    record = result.record()
    assert len(record["mutants"]) == len(few) and all(one["right"] for one in record["mutants"])
    table = result.tables()
    assert "| drop-barrier | missing-barrier | 1 | 1 | 100.0% |" in table and "MISSED" not in table


def test_another_rule_is_not_the_right_one(few):
    answers = {one.text for one in few}
    result = measured(lambda case: [Finding("spill", "low", "")] if case.text in answers else [], few)
    assert result.caught[0] == 0 and all(v.other == {"spill"} for v in result.verdicts)


def test_a_rule_that_a_trap_is_meant_for_is_a_false_alarm_of_any_severity():
    trap = next(t for t in traps() if t.name == "backwards")
    assert silence(lambda case: [Finding("uncoalesced-access", "low", "")], trap).wrong == {"uncoalesced-access"}
    assert silence(lambda case: [Finding("dead-code", "low", "")], trap).other == {"dead-code"}
    assert silence(lambda case: [Finding("dead-code", "high", "")], trap).wrong == {"dead-code"}


@pytest.mark.parametrize("finding", [{"severity": "high"}, {"rule": "spill", "severity": "bad"}, {}])
def test_a_finding_without_a_rule_or_severity_is_an_error(finding):
    with pytest.raises(ValueError, match="needs a rule and a severity"):
        ask(lambda case: [finding], Case("", {}))


REPORT = {
    "files": [
        {
            "entries": [{"name": "k", "findings": [{"rule": "spill", "severity": "low"}]}],
            "findings": [{"rule": "missing-entry", "severity": "medium"}],
        }
    ]
}


def test_the_json_of_a_command(tmp_path):
    """The file comes last, with block and grid of a single kernel before it."""
    script = tmp_path / "analyzer.py"
    script.write_text(f"import sys, pathlib\nassert pathlib.Path(sys.argv[-1]).read_text() == 'text'\n"
                      f"assert sys.argv[1:3] == ['--block=8,4', '--grid=2'], sys.argv\nprint({json.dumps(REPORT)!r})\n"
                      "sys.exit(1)\n")  # fmt: skip
    one = Launch("k", 2, (8, 4), lambda rng: Work([]))
    found = ask(command(f"{sys.executable} {script}"), Case("text", {"k": one}))
    assert (
        found
        == [Finding("spill", "low", "k"), Finding("missing-entry", "medium", "")]
        == ask(lambda case: from_json(REPORT), Case("", {}))
    )
    with pytest.raises(RuntimeError, match="exit code 2: bad"):
        ask(command(f"{sys.executable} -c 'import sys; print(\"bad\"); sys.exit(2)'"), Case("", {}))


def test_the_command_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.corpus", "measure", "--parts", "traps", "--json", str(tmp_path / "all.json")],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "| traps that are silent | " in done.stdout
    assert len(json.loads((tmp_path / "all.json").read_text())["traps"]) == len(traps())
