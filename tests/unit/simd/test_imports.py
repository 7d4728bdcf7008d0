"""Two threads that import Numba first, in whatever order, both get all of it."""

import ast
import sys
import threading
from importlib import import_module
from pathlib import Path

import pytest

simd = pytest.importorskip("trueno_simd")

from trueno_simd.llvm import elsewhere  # noqa: E402  # the plugin may be missing

PACKAGE = Path(simd.__file__).parent


def race(tmp_path, monkeypatch, name, load):
    """What `load` gives for a leaf, while another thread is in the middle of its package."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(
        "import sys\n"
        "entered, begun = sys.modules['threading'].entered, sys.modules['threading'].begun\n"
        "entered.set()\n"
        "begun.wait(5)\n"
        "import time; time.sleep(0.2)\n"  # the other thread reaches its wait
        f"from {name} import leaf\n"
        "whole = True\n"
    )
    (tmp_path / name / "leaf.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(threading, "entered", threading.Event(), raising=False)
    monkeypatch.setattr(threading, "begun", threading.Event(), raising=False)
    results = []

    def leaf():
        threading.entered.wait(5)
        threading.begun.set()
        load(f"{name}.leaf")
        results.append(hasattr(sys.modules[name], "whole"))

    threads = [threading.Thread(target=import_module, args=(name,)), threading.Thread(target=leaf)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    for module in (name, f"{name}.leaf"):
        sys.modules.pop(module, None)
    return results


def test_a_leaf_waits_for_its_package(tmp_path, monkeypatch):
    assert race(tmp_path, monkeypatch, "trueno_test_parents_first", elsewhere.module) == [True]


def test_the_package_comes_before_its_modules():
    """A module that imports one of Numba's own by name has imported Numba before."""
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        names = [
            name
            for node in ast.parse(path.read_text("utf-8")).body
            for name in (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else []
            )
            if name.split(".")[0] == "numba"
        ]
        if names and names[0] != "numba":
            wrong.append(str(path.relative_to(PACKAGE)))
    assert not wrong, f"these import a module of Numba before `numba` (see trueno_simd.llvm.elsewhere): {wrong}"
