"""The example engine against a float64 forward pass of the same file, and against itself without a cache."""

from contextlib import nullcontext

import numpy as np
import pytest
import trueno
from unit.qwen2.files import all_logits, changed, loaded, tiny
from unit.qwen2.oracle import logits, nmse

from examples.qwen2.checkpoint import EngineError

TOKENS = np.random.default_rng(5).integers(1024, size=40).tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.mark.parametrize("backend", [None, "simd", "scalar", "reference"])
@pytest.mark.parametrize("architecture", ["qwen2", "llama"])
def test_float32_weights(folder, architecture, backend):
    path = tiny(folder, "f32", architecture)
    with trueno.use(backend) if backend else nullcontext():
        assert nmse(all_logits(loaded(path, backend=backend), TOKENS), logits(path, TOKENS)) < 1e-9


@pytest.mark.parametrize("mixture", ["q4_k_m", "q8_0", "q5_1", "q2_k", "q3_k_l", "q6_k", "iq4_xs"])
def test_quantized_weights(folder, mixture):
    path = tiny(folder, mixture)
    exact = logits(path, TOKENS)
    assert nmse(all_logits(loaded(path, activations="f32"), TOKENS), exact) < 1e-6
    assert 1e-7 < nmse(all_logits(loaded(path), TOKENS), exact) < 3e-3


def test_a_matrix_of_its_own_for_the_output(folder):
    rng = np.random.default_rng(1)
    path = changed(tiny(folder), tensors={"output.weight": rng.standard_normal((1024, 256), np.float32)})
    assert nmse(all_logits(loaded(path), TOKENS), logits(path, TOKENS)) < 1e-9


def test_half_precision_and_mixed_formats(folder):
    with trueno.gguf.open(tiny(folder)) as file:
        tensors = {"blk.0.attn_q.weight": file["blk.0.attn_q.weight"].astype(np.float16)}
        tensors |= {"blk.1.attn_k.weight": trueno.quantize(file["blk.1.attn_k.weight"], "q8_0")}
        tensors |= {"blk.1.attn_q.weight": trueno.quantize(file["blk.1.attn_q.weight"], "q6_k")}
        tensors |= {"blk.0.attn_v.bias": None}
    path = changed(tiny(folder), tensors=tensors)
    assert nmse(all_logits(loaded(path, activations="f32"), TOKENS), logits(path, TOKENS)) < 1e-9


def test_linear_scaling(folder):
    keys = {"qwen2.rope.scaling.type": "linear", "qwen2.rope.scaling.factor": 4.0}
    path = changed(tiny(folder), keys)
    assert nmse(all_logits(loaded(path), TOKENS), logits(path, TOKENS)) < 1e-9
    assert nmse(logits(path, TOKENS), logits(tiny(folder), TOKENS)) > 1e-3


def test_llama3_scaling(folder):
    factor, theta = 32.0, 500_000.0
    rates = theta ** (-np.arange(0, 64, 2) / 64)
    lengths = 2 * np.pi / rates  # as in transformers' _compute_llama3_parameters
    smooth = (8192 / lengths - 1) / 3
    middle = (1 - smooth) * rates / factor + smooth * rates
    scaled = np.where(lengths > 8192, rates / factor, np.where(lengths < 8192 / 4, rates, middle))
    tensors = {"rope_freqs.weight": (rates / scaled).astype(np.float32)}
    path = changed(tiny(folder, "f32", "llama"), {"llama.rope.freq_base": theta}, tensors)
    assert nmse(all_logits(loaded(path), TOKENS), logits(path, TOKENS)) < 1e-9


# ---- caches


@pytest.fixture(scope="module", params=["f32", "q4_k_m"])
def model(folder, request):
    """Float activations: those of 8 bits differ where rounding does."""
    return loaded(tiny(folder, request.param), activations="f32")


def test_chunks_and_single_tokens_are_what_one_pass_computes(model):
    whole = all_logits(model, TOKENS)
    assert nmse(all_logits(model, TOKENS, chunk=7), whole) < 1e-9
    assert nmse(all_logits(model, TOKENS, chunk=1), whole) < 1e-9


def test_recorded_tokens_are_what_one_pass_computes(model):
    """The recording serves one sequence, then three of different lengths, and a shorter one again."""
    whole, first = all_logits(model, TOKENS), model.cache(40, 3)
    model.prefill(TOKENS[:3], first)
    for at in range(3, 30):
        assert nmse(model.decode([TOKENS[at]], [first]), whole[at]) < 1e-9
    step, caches = model.step, [first, first.fork(), first.fork()]
    caches[1].length, caches[2].length = 7, 1
    for _ in range(9):
        ends = [cache.length for cache in caches]
        assert nmse(model.decode([TOKENS[end] for end in ends], caches), whole[ends]) < 1e-9
    assert model.step is not step
    caches[2].release()
    for end in (39, 4, 5):
        caches[0].length = end
        assert nmse(model.decode([TOKENS[end]], caches[:1]), whole[end]) < 1e-9


def test_a_cache_that_forgets_and_one_that_forks(model):
    cache = model.cache()
    model.prefill(TOKENS, cache)
    cache.length = 11
    other = cache.fork()
    for tokens, c in ((TOKENS[:9], cache), (TOKENS[20:], other)):
        again = model.prefill(tokens, c, every=True)
        assert nmse(again, all_logits(model, TOKENS[:11] + tokens)[11:]) < 1e-9


def test_sequences_of_one_memory_do_not_see_each_other(model):
    """A token each, of forks that share pages: as each alone, and each writes to a page of its own."""
    first = model.cache(20, 3)
    model.prefill(TOKENS[:7], first)
    shared, caches = first.pages.used, [first, first.fork(), first.fork()]
    caches[2].length = 4
    last = model.decode(TOKENS[9:12], caches)
    starts = TOKENS[:7], TOKENS[:7], TOKENS[:4]
    alone = [all_logits(model, [*start, token])[-1] for start, token in zip(starts, TOKENS[9:12], strict=True)]
    assert nmse(last, np.stack(alone)) < 1e-9
    assert first.pages.used == 3 * shared
    for cache in caches[1:]:
        cache.release()
    assert first.pages.used == shared


def test_a_token_that_fails_leaves_the_sequences_as_they_were(model):
    first = model.cache(8, 2)
    model.prefill(TOKENS[:7], first)
    second = first.fork()
    second.length = 5
    for tokens, words in (([1, 1024], "token 1024 is unknown"), ([-1, 2], "token -1 is unknown")):
        with pytest.raises(EngineError, match=words):
            model.decode(tokens, [first, second])
    model.decode([1, 2], [first, second])
    with pytest.raises(trueno.OutOfMemory, match="the capacity is 8"):
        model.decode([1, 2], [first, second])
    assert (first.length, second.length) == (8, 6)
