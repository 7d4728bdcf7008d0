"""The gate about guards."""

from importlib import import_module
from typing import Any

import numpy as np

from trueno.qa.measurement import Measurement
from trueno.qa.registry import gate


@gate("F-TRUENO-005")
def a_guard_stops_a_nan(m: Measurement) -> None:
    """Take square roots of 1000 numbers, one of them −1, on every backend that can run here, with and without a guard.

    Without, the result has one NaN. With a guard for NaN and the action STOP, GuardError is raised and the operand,
    which is `out=` too, keeps its values; for numbers without −1 nothing is raised.
    """
    trueno: Any = import_module("trueno")  # its ops
    rng = np.random.default_rng()
    good = rng.uniform(0.5, 2.0, 1000).astype(np.float32)
    bad, at = good.copy(), int(rng.integers(1000))
    bad[at] = -1.0
    names = [name for name, entry in trueno.backends().items() if entry.available]
    guard = trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP)
    stopped: list[str] = []
    m.note(elements=1000, backends=names, stopped=stopped)
    for name in names:
        with trueno.use(name):
            count = int(np.isnan(trueno.sqrt(bad)).sum())
            m.need(count == 1, f"sqrt on {name} has {count} NaN of 1 without a guard")
            out = bad.copy()
            try:
                guard(trueno.sqrt)(out, out=out)
            except trueno.GuardError:
                stopped.append(name)
            else:
                m.need(False, f"the guard let a NaN of {name} pass")
            m.need((out == bad).all(), f"the guard raised on {name}, but the operand was overwritten")
            right = guard(trueno.sqrt)(good)
            m.need(
                np.allclose(right, np.sqrt(good.astype(np.float64)), rtol=1e-6),
                f"sqrt under a guard is wrong on {name}",
            )
