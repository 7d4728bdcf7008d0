"""Thousands of decoded tokens on a real GPU against a forward pass in float64: `pytest -m gpu`."""

import numpy as np
import pytest
import trueno
from seeds import fresh_seed

from examples.qwen2.checkpoint import Checkpoint
from examples.qwen2.model import Model
from examples.qwen2.synthesize import synthesize

from .oracle import logits, nmse

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not trueno.backends()["cuda"].available, reason="this machine has no GPU for CUDA"),
]

BARS = {("f32", "float32"): 1e-6, ("f32", "float16"): 3e-6, ("q8", "float16"): 2e-3}
"""Of the logits, relative to their mean square, by activations and cache.

Keys and values in float16 cost 1.1e-6 after 2 000 tokens, and activations in ggml's blocks of 256 cost 9e-4, on the
CPU too.
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("long") / "long.gguf"
    synthesize(str(path), "small")
    return path


@pytest.fixture
def rng():
    print(f"seed {(seed := fresh_seed())}")
    return np.random.default_rng(seed)


def decoded(model, sequences):
    """Logits [tokens, sequences, vocabulary] of sequences [sequences, tokens], one token of each after the other."""
    first = model.cache(sequences.shape[1] + 1, len(sequences))
    caches = [first, *(first.fork() for _ in sequences[1:])]
    rows = [model.decode(column, caches) for column in sequences.T.tolist()]
    for cache in caches:
        cache.release()
    return np.stack(rows)


@pytest.mark.parametrize(("activations", "cache"), BARS)
def test_two_thousand_tokens(path, rng, activations, cache):
    model, most = Model(Checkpoint(path), "cuda", activations, cache=cache), BARS[activations, cache]
    tokens = rng.integers(model.config.vocabulary, size=2000)
    got, exact = decoded(model, tokens[None])[:, 0], logits(path, tokens.tolist())
    error, last = nmse(got, exact), nmse(got[-100:], exact[-100:])
    print(f"{activations}, {cache}: NMSE {error:.2e}, of the last hundred tokens {last:.2e}")
    assert np.isfinite(got).all() and error <= most and last <= 2 * most


@pytest.mark.parametrize(("activations", "cache"), [*BARS][1:])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 12, 16, 32, 48])
def test_every_number_of_sequences(path, rng, count, activations, cache):
    model = Model(Checkpoint(path), "cuda", activations, cache=cache)
    sequences = rng.integers(model.config.vocabulary, size=(count, 24))
    got = decoded(model, sequences)
    worst = max(nmse(got[:, i], logits(path, row.tolist())) for i, row in enumerate(sequences))
    print(f"{count} sequences, {activations}: worst NMSE {worst:.2e}")
    assert np.isfinite(got).all() and worst <= BARS[activations, cache]
