"""The gate about the WGSL matmul."""

import json

from trueno.discovery import registry
from trueno.qa.measurement import Measurement
from trueno.qa.registry import gate

SHAPES = ((1, 64, 48), (17, 33, 65), (64, 64, 64), (130, 96, 70))
"""m, k, n: a vector, odd sizes, whole tiles, and more than one tile."""
ABSENT = 77
"""Exit code of the child process if wgpu has no adapter."""
CHILD = """
import json, sys
import numpy as np, trueno
entry = trueno.backends()["wgpu"]
if not entry.available:
    print(entry.reason)
    sys.exit(77)
rows = []
for m, k, n in json.loads(sys.argv[1]):
    rng = np.random.default_rng()
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    with trueno.trace() as trace, trueno.use("wgpu"):
        c = trueno.matmul(a, b)
    size = np.abs(a).astype(float) @ np.abs(b)
    error = np.abs(c - a.astype(float) @ b) / (size * k * 2.0**-24)
    ran = sorted({e.backend for e in trace if e.kind == "run"})
    rows.append([[m, k, n], ran, float(error.max()) if np.isfinite(error).all() else None])
print(json.dumps([rows, trueno.device("wgpu").adapter_name]))
"""


@gate("F-TRUENO-008")
def wgsl_matmul_is_right(m: Measurement) -> None:
    """Multiply matrices of four shapes on the wgpu backend, in a child process, and compare with float64.

    An element may be off by k · 2⁻²⁴ · Σ |a||b|, which float32 sums in any order keep. Without a GPU the software
    adapter runs the shaders (TRUENO_WGPU_ADAPTER=software); skipped where there is none.
    """
    entry = registry.entries().get("wgpu")
    if entry is None:
        m.skip("the wgpu backend is not installed. Install: pip install 'trueno[wgpu]'")
    software = {} if entry.available else {"TRUENO_WGPU_ADAPTER": "software"}
    if not entry.available and entry.code != "no_device":
        m.skip(f"wgpu cannot run here: {entry.reason}")
    answer = m.python(CHILD, json.dumps(SHAPES), **software)
    if answer.code == ABSENT:
        m.skip(f"wgpu cannot run here: {answer.out.strip()}")
    m.need(answer.code == 0, f"the child process ended with {answer.code}: {answer.err.strip()[-200:]}")
    rows, adapter = json.loads(answer.out)
    errors = [error for _, _, error in rows]
    m.note(adapter=adapter, shapes=["x".join(map(str, shape)) for shape, _, _ in rows])
    m.note(errors_in_units_of_the_bound=[e if e is None else round(e, 4) for e in errors])
    for shape, ran, error in rows:
        m.need(ran == ["wgpu"], f"matmul of {shape} ran on {', '.join(ran) or 'nothing'}, not on wgpu")
        m.need(error is not None and error <= 1, f"matmul of {shape} on wgpu is wrong: error {error} of the bound")
