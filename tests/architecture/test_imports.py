"""`import trueno` stays small, and the import contracts of pyproject.toml hold."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

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


def test_import_contracts():
    # A child process, because the linter reads the working directory's settings and changes sys.path.
    pytest.importorskip("importlinter", reason="import-linter is not installed: make setup")
    code = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-logo'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
