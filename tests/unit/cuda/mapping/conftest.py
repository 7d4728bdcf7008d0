"""Random numbers for the tests of `trueno ptx-map`."""

import numpy as np
import pytest
from seeds import fresh_seed


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator whose seed is printed; pytest shows it when the test fails."""
    seed = fresh_seed()
    print(f"seed {seed}")
    return np.random.default_rng(seed)
