"""The results of the tests: a matrix for people, JSON for machines."""

import os
import platform
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import trueno
from trueno.discovery import registry
from trueno.discovery.protocol import Accuracy
from trueno.errors import TruenoError
from trueno.escape import dumps
from trueno.ops import TABLE
from trueno.testing.rates import OFF
from trueno.text import columns, duration

FORMAT = 1
"""Version of the JSON's format."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One test's outcome; op and dtype are empty for tests of the whole backend."""

    test: str
    backend: str
    op: str
    dtype: str
    outcome: str
    message: str


@dataclass
class Ledger:
    """Everything that the tests report, by backend."""

    outcomes: list[Outcome] = field(default_factory=list)
    values: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    rates: list[dict[str, Any]] = field(default_factory=list)
    remarks: list[tuple[str, str]] = field(default_factory=list)

    def add(self, report: Any) -> None:
        """Record a `TestReport`; tests outside of the kit are ignored."""
        properties = dict(report.user_properties)
        row = properties.get("trueno.row")
        if row is None or (report.when != "call" and report.outcome == "passed"):
            return
        self.outcomes.append(Outcome(message=_message(report), outcome=report.outcome, **row))
        for key, value in report.user_properties:
            if key == "trueno.values" and report.when == "call":
                self.values[row["backend"], value["op"], value["dtype"]] = value
            elif key == "trueno.rates" and report.when == "call":
                self.rates.append(value)
            elif key == "trueno.remark" and report.when == "call":
                self.remarks.append((row["backend"], value))

    @property
    def backends(self) -> list[str]:
        """The judged backends, in the order of their tests."""
        return list(dict.fromkeys(o.backend for o in self.outcomes))

    def failures(self, backend: str) -> list[Outcome]:
        return [o for o in self.outcomes if o.backend == backend and o.outcome == "failed"]

    def judged(self, backend: str) -> bool:
        """Whether any op got a verdict, if ops were requested at all."""
        ends = [o.outcome for o in self.outcomes if o.backend == backend and o.op]
        return not ends or any(end != "skipped" for end in ends)

    def counts(self, backend: str) -> dict[str, int]:
        """How many tests passed, failed and were skipped."""
        ends = [o.outcome for o in self.outcomes if o.backend == backend]
        return {end: ends.count(end) for end in ("passed", "failed", "skipped")}

    def verdict(self, backend: str, op: str, dtype: str) -> str:
        """`pass`, `FAIL`, the code with which the backend rejects the op, or nothing if no test of it ran."""
        ends = [o for o in self.outcomes if (o.backend, o.op, o.dtype) == (backend, op, dtype)]
        if any(o.outcome == "failed" for o in ends):
            return "FAIL"
        if any(o.outcome == "passed" for o in ends):
            return "pass"
        match = re.search(r"rejects .* in \w+: (\w+)", ends[0].message) if ends else None
        return match[1] if match else "skipped" if ends else ""

    def json(self, *, seed: int, quick: bool) -> dict[str, Any]:
        """Everything, as plain data."""
        return {
            "format": FORMAT,
            "ok": bool(self.outcomes) and all(self.judged(b) and not self.failures(b) for b in self.backends),
            "trueno": trueno.__version__,
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "numpy": np.__version__,
            "platform": f"{platform.system()} {platform.machine()}",
            "seed": seed,
            "quick": quick,
            "backends": [self._backend(name) for name in self.backends],
        }

    def _backend(self, name: str) -> dict[str, Any]:
        rows = []
        pairs = {(o.op, o.dtype) for o in self.outcomes if o.backend == name and o.op}
        for op, dtype in sorted(pairs, key=lambda pair: (_row(pair[0]), pair[1])):
            judged = self.values.get((name, op, dtype), {})
            rows.append({"op": op, "dtype": dtype, "verdict": self.verdict(name, op, dtype)} | _without(judged))
        return {
            **facts(name),
            "counts": self.counts(name),
            "ops": rows,
            "failures": [
                {"test": o.test, "op": o.op, "dtype": o.dtype, "message": o.message} for o in self.failures(name)
            ],
            "tests": [{"test": o.test, "outcome": o.outcome} for o in self.outcomes if o.backend == name and not o.op],
            "rates": [
                _without(r) | {"ratio": r["measured"] / r["declared"]} for r in self.rates if r["backend"] == name
            ],
            "remarks": [text for backend, text in self.remarks if backend == name],
        }

    def write(self, path: Path, *, seed: int, quick: bool) -> None:
        """Write the JSON."""
        path.write_text(dumps(self.json(seed=seed, quick=quick), indent=2) + "\n", "utf-8")

    def lines(self, backend: str) -> list[str]:
        """The report for people."""
        info = facts(backend)
        head = f"{backend}: {info['distribution']} {info['version']}, {', '.join(info['devices']) or 'no device named'}"
        accuracy = info["accuracy"]
        named = accuracy.get("ulp") if isinstance(accuracy.get("ulp"), dict) else {}
        stated = "".join(f", {kind} {ulp}" for kind, ulp in named.items())
        flush = "" if accuracy.get("subnormals") else ", and flushes subnormals"
        limits = f"errors of {accuracy.get('default', 0)} ulp{stated}, and chains of {accuracy.get('chain')} additions"
        lines = [head, f"states {limits}{flush}", ""]
        lines += self._matrix(backend) + self._rates(backend)
        remarks = [f"remark: {text}" for name, text in self.remarks if name == backend]
        broken = [f"FAIL {o.test}" for o in self.failures(backend) if not o.op]
        counts = self.counts(backend)
        taken = {d: sum(self.verdict(backend, op, d) == "pass" for op in TABLE) for d in self._dtypes(backend)}
        total = ", ".join(f"{n} of {len(TABLE)} ops in {d}" for d, n in taken.items())
        end = f"does not conform: {counts['failed']} tests failed" if counts["failed"] else "conforms"
        if not counts["failed"] and not self.judged(backend):
            asked = ", ".join(dict.fromkeys(o.op for o in self.outcomes if o.backend == backend and o.op))
            end = f"cannot be judged: it takes none of these ops: {asked}"
        passed = f"{counts['passed']} tests passed, {counts['skipped']} skipped"
        return [*lines, *remarks, *broken, f"{backend} {end}; {passed}{'; ' + total if total else ''}"]

    def _dtypes(self, backend: str) -> list[str]:
        return sorted({o.dtype for o in self.outcomes if o.backend == backend and o.op})

    def _matrix(self, backend: str) -> list[str]:
        ops = sorted({o.op for o in self.outcomes if o.backend == backend and o.op}, key=_row)
        if not ops:
            return []
        dtypes, left = self._dtypes(backend), self._left(backend, ops)
        rows = [["op", *dtypes]] + [[op, *(self._cell(backend, op, d) for d in dtypes)] for op in ops if op not in left]
        lines = []
        if len(rows) > 1:
            lines.append(
                "a cell: verdict; the worst error, 1 being all that is allowed; the share of values that cannot"
            )
            lines.append("be judged, having no defined result; how many cases `supports` rejects, and which layouts")
            lines += columns(tuple(row) for row in rows)
        for reason in dict.fromkeys(left.values()):
            named = [op for op, what in left.items() if what == reason]
            why = "not judged" if reason == "skipped" else f"not taken, {reason}"
            lines.append(f"{why}: {len(named)} ops: {', '.join(named)}")
        return [*lines, ""]

    def _left(self, backend: str, ops: list[str]) -> dict[str, str]:
        """Ops that are skipped in every dtype, and the reason or reasons."""
        left = {}
        for op in ops:
            ends = {o.outcome for o in self.outcomes if (o.backend, o.op) == (backend, op)}
            if ends == {"skipped"}:
                words = {self.verdict(backend, op, d) for d in self._dtypes(backend)} - {""}
                left[op] = " or ".join(sorted(words))
        return left

    def _cell(self, backend: str, op: str, dtype: str) -> str:
        end, judged = self.verdict(backend, op, dtype), self.values.get((backend, op, dtype))
        if end == "pass" and judged:
            layouts = f" ({' '.join(judged['layouts'])})" if judged["layouts"] else ""
            declined = f", {judged['declined']} cases declined{layouts}" if judged["declined"] else ""
            return f"pass {judged['worst']:5.2f} {judged['free']:6.1%}{declined}"
        return end if end in ("pass", "FAIL", "") else f"– {end}"

    def _rates(self, backend: str) -> list[str]:
        rows = [r for r in self.rates if r["backend"] == backend]
        if not rows:
            return []
        lines = [("declared against measured", "declared", "measured", "")]
        for r in rows:
            ratio = r["measured"] / r["declared"]
            off = "" if 1 / OFF <= ratio <= OFF else "  off"
            what = f"{r['op']} {r['shapes']} {r['dtype']}"
            lines.append((what, duration(r["declared"]), duration(r["measured"]), f"×{ratio:.2f}{off}"))
        return [*columns(lines, right=(1, 2)), ""]


def _row(op: str) -> int:
    """An op's position in the table: results of several workers arrive in any order."""
    return list(TABLE).index(op)


def unwritable(path: Path) -> str:
    """Why a report cannot be written to `path`; "" if it can, as far as a check can tell."""
    if path.is_dir():
        return f"{path} is a folder; give the name of a file"
    if not path.parent.is_dir():
        return f"{path} cannot be written: there is no folder {path.parent}; make it, or give another path"
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        return f"{path} cannot be written: no permission; give another path"
    return ""


def facts(name: str) -> dict[str, Any]:
    """Facts about a backend that need no kernel.

    It is loaded if necessary: with several workers, the reporting process has judged nothing itself.
    """
    with suppress(TruenoError):
        registry.load(name)
    entry = registry.entries()[name]
    manifest, accuracy = entry.manifest, getattr(entry.backend, "accuracy", None)
    return {
        "name": name,
        "kind": entry.kind,
        "tier": entry.tier,
        "api": list(manifest.api) if manifest else [],
        "distribution": (manifest.distribution if manifest else "") or "trueno",
        "version": (manifest.version if manifest else "") or trueno.__version__,
        "path": manifest.path if manifest else "",
        "devices": [f"{d.name} {d.isa}".strip() for d in entry.devices],
        "accuracy": asdict(accuracy) if isinstance(accuracy, Accuracy) else {},
    }


def _without(row: dict[str, Any]) -> dict[str, Any]:
    """A row without blanks at its ends."""
    return {k: v for k, v in row.items() if k != "backend"}


def _message(report: Any) -> str:
    if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longrepr or "").removeprefix("AssertionError: ")
