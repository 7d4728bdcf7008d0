"""Fresh random numbers from one seed a run: its first lines show the seed, and TRUENO_TEST_SEED repeats it.

What a test draws follows from the run's seed and the test's own name: not from the tests beside it, nor from the worker
that it runs in.  CI takes the commit's seed, so that a failure there is the same failure here.
"""

import hashlib
import os
import random
from collections import Counter

VARIABLE = "TRUENO_TEST_SEED"

_run = str(random.SystemRandom().randrange(10**6))
_asked: Counter[str] = Counter()


def start(seed: str) -> None:
    """All that is drawn from now on follows from this seed."""
    global _run
    _run = seed
    _asked.clear()


def digest(*parts: object) -> int:
    """48 bits that follow from these words: Python's own hash differs from process to process."""
    text = " ".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "big")


def fresh_seed(name: str = "") -> int:
    """A number of 32 bits, another at each call.  A module that asks while it is imported gives its `__name__`."""
    name = name or os.environ.get("PYTEST_CURRENT_TEST", "")
    _asked[name] += 1
    return digest(_run, name, _asked[name]) >> 16
