"""Random numbers for the tests of `trueno ptx-map`."""

import numpy as np
import pytest


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator whose seed is printed; pytest shows it when the test fails."""
    seed = int(np.random.SeedSequence().entropy) % 2**32
    print(f"seed {seed}")
    return np.random.default_rng(seed)
