"""What the example engine cannot run: a sentence that names it, exit code 1, and no file half-written."""

import sys

import numpy as np
import pytest
import trueno
from unit.qwen2.files import changed, tiny

from examples.qwen2 import __main__ as program


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command that fails, and return the sentence."""

    def failing(*arguments):
        monkeypatch.setattr(sys, "argv", ["qwen2", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            program.main()
        message = stop.value.code
        assert isinstance(message, str) and message.startswith("error: ") and "\n" not in message.strip()
        assert capsys.readouterr().out in ("", "the")  # the text that it continues
        return message

    return failing


def generate(path, *more):
    return "generate", path, "--tokens", "1,2,3", "--ids", *more


@pytest.mark.parametrize(
    "keys, tensors, words",
    [
        ({"general.architecture": "bert"}, {}, "architecture is 'bert'"),
        ({"qwen2.block_count": None}, {}, "qwen2.block_count is missing"),
        ({"qwen2.block_count": 0}, {}, "qwen2.block_count is 0"),
        ({"qwen2.block_count": 4_000_000_000}, {}, "blk.2.attn_q.weight is missing"),
        ({"qwen2.attention.head_count": [4, 4]}, {}, "qwen2.attention.head_count is"),
        ({"qwen2.attention.head_count_kv": 3}, {}, "4 heads on 3"),
        ({"qwen2.expert_count": 8}, {}, "mixture of experts"),
        ({"qwen2.rope.scaling.type": "longrope"}, {}, "'longrope'"),
        ({"split.count": np.uint16(2)}, {}, "part of a split model"),
        ({}, {"token_embd.weight": None}, "token_embd.weight is missing"),
        ({}, {"blk.1.ffn_up.weight": None}, "blk.1.ffn_up.weight is missing"),
        ({}, {"output_norm.weight": np.ones(255, np.float32)}, "output_norm.weight has shape (255,)"),
        ({}, {"blk.0.attn_k.bias": np.ones(4, np.float32)}, "blk.0.attn_k.bias has shape (4,)"),
        ({}, {"blk.0.attn_q_norm.weight": np.ones(64, np.float32)}, "does not know the tensor blk.0.attn_q_norm"),
        ({}, {"rope_freqs.weight": np.ones(32, np.float32) * 3}, "rope_freqs.weight"),
    ],
)  # fmt: skip
def test_models_that_it_does_not_run(folder, run, keys, tensors, words):
    path = changed(tiny(folder), keys, tensors)
    message = run(*generate(path))
    assert words in message and path.name in message


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.999])
def test_files_that_are_cut_off(folder, run, share):
    data = tiny(folder, "q4_k_m").read_bytes()
    path = folder / f"cut-{share}.gguf"
    path.write_bytes(data[: int(len(data) * share)])
    assert path.name in run(*generate(path))


def test_files_of_another_kind(folder, run):
    assert "No such file" in run(*generate(folder / "none.gguf"))
    path = folder / "text.gguf"
    path.write_text("This is not a model.")
    assert "GGUF" in run(*generate(path))


@pytest.mark.parametrize("tokens", ["1,1024", "-1,2", "99999999999999999999"])
def test_unknown_tokens(folder, run, tokens):
    assert tokens.replace("1,1024", "1024").split(",")[0] in run(
        "generate", tiny(folder), f"--tokens={tokens}", "--ids"
    )


def test_a_context_that_is_full(folder, run):
    path = changed(tiny(folder), {"qwen2.context_length": 16})
    assert "room for 13 new ones, not 14" in run(*generate(path, "-n", 14))
    many = ",".join(map(str, range(17)))
    out = folder / "full.npy"
    assert "17 more do not fit into 16" in run("logits", path, "--tokens", many, "--out", out)
    assert not list(folder.glob("full.npy*"))


def test_text_that_is_too_short_or_missing(folder, run, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("a")
    assert "the text has 1 tokens" in run("perplexity", tiny(folder), "--text", short)
    assert "No such file" in run("perplexity", tiny(folder), "--text", tmp_path / "none.txt")
    short.write_bytes(b"\xff\xfe\xfa")
    assert "utf-8" in run("perplexity", tiny(folder), "--text", short)


def test_no_prompt(folder, run):
    assert "no tokens to start from" in run("generate", tiny(folder))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "name, words",
    [
        ("blk.1.attn_q.weight", ("layer 1", " matmul")),
        ("blk.0.ffn_norm.weight", ("layer 0", "rms_norm")),
        ("blk.1.attn_v.bias", ("layer 1", "bias_activation")),
        ("token_embd.weight", ("token_embd", "matmul")),
    ],
)
def test_weights_that_are_not_finite(folder, run, name, words, value):
    path = changed(tiny(folder), tensors={name: value})
    message = run(*generate(path, "--guard"))
    assert all(word in message for word in (*words, name.removeprefix("blk.")))
    if name == "blk.1.attn_v.bias":
        assert "the logits are not finite" in run(*generate(path))


@pytest.mark.parametrize("name, words", [("blk.1.ffn_down", "layer 1"), ("blk.0.attn_q", "layer 0")])
def test_scales_of_blocks_that_are_not_finite(folder, run, name, words):
    with trueno.gguf.open(tiny(folder, "q8_0")) as file:
        q = file[f"{name}.weight"]
        raw = q.bytes.copy()
    raw[3, :2] = 0x00, 0x7E  # the float16 NaN
    path = changed(tiny(folder, "q8_0"), tensors={f"{name}.weight": trueno.QuantizedMatrix(raw, q.shape, q.format)})
    message = run(*generate(path, "--guard"))
    assert words in message and "quant_matmul" in message
    assert "--guard" in run(*generate(path))


def test_tokenizers(folder, run):
    unknown = changed(tiny(folder), {"tokenizer.ggml.pre": "martian"})
    assert "'martian'" in run("generate", unknown, "--prompt", "the")
    for key, value in (("merges", ["x yz"]), ("tokens", 5)):
        damaged = changed(tiny(folder), {f"tokenizer.ggml.{key}": value})
        assert "its tokenizer" in run("generate", damaged, "--prompt", "the")
    nothing = changed(tiny(folder), dict.fromkeys(("tokenizer.ggml.model", "tokenizer.ggml.tokens")))
    assert "tokenizer, None" in run("chat", nothing)


@pytest.mark.parametrize(
    "template", ["{{ messages", "{{ 1 // 0 }}", "{{ nothing.at.all }}", "{{ raise_exception('no') }}"]
)
def test_templates_that_fail(folder, run, template):
    path = changed(tiny(folder), {"tokenizer.chat_template": template})
    program_input = iter(["hello"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.input", lambda _: next(program_input))
        assert "template for chats fails" in run("chat", path)


def test_numbers_alone_need_no_tokenizer(folder, monkeypatch, capsys):
    keys = ("model", "pre", "tokens", "token_type", "merges", "eos_token_id")
    path = changed(tiny(folder), {f"tokenizer.ggml.{key}": None for key in keys})
    monkeypatch.setattr(sys, "argv", ["qwen2", *map(str, generate(path, "-n", 5))])
    program.main()
    assert len(capsys.readouterr().out.split()) == 5


@pytest.mark.parametrize("arguments", [("--shape", "tiny", "--mixture", "q9"), ("--shape", "tiny")])
def test_nothing_is_half_written(run, tmp_path, arguments):
    out = tmp_path / "missing" / "m.gguf" if len(arguments) == 2 else tmp_path / "m.gguf"
    run("synthesize", out, *arguments)
    assert not list(tmp_path.rglob("*"))


def test_a_folder_that_is_missing(folder, run, tmp_path):
    assert "No such file" in run("logits", tiny(folder), "--tokens", "1", "--out", tmp_path / "missing" / "l.npy")


def test_backends_that_are_not_there(folder, run):
    assert "nowhere" in run(*generate(tiny(folder), "--backend", "nowhere"))
