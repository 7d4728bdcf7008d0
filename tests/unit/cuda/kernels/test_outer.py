"""outer of the CUDA backend, on the emulator: to the bit, since each product is rounded once."""

import numpy as np
import pytest
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels import operands, outer
from unit.cuda.kernels.moves import FLOATS, call, compute, part, random, unwritten

SIZES = [(1, 1), (3, 17), (9, 32), (65, 33), (33, 64), (2, 1030), (8, 1024), (1000, 1), (70, 3)]


@pytest.fixture(scope="module")
def device():
    return Emulator("sm_90")


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("m, n", SIZES)
def test_products_are_exact(device, dtype, m, n, guarded):
    rng = random()
    x, y = (rng.standard_normal(size).astype(dtype) for size in (m, n))
    x[0], y[n // 2] = 0.0, -1.0  # the product's -0 must stay
    x[m // 2] *= np.finfo(dtype).smallest_normal  # and subnormals
    for shift in (0, 1):
        got = compute(device, outer.outer, "outer", (m, n), x, y, guarded=guarded, shift=shift)
        assert got.tobytes() == np.multiply.outer(x, y).tobytes()
    assert device.take_status() == 0


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_an_overflow_is_told(device, dtype):
    x, y = np.ones(30, dtype), np.ones(37, dtype)
    x[29] = y[36] = np.finfo(dtype).max
    got = compute(device, outer.outer, "outer", (30, 37), x, y, guarded=True)
    assert np.isinf(got[29, 36]) and np.count_nonzero(np.isinf(got)) == 1
    assert device.take_status() == 2


def test_the_rest_of_a_tile_tells_nothing(device):
    """Threads beyond the result multiply zeros by what may be an Inf."""
    x, y = np.full(3, np.inf, "f4"), np.ones(5, "f4")
    compute(device, outer.outer, "outer", (3, 5), x, y, guarded=True)
    assert device.take_status() == 2


def test_an_array_with_itself(device):
    x = random().standard_normal(50).astype("f4")
    held, out = device.to_device(x), unwritten(device, (50, 50), "f4")
    assert outer.outer(device, call("outer", "f4", x, x))(held, held, out) == 0
    assert out.elements.tobytes() == np.multiply.outer(x, x).tobytes()


def test_large_results_are_split(device, monkeypatch):
    monkeypatch.setattr(operands, "REACH", 32)
    rng = random()
    for m, n in ((70, 65), (33, 100), (1, 64)):
        x, y = (rng.standard_normal(size).astype("f4") for size in (m, n))
        assert compute(device, outer.outer, "outer", (m, n), x, y).tobytes() == np.multiply.outer(x, y).tobytes()


@pytest.mark.parametrize("x, y, out", [((4,), (5,), (5, 4)), ((4, 1), (5,), (4, 5)), ((4,), (5,), (20,))])
def test_shapes_that_do_not_agree_are_refused(device, x, y, out):
    inputs = np.zeros(x, "f4"), np.zeros(y, "f4")
    result = unwritten(device, out, "f4")
    assert outer.outer(device, call("outer", "f4", *inputs))(*map(device.to_device, inputs), result) == -1
    assert np.isnan(result.elements).all()


def test_a_result_over_an_operand_is_refused(device):
    whole = device.to_device(np.ones(60, "f4"))
    x, y, out = part(whole, (5,), 0), part(whole, (6,), 54), part(whole, (5, 6), 5)
    kernel = outer.outer(device, call("outer", "f4", np.ones(5), np.ones(6)))
    assert kernel(x, y, out) == 0
    assert kernel(x, y, part(whole, (5, 6), 4)) == -1
    assert kernel(x, y, part(whole, (5, 6), 25)) == -1


def test_an_empty_result(device):
    assert compute(device, outer.outer, "outer", (0, 3), np.empty(0, "f4"), np.ones(3, "f4")).size == 0
