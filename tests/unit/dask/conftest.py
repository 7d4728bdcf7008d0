"""Dask computes in this thread, so that a test is fast and its errors are plain."""

from collections.abc import Iterator

import pytest

dask = pytest.importorskip("dask", reason="Dask is not installed: pip install 'trueno[dask]'")


@pytest.fixture(autouse=True)
def synchronous() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield
