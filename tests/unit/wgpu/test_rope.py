"""rope of wgpu against mpmath and float64, and to the bit where it copies."""

from dataclasses import replace

import mpmath
import numpy as np
import pytest

pytest.importorskip("wgpu")
from trueno.backend import rotation
from trueno_wgpu.device.array import Array
from trueno_wgpu.kernels import rope
from trueno_wgpu.kernels.dispatches import run
from unit.wgpu.products import floats, kernel, unwritten
from unit.wgpu.test_moves import NAN

PLAIN = (1.0, 0.0, 1.0, 0.0, 0.0)
"""factor, context, slow, fast, magnitude: no scaling."""


def halves(x, pairs, style):
    return (
        (x[..., :pairs], x[..., pairs : 2 * pairs])
        if style == "neox"
        else (x[..., : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2])
    )


def turned(x, cos, sin, style="neox"):
    """In float64, and the sizes of the two products; cos and sin are [..., pairs]."""
    pairs, y, size = cos.shape[-1], x.astype("f8"), np.abs(x).astype("f8")
    cos, sin = cos[..., None, :], sin[..., None, :]
    (a, b), (c, d), (e, f) = (halves(z, pairs, style) for z in (x.astype("f8"), y, size))
    c[...], d[...] = a * cos - b * sin, b * cos + a * sin
    e[...], f[...] = np.abs(a * cos) + np.abs(b * sin), np.abs(b * cos) + np.abs(a * sin)
    return y, size


def exact(positions, theta, pairs):
    """Cosines and sines by mpmath, [..., pairs] in float64."""
    with mpmath.workdps(50):
        rates = [mpmath.mpf(theta) ** (-mpmath.mpf(i) / pairs) for i in range(pairs)]
        angles = [[int(p) * rate for rate in rates] for p in positions.reshape(-1)]
        tables = [[[float(f(a)) for a in row] for row in angles] for f in (mpmath.cos, mpmath.sin)]
    return tuple(np.array(t).reshape(*positions.shape, pairs) for t in tables)


def compute(gpu, x, positions, theta=1e4, scaled=PLAIN, style="neox", dims=0, scaling="none", guarded=False, out=None):
    result = unwritten(gpu, out or x.shape)
    call = kernel(gpu, "rope", x, positions, guarded=guarded, style=style, dims=dims, scaling=scaling)
    given = Array.of(gpu, x), Array.of(gpu, np.asarray(positions, np.int64))
    assert call(*given, theta, *scaled, result) == 0
    return result.numpy()


def assert_near(got, want, size):
    assert got.dtype == np.float32
    assert (np.abs(got - want) <= 6 * 2.0**-24 * size + 1e-37).all(), (
        np.abs(got - want) / (size + 1e-37)
    ).max() * 2**24


@pytest.mark.parametrize("style", ["neox", "interleaved"])
@pytest.mark.parametrize("theta", [1e4, 1e6, 1e9, 1e18])
def test_angles_are_exact_to_two_to_the_twenty(gpu, rng, style, theta):
    """Relative to the two products of each result: the digits of a small sine count, too."""
    positions = np.array([0, 1, 2, 2**20, 2**20 - 1, *rng.integers(0, 2**20, 6)])
    x = floats(rng, len(positions), 5, 64)
    if theta < 1e18:
        want = turned(x, *exact(positions, theta, 32), style)
    else:  # frequencies of a few units per position: their rounding, which the op declares, is larger than float32's
        units = (positions[:, None].astype(object) * rotation(32, theta)[0].astype(object)) % 2**64
        with mpmath.workdps(50):
            angles = [[2 * mpmath.pi * int(u) / mpmath.mpf(2) ** 64 for u in row] for row in units]
            tables = (np.array([[float(f(a)) for a in row] for row in angles]) for f in (mpmath.cos, mpmath.sin))
            want = turned(x, *tables, style)
    assert_near(compute(gpu, x, positions, theta, style=style), *want)


def test_results_near_quarters_of_a_turn_keep_their_digits(gpu):
    """Positions that are close to multiples of a quarter, by continued fractions of pi: 1 radian per token."""
    positions = np.array([11, 22, 344, 355, 710, 51_819, 52_174, 103_993, 104_348, 312_689, 573_204])
    want = exact(positions, 1e4, 1)
    assert min(np.abs(want[0]).min(), np.abs(want[1]).min()) < 3e-6
    for x in ([1.0, 0.0], [0.0, 1.0]):
        rows = np.tile(np.array(x, np.float32), (len(positions), 1, 1))
        assert_near(compute(gpu, rows, positions), *turned(rows, *want))


def test_positions_of_64_bits(gpu, rng):
    """Modulo 2^64, as on the host."""
    positions, turns = np.array([2**32, 2**32 + 5, 2**40 + 12345, 2**62 + 3, 2**63 - 1]), rotation(4, 1e4)[0]
    angles = (positions.astype(np.uint64)[:, None] * turns).astype(np.longdouble) * (2 * np.pi / 2.0**64)
    x = floats(rng, 5, 1, 8)
    want = turned(x, np.cos(angles).astype("f8"), np.sin(angles).astype("f8"))
    np.testing.assert_allclose(compute(gpu, x, positions), want[0], rtol=0, atol=3e-6)


@pytest.mark.parametrize(
    ("scaling", "theta", "scaled"),
    [
        ("linear", 1e4, (3.0, 0.0, 1.0, 0.0, 0.0)),
        ("ntk", 1e4, (2.5, 0.0, 1.0, 0.0, 0.0)),
        ("yarn", 1e6, (4.0, 32768.0, 1.0, 0.0, 0.0)),
        ("yarn", 1e6, (4.0, 32768.0, 2.0, 16.0, 0.7)),
        ("llama3", 5e5, (8.0, 8192.0, 1.0, 0.0, 0.0)),
    ],
)
def test_scalings(gpu, rng, scaling, theta, scaled):
    """The table is the core's; its own tests compare that with the published formulas."""
    turns, magnitude = rotation(32, theta, scaling, *scaled)
    positions = rng.integers(0, 2**17, 7)
    angles = (positions.astype(np.uint64)[:, None] * turns).astype(np.float64) * (2 * np.pi / 2.0**64)
    x = floats(rng, 7, 2, 64)
    want, size = turned(x, np.cos(angles) * magnitude, np.sin(angles) * magnitude)
    got = compute(gpu, x, positions, theta, scaled, scaling=scaling)
    assert (np.abs(got - want) <= 8 * 2.0**-24 * size + 1e-12).all()
    plain = compute(gpu, x, positions, theta)
    assert np.abs(got - plain).max() > 0.1


@pytest.mark.parametrize("style", ["neox", "interleaved"])
@pytest.mark.parametrize("guarded", [False, True])
def test_every_width_and_what_is_copied(gpu, rng, style, guarded):
    """Beyond `dims` bits are copied; heads come in groups of four."""
    gpu.take_status()
    for d, dims, heads in ((2, 0, 1), (6, 2, 4), (7, 4, 5), (64, 32, 3), (80, 0, 9), (33, 32, 2), (130, 64, 1)):
        x, positions = floats(rng, 3, heads, d), rng.integers(0, 5000, 3)
        turns = dims or d
        if not guarded:
            x[..., turns:].reshape(-1)[:3] = NAN[: x[..., turns:].size]
            x[:, :, turns:].flat = np.resize(NAN, x[:, :, turns:].size)
        got = compute(gpu, x, positions, style=style, dims=dims, guarded=guarded)
        assert got[..., turns:].tobytes() == x[..., turns:].tobytes()
        want, size = turned(x[..., :turns], *exact(positions, 1e4, turns // 2), style)
        assert_near(got[..., :turns], want, size)
    assert gpu.take_status() == 0


def test_leading_axes_are_broadcast(gpu, rng):
    x, positions = floats(rng, 2, 5, 3, 16), rng.integers(0, 9999, 5)
    tables = exact(positions, 1e4, 8)
    want = turned(x, *tables)
    got = compute(gpu, x, positions)
    assert_near(got, *want)
    assert compute(gpu, x, np.stack([positions, positions])).tobytes() == got.tobytes()
    each = compute(gpu, x[0, 0], positions, out=(5, 3, 16))
    assert_near(each, *turned(np.broadcast_to(x[0, 0], (5, 3, 16)), *tables))
    assert compute(gpu, x[1, 2], positions[2]).tobytes() == got[1, 2].tobytes()
    columns = np.array([[3], [70_000]])
    assert_near(compute(gpu, x, columns), *turned(x, *exact(np.repeat(columns, 5, 1), 1e4, 8)))


@pytest.mark.parametrize("guarded", [False, True])
def test_a_negative_position_gives_nan(gpu, rng, guarded):
    """The core refuses it where it can read positions."""
    x = floats(rng, 4, 2, 8)
    gpu.take_status()
    got = compute(gpu, x, np.array([3, -1, 5, -(2**62)]), guarded=guarded)
    assert np.isnan(got[1::2]).all() and np.isfinite(got[::2]).all()
    assert gpu.take_status() == int(guarded)


def test_a_guard_hears_of_nan_and_inf(gpu, rng):
    for column, value, bits in ((1, np.nan, 1), (13, -np.inf, 2), (9, np.inf, 2)):
        x = floats(rng, 3, 2, 14)
        x[2, 1, column] = value
        gpu.take_status()
        compute(gpu, x, np.arange(3) + 1, dims=12, guarded=True)
        assert gpu.take_status() == bits


def test_tokens_beyond_a_binding_come_in_bands(gpu, rng):
    x, positions = floats(rng, 500, 2, 16), rng.integers(0, 9999, 500)
    limits = replace(gpu.limits, binding=16 << 10, groups=7)
    planned = rope.dispatches(x.shape, positions.shape, x.shape, 8, limits, False, False)
    assert len(planned) > 2
    out = unwritten(gpu, x.shape)
    given = Array.of(gpu, x), Array.of(gpu, positions), Array.of(gpu, rotation(8, 1e4)[0])
    assert run(gpu, planned, given, out) == 0
    assert out.numpy().tobytes() == compute(gpu, x, positions).tobytes()


def test_tables_are_uploaded_once(gpu, rng):
    x, positions = floats(rng, 3, 2, 8), np.arange(3)
    call = kernel(gpu, "rope", x, positions, style="neox", dims=0, scaling="none")
    given, out = (Array.of(gpu, x), Array.of(gpu, positions)), unwritten(gpu, x.shape)
    assert call(*given, 1e4, *PLAIN, out) == 0
    first = out.numpy()
    gpu.counts.reset()
    assert call(*given, 1e4, *PLAIN, out) == 0
    assert (gpu.counts.uploads, gpu.counts.kernels, gpu.counts.bind_groups) == (0, 1, 0)
    for theta in range(2, 200):  # more than are kept
        assert call(*given, float(theta), *PLAIN, out) == 0
    assert call(*given, 1e4, *PLAIN, out) == 0
    assert out.numpy().tobytes() == first.tobytes()


def test_refusals(gpu, rng):
    for x, positions, dims, out in (
        ((4, 2, 7), (4,), 0, (4, 2, 7)),
        ((4, 2, 8), (4,), 10, (4, 2, 8)),
        ((4, 2, 8), (3,), 0, (4, 2, 8)),
        ((4, 2, 8), (4,), 0, (4, 8, 2)),
        ((4, 2, 8), (4,), 0, (1, 4, 2, 8)),
        ((4, 2, 8), (2, 4), 0, (4, 2, 8)),
        ((8,), (), 0, (8,)),
    ):
        made, operand = unwritten(gpu, out), floats(rng, *x)
        call = kernel(gpu, "rope", operand, np.empty(positions), style="neox", dims=dims, scaling="none")
        assert call(Array.of(gpu, operand), Array.of(gpu, np.zeros(positions, np.int64)), 1e4, *PLAIN, made) == -1
        assert np.isnan(made.numpy()).all()
    x = Array.of(gpu, floats(rng, 4, 2, 8))
    call = kernel(gpu, "rope", np.empty((4, 2, 8)), np.empty(4), style="neox", dims=0, scaling="none")
    assert call(x, Array.of(gpu, np.arange(4)), 1e4, *PLAIN, x) == -1
