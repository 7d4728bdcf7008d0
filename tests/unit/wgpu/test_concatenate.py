"""concatenate on the device."""

import numpy as np
import pytest

pytest.importorskip("wgpu")
import trueno

pytestmark = pytest.mark.usefixtures("chosen")


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_every_axis(axis):
    rng = np.random.default_rng(2)
    a = rng.normal(size=(3, 5, 70)).astype(np.float32)
    a[0, 0, 0] = np.nan
    b = np.repeat(a.take([0], axis), 4, axis)
    got = trueno.numpy(trueno.concatenate(trueno.to(a, "wgpu"), trueno.to(b, "wgpu"), axis=axis))
    assert got.tobytes() == np.concatenate((a, b), axis).tobytes()


def test_in_a_batch():
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    with trueno.Batch("wgpu") as batch:
        x = batch.upload(a)
        y = batch.concatenate(x, batch.neg(x))
        batch.execute()
        np.testing.assert_array_equal(batch.read(y), np.concatenate((a, -a)))
