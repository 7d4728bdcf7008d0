"""rope of the CUDA backend, on the emulator: against angles of 50 digits."""

from decimal import Decimal, localcontext
from math import cos, sin

import numpy as np
import pytest
from ml_dtypes import bfloat16
from trueno.errors import KernelError
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels import rope, stacked
from unit.cuda.kernels.moves import FLOATS, call, part, random, shifted, unwritten

USUAL = {"theta": 1e6, "factor": 1.0, "context": 0.0, "slow": 1.0, "fast": 0.0, "magnitude": 0.0}
TWO_PI = Decimal("6.2831853071795864769252867665590057683943387987502116")
HALVES = (np.dtype(np.float16), np.dtype(bfloat16))


@pytest.fixture(scope="module")
def device():
    return Emulator("sm_90")


def kernel_of(device, dtype, style="neox", dims=0, scaling="none", guarded=False):
    operands = np.zeros((1, 1, 2), dtype), np.zeros(1, np.int64)
    return rope.rope(device, call("rope", dtype, *operands, style=style, dims=dims, scaling=scaling, guarded=guarded))


def turned(device, x, positions, shift=0, numbers=None, **options):
    kernel = kernel_of(device, x.dtype, **options)
    lead = np.broadcast_shapes(x.shape[:-2], np.shape(positions))
    out = unwritten(device, (*lead, *x.shape[-2:]), x.dtype, shift)
    at = device.to_device(np.asarray(positions, np.int64))
    assert kernel(shifted(device, x, shift), at, *(USUAL | (numbers or {})).values(), out) == 0
    return out.elements.copy()


def wanted(x, positions, style="neox", dims=0, theta=1e6):
    """The result and the sizes of its terms, in float64: each angle reduced in decimal arithmetic."""
    pairs = (dims or x.shape[-1]) // 2
    positions = np.asarray(positions)
    with localcontext(prec=50):
        rates = [(-Decimal(theta).ln() * i / pairs).exp() for i in range(pairs)]
        angles = [[float(int(p) * rate % TWO_PI) for rate in rates] for p in positions.reshape(-1)]
    angles = np.array(angles).reshape(*positions.shape, 1, pairs)
    cosine, sine = np.vectorize(cos)(angles), np.vectorize(sin)(angles)
    lead = np.broadcast_shapes(x.shape[:-2], positions.shape)
    value = np.broadcast_to(x, (*lead, *x.shape[-2:])).astype(np.float64).copy()
    size = np.zeros_like(value)
    one, other = (slice(pairs), slice(pairs, 2 * pairs))
    if style == "interleaved":
        one, other = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    a, b = value[..., one].copy(), value[..., other].copy()
    value[..., one], value[..., other] = a * cosine - b * sine, b * cosine + a * sine
    size[..., one] = size[..., other] = np.abs(a) + np.abs(b)
    return value, size


def assert_right(got, value, size):
    dtype = got.dtype
    u = 2.0**-53 if dtype == np.float64 else 2.0**-24
    allowed = (8 * u + 2.0**-40 * (u == 2.0**-24) + 2.0**-42 * 7 * (u == 2.0**-53)) * size
    if dtype in HALVES:
        allowed += np.abs(value) * (2.0**-11 if dtype == np.float16 else 2.0**-8) * 1.01 + 2.0**-25
    error = np.abs(got.astype(np.float64) - value)
    assert (error <= allowed).all(), float(np.max(error / (allowed + 1e-300)))


CASES = [
    ((3, 4, 8), (3,), 0),
    ((7, 2, 64), (7,), 0),
    ((28, 128), (), 0),
    ((2, 5, 3, 10), (5,), 6),
    ((5, 3, 12), (2, 5), 0),
    ((2, 1, 9, 8), (2, 4), 4),
    ((1, 1, 2), (3, 1), 0),
    ((2, 2, 1100), (2,), 1090),
    ((3, 1, 300), (3,), 2),
]


@pytest.mark.parametrize("style", ["neox", "interleaved"])
@pytest.mark.parametrize("shape, lead, dims", CASES, ids=str)
def test_heads_are_turned(device, shape, lead, dims, style):
    rng = random()
    for dtype in (*FLOATS, *HALVES):
        x, positions = rng.standard_normal(shape).astype(dtype), rng.integers(0, 1 << 20, lead)
        value, size = wanted(x, positions, style, dims)
        for shift in (0, 1):
            got = turned(device, x, positions, shift, style=style, dims=dims)
            assert_right(got, value, size)
            if dims:
                rest = np.broadcast_to(x, got.shape)[..., dims:]
                assert got[..., dims:].tobytes() == np.ascontiguousarray(rest).tobytes()


@pytest.mark.parametrize("style", ["neox", "interleaved"])
@pytest.mark.parametrize("dtype", [*FLOATS, *HALVES], ids=str)
def test_many_tokens_take_vectors_and_several_heads(device, monkeypatch, dtype, style):
    monkeypatch.setattr(rope, "SMALL", 0)
    rng = random()
    for shape, dims in (((5, 6, 32), 0), ((2, 3, 7, 48), 32), ((4, 1, 40), 24)):
        x, positions = rng.standard_normal(shape).astype(dtype), rng.integers(0, 1 << 20, shape[:-2])
        got = turned(device, x, positions, style=style, dims=dims)
        assert_right(got, *wanted(x, positions, style, dims))


def test_more_axes_than_a_launch_knows_and_more_tokens(device, monkeypatch):
    rng = random()
    shape, lead = (3, 1, 2, 2, 1, 2, 2, 4), (3, 2, 1, 2, 2, 1)
    x, positions = rng.standard_normal(shape).astype("f4"), rng.integers(0, 9000, lead)
    value, size = wanted(x, positions)
    assert_right(turned(device, x, positions), value, size)
    monkeypatch.setattr(rope, "REACH", 11)
    assert_right(turned(device, x, positions), value, size)
    x, positions = rng.standard_normal((40, 3, 4)).astype("f4"), rng.integers(0, 9000, 40)
    assert_right(turned(device, x, positions), *wanted(x, positions))


def test_parts_cover_every_problem_once():
    rng = random()
    for _ in range(200):
        lead = tuple(int(n) for n in rng.integers(1, 4, rng.integers(0, 7)))
        a = tuple(n if rng.random() < 0.6 else 1 for n in lead)
        whole = stacked.stack(lead, (a, lead), (10, 1))
        most = int(rng.integers(1, 30))
        seen = []
        for piece in stacked.parts(whole, most):
            assert 1 <= len(piece.lead) <= stacked.AXES and (piece.count <= most or piece.lead[0] == 1)
            for number, index in enumerate(np.ndindex(*piece.lead)):
                at = [s + int(np.dot(index, steps)) for s, steps in zip(piece.starts, piece.steps, strict=True)]
                seen.append((piece.first + number, *at))
        elements = np.broadcast_to(np.arange(int(np.prod(a))).reshape(a) * 10, lead).reshape(-1)
        assert seen == [(i, int(e), i) for i, e in enumerate(elements)]
    assert stacked.stack((2, 3), ((2, 1), (1, 1)), (1, 1)) is None and stacked.stack((2,), ((3,),), (1,)) is None


def test_a_negative_position_gives_nan_and_a_guard_hears(device):
    x = np.ones((3, 2, 6), np.float32)
    for positions, bits in (([4, 5, 2**62], 0), ([4, -1, 2**62], 1), ([-(2**63), 0, 0], 1)):
        got = turned(device, x, positions, dims=4, guarded=True)
        assert device.take_status() == bits
        assert (np.isnan(got[:, :, :4]).all((1, 2)) == (np.array(positions) < 0)).all() and (got[..., 4:] == 1).all()


def test_numbers_of_a_call_change_its_table(device):
    x, kernel = np.ones((1, 1, 4), np.float32), kernel_of(device, "f4", scaling="linear")
    given, out = [device.to_device(v) for v in (x, np.array([3]))], unwritten(device, x.shape, "f4")
    for factor in (1.0, 2.0, 1.0, 2.0, 4.0):
        for magnitude in (0.0, 3.0):
            assert kernel(*given, 1e4, factor, 0.0, 1.0, 0.0, magnitude, out) == 0
            by = magnitude or 1.0
            assert abs(out.elements[0, 0, 0] - by * (cos(3 / factor) - sin(3 / factor))) < 1e-5


def test_what_is_refused(device):
    x, positions = np.zeros((4, 2, 6), np.float32), np.zeros(4, np.int64)
    for dims, shape, lead, out in (
        (0, (4, 2, 5), (4,), (4, 2, 5)),
        (8, (4, 2, 6), (4,), (4, 2, 6)),
        (0, (4, 2, 6), (3,), (4, 2, 6)),
        (0, (4, 2, 6), (4,), (5, 2, 6)),
        (0, (6,), (), (6,)),
        (0, (4, 2, 6), (4,), (1, 4, 2, 6)),
    ):
        kernel = kernel_of(device, "f4", dims=dims)
        result = unwritten(device, out, "f4")
        arrays = device.to_device(np.zeros(shape, "f4")), device.to_device(np.zeros(lead, np.int64))
        assert kernel(*arrays, *USUAL.values(), result) == -1 and np.isnan(result.elements).all()
    kernel, both = kernel_of(device, "f4"), device.to_device(np.zeros(100, np.float32))
    at = device.to_device(positions)
    assert kernel(part(both, x.shape, 0), at, *USUAL.values(), part(both, x.shape, 47)) == -1
    assert kernel(part(both, x.shape, 0), at, *USUAL.values(), part(both, x.shape, 48)) == 0
    empty = device.to_device(np.zeros((0, 2, 6), "f4"))
    assert kernel(empty, device.to_device(positions[:0]), *USUAL.values(), unwritten(device, (0, 2, 6), "f4")) == 0


def test_heads_beyond_the_reach_are_named(device, monkeypatch):
    monkeypatch.setattr(rope, "REACH", 8)
    with pytest.raises(KernelError, match="a head of 8 numbers"):
        turned(device, np.zeros((1, 1, 8), "f4"), [0])
