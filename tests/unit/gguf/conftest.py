"""What every test of GGUF needs."""

import pytest
from anomaly.conftest import rng

__all__ = ["rng", "store"]

pytest.importorskip("gguf", reason="the gguf package is not installed: pip install 'trueno[gguf]'")


@pytest.fixture
def store(tmp_path):
    """Puts bytes into a file: its path."""

    def kept(raw, name="x.gguf"):
        path = tmp_path / name
        path.write_bytes(raw)
        return path

    return kept
