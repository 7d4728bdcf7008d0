"""QuantizedMatrix with its rows interleaved: the same matrix, whichever backend reads it; and what is refused."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import trueno
from trueno.formats import FORMATS, INTERLEAVED, WEIGHTS, decode
from trueno.formats.samples import random_rows

GGML = np.load(Path(__file__).parents[2] / "golden/ggml/quant.npz", allow_pickle=False)
SEED = 20261122
F32 = np.float32


def made(name="q4_k", shape=(40, 512), seed=SEED):
    f = FORMATS[name]
    rows = random_rows(f, (shape[0], f.row_bytes(shape[1])), np.random.default_rng(seed))
    return trueno.QuantizedMatrix(rows, shape, name)


def normal(*shape):
    return np.random.default_rng(SEED).standard_normal(shape).astype(F32)


@pytest.fixture(params=["reference", "scalar", "simd"], autouse=True)
def on(request):
    if request.param == "simd":
        pytest.importorskip("numba", reason="needs numba")
    with trueno.use(request.param):
        yield request.param


@pytest.mark.parametrize("name", WEIGHTS)
def test_the_same_bytes_in_another_order_and_back(name):
    w = GGML[f"q_{name.upper()}"]
    q = trueno.QuantizedMatrix(w, (len(w), FORMATS[name].row_elements(w.shape[1])), name)
    laid = q.interleaved()
    assert laid.format == f"{name}_r16"
    assert laid.shape == q.shape
    assert laid.nbytes == q.nbytes
    assert sorted(laid.bytes.ravel().tolist()) == sorted(w.ravel().tolist())
    assert not np.array_equal(laid.bytes, w)
    assert laid.plain() == q
    assert laid.plain().bytes.tobytes() == w.tobytes()
    assert np.array_equal(w, GGML[f"q_{name.upper()}"])


@pytest.mark.slow
@pytest.mark.parametrize("name", WEIGHTS)
def test_products_and_numbers_are_those_of_the_plain_matrix(name):
    q, x, rows = made(name, (45, 512)), normal(512), normal(3, 512)
    laid, w = q.interleaved(), decode(FORMATS[name], q.bytes)
    assert np.array_equal(trueno.dequantize(laid), w)
    w = w.astype(float)

    def near(got, wanted, x):
        assert got.shape == wanted.shape
        assert (2 * 600 * 2.0**-24 * (np.abs(x) @ np.abs(w).T) >= np.abs(got - wanted)).all()

    exact = trueno.quant_matvec(laid, x, activations="f32")
    near(exact, w @ x, x)
    for given in ("q8", "f32"):
        for few in (rows, normal(40, 512)):
            near(*(trueno.quant_matmul(few, m, activations=given) for m in (laid, q)), few)
    assert np.array_equal(rows @ laid.T, trueno.quant_matmul(rows, laid))
    assert np.array_equal(laid @ rows.T, trueno.quant_matmul(rows, laid).T)
    near(laid @ x, trueno.quant_matvec(q, x), x)
    assert not np.array_equal(laid @ x, exact)


def test_what_is_so_already_is_itself():
    q = made()
    laid = q.interleaved()
    assert laid.interleaved() is laid
    assert q.plain() is q
    assert q.T.plain() == q.T
    few = made(shape=(15, 512)).interleaved()
    assert few.format == "q4_k_r16"  # which says how bytes would lie, though no row has a group
    assert np.array_equal(few.bytes, made(shape=(15, 512)).bytes)


def test_it_is_a_matrix_like_any_other():
    q = made()
    laid = q.interleaved()
    assert laid != q
    assert laid == q.interleaved()
    assert repr(laid) == "<QuantizedMatrix 40x512 q4_k_r16, 4.5 bits an element>"
    for m in (laid, laid.T):
        for other in (pickle.loads(pickle.dumps(m)), copy.deepcopy(m), copy.copy(m)):
            assert other == m
            assert other.plain() == m.plain()
    assert trueno.QuantizedMatrix(laid.bytes.tobytes(), q.shape, "Q4_K_R16") == laid
    x = normal(512)
    assert np.array_equal(trueno.quant_matvec(laid.bytes, x, format="q4_k_R16"), laid @ x)
    plan = trueno.quant_matvec.plan(laid, x)
    out = np.empty(40, F32)
    assert plan(laid.bytes, x, out) == 0
    assert np.array_equal(out, laid @ x)
    assert np.array_equal(trueno.Vector(x).array, x)
    assert np.array_equal((laid @ trueno.Vector(x)).array, laid @ x)


def test_no_rows_and_no_columns():
    none = trueno.QuantizedMatrix(b"", (0, 512), "q4_k").interleaved()
    assert (none @ np.ones(512, F32)).shape == (0,)
    assert trueno.dequantize(none).shape == (0, 512)
    narrow = trueno.QuantizedMatrix(b"", (40, 0), "q4_k").interleaved()
    assert np.array_equal(narrow @ np.ones(0, F32), np.zeros(40))
    assert trueno.quant_matmul(np.ones((2, 0), F32), narrow).shape == (2, 40)
    assert narrow.plain() == trueno.QuantizedMatrix(b"", (40, 0), "q4_k")


def test_rows_cannot_be_taken():
    laid = made().interleaved()
    for rows in (slice(3, 9), slice(0, 16), [1, 2]):
        with pytest.raises(
            trueno.ParameterError, match=r"q4_k_r16 has its rows interleaved; take them from q.plain\(\)"
        ):
            laid[rows]
    assert laid.plain()[3:9].interleaved().plain() == made()[3:9]


def test_only_products_along_rows_read_it():
    q, laid = made(), made().interleaved()
    assert laid.T.plain() == q.T
    with pytest.raises(trueno.ParameterError, match=r"interleave q, not q.T"):
        q.T.interleaved()
    said = r"_colmajor: format is 'q4_k_r16', but it takes rows that are not interleaved; q.plain\(\) restores"
    for product in (
        lambda: laid.T @ normal(40),
        lambda: normal(40) @ laid,
        lambda: normal(3, 40) @ laid,
        lambda: trueno.quant_matvec_colmajor(laid.bytes, normal(40), format="q4_k_r16"),
        lambda: trueno.quant_matvec_colmajor.plan(laid.T, normal(40)),
    ):
        with pytest.raises(trueno.ParameterError, match=said):
            product()
    with pytest.raises(trueno.ParameterError, match="are stored row by row"):
        trueno.quant_matvec_colmajor(laid, normal(40))
    assert np.array_equal(laid.T.plain() @ normal(40), q.T @ normal(40))
    with pytest.raises(trueno.ParameterError, match="holds activations, which cannot be interleaved"):
        trueno.QuantizedMatrix(bytes(292), (1, 256), "q8_k").interleaved()


def test_quantizing_to_it():
    x = normal(40, 512)
    q = trueno.quantize(x, "q5_k")
    assert trueno.quantize(x, "Q5_K_R16") == q.interleaved()
    weights = np.linspace(0.5, 2, 512).astype(F32)
    weighted = trueno.quantize(x, "q4_0_r16", imatrix=weights)
    assert weighted == trueno.quantize(x, "q4_0", imatrix=weights).interleaved()
    laid = trueno.quantize(normal(64, 256), "q4_0").interleaved()
    assert trueno.requantize(laid, "q8_0") == trueno.requantize(laid.plain(), "q8_0")
    assert trueno.requantize(laid.T, laid.format) == trueno.requantize(laid.plain().T, "q4_0").interleaved()
    with pytest.raises(
        trueno.ParameterError, match=r"quantize_rows: format is 'q4_k_r16', .* converts q4_k to q4_k_r16"
    ):
        trueno.quantize_rows(x, format="q4_k_r16")
    with pytest.raises(trueno.ShapeError, match="a row of 100 elements is not a whole number of blocks"):
        trueno.quantize(x[:, :100], "q4_k_r16")


def test_no_file_holds_it(tmp_path):
    pytest.importorskip("gguf", reason="needs gguf")
    laid, path = made().interleaved(), tmp_path / "a.gguf"
    with pytest.raises(
        trueno.ParameterError, match=r"tensor 'w' is in q4_k_r16, which files cannot hold; write q.plain\(\)"
    ):
        trueno.gguf.write(path, {"w": laid}, {"general.architecture": "llama"})
    assert not path.exists()
    trueno.gguf.write(path, {"w": laid.plain()}, {"general.architecture": "llama"})
    with trueno.gguf.open(path) as file:
        assert file["w"].interleaved() == laid


def test_a_batch_reads_it():
    q, x = made(), normal(512)
    laid = q.interleaved()
    with trueno.Batch() as b:
        h = b.upload(laid)
        y, w = b.neg(b.quant_matvec(h, b.upload(x))), b.dequantize(h)
        b.execute()
        assert np.array_equal(b.read(y), -(laid @ x))
        assert np.array_equal(b.read(w), trueno.dequantize(q))
        with pytest.raises(trueno.DtypeError, match="x is q4_k, but h is q4_k_r16"):
            b.update(h, q)
        with pytest.raises(trueno.ParameterError, match="interleaved"):
            b.quant_matvec_colmajor(b.upload(laid.T), b.upload(normal(40)))


def test_a_guard_knows_what_the_blocks_hold():
    q = made("q4_0", (40, 64))
    rows = q.bytes.copy()
    rows[2, :2] = np.array([np.nan], "<f2").view(np.uint8)
    ill = trueno.QuantizedMatrix(rows, q.shape, "q4_0").interleaved()
    with trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP):
        y = ill @ np.ones(64, F32)  # the NaN was in an input
    assert np.flatnonzero(np.isnan(y)).tolist() == [2]


def test_the_names_are_public_and_suggested():
    assert trueno.quant.INTERLEAVED is INTERLEAVED
    with pytest.raises(trueno.ParameterError, match='did you mean "q4_k_r16"'):
        trueno.QuantizedMatrix(made().bytes, (40, 512), "q4_k_r61")
