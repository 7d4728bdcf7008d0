"""Indices in int32 take the fast path too, as a copy in int64."""

import numpy as np
import pytest
import trueno
from trueno.dispatch import host
from trueno.errors import ParameterError

BACKENDS = [name for name in ("reference", "scalar", "simd") if name in trueno.backends()]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_general_path_is_not_taken(backend, monkeypatch):
    rng = np.random.default_rng(0)
    x, positions = rng.normal(size=(7, 2, 16)).astype(np.float32), np.arange(7, dtype=np.int32)
    table, offsets = rng.normal(size=(9, 4)).astype(np.float32), np.array([0, 3, 7], np.int32)
    with trueno.use(backend):
        wanted = [
            trueno.rope(x, positions.astype(np.int64)),
            trueno.embedding_lookup(table, positions.astype(np.int64)),
            trueno.attention_ragged(x, x, x, offsets.astype(np.int64), offsets.astype(np.int64), causal=True),
        ]
        monkeypatch.setattr(host, "call", lambda *_: pytest.fail("the general path ran"))
        np.testing.assert_array_equal(trueno.rope(x, positions), wanted[0])
        np.testing.assert_array_equal(trueno.embedding_lookup(table, positions), wanted[1])
        np.testing.assert_array_equal(trueno.attention_ragged(x, x, x, offsets, offsets, causal=True), wanted[2])
        out = np.empty_like(x)
        assert trueno.rope(x, positions=positions, theta=1e4, out=out) is out
        np.testing.assert_array_equal(out, wanted[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_errors_stay(backend):
    x = np.zeros((3, 2, 4), np.float32)
    with trueno.use(backend):
        with pytest.raises(ParameterError, match=r"rope: positions\[1\] is -4; a position is 0 or more"):
            trueno.rope(x, np.array([0, -4, 1], np.int32))
        with pytest.raises(ParameterError, match=r"embedding_lookup: i\[0\] is 9"):
            trueno.embedding_lookup(x[0], np.array([9], np.int32))
        swapped = np.arange(3, dtype=">i4")
        np.testing.assert_array_equal(trueno.rope(x, swapped), trueno.rope(x, np.arange(3)))
