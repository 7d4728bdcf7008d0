"""The example engine against llama.cpp on the same files, where llama-cpp-python is installed."""

import ctypes
import random
from pathlib import Path

import numpy as np
import pytest
import trueno
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


# ---- pieces with scores, as in Llama 2

LETTERS, CONTROL = "▁abcdehlo.äé漢Ω", ("<unk>", "<s>", "</s>", "<|im_start|>", "[USER]")


def pieces(draw: random.Random, path: Path, **keys) -> Text:
    """A tokenizer of random pieces, in a file without tensors; scores rise and fall with no regard to lengths."""
    names = [*CONTROL[:3], *(f"<0x{byte:02X}>" for byte in range(256)), *LETTERS]
    while len(names) < 600:
        joint = draw.choice(names[259:]) + draw.choice(names[259:])
        names += [joint] * (len(joint) < 11 and joint not in names)
    scores = [-float(i) for i in range(len(names))]
    draw.shuffle(scores)
    metadata = {
        "model": "llama", "tokens": [*names, *CONTROL[3:]], "scores": np.array([*scores, 0, 0], np.float32),
        "token_type": np.array([2, 3, 3, *[6] * 256, *[1] * (len(names) - 259), 3, 4], np.int32),
        "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0, **keys,
    }  # fmt: skip
    trueno.gguf.write(
        path, {}, {"general.architecture": "llama"} | {f"tokenizer.ggml.{key}": x for key, x in metadata.items()}
    )
    with trueno.gguf.open(path) as file:
        return Text(file.metadata)


def sentence(draw: random.Random) -> str:
    kinds = (LETTERS[1:], LETTERS[1:], LETTERS[1:], (" ", "  ", "   "), "\n\tXYZ🎉▁ß\u200b", (*CONTROL, "<0x41>"))
    return "".join(draw.choice(draw.choice(kinds)) for _ in range(draw.randrange(60)))


@pytest.mark.parametrize("keys", [{}, {"add_space_prefix": False}, {"add_bos_token": False}])
def test_tokens_of_pieces_with_scores(tmp_path, keys):
    engine, seed = llama.library(), random.randrange(1 << 32)
    print("seed", seed)
    draw, path = random.Random(seed), tmp_path / "pieces.gguf"
    text = pieces(draw, path, **keys)
    loading = engine.llama_model_default_params()
    loading.vocab_only = True
    model = engine.llama_model_load_from_file(str(path).encode(), loading)
    vocabulary = engine.llama_model_get_vocab(model)
    for sample in ["", " ", *(sentence(draw) for _ in range(300))]:
        raw, room = sample.encode(), (ctypes.c_int32 * (2 * len(sample.encode()) + 8))()
        count = engine.llama_tokenize(vocabulary, raw, len(raw), room, len(room), True, True)
        assert text.encode(sample) == list(room[:count]), repr(sample)
    engine.llama_model_free(model)
