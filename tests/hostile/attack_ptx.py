"""Mutated PTX: the emulator reads, compiles and runs it, or says what is wrong with it."""

import numpy as np

from .attack import Tally
from .ptx_mutants import case as mutant
from .ptx_mutants import run

TEXTS = 50


def case(rng: np.random.Generator, backend: str, tally: Tally) -> None:
    for _ in range(TEXTS):
        number = int(rng.integers(1 << 48))
        tally.states += 1
        try:
            run(mutant(number))
        except Exception as error:
            raise AssertionError(f"python -m tests.hostile.ptx_mutants --case {number}") from error
