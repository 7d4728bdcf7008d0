"""QuantizedMatrix: what it holds, how it multiplies, what it refuses."""

import copy
import pickle

import numpy as np
import pytest
import trueno
from trueno.formats import FORMATS, WEIGHTS, decode
from trueno.formats.samples import random_rows

SEED = 20261121
F32 = np.float32


def made(name="q4_k", shape=(24, 512), seed=SEED):
    f = FORMATS[name]
    rows = random_rows(f, (shape[0], f.row_bytes(shape[1])), np.random.default_rng(seed))
    return trueno.QuantizedMatrix(rows, shape, name)


def numbers(q):
    return decode(FORMATS[q.format], q.bytes).astype(np.float64)


def near(got, wanted, size):
    """Within the rounding of float32 sums of products whose sizes sum to `size`."""
    assert got.shape == wanted.shape
    assert np.all(np.abs(got - wanted) <= 600 * 2.0**-24 * size)


@pytest.fixture(params=["reference", "scalar"], autouse=True)
def on(request):
    with trueno.use(request.param):
        yield request.param


@pytest.mark.parametrize("name", WEIGHTS)
def test_products_read_the_blocks_the_way_they_lie(name):
    q, rng = made(name, (48, 512)), np.random.default_rng(SEED)
    w = numbers(q)
    x, rows, columns = (rng.standard_normal(s).astype(F32) for s in (512, (5, 48), (7, 512)))
    got = trueno.quant_matvec(q, x, activations="f32")
    near(got, w @ x, np.abs(w) @ np.abs(x))
    near(trueno.quant_matmul(columns, q, activations="f32"), columns @ w.T, np.abs(columns) @ np.abs(w).T)
    near(rows @ q, rows @ w, np.abs(rows) @ np.abs(w))  # q.T, column by column, in float32
    near(q.T @ rows[0], w.T @ rows[0], np.abs(w).T @ np.abs(rows[0]))
    near(rows[0] @ q, rows[0] @ w, np.abs(w).T @ np.abs(rows[0]))
    near(q.T @ rows.T, w.T @ rows.T, np.abs(w).T @ np.abs(rows.T))


def test_activations_of_8_bits_are_the_default_and_nearly_as_good():
    q, rng = made("q4_k", (64, 1024)), np.random.default_rng(SEED)
    x = rng.standard_normal(1024).astype(F32)
    exact, got = numbers(q) @ x, q @ x
    assert np.array_equal(got, trueno.quant_matvec(q, x))
    assert not np.array_equal(got, trueno.quant_matvec(q, x, activations="f32"))
    assert np.sqrt(np.mean((got - exact) ** 2) / np.mean(exact**2)) < 0.01
    more = rng.standard_normal((3, 1024)).astype(F32)
    assert np.array_equal(more @ q.T, trueno.quant_matmul(more, q))
    assert np.array_equal(q @ more.T, trueno.quant_matmul(more, q).T)


def test_row_and_column_kernels_differ_on_the_same_bytes():
    q, x = made("q4_k", (256, 256)), np.random.default_rng(SEED).standard_normal(256).astype(F32)
    rows = trueno.quant_matvec(q.bytes, x, format="q4_k", activations="f32")
    columns = trueno.quant_matvec_colmajor(q.bytes, x, format="q4_k")
    assert not np.allclose(rows, columns)
    assert np.array_equal(columns, trueno.quant_matvec_colmajor(q.T, x))


def test_the_transpose_is_a_view_and_comes_back():
    q = made()
    assert q.T.bytes is q.bytes
    assert q.T.shape == (512, 24)
    assert q == q.T.T
    assert q != q.T
    with pytest.raises(trueno.ParameterError, match="are stored column by column"):
        trueno.dequantize(q.T)
    with pytest.raises(trueno.ParameterError, match="are stored row by row"):
        trueno.quant_matvec_colmajor(q, np.ones(24, F32))


def test_dequantize_gives_the_numbers():
    q = made("q6_k")
    assert np.array_equal(trueno.dequantize(q), decode(FORMATS["q6_k"], q.bytes))
    assert np.array_equal(trueno.dequantize(q.bytes, format="q6_k"), trueno.dequantize(q))
    out = np.empty(q.shape, F32)
    assert trueno.dequantize(q, out=out) is out
    assert np.array_equal(out, trueno.dequantize(q))


def test_what_an_array_has_is_named():
    q = trueno.quantize(np.arange(64, dtype=np.float32).reshape(2, 32), "q8_0")
    assert np.array_equal(q.dequantize(), trueno.dequantize(q))
    assert np.array_equal(q.T.dequantize(), trueno.dequantize(q).T)
    with pytest.raises(AttributeError, match=r"it holds blocks, and q\.dequantize\(\) gives an array: .*\.astype$"):
        q.astype(np.float32)
    with pytest.raises(AttributeError, match=r"trueno\.to\(q, \"cuda\"\) moves its bytes"):
        q.to("cuda")
    with pytest.raises(AttributeError, match=r"no attribute '_hidden'$"):
        q._hidden  # noqa: B018
    with pytest.raises(trueno.ShapeError, match=r"but x has 3 rows; x @ q\.T multiplies the rows of x by those of q"):
        q @ np.ones((3, 32), np.float32)


def test_rows_are_taken_without_decoding():
    q = made()
    assert np.shares_memory(q[3:9].bytes, q.bytes)
    assert np.array_equal(trueno.dequantize(q[3:9]), trueno.dequantize(q)[3:9])
    assert np.array_equal(trueno.dequantize(q[[5, 0, 5]]), trueno.dequantize(q)[[5, 0, 5]])
    assert np.array_equal(trueno.dequantize(q[::2]), trueno.dequantize(q)[::2])
    with pytest.raises(trueno.ParameterError, match="an index is a slice"):
        q[0]
    with pytest.raises(trueno.ParameterError, match="an index is a slice"):
        q[0, 0]
    assert len(q) == 24
    with pytest.raises(IndexError):
        q[[24]]


@pytest.mark.parametrize("buffer", [bytes, bytearray, lambda b: memoryview(b), lambda b: np.frombuffer(b, np.uint8)])
def test_any_buffer_will_do(buffer):
    q = made()
    assert trueno.QuantizedMatrix(buffer(q.bytes.tobytes()), q.shape, "Q4_K") == q


def test_what_does_not_fit_is_an_error():
    q = made()
    with pytest.raises(trueno.ShapeError, match=r"bytes holds 6911, but q4_k of shape \(24, 512\) is 6912"):
        trueno.QuantizedMatrix(q.bytes.reshape(-1)[:-1], q.shape, "q4_k")
    with pytest.raises(trueno.ShapeError, match="a row of 500 elements is not a whole number of blocks of 256;"):
        trueno.QuantizedMatrix(q.bytes, (24, 500), "q4_k")
    with pytest.raises(trueno.ShapeError, match="sizes are 0 or more"):
        trueno.QuantizedMatrix(q.bytes, (-24, 512), "q4_k")
    with pytest.raises(trueno.ShapeError, match="it must be"):
        trueno.QuantizedMatrix(q.bytes, (24,), "q4_k")
    with pytest.raises(trueno.DtypeError, match="float32"):
        trueno.QuantizedMatrix(np.ones((24, 512), F32), (24, 512), "q4_k")
    with pytest.raises(trueno.DtypeError, match="NoneType"):
        trueno.QuantizedMatrix(None, (24, 512), "q4_k")
    with pytest.raises(trueno.ParameterError, match='did you mean "q4_k"'):
        trueno.QuantizedMatrix(q.bytes, (24, 512), "q4k")
    with pytest.raises(AttributeError, match="shape is fixed"):
        q.shape = (1, 1)


def test_operands_that_do_not_fit_are_errors():
    q, x = made(), np.ones(512, F32)
    with pytest.raises(trueno.ShapeError, match=r"quant_matvec: x.k. is 511, but w.k. is 512"):
        trueno.quant_matvec(q, x[:-1])
    with pytest.raises(trueno.ShapeError, match="q @ x: q has 512 columns, but x has 511 elements"):
        q @ x[:-1]
    with pytest.raises(trueno.ShapeError, match="x @ q: x has 512 columns, but q has 24 rows"):
        np.ones((2, 512), F32) @ q
    with pytest.raises(trueno.ParameterError, match="are bytes without a format"):
        trueno.quant_matvec(q.bytes, x)
    with pytest.raises(trueno.ParameterError, match="w is in q4_k, but format is 'q6_k'"):
        trueno.quant_matvec(q, x, format="q6_k")
    with pytest.raises(trueno.ShapeError, match="quant_matvec: w: q6_k: a row of 288 bytes"):
        trueno.quant_matvec(q.bytes, x, format="q6_k")
    with pytest.raises(trueno.DtypeError, match="w is float32; give a QuantizedMatrix"):
        trueno.quant_matvec(np.ones((3, 4), F32), x, format="q4_k")
    with pytest.raises(trueno.DtypeError, match="x is float64; blocks require float32"):
        trueno.quant_matvec(q, x.astype(np.float64))
    with pytest.raises(trueno.DtypeError, match="a is quantized; "):
        trueno.matmul(q, x[:, None])
    with pytest.raises(TypeError, match="not an array of numbers"):
        np.asarray(q)
    with pytest.raises(trueno.DtypeError, match="x is uint8"):
        trueno.quant_matvec(q, x.astype(np.uint8))
    with pytest.raises(trueno.ParameterError, match="activations is 'q4'"):
        trueno.quant_matvec(q, x, activations="q4")


def test_no_rows_and_no_columns():
    none = trueno.QuantizedMatrix(b"", (0, 512), "q4_k")
    assert (none @ np.ones(512, F32)).shape == (0,)
    assert trueno.dequantize(none).shape == (0, 512)
    narrow = trueno.QuantizedMatrix(b"", (3, 0), "q4_k")
    assert np.array_equal(narrow @ np.ones(0, F32), np.zeros(3))


def test_pickle_and_copy_keep_everything():
    for q in (made(), made().T):
        for other in (pickle.loads(pickle.dumps(q)), copy.deepcopy(q), copy.copy(q)):
            assert other == q
    assert "24x512 q4_k, 4.5 bits an element" in repr(made())
    assert "transposed" in repr(made().T)


def test_a_guard_knows_what_blocks_hold():
    q = made("q4_0", (8, 64))
    rows = q.bytes.copy()
    rows[2, :2] = np.array([np.nan], "<f2").view(np.uint8)
    ill = trueno.QuantizedMatrix(rows, q.shape, "q4_0")
    with trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP):
        y = ill @ np.ones(64, F32)  # the NaN was in an input
    assert np.isnan(y[2])
    assert np.isfinite(np.delete(y, 2)).all()
