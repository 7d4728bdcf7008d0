"""Arithmetic of every type against Python's integers and rationals."""

from fractions import Fraction

import numpy as np
import pytest

from .conftest import rounded

N = 600


def integers(rng: np.random.Generator, dtype: str, n: int = N) -> np.ndarray:
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, n, dtype, endpoint=True)
    edges = np.array([info.min, info.max, 0, 1, info.min + 1, info.max - 1], dtype)
    x[: len(edges)] = edges
    x[6 : n // 3] = x[6 : n // 3] % np.array(100, dtype)
    rng.shuffle(x)
    return x


def wrap(values: list[int], dtype: np.dtype) -> np.ndarray:
    mask = (1 << dtype.itemsize * 8) - 1
    return np.array([v & mask for v in values], f"u{dtype.itemsize}").view(dtype)


TYPES = {"s16": "i2", "u16": "u2", "s32": "i4", "u32": "u4", "s64": "i8", "u64": "u8"}
OPERATIONS = {
    "add.{t}": lambda a, b: a + b,
    "sub.{t}": lambda a, b: a - b,
    "mul.lo.{t}": lambda a, b: a * b,
    "min.{t}": min,
    "max.{t}": max,
    "and.b{w}": lambda a, b: a & b,
    "xor.b{w}": lambda a, b: a ^ b,
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_integers(lanes, rng, kind, name):
    dtype = np.dtype(TYPES[kind])
    a, b = integers(rng, TYPES[kind]), integers(rng, TYPES[kind])
    code = name.format(t=kind, w=kind[1:]) + " {d}, {a}, {b};"
    want = wrap([OPERATIONS[name](x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)], dtype)
    np.testing.assert_array_equal(lanes(code, kind, a, b, types=(kind, kind)), want)


@pytest.mark.parametrize("kind", TYPES)
def test_division_truncates(lanes, rng, kind):
    dtype = np.dtype(TYPES[kind])
    a, b = integers(rng, TYPES[kind]), integers(rng, TYPES[kind])
    b[b == 0] = 3
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    q = [abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) for x, y in pairs]
    np.testing.assert_array_equal(lanes(f"div.{kind} {{d}}, {{a}}, {{b}};", kind, a, b), wrap(q, dtype))
    r = [x - y * z for (x, y), z in zip(pairs, q, strict=True)]
    np.testing.assert_array_equal(lanes(f"rem.{kind} {{d}}, {{a}}, {{b}};", kind, a, b), wrap(r, dtype))


@pytest.mark.parametrize("kind", TYPES)
def test_high_products(lanes, rng, kind):
    dtype, bits = np.dtype(TYPES[kind]), int(kind[1:])
    a, b, c = (integers(rng, TYPES[kind]) for _ in range(3))
    high = [x * y >> bits for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    np.testing.assert_array_equal(lanes(f"mul.hi.{kind} {{d}}, {{a}}, {{b}};", kind, a, b), wrap(high, dtype))
    both = [h + z for h, z in zip(high, c.tolist(), strict=True)]
    np.testing.assert_array_equal(lanes(f"mad.hi.{kind} {{d}}, {{a}}, {{b}}, {{c}};", kind, a, b, c), wrap(both, dtype))


@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32"])
def test_wide_products(lanes, rng, kind):
    wide = f"{kind[0]}{int(kind[1:]) * 2}"
    a, b, c = integers(rng, TYPES[kind]), integers(rng, TYPES[kind]), integers(rng, TYPES[wide])
    want = [x * y + z for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)]
    got = lanes(f"mad.wide.{kind} {{d}}, {{a}}, {{b}}, {{c}};", wide, a, b, c)
    np.testing.assert_array_equal(got, wrap(want, np.dtype(TYPES[wide])))


def test_carries(lanes, rng):
    a, b = integers(rng, "u4"), integers(rng, "u4")
    got = lanes("add.cc.u32 %r10, {a}, {b}; addc.u32 {d}, 0, 0;", "u32", a, b)
    np.testing.assert_array_equal(got, (a.astype("u8") + b) >> 32)
    got = lanes("sub.cc.u32 %r10, {a}, {b}; subc.u32 {d}, 5, 0;", "u32", a, b)
    np.testing.assert_array_equal(got, np.where(a < b, 4, 5))


def test_saturating_and_absolute(lanes, rng):
    a, b = integers(rng, "i4"), integers(rng, "i4")
    want = np.clip(a.astype("i8") + b, -(2**31), 2**31 - 1)
    np.testing.assert_array_equal(lanes("add.sat.s32 {d}, {a}, {b};", "s32", a, b), want)
    np.testing.assert_array_equal(lanes("abs.s32 {d}, {a};", "s32", a), wrap([abs(x) for x in a.tolist()], a.dtype))
    c = integers(rng, "i4")
    want = wrap([abs(x - y) + z for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)], a.dtype)
    np.testing.assert_array_equal(lanes("sad.s32 {d}, {a}, {b}, {c};", "s32", a, b, c), want)


@pytest.mark.parametrize("first", ["s32", "u32"])
@pytest.mark.parametrize("second", ["s32", "u32"])
def test_dot_products(lanes, rng, first, second):
    a, b, c = (integers(rng, "u4") for _ in range(3))
    x = a.view("i1" if first == "s32" else "u1").reshape(-1, 4).astype("i8")
    y = b.view("i1" if second == "s32" else "u1").reshape(-1, 4).astype("i8")
    want = ((x * y).sum(1) + c).astype("u4")
    np.testing.assert_array_equal(lanes(f"dp4a.{first}.{second} {{d}}, {{a}}, {{b}}, {{c}};", "u32", a, b, c), want)
    x = a.view("i2" if first == "s32" else "u2").reshape(-1, 2).astype("i8")
    want = ((x * y[:, 2:]).sum(1) + c).astype("u4")
    np.testing.assert_array_equal(lanes(f"dp2a.hi.{first}.{second} {{d}}, {{a}}, {{b}}, {{c}};", "u32", a, b, c), want)


# ---- floats ---------------------------------------------------------------------------------------


def reals(rng: np.random.Generator, dtype: type, n: int = N) -> np.ndarray:
    """Finite numbers of all sizes, many close to each other."""
    info = np.finfo(dtype)
    x = rng.standard_normal(n) * 2.0 ** rng.integers(-8, 8, n)
    wild = rng.integers(0, n, n // 4)
    x[wild] = rng.standard_normal(n // 4) * 2.0 ** rng.integers(info.minexp - info.nmant, info.maxexp - 2, n // 4)
    x = x.astype(dtype)
    x[:6] = [0, -0.0, 1, info.max, info.tiny, info.smallest_subnormal]
    rng.shuffle(x)
    return x


def same(got: np.ndarray, want: list, dtype: type) -> None:
    """Equal as rationals, or the same infinity; the sign of zero is not looked at."""
    for k, (g, w) in enumerate(zip(got.tolist(), want, strict=True)):
        if isinstance(w, Fraction):
            assert np.isfinite(g) and Fraction(g) == w, (k, g, float(w))
        else:
            assert g == w, (k, g, w)


EXACT = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b}


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("op", EXACT)
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_float_rounding(lanes, rng, op, kind, mode):
    dtype = np.float32 if kind == "f32" else np.float64
    a, b = reals(rng, dtype), reals(rng, dtype)
    if kind == "f64":  # two_product has no room at the ends of the range
        a, b = (np.where((np.abs(x) > 1e-100) & (np.abs(x) < 1e100), x, 1.5) for x in (a, b))
    b = np.where(b == 0, dtype(0.1), b)
    got = lanes(f"{op}.{mode}.{kind} {{d}}, {{a}}, {{b}};", kind, a, b)
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    same(got, [rounded(EXACT[op](Fraction(x), Fraction(y)), kind, mode) for x, y in pairs], dtype)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_fma_rounds_once(lanes, rng, kind, mode):
    dtype = np.float32 if kind == "f32" else np.float64
    a, b, c = (reals(rng, dtype, 1200) for _ in range(3))
    half = 600  # sums that cancel, or that lie next to a tie
    with np.errstate(all="ignore"):
        c[:half] = -(a[:half] * b[:half]) * dtype(1 + 2.0**-20)
    c = np.where(np.isfinite(c), c, dtype(1))
    got = lanes(f"fma.{mode}.{kind} {{d}}, {{a}}, {{b}}, {{c}};", kind, a, b, c)
    exact = [
        Fraction(x) * Fraction(y) + Fraction(z) for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    ]
    same(got, [rounded(x, kind, mode) for x in exact], dtype)


def test_fma32_near_ties(lanes):
    """1 + 2⁻²⁴ is a tie of float32; a term far below it decides, which a sum in float64 loses."""
    a = np.float32([1, 1, 1, 1]) * np.float32(2**-24)
    b = np.float32([1 + 2**-23, 1, 1 - 2**-24, 1 + 2**-22])
    c = np.float32([1, 1, 1, 1])
    got = lanes("fma.rn.f32 {d}, {a}, {b}, {c};", "f32", a, b, c)
    np.testing.assert_array_equal(got, np.float32([1 + 2**-23, 1, 1, 1 + 2**-23]))
    tiny = np.float32([2.0**-60])
    got = lanes("fma.rn.f32 {d}, {a}, {b}, {c};", "f32", tiny, tiny, np.float32([1 + 2**-23]))
    assert got == np.float32(1 + 2**-23)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("op", ["add", "mul", "fma"])
def test_short_floats(lanes, rng, kind, op):
    def value(x):
        return x.astype(np.float64) if kind == "f16" else (x.astype("u4") << 16).view("f4").astype(np.float64)

    def draw():
        x = (rng.standard_normal(N) * 2.0 ** rng.integers(-6, 6, N)).astype(np.float32)
        return x.astype(np.float16) if kind == "f16" else (x.view("u4") >> 16).astype("u2")

    a, b, c = draw(), draw(), draw()
    operands = (a, b, c) if op == "fma" else (a, b)
    code = f"{op}.rn.{kind} {{d}}, " + ", ".join(f"{{{x}}}" for x in "abc"[: len(operands)]) + ";"
    got = lanes(code, "b16", *(x.view("u2") for x in operands))
    x, y, z = ([Fraction(v) for v in value(o).tolist()] for o in (a, b, c))
    exact = [p + q if op == "add" else p * q + (r if op == "fma" else 0) for p, q, r in zip(x, y, z, strict=True)]
    same(value(got.view(np.float16) if kind == "f16" else got), [rounded(v, kind) for v in exact], np.float64)


def test_packed_pairs(lanes, rng):
    a, b = (rng.standard_normal((N, 2)).astype(np.float16) for _ in range(2))
    got = lanes("mul.f16x2 {d}, {a}, {b};", "b32", a.view("u4")[:, 0], b.view("u4")[:, 0])
    np.testing.assert_array_equal(got.view(np.float16).reshape(-1, 2), a * b)


def test_min_max_of_special_values(lanes):
    nan = np.float32(np.nan)
    a = np.float32([0.0, -0.0, nan, 1, nan, -0.0])
    b = np.float32([-0.0, 0.0, 2, nan, nan, -0.0])
    got = lanes("min.f32 {d}, {a}, {b};", "f32", a, b)
    np.testing.assert_array_equal(got, np.float32([-0.0, -0.0, 2, 1, nan, -0.0]))
    assert np.signbit(got[[0, 1, 5]]).all()
    assert not np.signbit(lanes("max.f32 {d}, {a}, {b};", "f32", a, b)[:2]).any()
    assert np.isnan(lanes("max.NaN.f32 {d}, {a}, {b};", "f32", a, b)[2:5]).all()


def test_flush_and_saturate(lanes):
    a = np.float32([1e-40, -1e-40, 2, -3, np.nan, 0.25])
    one = np.ones(6, np.float32)
    got = lanes("mul.ftz.f32 {d}, {a}, {b};", "f32", a, one)
    np.testing.assert_array_equal(got, np.float32([0, -0.0, 2, -3, np.nan, 0.25]))
    np.testing.assert_array_equal(lanes("mul.sat.f32 {d}, {a}, {b};", "f32", a, one),
                                  np.float32([1e-40, 0, 1, 0, 0, 0.25]))  # fmt: skip


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_roots_and_reciprocals(lanes, rng, kind, mode):
    dtype = np.float32 if kind == "f32" else np.float64
    a = np.exp(rng.uniform(-40, 40, N)).astype(dtype)
    got = lanes(f"rcp.{mode}.{kind} {{d}}, {{a}};", kind, a)
    same(got, [rounded(1 / Fraction(x), kind, mode) for x in a.tolist()], dtype)
    got = lanes(f"sqrt.{mode}.{kind} {{d}}, {{a}};", kind, a)
    unit = {"f32": 24, "f64": 53}[kind]
    for x, r in zip(a.tolist(), got.tolist(), strict=True):
        x, r = Fraction(x), Fraction(r)
        ulp = Fraction(2) ** (int(np.frexp(float(r))[1]) - unit)
        if mode in ("rz", "rm"):
            assert r * r <= x < (r + ulp) ** 2
        elif mode == "rp":
            assert (r - ulp) ** 2 < x <= r * r
        else:
            assert (r - ulp / 2) ** 2 <= x <= (r + ulp / 2) ** 2


@pytest.mark.parametrize("name, reference", [("ex2", np.exp2), ("lg2", np.log2), ("sin", np.sin), ("cos", np.cos),
                                             ("tanh", np.tanh), ("rsqrt", lambda x: x**-0.5),
                                             ("rcp", lambda x: 1 / x), ("sqrt", np.sqrt)])  # fmt: skip
def test_approximations(lanes, rng, name, reference):
    a = rng.uniform(0.01, 20, N).astype(np.float32)
    got = lanes(f"{name}.approx.f32 {{d}}, {{a}};", "f32", a)
    np.testing.assert_array_equal(got, reference(a.astype(np.float64)).astype(np.float32))
