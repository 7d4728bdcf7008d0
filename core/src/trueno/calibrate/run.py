"""One calibration: items are measured while the budget lasts, then kept."""

from collections.abc import Iterator, Sequence
from math import ceil
from time import perf_counter

from trueno.calibrate import honesty, measure, store
from trueno.calibrate.measure import Item
from trueno.dispatch.state import forget_plans
from trueno.events.stream import emit
from trueno.select.calibration import Row

LEAST = 5e-3
"""Seconds per item, even if the budget is nearly spent."""
UNSTEADY = 0.5
"""From this spread on a speed says more about other processes than about the backend."""


class Run:
    """What is to be measured, what was, and what was left out.

    skipped: a sentence for each failure.  done: how many items were measured, in `spent` seconds without compilers.
    """

    def __init__(self, backends: Sequence[str], dtypes: Sequence[str]) -> None:
        self.backends = list(backends)
        self.items = measure.items(backends, dtypes)
        self.rows: list[Row] = []
        self.skipped: list[str] = []
        self.done = 0
        self.spent = 0.0

    def measuring(self, budget: float) -> Iterator[Item]:
        """Measure one item after another for about `budget` seconds; each is given before it is measured."""
        for item in self.items:
            if self.spent >= budget:
                return
            yield item
            start = perf_counter()
            outcome = measure.measure(item, max((budget - self.spent) / (len(self.items) - self.done), LEAST))
            self.spent += perf_counter() - start - outcome.compiling
            self.rows += outcome.rows
            self.skipped += outcome.skipped
            self.done += 1

    def keep(self, start: float) -> bool:
        """Store what was measured since `start`, and let plans be chosen by it; False if there is no cache folder."""
        kept = store.save(self.rows)
        forget_plans()  # they were chosen by other speeds
        seconds = perf_counter() - start
        for name in self.backends:
            count = sum(row.backend == name for row in self.rows)
            emit("calibrate", backend=name, detail=f"{count} speeds were measured", start=start, seconds=seconds)
        return kept

    def missing(self) -> list[str]:
        """The items that did not fit into the budget."""
        return [str(item) for item in self.items[self.done :]]

    def seconds_of_all(self) -> int:
        """About how many seconds all items need, if some are missing; the last are the longest."""
        if not self.done or self.done == len(self.items):
            return 0
        return ceil(self.spent / self.done * len(self.items) / 10) * 10

    def unsteady(self) -> list[str]:
        """Speeds that were measured while the machine was busy."""
        return [f"{row.backend}: {row.kind}, {row.dtype}, {row.band}" for row in self.rows if row.spread > UNSTEADY]

    def misdeclared(self) -> list[str]:
        """Where the backends declare other speeds than those in force."""
        return [sentence for name in self.backends for sentence in honesty.misdeclared(name)]


def take(path: str) -> int:
    """Import the speeds of another run's file, and let plans be chosen by them; returns their number."""
    count = store.merge(path)
    forget_plans()
    return count
