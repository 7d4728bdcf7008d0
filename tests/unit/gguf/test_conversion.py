"""Quantizing a model gives the bytes of ggml: those of the golden rows, and the file that llama.cpp writes."""

import ctypes
import platform
from pathlib import Path

import numpy as np
import pytest
import trueno
from trueno.formats import FORMATS, encode
from trueno.gguf import RECIPES, Tensor, conversion
from unit.gguf.files import ARCH, SEED, blocks, raw_file

GGML = np.load(Path(__file__).parents[2] / "golden/ggml/quant.npz", allow_pickle=False)
PURE = {"q3_k": "q3_k_s", "q4_k": "q4_k_s", "q5_k": "q5_k_s"}
"""The mixture by whose default a tensor gets a format, where it is called otherwise."""
NAME = "blk.0.ffn_up.weight"


def bf16(x):
    """x rounded to bfloat16 (towards zero), as raw bytes."""
    return (np.ascontiguousarray(x, np.float32).view(np.uint32) >> 16).astype("<u2").view(np.uint8).reshape(-1)


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("name", sorted({recipe.default for recipe in RECIPES.values()}))
def test_golden_rows_become_golden_bytes(tmp_path, name, weighted):
    trueno.gguf.write(tmp_path / "in", {NAME: GGML["x"]}, ARCH)
    weights = {NAME: GGML["imatrix"]} if weighted else None
    collected = []
    steps = trueno.gguf.convert(
        tmp_path / "in",
        tmp_path / "out",
        PURE.get(name, name),
        imatrix=weights,
        each=lambda s, n: collected.append((s.name, n)),
    )
    assert [(s.name, s.was, s.type) for s in steps] == [(NAME, "f32", name)] and collected == [(NAME, 30)]
    with trueno.gguf.open(tmp_path / "out") as file:
        wanted = GGML[f"{'qim' if weighted else 'q'}_{name.upper()}"]
        assert np.array_equal(file[NAME].bytes, wanted) and file[NAME].shape == GGML["x"].shape
        assert file.metadata["general.quantization_version"] == 2
        assert file.metadata["general.file_type"] == RECIPES[PURE.get(name, name)].file_type


def test_every_format_of_the_golden_rows_but_one_is_some_mixtures_default():
    assert {str(t).lower() for t in GGML["types"]} - {recipe.default for recipe in RECIPES.values()} == {"mxfp4"}


@pytest.mark.parametrize("rows_at_once", [1, 7, 29, 30])
def test_pieces_give_the_same(tmp_path, monkeypatch, rows_at_once):
    trueno.gguf.write(tmp_path / "in", {NAME: GGML["x"]}, ARCH)
    monkeypatch.setattr(conversion, "PIECE", 768 * rows_at_once)
    collected = []
    trueno.gguf.convert(tmp_path / "in", tmp_path / "out", "q8_0", each=lambda s, n: collected.append(n))
    assert collected == [*range(rows_at_once, 30, rows_at_once), 30]
    assert np.array_equal(trueno.gguf.open(tmp_path / "out")[NAME].bytes, GGML["q_Q8_0"])


@pytest.mark.parametrize("kind", ["f16", "f64", "bf16"])
def test_other_floats_are_widened_or_rounded_first(tmp_path, kind):
    x = GGML["x"][:8]
    given = Tensor(NAME, kind, x.shape, bf16(x)) if kind == "bf16" else x.astype({"f16": "f2", "f64": "f8"}[kind])
    trueno.gguf.write(tmp_path / "in", {NAME: given}, ARCH)
    trueno.gguf.convert(tmp_path / "in", tmp_path / "out", "q6_k")
    seen = trueno.gguf.open(tmp_path / "in")[NAME].astype(np.float32)
    assert trueno.gguf.open(tmp_path / "out")[NAME] == trueno.quantize(seen, "q6_k")


def test_each_expert_has_its_own_importance(tmp_path):
    rng = np.random.default_rng(SEED)
    x, weights = rng.standard_normal((3, 4, 256)).astype(np.float32), rng.random((3, 256)).astype(np.float32)
    name = "blk.0.ffn_up_exps.weight"
    trueno.gguf.write(tmp_path / "in", {name: x}, ARCH)
    for given in (weights, weights.ravel()):
        trueno.gguf.convert(tmp_path / "in", tmp_path / "out", "q4_k_s", imatrix={name: given})
        with trueno.gguf.open(tmp_path / "out") as file:
            assert file.tensors[name].shape == x.shape
            for i in range(3):
                assert file[name][4 * i : 4 * i + 4] == trueno.quantize(x[i], "q4_k", weights[i])


def test_an_expert_whose_inputs_were_all_zero_is_written_as_ggml_does(tmp_path):
    rng = np.random.default_rng(SEED)
    x, weights = rng.standard_normal((3, 4, 256)).astype(np.float32), rng.random((3, 256)).astype(np.float32)
    weights[1], weights[2, :128] = 0, 0
    name = "blk.0.ffn_up_exps.weight"
    trueno.gguf.write(tmp_path / "in", {name: x}, ARCH)
    for kind in ("q4_k_s", "q4_0"):
        trueno.gguf.convert(tmp_path / "in", tmp_path / "out", kind, imatrix={name: weights})
        with trueno.gguf.open(tmp_path / "out") as file:
            for i in range(3):
                wanted = encode(FORMATS[kind.removesuffix("_s")], x[i], weights[i])
                assert np.array_equal(file[name][4 * i : 4 * i + 4].bytes, wanted)


def test_tensors_that_stay_are_copied(tmp_path):
    kept = {"blk.0.attn_norm.weight": np.arange(256, dtype=np.float32), "blk.0.scale": np.ones((2, 256), np.float16),
            "token_types.weight": np.ones((2, 256), np.float64), "blk.0.ids": np.arange(4, dtype=np.int64)}  # fmt: skip
    trueno.gguf.write(tmp_path / "in", kept, ARCH)
    trueno.gguf.convert(tmp_path / "in", tmp_path / "out", "q4_k_m")
    with trueno.gguf.open(tmp_path / "out") as file:
        assert all(file[name].dtype == x.dtype and np.array_equal(file[name], x) for name, x in kept.items())


@pytest.mark.parametrize("shape", [(0, 256), (2, 0, 256), (3, 0)], ids=str)
def test_empty_tensors(tmp_path, shape):
    name = "blk.0.ffn_up.weight"
    trueno.gguf.write(tmp_path / "in", {name: np.empty(shape, np.float32)}, ARCH)
    (step,) = trueno.gguf.convert(tmp_path / "in", tmp_path / "out", "q4_k_m")
    assert step.after == 0 and trueno.gguf.open(tmp_path / "out").tensors[name].shape == shape


def test_blocks_are_quantized_again_on_demand_alone(tmp_path):
    q = blocks("q8_0", 4, 8)
    trueno.gguf.write(tmp_path / "in", {NAME: q}, ARCH)
    with pytest.raises(
        trueno.ParameterError, match=f"tensor '{NAME}' is in q8_0 already.*requantize=True, --allow-requantize"
    ):
        trueno.gguf.convert(tmp_path / "in", tmp_path / "out", "q4_k_m")
    trueno.gguf.convert(tmp_path / "in", tmp_path / "out", "q4_k_s", requantize=True)
    assert trueno.gguf.open(tmp_path / "out")[NAME] == trueno.quant.requantize(q, "q4_k")
    trueno.gguf.convert(tmp_path / "in", tmp_path / "out", "q8_0")  # nothing to do is not a loss
    assert trueno.gguf.open(tmp_path / "out")[NAME] == q


def unlike(tmp_path, tensors, said, error=trueno.ParameterError, kind="q4_k_m", metadata=ARCH, **more):
    trueno.gguf.write(tmp_path / "in", tensors, metadata)
    (tmp_path / "out").write_bytes(b"before")
    with pytest.raises(error, match=said):
        trueno.gguf.convert(tmp_path / "in", tmp_path / "out", kind, **more)
    assert (tmp_path / "out").read_bytes() == b"before" and len(list(tmp_path.iterdir())) == 2


def test_numbers_that_no_block_holds(tmp_path):
    x = np.ones((4, 256), np.float32)
    for bad in (np.nan, np.inf, -np.inf):
        x[2, 5] = bad
        unlike(tmp_path, {NAME: x}, rf"tensor '{NAME}', rows from 0: .*x\[2, 5\] is {bad}")
    x[2, 5] = 1e12
    for kind in ("q4_0", "q4_k_m", "q6_k", "q8_0", "iq4_xs", "q2_k", "q4_1"):
        unlike(tmp_path, {NAME: x}, f"tensor '{NAME}', rows from 0: .* out of the range of float16", kind=kind)
    for bad in (np.nan, 1e6):
        unlike(tmp_path, {NAME: np.full((4, 10), bad, np.float32)}, "out of the range of float16")


@pytest.mark.parametrize(
    "weights", [np.ones(255), np.ones(257), np.ones((2, 256)), np.ones(0)], ids=lambda w: str(w.shape)
)
def test_an_importance_that_does_not_fit(tmp_path, weights):
    x = np.ones((4, 256), np.float32)
    unlike(
        tmp_path,
        {NAME: x},
        f"imatrix of '{NAME}' has shape .* it has 256 columns",
        trueno.ShapeError,
        imatrix={NAME: weights},
    )


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_an_importance_that_is_none(tmp_path, bad):
    weights = np.ones(256)
    weights[7] = bad
    x = np.ones((4, 256), np.float32)
    unlike(tmp_path, {NAME: x}, rf"tensor '{NAME}', rows from 0: .*imatrix\[7\] is", imatrix={NAME: weights})


def test_what_is_not_quantized(tmp_path):
    unlike(tmp_path, {NAME: np.ones((4, 256), np.int32)}, "is in i32, which cannot be quantized here", trueno.FileError)
    part = ARCH | {"split.count": np.uint16(3)}
    unlike(tmp_path, {}, "it is a part of a split model", trueno.FileError, metadata=part)


def test_a_model_of_one_part_loses_the_keys_of_parts(tmp_path):
    keys = {"split.no": np.uint16(0), "split.count": np.uint16(1), "split.tensors.count": 0}
    trueno.gguf.write(tmp_path / "in", {}, ARCH | keys | {"general.file_type": 1, "last": 1})
    trueno.gguf.convert(tmp_path / "in", tmp_path / "out", "q4_k_m")
    with trueno.gguf.open(tmp_path / "out") as file:
        assert list(file.metadata) == [
            "general.architecture",
            "last",
            "general.quantization_version",
            "general.file_type",
        ]
        assert file.metadata["general.file_type"] == 15


def test_the_source_is_no_target(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in").write_bytes(raw_file())
    Path("link").symlink_to("in")
    for target in ("in", tmp_path / "in", "link"):
        with pytest.raises(trueno.ParameterError, match="is the input file; write another"):
            trueno.gguf.convert("in", target, "q4_k_m")
    with pytest.raises(trueno.FileError, match="No such file"):
        trueno.gguf.convert("missing", "missing", "q4_k_m")


class TestImportance:
    """Importance matrices as llama.cpp writes them: sums of squares, and how many there were."""

    def made(self, path, tensors):
        trueno.gguf.write(path, tensors, {"general.architecture": "imatrix", "general.type": "imatrix"})
        return conversion.importance(path)

    def test_is_the_mean_of_squares(self, tmp_path):
        sums = np.arange(8, dtype=np.float32).reshape(2, 4)
        found = self.made(tmp_path / "x", {
            "a.in_sum2": sums[:1], "a.counts": np.float32([[4]]), "b.in_sum2": sums, "b.counts": np.float32([[2], [0]]),
        })  # fmt: skip
        assert set(found) == {"a", "b"} and found["a"].tolist() == [0, 0.25, 0.5, 0.75]
        assert found["b"].tolist() == [[0, 0.5, 1, 1.5], [1, 1, 1, 1]]  # an expert that was never asked for
        assert found["a"].dtype == found["b"].dtype == np.float32

    SUM, COUNT = np.ones((1, 3), np.float32), np.ones(1, np.float32)

    @pytest.mark.parametrize(
        "tensors, said",
        [
            ({"a": SUM}, "no tensor ends with .in_sum2"),
            ({"a.in_sum2": SUM}, "there is a.in_sum2, but no a.counts"),
            ({"a.in_sum2": SUM, "a.counts": COUNT.repeat(2)}, "has 3 numbers for 2 counts"),
            ({"a.in_sum2": SUM, "a.counts": COUNT[:0]}, "has 3 numbers for 0 counts"),
            ({"a.in_sum2": SUM[:, :0], "a.counts": COUNT}, "has 0 numbers for 1 counts"),
            ({"a.in_sum2": blocks("q8_0"), "a.counts": COUNT}, "a.in_sum2 is in q8_0"),
            ({"a.in_sum2": SUM, "a.counts": blocks("q8_0")}, "a.counts is in q8_0"),
        ],
        ids=range(7),
    )  # fmt: skip
    def test_that_is_none_is_refused(self, tmp_path, tensors, said):
        with pytest.raises(trueno.FileError, match=said):
            self.made(tmp_path / "x", tensors)

    def test_of_the_old_kind_is_no_gguf(self, tmp_path):
        (tmp_path / "imatrix.dat").write_bytes(b"\x01\x00\x00\x00\x05\x00\x00\x00token")
        with pytest.raises(trueno.FileError, match="it begins with"):
            conversion.importance(tmp_path / "imatrix.dat")


def model(path, rng):
    """Two models in one: widths that fit and that do not, experts, and floats of every kind."""
    tensors = {"token_embd.weight": rng.standard_normal((6, 256)), "output_norm.weight": rng.standard_normal(256)}
    for i in range(8):
        b = f"blk.{i}."
        for name, shape in (
            ("attn_norm", (256,)), ("attn_q", (3, 256)), ("attn_k", (2, 256)), ("attn_v", (2, 256)),
            ("attn_output", (3, 512)), ("ffn_gate", (2, 3, 256)),
            ("ffn_up", (4, 256)), ("ffn_down", (3, (288, 256)[i % 2])),
        ):  # fmt: skip
            tensors[f"{b}{name}.weight"] = rng.standard_normal(shape) * rng.choice([0.01, 1.0, 30.0], (*shape[:-1], 1))
    tensors["blk.7.narrow.weight"] = rng.standard_normal((5, 40))
    tensors = {name: x.astype(np.float32) for name, x in tensors.items()}
    for name in ("blk.2.attn_q.weight", "blk.3.ffn_down.weight", "blk.4.attn_v.weight"):
        tensors[name] = tensors[name].astype(np.float16)
    for name in ("blk.2.attn_k.weight", "blk.4.ffn_gate.weight"):
        tensors[name] = Tensor(name, "bf16", tensors[name].shape, bf16(tensors[name]))
    keys = {"block_count": 8, "context_length": 64, "embedding_length": 256, "feed_forward_length": 256}
    keys |= {"attention.head_count": 8, "attention.head_count_kv": 2, "attention.layer_norm_rms_epsilon": 1e-5}
    names = {f"llama.{name}": value for name, value in keys.items()}
    trueno.gguf.write(
        path, tensors, {"general.name": "tiny"} | ARCH | names | {"tokenizer.ggml.tokens": ["a", "é"] * 3}
    )
    return {
        name: rng.random((x.shape[0] if len(x.shape) == 3 else 1, x.shape[-1])).astype(np.float32)
        for name, x in tensors.items()
        if name != "blk.6.attn_q.weight"
    }


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="ggml's quantizers may round otherwise there")
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("kind", RECIPES)
def test_the_file_is_the_one_that_llama_cpp_writes(tmp_path, kind, weighted):
    llama = pytest.importorskip("llama_cpp", reason="llama-cpp-python, which is compared with, is not installed")
    weights = model(tmp_path / "in", np.random.default_rng(SEED))
    p = llama.llama_model_quantize_default_params()
    p.ftype, p.nthread = RECIPES[kind].file_type, 1
    if weighted:
        data = (llama.llama_cpp.llama_model_imatrix_data * (len(weights) + 1))()
        for entry, (name, w) in zip(data, weights.items(), strict=False):
            entry.name, entry.size = name.encode(), w.size
            entry.data = w.ctypes.data_as(type(entry.data))
        p.imatrix = data
    silent = llama.llama_log_callback(lambda level, text, data: None)
    llama.llama_log_set(silent, None)
    its, ours = tmp_path / "its", tmp_path / "ours"
    assert llama.llama_model_quantize(str(tmp_path / "in").encode(), str(its).encode(), ctypes.byref(p)) == 0
    steps = trueno.gguf.convert(tmp_path / "in", ours, kind, imatrix=weights if weighted else None)
    with trueno.gguf.open(its) as a, trueno.gguf.open(ours) as b:
        assert {n: t.type for n, t in a.tensors.items()} == {n: t.type for n, t in b.tensors.items()}
        wrong = [n for n in a if not np.array_equal(a.tensors[n].raw, b.tensors[n].raw)]
        assert not wrong, {n: a.tensors[n].type for n in wrong}
        assert [(s.name, s.type, s.after) for s in steps] == [(t.name, t.type, t.nbytes) for t in a.tensors.values()]
    assert its.read_bytes() == ours.read_bytes()
    assert {s.type for s in steps} - {"f32"} <= {*FORMATS, "f16"} and "f16" in {s.type for s in steps}
