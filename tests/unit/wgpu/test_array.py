"""`trueno_wgpu.Array`: what it is, and what it refuses to become."""

import copy
import pickle

import numpy as np
import pytest

pytest.importorskip("wgpu")
import trueno_wgpu
from trueno.errors import OutOfMemory
from trueno_wgpu.device.array import Array


def test_its_name_is_the_packages():
    """As the manifest names it; importing the package loads no wgpu."""
    assert trueno_wgpu.Array is Array
    assert (Array.__module__, Array.__qualname__) == ("trueno_wgpu", "Array")
    with pytest.raises(AttributeError):
        _ = trueno_wgpu.Matrix


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 3, 4), (0,), (4, 0)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "u1"])
def test_there_and_back(gpu, rng, shape, dtype):
    x = (rng.standard_normal(shape) * 100).astype(dtype)
    a = Array.of(gpu, x)
    assert (a.shape, a.dtype, a.ndim, a.size, a.nbytes) == (x.shape, x.dtype, x.ndim, x.size, x.nbytes)
    back = a.numpy()
    assert back.dtype == x.dtype and back.shape == x.shape and back.flags.writeable
    np.testing.assert_array_equal(back, x)


def test_of_any_layout(gpu, rng):
    x = rng.standard_normal((6, 8)).astype(np.float32)
    frozen = x.copy()
    frozen.flags.writeable = False
    for given in (x.T, x[::2], x[:, 1::3], x[::-1], np.asfortranarray(x), frozen, np.broadcast_to(x[0], (4, 8))):
        np.testing.assert_array_equal(Array.of(gpu, given).numpy(), given)
    swapped = x.astype(">f4")
    a = Array.of(gpu, swapped)
    assert a.dtype == np.dtype("<f4")
    np.testing.assert_array_equal(a.numpy(), x)


def test_into_an_array(gpu, rng):
    x = rng.standard_normal((6, 8)).astype(np.float32)
    a = Array.of(gpu, x)
    out = np.empty_like(x)
    assert a.numpy(out) is out
    np.testing.assert_array_equal(out, x)
    wide = np.zeros((6, 16), np.float32)
    assert a.numpy(wide[:, ::2]) is not None
    np.testing.assert_array_equal(wide[:, ::2], x)
    assert not wide[:, 1::2].any()
    scalar = np.empty((), np.float32)
    assert Array.of(gpu, np.float32(3).reshape(())).numpy(scalar) is scalar and scalar == 3
    a.write(2 * x[::-1])
    np.testing.assert_array_equal(a.numpy(), 2 * x[::-1])


def test_reshape(gpu):
    a = Array.of(gpu, np.arange(12, dtype=np.float32))
    b = a.reshape((3, 4))
    assert b.buffer is a.buffer and b.shape == (3, 4)
    np.testing.assert_array_equal(b.numpy(), np.arange(12).reshape(3, 4))
    for shape in ((5,), (-1, 12), (3, -4)):
        with pytest.raises(ValueError, match="cannot reshape"):
            a.reshape(shape)


def test_what_it_does_not_become(gpu):
    a = Array.of(gpu, np.ones(3, np.float32))
    for error, call in (
        (TypeError, lambda: np.asarray(a)),
        (TypeError, lambda: bool(a)),
        (TypeError, lambda: pickle.dumps(a)),
        (TypeError, lambda: copy.copy(a)),
        (TypeError, lambda: copy.deepcopy(a)),
        (BufferError, lambda: np.from_dlpack(a)),
        (BufferError, a.__dlpack_device__),
    ):
        with pytest.raises(error, match=r"copy it to the host with trueno\.numpy"):
            call()
    with pytest.raises(TypeError):
        np.ones(3) + a
    assert repr(a) == "<wgpu Array (3,) float32>"
    assert len({a, a}) == 1


def test_no_room(gpu):
    with pytest.raises(OutOfMemory):
        Array.empty(gpu, (1 << 40,), np.float32)
