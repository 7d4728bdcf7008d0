"""Timing for people: alternating, minimum of many.

A neighbour on a shared machine changes absolute times within seconds, so calls that are to be compared
take turns, and each keeps its best.
"""

from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from itertools import repeat
from time import perf_counter
from typing import Any

import numpy as np

BATCH_S = 50e-6  # calls shorter than this are timed several at once


def _once(call: Callable[[], Any], times: int) -> float:
    with np.errstate(all="ignore"):  # here, as NumPy keeps it in the context that a call may bring along
        start = perf_counter()
        for _ in repeat(None, times):
            call()
        return (perf_counter() - start) / times


def race(
    calls: Mapping[str, Callable[[], Any]], seconds: float, within: Mapping[str, Context] | None = None
) -> dict[str, float]:
    """Seconds a call takes, of each: the minimum over rounds in which they take turns.

    Rounds go on for `seconds`, and until there were three, unless one call alone takes that long.  A call runs
    in its context of `within`, entered outside of what is timed: so each may have its own backend.
    """
    least, here = 3, copy_context()
    inside = {name: (within or {}).get(name) or here.copy() for name in calls}
    best = {name: inside[name].run(_once, call, 1) for name, call in calls.items()}
    if sum(best.values()) > 4 * seconds:
        least = 1  # one more round of very slow calls is enough
    batch = {name: max(1, int(BATCH_S / max(t, 1e-9))) for name, t in best.items()}
    end, rounds = perf_counter() + seconds, 0
    while rounds < least or perf_counter() < end:
        for name, call in calls.items():
            best[name] = min(best[name], inside[name].run(_once, call, batch[name]))
        rounds += 1
    return best
