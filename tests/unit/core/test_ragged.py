"""attention_ragged on every backend of the host: each sequence as PyTorch computes it alone, in float64."""

import numpy as np
import pytest
import trueno
from hypothesis import given, settings
from hypothesis import strategies as st
from trueno.errors import ParameterError, ShapeError
from unit.attention import by_torch

BACKENDS = [name for name in ("reference", "scalar", "simd") if name in trueno.backends()]
ALLOWED = [(np.float32, 6e-6), (np.float64, 2e-14)]
SEQUENCES = {  # queries and keys of each
    "prompts": [(48, 48), (5, 5), (130, 130), (1, 1)],
    "decoding": [(1, 300), (1, 7), (1, 1), (1, 150)],
    "mixed": [(1, 90), (70, 200), (0, 5), (200, 70), (3, 0), (17, 17)],
    "one": [(100, 60)],
}


def problem(rng, lengths, hq, hk, d, e, before=0, behind=0):
    """Operands in float64, with queries and keys of no sequence before and behind."""
    of_q, of_k = (
        before + np.concatenate([np.zeros(1, int), np.cumsum([x[i] for x in lengths], dtype=int)]) for i in (0, 1)
    )
    q, k, v = (rng.normal(size=(o[-1] + behind, h, n)) for o, h, n in ((of_q, hq, d), (of_k, hk, d), (of_k, hk, e)))
    return q, k, v, of_q, of_k


def one_by_one(q, k, v, of_q, of_k, **given):
    """By PyTorch, sequence after sequence."""
    y = np.zeros((*q.shape[:2], v.shape[-1]))
    for i in range(len(of_q) - 1):
        own, seen = slice(*of_q[i : i + 2]), slice(*of_k[i : i + 2])
        if len(q[own]) and len(k[seen]):
            y[own] = by_torch(q[own], k[seen], v[seen], **given)
    return y


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("heads", [(4, 2, 32, 32), (3, 1, 7, 40)], ids=str)
def test_against_pytorch(backend, name, heads):
    rng = np.random.default_rng([9, *heads])
    wide = problem(rng, SEQUENCES[name], *heads, before=3, behind=2)
    for options in ({}, {"causal": True}, {"causal": True, "window": 33}, {"window": 20, "softcap": 3.0, "scale": 0.4}):
        for dtype, allowed in ALLOWED:
            q, k, v = (x.astype(dtype) for x in wide[:3])
            with trueno.use(backend):
                y = trueno.attention_ragged(q, k, v, *wide[3:], **options)
            assert y.dtype == dtype
            np.testing.assert_allclose(y, one_by_one(q, k, v, *wide[3:], **options), rtol=0, atol=allowed)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_random_sequences(seed):
    rng = np.random.default_rng(seed)
    lengths = [(int(rng.choice([0, 1, 2, 9, 60, 150])), int(rng.choice([0, 1, 5, 33, 140, 400]))) for _ in
               range(rng.integers(0, 9))]  # fmt: skip
    hk, group = int(rng.integers(1, 4)), int(rng.integers(1, 9))
    wide = problem(rng, lengths, hk * group, hk, *(int(n) for n in rng.integers(1, 70, 2)), *rng.integers(0, 60, 2))
    options = {"causal": bool(rng.integers(2)), "window": int(rng.choice([0, 1, 40]))}
    q, k, v = (x.astype(np.float32) for x in wide[:3])
    want = one_by_one(q, k, v, *wide[3:], **options)
    for backend in BACKENDS[1:]:
        with trueno.use(backend):
            y = trueno.attention_ragged(q, k, v, *wide[3:], **options)
        np.testing.assert_allclose(y, want, rtol=0, atol=6e-6, err_msg=f"{backend}, seed {seed}")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_batch_follows_its_offsets(backend):
    """One recording serves other sequences: the offsets are uploads, and rows behind the last one are 0."""
    rng = np.random.default_rng(4)
    q, k, v = (rng.normal(size=shape).astype(np.float32) for shape in ((90, 4, 16), (120, 2, 16), (120, 2, 16)))
    of_q, of_k = np.array([0, 30, 90]), np.array([0, 60, 120])
    with trueno.Batch(backend) as b:
        handles = [b.upload(x) for x in (q, k, v, of_q, of_k)]
        y = b.attention_ragged(*handles, causal=True)
        for first, second in ((30, 60), (5, 6), (90, 90), (1, 89)):
            of_q[1:], of_k[1:] = (first, second), (first + 30, second + 30)
            for h, x in zip(handles[3:], (of_q, of_k), strict=True):
                b.update(h, x)
            b.execute()
            want = one_by_one(q, k, v, of_q, of_k, causal=True)
            np.testing.assert_allclose(b.read(y), want, rtol=0, atol=6e-6)
            assert not b.read(y)[second:].any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_int32_offsets(backend):
    rng = np.random.default_rng(5)
    q, k, v, of_q, of_k = problem(rng, SEQUENCES["mixed"], 2, 1, 16, 16)
    with trueno.use(backend):
        y = trueno.attention_ragged(q, k, v, of_q.astype(np.int32), of_k.tolist(), causal=True)
        np.testing.assert_array_equal(y, trueno.attention_ragged(q, k, v, of_q, of_k, causal=True))


@pytest.mark.parametrize("backend", BACKENDS)
def test_wrong_offsets_are_named(backend):
    q, k, v = (np.ones(shape, np.float32) for shape in ((5, 2, 4), (9, 1, 4), (9, 1, 3)))
    with trueno.use(backend):
        for of_q, of_k, message in (
            ([0, 6], [0, 9], r"offsets_q\[1\] is 6, but q has 5 tokens; give offsets from 0 to 5"),
            ([0, 5], [-1, 9], r"offsets_k\[0\] is -1, but k has 9 tokens"),
            ([0, 3, 2, 5], [0, 1, 2, 9], r"offsets_q\[2\] is 2, but offsets_q\[1\] is 3; offsets do not decrease"),
            ([0, 3, 3, 5], [0, 1, 9, 8], r"offsets_k\[3\] is 8, but offsets_k\[2\] is 9"),
        ):
            with pytest.raises(ParameterError, match=f"attention_ragged: {message}"):
                trueno.attention_ragged(q, k, v, of_q, of_k)
        with pytest.raises(ShapeError, match=r"attention_ragged: offsets_k\[n\] is 3, but offsets_q\[n\] is 2"):
            trueno.attention_ragged(q, k, v, [0, 5], [0, 4, 9])
        with pytest.raises(ShapeError, match="attention_ragged: n is 0, but n >= 1 must hold"):
            trueno.attention_ragged(q, k, v, np.zeros(0, int), np.zeros(0, int))
        none = trueno.attention_ragged(q, k, v, [2], [3])
    assert none.shape == (5, 2, 3) and not none.any()
