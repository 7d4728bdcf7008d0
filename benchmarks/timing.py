"""Calls that take turns, and what is quoted of them.

A neighbour on a shared machine changes absolute times threefold within minutes, so what is to be compared
takes turns in one loop and each keeps its minimum; the ratio quoted is the median of three such runs.

A turn is several calls, because threads of one library disturb the next: PyTorch's OpenMP worker spins for
3 to 4 ms after its last region, OpenBLAS' for 8 to 17, and on two cores that is half of the machine.  So a
turn that used other threads is followed by a wait until they are quiet, and a turn has at least two calls,
the first of which may wake sleeping workers.
"""

import gc
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import repeat
from math import exp, inf, log
from time import perf_counter, process_time, sleep, thread_time
from typing import Any

Thunk = Callable[[], Any]
OURS = "trueno"
BATCH_S = 50e-6  # shorter calls are timed several at once, so that the clock's 50 ns vanish
LONG_S = 5e-3  # one call this long is a turn: waking a worker is a hundredth of it
HOPELESS = 3.0  # a peer this many times slower than the better one is not called after the first rounds
TRIAL = 3  # rounds before that is judged


@dataclass(frozen=True)
class Budget:
    """How long one run takes: `rounds` of turns, or `seconds` if that is shorter; and how many runs."""

    rounds: int = 30
    seconds: float = 2.0
    turn: float = 1e-3
    runs: int = 3


QUICK = Budget(rounds=8, seconds=0.06, turn=0.2e-3, runs=1)


def bind(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Thunk:
    """`lambda: function(*args, **kwargs)` as if written out: nothing is looked up in a dict or unpacked.

    Everybody's calls are made so, and cost the same 20 ns beyond the call itself.
    """
    values: dict[str, Any] = {"f": function}
    names = []
    for i, value in enumerate(args):
        values[f"a{i}"] = value
        names.append(f"a{i}")
    for name, value in kwargs.items():
        values[f"k_{name}"] = value
        names.append(f"{name}=k_{name}")
    return eval(f"lambda: f({', '.join(names)})", values)


def once(call: Thunk, times: int = 1) -> float:
    """Seconds a call takes, of `times` in a row."""
    start = perf_counter()
    for _ in repeat(None, times):
        call()
    return (perf_counter() - start) / times


def batch(call: Thunk) -> int:
    """How many calls make a batch: tried once, then in a batch of that size, as a lone call seems slow."""
    times = 1
    for _ in range(2):
        times = max(1, int(BATCH_S / max(once(call, times), 1e-9)))
    return times


def turn(call: Thunk, times: int, seconds: float) -> tuple[float, bool]:
    """The best of at least two batches (one, if it is long) and `seconds`; and whether other threads of ours worked."""
    everybody, here, start = process_time(), thread_time(), perf_counter()
    best = once(call, times)
    spent = best * times
    while spent < LONG_S:
        best = min(best, once(call, times))
        spent = perf_counter() - start
        if spent >= seconds:
            break
    others = (process_time() - everybody) - (thread_time() - here)
    return best, others > 0.02 * spent


def settle(step: float = 0.5e-3, most: float = 0.03) -> None:
    """Wait until no thread of this process works."""
    end = perf_counter() + most
    while perf_counter() < end:
        before, start = process_time(), perf_counter()
        sleep(step)
        if process_time() - before < 0.2 * (perf_counter() - start):
            return


@contextmanager
def _no_garbage_collection() -> Any:
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def race(calls: Mapping[str, Thunk], budget: Budget, keep: Sequence[str] = (OURS,)) -> list[dict[str, float]]:
    """Seconds a call takes, of each, a dict a run: the minimum over turns that alternate.

    Those in `keep` take part to the end; others leave a run after three rounds if they are hopeless.
    """
    batches = {}
    for name, call in calls.items():
        call()
        batches[name] = batch(call)
    runs = []
    with _no_garbage_collection():
        for _ in range(budget.runs):
            racing, best = list(calls), dict.fromkeys(calls, inf)
            start, rounds = perf_counter(), 0
            while rounds < budget.rounds and (rounds == 0 or perf_counter() - start < budget.seconds):
                first = rounds % len(racing)
                for name in racing[first:] + racing[:first]:
                    seconds, threaded = turn(calls[name], batches[name], budget.turn)
                    best[name] = min(best[name], seconds)
                    if threaded:
                        settle()
                rounds += 1
                if rounds == TRIAL:
                    racing = _hopeful(racing, best, keep)
            runs.append(best)
    return runs


def _hopeful(racing: list[str], best: Mapping[str, float], keep: Sequence[str]) -> list[str]:
    better = min((best[name] for name in racing if name not in keep), default=inf)
    return [name for name in racing if name in keep or best[name] <= HOPELESS * better]


@dataclass(frozen=True)
class Comparison:
    """Ours against peers: a ratio is the better peer's time over ours, so that above 1 we are faster."""

    seconds: dict[str, float]
    """The minimum of each over all runs."""
    ratios: list[float] = field(default_factory=list)
    """One a run."""
    peer: str = ""
    """The better peer, over all runs."""

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)


def fastest(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The minimum of each over all runs."""
    return {name: min(run[name] for run in runs) for name in runs[0]}


def merge(runs: Sequence[Mapping[str, float]]) -> Comparison:
    """What several runs say together."""
    seconds = fastest(runs)
    peers = [name for name in seconds if name != OURS]
    if not peers:
        return Comparison(seconds)
    ratios = [min(run[name] for name in peers) / run[OURS] for run in runs]
    return Comparison(seconds, ratios, min(peers, key=seconds.__getitem__))


def compare(calls: Mapping[str, Thunk], budget: Budget) -> Comparison:
    """Race ours (the call named `trueno`) against the rest, several times."""
    return merge(race(calls, budget))


def geometric_mean(values: Iterable[float]) -> float:
    """exp of the mean logarithm; NaN of nothing."""
    numbers = list(values)
    return exp(sum(map(log, numbers)) / len(numbers)) if numbers else float("nan")


def median(values: Iterable[float]) -> float:
    """The middle one; NaN of nothing."""
    numbers = list(values)
    return statistics.median(numbers) if numbers else float("nan")
