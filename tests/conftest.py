"""What all tests share: the sampling of long families, and a rest for the garbage collector."""

import gc
from importlib.util import find_spec

import pytest

# `trueno conformance`, called from here, has a configuration of its own, and nothing is sampled there.
pytest_plugins = ["sampling", "browser"] if find_spec("sampling") else []


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Thousands of collected tests are not garbage: a `gc.collect()` in a test need not look at them again.

    It took half a second of each such test, a minute of all.
    """
    gc.collect()
    gc.freeze()
