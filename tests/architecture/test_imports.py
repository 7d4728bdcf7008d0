"""`import trueno` stays small, and the import contracts of pyproject.toml hold."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FEW = 75
"""Imports of the core by itself inside functions."""

LOADED = """
import sys
import numpy
before = set(sys.modules)
import trueno
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
print(*sorted(name for name in sys.modules if name.startswith("trueno.")))
"""


def loaded() -> tuple[set[str], set[str]]:
    """Top-level modules that `import trueno` loads beyond NumPy, and the core's own."""
    output = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True).stdout
    packages, modules = output.splitlines()
    return set(packages.split()), set(modules.split())


def test_import_loads_no_plugin_and_nothing_heavy():
    packages, _ = loaded()
    assert "trueno" in packages
    assert not {name for name in packages if name.startswith("trueno_")}
    assert not packages & {
        "numba", "llvmlite", "cupy", "wgpu", "torch", "scipy", "rich", "typer", "gguf",
        "pluggy", "asyncio", "multiprocessing", "concurrent", "ssl", "unittest",
    }  # fmt: skip


def test_import_loads_the_minimal_core_only():
    _, modules = loaded()
    extra = {"quant", "batch", "aio", "cli", "testing"}
    assert not {name for name in modules if name.split(".")[1] in extra}


def test_imports_in_functions_are_marked_and_few():
    """They cost each reader a question: a module is loaded there so that start-up does not pay for it."""
    sources = ROOT / "core/src/trueno"
    unmarked, marked = [], 0
    for path in sorted(sources.rglob("*.py")):
        text = path.read_text("utf-8")
        lines = text.splitlines()
        for function in ast.walk(ast.parse(text)):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for node in ast.walk(function):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                if any(name.partition(".")[0] == "trueno" for name in names):
                    marked += 1
                    if "  # " not in lines[node.lineno - 1]:
                        unmarked.append(f"{path.relative_to(sources)}:{node.lineno}")
    assert not unmarked, f"import at the top, or say why not (`# start-up`): {unmarked}"
    assert 40 < marked <= FEW, "this number only goes down"


def test_import_contracts():
    # A child process, because the linter reads the working directory's settings and changes sys.path.
    pytest.importorskip("importlinter", reason="import-linter is not installed: make setup")
    code = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-logo'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
