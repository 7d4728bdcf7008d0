"""rope on every backend of the host: scalings against the published formulas, positions to 2²⁰ against longdouble."""

import math

import mpmath
import numpy as np
import pytest
import trueno
from trueno.errors import DtypeError, ParameterError, ShapeError

BACKENDS = [name for name in ("reference", "scalar", "simd") if name in trueno.backends()]
DIMS = 64
LLAMA3 = {"scaling": "llama3", "theta": 5e5, "factor": 8.0, "context": 8192.0}
YARN = {"scaling": "yarn", "theta": 1e6, "factor": 4.0, "context": 32768.0}


def rates(theta, scaling="none", factor=1.0, context=0.0, slow=1.0, fast=0.0):
    """Radians per position of each pair, and the magnitude, as Hugging Face's transformers compute them."""
    own = theta ** (-np.arange(0, DIMS, 2) / DIMS)
    if scaling == "linear":
        return own / factor, 1.0
    if scaling == "ntk":
        return (theta * factor ** (DIMS / (DIMS - 2))) ** (-np.arange(0, DIMS, 2) / DIMS), 1.0
    if scaling == "llama3":
        high = fast or 4.0
        out = []
        for rate in own:
            length = 2 * math.pi / rate
            if length < context / high:
                out.append(rate)
            elif length > context / slow:
                out.append(rate / factor)
            else:
                smooth = (context / length - slow) / (high - slow)
                out.append((1 - smooth) * rate / factor + smooth * rate)
        return np.array(out), 1.0
    if scaling == "yarn":

        def dimension(turns):
            return DIMS * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(theta))

        low, high = max(math.floor(dimension(fast or 32.0)), 0), min(math.ceil(dimension(slow)), DIMS - 1)
        ramp = np.clip((np.arange(DIMS // 2) - low) / max(high - low, 1e-3), 0, 1)
        return own / factor * ramp + own * (1 - ramp), 0.1 * math.log(factor) + 1
    return own, 1.0


def rotated(x, positions, each, magnitude):
    angles = positions[..., None, None] * each
    a, b = x[..., : DIMS // 2], x[..., DIMS // 2 :]
    turned = (a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles))
    return np.concatenate(turned, -1) * magnitude


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "given",
    [
        {"theta": 1e4},
        {"theta": 1e4, "scaling": "linear", "factor": 3.0},
        {"theta": 1e4, "scaling": "ntk", "factor": 2.5},
        YARN,
        YARN | {"slow": 2.0, "fast": 16.0, "context": 4096.0},
        LLAMA3,
        LLAMA3 | {"slow": 2.0, "fast": 2.0},
        LLAMA3 | {"slow": 0.5, "fast": 16.0},
    ],
    ids=str,
)
def test_scalings(backend, given):
    rng = np.random.default_rng(3)
    x, positions = rng.normal(size=(9, 3, DIMS)), rng.integers(0, 40_000, 9)
    want = rotated(x, positions, *rates(**given))
    for dtype, allowed in ((np.float32, 2e-6), (np.float64, 1e-10)):
        with trueno.use(backend):
            got = trueno.rope(x.astype(dtype), positions, **given)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, want, rtol=0, atol=allowed)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("style", ["neox", "interleaved"])
@pytest.mark.parametrize("theta", [1e4, 1e6, 1e9])
def test_angles_are_exact_to_two_to_the_twenty(backend, style, theta):
    rng = np.random.default_rng(5)
    positions = np.array([0, 1, 2**20, 2**20 - 1, 777_777])
    x = rng.normal(size=(5, 2, DIMS))
    with mpmath.workdps(40):
        angles = [[p * mpmath.mpf(theta) ** (mpmath.mpf(-2 * i) / DIMS) for i in range(DIMS // 2)]
                  for p in positions.tolist()]  # fmt: skip
        cos, sin = (np.array([[float(f(a)) for a in row] for row in angles])[:, None] for f in (mpmath.cos, mpmath.sin))
    first, second = (slice(0, None, 2), slice(1, None, 2)) if style == "interleaved" else np.s_[:32, 32:]
    want = np.empty_like(x)
    want[..., first] = x[..., first] * cos - x[..., second] * sin
    want[..., second] = x[..., second] * cos + x[..., first] * sin
    with trueno.use(backend):
        double = trueno.rope(x, positions, theta=theta, style=style)
        single = trueno.rope(x.astype(np.float32), positions, theta=theta, style=style)
    assert np.abs(double - want).max() < 4e-12
    size = np.abs(x[..., first]) + np.abs(x[..., second])
    for part in (first, second):
        assert (np.abs(single - want)[..., part] <= 3 * 2.0**-24 * size).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_width_of_a_head(backend):
    """Pairs fill vectors, parts of vectors, and several; what lies beyond `dims` is copied bit for bit."""
    rng = np.random.default_rng(8)
    for d in (2, 4, 6, 16, 18, 30, 32, 34, 62, 66, 80, 96, 130):
        for dims in {0, 2, d - 2, d // 4 * 2} - {d}:
            for style in ("neox", "interleaved"):
                x, positions = rng.normal(size=(3, 2, d)), rng.integers(0, 5000, 3)
                with trueno.use("reference"):
                    want = trueno.rope(x, positions, dims=dims, style=style)
                with trueno.use(backend):
                    got = trueno.rope(x, positions, dims=dims, style=style)
                np.testing.assert_allclose(got, want, rtol=0, atol=1e-14 * np.abs(x).max())
                np.testing.assert_array_equal(got[..., dims or d :], x[..., dims or d :])


@pytest.mark.parametrize("backend", BACKENDS)
def test_shapes_and_indices(backend):
    rng = np.random.default_rng(2)
    x, positions = rng.normal(size=(2, 300, 3, 64)).astype(np.float32), rng.integers(0, 9999, 300)
    with trueno.use(backend):
        whole = trueno.rope(x, positions)
        np.testing.assert_array_equal(whole[1], trueno.rope(x[1], positions.astype(np.int32)))
        np.testing.assert_array_equal(whole[1, 7], trueno.rope(x[1, 7], np.array(positions[7])))
        np.testing.assert_array_equal(whole[:, :, ::2], trueno.rope(x[:, :, ::2], positions))
        np.testing.assert_array_equal(trueno.rope(x[0], positions.tolist()), whole[0])
        out = np.empty_like(x)
        assert trueno.rope(x, positions, out=out) is out
        np.testing.assert_array_equal(out, whole)
        assert trueno.rope(x, positions, out=x) is x
        np.testing.assert_array_equal(x, whole)
        with trueno.Batch(backend) as b:
            h = b.rope(b.upload(whole), b.upload(np.broadcast_to(positions, (2, 300)).copy()))
            b.execute()
            np.testing.assert_array_equal(b.read(h), trueno.rope(whole, positions))


def test_what_is_wrong_is_named():
    x, positions = np.zeros((4, 2, 8), np.float32), np.arange(4)
    with pytest.raises(ParameterError, match=r"rope: positions\[2\] is -1; a position is 0 or more"):
        trueno.rope(x, np.array([3, 0, -1, -2]))
    with pytest.raises(DtypeError, match="positions is float64; indices are whole numbers"):
        trueno.rope(x, positions * 0.5)
    with pytest.raises(ShapeError, match=r"rope: d is 7, dims is 0, but .* % 2 == 0 must hold"):
        trueno.rope(x[..., :7], positions)
    with pytest.raises(ShapeError, match="rope: d is 8, dims is 10, but dims <= d must hold"):
        trueno.rope(x, positions, dims=10)
    with pytest.raises(ShapeError, match="rope: positions has 3 along axis -1, but x has 4"):
        trueno.rope(x, positions[:3])
    with pytest.raises(ParameterError, match=r"scaling is 'llama3', factor is 8.0, context is 0.0, but .* must hold"):
        trueno.rope(x, positions, scaling="llama3", factor=8.0)
    with pytest.raises(ParameterError, match=r"theta is 0.0, but 0 < theta"):
        trueno.rope(x, positions, theta=0.0)
    with pytest.raises(ParameterError, match="scaling is 'longrope'; it must be 'none' or 'linear'"):
        trueno.rope(x, positions, scaling="longrope")
