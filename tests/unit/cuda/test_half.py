"""16-bit floats, other axes and lookups of arrays that live on the emulated device: right, and nothing moves.

What is moved is counted by the core's own counters; the oracle is NumPy in float64.
"""

import numpy as np
import pytest
import trueno
from ml_dtypes import bfloat16
from trueno.discovery import registry
from trueno.dispatch.transfer import here
from trueno.testing import assert_op
from unit.cuda.kernels.moves import random

NAME = "cuda_emulated"
HALVES = [np.dtype(np.float16), np.dtype(bfloat16)]


@pytest.fixture(params=HALVES, ids=str)
def half(request):
    return request.param


def there(*arrays):
    made = tuple(trueno.to(x, NAME) for x in arrays)
    return made if len(made) > 1 else made[0]


def still(call):
    """The result on the host of a call that must not move anything."""
    before = here.moved
    result = call()
    assert here.moved == before, f"{before} became {here.moved}"
    results = result if isinstance(result, tuple) else (result,)
    assert all(type(r).__module__ == "trueno_cuda.device.emulated" for r in results)
    home = tuple(map(trueno.numpy, results))
    return home if isinstance(result, tuple) else home[0]


@pytest.fixture
def asked(monkeypatch):
    """Ops and dtypes of the kernels that are made from here on; plans are forgotten before."""
    trueno.reset_quarantine()
    backend, seen = registry.load(NAME), []
    real = backend.kernel
    monkeypatch.setattr(backend, "kernel", lambda call: seen.append((call.op.name, call.dtype.name)) or real(call))
    return seen


def close(got, want, half, terms, size):
    """Sums of so many products of `size` in all, in float32, rounded once."""
    eps = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[half.name]
    tiny = {"float16": 2.0**-25, "bfloat16": 2.0**-134}[half.name]
    off = np.abs(got.astype("f8") - want)
    assert got.dtype == half and (off <= np.abs(want) * eps + tiny + (terms + 4) * 2.0**-23 * size).all()


# ---- products take them as they are -------------------------------------------------------------------


@pytest.mark.parametrize(
    "m, k, n", [(1, 1, 1), (5, 37, 3), (16, 16, 16), (33, 64, 65), (70, 7, 9), (1, 130, 40), (64, 128, 72)]
)
def test_matmul(half, m, k, n, asked):
    rng = random()
    a, b = rng.standard_normal((m, k)).astype(half), rng.standard_normal((k, n)).astype(half)
    x, y = there(a, b)
    got = still(lambda: trueno.matmul(x, y))
    wide, other = a.astype("f8"), b.astype("f8")
    close(got, wide @ other, half, k, np.abs(wide) @ np.abs(other))
    assert asked == [("matmul", half.name)]
    assert still(lambda: trueno.matmul(x, y)).tobytes() == got.tobytes()  # and a repetition


@pytest.mark.parametrize(
    "a_lead, b_lead",
    [((3,), (3,)), ((2, 3), (2, 3)), ((2, 3), ()), ((), (4,)), ((2, 1), (1, 3)), ((2, 1, 2), (1, 2, 1))],
)
def test_batched_matmul(half, a_lead, b_lead, asked):
    rng = random()
    a, b = rng.standard_normal((*a_lead, 9, 21)).astype(half), rng.standard_normal((*b_lead, 21, 10)).astype(half)
    x, y = there(a, b)
    got = still(lambda: trueno.batched_matmul(x, y))
    wide, other = a.astype("f8"), b.astype("f8")
    close(got, wide @ other, half, 21, np.abs(wide) @ np.abs(other))
    assert asked == [("batched_matmul", half.name)]


def test_products_into_out(half):
    rng = random()
    a = rng.standard_normal((16, 16)).astype(half)
    x, out = there(a, np.zeros((16, 16), half))
    assert trueno.matmul(x, x, out=out) is out
    wide = a.astype("f8")
    close(trueno.numpy(out), wide @ wide, half, 16, np.abs(wide) @ np.abs(wide))
    assert trueno.matmul(x, x, out=x) is x  # an operand
    assert trueno.numpy(x).tobytes() == trueno.numpy(out).tobytes()
    with pytest.raises(trueno.OutError, match=f"the result is {half}"):
        trueno.matmul(out, out, out=there(np.zeros((16, 16), np.float32)))


def test_what_overflows_a_product_is_inf_and_a_guard_sees_float32(half, asked):
    large = {"float16": 300.0, "bfloat16": 2.0**64}[half.name]
    x = there(np.full((4, 4), large, half))
    assert np.isinf(still(lambda: trueno.matmul(x, x))).all()
    guard = trueno.JidokaGuard.parse([("inf", "stop")])
    if half.name == "float16":  # 4 · 300² is a number in float32
        with guard:
            assert np.isinf(trueno.numpy(trueno.matmul(x, x))).all()
        assert asked == [("matmul", "float16"), ("matmul", "float32")]
    else:
        with guard, pytest.raises(trueno.GuardError, match="matmul"):
            trueno.matmul(x, x)


# ---- every other op is widened there ------------------------------------------------------------------


CALLS = {
    "add": lambda t, x, y, w: t.add(x, y),
    "fma": lambda t, x, y, w: t.fma(x, y, x),
    "softmax": lambda t, x, y, w: t.softmax(x),
    "rms_norm": lambda t, x, y, w: t.rms_norm(x, w),
    "sum": lambda t, x, y, w: t.sum(x),
    "variance": lambda t, x, y, w: t.variance(x, keepdims=True),
    "argmax": lambda t, x, y, w: t.argmax(x),
    "transpose": lambda t, x, y, w: t.transpose(x),
    "matvec": lambda t, x, y, w: t.matvec(x, w),
    "outer": lambda t, x, y, w: t.outer(w, w),
    "the same twice": lambda t, x, y, w: t.mul(x, x),
}


@pytest.mark.parametrize("name", CALLS)
def test_other_ops(half, name):
    rng = random()
    host = [rng.standard_normal(s).astype(half) for s in ((6, 11), (6, 11), (11,))]
    call = CALLS[name]
    device = there(*host)
    got = still(lambda: call(trueno, *device))
    with trueno.use("reference"):
        want = call(trueno, *host)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if got.dtype == np.int64:
        assert got.tolist() == want.tolist()
    else:  # another float32 may round to the next number
        eps = {"float16": 2.0**-10, "bfloat16": 2.0**-7}[half.name]
        np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=eps, atol=1e-5)


def test_numbers_and_out(half):
    a = random().standard_normal((3, 5)).astype(half)
    x, out = there(a, np.zeros((3, 5), half))
    assert trueno.scale(x, 3.0, out=out) is out
    np.testing.assert_array_equal(
        trueno.numpy(out).astype("f8"), (a.astype("f8") * 3).astype("f4").astype(half).astype("f8")
    )
    got = trueno.numpy(trueno.add(x, half.type(0.5)))
    np.testing.assert_array_equal(got.astype("f8"), (a.astype("f8") + 0.5).astype("f4").astype(half).astype("f8"))
    assert trueno.relu(x, out=x) is x and (trueno.numpy(x) >= 0).all()
    where = there(np.zeros(3, np.int64))
    assert trueno.argmin(out, out=where) is where
    assert trueno.numpy(where).tolist() == trueno.numpy(out).astype("f8").argmin(-1).tolist()
    with pytest.raises(trueno.OutError, match=f"the result is {half} of shape"):
        trueno.relu(out, out=there(np.zeros((3, 5), np.float32)))
    with pytest.raises(trueno.DtypeError, match=f"y is float32, but x is {half}"):
        trueno.add(x, there(a.astype("f4")))
    with pytest.raises(trueno.DeviceError, match="on the host"):
        trueno.add(x, a)


def test_vectors_and_no_elements(half):
    v = trueno.Vector([1.0, -2.0], dtype=half).to(NAME)
    assert type(v + v) is trueno.Vector and (v + v).dtype == half and (v + v).device == NAME
    empty = trueno.add(there(np.zeros((0, 3), half)), 1.0)
    assert empty.shape == (0, 3) and empty.dtype == half


# ---- other axes, and broadcasts along some ------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float64), *HALVES], ids=str)
@pytest.mark.parametrize("axis", [0, 1, -2, None])
def test_reductions_along_an_axis(dtype, axis):
    x = random().standard_normal((3, 4, 5)).astype(dtype)
    a = there(x)
    wide = x.astype("f8")
    for keepdims in (False, True):
        got = still(lambda k=keepdims: trueno.max(a, axis=axis, keepdims=k))
        np.testing.assert_array_equal(got.astype("f8"), wide.max(axis, keepdims=keepdims))
        assert got.dtype == dtype
    got = still(lambda: trueno.argmin(a, axis=axis))
    np.testing.assert_array_equal(got, wide.argmin(axis))
    with trueno.use("reference"):
        want = trueno.sum(x, axis=axis)
    got = still(lambda: trueno.sum(a, axis=axis))
    np.testing.assert_allclose(got.astype("f8"), np.asarray(want).astype("f8"), rtol=2.0**-7, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, -3, -1])
def test_row_ops_along_an_axis(axis):
    rng = random()
    x, w = rng.standard_normal((3, 4, 5)).astype("f4"), rng.standard_normal((3, 4, 5)[axis]).astype("f4")
    a, b = there(x, w)
    assert_op("softmax", [np.moveaxis(x, axis, -1)], np.moveaxis(still(lambda: trueno.softmax(a, axis=axis)), axis, -1))
    got = still(lambda: trueno.rms_norm(a, b, axis=axis))
    assert_op("rms_norm", [np.moveaxis(x, axis, -1), w], np.moveaxis(got, axis, -1))
    out = there(np.zeros((3, 4, 5), "f4"))
    before = here.moved
    assert trueno.softmax(a, axis=axis, out=out) is out and here.moved == before
    assert trueno.numpy(out).tobytes() == trueno.numpy(trueno.softmax(a, axis=axis)).tobytes()
    assert trueno.softmax(a, axis=axis, out=a) is a  # an operand
    assert trueno.numpy(a).tobytes() == trueno.numpy(out).tobytes()


@pytest.mark.parametrize(
    "shapes", [((2, 1, 7, 4), (3, 1, 4)), ((3, 1, 5), (1, 4, 1)), ((2, 3), (3,)), ((4, 1), (1, 6))], ids=str
)
def test_broadcasts(shapes):
    rng = random()
    x, y = (rng.standard_normal(s).astype("f4") for s in shapes)
    a, b = there(x, y)
    np.testing.assert_array_equal(still(lambda: trueno.sub(a, b)), x - y)
    if shapes[0][-1] == shapes[1][-1]:
        assert_op("dot", [x, y], still(lambda: trueno.dot(a, b)))


def test_an_axis_that_an_operand_has_not():
    """It must not become another axis of it."""
    x, y = trueno.to(np.arange(8, dtype="f4").reshape(2, 2, 2), NAME), trueno.to(np.ones((2, 2), "f4"), NAME)
    with pytest.raises(trueno.ParameterError, match=r"dot: axis is -3, but y has 2 dimension"):
        trueno.dot(x, y, axis=0)
    with pytest.raises(trueno.ParameterError, match=r"dot: axis is -2, but y has 0 dimension"):
        trueno.dot(trueno.to(np.ones((3, 4), "f4"), NAME), 2.0, axis=0)


def test_two_results_in_one_memory():
    x, w = trueno.to(np.ones((3, 8), "f4"), NAME), trueno.to(np.ones(8, "f4"), NAME)
    out = trueno.to(np.zeros(24, "f4"), NAME)
    with pytest.raises(trueno.OutError, match="two results share the memory of out"):
        trueno.residual_rms_norm(x, x, w, out=(out.reshape((3, 8)), out.reshape((3, 8))))


def test_errors_of_axes_stay():
    x = there(np.ones((3, 4), np.float32))
    with pytest.raises(trueno.ParameterError, match=r"axis is 2, but x has 2 dimension"):
        trueno.sum(x, axis=2)
    with pytest.raises(trueno.ParameterError, match=r"axis is 0\.5"):
        trueno.softmax(x, axis=0.5)
    with pytest.raises(trueno.OutError, match=r"of shape \(4,\)"):
        trueno.sum(x, axis=0, out=there(np.ones(3, np.float32)))
    with pytest.raises(trueno.ShapeError, match="empty row"):
        trueno.max(there(np.ones((0, 4), np.float32)), axis=0)


def test_a_guard_names_the_users_place():
    x = np.ones((3, 4), np.float32)
    x[1, 2] = -1
    a = there(x)
    guard = trueno.JidokaGuard.parse([("nan", "stop")])
    with guard, pytest.raises(trueno.GuardError, match=r"\[1, 2\]"):
        trueno.log(trueno.add(a, 0.0))
    x[:, 2] = 0
    with guard, pytest.raises(trueno.GuardError, match=r"\[0, 2\]") as caught:
        trueno.normalize(there(x), axis=0)
    assert caught.value.index == (0, 2) and caught.value.shape == (3, 4)


def test_an_operand_that_lies_otherwise_is_ordered_first():
    backend = registry.load(NAME)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    a = there(x)
    for shape, strides, want in (
        ((4, 3, 2), (1, 4, 12), x.T),
        ((2, 5, 3, 4), (12, 0, 4, 1), np.broadcast_to(x[:, None], (2, 5, 3, 4))),
        ((0, 3), (4, 1), x.reshape(-1)[:0].reshape(0, 1).repeat(3, 1)),
    ):
        got = backend.strided(a, shape, strides)
        assert got.shape == shape
        np.testing.assert_array_equal(trueno.numpy(got), want)


# ---- lookups ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float64), *HALVES], ids=str)
@pytest.mark.parametrize("shape", [(), (5,), (2, 3)])
def test_a_lookup_stays(dtype, shape, asked):
    rng = random()
    table, i = rng.standard_normal((9, 13)).astype(dtype), np.asarray(rng.integers(0, 9, shape), np.int64)
    a, where = there(table, i)
    got = still(lambda: trueno.embedding_lookup(a, where))
    assert got.dtype == dtype and got.tobytes() == table[i].tobytes()
    assert asked == [("embedding_lookup", dtype.name)]


def test_an_index_outside_is_nan_there_and_an_error_where_it_is_seen(half):
    table = there(np.ones((4, 3), half))
    where = there(np.array([3, 4, -1]))
    got = still(lambda: trueno.embedding_lookup(table, where))
    assert np.isnan(got.astype("f8")).any(-1).tolist() == [False, True, True]
    with pytest.raises(trueno.ParameterError, match=r"embedding_lookup: i.* is 4"):
        trueno.embedding_lookup(table, 4)
    with pytest.raises(trueno.DtypeError, match="indices on a device are int64"):
        trueno.embedding_lookup(table, there(np.array([1.0], np.float32)))
    assert trueno.numpy(trueno.embedding_lookup(table, 2)).tolist() == [1, 1, 1]


def test_what_is_moved_bit_by_bit_is_no_concern_of_a_guard(half):
    """A lookup makes no number, so nothing that it gives stops the line."""
    table = np.ones((4, 3), half)
    table[2] = np.inf
    with trueno.JidokaGuard.parse([("inf", "stop")]):
        got = trueno.numpy(trueno.embedding_lookup(there(table), there(np.array([2, 1]))))
    assert got.tolist() == [[np.inf] * 3, [1] * 3]
