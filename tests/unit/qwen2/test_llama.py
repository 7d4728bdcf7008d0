"""The example engine against llama.cpp on the same files, where llama-cpp-python is installed."""

import numpy as np
import pytest
from unit.qwen2.files import all_logits, changed, loaded, tiny
from unit.qwen2.oracle import nmse

from benchmarks.peers import llama
from examples.qwen2.tokenizer import Text

pytestmark = pytest.mark.skipif(llama.library() is None, reason="llama-cpp-python is not installed")
TOKENS = np.random.default_rng(6).integers(1024, size=48).tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.mark.parametrize("architecture", ["qwen2", "llama"])
def test_logits_of_float_weights(folder, architecture):
    path = tiny(folder, "f32", architecture)
    with llama.Engine(path, threads=1, kind=llama.F32, flash=False) as engine:
        assert nmse(all_logits(loaded(path), TOKENS), engine.feed(TOKENS)) < 1e-9


@pytest.mark.parametrize("scaling", ["linear", "yarn"])
def test_logits_with_scaled_rotations(folder, scaling):
    keys = {"type": scaling, "factor": 4.0, "original_context_length": 64}
    path = changed(tiny(folder), {f"qwen2.rope.scaling.{key}": value for key, value in keys.items()})
    with llama.Engine(path, threads=1, kind=llama.F32, flash=False) as engine:
        assert nmse(all_logits(loaded(path), TOKENS), engine.feed(TOKENS)) < 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_greedy_tokens_where_the_margin_exceeds_the_error(folder, seed):
    path = tiny(folder, "q4_k_m", seed=seed)
    model, cache, compared = loaded(path), None, 0
    with llama.Engine(path, threads=1, kind=llama.F32, flash=False) as engine:
        theirs = engine.feed(TOKENS)
        ours = all_logits(model, TOKENS)
        assert nmse(ours, theirs) < 3e-3
        cache = model.cache()
        model.prefill(TOKENS, cache)
        token = int(theirs[-1].argmax())
        for _ in range(24):
            theirs, ours = engine.feed([token])[0], model.decode([token], [cache])[0]
            second, first = np.partition(theirs, -2)[-2:]
            if first - second > 2 * np.abs(ours - theirs).max():
                assert ours.argmax() == theirs.argmax()
                compared += 1
            token = int(theirs.argmax())
    assert compared >= 4


def test_tokens_of_a_text(folder):
    path = tiny(folder)
    text = Text(loaded(path).checkpoint.metadata)
    samples = [
        "The other one, isn't it?\n\n  12345 ",
        "ÄÖ ü 漢字 🎉\t\r\n x",
        "<|im_start|>user\nat in on<|im_end|>",
        "",
    ]
    with llama.Engine(path, threads=1) as engine:
        for sample in samples:
            assert text.encode(sample) == engine.tokenized(sample)
            assert text.tokenizer.decode(text.encode(sample), skip_special_tokens=False) == sample
