"""All of Trueno in a page, where PYODIDE_DIST names a full distribution of Pyodide, which has NumPy and micropip."""

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

pytest.importorskip("wgpu")
from browser import Page
from seeds import fresh_seed

from . import pyodide_page
from .pyodide_page import ROOT, run

PARTS = "core", "plugins/scalar", "plugins/wgpu"


def wheels(folder: Path) -> list[str]:
    """Our own wheels, built from copies, and those of what they need, put together again from what is installed."""
    for part in PARTS:
        copied = folder / "sources" / part
        shutil.copytree(ROOT / part, copied, ignore=shutil.ignore_patterns("*.egg-info", "build", "__pycache__"))
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
        subprocess.run([*command, str(folder), str(copied)], check=True)
    for name in ("pluggy", "platformdirs"):
        found = distribution(name)
        with zipfile.ZipFile(folder / f"{name}-{found.version}-py3-none-any.whl", "w") as file:
            for path in found.files or ():
                if ".." not in path.parts and path.suffix != ".pyc":
                    file.write(path.locate(), str(path))
    shutil.rmtree(folder / "sources")
    return sorted((p.name for p in folder.glob("*.whl")), key=lambda name: (name.startswith("trueno"), name))


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Iterator[Page]:
    full = pyodide_page.distribution()
    site = tmp_path_factory.mktemp("whole") / "site"
    site.mkdir()
    names = wheels(site)
    shutil.copyfile(Path(__file__).with_name("whole.py"), site / "whole.py")
    with pyodide_page.running(full, site) as opened:
        run(opened, f"""
import js, json, os, sys
from pathlib import Path
from pyodide.http import pyfetch
import pyodide_js
await pyodide_js.loadPackage(["numpy", "micropip"])
import micropip
await micropip.install([js.location.origin + "/" + name for name in {names}])
os.makedirs("/here", exist_ok=True)
Path("/here/whole.py").write_text(await (await pyfetch("/whole.py")).string())
sys.path.insert(0, "/here")
os.environ["TRUENO_WGPU_ADAPTER"] = "software"
import whole
'[]'""")  # fmt: skip
        yield opened


def seed() -> int:
    drawn = fresh_seed()
    print(f"seed {drawn}")
    return drawn


def good(cases: dict[str, int]) -> None:
    assert len(cases) >= 12 and min(cases.values()) >= 1, cases


def test_the_host_s_backends(page):
    got = run(page, f"whole.host({seed()})")
    assert got["platform"] == "emscripten" and {"reference", "scalar"} <= set(got["available"])
    assert got["chosen"] in ("scalar", "reference") and got["softmax"] <= 1e-5 and got["matmul"] <= 1e-5
    good(got["cases"])
    assert page.errors == []


def test_the_gpu(page):
    got = run(page, f"await whole.device({seed()})")
    assert "swiftshader" in got["adapter"].lower()
    assert all(got[name] <= 1e-5 for name in ("relu", "softmax", "batch")), got
    there = run(page, f"whole.waiting({seed()})")
    if there["sync"]:
        assert there["sum"] <= 1e-6
        good(there["cases"])
    page_code = json.dumps(run(page, f"whole.waiting({seed()})", waiting=False))
    assert "await trueno.aio" in page_code and page.errors == []
