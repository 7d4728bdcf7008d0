"""Sampling, continuations, chats, perplexity and measuring: what the commands of the example engine do."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from unit.qwen2.files import all_logits, changed, loaded, tiny
from unit.qwen2.oracle import logits

from examples.qwen2.bench import bench
from examples.qwen2.checkpoint import EngineError
from examples.qwen2.text import Sampling, chat, completions, continuations, perplexity, sample
from examples.qwen2.tokenizer import Text

TOKENS = [5, 700, 31, 31, 2]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("models"), "f32")


@pytest.fixture(scope="module")
def model(path):
    return loaded(path)


def greedy(model, n, **options):
    return [step[0] for step in continuations(model, TOKENS, n, Sampling(), 0, **options)]


# ---- sampling


def test_without_temperature_the_most_likely_token():
    assert sample(np.array([0.5, 3.0, -1.0], np.float32), Sampling(), 0.99) == 1


@pytest.mark.parametrize(
    "how, kept",
    [
        (Sampling(1.0), 4), (Sampling(1.0, top_k=2), 2), (Sampling(1.0, top_p=0.75), 2), (Sampling(1.0, top_p=0.7), 1),
        (Sampling(1.0, min_p=0.13), 3), (Sampling(1.0, 3, 0.95, 0.19), 2), (Sampling(1e-4), 1), (Sampling(1.0, 9), 4),
        (Sampling(1.0, top_p=0.0), 1),
    ],
)  # fmt: skip
def test_the_number_draws_from_the_kept_probabilities(how, kept):
    p = np.array([0.1, 0.7, 0.06, 0.14])
    order = [1, 3, 0, 2][:kept]
    ends = np.cumsum(p[order]) / p[order].sum()
    for number in np.linspace(0, 1, 97, endpoint=False):
        if np.abs(ends - number).min() > 1e-5:
            assert sample(np.log(p).astype(np.float32), how, number) == order[int((ends <= number).sum())]


# ---- many prompts


def behind(model, prompt, tokens):
    """How far each token is behind the best one after what precedes it, in the model's own logits."""
    rows = model.prefill([*prompt, *tokens[:-1]], model.cache(64), every=True)[len(prompt) - 1 :]
    return [float(row.max() - row[token]) for row, token in zip(rows, tokens, strict=True)]


@pytest.mark.parametrize("backend", ["simd", "cuda_emulated"])
@pytest.mark.parametrize("rows", [1, 3])
def test_sequences_join_and_leave_one_step(path, backend, rows):
    """Each prompt's tokens are its own best ones, whatever is computed beside them."""
    model = loaded(path, backend=backend)
    rng = np.random.default_rng(3)
    prompts = [
        rng.integers(1024, size=size).tolist() for size in ((3, 9, 1, 5, 12) if backend == "simd" else (3, 1, 2))
    ]
    n = 8 if backend == "simd" else 3
    got = dict(completions(model, prompts, n, Sampling(), 0, rows=rows))
    assert sorted(got) == list(range(len(prompts)))
    for place, prompt in enumerate(prompts):
        assert len(got[place]) == n and max(behind(model, prompt, got[place])) < 1e-3
    ends = {got[1][2], got[2][0]}
    cut = dict(completions(model, prompts, n, Sampling(), 0, ends, rows))
    for place, prompt in enumerate(prompts):
        tokens = cut[place]
        assert not ends & set(tokens) and (not tokens or max(behind(model, prompt, tokens)) < 1e-3)
    assert len(cut[1]) <= 2 and not cut[2]
    assert model.step.pages.used == 0  # each row has given its pages back


def test_prompts_that_cannot_be_completed(model):
    assert list(completions(model, [], 4, Sampling(), 0)) == []
    assert dict(completions(model, [[5], [7]], 1, Sampling(), 0, rows=1)).keys() == {0, 1}
    with pytest.raises(EngineError, match="a prompt and 600 new tokens take 601, and the context has 512"):
        list(completions(model, [[5]], 600, Sampling(), 0))


# ---- continuations


def test_greedy_tokens_are_those_of_a_forward_pass_in_float64(path, model):
    tokens = list(TOKENS)
    for token in greedy(model, 6):
        assert token == logits(path, tokens)[-1].argmax()
        tokens.append(token)


def test_sequences_share_a_prompt_and_draw_their_own_tokens(model):
    how = Sampling(1.5)
    several = list(continuations(model, TOKENS, 6, how, 7, count=3))
    columns = [[step[i] for step in several] for i in range(3)]
    assert len({tuple(column) for column in columns}) == 3
    assert columns[0] == [step[0] for step in continuations(model, TOKENS, 6, how, 7)]  # the seed decides
    for column in columns:  # and each goes on from its own tokens
        cache, rng = model.cache(), np.random.default_rng([7, columns.index(column)])
        last = model.prefill(TOKENS, cache)[0]
        for token in column:
            assert sample(last, how, rng.random()) == token
            last = model.prefill([token], cache)[0]


def test_a_token_that_ends_a_text_ends_its_sequence_alone(model):
    free = list(continuations(model, TOKENS, 6, Sampling(1.5), 7, count=3))
    end = free[2][1]
    stopped = list(continuations(model, TOKENS, 6, Sampling(1.5), 7, {end}, count=3))
    assert [step.get(1) for step in stopped[:3]] == [free[0][1], free[1][1], None]
    assert [step[0] for step in stopped] == [step[0] for step in free]
    assert greedy(model, 6, ends={greedy(model, 1)[0]}) == []


# ---- text


def test_a_chat_computes_only_what_is_new(model, monkeypatch):
    text, passes, answers = Text(model.checkpoint.metadata), [], []
    forward = type(model).forward
    monkeypatch.setattr(type(model), "forward", lambda m, new, *rest: passes.append(len(new)) or forward(m, new, *rest))
    lines = iter(["Who is there?", "And what now?"])
    with pytest.raises(StopIteration):
        chat(model, text, Sampling(), 0, 5, lambda: next(lines), answers.append)
    starts = passes  # the tokens of answers are decoded
    first = len(text.chat([{"role": "user", "content": "Who is there?"}]))
    assert starts[0] == first
    turns = ["Who is there?", "".join(answers).split("\n")[0], "And what now?"]
    roles = ["user", "assistant", "user"]
    second = len(text.chat([{"role": r, "content": c} for r, c in zip(roles, turns, strict=True)]))
    assert 1 < starts[1] <= second - first  # the first question is not computed again


def test_the_template_of_the_file_is_used(path):
    template = "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}{% endfor %}"
    text = Text(loaded(changed(path, {"tokenizer.chat_template": template})).checkpoint.metadata)
    ids = text.chat([{"role": "user", "content": "to be"}])
    assert text.tokenizer.decode(ids, skip_special_tokens=False) == "<|endoftext|>[user] to be"


def test_a_stream_shows_whole_characters(model):
    text = Text(model.checkpoint.metadata)
    show, pieces = text.stream(), []
    for token in text.encode("né 漢 🎉 that"):
        pieces.append(show(token))
        assert "\ufffd" not in pieces[-1]
    assert "".join(pieces) == "né 漢 🎉 that" and "" in pieces


def test_perplexity_is_that_of_the_second_halves(path, model):
    tokens = np.random.default_rng(3).integers(1024, size=70).tolist()
    losses = []
    for start in (0, 32):
        window = tokens[start : start + 32]
        rows = logits(path, window)[16:31]
        p = np.exp(rows - rows.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        losses += [-np.log(row[t]) for row, t in zip(p, window[17:], strict=True)]
    value, error = perplexity(model, tokens, 32)
    assert value == pytest.approx(np.exp(np.mean(losses)), rel=1e-4)
    assert error == pytest.approx(value * np.std(losses) / np.sqrt(30), rel=1e-3)


# ---- commands


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "examples.qwen2", *map(str, arguments)],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip


def test_generate_prints_the_numbers_of_tokens_on_one_line(path, model):
    done = command("generate", path, "--tokens", ",".join(map(str, TOKENS)), "-n", 6, "--ids")
    assert done.stdout == " ".join(map(str, greedy(model, 6))) + "\n", done.stderr


def test_logits_are_written_as_float32(path, model, tmp_path):
    out = tmp_path / "l.npy"
    assert command("logits", path, "--tokens", "1,2,3", "--out", out, "--backend", "scalar").returncode == 0
    written = np.load(out)
    assert written.dtype == np.float32 and written.shape == (3, 1024)
    np.testing.assert_allclose(written, all_logits(model, [1, 2, 3]), atol=1e-4)
    assert [p.name for p in tmp_path.iterdir()] == ["l.npy"]


def test_the_bench_prints_a_table_and_json(path, model):
    records = list(bench(model, 8, 2, [1, 2], depth=4, repetitions=2))
    assert [r["test"] for r in records] == ["pp8 @ d4", "tg2 @ d4", "tg2 x 2 @ d4"]
    assert all(len(r["samples_ts"]) == 2 and r["avg_ts"] > 0 for r in records)
    done = command("bench", path, "--prompt", 8, "--generate", 2, "--repetitions", 1, "--json")
    records = json.loads(done.stdout)
    assert [r["test"] for r in records] == ["pp8", "tg2"], done.stderr
    assert float(records[0]["size"].removesuffix(" MiB")) > 0  # also of a small model


def test_the_readme_shows_what_the_commands_print(tmp_path, monkeypatch):
    lines = (Path(__file__).parents[3] / "README.md").read_text("utf-8").splitlines()
    first = next(i for i, line in enumerate(lines) if "qwen2 synthesize" in line)
    *commands, printed = lines[first : first + 3]
    words = [
        line.removeprefix("$ python -m examples.qwen2 ").replace("tiny.gguf", str(tmp_path / "tiny.gguf"))
        for line in commands
    ]
    done = [command(*text.split()) for text in words]
    assert [d.stdout for d in done] == ["", printed + "\n"], done[-1].stderr
