"""What documentation shows is run: examples, and every Python block of the README and the pages."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
ON_A_GPU = {"gpu-anywhere-wgpu.md"}
"""Pages whose programs need an adapter for WebGPU: a GPU's, or software's."""


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


@pytest.mark.parametrize("page", [p for p in PAGES if BLOCKS.search(p.read_text("utf-8"))], ids=lambda p: p.name)
def test_blocks_of_a_page_run_in_order(page: Path) -> None:
    if "adr" in page.parts:
        pytest.skip("a decision shows fragments, not programs")
    blocks = [
        b for b in BLOCKS.findall(page.read_text("utf-8")) if any(w in b for w in ("import", "trueno.", "@kernel"))
    ]
    done = run("\n".join(blocks), adapter() if page.name in ON_A_GPU else None)
    assert done.returncode == 0, done.stderr


def test_the_readme_prints_what_it_says() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    code = BLOCKS.search(text)
    assert code is not None
    shown = re.search(r"^```\n(.*?)^```", text[code.end() :], re.M | re.S)
    assert shown is not None
    assert run(code[1]).stdout == shown[1]
