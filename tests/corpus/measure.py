"""How good an analyzer is: false alarms on correct kernels and traps, and mutants that it finds, by kind of fault.

An analyzer is a callable: it takes a `Case` and returns its findings, as objects or mappings with `rule`, `severity`
(critical, high, medium or low) and, if it knows it, `entry`.
"""

import json
import shlex
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from .faults import FAULTS
from .launches import Launch
from .mutants import Mutant
from .origins import Origin
from .statements import entries
from .traps import Trap

ALARMS = 0.01
"""The share of correct entries that may have a critical finding."""
CAUGHT = 0.95
"""The share of confirmed mutants that a right rule must find."""
LOUD = ("critical", "high")


class Case(NamedTuple):
    """What an analyzer gets.  launches: of the entries of which one is known, for block and grid."""

    text: str
    launches: Mapping[str, Launch]


class Finding(NamedTuple):
    """What it gives back."""

    rule: str
    severity: str
    entry: str


Analyzer = Callable[[Case], Iterable[Any]]


def ask(analyzer: Analyzer, case: Case) -> list[Finding]:
    """Its findings; raises ValueError where one has no rule or an unknown severity."""
    found = []
    for one in analyzer(case):
        get = one.get if isinstance(one, Mapping) else lambda name, other="", one=one: getattr(one, name, other)
        finding = Finding(str(get("rule", "")), str(get("severity", "")).lower(), str(get("entry", "") or ""))
        if not finding.rule or finding.severity not in ("critical", "high", "medium", "low"):
            raise ValueError(f"a finding needs a rule and a severity: {one!r}")
        found.append(finding)
    return found


def command(words: str) -> Analyzer:
    """The analyzer that a command is: it gets a file as its last argument, and prints JSON of `trueno ptx analyze`.

    It gets `--block` and `--grid` too where the text has one kernel.
    """

    def analyzer(case: Case) -> Iterable[Mapping[str, Any]]:
        sizes: list[str] = []
        if len(case.launches) == 1:
            (one,) = case.launches.values()
            sizes = [f"--block={_size(one.block)}", f"--grid={_size(one.grid)}"]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernel.ptx"
            path.write_text(case.text, "utf-8")
            done = subprocess.run(
                [*shlex.split(words), *sizes, str(path)], capture_output=True, text=True, timeout=120, check=False
            )
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{words}: exit code {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
        return from_json(json.loads(done.stdout))

    return analyzer


def from_json(report: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """The findings of the documented JSON, each with its entry."""
    for file in report["files"]:
        for entry in file["entries"]:
            for finding in entry["findings"]:
                yield {**finding, "entry": entry["name"]}
        yield from file.get("findings", [])


def _size(size: Any) -> str:
    return ",".join(map(str, size)) if isinstance(size, Sequence) else str(size)


# ---- correct kernels ----------------------------------------------------------------------------


@dataclass
class Correct:
    """One text of correct kernels.  alarms: entries with a critical finding, with its rules; loud: high ones too."""

    name: str
    entries: int
    alarms: dict[str, set[str]] = field(default_factory=dict)
    loud: dict[str, set[str]] = field(default_factory=dict)


def correct(analyzer: Analyzer, name: str, text: str, launches: Mapping[str, Launch]) -> Correct:
    """False alarms of a text.  A finding of the file counts as one of an entry without a name."""
    row = Correct(name, len(entries(text)))
    for finding in ask(analyzer, Case(text, launches)):
        if finding.severity == "critical":
            row.alarms.setdefault(finding.entry, set()).add(finding.rule)
        if finding.severity in LOUD:
            row.loud.setdefault(finding.entry, set()).add(finding.rule)
    return row


# ---- traps --------------------------------------------------------------------------------------


@dataclass
class Silence:
    """One trap.  wrong: loud findings, and those of the rules that it is meant for.  other: the rest."""

    trap: Trap
    wrong: set[str] = field(default_factory=set)
    other: set[str] = field(default_factory=set)


def silence(analyzer: Analyzer, trap: Trap) -> Silence:
    row = Silence(trap)
    for finding in ask(analyzer, Case(trap.text, {trap.launch.entry: trap.launch})):
        meant = finding.rule in trap.silent or finding.severity in LOUD
        (row.wrong if meant else row.other).add(finding.rule)
    return row


# ---- mutants ------------------------------------------------------------------------------------


class Verdict(NamedTuple):
    """right: a right rule is new beside the origin; other: the rules that are new and not right."""

    mutant: Mutant
    right: bool
    other: frozenset[str]


class Judge:
    """Asks about mutants; of each origin once."""

    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer
        self.before: dict[Origin, Counter[str]] = {}

    def rules(self, origin: Origin, text: str) -> "Counter[str]":
        return Counter(f.rule for f in ask(self.analyzer, Case(text, {origin.entry: origin.launch})))

    def verdict(self, mutant: Mutant) -> Verdict:
        origin = mutant.origin
        if origin not in self.before:
            self.before[origin] = self.rules(origin, origin.text)
        new = self.rules(origin, mutant.text) - self.before[origin]
        right = any(rule in new for rule in mutant.fault.rules)
        return Verdict(mutant, right, frozenset(new) - set(mutant.fault.rules))


# ---- tables -------------------------------------------------------------------------------------


@dataclass
class Measured:
    """Everything that was measured; unconfirmed: mutants that the emulator runs without a difference, by fault."""

    correct: list[Correct] = field(default_factory=list)
    silence: list[Silence] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    unconfirmed: Counter[str] = field(default_factory=Counter)

    @property
    def alarms(self) -> tuple[int, int]:
        """Correct entries with a critical finding, and all."""
        return sum(len(row.alarms) for row in self.correct), sum(row.entries for row in self.correct)

    @property
    def silent(self) -> tuple[int, int]:
        return sum(not row.wrong for row in self.silence), len(self.silence)

    @property
    def caught(self) -> tuple[int, int]:
        """Of the faults that a text shows."""
        counted = [v for v in self.verdicts if v.mutant.fault.static]
        return sum(v.right for v in counted), len(counted)

    def bars(self) -> list[tuple[str, int, int, bool]]:
        """Each bar that was measured: what is counted, how many, of how many, and whether it is kept."""
        alarms, total = self.alarms
        silent, traps = self.silent
        caught, mutants = self.caught
        every = [
            ("correct entries with a critical finding", alarms, total, alarms <= ALARMS * total),
            ("traps that are silent", silent, traps, silent == traps),
            ("mutants that a right rule finds", caught, mutants, caught >= CAUGHT * mutants),
        ]
        return [bar for bar in every if bar[2]]

    def tables(self) -> str:
        """Markdown."""
        parts = [_table(("bar", "measured", "of", "share", ""), [
            (name, f"{count:,}", f"{total:,}", _share(count, total), "kept" if good else "MISSED")
            for name, count, total, good in self.bars()
        ])]  # fmt: skip
        if self.correct:
            rows = [(r.name, str(r.entries), str(len(r.alarms)), str(len(r.loud)), _named(r.alarms or r.loud))
                    for r in self.correct]  # fmt: skip
            parts.append(_table(("correct kernels", "entries", "critical", "high or critical", "which"), rows))
        if self.silence:
            rows = [(r.trap.name, "silent" if not r.wrong else "FALSE ALARM", " ".join(sorted(r.wrong)),
                     " ".join(sorted(r.other))) for r in self.silence]  # fmt: skip
            parts.append(_table(("trap", "", "false alarms", "other findings"), rows))
        if self.verdicts:
            parts += [self._faults(), self._rules()]
        return "\n\n".join(parts)

    def _faults(self) -> str:
        rows = []
        for fault in FAULTS.values():
            own = [v for v in self.verdicts if v.mutant.fault is fault]
            others = Counter(rule for v in own if not v.right for rule in v.other)
            right, other = sum(v.right for v in own), sum(not v.right and bool(v.other) for v in own)
            rows.append((
                fault.id + ("" if fault.static else " *"), " ".join(fault.rules), str(len(own)), str(right),
                _share(right, len(own)), str(other), str(len(own) - right - other), str(self.unconfirmed[fault.id]),
                " ".join(rule for rule, _ in others.most_common(3)),
            ))  # fmt: skip
        head = ("fault", "right rules", "mutants", "right", "share", "another rule", "missed", "unconfirmed", "others")
        return _table(head, rows) + "\n\n\\* A text does not show this fault; it counts for no bar."

    def _rules(self) -> str:
        counted = [v for v in self.verdicts if v.mutant.fault.static]
        rows = []
        for rule in dict.fromkeys(f.rules[0] for f in FAULTS.values() if f.static):
            own = [v for v in counted if v.mutant.fault.rules[0] == rule]
            right = sum(v.right for v in own)
            rows.append((rule, str(len(own)), str(right), _share(right, len(own))))
        return _table(("rule", "mutants", "right", "share"), rows)

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "bars": [{"bar": b, "count": c, "of": t, "kept": k} for b, c, t, k in self.bars()],
            "correct": [{"name": r.name, "entries": r.entries, "critical": {k: sorted(v) for k, v in r.alarms.items()},
                         "loud": {k: sorted(v) for k, v in r.loud.items()}} for r in self.correct],
            "traps": [{"trap": r.trap.name, "wrong": sorted(r.wrong), "other": sorted(r.other)} for r in self.silence],
            "mutants": [{"fault": v.mutant.fault.id, "mutant": v.mutant.name, "proof": v.mutant.proof,
                         "right": v.right, "other": sorted(v.other)} for v in self.verdicts],
        }  # fmt: skip


def _share(count: int, total: int) -> str:
    return f"{count / total:.1%}" if total else "-"


def _named(found: Mapping[str, set[str]]) -> str:
    return "; ".join(f"{entry or 'file'}: {' '.join(sorted(rules))}" for entry, rules in sorted(found.items()))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
