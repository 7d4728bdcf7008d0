"""The driver notices every way in which a case can fail, says which it was, and goes on after it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hostile.attack import generator
from hostile.planted import WAYS

ROOT = Path(__file__).parents[2]
PLANTED, SEED, CASES = "tests.hostile.planted", 1, 12
SAID = {"wrong": "planted", "crash": "SIGABRT", "killed": "SIGKILL", "exit": "exit code 0", "hang": "it hangs"}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals, and processes by their group")


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.hostile", "--attack", PLANTED, "--seed", str(SEED), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def way(number: int) -> str:
    return WAYS[int(generator(SEED, PLANTED, "", number).integers(len(WAYS)))]


def test_every_failure_is_noticed(tmp_path: Path) -> None:
    ways = [way(number) for number in range(CASES)]
    assert {*ways} == {*WAYS} and ways.count("hang") == 1, "choose another seed"
    report = tmp_path / "report.json"
    done = run("--cases", str(CASES), "--json", str(report))
    assert done.returncode == 1, done.stderr
    (row,) = json.loads(report.read_text())["rows"]
    assert row["cases"] == CASES
    assert [f["case"] for f in row["failures"]] == [k for k, w in enumerate(ways) if w != "right"]
    for failure in row["failures"]:
        assert SAID[ways[failure["case"]]] in failure["why"]
        assert f"--seed {SEED} --case {failure['case']}" in done.stdout


def test_one_case_again() -> None:
    wrong, right = (next(k for k in range(CASES) if way(k) == which) for which in ("wrong", "right"))
    assert "planted" in run("--case", str(wrong)).stdout
    assert run("--case", str(right)).returncode == 0
