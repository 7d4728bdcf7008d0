"""What documentation shows is run: examples, and the Python blocks of README and pages, whose outputs are compared."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from docs.writing import outputs
from docs.writing.outputs import BLOCK, differences, snippets, written

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
ON_CUDA = sorted({*(ROOT / "examples/cuda").glob("*.py")} - {ROOT / "examples/cuda/measure.py"})
"""Programs that take a GPU, or else the emulator; what they share is not a program."""
GENERATED = ROOT / "docs/reference/ops"
"""The pages of the ops: test_generated.py runs their examples, on the reference."""
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("plugins/*/README.md")),
         *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent != GENERATED)]  # fmt: skip
ON_A_GPU = {"gpu-anywhere-wgpu.md", "in-the-browser.md", "live", "wgpu"}
"""Pages, or their folders, whose programs need an adapter for WebGPU: a GPU's, or software's."""


def run(code: str, settings: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=os.environ | (settings or {}), capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@cache
def adapter() -> dict[str, str]:
    """The setting under which WebGPU has an adapter; a child looks for it, because drivers do not survive a fork."""
    given = os.environ.get("TRUENO_WGPU_ADAPTER", "")
    for word in [given] if given else ["", "software"]:
        setting = {"TRUENO_WGPU_ADAPTER": word}
        done = run("from trueno_wgpu.device import runtime; runtime.adapter()", setting)
        if done.returncode == 0:
            return setting
    if os.environ.get("REQUIRE_WGPU"):
        pytest.fail(f"no adapter for WebGPU: {done.stderr}")
    pytest.skip(f"no adapter for WebGPU: {done.stderr.strip()}")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_example_runs(path: Path) -> None:
    done = run(path.read_text("utf-8"))
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("path", ON_CUDA, ids=lambda p: p.stem)
def test_example_of_cuda_runs(path: Path) -> None:
    done = subprocess.run([sys.executable, "-W", "error", path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.match(r"on |there is no GPU to watch|driver ", done.stdout), "it does not say where it runs"
    assert done.stdout.count(" allowed: right") >= 1 or path.stem == "cuda_monitor"


@pytest.mark.parametrize(
    "page", [p for p in PAGES if BLOCK.search(p.read_text("utf-8"))], ids=lambda p: str(p.relative_to(ROOT))
)
def test_the_snippets_of_a_page_print_what_it_shows(page: Path) -> None:
    if "adr" in page.parts:
        pytest.skip("a decision shows fragments, not programs")
    text = page.read_text("utf-8")
    printed = outputs.run(
        [one.code for one in snippets(text)], adapter() if ON_A_GPU & {page.name, page.parent.name} else None
    )
    wrong = differences(text, printed)
    assert not wrong, "\n".join([*wrong, f"run python -m docs.writing.outputs {page.relative_to(ROOT)}"])


PAGE = """```python
import math
print(math.tau > 6)
math.inf
```

```text title="Output"
True
inf
```

```python
import time
time.time()
```
"""


def test_an_output_is_the_print_and_the_last_value():
    printed = outputs.run([one.code for one in snippets(PAGE)])
    assert printed[0] == "True\ninf\n" and float(printed[1]) > 0
    assert len(differences(PAGE, printed)) == 1
    assert differences(PAGE, printed)[0].startswith("'time.time()' prints")
    whole = written(PAGE, printed)
    assert differences(whole, printed) == [] and written(whole, printed) == whole


def test_an_output_that_differs_or_has_no_cause_is_found():
    printed = ["True\n-inf\n", ""]
    (wrong,) = differences(PAGE, printed)
    assert "-inf" in wrong
    assert "-inf" in written(PAGE, printed)


def test_an_output_for_example_is_not_compared_but_must_be_there():
    page = PAGE.replace("Output", "Output, for example")
    assert differences(page, ["False\n", ""]) == []
    assert len(differences(page, ["", ""])) == 1
    assert written(page, ["False\n", ""]) == page
    assert len(differences(PAGE.replace('"Output"', '"Output?"'), ["True\ninf\n", ""])) == 1


def test_a_snippet_that_fails_is_an_error():
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        outputs.run(["import math", "1 / 0"])
