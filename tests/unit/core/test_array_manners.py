"""Vector and Matrix beside NumPy: `@` from both sides, NumPy's functions, comparisons, conversions."""

import operator

import numpy as np
import pytest
import trueno
from trueno import DtypeError, Matrix, ParameterError, ShapeError, UnknownBackend, Vector

F = np.float32


@pytest.fixture(autouse=True)
def _quick():
    with trueno.use("reference"):
        yield


def bare(x):
    return x.numpy() if isinstance(x, (Vector, Matrix)) else np.asarray(x)


@pytest.mark.parametrize("left, right", [((3, 4), (4, 2)), ((3, 4), (4,)), ((3,), (3, 4)), ((3,), (3,))])
@pytest.mark.parametrize("held", ["left", "right", "both"])
@pytest.mark.parametrize("other", ["array", "list"])
def test_a_product_is_the_same_from_both_sides(rng, left, right, held, other):
    a, b = (rng.standard_normal(shape).astype(F) for shape in (left, right))
    wanted = a.astype(float) @ b.astype(float)
    holders = {1: Vector, 2: Matrix}
    plain = (lambda x: x.tolist()) if other == "list" else (lambda x: x)
    one = holders[a.ndim](a) if held in ("left", "both") else plain(a)
    two = holders[b.ndim](b) if held in ("right", "both") else plain(b)
    result = one @ two
    assert np.allclose(bare(result), wanted, rtol=1e-5, atol=1e-5)
    assert isinstance(result, holders.get(np.ndim(wanted), np.floating))


def test_a_stack_is_multiplied_too(rng):
    a, b = rng.standard_normal((3, 4)).astype(F), rng.standard_normal((2, 4, 5)).astype(F)
    assert np.allclose(Matrix(a) @ b, a.astype(float) @ b, rtol=1e-5, atol=1e-5)
    assert np.allclose(b.transpose(0, 2, 1) @ Matrix(a.T), b.transpose(0, 2, 1) @ a.T.astype(float), atol=1e-5)


@pytest.mark.parametrize("wrong", [2.0, [[1.0, 2.0], [3.0]], [1.0], np.ones((5, 4), F)])
def test_a_product_that_does_not_fit_is_an_error_of_ours(wrong):
    for multiply in (lambda m: m @ wrong, lambda m: wrong @ m):
        with pytest.raises(ShapeError):
            multiply(Matrix(np.ones((2, 3), F)))


NUMPYS = ["sum", "mean", "std", "var", "max", "min", "argmax", "argmin", "prod", "any", "median", "ptp"]


@pytest.mark.parametrize("name", NUMPYS)
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_numpys_reductions_mean_what_they_mean_on_arrays(rng, name, axis):
    x = rng.standard_normal((3, 4)).astype(F)
    result, wanted = getattr(np, name)(Matrix(x), axis=axis), getattr(np, name)(x.astype(float), axis=axis)
    assert np.allclose(bare(result), wanted, rtol=1e-4, atol=1e-5)


def test_numpys_keywords_are_taken_or_refused_with_a_sentence(rng):
    x = rng.standard_normal((3, 4)).astype(F)
    m = Matrix(x)
    assert np.mean(m, axis=0, keepdims=True).shape == (1, 4)
    assert np.allclose(bare(np.sum(m, axis=(0, 1))), x.astype(float).sum(), rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeError, match=r"stddev: there is no keyword 'ddof'; it divides by n: multiply"):
        np.std(m, ddof=1)
    with pytest.raises(TypeError, match="there is no keyword 'dtype'; the result has the dtype of the operands"):
        np.mean(m, dtype=np.float64)
    out = np.zeros(3, F)
    assert np.mean(m, axis=-1, out=out) is out and np.allclose(out, x.mean(-1), atol=1e-5)


@pytest.mark.parametrize("ufunc", [np.add, np.subtract, np.multiply, np.divide, np.maximum, np.exp, np.negative])
def test_a_numpy_function_with_an_op_is_that_op(rng, ufunc):
    x, y = rng.standard_normal((2, 5)).astype(F)
    for sides in ((Vector(x), y), (x, Vector(y)), (Vector(x), Vector(y))):
        if ufunc.nin == 1:
            sides = (Vector(x),)
        result = ufunc(*sides)
        assert isinstance(result, Vector)
        assert np.allclose(result.numpy(), ufunc(*(x, y)[: ufunc.nin]), rtol=1e-5, atol=1e-6)


def test_other_numpy_functions_return_numpys_results(rng):
    x = rng.standard_normal(5).astype(F)
    v = Vector(x)
    assert np.isnan(v).tolist() == [False] * 5
    assert type(np.cbrt(v)) is np.ndarray and np.array_equal(np.cbrt(v), np.cbrt(x))
    assert np.add.reduce(v) == np.add.reduce(x)
    assert np.array_equal(np.hypot(v, x), np.hypot(x, x))
    assert np.array_equal(np.concatenate([v, v]), np.concatenate([x, x]))


def test_in_place_on_an_array_fills_the_array(rng):
    x, y = rng.standard_normal((2, 5)).astype(F)
    wanted, same = x + y, x
    x += Vector(y)
    assert x is same and np.array_equal(x, wanted)
    assert np.add(x, Vector(y), out=x) is same
    v = Vector(y)
    assert np.add(x, y, out=v) is v and np.array_equal(v.numpy(), x + y)


@pytest.mark.parametrize("compare", [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne])
def test_comparisons_compare_elements(rng, compare):
    x, y = rng.integers(0, 3, (2, 8)).astype(F)
    for left, right in ((Vector(x), Vector(y)), (Vector(x), y), (x, Vector(y))):
        result = compare(left, right)
        assert type(result) is np.ndarray and np.array_equal(result, compare(x, y))
    assert np.array_equal(compare(Vector(x), 1.0), compare(x, 1.0))


def test_a_tensor_is_an_operand_on_either_side(rng):
    torch = pytest.importorskip("torch")
    x, y = rng.standard_normal((2, 3, 3)).astype(F)
    m, t = Matrix(x), torch.from_numpy(y.copy())
    for result, wanted in ((m + t, x + y), (t + m, y + x), (m @ t, x @ y.astype(float)), (t @ m, y @ x.astype(float))):
        assert isinstance(result, Matrix) and np.allclose(result.numpy(), wanted, atol=1e-5)
    assert type(m > t) is np.ndarray and np.array_equal(m > t, x > y) and np.array_equal(m == t, x == y)


def test_only_one_element_is_a_condition_or_a_number():
    assert bool(Vector([2.0])) and not bool(Vector([0.0])) and not Matrix([[0.0]])
    assert float(Vector([2.5])) == 2.5 and int(Matrix([[2.5]])) == 2 and Vector([2.5]).item() == 2.5
    for convert in (bool, float, int, lambda v: v.item()):
        with pytest.raises(ValueError, match=r"Vector: .*2 elements"):
            convert(Vector([0.0, 0.0]))


def test_rows_and_elements():
    m = Matrix([[1.0, 2.0], [3.0, 4.0]])
    assert [type(row) for row in m] == [Vector, Vector] == [type(m[0]), type(m[1])]
    assert [row.tolist() for row in m] == m.tolist() == m.to_vec()
    assert list(Vector([1.0, 2.0])) == [1.0, 2.0]


def test_the_few_of_numpys_methods(rng):
    x = rng.standard_normal((2, 3)).astype(F)
    m = Matrix(x, backend="reference")
    assert np.array_equal(m.T.numpy(), x.T) and Vector(x[0]).T.tolist() == x[0].tolist()
    wide = m.astype(np.float64)
    assert wide.dtype == np.float64 and wide.backend == "reference" and np.array_equal(wide.numpy(), x)
    assert np.array_equal(m.reshape(3, 2).numpy(), x.reshape(3, 2))
    assert type(m.reshape((-1,))) is Vector and np.array_equal(m.flatten().numpy(), x.ravel())
    copied = m.copy()
    copied.numpy()[0, 0] = 9
    assert m.numpy()[0, 0] == x[0, 0]
    with pytest.raises(DtypeError, match=r"only floats are held, not int32: \.numpy\(\)\.astype\('int32'\)"):
        m.astype(np.int32)
    for shape in ((4,), (1, 2, 3), (-1, -1), ("a", 2)):
        with pytest.raises(ShapeError, match="Matrix: "):
            m.reshape(*shape)


@pytest.mark.parametrize(
    "name, hint",
    [
        ("cumsum", r"; NumPy's arrays have it: \.numpy\(\)\.cumsum$"),
        ("sort", r"\.numpy\(\)\.sort$"),
        ("cpu", r"; call \.numpy\(\)"),
        ("sofmax", 'did you mean "softmax"'),
        ("_private", "has no attribute '_private'$"),
    ],
)
def test_a_missing_attribute_names_the_way(name, hint):
    with pytest.raises(AttributeError, match=hint):
        getattr(Vector([1.0]), name)


def test_a_backend_that_is_not_there_is_refused_at_once():
    for make in (
        lambda name: Vector([1.0], backend=name),
        lambda name: Matrix([[1.0]], backend=name),
        lambda name: Vector([1.0]).with_backend(name),
    ):
        with pytest.raises(UnknownBackend, match='"referense" is not installed; did you mean "reference"'):
            make("referense")
        with pytest.raises(ParameterError, match="backend is 3; it must be the name of one"):
            make(3)
        assert make("reference").backend == "reference"


def test_a_list_that_holds_itself_is_a_sentence():
    endless = []
    endless.append(endless)
    for call in (lambda: Vector([1, 2]) @ endless, lambda: endless @ Matrix([[1, 2]]), lambda: Vector([1]) + endless):
        with pytest.raises(ShapeError, match="ragged list"):
            call()


def test_several_axes_of_64():
    x = np.ones((2, *(1,) * 62, 3), F)
    assert trueno.sum(x, axis=(0, -1)).item() == 6 and trueno.max(x, axis=(0, 5)).shape == (1,) * 61 + (3,)
