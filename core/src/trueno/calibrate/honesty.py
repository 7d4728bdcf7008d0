"""Whether the speeds that a backend declares agree with those measured here."""

import math

import numpy as np

from trueno.calibrate import measure
from trueno.discovery import registry
from trueno.select import calibration, cost

LIE = 3.0
"""A backend whose declared and measured speeds differ by this factor is reported."""


def misdeclared(name: str) -> list[str]:
    """A sentence for each class of op for which a backend declares a speed three times off the measured one.

    Empty if nothing was measured.  Raises what loading the backend raises.
    """
    rows = [row for row in calibration.load().values() if row.backend == name]
    if not rows:
        return []
    backend, typical = registry.load(name), measure.typical(name)
    worst: dict[tuple[str, str], tuple[float, str]] = {}
    for row in rows:
        if row.kind not in typical:
            continue
        for call in measure.calls(typical[row.kind], np.dtype(row.dtype), row.band):
            declared = backend.rates(call)
            if problem := cost.refuse(declared):
                return [f"{name}: {problem}"]
            work = cost.work(call)
            ratio = cost.seconds(declared, work) / cost.seconds(row.rates, work)
            at = f"{work.elements:,.0f} elements".replace(",", "\u202f")
            off = worst.setdefault((row.kind, row.dtype), (1.0, at))
            if abs(math.log(ratio)) > abs(math.log(off[0])):
                worst[row.kind, row.dtype] = ratio, at
    sentences = []
    for (kind, dtype), (ratio, at) in worst.items():
        if not 1 / LIE <= ratio <= LIE:
            times, how = (ratio, "slower") if ratio > 1 else (1 / ratio, "faster")
            sentences.append(f"{name}: {kind}, {dtype}: declares itself {times:.1f}× {how} than measured, at {at}")
    return sentences
