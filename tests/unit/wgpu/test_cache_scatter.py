"""kv_cache_scatter of wgpu to the byte: against NumPy, ml_dtypes and the gguf package."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("wgpu")
import trueno
from trueno_wgpu.device.array import Array
from trueno_wgpu.kernels.caches import scatter
from unit.caches import FORMS, every_size_of_q8_0, halfway, held, written
from unit.wgpu.products import kernel

pytestmark = pytest.mark.usefixtures("chosen")


def problem(rng, form, pages, page, h, d, n):
    cache = rng.integers(0, 256, held(np.zeros((pages, page, h, d), np.float32), form).shape, np.uint8)
    x = (rng.normal(size=(n, h, d)) * 10.0 ** rng.integers(-6, 5, (n, h, 1))).astype(np.float32)
    return cache, x, rng.integers(-1, pages * page, n)


def compute(gpu, cache, x, slots, form, *, in_place=False, guarded=False):
    there = [Array.of(gpu, a) for a in (cache, x, slots)]
    out = there[0] if in_place else Array.of(gpu, np.full_like(cache, 77))
    assert kernel(gpu, "kv_cache_scatter", cache, x, slots, guarded=guarded, format=form)(*there, out) == 0
    assert in_place or there[0].numpy().tobytes() == cache.tobytes()
    return out.numpy()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_place", [False, True])
def test_bytes(gpu, rng, form, in_place):
    """Slots that share words, as those of odd sizes do, and rows of one slot, of which the last counts."""
    shapes = [(1, 1, 1, 32, 1), (3, 5, 1, 32, 7), (3, 5, 2, 64, 40), (2, 16, 3, 96, 300), (9, 1, 7, 128, 5)]
    if form != "q8_0":
        shapes += [(1, 1, 1, 1, 1), (3, 5, 1, 1, 9), (4, 5, 7, 33, 12), (2, 3, 3, 1000, 4)]
    for shape in shapes:
        cache, x, slots = problem(rng, form, *shape)
        got = compute(gpu, cache, x, slots, form, in_place=in_place)
        np.testing.assert_array_equal(got, written(cache, x, slots, form), err_msg=str(shape))


@pytest.mark.parametrize("form", FORMS)
def test_a_slot_outside_is_left_out(gpu, rng, form):
    """The host checks slots where it can; on the device a wrong one writes nothing, whatever is in its low word."""
    cache, x, _ = problem(rng, form, 3, 4, 1, 32, 8)
    slots = np.array([2, 12, -2, 2**32, 2**32 + 3, -(2**62), 2**31, 11])
    for guarded in (False, True):
        gpu.take_status()
        got = compute(gpu, cache, x, slots, form, in_place=True, guarded=guarded)
        np.testing.assert_array_equal(got, written(cache, x, slots, form))
        assert gpu.take_status() == 0


def test_q8_0_of_any_size(gpu, rng):
    whole, want = every_size_of_q8_0(rng)
    cache, slots = np.full((len(whole), 1, 1, 34), 99, np.uint8), np.arange(len(whole))
    np.testing.assert_array_equal(compute(gpu, cache, whole, slots, "q8_0")[:, 0], want)


@pytest.mark.parametrize("form", ["f16", "bf16"])
@pytest.mark.parametrize("h", [7861, 7860])
def test_every_kind_of_number_is_rounded_to_even(gpu, form, h):
    """In slots of an odd and of an even number of halves."""
    x = halfway(5)[: 15 * h].reshape(15, h, 1)
    cache = np.zeros((15, 1, h, 2), np.uint8)
    np.testing.assert_array_equal(compute(gpu, cache, x, np.arange(15), form)[:, 0], held(x, form))


@pytest.mark.parametrize("form", FORMS)
def test_bands_of_both(gpu, rng, form):
    cache, x, slots = problem(rng, form, 40, 16, 1, 32, 500)
    there = [Array.of(gpu, a) for a in (cache, x, slots)]
    gpu.counts.reset()
    scatter.run(gpu, form, *there[1:], there[0], replace(gpu.limits, binding=16 << 10))
    assert gpu.counts.kernels > 4
    np.testing.assert_array_equal(there[0].numpy(), written(cache, x, slots, form))


def test_refusals(gpu, rng):
    cache, x, slots = (Array.of(gpu, a) for a in problem(rng, "f16", 3, 4, 2, 32, 5))
    call = kernel(gpu, "kv_cache_scatter", np.empty((3, 4, 2, 64)), np.empty((5, 2, 32)), slots, format="f16")
    other = Array.empty(gpu, (3, 4, 2, 32), np.uint8)
    for operands in (
        (cache, x, slots, other),
        (cache, Array.empty(gpu, (5, 1, 32), np.float32), slots, cache),
        (cache, Array.empty(gpu, (5, 2, 33), np.float32), slots, cache),
        (cache, x, Array.empty(gpu, (4,), np.int64), cache),
        (cache, x, slots, Array(cache.shape, np.uint8, x.buffer)),
    ):
        assert call(*operands) == -1


@pytest.mark.parametrize("form", FORMS)
def test_arrays_of_the_device(gpu, rng, form):
    """out is the cache itself: nothing is copied, moved or read, and no slot is checked."""
    cache, x, slots = problem(rng, form, 3, 5, 2, 64, 6)
    slots[2] = 99
    there = [trueno.to(a, "wgpu") for a in (cache, x, slots)]
    for _ in range(3):
        assert trueno.kv_cache_scatter(*there, format=form, out=there[0]) is there[0]
    np.testing.assert_array_equal(trueno.numpy(there[0]), written(cache, x, slots, form))
    there[0] = trueno.to(cache, "wgpu")
    copy = trueno.kv_cache_scatter(*there, format=form)
    np.testing.assert_array_equal(trueno.numpy(there[0]), cache)
    np.testing.assert_array_equal(trueno.numpy(copy), written(cache, x, slots, form))
