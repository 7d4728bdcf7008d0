"""What compute-sanitizer finds in the mutants of an archive that `sanitizer_prepare` wrote, beside what our rules find.

Each mutant is launched once under each tool, in a child process that a timeout ends; so is each correct original,
several in one process.  It needs NumPy and compute-sanitizer.
"""

import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .sanitizer_controls import controls

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
FOUND = 99
"""compute-sanitizer's exit code where a tool reports something."""
OPTIONS = ("--print-limit=5", "--show-backtrace=no", "--report-api-errors=no")
BATCH = 8
"""Correct originals in one process."""
SUMMARY = re.compile(r"^=+ (?:ERROR SUMMARY: ([1-9]\d*) error|RACECHECK SUMMARY: ([1-9]\d*) hazard)", re.M)
REPORT = re.compile(
    r"^=+ +((?:Invalid|Misaligned|Uninitialized|Barrier error|Divergent|(?:Error|Warning|Info): (?:\(|Race|Potential))"
    r"[^\n]*)", re.M)  # fmt: skip
"""The first line of a report, for a process that is killed before its summary."""
RUNNER = Path(__file__).with_name("sanitizer_run.py")
Case = Mapping[str, Any]


@dataclass
class Run:
    """One process.  state: "ran", "refused: …", "failed: …", "died", "broken" (the tool did not start the program),
    "hung" (killed at its limit), or "late" (not done when the time was up).  report: the tool's first line."""

    found: bool
    state: str
    report: str = ""
    seconds: float = 0.0
    device: str = ""


class Checker:
    """Runs compute-sanitizer; every process ends at `limit` seconds, and all of them at `deadline`."""

    def __init__(self, folder: Path, jobs: int, limit: float, deadline: float) -> None:
        path = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
        if path is None:
            sys.exit("compute-sanitizer is not installed")
        self.path, self.folder, self.limit, self.deadline = path, folder, limit, deadline
        self.slots: queue.Queue[int] = queue.Queue()
        for slot in range(jobs):
            self.slots.put(slot)
        self.count, self.lock = 0, threading.Lock()
        help_ = self._ask("--help")
        self.options = [o for o in OPTIONS if o.partition("=")[0] in help_]
        self.ports = "--base-port" in help_
        self.version = next((w for w in self._ask("--version").splitlines() if "ersion" in w), "").strip()

    def _ask(self, option: str) -> str:
        done = subprocess.run([self.path, option], capture_output=True, text=True, timeout=20, check=False)
        return done.stdout + done.stderr

    def run(self, tool: str, cases: Sequence[Case]) -> list[Run]:
        """Launch the cases in one process; one Run for each, which share what the tool reports."""
        slot = self.slots.get()
        try:
            return self._run(tool, cases, slot)
        finally:
            self.slots.put(slot)

    def _run(self, tool: str, cases: Sequence[Case], slot: int) -> list[Run]:
        begun = time.monotonic()
        limit = min(self.limit, self.deadline - begun)
        if limit < 1:
            return [Run(False, "late")] * len(cases)
        with self.lock:
            self.count += 1
            stem = self.folder / f"run{self.count:05}"
        status, log = stem.with_suffix(".status"), stem.with_suffix(".log")
        job = {"cases": list(cases), "status": str(status), "limit": int(limit) + 3}
        stem.with_suffix(".json").write_text(json.dumps(job), "utf-8")
        options = [*self.options, *([f"--base-port={49200 + 32 * slot}"] if self.ports else [])]
        command = [self.path, "--tool", tool, "--error-exitcode", str(FOUND), *options,
                   sys.executable, str(RUNNER), str(stem.with_suffix(".json"))]  # fmt: skip
        with log.open("wb") as output:
            code = _within(command, limit, output)
        words = log.read_text("utf-8", "replace")
        line = REPORT.search(words)
        found = code == FOUND or SUMMARY.search(words) is not None or (code is None and line is not None)
        try:
            known = json.loads(status.read_text("utf-8"))
        except (OSError, ValueError):
            known = {"device": "", "states": []}
        states = [*known["states"], *["started"] * len(cases)][: len(cases)]
        ended = "died" if known["states"] else "broken"
        if code is None:
            ended = "hung" if limit == self.limit else "late"
        report = line[1] if line else words[-600:] if ended == "broken" or found else ""
        seconds = round(time.monotonic() - begun, 2)
        return [Run(found, ended if s == "started" else s, report, seconds, known["device"]) for s in states]


def _within(command: Sequence[str], seconds: float, output: Any) -> int | None:
    """The exit code, or None where the process and its children had to be killed."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            print(f"process {process.pid} does not end", file=sys.stderr)
        return None


# ---- all of an archive --------------------------------------------------------------------------


def check(archive: Path, folder: Path, jobs: int, seconds: float, limit: float) -> dict[str, Any]:
    """Run everything; the record that `table` prints.  folder: for the files of this run."""
    begun = time.monotonic()
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder)
    index = json.loads((folder / "index.json").read_text("utf-8"))
    checker = Checker(folder, jobs, limit, begun + seconds)
    with ThreadPoolExecutor(jobs) as pool:
        control = _controls(checker, pool)
        if all(run.state == "broken" for run in control.values()):
            sys.exit("compute-sanitizer does not start the program:\n" + control[TOOLS[0]].report)
        origins = {name: _files(place, folder) for name, place in index["origins"].items()}
        before = _originals(checker, pool, origins)
        ready = _breadth_first(index["mutants"])
        quiet = [m for m in ready if not any(map(_noisy, before[m["origin"]].values()))]
        cases = [{**origins[m["origin"]], "ptx": str(folder / m["ptx"])} for m in quiet]
        results = list(pool.map(lambda case: _tools(checker, case), cases))
    mutants = [{**m, "tools": {tool: asdict(run) for tool, run in runs.items()}}
               for m, runs in zip(quiet, results, strict=True)]  # fmt: skip
    device = next((run.device for run in control.values() if run.device), "")
    return {
        "sanitizer": checker.version, "options": checker.options, "device": device,
        "seconds": round(time.monotonic() - begun, 1), "index": {k: v for k, v in index.items() if k != "mutants"},
        "controls": {tool: asdict(run) for tool, run in control.items()},
        "origins": {name: {t: asdict(run) for t, run in runs.items()} for name, runs in before.items()},
        "noisy": Counter(m["rule"] for m in ready if m not in quiet),
        "mutants": mutants,
    }  # fmt: skip


def _controls(checker: Checker, pool: ThreadPoolExecutor) -> dict[str, Run]:
    """Whether each tool reports a plain fault; without the further options where it does not start with them."""
    cases = {}
    for tool, (text, operands) in controls().items():
        ptx, file = checker.folder / f"{tool}.ptx", checker.folder / f"{tool}.npz"
        ptx.write_text(text, "utf-8")
        file.write_bytes(operands)
        cases[tool] = {"ptx": str(ptx), "operands": str(file), "entry": "control", "grid": [1, 1, 1],
                       "block": [64, 1, 1], "shared": 0}  # fmt: skip
    for _ in range(2):
        runs = dict(zip(TOOLS, pool.map(lambda tool: checker.run(tool, [cases[tool]])[0], TOOLS), strict=True))
        if not any(run.state == "broken" for run in runs.values()):
            break
        checker.options, checker.ports = [], False
    return runs


def _files(place: Case, folder: Path) -> dict[str, Any]:
    return {**place, "ptx": str(folder / place["ptx"]), "operands": str(folder / place["operands"])}


def _right(run: Run) -> bool:
    return run.state == "ran" and not run.found


def _noisy(run: Run) -> bool:
    """Of a correct original: a tool that reports on it, or cannot run it, says nothing about its mutants."""
    return run.state != "late" and not _right(run)


def _originals(checker: Checker, pool: ThreadPoolExecutor, origins: Mapping[str, Case]) -> dict[str, dict[str, Run]]:
    """Each under each tool, in batches; alone where something is wrong in a batch."""
    runs: dict[str, dict[str, Run]] = {name: {} for name in origins}
    names = list(origins)
    tasks = [(tool, names[k : k + BATCH]) for k in range(0, len(names), BATCH) for tool in TOOLS]
    for _ in range(2):
        work = pool.map(lambda task: checker.run(task[0], [origins[name] for name in task[1]]), tasks)
        again = []
        for (tool, batch), results in zip(tasks, work, strict=True):
            if len(batch) > 1 and not all(map(_right, results)):
                again += [(tool, [name]) for name in batch]
            else:
                for name, run in zip(batch, results, strict=True):
                    runs[name][tool] = run
        tasks = again
    return runs


def _breadth_first(mutants: Iterable[Case]) -> list[Case]:
    """The first of every fault, then the second, so that a run that is cut short has some of all."""
    seen: Counter[str] = Counter()
    order = []
    for one in mutants:
        order.append((seen[one["fault"]], len(order), one))
        seen[one["fault"]] += 1
    return [one for *_, one in sorted(order, key=lambda row: row[:2])]


def _tools(checker: Checker, case: Case) -> dict[str, Run]:
    runs: dict[str, Run] = {}
    for tool in TOOLS:
        runs[tool] = checker.run(tool, [case])[0]
        if runs[tool].state.startswith("refused") or runs[tool].state == "late":
            break
    return runs


# ---- the table ----------------------------------------------------------------------------------


def _is(row: Case, state: str) -> bool:
    return any(run["state"].startswith(state) for run in row["tools"].values())


def _tried(row: Case) -> bool:
    return not any(_is(row, state) for state in ("refused", "late", "broken"))


def rows(record: Case, key: str = "rule") -> list[list[Any]]:
    """Per rule or fault: name, tried, ours, found by any tool, and by each; a star where a text does not show it."""
    groups: dict[str, list[Case]] = {}
    for row in sorted(record["mutants"], key=lambda row: (not row["static"], row[key])):
        groups.setdefault(row[key] + ("" if row["static"] else " *"), []).append(row)
    groups["**all**"] = list(record["mutants"])
    return [[name, *_counts([row for row in group if _tried(row)])] for name, group in groups.items()]


def _counts(group: Sequence[Case]) -> list[int]:
    by = [sum(row["tools"][tool]["found"] for row in group) for tool in TOOLS]
    anyone = sum(any(row["tools"][tool]["found"] for tool in TOOLS) for row in group)
    return [len(group), sum(row["ours"] for row in group), anyone, *by]


def table(record: Case) -> str:
    """Markdown, and what the table leaves out."""
    head = ("rule", "tried", "ours", "compute-sanitizer", *TOOLS)
    lines = [head, ["---"] * len(head), *rows(record)]
    text = "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in lines)
    return "\n\n".join([text, *_notes(record)])


def _notes(record: Case) -> Iterator[str]:
    everything, index = record["mutants"], record["index"]
    silent = [row for row in everything if not any(run["found"] for run in row["tools"].values())]
    noisy = {tool: sum(_noisy(Run(**runs[tool])) for runs in record["origins"].values()) for tool in TOOLS}
    reasons: Counter[str] = Counter()
    for counts in index["left_out"].values():
        reasons.update(counts)
    yield "\\* A text does not show this fault; our rules have none for it."
    yield (f"{record['sanitizer']} on {record['device']}, seed {index['seed']}, at most {index['per_fault']} of a "
           f"kind, in {record['seconds']} s.")  # fmt: skip
    yield f"Tools that find their control: {' '.join(t for t, run in record['controls'].items() if run['found'])}."
    yield (f"Correct originals: {len(record['origins'])}; with a report or an error under {_numbers(noisy)}. "
           f"Mutants of those, left out: {sum(record['noisy'].values())}.")  # fmt: skip
    yield (f"Refused by the driver: {_count(everything, 'refused')}. Hung and killed under some tool: "
           f"{_count(everything, 'hung')}, of which no tool reports {_count(silent, 'hung')}. "
           f"Ended in an error, and no tool reports: {_count(silent, 'failed', 'died')}.")  # fmt: skip
    yield f"Left when the time was up: {_count(everything, 'late')}. The tool failed: {_count(everything, 'broken')}."
    yield f"Left out before: {_numbers(reasons)}."


def _count(group: Iterable[Case], *states: str) -> int:
    return sum(any(_is(row, state) for state in states) for row in group)


def _numbers(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "nothing"
