"""topk on the device: one workgroup a row and several, ties, and a k whose passes take several dispatches."""

import numpy as np
import pytest

pytest.importorskip("wgpu")
import trueno

pytestmark = pytest.mark.usefixtures("chosen")


@pytest.mark.parametrize("size", [(1, 1), (64, 8), (300, 40), (4097, 5), (20_000, 40), (9000, 2000)], ids=str)
def test_against_the_host(size):
    n, k = size
    rng = np.random.default_rng([6, n])
    x = rng.normal(size=(3, n)).astype(np.float32)
    x[1] = np.rint(2 * x[1])
    x[1][rng.random(n) < 0.2] = -0.0
    x[2][rng.random(n) < 0.3] = np.nan
    x[2][rng.random(n) < 0.1] = np.inf
    with trueno.use("reference"):
        values, indices = trueno.topk(x, k)
    got = [trueno.numpy(a) for a in trueno.topk(trueno.to(x, "wgpu"), k)]
    np.testing.assert_array_equal(got[1], indices)
    assert got[0].tobytes() == values.tobytes()


def test_in_a_batch():
    x = np.random.default_rng(2).normal(size=(5, 200)).astype(np.float32)
    with trueno.Batch("wgpu") as b:
        values, indices = b.topk(b.upload(x), 9)
        total = b.sum(values)
        b.execute()
        with trueno.use("reference"):
            want = trueno.topk(x, 9)
        np.testing.assert_array_equal(b.read(indices), want[1])
        np.testing.assert_allclose(b.read(total), want[0].sum(-1), rtol=1e-6)
