"""DLPack arrays of any library, on the host and on a device, which here is the fake one."""

from types import SimpleNamespace

import numpy as np
import pytest
import trueno
from trueno.errors import DeviceError, DtypeError, OutError


class Foreign:
    """An array of a library that NumPy knows only by DLPack.  device: DLPack's type and number."""

    def __init__(self, held, device=(1, 0)):
        self.held, self.device = held, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **kw):
        return self.held.__dlpack__(**kw)

    def __array_namespace__(self):
        return SimpleNamespace(from_dlpack=lambda x: Foreign(np.from_dlpack(x), self.device))


class Opaque:
    """An array whose library imports no DLPack."""

    def __init__(self, held):
        self.held = held

    __dlpack__, __dlpack_device__ = Foreign.__dlpack__, lambda self: (1, 0)


THERE = (12, 0)


class There(Foreign):
    """An array of a library on the fake device."""

    def __array_namespace__(self):
        return SimpleNamespace(from_dlpack=lambda x: There(x.__dlpack__(), THERE))


@pytest.fixture
def shared(fake, monkeypatch):
    """The fake device, whose arrays export and import themselves in place of capsules."""
    import trueno_fake

    monkeypatch.setattr(trueno_fake.Array, "__dlpack__", lambda self, **_: self, raising=False)
    monkeypatch.setattr(trueno_fake.Array, "__dlpack_device__", lambda self: THERE, raising=False)
    monkeypatch.setattr(trueno_fake, "from_dlpack", lambda x: x.__dlpack__(), raising=False)
    return fake


def test_host_arrays_come_out_as_they_went_in(rng):
    x = rng.standard_normal((3, 4)).astype(np.float32)[:, ::-1]
    with trueno.use("reference"):
        got = trueno.softmax(Foreign(x))
        assert type(got) is Foreign
        np.testing.assert_array_equal(got.held, trueno.softmax(x))
        total = trueno.sum(Foreign(x), axis=None)
        assert type(total) is Foreign and total.held.shape == ()
        out = Foreign(np.empty((3, 4), np.float32))
        assert trueno.add(Foreign(x), 1.0, out=out) is out
        np.testing.assert_array_equal(out.held, x + 1)
        values, places = trueno.topk(Foreign(x), 2)
        assert places.held.dtype == np.int64 and values.held.shape == (3, 2)


def test_what_is_not_taken(rng):
    x = rng.standard_normal(4).astype(np.float32)
    with pytest.raises(DtypeError, match=r"add: x is a DLPack array, but y is a NumPy array; .* numpy\.asarray\(x\)"):
        trueno.add(Foreign(x), x)
    x.flags.writeable = False
    with pytest.raises(OutError, match=r"read-only|cannot reach"):
        trueno.neg(Foreign(x.copy()), out=Foreign(x))
    with pytest.raises(DeviceError, match=r"neg: x is a Foreign on DLPack device \(7, 0\), which no installed backend"):
        trueno.neg(Foreign(x, (7, 0)))
    with pytest.raises(DeviceError, match="which the host cannot access"):
        trueno.numpy(Foreign(x, (7, 0)))


def test_a_library_without_import_gets_numpy_arrays(rng):
    x = rng.standard_normal(4).astype(np.float32)
    with trueno.use("reference"):
        assert type(trueno.neg(Opaque(x))) is np.ndarray


def test_memory_of_a_device_stays_there(shared, rng):
    x = rng.standard_normal((3, 4)).astype(np.float32)
    held = trueno.to(x, "fake")
    shared.LEDGER.reset()
    y, out = trueno.relu(There(held, THERE)), There(trueno.to(np.zeros_like(x), "fake"), THERE)
    assert type(y) is There and type(y.held) is type(held) and y.device == THERE
    shared.LEDGER.reset()
    assert trueno.add(There(held, THERE), There(held, THERE), out=out) is out
    assert (shared.LEDGER.uploads, shared.LEDGER.downloads) == (0, 0)
    np.testing.assert_array_equal(trueno.numpy(y.held), np.maximum(x, 0))
    np.testing.assert_array_equal(trueno.numpy(out.held), x + x)
    assert trueno.explain("relu", There(held, THERE)).chosen == "fake"
    with pytest.raises(DeviceError, match=r"on DLPack device \(12, 1\), but fake computes on number 0"):
        trueno.relu(There(held, (12, 1)))


def test_jax_arrays(rng):
    jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
    with trueno.use("reference"):
        for dtype in (jax.numpy.float32, jax.numpy.float16, jax.numpy.bfloat16):
            x = jax.numpy.asarray(rng.standard_normal((3, 4)), dtype)
            got = trueno.relu(x)
            assert isinstance(got, jax.Array) and got.dtype == x.dtype
            np.testing.assert_array_equal(np.asarray(got), np.maximum(np.asarray(x), 0))
        with pytest.raises(OutError):
            trueno.relu(x, out=x)
