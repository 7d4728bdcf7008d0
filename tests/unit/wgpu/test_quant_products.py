"""Products with quantized matrices on wgpu, against float64: whatever the bytes, the shapes, and the device's limits.

What codes and scales stand for is multiplied exactly and rounded a few times: |y - Σ w·a| is at most
(k + 4) · 2⁻²⁴ · Σ |w·a|.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("wgpu", reason="needs wgpu")
from trueno.discovery.protocol import Call
from trueno.errors import KernelError
from trueno.formats import FORMATS, WEIGHTS, decode
from trueno.formats.activations import rounded_activations
from trueno.ops import TABLE
from trueno_wgpu.device.array import Array
from trueno_wgpu.kernels import KERNELS

GGML = np.load(Path(__file__).parents[2] / "golden/ggml/quant.npz", allow_pickle=False)
USUAL = ("q4_k", "q6_k", "q8_0")
MODES = ("q8", "f32")


def kernel(gpu: Any, op: str, name: str, mode: str = "q8", guarded: bool = False) -> Any:
    static = (("format", name), ("activations", mode))
    return KERNELS[op](gpu, Call(TABLE[op], np.dtype("f4"), "ee", 2, (1, 1), static, guarded=guarded))


def random_bytes(rng: np.random.Generator, name: str, rows: int, blocks: int) -> np.ndarray:
    """Every kind of scale: subnormal, infinite, NaN; and some blocks of zeros."""
    f = FORMATS[name]
    w = rng.integers(0, 256, (rows * blocks, f.nbytes), dtype=np.uint8)
    w[::7] = 0
    if f.e8m0:
        w[:, f.fields["d"].offset] = rng.integers(0, 250, len(w))  # 12 · 2^127 is not a float32
    return w.reshape(rows, blocks * f.nbytes)


def sane_bytes(rng: np.random.Generator, name: str, rows: int, blocks: int) -> np.ndarray:
    """Random codes and scales of blocks, but finite ones."""
    f = FORMATS[name]
    w = rng.integers(0, 256, (rows * blocks, f.nbytes), dtype=np.uint8)
    for word in {f.d, f.m} - {""}:
        spec = f.fields[word]
        scales = (rng.standard_normal(len(w)) * 0.01).astype("<f2").view(np.uint8).reshape(-1, 2)
        w[:, spec.offset : spec.offset + spec.nbytes] = rng.integers(100, 140, (len(w), 1)) if f.e8m0 else scales
    return w.reshape(rows, blocks * f.nbytes)


def product(gpu: Any, name: str, w: np.ndarray, x: np.ndarray, mode: str = "q8", columns: bool = False) -> np.ndarray:
    """x · wᵀ, or x · w where the blocks are columns'; x a vector or a matrix."""
    f = FORMATS[name]
    op = ("quant_matvec" if x.ndim == 1 else "quant_matmul") + ("_colmajor" if columns else "")
    n = f.row_elements(w.shape[1]) if columns else len(w)
    out = Array.of(gpu, np.full((*x.shape[:-1], n), np.nan, "f4"))
    matrix, given = Array.of(gpu, w), Array.of(gpu, x)
    operands = (matrix, given) if x.ndim == 1 else (given, matrix)
    assert kernel(gpu, op, name, mode)(*operands, out) == 0
    return out.numpy().astype(float)


def assert_product(y: np.ndarray, a: np.ndarray, w: np.ndarray) -> None:
    """y against a · w in float64.  Where the exact product is not a number, neither may the result be one."""
    k = len(w)
    with np.errstate(all="ignore"):
        wanted, size = a @ w, np.abs(a) @ np.abs(w)
        numbers = np.isfinite(size)
        assert not np.isfinite(y[~numbers]).any(), "a number where there is none"
        known = numbers & (size < 1e38)
        excess = np.abs(y - wanted) - ((k + 4) * 2.0**-24 * size + (k + 4) * 2.0**-149)
    assert (excess[known] <= 0).all(), f"off by {excess[known].max():g} more than allowed"


def check(gpu: Any, name: str, w: np.ndarray, x: np.ndarray, mode: str, columns: bool = False) -> None:
    with np.errstate(all="ignore"):
        wide = decode(FORMATS[name], w).astype(float)
        a = x if columns else rounded_activations(x, FORMATS[name], mode)
    assert_product(product(gpu, name, w, x, mode, columns), a.astype(float), wide if columns else wide.T)


@pytest.mark.parametrize("name", WEIGHTS)
def test_products_are_ggmls(gpu: Any, name: str) -> None:
    """Within 2e-6 of its own dot products, which its order of summation explains."""
    key, x = name.upper(), GGML["act"]
    w = GGML[f"q_{key}"]
    y = product(gpu, name, w, x)
    wide, a = decode(FORMATS[name], w).astype(float), rounded_activations(x, FORMATS[name], "q8").astype(float)
    loose = 1e-3 if FORMATS[name].m == "m" else 2e-6  # q8_1 keeps its sum in float16
    assert (np.abs(y - GGML[f"vd_{key}"].T) <= loose * (np.abs(a) @ np.abs(wide).T)).all()
    assert_product(y, a, wide.T)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WEIGHTS)
def test_one_row(gpu: Any, rng: np.random.Generator, name: str, mode: str) -> None:
    """Rows that are not a multiple of anything, and lengths from one block on."""
    size = FORMATS[name].elements
    for rows, count in [(1, 1), (2, 2), (3, 5), (7, 9), (100, 2), (5, 4096 // size)]:
        x = rng.standard_normal(count * size).astype("f4")
        check(gpu, name, sane_bytes(rng, name, rows, count), x, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("m", [1, 3, 11, 70])
def test_several_rows(gpu: Any, rng: np.random.Generator, name: str, mode: str, m: int) -> None:
    """Four at a time, twice eight, and by tiles."""
    size = FORMATS[name].elements
    for rows, count in [(1, 1), (67, 3)]:
        x = rng.standard_normal((m, count * size)).astype("f4")
        check(gpu, name, sane_bytes(rng, name, rows, count), x, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("m", [1, 20])
def test_any_bytes(gpu: Any, rng: np.random.Generator, name: str, mode: str, m: int) -> None:
    size = FORMATS[name].elements
    x = (rng.standard_normal((m, 8 * size)) * 10.0 ** rng.integers(-3, 4, (m, 1))).astype("f4")
    x[rng.random(x.shape) < 0.2] = 0
    check(gpu, name, random_bytes(rng, name, 60, 8), x, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WEIGHTS)
def test_extremes(gpu: Any, rng: np.random.Generator, name: str, mode: str) -> None:
    """Codes at either end against activations at either end: what a sum in too few bits would get wrong."""
    f = FORMATS[name]
    count = max(1, 1024 // f.elements)
    x = np.stack([np.ones(1024), -np.ones(1024), rng.choice([-1.0, 1.0], 1024), np.zeros(1024)])
    x = x[:, : count * f.elements].astype("f4")
    w = np.repeat(np.array([0x00, 0xFF, 0x80, 0x7F, 0x0F, 0xF0, 0x55], np.uint8)[:, None], count * f.nbytes, axis=1)
    for word in {f.d, f.m} - {""}:
        spec = f.fields[word]
        w.reshape(-1, f.nbytes)[:, spec.offset : spec.offset + spec.nbytes] = [127] if f.e8m0 else [0x01, 0x3C]
    for rows in x, np.tile(x, (5, 1)):
        check(gpu, name, w, rows, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("m", [1, 20])
def test_not_numbers(gpu: Any, rng: np.random.Generator, name: str, mode: str, m: int) -> None:
    """NaN or Inf in a row of x leave no finite result in its row, and touch no other."""
    f = FORMATS[name]
    w = sane_bytes(rng, name, 6, 8)
    x = rng.standard_normal((m, 8 * f.elements)).astype("f4")
    clean = product(gpu, name, w, x, mode)
    for row, bad in enumerate((np.nan, np.inf, -np.inf)[:m]):
        x[row, 3 * f.elements // 2] = bad
    y = product(gpu, name, w, x, mode)
    assert not np.isfinite(y[:3]).any()
    assert np.array_equal(y[3:], clean[3:])


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("m", [1, 3, 20])
def test_blocks_along_the_result(gpu: Any, rng: np.random.Generator, name: str, m: int) -> None:
    for rows, count in [(1, 1), (3, 5), (130, 3)]:
        for made in (sane_bytes, random_bytes):
            x = rng.standard_normal((m, rows)).astype("f4")
            check(gpu, name, made(rng, name, rows, count), x[0] if m == 1 else x, "f32", columns=True)


@pytest.mark.parametrize("name", USUAL)
@pytest.mark.parametrize("m", [1, 20])
@pytest.mark.parametrize("columns", [False, True])
def test_a_matrix_that_no_binding_holds_comes_in_parts(
    gpu: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, name: str, m: int, columns: bool
) -> None:
    """Rows of 34 or 210 bytes begin at multiples of 256 only now and then."""
    f = FORMATS[name]
    count = 9 if f.elements == 32 else 3
    w = sane_bytes(rng, name, 700, count)
    x = rng.standard_normal((m, 700 if columns else count * f.elements)).astype("f4")
    monkeypatch.setattr(gpu, "limits", replace(gpu.limits, binding=w.nbytes // 2))
    gpu.counts.reset()
    for mode in MODES[columns:]:
        check(gpu, name, w, x[0] if m == 1 else x, mode, columns)


@pytest.mark.parametrize("columns", [False, True])
def test_rows_of_x_that_no_binding_holds_come_in_parts(
    gpu: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, columns: bool
) -> None:
    w = sane_bytes(rng, "q4_0", 64, 2)
    x = rng.standard_normal((500, 64)).astype("f4")
    monkeypatch.setattr(gpu, "limits", replace(gpu.limits, binding=x.nbytes // 3))
    for mode in MODES[columns:]:
        check(gpu, "q4_0", w, x, mode, columns)


@pytest.mark.parametrize("m", [1, 20])
@pytest.mark.parametrize("columns", [False, True])
def test_loops_stay_within_the_budget(
    gpu: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, m: int, columns: bool
) -> None:
    """A CPU adapter ends longer loops silently: k is split, over dispatches or over workgroups."""
    w = sane_bytes(rng, "q8_0", 3000 if columns else 40, 2 if columns else 90)
    x = rng.standard_normal((m, 3000 if columns else 90 * 32)).astype("f4")
    monkeypatch.setattr(gpu, "limits", replace(gpu.limits, trips=60))
    for mode in MODES[columns:]:
        check(gpu, "q8_0", w, x[0] if m == 1 else x, mode, columns)
    if not columns and m == 1:
        monkeypatch.setattr(gpu, "limits", replace(gpu.limits, trips=8))
        with pytest.raises(KernelError, match="quant_matvec: rows of 2880 elements"):
            product(gpu, "q8_0", w, x[0])


@pytest.mark.parametrize("name", ["q4_0", "q4_k"])
@pytest.mark.parametrize("mode", MODES)
def test_what_does_not_fit_is_refused(gpu: Any, name: str, mode: str) -> None:
    f = FORMATS[name]
    w, x = np.zeros((3, 2 * f.nbytes), np.uint8), np.ones(2 * f.elements, "f4")
    run = kernel(gpu, "quant_matvec", name, mode)
    many = kernel(gpu, "quant_matmul", name, mode)
    for bad_w, bad_x, n in [
        (w, x[:-1], 3), (w, x[: f.elements], 3), (w, x, 2), (w[:2], x, 3), (w[:, :-1], x, 3), (w[:, : f.nbytes], x, 3),
    ]:  # fmt: skip
        out = Array.of(gpu, np.full(n, 3, "f4"))
        a, b = Array.of(gpu, np.ascontiguousarray(bad_w)), Array.of(gpu, bad_x)
        assert run(a, b, out) == -1
        assert many(b.reshape((1, bad_x.size)), a, out.reshape((1, n))) == -1
        assert np.all(out.numpy() == 3)
    a, b = Array.of(gpu, w), Array.of(gpu, x)
    assert run(a.reshape((a.size,)), b, Array.empty(gpu, (3,), "f4")) == -1
    square = Array.of(gpu, np.ones((2 * f.elements, 2 * f.elements), "f4"))
    blocks = Array.of(gpu, np.zeros((2 * f.elements, 2 * f.nbytes), np.uint8))
    assert many(square, blocks, square) == -1
    assert np.all(square.numpy() == 1), "written although it is an operand"


@pytest.mark.parametrize("mode", MODES)
def test_nothing_to_do(gpu: Any, mode: str) -> None:
    """The sum of nothing is 0; a result without elements is not touched."""
    f = FORMATS["q4_0"]
    empty = Array.empty(gpu, (3, 0), np.uint8)
    out = Array.of(gpu, np.full(3, 7, "f4"))
    assert kernel(gpu, "quant_matvec", "q4_0", mode)(empty, Array.empty(gpu, (0,), "f4"), out) == 0
    assert not out.numpy().any()
    none = Array.empty(gpu, (0, f.nbytes), np.uint8)
    run = kernel(gpu, "quant_matmul", "q4_0", mode)
    assert run(Array.of(gpu, np.ones((2, 32), "f4")), none, Array.empty(gpu, (2, 0), "f4")) == 0


LONG = [op for op in KERNELS if TABLE[op].quantized and not TABLE[op].caches and op != "quant_experts"]
"""Those whose results are long here; caches and experts have tests of their own."""


@pytest.mark.parametrize("op", LONG)
def test_guarded_kernels_tell_of_nan_and_inf(gpu: Any, rng: np.random.Generator, op: str) -> None:
    """The same bits as the plain kernel's, and the status word says what is among them."""
    f, rows = FORMATS["q8_0"], 8200
    w = sane_bytes(rng, "q8_0", rows, 1)
    sick = w.copy()
    sick[:, :2] = np.frombuffer(np.float16("inf").tobytes(), np.uint8)
    columns = op.endswith("_colmajor")
    x = rng.standard_normal((1, rows if columns else 32)).astype("f4")
    shape = w.shape[0], 32
    if op not in ("dequantize", "quant_embedding_lookup"):
        shape = (1, 32) if columns else (1, rows)
    for matrix in w, sick:
        found = []
        for guarded in False, True:
            out = Array.empty(gpu, shape, "f4")
            a, b = Array.of(gpu, matrix), Array.of(gpu, x)
            run = kernel(gpu, op, f.name, "f32", guarded)
            if op == "dequantize":
                assert run(a, out) == 0
            elif op == "quant_embedding_lookup":
                assert run(a, Array.of(gpu, np.arange(rows)), out) == 0
            elif "matvec" in op:
                assert run(a, b.reshape((x.size,)), out.reshape((shape[1],))) == 0
            else:
                assert run(b, a, out) == 0
            found.append(out.numpy())
        bits = int(np.isnan(found[1]).any()) | 2 * int(np.isinf(found[1]).any())
        assert gpu.take_status() == bits
        assert bits == 0 if matrix is w else bits > 0
        assert found[0].tobytes() == found[1].tobytes()


def test_what_has_no_kernel_is_said() -> None:
    call = Call(TABLE["quantize_rows"], np.dtype("f4"), "e", 2, (1,), (("format", "q4_k"),))
    refused = KERNELS.refusal(call)
    assert refused is not None
    assert refused.code == "unsupported_op"


@pytest.mark.parametrize("m", [1, 4, 20])
def test_what_a_minimum_takes_off_does_not_overflow_before(gpu: Any, m: int) -> None:
    """Codes times the scale and the minimum cancel; either alone, times x, is beyond the largest float32."""
    block = np.float16([1.0, 7.5]).tobytes() + b"\1" * 8 + b"\x11" * 4 + b"\x88" * 128
    w = np.frombuffer(block, np.uint8)[None].repeat(5, 0)
    assert set(decode(FORMATS["q4_k"], w).reshape(-1)) == {0.5}
    x = np.full((m, 256), 2e36, "f4")
    got = product(gpu, "q4_k", w, x[0] if m == 1 else x)
    np.testing.assert_allclose(got, 256 * 0.5 * 2e36, rtol=1e-5)


@pytest.mark.usefixtures("chosen")
def test_what_follows_a_product_of_a_vector_is_part_of_it(rng: np.random.Generator) -> None:
    """In a batch: biases, and swiglu of two products; one vector is converted once."""
    import trueno
    from trueno_wgpu.device import opened

    ws = [trueno.quantize(rng.standard_normal((70, 512), np.float32) / 20, name) for name in ("q4_k", "q6_k", "q8_0")]
    x, bias = rng.standard_normal(512, np.float32), rng.standard_normal(70, np.float32)
    wide = [trueno.dequantize(w).astype(float) @ x for w in ws]
    gate = wide[0] / (1 + np.exp(-wide[0])) * wide[1]
    for mode, bound in (("f32", 1e-5), ("q8", 5e-2)):
        with trueno.Batch("wgpu") as b:
            h = b.upload(x)
            products = [b.quant_matvec(b.upload(w), h, activations=mode) for w in ws]
            results = b.swiglu(*products[:2]), b.bias_activation(products[2], b.upload(bias), activation="none")
            assert "quant_matvec → swiglu" in str(b) and "quant_matvec → bias_activation" in str(b)
            b.execute()
            opened.gpu().counts.reset()
            b.execute()
            made = {"f32": 0, "q8": 2}[mode]  # for blocks of 256, and for those of 32
            assert opened.gpu().counts.kernels == 3 + made
            for y, wanted in zip(results, (gate, wide[2] + bias), strict=True):
                assert np.abs(b.read(y) - wanted).max() <= bound * np.abs(wanted).max()
