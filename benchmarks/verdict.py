"""One row of the summary: what a target asks, and what was measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.compare import Record


@dataclass(frozen=True)
class Verdict:
    """One row of the summary; `ok` is None where nothing was measured."""

    row: str
    target: str
    measured: str
    ok: bool | None

    @property
    def word(self) -> str:
        return {True: "pass", False: "miss", None: "–"}[self.ok]


def times(ratio: float) -> str:
    return f"{ratio:.2f}×"


NOTHING = "not measured"


def missing(row: str, target: str, problem: str = "") -> Verdict:
    return Verdict(row, target, problem or NOTHING, False if problem else None)


def one(records: Sequence[Record], key: tuple[str, ...], row: str, target: str, show: Callable[[float], str],
         good: Callable[[float], bool]) -> Verdict:  # fmt: skip
    """A row that one record answers."""
    matches = [r for r in records if (r.group, r.name, r.shape)[: len(key)] == key]
    if not matches or matches[0].value is None:
        return missing(row, target, matches[0].problem if matches else "")
    record, value = matches[0], matches[0].value
    problem = f"; {record.problem}" if record.problem else ""
    return Verdict(row, target, show(value) + problem, good(value) and not problem)
