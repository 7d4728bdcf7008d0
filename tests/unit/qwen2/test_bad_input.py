"""What the example engine cannot run: a sentence that names it, exit code 1 or 2, and no file half-written."""

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


def test_unknown_tokens(folder, run):
    assert "token 1024 is unknown; the model has tokens 0 to 1023" in run("generate", tiny(folder), "--tokens=1,1024")


TOKENS, COUNT = "whole numbers like 1,2,3, from 0 to 1e+18", "a whole number from 0 to 1e+18"
LEVEL, SHARE = "a number from 0 to 1e+18", "a number from 0 to 1"
OPTIONS = [
    ("generate", "-n", "-3", COUNT), ("generate", "-n", "1.5", COUNT), ("generate", "--top-k", "-5", COUNT),
    ("generate", "--temperature", "nan", LEVEL), ("chat", "--temperature", "-1", LEVEL),
    ("generate", "--temperature", "inf", LEVEL), ("chat", "--top-p", "-1", SHARE), ("chat", "--top-p", "1.01", SHARE),
    ("generate", "--min-p", "7", SHARE), ("generate", "--min-p", "nan", SHARE), ("generate", "--seed", "-1", COUNT),
    ("generate", "--count", "0", "a whole number from 1"), ("generate", "--tokens", "a", TOKENS),
    ("generate", "--tokens", "", TOKENS), ("generate", "--tokens", "1,,2", TOKENS),
    ("generate", "--tokens", "-1,2", TOKENS), ("generate", "--tokens", "99999999999999999999", TOKENS),
    ("logits", "--tokens", "1.5", TOKENS), ("bench", "--prompt", "-1", COUNT), ("bench", "--depth", "-1", COUNT),
    ("bench", "--batch", "0", "whole numbers like 1,2,3, from 1"), ("bench", "--batch", "1,x", "whole numbers"),
    ("bench", "--repetitions", "0", "a whole number from 1"), ("perplexity", "--context", "3", "a whole number from 4"),
    ("synthesize", "--seed", "-1", COUNT),
]  # fmt: skip


@pytest.mark.parametrize("command, option, value, remedy", OPTIONS)
def test_options_outside_their_range(monkeypatch, capsys, command, option, value, remedy):
    """They are refused before the model is opened, and the sentence names option, value and remedy."""
    monkeypatch.setattr(sys, "argv", ["qwen2", command, "none.gguf", f"{option}{'=' * (len(option) > 2)}{value}"])
    with pytest.raises(SystemExit) as stop:
        program.main()
    printed = capsys.readouterr()
    assert stop.value.code == 2 and not printed.out
    assert f"error: argument {option}: {value!r} does not fit; give {remedy}" in printed.err.splitlines()[-1]


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
    assert "error: No such file" in run("perplexity", tiny(folder), "--text", tmp_path / "none.txt")
    short.write_bytes(b"\xff\xfe\xfa")
    assert "utf-8" in run("perplexity", tiny(folder), "--text", short)


@pytest.mark.parametrize("more", [(), ("--prompt", "")])
def test_no_prompt(folder, run, more):
    assert "no tokens to start from; give --prompt or --tokens" in run("generate", tiny(folder), *more)


def test_a_prompt_beside_tokens(folder, run):
    assert "give one of them" in run("generate", tiny(folder), "--tokens", "1,2", "--prompt", "a")


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


@pytest.mark.parametrize("name", ["missing/l.npy", "", "text/l.npy"])
def test_outputs_that_cannot_be_written(folder, run, tmp_path, name):
    """The sentence comes before the model is opened."""
    (tmp_path / "text").write_text("a file, and no folder")
    out = tmp_path / name
    for command in (
        ("logits", folder / "none.gguf", "--tokens", "1", "--out", out),
        ("synthesize", out, "--shape", "tiny"),
    ):
        assert f"the output is {str(out)!r}; give a file in a folder that exists" in run(*command)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_backends_that_are_not_there(folder, run):
    assert "nowhere" in run(*generate(tiny(folder), "--backend", "nowhere"))
