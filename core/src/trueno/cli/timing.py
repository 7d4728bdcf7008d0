"""Timing for people: alternating, many rounds.

Other load on a shared machine changes absolute times within seconds, so calls that are to be compared
take turns.
"""

from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from itertools import repeat
from time import perf_counter
from typing import Any

import numpy as np

BATCH_S = 50e-6  # shorter calls are timed in groups


def _once(call: Callable[[], Any], times: int) -> float:
    with np.errstate(all="ignore"):  # set here, because NumPy keeps it in the context that a call may change
        start = perf_counter()
        for _ in repeat(None, times):
            call()
        return (perf_counter() - start) / times


def race(
    calls: Mapping[str, Callable[[], Any]], seconds: float, within: Mapping[str, Context] | None = None
) -> dict[str, float]:
    """Seconds per call, of each: the minimum of its `rounds`."""
    return {name: min(times) for name, times in rounds(calls, seconds, within).items()}


def rounds(
    calls: Mapping[str, Callable[[], Any]], seconds: float, within: Mapping[str, Context] | None = None
) -> dict[str, list[float]]:
    """Seconds per call, of each: one number for each round, in which they take turns.

    Rounds go on for `seconds`, and at least three times, unless a single call takes that long.  A call runs
    in its context of `within`, entered outside of the timing: so each may have its own backend.
    """
    least, here = 3, copy_context()
    inside = {name: (within or {}).get(name) or here.copy() for name in calls}
    first = {name: inside[name].run(_once, call, 1) for name, call in calls.items()}
    if sum(first.values()) > 4 * seconds:
        least = 1  # one more round is enough for very slow calls
    batch = {name: max(1, int(BATCH_S / max(t, 1e-9))) for name, t in first.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    end, done = perf_counter() + seconds, 0
    while done < least or perf_counter() < end:
        for name, call in calls.items():
            times[name].append(inside[name].run(_once, call, batch[name]))
        done += 1
    return times
