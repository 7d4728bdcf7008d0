"""The gates in order, and their runs."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from time import perf_counter
from typing import Any

from trueno import hooks
from trueno.errors import ParameterError, suggestion
from trueno.qa.measurement import GateFailed, GateSkipped, Measurement

Check = Callable[[Measurement], None]

TITLES = {
    "F-TRUENO-001": "The best backend is not scalar",
    "F-TRUENO-002": "Q4_K dequantizes as in ggml",
    "F-TRUENO-003": "One source of quantization for every plugin",
    "F-TRUENO-004": "PTX compiles, runs, and decodes more than 10 tokens/s",
    "F-TRUENO-005": "A guard stops a NaN",
    "F-TRUENO-006": "100 elements never reach a GPU unless it is named",
    "F-TRUENO-007": "Row- and column-major Q4_K differ",
    "F-TRUENO-008": "The WGSL matmul is right when run",
    "F-TRUENO-009": "Six or more pairs of batched and single kernels agree",
    "F-TRUENO-010": "Batched Q4_K: vectors in registers, no ctaid.y",
    "F-TRUENO-011": "Batched rms_norm: rows along ctaid.y",
    "F-TRUENO-012": "ptx-map: 12 steps, 338 launches, sources that exist",
    "F-PTX-EXPLAIN-001": "The analysis of vector_add is right",
    "F-PTX-EXPLAIN-002": "64-bit addresses of shared memory are found",
    "F-PTX-EXPLAIN-003": "The JSON report parses strictly",
    "F-PTX-EXPLAIN-004": "--strict finds at least what the default finds",
    "F-PTX-EXPLAIN-005": "A missing file: a message, and an exit code",
}
"""Every gate, in the order of the report."""
CORE = ("choice", "blocks", "guard", "products")
"""Modules of this package that declare gates."""
ABSENT = "no installed plugin provides this gate. Install: pip install 'trueno[cuda]'"


@dataclass(frozen=True, slots=True)
class Gate:
    """id: as `F-TRUENO-001`.  check: runs it, or None where no installed plugin provides it."""

    id: str
    title: str
    check: Check | None = None

    @property
    def doc(self) -> str:
        """What the gate does, from its function."""
        return (self.check.__doc__ or "").strip() if self.check else ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """result: passed, failed or skipped.  reason: a sentence, of a gate that did not pass."""

    id: str
    title: str
    result: str
    reason: str
    measured: dict[str, Any]
    seconds: float

    @property
    def record(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {name: getattr(self, name) for name in ("id", "title", "result", "reason", "measured", "seconds")}


@dataclass(slots=True)
class Gates:
    """Collects gates: the argument of the function that an entry point of the group `trueno.gates` names."""

    checks: dict[str, Check] = field(default_factory=dict)

    def add(self, id: str, check: Check) -> None:  # noqa: A002 - the gate's own word
        """Add a gate, whose title is the table's, or the docstring's first line; ParameterError if there is one."""
        if id in self.checks:
            raise ParameterError(f"qa: the gate {id} is declared twice")
        self.checks[id] = check


own = Gates()
"""The core's gates."""


def gate(id: str) -> Callable[[Check], Check]:  # noqa: A002
    """Declare a function of the core as a gate."""

    def declare(check: Check) -> Check:
        own.add(id, check)
        return check

    return declare


def gates() -> list[Gate]:
    """Every gate in order; those of the table that no plugin provides have no check.  Loads the plugins' gates."""
    return collected(hooks.gates(Gates))


def collected(plugins: Iterable[tuple[str, Gates]]) -> list[Gate]:
    """The core's gates and those of plugins, by name."""
    for name in CORE:
        import_module(f"trueno.qa.{name}")
    every = dict(own.checks)
    for plugin, added in plugins:
        for name, check in added.checks.items():
            if name in every:
                hooks.report(f'hooks: the plugin "{plugin}" brings the gate {name}, which exists already')
            else:
                every[name] = check
    rest = [Gate(name, _title(check), check) for name, check in every.items() if name not in TITLES]
    return [*(Gate(name, title, every.get(name)) for name, title in TITLES.items()), *rest]


def chosen(ids: Iterable[str]) -> list[Gate]:
    """The gates with these IDs, in the order of the report; all for none.  ParameterError for an unknown one."""
    every = gates()
    wanted = [i.strip().upper() for i in ids]
    known = [one.id for one in every]
    for given in wanted:
        if given not in known:
            hint = suggestion(given, known) or f"; the gates are {known[0]} to {known[-1]}"
            raise ParameterError(f"qa: no gate is called {given!r}{hint}")
    return [one for one in every if one.id in wanted or not wanted]


def run(some: Iterable[Gate]) -> Iterator[Outcome]:
    """Run gates one after the other.  An unexpected exception is a failure, too."""
    for one in some:
        measurement, start = Measurement(), perf_counter()
        result, reason = "passed", ""
        if one.check is None:
            result, reason = "skipped", ABSENT
        else:
            try:
                one.check(measurement)
            except GateSkipped as skipped:
                result, reason = "skipped", str(skipped)
            except GateFailed as failed:
                result, reason = "failed", str(failed)
            except Exception as error:
                result, reason = "failed", f"{type(error).__name__}: {error}"
        if result == "passed" and not measurement.facts:
            result, reason = "failed", "the gate measured nothing"
        yield Outcome(one.id, one.title, result, reason, measurement.facts, perf_counter() - start)


def _title(check: Check) -> str:
    return (check.__doc__ or check.__name__).strip().partition("\n")[0].rstrip(".")
