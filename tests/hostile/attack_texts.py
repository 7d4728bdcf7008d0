"""Damaged PTX: the parser and the analyzer read it, or say what is wrong with it."""

import numpy as np

from .attack import Tally
from .ptx_texts import case as text
from .ptx_texts import run

TEXTS = 200


def case(rng: np.random.Generator, backend: str, tally: Tally) -> None:
    for _ in range(TEXTS):
        number = int(rng.integers(1 << 48))
        tally.states += 1
        try:
            run(text(number))
        except Exception as error:
            raise AssertionError(f"python -m tests.hostile.ptx_texts --case {number}") from error
