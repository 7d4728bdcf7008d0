"""pandas objects: results keep the labels of every axis that they share with an operand."""

import numpy as np
import pytest
import trueno
from trueno.errors import DtypeError, OutError, ParameterError, ShapeError

pd = pytest.importorskip("pandas", reason="pandas is not installed: pip install pandas")


@pytest.fixture(autouse=True)
def _without_compilation():
    with trueno.use("reference"):
        yield


@pytest.fixture
def frame(rng):
    index = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)], names=["group", "run"])
    return pd.DataFrame(rng.standard_normal((3, 4)), index=index, columns=list("wxyz"))


def same(got, values, index=None, columns=None):
    np.testing.assert_array_equal(got.to_numpy(), values)
    assert index is None or got.index.equals(index)
    assert columns is None or got.columns.equals(columns)


def test_elementwise_and_rows_keep_both_labels(frame):
    x = frame.to_numpy()
    for got, want in (
        (trueno.exp(frame), trueno.exp(x)),
        (trueno.softmax(frame), trueno.softmax(x)),
        (trueno.softmax(frame, axis=0), trueno.softmax(x, axis=0)),
        (trueno.add(frame, frame), x + x),
        (trueno.add(frame, x), x + x),
        (trueno.mul(2.0, frame), 2 * x),
        (trueno.sub(frame, frame.iloc[0]), x - x[0]),
        (trueno.layer_norm(frame, frame.iloc[0], np.ones(4)), trueno.layer_norm(x, x[0].copy(), np.ones(4))),
    ):
        assert type(got) is pd.DataFrame
        same(got, want, frame.index, frame.columns)


def test_a_reduction_keeps_the_labels_of_the_other_axis(frame):
    x = frame.to_numpy()
    rows, columns = trueno.sum(frame), trueno.sum(frame, axis=0)
    same(rows, trueno.sum(x), frame.index)
    same(columns, trueno.sum(x, axis=0), frame.columns)
    same(trueno.argmax(frame, axis=1), trueno.argmax(x, axis=1), frame.index)
    same(trueno.sum(frame, keepdims=True), trueno.sum(x, keepdims=True), frame.index, pd.RangeIndex(1))
    same(trueno.sum(frame, axis=0, keepdims=True), x.sum(0, keepdims=True), pd.RangeIndex(1), frame.columns)
    assert trueno.sum(frame, axis=None) == trueno.sum(x, axis=None)
    assert trueno.sum(frame["w"]) == trueno.sum(frame["w"].to_numpy())


def test_series_keep_index_and_a_common_name(frame):
    w = frame["w"]
    got = trueno.relu(w)
    assert type(got) is pd.Series and got.name == "w"
    same(got, np.maximum(w.to_numpy(), 0), frame.index)
    assert trueno.add(w, frame["x"]).name is None


def test_products_have_the_outer_labels(frame):
    got = trueno.matmul(frame, frame.T)
    same(got, trueno.matmul(frame.to_numpy(), frame.T.to_numpy()), frame.index, frame.index)
    same(trueno.matvec(frame, frame.iloc[0]), trueno.matvec(frame.to_numpy(), frame.iloc[0].to_numpy()), frame.index)
    values, places = trueno.topk(frame, 2)
    same(values, np.sort(frame.to_numpy())[:, :-3:-1], frame.index, pd.RangeIndex(2))
    assert places.index.equals(frame.index)
    assert trueno.dot(frame["w"], frame["x"]) == trueno.dot(frame["w"].to_numpy(), frame["x"].to_numpy())


def test_labels_that_differ_are_an_error(frame):
    with pytest.raises(ShapeError, match=r"add: y and x have different labels; align them first, or give y\.to_numpy"):
        trueno.add(frame, frame.iloc[::-1])
    with pytest.raises(ShapeError, match="matmul: b and a have different labels"):
        trueno.matmul(frame, frame.T.reset_index(drop=True))
    with pytest.raises(ShapeError):
        trueno.add(frame, np.ones(3))


def test_what_is_not_taken(frame):
    for out in (frame, frame.copy()):
        with pytest.raises(OutError, match="exp: out is a DataFrame, whose values pandas may copy"):
            trueno.exp(frame, out=out)
    out = np.empty((3, 4))
    assert trueno.exp(frame, out=out) is out
    with pytest.raises(DtypeError, match="exp: x is int64"):
        trueno.exp(pd.Series([1, 2]))
    with pytest.raises(DtypeError, match="exp: x has columns that are not numbers: 'b'"):
        trueno.exp(pd.DataFrame({"a": [1.0], "b": ["text"]}))
    with pytest.raises(ParameterError, match="axis is 2"):
        trueno.sum(frame, axis=2)


def test_beside_vectors_and_tensors(frame):
    w = frame["w"]
    assert isinstance(trueno.add(trueno.Vector(w, dtype=np.float64), w), trueno.Vector)
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    with pytest.raises(DtypeError, match="add: x is a pandas object, but y is a PyTorch tensor"):
        trueno.add(w, torch.from_numpy(w.to_numpy().copy()))


def test_empty_and_zero_dimensional(frame):
    got = trueno.exp(frame.iloc[:0])
    assert got.shape == (0, 4) and got.columns.equals(frame.columns)
    got = trueno.sum(frame.iloc[:, :0])
    same(got, np.zeros(3), frame.index)


@pytest.mark.parametrize("kind", ["Float64", "Float32", "double[pyarrow]"])
def test_pandas_own_floats_become_numpys(frame, kind):
    if "pyarrow" in kind:
        pytest.importorskip("pyarrow")
    own = frame.astype(kind)
    wanted = trueno.softmax(frame.astype(np.float32 if kind == "Float32" else np.float64))
    pd.testing.assert_frame_equal(trueno.softmax(own), wanted)
    own.iloc[0, 1] = None
    assert np.isnan(trueno.sum(own).iloc[0]) and np.isfinite(trueno.sum(own).iloc[1])
    pd.testing.assert_series_equal(trueno.exp(own.iloc[1]), trueno.exp(frame.iloc[1].astype(wanted.dtypes.iloc[0])))


def test_columns_that_hold_no_numbers_are_named(frame):
    frame["town"], frame["day"] = "x", pd.Timestamp("2026-01-01")
    with pytest.raises(DtypeError, match=r"exp: x has columns that are not numbers: 'town', 'day'; select the others"):
        trueno.exp(frame)
    with pytest.raises(DtypeError, match="exp: x is object"):
        trueno.exp(frame["town"])


def test_vectors_and_matrices_keep_the_dtype_of_a_frame():
    frame = pd.DataFrame([[1.0, 2.0], [3.0, 16777217.0]])  # 2²⁴ + 1, which float32 does not hold
    assert trueno.Matrix(frame).dtype == np.float64 and trueno.Matrix(frame).numpy()[1, 1] == 16777217
    assert trueno.Vector(frame[1]).dtype == np.float64
    assert trueno.Matrix(frame.astype(np.float32)).dtype == np.float32
    assert trueno.Matrix(frame, dtype=np.float32).dtype == np.float32
    assert trueno.Matrix.from_slice(1, 2, frame[1]).dtype == np.float64
    with pytest.raises(trueno.DtypeError, match="int64; convert"):
        trueno.Matrix(frame.astype(np.int64))
