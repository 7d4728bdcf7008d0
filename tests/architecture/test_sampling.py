"""`make test` runs a sample that its seed determines, whatever the number of workers; `--share` a larger one, `--all`
everything."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
MODULE = """
import os
import pytest
from seeds import fresh_seed

HERE = fresh_seed(__name__)

@pytest.mark.parametrize("i", range(300))
def test_family(i): pass

@pytest.mark.parametrize("i", range(4))
def test_few(i): pass

@pytest.mark.slow
@pytest.mark.parametrize("i", range(5))
def test_slow(i): pass

def test_alone(): assert "TRUENO_TEST_SEED" not in os.environ, "a test would be told of an unknown setting"

def test_numbers():
    with open("numbers.txt", "a") as file:
        print(HERE, fresh_seed(), fresh_seed(), file=file)
"""
SETTINGS = """
[pytest]
testpaths = tests
markers = slow
"""


@pytest.fixture
def ran(tmp_path: Path):
    """What a run of pytest with these options and this seed runs: the cases, and what it printed."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_module.py").write_text(MODULE)
    (tmp_path / "pytest.ini").write_text(SETTINGS)

    def run(*options: str, seed: str = "") -> tuple[set[str], str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "TRUENO_TEST"))}
        environment |= {"PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | (
            {"TRUENO_TEST_SEED": seed} if seed else {}
        )
        command = [sys.executable, "-m", "pytest", "-v", "-p", "sampling", "-p", "no:cacheprovider", *options]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return set(re.findall(r"test_module\.py::(\S+)", done.stdout)), done.stdout

    return run


def count(cases: set[str], name: str) -> int:
    return sum(case.startswith(name) for case in cases)


def test_all_runs_all(ran) -> None:
    cases, said = ran("--all")
    assert len(cases) == 311 and "sampled" not in said


def test_a_selection_is_not_sampled(ran) -> None:
    assert len(ran("tests/test_module.py::test_family")[0]) == len(ran("-k", "family")[0]) == 300


def test_a_seed_draws_the_same_cases_in_every_worker(ran) -> None:
    pytest.importorskip("xdist")
    cases, said = ran()
    seed = re.search(r"TRUENO_TEST_SEED=(\d+)", said)
    assert seed is not None and "--all" in said
    assert count(cases, "test_few") == 4 and count(cases, "test_alone") == 1
    assert count(cases, "test_family") < 25, "two are expected"
    assert ran("-p", "xdist.plugin", "-n", "2", seed=seed[1])[0] == cases
    assert ran(seed="7")[0] != ran(seed="8")[0]


def test_a_share_of_each_family_and_all_else(ran) -> None:
    pytest.importorskip("xdist")
    cases, said = ran("--share", "0.3", seed="7")
    assert "sampled" in said and 50 < count(cases, "test_family") < 130, "90 are expected, give or take 8"
    assert (count(cases, "test_few"), count(cases, "test_alone"), count(cases, "test_numbers")) == (4, 1, 1)
    assert ran("--share", "0.3", "-p", "xdist.plugin", "-n", "2", seed="7")[0] == cases
    whole = ran("--share", "1")[0]
    assert whole == ran("--all")[0], "what is slow is not left out"


def test_a_seed_draws_the_same_numbers_whatever_else_runs(ran, tmp_path) -> None:
    ran("--all", seed="7")
    ran("-k", "numbers", seed="7")
    ran("-k", "numbers", seed="8")
    whole, alone, other = (tmp_path / "numbers.txt").read_text().splitlines()
    assert whole == alone != other
    assert len({*whole.split(), *other.split()}) == 6
