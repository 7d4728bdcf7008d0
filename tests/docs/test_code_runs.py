"""What documentation shows is run: examples, and every Python block of the README and the pages."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


def run(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_example_runs(path: Path) -> None:
    done = run(path.read_text("utf-8"))
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("page", [p for p in PAGES if BLOCKS.search(p.read_text("utf-8"))], ids=lambda p: p.name)
def test_blocks_of_a_page_run_in_order(page: Path) -> None:
    if "adr" in page.parts:
        pytest.skip("a decision shows fragments, not programs")
    blocks = [
        b for b in BLOCKS.findall(page.read_text("utf-8")) if "from trueno" in b or "import" in b or "trueno." in b
    ]
    done = run("\n".join(blocks))
    assert done.returncode == 0, done.stderr


def test_the_readme_prints_what_it_says() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    code = BLOCKS.search(text)
    assert code is not None
    shown = re.search(r"^```\n(.*?)^```", text[code.end() :], re.M | re.S)
    assert shown is not None
    assert run(code[1]).stdout == shown[1]
