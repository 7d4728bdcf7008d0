"""Labelled mutants: a fault put into a correct kernel, at a place that a seed draws, and confirmed."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from . import faults_barriers, faults_control, faults_memory  # noqa: F401 - they fill FAULTS
from .faults import FAULTS, Edits, Fault, applied
from .launches import run
from .origins import SEED, Origin

SLOWER = 20
"""A mutant may take so many times the steps of its origin, and STEPS more."""
STEPS = 3000


@dataclass(frozen=True)
class Mutant:
    """proof: what shows that the mutant is wrong; empty if the emulator finds nothing, and it may be right."""

    fault: Fault
    origin: Origin
    text: str
    line: int
    proof: str = ""

    @property
    def name(self) -> str:
        return f"{self.fault.id} in {self.origin.name}, line {self.line}"


def places(fault: Fault, origin: Origin) -> list[Edits]:
    """Where a fault fits."""
    return [edits for edits in fault.find(origin.kernel) if edits]


def mutants(
    origins: Iterable[Origin], seed: int, per_fault: int, kinds: Sequence[str] | None = None
) -> Iterator[Mutant]:
    """Of every kind of fault up to `per_fault` mutants, drawn from all places of all origins; not yet confirmed.

    A kind that fits at a thousand places so counts no more than one that fits at twenty.
    """
    chosen = [fault for fault in FAULTS.values() if kinds is None or fault.id in kinds]
    found: dict[str, list[tuple[Origin, Edits]]] = {fault.id: [] for fault in chosen}
    for origin in origins:
        for fault in chosen:
            found[fault.id] += [(origin, edits) for edits in places(fault, origin)]
    for fault in chosen:
        rng = random.Random(f"{seed} {fault.id}")
        fits = found[fault.id]
        for origin, edits in rng.sample(fits, min(per_fault, len(fits))):
            line = origin.text.count("\n", 0, min(edit.start for edit in edits)) + 1
            yield Mutant(fault, origin, applied(origin.kernel, edits), line)


def confirmed(mutant: Mutant) -> Mutant:
    """The mutant with its proof."""
    return Mutant(mutant.fault, mutant.origin, mutant.text, mutant.line, proof(mutant))


def proof(mutant: Mutant) -> str:
    """What goes wrong on the emulator; else "by construction", if that is how the fault is confirmed."""
    if mutant.fault.by == "construction":
        return "by construction"
    origin = mutant.origin
    right = origin.outcome
    outcome, _ = run(mutant.text, origin.entry, origin.launch, SEED, right.steps * SLOWER + STEPS)
    if outcome.refused:
        return ""
    if outcome.failed:
        return outcome.failed
    if outcome.kinds - right.kinds:
        return ", ".join(sorted(outcome.kinds - right.kinds))
    same = all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
               for a, b in zip(outcome.results, right.results, strict=True))  # fmt: skip
    return "" if same else "wrong result"
