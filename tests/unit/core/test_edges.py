"""What the ops' pages say of numbers at the ends of a float's range."""

import math

import numpy as np
import pytest
import trueno
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize("backend", ["reference", "scalar", "simd"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_sigmoid_comes_from_below(backend, dtype):
    with trueno.use(backend):
        y = trueno.log_sigmoid(np.array([INF, 1e30, 1000.0] * 11, dtype))
    np.testing.assert_array_equal(y, 0)
    assert np.signbit(y).all()


@pytest.mark.parametrize(
    "dtype, large, small, none", [(np.float32, 1e20, 1e-21, 1e-23), (np.float64, 1e155, 1e-158, 1e-163)]
)
@pytest.mark.parametrize("backend", ["reference", "scalar", "simd"])
def test_sums_of_squares_have_their_range(backend, dtype, large, small, none):
    x = np.array([0.75, -1.0, 0.5, 0.25], dtype)
    one = np.ones(4, dtype)
    with trueno.use(backend):
        ops = {
            "normalize": trueno.normalize,
            "rms_norm": lambda row: trueno.rms_norm(row, one, eps=0.0),
            "zscore": trueno.zscore,
            "layer_norm": lambda row: trueno.layer_norm(row, one, np.zeros(4, dtype), eps=0.0),
        }
        for name, op in ops.items():
            unit = op(x)
            np.testing.assert_array_equal(op(x * dtype(large)), 0, err_msg=name)
            np.testing.assert_allclose(op(x * dtype(small)), unit, rtol=0.01, err_msg=name)
            np.testing.assert_array_equal(op(x * dtype(none)), unit * dtype(INF), name)
        for size in (large, none):
            assert np.isnan(trueno.correlation(x * dtype(size), x * dtype(size)))
        assert trueno.correlation(x * dtype(large), x) == 0


@pytest.mark.parametrize("backend", ["reference", "scalar", "simd"])
def test_lerp_over_more_than_the_range(backend):
    x, y = np.array([-3e38], np.float32), np.array([3e38], np.float32)
    with trueno.use(backend):
        assert trueno.lerp(x, y, t=0.3) == INF
        assert trueno.lerp(y, x, t=0.3) == -INF
        assert np.isnan([trueno.lerp(x, y, t=t) for t in (0.0, 1.0)]).all()


@pytest.mark.parametrize("backend", ["reference", "simd"])
@pytest.mark.parametrize("name, kind", [("q4_0", Kind.Q4_0), ("q4_k", Kind.Q4_K)])
def test_small_activations(backend, name, kind):
    rng = np.random.default_rng(1)
    w = trueno.quantize(rng.standard_normal((4, 256)).astype(np.float32), name)
    numbers = dequantize(np.asarray(w.bytes), kind).astype(np.float64)
    with trueno.use(backend):
        for size in (1e-2, 3.5e-6):
            x = (np.where(rng.random(256) < 0.5, size, -size)).astype(np.float32)
            y, want = trueno.quant_matvec(w, x), numbers @ x
            if size < 4e-6 and name == "q4_0":
                assert not y.any()
            else:
                np.testing.assert_allclose(y, want, atol=0.02 * size * np.abs(numbers).sum(1).max())
            np.testing.assert_allclose(trueno.quant_matvec(w, x, activations="f32"), want, atol=1e-5 * size * 256)
