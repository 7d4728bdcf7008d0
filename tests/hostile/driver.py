"""Runs attacks round robin in child processes, and keeps the book: cases, calls, states, and failures with their case.

A child that dies or hangs is a failure of the case that it had begun; the next one goes on with the case after it.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from .attack import Attack

ROOT = Path(__file__).parents[2]
SLICE = 30.0
"""Seconds after which the next attack has its turn."""
LEAST = 1.0
PATIENCE = 4
"""Failures of one attack on one backend in one turn, after which the next has its turn."""
START = 120.0
"""Seconds that a child may take to begin its first case: it imports, and may compile."""
EVER = 1 << 62


@dataclass
class Failure:
    """A case that failed; `first` is the one with which its process began."""

    attack: str
    backend: str
    seed: int
    case: int
    first: int
    why: str

    def __str__(self) -> str:
        on = f" --backend {self.backend}" if self.backend else ""
        again = f"python -m tests.hostile --attack {self.attack}{on} --seed {self.seed} --case {self.case}"
        before = f"   (with all before it in its process: --case {self.first}-{self.case})"
        return again + (before if self.first < self.case else "") + "\n    " + self.why.replace("\n", "\n    ")


@dataclass
class Row:
    """One attack on one backend."""

    attack: Attack
    backend: str
    cases: int = 0
    calls: int = 0
    states: int = 0
    failures: list[Failure] = field(default_factory=list)
    number: int = 0  # of the next case

    def counts(self) -> dict[str, Any]:
        facts = {"attack": self.attack.name, "backend": self.backend, "cases": self.cases, "calls": self.calls}
        return facts | {"states": self.states, "failures": [asdict(f) for f in self.failures]}


class Driver:
    """`run(…)`, then `rows`."""

    def __init__(self, attacks: Sequence[Attack], backends: Sequence[str], seed: int, jobs: int) -> None:
        self.rows = [Row(a, b) for a in attacks for b in a.backends if not b or not backends or b in backends]
        self.seed, self.jobs = seed, jobs
        self._children: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def run(self, seconds: float, first: int = 0, end: int = EVER) -> None:
        """Turns until the time is over, at least one for each row; with `end`, those cases of each once."""
        stop = time.monotonic() + seconds
        shares = sum(row.attack.share for row in self.rows) or 1
        each = min(SLICE, max(LEAST, seconds * self.jobs / shares))
        for row in self.rows:
            row.number = first
        turns: queue.SimpleQueue[Row] = queue.SimpleQueue()
        for row in self.rows:
            turns.put(row)
        begun: set[int] = set()

        def work() -> None:
            while not self._stopped:
                try:
                    row = turns.get_nowait()
                except queue.Empty:
                    return
                if id(row) in begun and time.monotonic() >= stop:
                    return
                begun.add(id(row))
                self._turn(row, end, float("inf") if end < EVER else each * row.attack.share)
                if row.number < end and (end < EVER or time.monotonic() < stop):
                    turns.put(row)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(self.jobs)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)
        except KeyboardInterrupt:
            self._stopped = True
            for child in list(self._children):
                _end(child)

    def _turn(self, row: Row, end: int, seconds: float) -> None:
        stop, failed = time.monotonic() + seconds, 0
        while row.number < end and failed < PATIENCE and not self._stopped:
            failed += self._child(row, end, max(0.0, stop - time.monotonic()))
            if time.monotonic() >= stop:
                break

    def _child(self, row: Row, end: int, seconds: float) -> int:
        """Run one child process; how many failures it came to."""
        first, before = row.number, len(row.failures)
        given = (row.attack.name, row.backend, self.seed, first, end, seconds)
        with tempfile.TemporaryFile("w+", errors="replace") as errors:
            child = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.worker", *map(str, given)], cwd=ROOT, env=environment(),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
            )  # fmt: skip
            self._children.add(child)
            lines: queue.SimpleQueue[str] = queue.SimpleQueue()
            threading.Thread(target=_read, args=(child.stdout, lines), daemon=True).start()
            begun: int | None = None
            why = ""
            while True:
                try:
                    line = lines.get(timeout=START if begun is None else row.attack.limit + 10)
                except queue.Empty:
                    why = "it hangs"
                    break
                facts = json.loads(line) if line else {}
                if "begin" in facts:
                    begun = row.number = facts["begin"]
                elif "end" in facts:
                    begun = None
                    break
                elif not line:
                    break
                else:
                    row.number += 1
                    row.cases, row.calls = row.cases + 1, row.calls + facts["calls"]
                    row.states += facts["states"]
                    if "failed" in facts:
                        row.failures.append(self._failure(row, first, facts["failed"], facts["why"]))
                    begun = None
            _end(child, patient=not why)
            self._children.discard(child)
            if not self._stopped and (begun is not None or why or row.number == first):
                said = why or f"the process ended with {_code(child.returncode)}"
                errors.seek(0)
                row.failures.append(self._failure(row, first, row.number, f"{errors.read()[-3000:].strip()}\n{said}"))
                row.cases, row.number = row.cases + 1, row.number + 1
        return len(row.failures) - before

    def _failure(self, row: Row, first: int, case: int, why: str) -> Failure:
        failure = Failure(row.attack.name, row.backend, self.seed, case, first, why)
        print(failure, "", sep="\n", flush=True)
        return failure

    def table(self) -> str:
        """Attack × backend: what was tried and what failed."""
        lines = [f"{'attack':<12} {'backend':<14} {'cases':>9} {'calls':>11} {'states':>9} {'failures':>9}"]
        for r in self.rows:
            numbers = f"{r.cases:>9,} {r.calls:>11,} {r.states:>9,} {len(r.failures):>9,}"
            lines.append(f"{r.attack.name:<12} {r.backend or '·':<14} {numbers}")
        total = [sum(x) for x in zip(*((r.cases, r.calls, r.states, len(r.failures)) for r in self.rows), strict=True)]
        if total:
            lines.append(f"{'all':<27} {total[0]:>9,} {total[1]:>11,} {total[2]:>9,} {total[3]:>9,}")
        return "\n".join(lines)


def environment(**extra: str) -> dict[str, str]:
    """This process's environment without settings of Trueno but where its cache is; Mesa plays the GPU."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TRUENO_") or k == "TRUENO_CACHE_DIR"}
    kept.pop("FORCE_CPU", None)
    adapter = {"TRUENO_WGPU_ADAPTER": "software"} if find_spec("trueno_wgpu") else {}  # else no setting has that name
    return kept | adapter | {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"} | extra


def _read(pipe: IO[str], lines: "queue.SimpleQueue[str]") -> None:
    for line in pipe:
        lines.put(line)
    lines.put("")


def _end(child: "subprocess.Popen[str]", patient: bool = False) -> None:
    """Wait a little where the child is about to end by itself, then end it with all that it started."""
    stop = time.monotonic() + (30 if patient else 0)
    while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None and time.monotonic() < stop:
        time.sleep(0.01)
    os.killpg(child.pid, signal.SIGKILL)  # a group has its number until its first process is waited for
    child.wait()


def _code(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
