"""`trueno.split` and `trueno.repeat` of arrays on the GPU, which have no views: copies that stay there."""

import numpy as np
import pytest

pytest.importorskip("wgpu")
import trueno
import trueno_wgpu
from trueno.discovery import registry


@pytest.fixture(scope="module", autouse=True)
def _here(word):
    trueno.settings.override("TRUENO_BLOCK", None)
    registry.entries()
    trueno.settings.override("TRUENO_WGPU_ADAPTER", word or None)
    try:
        registry.load("wgpu")
        yield
    finally:
        trueno.settings.override("TRUENO_WGPU_ADAPTER", None)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_copies_stay_on_the_device(rng, axis):
    x = rng.standard_normal((3, 4, 5)).astype(np.float32)
    there, n = trueno.to(x, "wgpu"), x.shape[axis]
    parts = trueno.split(there, [1, n - 1], axis)
    assert all(isinstance(part, trueno_wgpu.Array) for part in parts)
    for part, want in zip(parts, np.split(x, [1], axis), strict=True):
        np.testing.assert_array_equal(trueno.numpy(part), want)
    np.testing.assert_array_equal(trueno.numpy(trueno.repeat(there, 2, axis)), np.repeat(x, 2, axis))
    three = trueno.concatenate([there, parts[0], there], axis=axis)
    np.testing.assert_array_equal(trueno.numpy(three), np.concatenate([x, x.take([0], axis), x], axis))
