"""Calls that take turns, each keeping its best, while a machine is measured.

Other load on a shared machine changes absolute times within seconds, and threads of one library disturb the next.
"""

import math
from collections.abc import Callable, Mapping
from itertools import repeat
from time import perf_counter, process_time, sleep, thread_time
from typing import Any

import numpy as np

BATCH_S = 30e-6
"""Shorter calls are timed in groups."""
LONG_S = 5e-3
"""A call this long is a turn by itself: waking a thread is a hundredth of it."""
HOPELESS = 10.0
"""A backend this many times slower than the best is called once more at most."""


def race(
    calls: Mapping[str, Callable[[], Any]], budget: float
) -> tuple[dict[str, tuple[float, int, float]], dict[str, Exception]]:
    """Of each: seconds, how many calls were timed, and the spread, the minimum over turns that alternate; what failed.

    The spread is by how much the second half of the turns missed or beat the first half's minimum.
    """
    turns: dict[str, list[float]] = {}
    count: dict[str, int] = {}
    failed: dict[str, Exception] = {}
    batch = dict.fromkeys(calls, 1)
    end, rounds = perf_counter() + budget, 0
    while rounds < 3 or (perf_counter() < end and rounds < 50):
        least = min(map(min, turns.values()), default=math.inf)
        if rounds and least > LONG_S and perf_counter() > end + budget:  # the first turn of long calls is enough
            break
        for name, call in calls.items():
            if name in failed or (rounds and _hopeless(min(turns[name]), least, rounds)):
                continue
            try:
                seconds = _turn(call, batch[name])
            except Exception as error:
                failed[name] = error
                turns.pop(name, None)
                continue
            turns.setdefault(name, []).append(seconds)
            count[name] = count.get(name, 0) + batch[name]
            if not rounds:  # from here on, in groups
                batch[name] = max(1, int(BATCH_S / max(seconds, 1e-9)))
        rounds += 1
    result = {}
    for name, times in turns.items():
        half = (len(times) + 1) // 2
        first, second = min(times[:half]), min(times[half:], default=times[0])
        result[name] = min(first, second), count[name], abs(first / second - 1)
    return result, failed


def _hopeless(seconds: float, least: float, rounds: int) -> bool:
    """Whether to stop calling one this slow; a short first turn may have been an accident."""
    return seconds > HOPELESS * least and (rounds > 1 or seconds > LONG_S)


def _turn(call: Callable[[], Any], times: int) -> float:
    """Seconds per call of `count` in a row, or of the second group where a group is short."""
    everybody, here, start = process_time(), thread_time(), perf_counter()
    best = _once(call, times)
    if best * times < LONG_S:
        best = min(best, _once(call, times))
    others = (process_time() - everybody) - (thread_time() - here)
    if others > 0.02 * (perf_counter() - start):
        _settle()
    return best


def _once(call: Callable[[], Any], times: int) -> float:
    with np.errstate(all="ignore"):
        start = perf_counter()
        for _ in repeat(None, times):
            call()
        return (perf_counter() - start) / times


def _settle(step: float = 0.5e-3, most: float = 0.03) -> None:
    """Wait until no thread of this process works: those of a BLAS spin for milliseconds after their last call."""
    end = perf_counter() + most
    while perf_counter() < end:
        before, start = process_time(), perf_counter()
        sleep(step)
        if process_time() - before < 0.2 * (perf_counter() - start):
            return
