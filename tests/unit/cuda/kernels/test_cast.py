"""Casts among the float types on the emulator: every 16-bit pattern, ties, what overflows, NaN, odd lengths and places.

The oracle rounds by integers: of a float's own bits, or of a fraction.
"""

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from ml_dtypes import bfloat16
from trueno.errors import KernelError
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels import cast, operands
from unit.cuda.kernels.moves import random, shifted, unwritten

DTYPES = {"float16": np.float16, "bfloat16": bfloat16, "float32": np.float32, "float64": np.float64}
FORMS = {"float16": (11, -24, 15), "bfloat16": (8, -133, 127), "float32": (24, -149, 127)}
PAIRS = list(permutations(DTYPES, 2))


@pytest.fixture(scope="module", params=["sm_80", "sm_90"])
def device(request):
    return Emulator(request.param)


def converted(device, x, wanted, shift=0):
    given, out = shifted(device, x, shift), unwritten(device, x.shape, DTYPES[wanted], shift)
    cast.Cast(device)(given, out)
    return out.elements.copy()


def nearest(x, wanted):
    """One float64 rounded to nearest even, by fractions."""
    digits, least, top = FORMS[wanted]
    value = Fraction(x)
    exponent = max(_log2(abs(value)) + 1 - digits, least) if value else least
    unit = Fraction(2) ** exponent
    made = round(value / unit) * unit  # halves to even
    if abs(made) >= Fraction(2) ** (top + 1):
        return np.copysign(np.inf, x)
    return np.copysign(float(made), x)


def _log2(value):
    e = value.numerator.bit_length() - value.denominator.bit_length()
    return e if value >= Fraction(2) ** e else e - 1


def same(got, want):
    """Equal, NaN where NaN is, and zeros of the right sign."""
    with np.errstate(invalid="ignore"):  # NumPy's word for a signalling NaN
        got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    np.testing.assert_array_equal(got, want)
    number = ~np.isnan(want)
    assert (np.signbit(got) == np.signbit(want))[number].all()


@pytest.mark.parametrize("given", ["float16", "bfloat16"])
def test_every_pattern_is_widened(device, given):
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = bits.view(DTYPES[given])
    digits, least, top = FORMS[given]
    mantissa, exponent = bits & ((1 << digits - 1) - 1), (bits >> digits - 1) & (2 * top + 1)
    whole = mantissa + np.where(exponent == 0, 0, 1 << digits - 1)  # with the digit that is not written
    size = np.ldexp(whole.astype("f8"), np.maximum(exponent, 1).astype(int) - 1 + least)
    size = np.where(exponent == 2 * top + 1, np.where(mantissa == 0, np.inf, np.nan), size)
    want = np.where(bits >> 15, -size, size)
    for wanted in ("float32", "float64"):
        same(converted(device, x, wanted), want)
    same(converted(device, converted(device, x, "float32"), given), want)


@pytest.mark.parametrize("given, wanted", [p for p in PAIRS if p[1] != "float64"], ids=str)
def test_each_number_is_rounded_once(device, given, wanted):
    rng = random()
    digits = FORMS[wanted][0]
    ties = (1 + np.arange(64) * 2.0 ** (1 - digits)) + 2.0**-digits
    beside = np.concatenate([ties * (1 + s * 2.0**-k) for k in (24, 30, 40, 51) for s in (-1, 1)])
    sizes = rng.standard_normal(800) * np.exp2(rng.uniform(-160, 130, 800))
    edges = [0.0, -0.0, 65504.0, 65519.99, 65520.0, -65520.0, 2.0**127, 2.0**128 * (1 - 2.0**-9), 2.0**-24, 2.0**-25]
    edges += [2.0**-25 * (1 + 2.0**-20), 2.0**-133, 2.0**-134, 3 * 2.0**-134, 2.0**-149, 2.0**-150]
    with np.errstate(all="ignore"):
        x = np.concatenate([ties, beside, sizes, edges]).astype(DTYPES[given])
    x = x[np.isfinite(x.astype("f8"))]
    same(converted(device, x, wanted), [nearest(v, wanted) for v in x.astype("f8").tolist()])


@pytest.mark.parametrize("given, wanted", PAIRS, ids=str)
def test_nan_and_inf_stay(device, given, wanted):
    x = np.array([np.nan, -np.nan, np.inf, -np.inf, 1.0], DTYPES[given])
    if given == "float32":  # NaN whose only bits are low: cut off, it would be Inf
        x = np.concatenate([x, np.array([0x7F800001, 0xFF800001], np.uint32).view(np.float32)])
    if given == "float64":
        x = np.concatenate([x, np.array([0x7FF0000000000001], np.uint64).view(np.float64)])
    same(converted(device, x, wanted), x)


@pytest.mark.parametrize("given, wanted", [("float32", "bfloat16"), ("float16", "float64"), ("float64", "float16")])
def test_lengths_and_places(device, given, wanted):
    rng = random()
    for count in (1, 2, 7, 8, 9, 31, 513, 4100):
        x = rng.standard_normal(count).astype(DTYPES[given])
        want = [nearest(v, wanted) for v in x.astype("f8")] if wanted != "float64" else x.astype("f8")
        for shift in (0, 1):
            same(converted(device, x, wanted, shift), want)
    assert converted(device, np.zeros((0, 3), DTYPES[given]), wanted).shape == (0, 3)


def test_parts_of_what_one_launch_reaches(device, monkeypatch):
    monkeypatch.setattr(cast, "REACH", 64)
    x = random().standard_normal(200).astype("f4")
    same(converted(device, x, "float64"), x)
    assert operands.REACH == 1 << 30


def test_what_it_refuses(device):
    run = cast.Cast(device)
    x = device.to_device(np.ones(8, np.float32))
    with pytest.raises(KernelError, match="int64"):
        run(x, device.empty((8,), np.dtype(np.int64)))
    with pytest.raises(KernelError, match="one shape"):
        run(x, device.empty((7,), np.dtype(np.float16)))
    inside = shifted(device, np.ones(16, np.float16), 0)
    inside.dtype, inside.shape = np.dtype(np.float32), (8,)
    half = type(inside)((8,), np.float16, inside.data)
    with pytest.raises(KernelError, match="memory that it reads"):
        run(inside, half)
    same_type = device.empty((8,), np.dtype(np.float32))
    run(x, same_type)
    assert same_type.elements.tolist() == [1.0] * 8
