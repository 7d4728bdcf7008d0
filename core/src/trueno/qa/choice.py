"""Gates about what runs a call that names no backend."""

import json
from importlib import import_module
from typing import Any

import numpy as np

from trueno.qa.measurement import Measurement
from trueno.qa.registry import gate

SLOW = ("scalar", "reference")
"""Backends that compute one element after the other, or with NumPy's own loops."""
ELEMENTS = 100
CHILD = "from trueno.qa import pretended; pretended.main()"


@gate("F-TRUENO-001")
def best_is_not_scalar(m: Measurement) -> None:
    """Choose the best backend, run softmax of 1000 × 1000 numbers without naming one, and read from the trace what ran.

    Both must be a SIMD or GPU backend; results must be within 1e-6 of NumPy's in float64. Skipped if no such backend
    is installed.
    """
    trueno: Any = import_module("trueno")  # its ops
    entries = {name: entry for name, entry in trueno.backends().items() if not entry.opt_in}
    fast = {name: entry for name, entry in entries.items() if name not in SLOW}
    if not fast:
        m.skip("no SIMD or GPU backend is installed. Install: pip install 'trueno[simd]'")
    best = trueno.select_best_available_backend()
    m.note(best=best.name, kind=best.kind, isa=best.isa, device=best.device)
    x = np.random.default_rng().standard_normal((1000, 1000), np.float32)
    trueno.softmax(x)  # compiled, and measured where that is due
    with trueno.trace() as trace:
        y = trueno.softmax(x)
    ran = [event for event in trace if event.kind == "run"]
    m.note(softmax_ran_on=[event.backend for event in ran], ms=round(sum(event.seconds for event in ran) * 1e3, 3))
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    error = float(np.abs(y - e / e.sum(axis=1, keepdims=True)).max())
    m.note(error=error)
    reasons = "; ".join(f"{name}: {entry.reason}" for name, entry in fast.items() if entry.reason)
    m.need(best.name not in SLOW, f"the best backend is {best.name} ({reasons or 'although others can run'})")
    slow = [event.backend for event in ran if event.backend in SLOW]
    m.need(ran and not slow, f"softmax of a million numbers ran on {', '.join(slow) or 'nothing'}")
    m.need(error <= 1e-6, f"softmax on {ran[0].backend} is {error:.1e} away from float64")


@gate("F-TRUENO-006")
def small_arrays_stay_on_the_host(m: Measurement) -> None:
    """Call every row op on 100 elements, and products of 10 × 10 matrices, beside a pretended GPU with no costs.

    The pretended GPU counts what it runs, in a child process: nothing unless it is named; everything where it is
    named; and a call of a million elements, which shows that it would be chosen.
    """
    answer = m.python(CHILD, str(ELEMENTS))
    m.need(answer.code == 0, f"the child process ended with {answer.code}: {answer.err.strip()[-200:]}")
    record = json.loads(answer.out)
    m.note(**record)
    m.need(
        not record["on_gpu_unnamed"], f"{', '.join(record['on_gpu_unnamed'][:5])} of {ELEMENTS} elements reached a GPU"
    )
    m.need(
        record["on_gpu_named"] == record["ops"],
        f"{record['ops'] - record['on_gpu_named']} ops did not reach the GPU that was named",
    )
    m.need(record["million_on_gpu"], "a million elements did not reach the pretended GPU: the gate would see nothing")
