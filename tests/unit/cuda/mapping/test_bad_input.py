"""`trueno ptx-map` on files that are no model, or not a whole one, and on options that mean nothing."""

import shutil

import numpy as np
import pytest

pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")
pytest.importorskip("gguf")

from trueno.cli.app import app
from typer.testing import CliRunner
from unit.qwen2.files import changed, tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("models"), "q4_k_m")


def refused(*words) -> str:
    """The sentence of a command that is refused."""
    result = CliRunner().invoke(app, ["ptx-map", *map(str, words)])
    assert result.exit_code == 2 and not result.stdout and "Traceback" not in result.output
    return " ".join(result.output.split())


def test_what_is_no_gguf_file(tmp_path, model):
    (tmp_path / "text.gguf").write_text("a model\n" * 100)
    assert "text.gguf" in refused(tmp_path / "text.gguf")
    assert "none.gguf" in refused(tmp_path / "none.gguf")
    assert str(tmp_path) in refused(tmp_path)
    (tmp_path / "empty.gguf").touch()
    assert "the file is empty" in refused(tmp_path / "empty.gguf")


@pytest.mark.parametrize("plan", ["reference", "fused"])
def test_a_file_that_was_cut(tmp_path, model, rng, plan):
    raw = model.read_bytes()
    for _ in range(5):
        (tmp_path / "cut.gguf").write_bytes(raw[: int(rng.integers(1, len(raw) - 1))])
        assert "cut.gguf" in refused(tmp_path / "cut.gguf", "--plan", plan)


@pytest.mark.parametrize(
    ("keys", "tensors", "words"),
    [
        (
            {"general.architecture": "bert"},
            {},
            "its architecture is 'bert'; ptx-map knows the layers of qwen2 and llama",
        ),
        ({"qwen2.expert_count": 8}, {}, "it is a mixture of experts"),
        ({"qwen2.block_count": None}, {}, "the key qwen2.block_count is missing; it must be above 0"),
        ({"qwen2.block_count": 3}, {}, "blk.2.attn_norm.weight is missing; the keys imply (256,)"),
        ({"qwen2.attention.head_count_kv": 3}, {}, "4 heads on 3 heads of keys and values"),
        (
            {"qwen2.feed_forward_length": 768},
            {},
            "blk.0.ffn_gate.weight has shape (512, 256); the keys imply (768, 256)",
        ),
        ({}, {"blk.1.attn_q.weight": None}, "blk.1.attn_q.weight is missing; the keys imply (256, 256)"),
        ({}, {"token_embd.weight": None}, "token_embd.weight is missing"),
        (
            {},
            {"blk.0.ffn_up.weight": np.zeros((512, 256), np.int8)},
            "blk.0.ffn_up.weight is in i8, and matrices are in ",
        ),
    ],
)
def test_a_model_that_is_not_whole(tmp_path, model, keys, tensors, words):
    path = shutil.copy(model, tmp_path)
    assert words in refused(changed(type(model)(path), keys, tensors))


def test_options_that_mean_nothing(model):
    assert "--plan 'fuse' is not known" in refused(model, "--plan", "fuse")
    assert "--arch 'sm_75' is not known; known: sm_80, " in refused(model, "--arch", "sm_75")
    assert "give one of them" in refused(model, "--kernel", "rope", "--reverse", "rope")
