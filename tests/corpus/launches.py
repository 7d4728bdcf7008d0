"""How a kernel is launched on the emulator, and what comes out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from trueno.errors import TruenoError
from trueno_cuda.ptx.emulate import LaunchError, Module, StepLimit

Array = np.ndarray
MOST_STEPS = 200_000


class Work(NamedTuple):
    """args: of one launch.  wants: by the place of an argument, what NumPy says it holds afterwards."""

    args: list[Any]
    wants: Mapping[int, Array] = {}
    rtol: float = 0.0
    atol: float = 0.0


@dataclass(frozen=True)
class Launch:
    """make: the arguments, drawn at random.  entry: a part of the kernel's name, for those that C++ mangles."""

    entry: str
    grid: Any
    block: Any
    make: Callable[[np.random.Generator], Work]
    shared: int = 0
    cluster: Any = None


@dataclass
class Outcome:
    """What became of a launch.  kinds: of the findings, risks among them.  results: the arrays afterwards.

    failed: the error, where the launch did not end.  refused: the error, where the text could not even be loaded.
    """

    kinds: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    results: list[Array] = field(default_factory=list)
    failed: str = ""
    refused: str = ""
    steps: int = 0

    @property
    def clean(self) -> bool:
        return not (self.kinds or self.failed or self.refused)


LAUNCHES: dict[tuple[str, str], Launch] = {}
"""By source (`reductions`) and name of the Python function, which is the kernel's."""


def launch(grid: Any, block: Any, **options: Any) -> Callable[[Callable[[np.random.Generator], Work]], Launch]:
    """Declare a function of the generator as the launch of the kernel of that name."""

    def register(make: Callable[[np.random.Generator], Work]) -> Launch:
        source = make.__module__.rpartition(".launch_")[2]
        entry = options.pop("entry", make.__name__)
        LAUNCHES[source, make.__name__] = Launch(entry, grid, block, make, **options)
        return LAUNCHES[source, make.__name__]

    return register


def load() -> dict[tuple[str, str], Launch]:
    """All launches."""
    for path in sorted(Path(__file__).parent.glob("launch_*.py")):
        import_module(f"{__package__}.{path.stem}")
    return LAUNCHES


def run(text: str, entry: str, one: Launch, seed: int, most_steps: int = MOST_STEPS) -> tuple[Outcome, Work]:
    """Launch an entry of a text, with shadow memory; the arguments follow from the seed."""
    work = one.make(np.random.default_rng(seed))
    outcome = Outcome()
    try:
        module = Module(text)
        module.kernel(entry)
    except TruenoError as error:
        outcome.refused = str(error)
        return outcome, work
    try:
        report = module.launch(
            entry, one.grid, one.block, work.args, one.shared, one.cluster, traffic=False, max_steps=most_steps
        )
    except StepLimit:
        outcome.failed = "it does not end"
    except LaunchError as error:
        outcome.failed = f"it cannot be launched: {error}"
    except TruenoError as error:
        outcome.failed = str(error)
    else:
        outcome.kinds = {finding.kind for finding in report.findings}
        outcome.errors = [str(finding) for finding in report.findings]
        outcome.steps = report.steps
        if not report.completed:
            outcome.failed = "it does not complete"
    outcome.results = [a for a in work.args if isinstance(a, np.ndarray)]
    return outcome, work


def wrong(work: Work) -> str:
    """Which argument differs from NumPy's; empty if all are right."""
    for place, want in work.wants.items():
        value = np.asarray(work.args[place])
        good = np.allclose(value, want, rtol=work.rtol, atol=work.atol) if work.rtol or work.atol else (value == want)
        if not np.all(good):
            return f"argument {place} is {value.ravel()[:8]}, not {np.asarray(want).ravel()[:8]}"
    return ""


def floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def ints(rng: np.random.Generator, low: int, high: int, *shape: int) -> Array:
    return rng.integers(low, high, shape).astype(np.int32)


def zeros(*shape: int, dtype: Any = np.float32) -> Array:
    return np.zeros(shape, dtype)
