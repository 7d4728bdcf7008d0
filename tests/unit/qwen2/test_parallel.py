"""The example engine on several emulated GPUs: against one, and simd; how a model is cut; what is refused."""

import sys
from functools import partial

import numpy as np
import pytest
import trueno
from seeds import fresh_seed
from unit.qwen2.files import changed, tiny
from unit.qwen2.oracle import nmse

from examples.qwen2 import __main__ as program
from examples.qwen2 import synthesize
from examples.qwen2.checkpoint import Checkpoint, EngineError
from examples.qwen2.model import Model, Prompt, Sampling
from examples.qwen2.parallel import Parallel, Shard

nccl = pytest.importorskip("trueno_cuda.nccl", reason="trueno-cuda is not installed")
SHAPE = (1, 64, 4, 2, 128, 320, 64, True)
"""One layer that the emulator runs in seconds."""
DEVICES = ["cuda_emulated:0", "cuda_emulated:1"]
TOKENS = [1, 5, 9]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """The emulator copies all memory that a kernel may write to."""
    monkeypatch.setitem(nccl.Communicator.__init__.__kwdefaults__, "side", 1 << 14)


@pytest.fixture(scope="module")
def path(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(synthesize.SHAPES, "small", SHAPE)
        synthesize.synthesize(str(folder / "small.gguf"), "small", "q8_0")
        synthesize.synthesize(str(folder / "small-f32.gguf"), "small", "f32")
    return folder / "small.gguf"


@pytest.fixture
def rng():
    print("seed", seed := fresh_seed())
    return np.random.default_rng(seed)


def drawn(model, caches, times, how=Sampling(), numbers=None):  # noqa: B008 - a tuple
    numbers = np.zeros((times, len(caches))) if numbers is None else numbers
    return [list(map(int, row)) for row in model.draws([7] * len(caches), caches, how, numbers)]


# ---- against one GPU


def test_a_prompt_and_tokens_are_those_of_one_gpu(path):
    one, two = Model(Checkpoint(path), "cuda_emulated", "f32"), Parallel(Checkpoint(path), DEVICES, "f32")
    caches = [model.cache(16) for model in (one, two)]
    rows = [model.prefill(TOKENS, cache, every=True) for model, cache in zip((one, two), caches, strict=True)]
    assert rows[0].shape == rows[1].shape == (3, 320) and nmse(rows[1], rows[0]) < 1e-9
    rows = [model.decode([7], [cache]) for model, cache in zip((one, two), caches, strict=True)]
    assert rows[1].shape == (1, 320) and nmse(rows[1], rows[0]) < 1e-9
    assert [cache.length for cache in caches] == [4, 4]
    with trueno.use("simd"):
        host = Model(Checkpoint(path), "simd", "f32")
        cache = host.cache(16)
        host.prefill(TOKENS, cache)
        want = drawn(host, [cache], 2)
    caches[1].length = 3
    assert drawn(two, [caches[1]], 2) == want


def test_float32_weights(path):
    checkpoint = Checkpoint(path.with_name("small-f32.gguf"))
    rows = []
    for model in (Model(checkpoint, "cuda_emulated", "f32"), Parallel(checkpoint, DEVICES, "f32")):
        cache = model.cache(8)
        model.decode([3], [cache])
        rows.append(model.decode([7], [cache]))
    assert nmse(rows[1], rows[0]) < 1e-9


def test_two_sequences(path):
    """Forks of one another, of different lengths, a step of both at once; then one alone."""
    rows = []
    for model in (Model(Checkpoint(path), "cuda_emulated", "f32"), Parallel(Checkpoint(path), DEVICES, "f32")):
        first = model.cache(16, 2)
        model.prefill(TOKENS, first)
        second = first.fork()
        second.length = 2
        rows.append([model.decode([7, 8], [first, second]), model.decode([4], [first])])
        assert (first.length, second.length) == (5, 3)
        second.release()
    for got, want in zip(*reversed(rows), strict=True):
        assert nmse(got, want) < 1e-9


def test_a_draw_that_stops_early(path):
    """The GPUs have begun the same steps, and go on together."""
    model = Parallel(Checkpoint(path), DEVICES, "f32")
    cache = model.cache(16)
    whole = drawn(model, [cache], 4)
    cache.length = 0
    for row in (draws := model.draws([7], [cache], Sampling(), np.zeros((4, 1)))):
        assert list(map(int, row)) == whole[0]
        break
    draws.close()
    assert {part.length for part in cache.parts} == {cache.length}
    cache.length = 0
    assert drawn(model, [cache], 4) == whole


@pytest.mark.parametrize("activations, precision", [("q8", "bf16"), ("f32", "f32")])
def test_messages_of_recorded_prompts_are_as_exact_as_products(path, monkeypatch, activations, precision):
    """And those of steps are float32."""
    one, two = Model(Checkpoint(path), "cuda_emulated", activations), Parallel(Checkpoint(path), DEVICES, activations)
    seen, send, caches = [], two.links.all_reduce, [model.cache(16) for model in (one, two)]

    def all_reduce(parts, **options):
        seen.append(options.get("precision"))
        return send(parts, **options)

    monkeypatch.setattr(two.links, "all_reduce", all_reduce)
    prompt, prompts = Prompt(one, caches[0].pages, 4), two._record(caches[1], 4)
    assert seen == [precision] * 2  # a layer has two sums
    prompt.run(one.known(TOKENS), caches[0].number)
    pairs = zip(prompts, caches[1].parts, strict=True)
    two._at_once([partial(p.run, two.known(TOKENS), part.number) for p, part in pairs])
    got = np.concatenate([p.batch.read(p.logits) for p in prompts])
    assert nmse(got, prompt.batch.read(prompt.logits)) < (1e-4 if precision == "bf16" else 1e-9)
    two._started([7], [caches[1]], Sampling())
    assert seen[2:] == ["f32"] * 2


def test_sampling_takes_the_same_numbers_on_all(path, rng):
    how, numbers = Sampling(temperature=0.9, top_k=40), rng.random((2, 1))
    models = Model(Checkpoint(path), "cuda_emulated", "f32"), Parallel(Checkpoint(path), DEVICES, "f32")
    one, two = (drawn(model, [model.cache(8)], 2, how, numbers) for model in models)
    assert one == two


def test_unknown_tokens_leave_it_as_it_was(path):
    model = Parallel(Checkpoint(path), DEVICES, "f32")
    cache = model.cache(8)
    with pytest.raises(EngineError, match="token 320 is unknown; the model has tokens 0 to 319"):
        model.prefill([1, 320], cache)
    with pytest.raises(EngineError, match="token -1 is unknown"):
        model.decode([-1], [cache])
    assert cache.length == 0


# ---- how a model is cut


def whole(tensor):
    return np.asarray(trueno.dequantize(tensor) if isinstance(tensor, trueno.QuantizedMatrix) else tensor)


@pytest.mark.parametrize("mixture", ["f32", "q8_0", "q4_0"])
@pytest.mark.parametrize("count", [1, 2])
def test_every_number_is_on_one_gpu(folder, mixture, count):
    """Matrices before a nonlinearity are cut by rows, those after it by columns; all else is on each."""
    checkpoint = Checkpoint(tiny(folder, mixture))
    shards = [Shard(checkpoint, i, count) for i in range(count)]
    for name in checkpoint.tensors:
        parts, want = [whole(shard.load(name)) for shard in shards], whole(checkpoint.load(name))
        kind = name.split(".")[-2]
        if kind in ("attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"):
            assert np.array_equal(np.concatenate(parts), want), name
        elif kind in ("attn_output", "ffn_down"):
            assert np.array_equal(np.concatenate(parts, axis=1), want), name
        else:
            assert all(np.array_equal(part, want) for part in parts), name
    assert np.array_equal(np.concatenate([whole(s.load("output.weight")) for s in shards]),
                          whole(checkpoint.load("token_embd.weight")))  # fmt: skip
    heads = [(s.config.heads, s.config.kv_heads, s.config.feed) for s in shards]
    c = checkpoint.config
    assert tuple(map(sum, zip(*heads, strict=True))) == (c.heads, c.kv_heads, c.feed)
    assert all(shard.load("blk.0.nothing.weight") is None for shard in shards)


def test_a_bias_after_a_sum_is_added_once(folder, rng):
    bias = {
        f"blk.{i}.{n}.bias": rng.standard_normal(256).astype("f4") for i in (0, 1) for n in ("attn_output", "ffn_down")
    }
    checkpoint = Checkpoint(changed(tiny(folder), tensors=bias))
    first, second = (Shard(checkpoint, i, 2) for i in range(2))
    for name, want in bias.items():
        assert np.array_equal(first.load(name), want) and second.load(name) is None
    q = checkpoint.load("blk.0.attn_q.bias")
    assert np.array_equal(np.concatenate([s.load("blk.0.attn_q.bias") for s in (first, second)]), q)


def test_a_matrix_of_its_own_for_the_output(folder, rng):
    output = rng.standard_normal((1024, 256)).astype("f4")
    checkpoint = Checkpoint(changed(tiny(folder), tensors={"output.weight": output}))
    assert np.array_equal(np.concatenate([Shard(checkpoint, i, 2).load("output.weight") for i in range(2)]), output)


def test_uneven_parts(folder, monkeypatch):
    """Three GPUs of four heads of keys, and a vocabulary that three do not divide."""
    monkeypatch.setitem(synthesize.SHAPES, "uneven", (1, 64, 8, 4, 96, 320, 64, True))
    synthesize.synthesize(str(folder / "uneven.gguf"), "uneven", "f32")
    checkpoint = Checkpoint(folder / "uneven.gguf")
    shards = [Shard(checkpoint, i, 3) for i in range(3)]
    assert sum(s.config.kv_heads for s in shards) == 4 and {s.config.kv_heads for s in shards} == {1, 2}
    assert all(s.config.heads == 2 * s.config.kv_heads for s in shards)
    for name in ("output.weight", "blk.0.attn_q.weight", "blk.0.ffn_up.weight"):
        want = whole(checkpoint.load(name if name in checkpoint.tensors else "token_embd.weight"))
        assert np.array_equal(np.concatenate([whole(s.load(name)) for s in shards]), want)
    for name in ("blk.0.attn_output.weight", "blk.0.ffn_down.weight"):
        want = whole(checkpoint.load(name))
        assert np.array_equal(np.concatenate([whole(s.load(name)) for s in shards], axis=1), want)


# ---- what is refused


def test_more_gpus_than_heads(folder):
    with pytest.raises(EngineError, match="2 heads of keys and values cannot be shared by 3 GPUs"):
        Shard(Checkpoint(tiny(folder, "q8_0")), 0, 3)


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command that fails, and return the sentence."""

    def failing(*arguments):
        monkeypatch.setattr(sys, "argv", ["qwen2", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            program.main()
        capsys.readouterr()
        return str(stop.value.code)

    return failing


@pytest.mark.parametrize(
    "options, words",
    [
        (
            ("--backend", "cuda_emulated", "--gpus", "2", "--guard"),
            "--guard looks into one GPU's layers; leave out --gpus",
        ),
        (("--backend", "cuda_emulated", "--gpus", "3"), "2 heads of keys and values cannot be shared by 3 GPUs"),
        (("--backend", "simd", "--gpus", "2"), '"simd:0" is not installed; write "simd"'),
        (("--backend", "cuda_emulated:1", "--gpus", "2"), "cuda_emulated wants a number after the colon"),
    ],
)
def test_options_that_do_not_fit(path, run, options, words):
    message = run("generate", path, "--tokens", "1,2", "--ids", *options)
    assert message.startswith("error: ") and words in message and "\n" not in message.strip()


def test_more_gpus_than_there_are(folder, run, monkeypatch):
    monkeypatch.setitem(synthesize.SHAPES, "many", (1, 160, 10, 10, 320, 320, 64, True))
    synthesize.synthesize(str(folder / "many.gguf"), "many", "f32")
    message = run("generate", folder / "many.gguf", "--tokens", "1", "--backend", "cuda_emulated", "--gpus", "9")
    assert "cuda_emulated:8 is not there: emulated GPUs are numbers 0 to 7" in message


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5"])
def test_a_number_of_gpus(path, run, value):
    assert run("generate", path, "--tokens", "1", f"--gpus={value}") == "2"


def test_the_command(path, monkeypatch, capsys):
    """`generate --gpus 2` prints what `generate` prints."""
    lines = []
    for gpus in ("1", "2"):
        arguments = ["generate", path, "--tokens", "1,5,9", "--ids", "-n", "2", "--activations", "f32"]
        arguments += ["--ignore-end", "--backend", "cuda_emulated", "--gpus", gpus]
        monkeypatch.setattr(sys, "argv", ["qwen2", *map(str, arguments)])
        program.main()
        lines.append(capsys.readouterr().out)
    assert lines[0] == lines[1] and lines[0].strip()


# ---- real GPUs


def several():
    found = trueno.backends().get("cuda")
    return found is not None and found.available and len(found.devices) > 1


@pytest.mark.gpu
@pytest.mark.skipif("not several()", reason="this machine has no two GPUs for CUDA")
@pytest.mark.parametrize("mixture", ["f32", "q8_0"])
def test_on_two_gpus(folder, mixture):
    path = tiny(folder, mixture)
    rows, lists = [], []
    for model in (Model(Checkpoint(path), "cuda", "f32"), Parallel(Checkpoint(path), ["cuda:0", "cuda:1"], "f32")):
        first = model.cache(64, 2)
        rows.append(model.prefill(list(range(1, 13)), first, every=True))
        caches = [first, first.fork()]
        caches[1].length = 5
        rows[-1] = np.concatenate([rows[-1], *(model.decode([7, 8], caches) for _ in range(3))])
        lists.append(drawn(model, caches, 16))
    assert nmse(rows[1], rows[0]) < 1e-7 and lists[0] == lists[1]
