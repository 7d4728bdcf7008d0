"""The example plugin, as its reader would try it: installed into a fresh environment, then judged by the kit."""

import json
import shutil
from pathlib import Path

import pytest
from fresh_environment import FreshEnvironment

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")
pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin_torch"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("torch")
    shutil.copytree(EXAMPLE, folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    made = FreshEnvironment(folder / "venv")
    made.pip(str(folder / "source"))
    return made


def test_it_is_short():
    lines = [len(path.read_text("utf-8").splitlines()) for path in EXAMPLE.rglob("*.py") if "build" not in path.parts]
    assert sum(lines) < 150


def test_it_conforms(environment, tmp_path):
    done = environment.python(
        "-m", "trueno.cli", "conformance", "torch", "--quick", "--json", "report.json", folder=tmp_path
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "torch conforms" in done.stdout
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    (backend,) = report["backends"]
    assert backend["distribution"] == "trueno-torch" and not backend["failures"]
    taken = [row["op"] for row in backend["ops"] if row["verdict"] == "pass" and row["dtype"] == "float32"]
    assert len(taken) > 80 and {"softmax", "matmul", "convolve2d", "argmax"} <= set(taken)


def test_its_own_test_file_runs_the_kit(environment, tmp_path):
    shutil.copy(EXAMPLE / "tests" / "test_conformance.py", tmp_path)
    done = environment.python(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "relu and values or manifest or fork", folder=tmp_path
    )
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout


def test_it_is_found_and_used_without_importing_torch_first(environment, tmp_path):
    code = """
import sys, numpy, trueno
trueno.backends()["torch"].available
assert "torch" not in sys.modules and "trueno_torch" not in sys.modules
with trueno.use("torch"):
    print(trueno.softmax(numpy.zeros(4, "f4")))
assert "torch" in sys.modules
"""
    done = environment.python("-c", code, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[0.25 0.25 0.25 0.25]"
