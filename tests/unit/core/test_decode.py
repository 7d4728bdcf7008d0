"""attention_decode with sinks, and with sequences of very different lengths, on every backend of the host."""

import numpy as np
import pytest
import trueno
from unit.attention import by_torch
from unit.caches import problem
from unit.core.test_caches import BACKENDS, SHAPES


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", ["f32", "f16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_decode_with_sinks_against_pytorch(backend, form, shape):
    rng = np.random.default_rng([2, *shape])
    for options in ({}, {"window": 33, "softcap": 3.0}):
        (q, k, v, table, lengths), keys, values = problem(rng, shape, form)
        sinks = (3 * rng.normal(size=shape[2])).astype(np.float32)
        sinks[0] = -np.inf
        with trueno.use(backend):
            y = trueno.attention_decode_sinks(q, k, v, table, lengths, sinks, **options)
        for i, length in enumerate(lengths):
            at = table[i, np.arange(length) // shape[7]], np.arange(length) % shape[7]
            want = by_torch(q[i], keys[at], values[at], causal=True, **options, sinks=sinks)
            np.testing.assert_allclose(y[i], want, rtol=0, atol=6e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_long_sequence_among_short_ones(backend):
    """And in a batch that is replayed while another one becomes the long one, and all of them long."""
    rng = np.random.default_rng(4)
    (q, k, v, _, _), keys, values = problem(rng, (70, 1, 4, 2, 16, 16, 1, 1400, 1), "f32")
    table, lengths = np.zeros((70, 1), np.int64), np.full(70, 3)
    with trueno.Batch(backend) as b:
        y = b.attention_decode(*(b.upload(x) for x in (q, trueno.Pages(k), trueno.Pages(v), table, lengths)))
        for long, most in (([0], 1400), ([0], 1400), ([69], 1400), ([7, 8], 900), (range(70), 1400), ([5], 0)):
            lengths[:] = 3
            lengths[list(long)] = most
            b.execute()
            for i in (0, 5, 7, 8, 69):
                want = by_torch(q[i], keys[0, : lengths[i]], values[0, : lengths[i]], causal=True) if lengths[i] else 0
                np.testing.assert_allclose(b.read(y)[i], want, rtol=0, atol=6e-6)
