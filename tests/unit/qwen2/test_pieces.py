"""Tokenizers of pieces with scores, as in files of Llama 2: alone, and against llama.cpp where it is installed."""

import ctypes
import random
from pathlib import Path

import numpy as np
import pytest
import trueno
from seeds import fresh_seed

from benchmarks.peers import llama
from examples.qwen2.checkpoint import EngineError
from examples.qwen2.tokenizer import Text

PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁abcn", "▁a", "an", "▁an", "bc", "ab"]


def pieces(**keys):
    """A tokenizer of pieces as in Llama 2's files: the best score is the last piece's, and bytes spell the rest."""
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(PIECES) - 259)]
    keys = {"model": "llama", "tokens": PIECES, "scores": [float(i) for i in range(len(PIECES))], "token_type": kinds,
            "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0, **keys}  # fmt: skip
    return Text({f"tokenizer.ggml.{key}": value for key, value in keys.items()})


@pytest.mark.parametrize(
    "sample, names",
    [
        ("an", ["<s>", "▁an"]), ("abc", ["<s>", "▁", "ab", "c"]), ("bca", ["<s>", "▁", "bc", "a"]), ("", ["<s>"]),
        ("n</s>n", ["<s>", "▁", "n", "</s>", "▁", "n"]), (" é", ["<s>", "▁", "▁", "<0xC3>", "<0xA9>"]),
    ],
)  # fmt: skip
def test_pieces_merge_by_their_scores(sample, names):
    text = pieces()
    ids = text.encode(sample)
    assert [PIECES[i] for i in ids] == names
    assert text.tokenizer.decode(ids[1:], skip_special_tokens=False).replace(" ", "") == sample.replace(" ", "")
    assert text.encode(sample, first=False) == ids[1:] == pieces(add_bos_token=False).encode(sample)
    assert text.ends == {2, None}


def test_a_stream_of_pieces_shows_spaces_and_whole_characters():
    text = pieces()
    show = text.stream()
    assert [show(i) for i in text.encode("an né")] == ["", " an", " ", "n", "", "é"]
    assert [PIECES[i] for i in pieces(add_space_prefix=False).encode("an an")] == ["<s>", "an", "▁an"]


def test_scores_that_do_not_order_the_pieces_are_refused():
    with pytest.raises(EngineError, match="equal scores"):
        pieces(scores=[0.0] * len(PIECES))


# ---- random pieces, against llama.cpp

LETTERS, CONTROL = "▁abcdehlo.äé漢Ω", ("<unk>", "<s>", "</s>", "<|im_start|>", "[USER]")


def random_pieces(draw: random.Random, path: Path, **keys) -> Text:
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


@pytest.mark.skipif(llama.library() is None, reason="llama-cpp-python is not installed")
@pytest.mark.parametrize("keys", [{}, {"add_space_prefix": False}, {"add_bos_token": False}])
def test_tokens_of_pieces_with_scores(tmp_path, keys):
    engine, seed = llama.library(), fresh_seed()
    print("seed", seed)
    draw, path = random.Random(seed), tmp_path / "pieces.gguf"
    text = random_pieces(draw, path, **keys)
    loading = engine.llama_model_default_params()
    loading.vocab_only = True
    model = engine.llama_model_load_from_file(str(path).encode(), loading)
    vocabulary = engine.llama_model_get_vocab(model)
    for sample in ["", " ", *(sentence(draw) for _ in range(300))]:
        raw, room = sample.encode(), (ctypes.c_int32 * (2 * len(sample.encode()) + 8))()
        count = engine.llama_tokenize(vocabulary, raw, len(raw), room, len(room), True, True)
        assert text.encode(sample) == list(room[:count]), repr(sample)
    engine.llama_model_free(model)
