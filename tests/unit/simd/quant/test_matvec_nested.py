"""quant_matvec inside of quant_matvec: threads are started by Python, where a signal's handler may multiply too."""

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")
from trueno.formats import FORMATS
from trueno.formats.samples import random_rows
from trueno_simd.threads import pool
from unit.simd.structured import structured_kernel


def test_a_product_in_the_middle_of_another_leaves_it_alone(monkeypatch):
    rng, f = np.random.default_rng(20261122), FORMATS["q4_k"]
    w = random_rows(f, (4096, f.row_bytes(1024)), rng)  # large enough for threads
    x, other = rng.standard_normal((2, 1024)).astype(np.float32)
    run = structured_kernel("quant_matvec", format="q4_k", activations="q8")
    wanted, got, inner = np.empty(4096, np.float32), np.empty(4096, np.float32), []
    assert run(w, x, wanted) == 0
    start = pool.ensure_started

    def interrupted():
        if not inner:
            inner.append(np.empty(8, np.float32))
            assert run(w[:8], other, inner[0]) == 0
        return start()

    before = pool.count()
    try:
        pool.set_count(2)  # the next region starts its threads anew
        monkeypatch.setattr(pool, "ensure_started", interrupted)
        assert run(w, x, got) == 0
    finally:
        pool.set_count(before)
    assert inner, "nothing came between"
    assert np.array_equal(got, wanted)
