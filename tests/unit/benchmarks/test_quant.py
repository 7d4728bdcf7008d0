"""The peer of quantized tensors: ggml through ctypes gives ggml's own results, and its stand-in is scaled right."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import trueno
from trueno.formats import ACTIVATIONS, FORMATS, WEIGHTS, decode

from benchmarks.compare import Record
from benchmarks.peers import ggml, recorded
from benchmarks.rows import Plan, quant
from benchmarks.targets import QUANT, verdicts
from benchmarks.timing import OURS, Budget, Comparison

GOLDEN = Path(__file__).parents[2] / "golden" / "ggml" / "quant.npz"
N, K = 48, 512
needs_ggml = pytest.mark.skipif(ggml.library() is None, reason=ggml.MISSING)


def product(name, **more):
    """ggml's product, or a skip where it has no such layout."""
    try:
        return ggml.MulMat(name, N, K, **more)
    except ggml.Unsupported as error:
        pytest.skip(str(error))


@needs_ggml
@pytest.mark.parametrize("m", [1, 5, 32])
@pytest.mark.parametrize("repack", [False, True], ids=["plain", "repack"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_products_are_those_of_numpy(name, repack, m):
    mm = product(name, m=m, threads=2 if m == 5 else 1, repack=repack, copies=3)
    assert np.isnan(mm.result()).all()
    assert mm.check() <= 1
    assert np.array_equal(mm.result(0), mm.result(2))
    mm.close()


@needs_ggml
def test_a_wrong_product_is_caught():
    mm = product("q6_k", m=2)
    mm.w = mm.w[::-1]
    with pytest.raises(ArithmeticError, match="q6_k"):
        mm.check()


@needs_ggml
def test_activations_can_be_changed():
    mm = product("q4_k", m=3)
    mm.check()
    before = mm.result()
    mm.give(-mm.x[::-1])
    assert mm.check() <= 1
    assert not np.array_equal(mm.result(), before)


@needs_ggml
def test_operands_of_other_sizes_are_refused():
    with pytest.raises(ValueError, match="another array of bytes"):
        ggml.MulMat("q4_k", N, K, w=np.zeros((N, 287), np.uint8))


@needs_ggml
@pytest.mark.parametrize("name", WEIGHTS)
def test_rows_are_the_golden_ones(name):
    with np.load(GOLDEN) as golden:
        key = name.upper()
        x, blocks, values = golden["x"], golden[f"q_{key}"], golden[f"dq_{key}"]
        weighted, imatrix, row_names = golden[f"qim_{key}"], golden["imatrix"], list(golden["row_names"])
    keep = [i for i, row in enumerate(row_names) if not (name == "q8_0" and row == "denorm")]  # undefined in C
    assert np.array_equal(ggml.quantized(name, x)[keep], blocks[keep])
    out = np.zeros_like(blocks)
    ggml.quantizer(name, x, out, imatrix)()
    assert np.array_equal(out[keep], weighted[keep])
    assert np.array_equal(ggml.dequantized(name, blocks), values)


@needs_ggml
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_the_golden_ones(name):
    key = {"q8_k": "Q8_K"}.get(name, name.upper())
    with np.load(GOLDEN) as golden:
        x, wanted = golden["act"], golden[f"act_cpu_{key}"]
    out = np.zeros_like(wanted)
    ggml.activation_quantizer(name, x, out)()
    assert np.array_equal(out, wanted)


def test_calls_take_turns():
    seen = []
    call = ggml.rotating([lambda: seen.append("a"), lambda: seen.append("b"), lambda: seen.append("c")])
    for _ in range(4):
        call()
    assert seen == ["a", "b", "c", "a"]


@pytest.mark.parametrize("nbytes", [1000, 9 << 20, 25 << 20])
def test_copies_are_more_than_a_cache_holds(nbytes):
    assert ggml.copies(nbytes) * nbytes > ggml.FOLDED


def test_the_lack_of_ggml_is_said(monkeypatch):
    monkeypatch.setattr(ggml, "find_spec", lambda name: None)
    monkeypatch.setattr(ggml, "library", ggml.library.__wrapped__)
    with pytest.raises(RuntimeError, match="pip install llama-cpp-python"):
        ggml.needed()


def test_libraries_that_do_not_load_are_as_good_as_none(monkeypatch, tmp_path):
    class Spec:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr(ggml, "find_spec", lambda name: Spec)
    assert ggml.library.__wrapped__() is None


# ---- cells; ggml's functions stand in for ours, and NumPy's where there is no ggml

WORK = Plan(quick=True, budget=Budget(rounds=1, seconds=0.0, turn=0.0, runs=1))


def stand_in(op, *operands, out, **given):
    if op == "quantize_rows":
        return ggml.quantizer(given["format"], operands[0], out)
    q, x = operands[::-1] if op == "quant_matmul" else (*operands, None)[:2]
    q = q.plain()
    if op == "dequantize":
        return lambda: np.copyto(out, decode(FORMATS[q.format], q.bytes))
    product = ggml.MulMat(q.format, *q.shape, out.size // len(q.bytes), w=q.bytes, x=x)

    def call():
        product.run()
        np.copyto(out, product.result().reshape(out.shape))

    return call


@pytest.fixture
def small(monkeypatch):
    """Small matrices, and a folded memory of some copies."""
    monkeypatch.setattr(quant, "N", 256)
    monkeypatch.setattr(quant, "COLUMNS", (512,))
    monkeypatch.setattr(quant, "BLOCKS", {"dequantize": (2, 512), "quantize_rows": (2, 512)})
    monkeypatch.setattr(quant, "ours", stand_in)
    monkeypatch.setattr(ggml, "FOLDED", 200_000)
    quant._made.clear()
    yield
    quant._made.clear()


@needs_ggml
def test_a_record_bears_the_name_of_its_cell_and_everybody_agrees(small):
    for cell in quant.cells(WORK):
        (cell_record,) = cell.measure()
        assert (cell_record.group, cell_record.name, cell_record.shape) == (cell.group, cell.name, cell.shape)
        assert not cell_record.problem
        if not cell_record.shape.endswith("gguf"):
            assert cell_record.seconds.keys() >= {OURS, quant.PLAIN if cell_record.name.endswith("_r16") else "ggml"}


@needs_ggml
def test_both_layouts_of_ggml_take_part(small):
    (cell_record,) = quant._matvec("q4_k", 512, 1, quant.STREAMING, WORK)
    product("q4_k", repack=True)
    assert set(cell_record.seconds) == {OURS, "ggml", "ggml repack"}


@needs_ggml
@pytest.mark.parametrize("op, name", [("quant_matvec", "q6_k"), ("dequantize", "q4_0"), ("quantize_rows", "q4_0")])
def test_ours_must_agree(small, monkeypatch, op, name):
    def off(*args, out, **given):
        call = stand_in(*args, out=out, **given)

        def wrong():
            call()
            out[..., -1] += out.dtype.type(1)

        return wrong

    monkeypatch.setattr(quant, "ours", off)
    cell = next(c for c in quant.cells(replace(WORK, quick=False)) if c.name == f"{op} {name}")
    (cell_record,) = cell.measure()
    assert cell_record.problem == "disagrees with ours: ggml"
    assert not any(v.ok for v in verdicts([cell_record]) if v.row.startswith("quantized"))


def test_two_threads_that_take_longer_than_one_give_no_ratio(small, monkeypatch):
    taken = {1: 2.0, 2: 3.0}
    monkeypatch.setattr(quant, "_raced", lambda calls, threads, *rest: Comparison(
        {OURS: 1.0, "ggml": taken[threads]}, [taken[threads]], "ggml"
    ))  # fmt: skip
    monkeypatch.setattr(quant, "_alone", {})
    out = np.ones(quant.N, np.float32)

    def measured(threads):
        shape = f"4×4, {quant._threads(threads)}, cache"
        (cell_record,) = quant._product(
            "quant_matvec", "q4_k", shape, {OURS: lambda: None}, out, {}, threads, WORK, None
        )
        return cell_record.value, cell_record.seconds["ggml"]

    assert [measured(1), measured(2)] == [(2.0, 2.0), (None, 3.0)]
    taken[2] = 1.5
    assert measured(2) == (1.5, 1.5)


@needs_ggml
def test_interleaved_rows_are_compared_with_plain_ones_and_answer_for_no_other_row(small):
    cells = [c for c in quant.cells(replace(WORK, quick=False)) if c.name.endswith("_r16")]
    assert {c.name for c in cells} == {f"quant_matvec {name}_r16" for name in quant.MATVEC}
    shown = []
    for cell in cells:
        (cell_record,) = cell.measure()
        assert (cell_record.name, cell_record.shape, cell_record.problem) == (cell.name, cell.shape, "")
        assert set(cell_record.seconds) == {OURS, quant.PLAIN}
        shown.append(cell_record)
    assert all(v.ok is None for v in verdicts(shown) if v.row.startswith("quantized"))


def test_not_a_number_is_no_result(small):
    out = np.full(3, np.nan, np.float32)
    calls = {OURS: lambda: None, "ggml": lambda: None}
    said = quant._disagreeing(calls, {OURS: lambda: out, "ggml": lambda: out}, exact=False)
    assert said == "disagrees with ours: trueno, ggml"
    assert not calls


def test_without_ggml_its_figures_are_scaled_and_marked(small, monkeypatch):
    monkeypatch.setattr(ggml, "library", lambda: None)
    monkeypatch.setattr(recorded, "faster", lambda where, threads, count: 2.0)
    monkeypatch.setattr(quant, "BLOCKS", {"dequantize": (2, 4096)})
    monkeypatch.setattr(quant, "_operands", lambda op, name, m, k: (
        np.zeros((m, FORMATS[name].row_bytes(k)), np.uint8), np.zeros((m, k), np.float32)
    ))  # fmt: skip
    (cell_record,) = quant._rows("dequantize", "q4_k", 2, 4096, WORK)
    assert cell_record.peer == recorded.NAME == "ggml (recorded)"
    assert cell_record.seconds[recorded.NAME] == pytest.approx(2 * 4096 / 9142e6 / 2)
    assert cell_record.value == pytest.approx(cell_record.seconds[recorded.NAME] / cell_record.seconds[OURS])
    (cell_record,) = quant._rows("dequantize", "iq4_nl", 2, 4096, WORK)
    assert (cell_record.value, cell_record.problem) == (None, "")


def test_figures_of_another_machine():
    assert recorded.matvec("q4_k", 4096, quant.CACHE, 2) == pytest.approx(146e-6)
    assert recorded.matmul("q4_k", 512, 2) == pytest.approx(2 * 512 * 4096**2 / 1069e9)
    assert recorded.rows("quantize_rows", "iq4_nl", 5_800_000) == pytest.approx(1.0)
    assert recorded.matvec("mxfp4", 4096, quant.CACHE, 1) is recorded.rows("dequantize", "mxfp4", 1) is None


def test_every_product_was_recorded():
    assert all(recorded.matvec(n, k, w, t) for n in quant.MATVEC for k in quant.COLUMNS
               for w in (quant.CACHE, quant.STREAMING) for t in quant.THREADS)  # fmt: skip
    assert all(recorded.matmul(n, m, t) for n in quant.MATMUL for m in quant.M for t in quant.THREADS)


def test_how_much_faster_this_machine_reads(monkeypatch):
    counts = []
    monkeypatch.setattr(recorded, "once", lambda call: (8 << 20) / 226e9)
    with trueno.use("reference"):
        assert recorded.faster.__wrapped__(quant.CACHE, 1, counts.append) == pytest.approx(2.0)
    assert counts == [1]


def test_threads_are_set_back():
    from trueno_simd.threads.pool import count

    before = count()
    with quant.counted(before + 1):
        assert count() == before + 1
    assert count() == before


# ---- targets


def record(name, shape, value):
    return Record("quant", name, shape, value=value, peer="ggml", ratios=[value], seconds={OURS: 1e-6, "ggml": 1e-6})


def test_a_bar_is_missed_by_one_cell():
    records = [record("quant_matvec q4_k", "a", 1.5), record("quant_matvec q4_k", "b", 0.9),
               record("quant_matvec q4_0", "a", 3.0)]  # fmt: skip
    found = {v.row: v for v in verdicts(records)}
    verdict = found["quantized: mat-vec q4_k, against ggml"]
    assert verdict.measured == "1 of 2, mean 1.16×; worst 0.90× (quant_matvec q4_k, b)"
    assert verdict.ok is False
    assert found["quantized: mat-vec q4_0, against ggml"].ok is True
    assert found["quantized: mat-mul q4_k, against ggml"].ok is None


def test_a_cell_without_a_ratio_leaves_the_bar_open():
    open_ = replace(record("quant_matvec q4_k", "b", 0.1), value=None)
    row = "quantized: mat-vec q4_k, against ggml"
    passed, missed = record("quant_matvec q4_k", "a", 1.5), record("quant_matvec q4_k", "a", 0.5)
    verdict = next(v for v in verdicts([passed, open_]) if v.row == row)
    assert verdict.ok is None
    assert verdict.measured.endswith("; 1 without a ratio")
    assert next(v for v in verdicts([missed, open_]) if v.row == row).ok is False


def test_the_package_has_a_bar_of_its_own():
    records = [record("dequantize q4_0", "2×4096", 1.2), record("dequantize q4_0", "2×4096, 2 threads, gguf", 4.0)]
    found = {v.row: v.ok for v in verdicts(records)}
    assert found["quantized: dequantize, each format, against ggml"] is True
    assert found["quantized: dequantize, each format, against gguf"] is False


def test_targets_against_ggml_and_gguf():
    targets = {whom: {title: least for title, _, least in rows} for whom, rows in QUANT.items()}
    assert targets["ggml"]["mat-vec q4_k"] == targets["ggml"]["quantize, each format"] == 1.0
    assert targets["ggml"]["mat-mul q6_k"] == 0.9
    assert set(targets["gguf"].values()) == {5.0}
