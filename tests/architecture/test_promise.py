"""An op comes in with a body, a line that says what it must equal, and `make generate`; no test asks for more.

The edits of three new ops are made in a copy of the tree, `make generate` writes what is derived, and then every test
that the table drives runs there (`driven.py` finds them).  A structured op has a third edit: its kernel.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
OPS = "core/src/trueno/ops"
MEANING = "tests/unit/core/test_meaning.py"


@dataclass(frozen=True)
class Edit:
    """Text that a hand puts into a file: before the first line that starts with `before`, or else at the end."""

    path: str
    text: str
    before: str = ""

    def make(self, root: Path) -> None:
        file = root / self.path
        text = file.read_text("utf-8")
        at = re.search(rf"^{re.escape(self.before)}", text, re.MULTILINE) if self.before else None
        assert at or not self.before, f"{self.path} has no line {self.before!r}"
        place = at.start() if at else len(text)
        file.write_text(text[:place] + self.text + text[place:], "utf-8")


EDITS = {
    "hardclip": [
        Edit(
            f"{OPS}/activations.py",
            '''

@op("x[...] -> y[...]", rules="limit >= 0")
def hardclip(x, *, limit: float = 1.0):
    """min(max(x, −limit), limit).

    Shapes: y as x.
    Edges: NaN stays NaN.
    """
    return lang.minimum(lang.maximum(x, -limit), limit)
''',
        ),
        Edit(
            MEANING,
            '_function("hardclip", lambda x: min(max(x, -1), 1), [NAN, 1.0, -1.0, 0.0, -0.0], ulp=0, extra=FAR)\n',
            '_function("relu"',
        ),
    ],
    "midspan": [
        Edit(
            f"{OPS}/reductions.py",
            '''

@op("x[...,n] -> r[...]", over="n", aliases="peak_to_peak")
def midspan(x):
    """max x − min x.

    Shapes: one value a row.
    Edges: NaN if any is, or if all are the same infinity; an empty row is a ShapeError.
    """
    return lang.max(x) - lang.min(x)
''',
        ),
        Edit(
            MEANING,
            '_reduction("midspan", lambda x: max(x) - min(x), lambda x: np.ptp(x, axis=-1), ulp=1)\n',
            '_reduction("max"',
        ),
    ],
    "half_turn": [
        Edit(
            f"{OPS}/matrix.py",
            '''

@op("x[m,n] -> y[m,n]", structured=True, flops="0", aliases="rot180")
def half_turn(x):
    """y[i,j] = x[m−1−i, n−1−j], written out row by row.

    Shapes: one matrix.
    Edges: bits are copied.
    """
    return np.ascontiguousarray(x[::-1, ::-1])
''',
        ),
        Edit(
            MEANING,
            """@case("half_turn")
def _(rng):
    x = rng.normal(size=(7, 5))
    np.testing.assert_array_equal(meaning("half_turn", x), np.rot90(x, 2))


""",
            '@case("transpose")',
        ),
        Edit(
            "plugins/scalar/src/trueno_scalar/kernels/matrix.py",
            """

@KERNELS.add("half_turn", rates=Rates(2e-6, 1e11, 4e10))
def half_turn(device: None, call: Call) -> Kernel:
    return checked(call, lambda x, y: np.copyto(y, x[::-1, ::-1]), lambda x: (x.shape,), (2,))
""",
        ),
    ],
}
"""By op: the edits that CONTRIBUTING asks for."""
GENERATE = ("-m trueno._stubs", "docs/reference.py README.md")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with the new ops in it, and what is derived from the table written again."""
    root = tmp_path_factory.mktemp("new_ops") / "tree"
    shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns("__pycache__", ".*", "results", "site", "dist", "build"))
    for edit in (edit for edits in EDITS.values() for edit in edits):
        edit.make(root)
    for command in GENERATE:
        done = python(root, *command.split())
        assert done.returncode == 0, done.stdout + done.stderr
    return root


def python(root: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """Python where the copy comes before what is installed."""
    paths = [root / "core/src", root / "plugins/scalar/src", root / "tests"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, paths)), "NEW_OPS": " ".join(EDITS)}
    return subprocess.run(
        [sys.executable, *command], cwd=root, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_new_ops_need_no_other_edit(tree: Path) -> None:
    """Neither a test nor the framework asks for more, on a machine without ptxas."""
    report = tree / "report.xml"
    options = ("-q", "-p", "architecture.driven", "-p", "no:cacheprovider", f"--junitxml={report}")
    done = python(tree, "-m", "pytest", *options, "tests")
    assert done.returncode == 0, done.stdout[-12000:] + done.stderr[-2000:]
    ran = {(case.get("classname", ""), case.get("name", "")) for case in ElementTree.parse(report).iter("testcase")}
    for name in EDITS:
        folders = {of.split(".")[1] for of, case in ran if name in re.findall(r"\w+", case)}
        assert {"conformance", "unit"} <= folders, f"{name} is tried in {folders}: `driven.py` finds too little"
    assert {"test_readme_lists_the_ops_of_the_table", "test_generated_pages_are_fresh"} <= {case for _, case in ran}


def test_a_kernel_without_rates_is_an_error(tree: Path) -> None:
    """The selector would price it as something else."""
    file = tree / "plugins/scalar/src/trueno_scalar/kernels/matrix.py"
    text = file.read_text("utf-8")
    try:
        file.write_text(text.replace(", rates=Rates(2e-6, 1e11, 4e10)", ""), "utf-8")
        done = python(tree, "-c", "import trueno_scalar.kernels")
    finally:
        file.write_text(text, "utf-8")
    assert done.returncode != 0 and "KernelTable.add() missing" in done.stderr
