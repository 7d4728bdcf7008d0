"""The fake device, as the anomaly tests install it."""

from collections.abc import Iterator

import pytest
import trueno
from anomaly.conftest import cache, fake, packages, plugins, rng

__all__ = ["cache", "fake", "packages", "plugins", "python_functions", "rng"]


@pytest.fixture
def python_functions() -> Iterator[None]:
    """Calls run as Python functions, which is what a test looks at, and not through a backend's entries."""
    trueno.settings.override("TRUENO_DOOR", "off")
    yield
    trueno.settings.override("TRUENO_DOOR", None)
