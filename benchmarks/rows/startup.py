"""Starting: `import trueno` beyond NumPy, what is here, and the first gelu of a fresh process whose disk cache is warm.

Each figure comes from a child process, the best of several; the first, which may compile, is not
counted.  simd must be what is chosen by default, so its figure contains the choosing; scalar is named by
TRUENO_BACKEND.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from benchmarks.compare import Record
from benchmarks.rows import Cell, Plan

IMPORT = """
import json, sys, time
import numpy
before = time.perf_counter()
import trueno
seconds = time.perf_counter() - before
trueno.add
table = time.perf_counter() - before
extra = sorted(m for m in sys.modules if m.split(".")[0] in ("numba", "llvmlite") or m.startswith("trueno_"))
print(json.dumps({"seconds": seconds, "table": table, "extra": extra}))
"""
FOUND = """
import json, sys, time
import numpy
import trueno
before = time.perf_counter()
found = trueno.backends()
available = [name for name, entry in found.items() if entry.available]
seconds = time.perf_counter() - before
plugins = sorted(m for m in sys.modules if m.startswith("trueno_") and "." not in m)
print(json.dumps({"seconds": seconds, "installed": len(found) - 1, "imported": plugins, "available": available}))
"""
FIRST = """
import json, time
import numpy as np
x = np.linspace(-3, 3, 1024, dtype=np.float32)
before = time.perf_counter()
import trueno
trueno.gelu(x)
seconds = time.perf_counter() - before
ran = [name for name, entry in trueno.backends().items() if entry.active]
print(json.dumps({"seconds": seconds, "ran": ran}))
"""


def cells(plan: Plan) -> Iterator[Cell]:
    yield Cell("startup", "import trueno", "", partial(_import, plan))
    yield Cell("startup", "first backends()", "", partial(_found, plan))
    yield Cell("startup", "first gelu, simd", "1 024", partial(_first, "simd", plan))
    yield Cell("startup", "first gelu, scalar", "1 024", partial(_first, "scalar", plan, TRUENO_BACKEND="scalar"))


def _child(program: str, **variables: str) -> dict[str, object]:
    usual = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}  # users have bytecode, after once
    done = subprocess.run(
        [sys.executable, "-c", program], env=usual | variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message")
    return json.loads(done.stdout)


def _best(program: str, times: int, **variables: str) -> tuple[float, dict[str, object]]:
    _child(program, **variables)
    runs = [_child(program, **variables) for _ in range(times)]
    best = min(runs, key=lambda f: float(str(f["seconds"])))
    return float(str(best["seconds"])), best


def _import(plan: Plan) -> list[Record]:
    seconds, report = _best(IMPORT, 3 if plan.quick else 20)
    extra = report["extra"]
    problem = f"also imported: {extra}" if extra else ""
    beside = {"import trueno": seconds, "and trueno.add, which loads the table of ops": float(str(report["table"]))}
    return [Record("startup", "import trueno", "", "s", seconds, seconds=beside, problem=problem)]


def _found(plan: Plan) -> list[Record]:
    """The first `trueno.backends()`, asked of each whether it is available; it imports no plugin."""
    seconds, report = _best(FOUND, 3 if plan.quick else 20)
    problem = f"also imported: {report['imported']}" if report["imported"] else ""
    if int(str(report["installed"])) < 3:
        problem = problem or f"{report['installed']} plugins are installed, the row wants 3"
    return [Record("startup", "first backends()", "", "s", seconds, problem=problem)]


def _first(backend: str, plan: Plan, **variables: str) -> list[Record]:
    """The first gelu with these variables set, provided that it runs on `backend`."""
    seconds, report = _best(FIRST, 3 if plan.quick else 10, **variables)
    problem = "" if report["ran"] == [backend] else f"ran on {report['ran']}"
    return [Record("startup", f"first gelu, {backend}", "1 024", "s", seconds, problem=problem)]
