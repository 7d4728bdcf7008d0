"""Hard operands of x·y + z and the answer by fractions: what every fma that is rounded once is compared with."""

import math
from fractions import Fraction

import numpy as np


def operands(dtype, rng, n=400):
    """x, y and z of one dimension: any bits, sums at each end of the exponents, ties, cancellation, special values."""
    info = np.finfo(dtype)
    digits, least = info.nmant + 1, int(info.minexp) - info.nmant
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")

    def numbers(lowest, highest, exponent):  # of so many binary digits
        whole = rng.integers(1 << lowest, (1 << highest) - 1, n, endpoint=True) * rng.choice([-1.0, 1.0], n)
        return np.ldexp(whole, exponent).astype(dtype)

    with np.errstate(all="ignore"):
        groups = [[rng.integers(0, 256, n * bits.itemsize, np.uint8).view(dtype) for _ in range(3)]]
        for place in (least - 2, least, int(info.minexp), 0, int(info.maxexp)):  # of the sum's leading digit
            for short in (2, digits // 2, digits):
                at = place + rng.integers(-3, 4, n)
                share = rng.integers(least // 3, -least // 3, n)
                x, y = numbers(0, short, share - short), numbers(0, short, at - share - short)
                groups.append([x, y, numbers(0, short, at - short + rng.integers(-digits, digits, n))])
        for step in (
            least,
            least + 1,
            -digits,
            int(info.maxexp) - digits,
        ):  # z's last digit; x·y is half that, or nearly
            x, y = (1 + rng.integers(-2, 3, (2, n)) * info.eps).astype(dtype)
            z = numbers(digits - 1, digits, step)
            groups.append(
                [np.ldexp(x, min(step + 2 * digits, 0)), np.ldexp(y, step - 1 - min(step + 2 * digits, 0)), z]
            )
        x, y = rng.standard_normal((2, n)).astype(dtype)
        groups.append([x, y, ((-(x * y)).view(bits) + rng.integers(-2, 3, n).astype(bits)).view(dtype)])
        ends = [0.0, 0.5, 1.0, 1 + info.eps, info.max, info.smallest_subnormal, info.smallest_normal, np.inf, np.nan]
        ends = np.array([*ends, info.smallest_normal - info.smallest_subnormal], dtype)
        groups.append(np.array(np.meshgrid(*[np.concatenate([ends, -ends])] * 3)).reshape(3, -1))
    return [np.concatenate(parts) for parts in zip(*groups, strict=True)]


def exact(x, y, z):
    """x·y + z, each rounded once to their dtype; ties to even, and IEEE 754's rules for zeros, Inf and NaN."""
    return np.array([_exact(x.dtype, *v) for v in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)], x.dtype)


def same(got, want):
    """Whether all are alike: signs of zeros count, NaN is NaN."""
    alike = (got == want) & (np.signbit(got) == np.signbit(want))
    return got.dtype == want.dtype and bool(np.all(alike | (np.isnan(got) & np.isnan(want))))


def _exact(dtype, x, y, z):
    if not (math.isfinite(x) and math.isfinite(y)) or x == 0 or y == 0:
        return x * y + z
    if not math.isfinite(z):
        return z
    value = Fraction(x) * Fraction(y) + Fraction(z)
    info = np.finfo(dtype)
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    step = Fraction(2) ** int(max(exponent, info.minexp) - info.nmant)
    size = round(size / step) * step  # Python's: half to even
    number = float(size) if size <= Fraction(float(info.max)) else math.inf
    return -number if value < 0 else number
