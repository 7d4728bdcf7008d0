"""Columns that become exactly zero in every format, against decoders of trueno and gguf; shares of real shapes."""

from types import SimpleNamespace

import numpy as np
import pytest
import trueno
from seeds import fresh_seed
from trueno.backend import FORMATS, format_of
from unit.qwen2.files import tiny
from unit.qwen2.oracle import nmse

from examples.qwen2 import synthesize
from examples.qwen2.checkpoint import Checkpoint, EngineError
from examples.qwen2.model import Model
from examples.qwen2.shares import apart, around, cleared, even

WEIGHTS = [name for name, f in FORMATS.items() if f.weights]
CLEARED = [name for name in WEIGHTS if apart(name)]


@pytest.fixture
def rng():
    print("seed", seed := fresh_seed())
    return np.random.default_rng(seed)


def blocks(rng, form, rows, count):
    """Random bytes, all scales of whole blocks finite."""
    f = format_of(form)
    data = rng.integers(256, size=(rows, count, f.nbytes), dtype=np.uint8)
    for name in filter(None, (f.d, f.m)):
        spec = f.fields[name]
        numbers = rng.standard_normal((rows, count, spec.count)).astype(spec.dtype).view(np.uint8)
        data[:, :, spec.offset : spec.offset + spec.nbytes] = numbers
    return trueno.QuantizedMatrix(data.reshape(rows, -1), (rows, count * f.elements), form)


def test_formats_whose_columns_become_zero():
    """A power of two as the scale of a block is never zero."""
    assert {"q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs"} <= set(CLEARED)
    assert [name for name in WEIGHTS if name not in CLEARED] == ["mxfp4"]
    assert apart("") == 1 and apart("q4_k") == 32 and apart("q6_k") == 16 and apart("q8_0") == 32


@pytest.mark.parametrize("form", CLEARED)
@pytest.mark.parametrize("cut", [(0.5, 4), (0, 2.5), (0.5, 3.5), (1.25, 2.75), (0, 4)])
def test_columns_are_zero_and_the_others_as_before(rng, form, cut):
    gguf = pytest.importorskip("gguf", reason="the gguf package is not installed")
    size, unit = FORMATS[form].elements, apart(form)
    kept = slice(*(int(at * size) // unit * unit for at in cut))
    matrix = blocks(rng, form, 5, 4)
    before, inside = matrix.bytes.copy(), np.zeros(4 * size, bool)
    inside[kept] = True
    y = cleared(matrix, kept)
    assert (y.format, y.shape) == (form, matrix.shape) and np.array_equal(matrix.bytes, before)
    kind = gguf.GGMLQuantizationType[form.upper()]
    for decode in (trueno.dequantize, lambda m: gguf.quants.dequantize(np.asarray(m.bytes), kind)):
        got, want = np.asarray(decode(y)), np.asarray(decode(matrix))
        assert got[:, inside].tobytes() == want[:, inside].tobytes()
        assert not got[:, ~inside].any()  # zeros, and no NaN


@pytest.mark.parametrize("backend", ["scalar", "simd"])
def test_a_product_has_nothing_of_them(rng, backend):
    matrix = blocks(rng, "q4_k", 3, 2)
    x = rng.standard_normal(512).astype("f4")
    kept = x.copy()
    kept[:128], kept[448:] = 0, 0
    with trueno.use(backend):
        got = trueno.quant_matvec(cleared(matrix, slice(128, 448)), x, activations="f32")
        want = trueno.quant_matvec(matrix, kept, activations="f32")
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


def test_columns_of_floats(rng):
    x = rng.standard_normal((3, 10)).astype("f4")
    y = cleared(x, slice(2, 7))
    assert np.array_equal(y[:, 2:7], x[:, 2:7]) and not y[:, :2].any() and not y[:, 7:].any() and x.all()


def test_even_parts_and_whole_units():
    assert even(10, 3) == [slice(0, 3), slice(3, 7), slice(7, 10)]
    assert even(8, 2, 3) == [slice(0, 3), slice(3, 8)]
    assert around(slice(896, 1792), 256) == slice(768, 1792) and around(slice(256, 512), 256) == slice(256, 512)


# ---- shares of a model


def checkpoint(forms, heads, kv_heads, head=128, feed=4096):
    """What `Shard` reads of a file before it loads anything."""
    config = SimpleNamespace(layers=len(forms), heads=heads, kv_heads=kv_heads, head=head, feed=feed, vocabulary=1000)
    file = {}
    for i, form in enumerate(forms):
        file[f"blk.{i}.attn_output.weight"] = SimpleNamespace(format=form)
        file[f"blk.{i}.ffn_down.weight"] = SimpleNamespace(format="q4_k")
    return SimpleNamespace(config=config, path="it", guarded=False, metadata={}, tensors={}, file=file, nbytes=0)


def shards(whole, count):
    parallel = pytest.importorskip("examples.qwen2.parallel")
    return [parallel.Shard(whole, i, count) for i in range(count)]


def heads(shard, head=128):
    """A GPU's query heads, and those of them that count."""
    wide, own = shard._columns["attn_output"], shard._own
    assert shard._rows["attn_q"] == wide and shard.config.heads * head == wide.stop - wide.start
    return (wide.start // head, wide.stop // head), ((wide.start + own.start) // head, (wide.start + own.stop) // head)


def test_seven_heads_for_each_of_four_gpus():
    """The shape of Qwen2.5-7B: 896 columns are 3.5 blocks of 256."""
    whole = checkpoint(["q4_k", "q5_k", "q6_k"], 28, 4, feed=18944)
    four = shards(whole, 4)
    assert [heads(s) for s in four] == [
        ((0, 8), (0, 7)), ((6, 14), (7, 14)), ((14, 22), (14, 21)), ((20, 28), (21, 28))]  # fmt: skip
    assert [s._rows["attn_k"] for s in four] == [slice(128 * i, 128 * (i + 1)) for i in range(4)]
    assert [s.config.kv_heads for s in four] == [1] * 4
    assert [heads(s) for s in shards(whole, 2)] == [((0, 14), (0, 14)), ((14, 28), (14, 28))]  # whole blocks


@pytest.mark.parametrize("forms", [["q8_0"], ["q4_k", "q8_0"], ["q4_k", ""], [""]])
def test_other_formats_beside_large_blocks(forms):
    owned = [heads(s)[1] for s in shards(checkpoint(forms, 28, 4), 4)]
    assert owned == [(0, 7), (7, 14), (14, 21), (21, 28)]


@pytest.mark.parametrize(
    "forms, counts, gpus",
    [
        (["q4_k"], (28, 4, 128), 3),  # one of them has two heads of keys, and a query attends to the one of its group
        (["q4_k", "mxfp4"], (28, 4, 128), 4),  # whose scale is never zero
        (["q4_k"], (6, 2, 80), 2),  # a block ends inside of a head
        (["q8_0"], (2, 2, 80), 2),  # and a block of one scale
    ],
)
def test_blocks_that_stay_whole(forms, counts, gpus):
    with pytest.raises(EngineError, match=f"{gpus} GPUs cannot share the .* columns of attn_output, whose blocks of"):
        shards(checkpoint(forms, *counts), gpus)


def test_columns_of_another_matrix_stay_whole():
    with pytest.raises(EngineError, match="4 GPUs cannot share the 512 columns of ffn_down, whose blocks of 256 stay"):
        shards(checkpoint(["q4_k"], 28, 4, feed=512), 4)


def whole(tensor):
    return np.asarray(trueno.dequantize(tensor) if isinstance(tensor, trueno.QuantizedMatrix) else tensor)


@pytest.mark.parametrize("mixture", ["q4_k_m", "q6_k", "q3_k_m", "q2_k"])
def test_the_parts_of_a_layer_add_up(tmp_path, mixture):
    """Every column counts once, and the rows of queries are those of the columns."""
    file = Checkpoint(tiny(tmp_path, mixture))
    two = shards(file, 2)
    want = whole(file.load("blk.0.attn_output.weight"))
    total = np.zeros_like(want)
    for shard in two:
        columns = shard._columns["attn_output"]
        total[:, columns] += whole(shard.load("blk.0.attn_output.weight"))
        for kind in ("weight", "bias"):
            rows = whole(file.load(f"blk.0.attn_q.{kind}"))[columns]
            assert np.array_equal(whole(shard.load(f"blk.0.attn_q.{kind}")), rows)
    assert np.array_equal(total, want)


SHAPES = {
    "three of two": (1, 768, 6, 2, 512, 320, 64, True),
    "three of four": (1, 768, 12, 4, 1024, 320, 64, True),
}
"""Layers, width, heads, heads of keys, feed-forward, …: a GPU has 1.5 blocks, or 0.75 and heads of several others."""


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_are_those_of_one_gpu(tmp_path, monkeypatch, shape):
    nccl = pytest.importorskip("trueno_cuda.nccl", reason="trueno-cuda is not installed")
    from examples.qwen2.parallel import Parallel

    monkeypatch.setitem(nccl.Communicator.__init__.__kwdefaults__, "side", 1 << 14)
    monkeypatch.setitem(synthesize.SHAPES, shape, SHAPES[shape])
    synthesize.synthesize(str(tmp_path / "it.gguf"), shape, "q4_k_m")
    file, count = Checkpoint(tmp_path / "it.gguf"), SHAPES[shape][3]
    rows = []
    devices = [f"cuda_emulated:{i}" for i in range(count)]
    for make, where in ((Model, "simd"), (Parallel, devices)):
        model = make(file, where, "f32", cache="float32")
        cache = model.cache(16)
        rows.append(np.concatenate([model.decode([token], [cache]) for token in (1, 7)]))
    assert nmse(rows[1], rows[0]) < 1e-9
