"""Floating point as PTX defines it: one rounding in four modes, fused multiply-add, and formats NumPy lacks.

The tool is rounding to odd (Boldo and Melquiond 2008): a float64 that carries "there was a remainder" in its last
bit can be rounded once more to any shorter format, in any mode, as if the exact value had been rounded.
"""

from fractions import Fraction

import numpy as np

from trueno_cuda.ptx.syntax.types import Array, Type

MODES = ("rn", "rz", "rm", "rp", "rna")
TINY32 = np.float32(np.finfo(np.float32).tiny)
SPLIT = 134217729.0  # 2²⁷ + 1: Dekker's constant


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b and what the rounding lost (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """a · b and what the rounding lost (Dekker); no overflow, no underflow."""
    p = a * b
    t = SPLIT * a
    ah = t - (t - a)
    al = a - ah
    t = SPLIT * b
    bh = t - (t - b)
    bl = b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def to_odd(s: Array, error: Array) -> Array:
    """s + error in float64, rounded to odd, where s is their rounded sum."""
    bits = s.view(np.int64)
    fix = ((error > 0) | (error < 0)) & ((bits & 1) == 0) & np.isfinite(s)
    if not fix.any():
        return s
    step = np.where((error > 0) == (s > 0), 1, -1)
    return np.where(fix, bits + step, bits).view(np.float64)


def direct(r: Array, error: Array, mode: str) -> Array:
    """The neighbour of r that a mode wants, where `error` has the sign of exact − r and r was rounded to nearest."""
    if mode == "rn":
        return r
    inf = r.dtype.type(np.inf)
    if mode == "rm":
        return np.where(error < 0, np.nextafter(r, -inf), r)
    if mode == "rp":
        return np.where(error > 0, np.nextafter(r, inf), r)
    outward = ((r > 0) & (error < 0)) | ((r < 0) & (error > 0))
    return np.where(outward, np.nextafter(r, r.dtype.type(0)), r)


def narrow(x: Array, dtype: type, mode: str) -> Array:
    """float64 (exact, or rounded to odd) to float32 or float16 in one rounding."""
    r: Array = x.astype(dtype)
    if mode == "rn":
        return r
    finite = np.isfinite(x)
    return np.where(finite, direct(r, np.where(np.isinf(r) & finite, -np.sign(x), x - r), mode), r).astype(dtype)


def bf16_to_f32(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def f32_to_bf16(x: Array, mode: str = "rn") -> Array:
    """float32 to the bits of bf16."""
    bits = x.view(np.uint32)
    if mode == "rn":
        out = (bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16
    elif mode == "rna":
        out = (bits + np.uint32(0x8000)) >> 16
    else:
        low = (bits & 0xFFFF) != 0
        negative = (bits >> 31) != 0
        away = {"rz": np.False_, "rm": negative, "rp": ~negative}[mode]
        out = (bits >> 16) + (low & away)
    return np.where(np.isnan(x), np.uint32(0x7FFF), out).astype(np.uint16)


def f64_to_bf16(x: Array, mode: str = "rn") -> Array:
    """float64 to bf16 in one rounding: through a float32 rounded to odd."""
    y = narrow(x, np.float32, "rz")
    bits = y.view(np.uint32)
    sticky = np.isfinite(y) & (y.astype(np.float64) != x)
    return f32_to_bf16(np.where(sticky, bits | 1, bits).astype(np.uint32).view(np.float32), mode)


def f32_to_tf32(x: Array, mode: str = "rna") -> Array:
    """float32 with a mantissa of 10 bits, as the bits of float32."""
    bits = x.view(np.uint32)
    if mode == "rna":
        out = bits + np.uint32(0x1000)
    elif mode == "rz":
        out = bits
    else:
        out = bits + (((bits >> 13) & 1) + np.uint32(0xFFF))
    return np.where(np.isfinite(x), out & np.uint32(0xFFFFE000), bits).astype(np.uint32)


def flush(x: Array) -> Array:
    """Subnormal float32 to zero of the same sign."""
    small = np.abs(x) < TINY32
    return np.where(small, np.copysign(np.float32(0), x), x) if small.any() else x


def fma32(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """a · b + c of float32 in one rounding: the product is exact in float64, and where its sum would be rounded
    twice in a way that shows, it is rounded to odd first."""
    p = a.astype(np.float64) * b
    s = p + c
    if mode == "rn":
        r: Array = s.astype(np.float32)
        doubt = (s.view(np.int64) & 0x1FFFFFFF) == 0x10000000
        small = np.abs(r) <= TINY32
        if small.any():
            doubt |= small & (s != 0)
        if not doubt.any():
            return r
    shape = np.broadcast_shapes(p.shape, c.shape)
    s, error = two_sum(np.broadcast_to(p, shape), np.broadcast_to(c, shape).astype(np.float64))
    return narrow(to_odd(s, error), np.float32, mode)


def fma_narrow(a: Array, b: Array, c: Array) -> Array:
    """a · b + c of values with at most 24 bits of mantissa, as a float64 rounded to odd."""
    p = a.astype(np.float64) * b.astype(np.float64)
    p, c = np.broadcast_arrays(p, c.astype(np.float64))
    return to_odd(*two_sum(p, c))


def fma64(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """a · b + c of float64 in one rounding (Boldo and Melquiond 2008); exact rationals at the ends of the range."""
    a, b, c = np.broadcast_arrays(a, b, c)
    u, ul = two_product(a, b)
    t, tl = two_sum(c, ul)
    v, vl = two_sum(u, t)
    rest = to_odd(*two_sum(tl, vl))
    r, error = two_sum(v, rest)
    out = direct(r, error, mode)
    size = np.abs(u)
    given, nothing = np.isfinite(a) & np.isfinite(b) & np.isfinite(c), (a == 0) | (b == 0)
    inside = (size < 1e290) & (np.abs(a) < 1e290) & (np.abs(b) < 1e290) & (np.abs(c) < 1e290)
    inside &= (size > 1e-250) | nothing
    plain = inside & (np.abs(r) > 1e-290)
    if plain.all():
        return out
    naive = a * b + c
    simple = ~given | nothing | (inside & (r == 0))  # no number, no product to round, or the two cancel
    if mode == "rm":
        positive = (np.copysign(1, a * b) > 0) & (np.copysign(1, c) > 0)
        naive = np.where(naive == 0, np.where(positive, 0.0, -0.0), naive)
    out = np.where(plain, out, naive)
    for i in np.flatnonzero(~plain & ~simple):
        x, y, z = float(a[i]), float(b[i]), float(c[i])
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if exact:
            out[i] = nearest(exact, mode)
    return out


def nearest(exact: Fraction, mode: str) -> float:
    """A rational as float64."""
    try:
        r = exact.numerator / exact.denominator
    except OverflowError:
        r = float("inf") if exact > 0 else float("-inf")
    if mode == "rn":
        return r
    error = (exact > 0) * -1.0 + (exact < 0) * 1.0 if np.isinf(r) else float(np.sign(float(exact - Fraction(r))))
    if not np.isinf(r) and error == 0 and exact != Fraction(r):
        error = 1.0 if exact > Fraction(r) else -1.0
    return float(direct(np.array([r]), np.array([error]), mode)[0])


def remainder_sign(kind: str, r: Array, a: Array, b: Array) -> Array:
    """The sign of exact − r, for r = a + b, a · b, a / b or √a rounded to nearest in float64."""
    if kind == "add":
        return two_sum(a, b)[1]
    if kind == "mul":
        return two_product(a, b)[1]
    if kind == "div":
        p, e = two_product(r, b)
        return ((a - p) - e) * np.sign(b)
    p, e = two_product(r, r)
    return (a - p) - e


def _table8(exponent_bits: int, mantissa_bits: int) -> Array:
    """All 256 values of an 8-bit float; e4m3 has no infinity, e5m2 is IEEE's."""
    code = np.arange(256)
    bias = 2 ** (exponent_bits - 1) - 1
    e = (code >> mantissa_bits) & (2**exponent_bits - 1)
    m = code & (2**mantissa_bits - 1)
    value = np.where(
        e == 0,
        np.ldexp(m.astype(float), 1 - bias - mantissa_bits),
        np.ldexp(2.0**mantissa_bits + m, e - bias - mantissa_bits),
    )
    if exponent_bits == 4:
        value[(code & 0x7F) == 0x7F] = np.nan
    else:
        value[(e == 31) & (m == 0)] = np.inf
        value[(e == 31) & (m != 0)] = np.nan
    return np.asarray(np.where(code & 0x80, -value, value))


E4M3, E5M2 = _table8(4, 3), _table8(5, 2)


def to_float8(x: Array, name: str) -> Array:
    """The nearest 8-bit float of each finite number, ties to even, saturating; NaN stays NaN."""
    table = E4M3 if name == "e4m3" else E5M2
    limit = 0x7E if name == "e4m3" else 0x7B
    grid = table[: limit + 1]
    size = np.abs(x.astype(np.float64))
    above = np.clip(np.searchsorted(grid, size), 0, limit)
    below = np.maximum(above - 1, 0)
    up, down = grid[above] - size, size - grid[below]
    code = np.where(up < down, above, np.where(up > down, below, np.where(above % 2 == 0, above, below)))
    code = np.where(size >= grid[limit], limit, code)
    code = np.where(np.isnan(x), 0x7F, code)
    return np.asarray(code | (np.signbit(x) & ~np.isnan(x)) * 0x80).astype(np.uint8)


def decode(bits: Array, kind: Type) -> Array:
    """Values of any float type as float32 (float64 for f64)."""
    if kind.name == "bf16":
        return bf16_to_f32(bits)
    if kind.name == "tf32":
        return (bits & np.uint32(0xFFFFE000)).view(np.float32)
    if kind.name in ("e4m3", "e5m2"):
        return (E4M3 if kind.name == "e4m3" else E5M2)[bits].astype(np.float32)
    return bits if kind.bits == 64 else bits.astype(np.float32)


def encode(x: Array, kind: Type, mode: str = "rn") -> Array:
    """float64 (exact or rounded to odd) as the array of a float type."""
    if kind.name == "bf16":
        return f64_to_bf16(x, mode)
    if kind.name == "tf32":
        return f32_to_tf32(narrow(x, np.float32, "rn"), mode)
    if kind.bits == 64:
        return x
    return narrow(x, np.float16 if kind.bits == 16 else np.float32, mode)
