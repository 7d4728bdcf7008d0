"""x^y of float64: exp(y ln |x|), the logarithm and the product as pairs; the special cases are C99's."""

from math import inf, nan

from trueno_cuda.ptx import Builder, Value, f64, u32
from trueno_cuda.rows.elementary32 import clamp, horner
from trueno_cuda.rows.elementary64 import (
    EXP,
    LN2,
    LN2_LOW,
    LOG2_E,
    Pair,
    fast_two_sum,
    from_words,
    nearest,
    scale,
    split,
    two_product,
    two_sum,
    words,
)

TWO_THIRDS, TWO_THIRDS_LOW = 0.6666666666666666, 3.700743415417188e-17
# 2 atanh s = 2 s + s³ (2/3 + s² LOG(s²)) on |s| <= 3 - 2√2, error 2⁻⁷²
LOG = (0.3999999999999998, 0.2857142857144501, 0.22222222217556387, 0.1818181886823102, 0.15384556994900944,
       0.13336313192942156, 0.1167489558470234, 0.11988430155525322)  # fmt: skip


def log_pair(k: Builder, x: Value) -> Pair:
    """ln x as a pair, right to about 2⁻⁶⁶, for 0 < x < Inf."""
    n, m = split(k, x)
    f = m - 1.0
    g, g_low = two_sum(k, 1.0, m)
    inverse = k.div(1.0, g)
    s = f * inverse
    s_low = k.fma(-s, g_low, k.fma(-s, g, f)) * inverse
    z, z_low = two_product(k, s, s)
    z_low = k.fma(s + s, s_low, z_low)
    c, c_low = fast_two_sum(k, TWO_THIRDS, z * horner(k, z, *LOG))
    c_low = c_low + TWO_THIRDS_LOW
    w, w_low = two_product(k, s, z)
    w_low = k.fma(s, z_low, k.fma(s_low, z, w_low))
    t, t_low = two_product(k, w, c)
    t_low = k.fma(w, c_low, k.fma(w_low, c, t_low))
    h, h_low = fast_two_sum(k, s + s, t)
    h_low = k.fma(s_low, 2.0, h_low) + t_low
    top, low = two_sum(k, n * LN2, h)
    return fast_two_sum(k, top, low + k.fma(n, LN2_LOW, h_low))


def exp_pair(k: Builder, x: Value, low: Value) -> Value:
    """exp(x + low) for |low| far below |x|."""
    low = k.select((x > 710.0) | (x < -746.0), 0.0, low)
    c = clamp(k, x, -746.0, 710.0)
    n, i = nearest(k, c, LOG2_E)
    minus = -n
    t = k.fma(minus, LN2, c)
    r = k.fma(minus, LN2_LOW, t)
    r, low = fast_two_sum(k, r, low + k.fma(minus, LN2_LOW, t - r))
    s, e = fast_two_sum(k, 1.0, r)
    return scale(k, s + (e + k.fma(r * r, horner(k, r, *EXP), low)), i)


def pow(k: Builder, x: Value, y: Value) -> Value:  # noqa: A001
    """x^y."""
    a, b = abs(x), abs(y)
    h, h_low = log_pair(k, a)
    d = clamp(k, y, -(2.0**66), 2.0**66)  # beyond, any |x| != 1 over- or underflows: |ln x| >= 2⁻⁵³
    p, e = two_product(k, h, d)
    r = exp_pair(k, p, k.fma(h_low, d, e))
    zero = a == 0.0
    past = k.select(zero ^ (y < 0.0), k.const(f64, 0.0), inf)
    r = k.select(zero | (a == inf), past, r)
    whole = k.round(b) == b
    odd = whole & (k.round(b * 0.5) != b * 0.5)
    low, high = words(k, r)
    sign = k.select(odd, words(k, x)[1] & 0x80000000, k.const(u32, 0))
    r = from_words(k, low, high | sign)
    r = k.select((x < 0.0) & (a < inf) & ~whole, nan, r)
    r = k.select(k.compare("nan", x, y), nan, r)
    return k.select((x == 1.0) | (y == 0.0), 1.0, r)
