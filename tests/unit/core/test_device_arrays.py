"""`Vector` and `Matrix` on a device, and what comes and goes by DLPack."""

import copy
import pickle

import numpy as np
import pytest
import trueno
from trueno import Matrix, Vector
from trueno.testing import assert_op


@pytest.fixture
def data(rng):
    return rng.standard_normal(50).astype(np.float32)


@pytest.fixture
def there(fake, data):
    """A vector on the device, whose transfers so far are forgotten."""
    v = Vector(data).to("fake")
    fake.LEDGER.reset()
    return v


def moved(fake):
    return fake.LEDGER.uploads, fake.LEDGER.downloads


# ---- holding ------------------------------------------------------------------------------------------


def test_a_vector_holds_a_devices_array_itself(fake, data):
    a = trueno.to(data, "fake")
    fake.LEDGER.reset()
    v = Vector(a)
    assert v.array is a and v.device == "fake"
    assert (v.shape, v.ndim, v.size, v.dtype, len(v)) == ((50,), 1, 50, np.float32, 50)
    assert Vector(v).array is a
    assert moved(fake) == (0, 0) and fake.LEDGER.allocs == 0
    np.testing.assert_array_equal(v.numpy(), data)
    assert v.to_vec() == data.tolist()
    assert Vector(data).device == "host"


def test_what_it_cannot_hold(fake):
    matrix = trueno.to(np.ones((2, 3), np.float32), "fake")
    whole = trueno.to(np.ones(3, np.int64), "fake")
    with pytest.raises(trueno.ShapeError, match=r"Vector: data have shape \(2, 3\)"):
        Vector(matrix)
    with pytest.raises(trueno.DtypeError, match="int64"):
        Vector(whole)
    with pytest.raises(trueno.DtypeError, match="float64 was requested"):
        Matrix(matrix, dtype=np.float64)
    with pytest.raises(trueno.DeviceError, match=r"live on fake, but backend is 'scalar'"):
        Matrix(matrix, backend="scalar")
    with pytest.raises(trueno.DeviceError, match="scalar"):
        Matrix(matrix).with_backend("scalar")
    assert Matrix(matrix, backend="fake").with_backend(None).backend is None


def test_to_and_back(fake, data):
    v = Vector(data, backend="scalar")
    d = v.to("fake")
    assert type(d) is Vector and d.device == "fake" and d.backend is None
    assert d.to("fake") is d
    home = d.to("scalar")
    assert type(home) is Vector and type(home.array) is np.ndarray
    np.testing.assert_array_equal(home.array, data)
    assert v.to("scalar") is v and v.to("reference") is v
    with pytest.raises(trueno.UnknownBackend):
        v.to("nowhere")
    assert type(trueno.to(d, "fake")) is fake.Array and trueno.to(d, "fake") is d.array
    np.testing.assert_array_equal(trueno.numpy(d), data)
    np.testing.assert_array_equal(trueno.numpy(Vector(data)), data)


def test_repr_moves_nothing(fake, there):
    assert repr(there) == "Vector(on fake, 50 float32)"
    m = Matrix(trueno.to(np.ones((2, 3)), "fake"))
    fake.LEDGER.reset()
    assert repr(m) == "Matrix(on fake, 2×3 float64)" and (m.rows, m.cols) == (2, 3)
    assert moved(fake) == (0, 0)


# ---- computing ----------------------------------------------------------------------------------------


def test_methods_and_operators_stay_on_the_device(fake, there, data):
    results = [
        (there.relu(), np.maximum(data, 0)),
        (there + there, data + data),
        (2.0 * there - 1.0, 2 * data - 1),
        (-there, -data),
        (abs(there), abs(data)),
        (there + there.array, data + data),
        (there.array + there, data + data),
        (trueno.add(there, there.array), data + data),
    ]
    assert moved(fake)[1] == 0
    for got, wanted in results:
        assert type(got) is Vector and got.device == "fake", got
        np.testing.assert_array_equal(got.numpy(), wanted)


def test_softmax_and_folds(fake, there, data):
    assert_op("softmax", [data], there.softmax().numpy())
    total = there.sum()
    assert type(total) is fake.Array and total.shape == ()
    assert_op("sum", [data], trueno.numpy(total))
    assert_op("dot", [data, data], trueno.numpy(there @ there))


def test_matrices_on_the_device(fake, rng):
    a, b = (rng.standard_normal((4, 4)).astype(np.float32) for _ in range(2))
    x = rng.standard_normal(4).astype(np.float32)
    A, B, v = Matrix(a).to("fake"), Matrix(b).to("fake"), Vector(x).to("fake")
    fake.LEDGER.reset()
    product, transposed, left, right = A @ B, A.T, A @ v, v @ A
    rows = A.sum()
    assert moved(fake) == (0, 0)
    assert [type(r) for r in (product, transposed, left, right, rows)] == [Matrix, Matrix, Vector, Vector, Vector]
    assert all(r.device == "fake" for r in (product, transposed, left, right, rows))
    assert_op("matmul", [a, b], product.numpy())
    assert_op("matvec", [a, x], left.numpy())
    assert_op("vecmat", [x, a], right.numpy())
    np.testing.assert_array_equal(transposed.numpy(), a.T)
    again = Matrix.from_slice(2, 8, A.array.reshape((16,)))
    assert again.device == "fake" and again.shape == (2, 8)
    with pytest.raises(trueno.ShapeError, match="needs 6 values, got 16"):
        Matrix.from_slice(2, 3, A.array)


def test_out_is_a_vector_too(fake, there, data):
    out = Vector(np.zeros(50, np.float32)).to("fake")
    assert trueno.add(there, there, out=out) is out
    np.testing.assert_array_equal(out.numpy(), data + data)
    assert trueno.relu(there.array, out=out) is out
    with pytest.raises(trueno.OutError, match="fake"):
        trueno.add(there, there, out=Vector(data))


def test_two_places_are_an_error_that_says_how_to_move(fake, there, data):
    host = Vector(data)
    fake.LEDGER.reset()
    for call in (lambda: there + host, lambda: host + there, lambda: there.add(data), lambda: trueno.dot(host, there)):
        with pytest.raises(trueno.DeviceError, match=r"trueno\.to\(") as caught:
            call()
        assert "host" in str(caught.value) and "fake" in str(caught.value)
    assert moved(fake) == (0, 0)
    assert trueno.explain("add", there, there).by == "resident"


def test_transfers_are_events(fake, data):
    with trueno.trace() as events:
        v = Vector(data).to("fake")
        v.relu().numpy()
    assert [(e.detail, e.bytes) for e in events if e.kind == "transfer"] == [("to device", 200), ("to host", 200)]


# ---- what asks for elements ---------------------------------------------------------------------------


def test_nothing_comes_home_in_silence(fake, there):
    for hidden, error in (
        (np.asarray, TypeError),
        (lambda v: np.isnan(v), TypeError),
        (lambda v: np.add.reduce(v), TypeError),
        (list, trueno.DeviceError),
        (lambda v: v[0], trueno.DeviceError),
        (lambda v: v == v, trueno.DeviceError),
        (lambda v: Vector([1.0]) == v, trueno.DeviceError),
        (np.from_dlpack, BufferError),
    ):
        with pytest.raises(error, match=r"\.numpy\(\)"):
            hidden(there)
    assert moved(fake) == (0, 0)


def test_pickle_brings_home(fake, there, data):
    home = pickle.loads(pickle.dumps(there))
    assert home.device == "host" and home.backend is None
    np.testing.assert_array_equal(home.array, data)
    v = Vector(data, backend="scalar")
    assert pickle.loads(pickle.dumps(v)).backend == "scalar"


def test_copies_stay(fake, there, data):
    assert copy.copy(there).array is there.array
    deep = copy.deepcopy(there)
    assert deep.device == "fake" and deep.array is not there.array
    assert moved(fake) == (0, 0)
    trueno.relu(there, out=there)
    np.testing.assert_array_equal(deep.numpy(), data)
    host = Vector(data)
    assert copy.deepcopy(host).array is not host.array and copy.copy(host).array is host.array


# ---- DLPack -------------------------------------------------------------------------------------------


class Exporter:
    """An array of another library, known by DLPack alone."""

    def __init__(self, array, device=(1, 0)):
        self.array = array
        self.device = device

    def __dlpack__(self, **kw):
        return self.array.__dlpack__(**kw)

    def __dlpack_device__(self):
        return self.device


def test_a_vector_is_exported_without_a_copy(data):
    v = Vector(data)
    again = np.from_dlpack(v)
    assert np.shares_memory(again, v.array)
    assert v.__dlpack_device__() == (1, 0)
    assert Vector(Exporter(data)).to_vec() == data.tolist()


def test_operands_by_dlpack_are_not_copied(data):
    from trueno.dispatch import coerce

    array = coerce._array(trueno.add.op, "x", Exporter(data))
    assert np.shares_memory(array, data)
    np.testing.assert_array_equal(trueno.add(Exporter(data), data), data + data)
    np.testing.assert_array_equal(trueno.numpy(Exporter(data)), data)
    index = trueno.embedding_lookup(np.eye(3, dtype=np.float32), Exporter(np.array([2, 0])))
    np.testing.assert_array_equal(index, np.eye(3)[[2, 0]])


def test_a_read_only_exporter_is_read(data):
    data.flags.writeable = False
    np.testing.assert_array_equal(trueno.relu(Exporter(data)), np.maximum(data, 0))
    with pytest.raises(trueno.OutError):
        trueno.relu(data.copy(), out=Exporter(data))


def test_an_exporter_that_fails_is_named(data):
    class Broken(Exporter):
        def __dlpack_device__(self):
            raise OSError("no driver")

    with pytest.raises(trueno.DtypeError, match=r"relu: x is a Broken that NumPy cannot take \(OSError: no driver\)"):
        trueno.relu(Broken(data))


def test_torch_comes_and_goes(data):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    t = torch.from_numpy(data)
    np.testing.assert_array_equal(trueno.add(t, t), data + data)
    assert np.shares_memory(trueno.numpy(t), data)
    v = Vector(t)
    back = torch.from_dlpack(v)
    back[0] = 7
    assert v.array[0] == 7 and data[0] != 7  # the vector's own copy
    with pytest.raises(trueno.DtypeError, match=r"x requires a gradient.*x\.detach"):
        trueno.relu(t.clone().requires_grad_())
    assert torch.equal(trueno.relu(t.bfloat16()), torch.relu(t.bfloat16()))


def test_memory_that_only_a_device_reaches(data):
    far = Exporter(data, device=(2, 1))
    for call in (lambda: trueno.relu(far), lambda: trueno.numpy(far), lambda: Vector(far)):
        with pytest.raises(trueno.DeviceError, match=r"Exporter on DLPack device \(2, 1\)"):
            call()


# ---- what others would take in silence -------------------------------------------------------------------


@pytest.mark.parametrize(
    "what", [lambda x: trueno.to(x, "fake"), lambda x: trueno.to(x, "scalar"), trueno.numpy, Vector]
)
def test_what_is_no_array_of_numbers(fake, what):
    """An error of ours, no warning, and no value that was not there."""
    with pytest.raises(trueno.DtypeError, match="masked array, whose mask would be lost"):
        what(np.ma.masked_array([1.0, 2.0], [True, False]))
    with pytest.raises(trueno.ShapeError, match="ragged"):
        what([[1.0], [2.0, 3.0]])
    for bad in ([10**400], [None], ["1.5"], [1j]):
        with pytest.raises(trueno.DtypeError):
            what(bad)
    assert np.asarray(trueno.numpy(what([1e300, 1.0]))).tolist() == [np.inf, 1]
    with trueno.Batch("scalar") as b, pytest.raises(trueno.DtypeError):
        Vector(b.upload([1.0]))


def test_numbers_beside_a_devices_array(there):
    assert np.isinf(trueno.numpy(there + 1e300)).all()
    with pytest.raises(trueno.ParameterError, match="add: a whole number of 1329 bits is beyond the range of float32"):
        trueno.add(there, 10**400)


def test_no_room_to_move(fake):
    with pytest.raises(trueno.OutOfMemory, match="to: there is no room for x"):
        trueno.to(np.broadcast_to(np.float32(1), (10**6, 10**7)), "fake")


def test_two_results_need_two_arrays(fake):
    x, w, out = (trueno.to(np.ones(s, np.float32), "fake") for s in ((3, 4), (4,), (3, 4)))
    with pytest.raises(trueno.OutError, match="residual_rms_norm: two results share the memory of out"):
        trueno.residual_rms_norm(x, x, w, out=(out, out))


class _Flags:
    def __init__(self, ordered):
        self.c_contiguous = ordered


def test_an_array_with_gaps_is_never_reshaped_behind_the_callers_back(fake, monkeypatch):
    """A reshape of it would be a copy: of an operand an unneeded one, of a result one that is written to and lost."""
    backend = trueno.backends()["fake"].load()
    x = trueno.to(np.arange(24, dtype=np.float32).reshape(2, 3, 4), "fake")
    gaps, asked = trueno.to(np.arange(24, dtype=np.float32).reshape(2, 3, 4), "fake"), []
    monkeypatch.setattr(fake.Array, "flags", property(lambda self: _Flags(self is not gaps)), raising=False)
    monkeypatch.setattr(type(backend), "contiguous", lambda self, a: asked.append(a) or x, raising=False)
    for _ in range(3):
        np.testing.assert_array_equal(trueno.numpy(trueno.relu(x)), trueno.numpy(trueno.relu(gaps)))
    assert asked == [gaps] * 3
    for _ in range(3):
        assert trueno.neg(x, out=gaps) is gaps
        np.testing.assert_array_equal(trueno.numpy(gaps), -trueno.numpy(x))
