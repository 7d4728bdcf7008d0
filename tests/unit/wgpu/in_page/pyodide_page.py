"""Pyodide in a page of Chromium: where it comes from, and a page in which Python's texts run.

`make setup` has npm install Pyodide's package into .venv/npm: an interpreter with its standard library, and no NumPy.
PYODIDE_DIST names the folder of a full distribution.
"""

import json
import os
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, Page, chromium
from unit.wgpu.web.server import serving

ROOT = Path(__file__).parents[4]
WEBGPU = "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"
START = """(async () => {
  const { loadPyodide } = await import("/pyodide/pyodide.mjs");
  window.py = await loadPyodide({ indexURL: "/pyodide/" });
  return py.version;
})()"""


def package() -> Path:
    """The folder of Pyodide without NumPy; skips the test if there is none, or fails it if REQUIRE_PYODIDE is set."""
    folder = Path(sys.prefix, "npm", "node_modules", "pyodide")
    if not (folder / "pyodide.mjs").is_file():
        if os.environ.get("REQUIRE_PYODIDE"):
            pytest.fail(f"REQUIRE_PYODIDE is set, but {folder} has no Pyodide")
        pytest.skip("no Pyodide: make setup, where npm reaches its registry")
    return folder


def distribution() -> Path:
    """The folder of a full distribution, with NumPy and micropip."""
    named = os.environ.get("PYODIDE_DIST", "")
    if not named:
        pytest.skip("PYODIDE_DIST names no full distribution of Pyodide, which has NumPy")
    names = {path.name.partition("-")[0] for path in Path(named).iterdir()}
    assert {"pyodide.mjs", "numpy", "micropip"} <= names, f"PYODIDE_DIST is {named}, and that is no full distribution"
    return Path(named)


@contextmanager
def running(pyodide: Path, site: Path) -> Iterator[Page]:
    """A page in which `window.py` is Pyodide, from a site that serves it as /pyodide/."""
    (site / "pyodide").symlink_to(pyodide, target_is_directory=True)
    (site / "index.html").write_text("<!doctype html><title>a page</title><link rel=icon href='data:,'>")
    profile = site.parent / "chromium"
    profile.mkdir()
    with serving(site) as (address, _), Browser(chromium(), profile, *WEBGPU) as browser:
        page = browser.open(f"{address}index.html")
        page.evaluate(START)
        yield page


def run(page: Page, code: str, *, waiting: bool = True) -> Any:
    """What a Python text gives, whose last expression is JSON; waiting: whether its calls may wait for promises."""
    way = "runPythonAsync" if waiting else "runPython"
    return json.loads(page.evaluate(f"(async () => await py.{way}({json.dumps(code)}))()"))


def archive(path: Path, *folders: Path) -> None:
    """Put the Python files of packages into a zip."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for folder in folders:
            for source in sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".toml", ".json")):
                file.write(source, source.relative_to(folder.parent))
