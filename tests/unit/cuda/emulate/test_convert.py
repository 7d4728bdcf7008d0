"""cvt between all types, in all rounding modes, against rationals."""

# ruff: noqa: E501 - kernels are easier to read with several instructions in a line

from fractions import Fraction
from math import ceil, floor, trunc

import numpy as np
import pytest

from .conftest import rounded
from .test_arithmetic import TYPES, integers, same, wrap

N = 500
FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def draw(rng: np.random.Generator, kind: str) -> np.ndarray:
    x = rng.standard_normal(N) * 2.0 ** rng.integers(-12, 13, N)
    x[: N // 4] = np.round(x[: N // 4] * 2) / 2  # ties of the integer roundings
    with np.errstate(over="ignore"):
        return x.astype(FLOATS[kind])


@pytest.mark.parametrize("source", TYPES)
@pytest.mark.parametrize("result", TYPES)
def test_integers(lanes, rng, source, result):
    a = integers(rng, TYPES[source], N)
    dtype = np.dtype(TYPES[result])
    got = lanes(f"cvt.{result}.{source} {{d}}, {{a}};", result, a)
    np.testing.assert_array_equal(got, wrap(a.tolist(), dtype))
    info, held = np.iinfo(dtype), np.iinfo(TYPES[source])
    if info.min <= held.min and held.max <= info.max:
        return  # nothing to saturate, and PTX has no such form
    got = lanes(f"cvt.sat.{result}.{source} {{d}}, {{a}};", result, a)
    np.testing.assert_array_equal(got, np.array([min(max(x, info.min), info.max) for x in a.tolist()], dtype))


@pytest.mark.parametrize("result", ["s8", "u8"])
def test_narrow_integers_extend(lanes, rng, result):
    a = integers(rng, "i4", N)
    got = lanes(f"cvt.{result}.s32 {{d}}, {{a}};", "s32", a)
    np.testing.assert_array_equal(got, a.astype("i1" if result == "s8" else "u1").astype("i4"))


@pytest.mark.parametrize("mode, function", [("rni", round), ("rzi", trunc), ("rmi", floor), ("rpi", ceil)])
@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("result", ["s32", "u32", "s64", "u64", "s16"])
def test_float_to_integer(lanes, rng, source, result, mode, function):
    a = draw(rng, source)
    big = {"f16": 6e4, "f32": 1e30, "f64": 1e300}[source]
    a[:4] = [np.inf, -np.inf, big, -big]
    info = np.iinfo(TYPES[result])
    want = [info.max if x == np.inf else info.min if x == -np.inf else min(max(function(Fraction(x)), info.min), info.max)
            for x in a.tolist()]  # fmt: skip
    got = lanes(f"cvt.{mode}.{result}.{source} {{d}}, {{a}};", result, a, types=("b16",) if source == "f16" else ())
    np.testing.assert_array_equal(got, np.array(want, TYPES[result]))
    same_float = lanes(f"cvt.{mode}.{source}.{source} {{d}}, {{a}};", source, a[4:])
    same(same_float, [Fraction(function(Fraction(x))) for x in a[4:].tolist()], FLOATS[source])


def test_nan_to_integer_is_zero(lanes):
    assert lanes("cvt.rni.s32.f32 {d}, {a};", "s32", np.float32([np.nan])) == 0


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("source", ["s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("result", ["f32", "f64", "f16"])
def test_integer_to_float(lanes, rng, source, result, mode):
    a = integers(rng, TYPES[source], N)
    got = lanes(f"cvt.{mode}.{result}.{source} {{d}}, {{a}};", result, a)
    same(got, [rounded(Fraction(x), result, mode) for x in a.tolist()], FLOATS[result])


NARROWING = [("f64", "f32"), ("f64", "f16"), ("f32", "f16"), ("f32", "bf16"), ("f64", "bf16")]


@pytest.mark.parametrize("source, result, mode", [
    (source, result, mode) for source, result in NARROWING for mode in ("rn", "rz", "rm", "rp")
    if result != "bf16" or mode in ("rn", "rz")  # PTX has no others for bf16
])  # fmt: skip
def test_narrowing(lanes, rng, source, result, mode):
    a = draw(rng, source)
    a[:3] = [70000.0, -70000.0, 3e-8]
    got = lanes(f"cvt.{mode}.{result}.{source} {{d}}, {{a}};", "b16" if result == "bf16" else result, a)
    got = (got.astype("u4") << 16).view("f4") if result == "bf16" else got
    same(got, [rounded(Fraction(x), result, mode) for x in a.tolist()], np.float32)


def test_widening_is_exact(lanes, rng):
    a = draw(rng, "f16")
    np.testing.assert_array_equal(lanes("cvt.f32.f16 {d}, {a};", "f32", a, types=("b16",)), a.astype("f4"))
    b = (rng.standard_normal(N).astype("f4").view("u4") >> 16).astype("u2")
    np.testing.assert_array_equal(lanes("cvt.f32.bf16 {d}, {a};", "f32", b), (b.astype("u4") << 16).view("f4"))


@pytest.mark.parametrize("result", ["f16x2", "bf16x2"])
def test_pairs_put_the_first_operand_high(lanes, rng, result):
    a, b = draw(rng, "f32"), draw(rng, "f32")
    got = lanes(f"cvt.rn.{result}.f32 {{d}}, {{a}}, {{b}};", "b32", a, b).view("u2").reshape(-1, 2)
    for column, x in ((1, a), (0, b)):
        half = got[:, column].copy()
        value = half.view("f2") if result == "f16x2" else (half.astype("u4") << 16).view("f4")
        same(value, [rounded(Fraction(v), result[:-2]) for v in x.tolist()], np.float32)


def test_tf32(lanes, rng):
    a = draw(rng, "f32")
    got = lanes("cvt.rna.tf32.f32 {d}, {a};", "b32", a).view("f4")
    for g, x in zip(got.tolist(), a.tolist(), strict=True):
        if x:
            ulp = Fraction(2) ** (int(np.frexp(x)[1]) - 11)
            assert abs(Fraction(g) - Fraction(x)) <= ulp / 2
            assert (Fraction(g) / ulp).denominator == 1


def test_eight_bit_floats(lanes):
    a = np.float32([0, 1, -1.0625, 448, 1e6, 0.0020, 17, -19, 2**-9, np.nan])
    got = lanes("cvt.rn.satfinite.e4m3x2.f32 {d}, {a}, {b};", "b16", a, np.zeros(10, "f4"))
    back = lanes("cvt.rn.f16x2.e4m3x2 {d}, {a};", "b32", got).view("f2").reshape(-1, 2)
    want = np.float32([0, 1, -1, 448, 448, 2**-9, 16, -20, 2**-9, np.nan])
    np.testing.assert_array_equal(back[:, 1], want)
    np.testing.assert_array_equal(back[:, 0], 0)


def test_saturating_float(lanes):
    a = np.float32([-1, 0.5, 3, np.nan])
    np.testing.assert_array_equal(lanes("cvt.sat.f32.f32 {d}, {a};", "f32", a), np.float32([0, 0.5, 1, 0]))


def test_packed_integers(lanes):
    a, b, c = np.int32([300, -5]), np.int32([7, -300]), np.uint32([0x1234, 0x5678])
    got = lanes("cvt.pack.sat.s8.s32.b32 {d}, {a}, {b}, {c};", "b32", a, b, c)
    np.testing.assert_array_equal(got, [0x12347F07, 0x5678FB80])
