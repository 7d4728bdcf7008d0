"""Exponentials of gaps between logits as 64-bit fixed-point numbers, by 32-bit integers: WGSL has no float64.

A token weighs 2^63 · 2^−y, y = (the largest logit − its own) · log2(e) / temperature, within a few units: fewer than
float64 loses in its sums.  Sums of integers are exact, so that no order of additions, and no driver, changes a token.

The difference of two float32 is exact, or right to 62 bits where their exponents lie far apart; the factor has 64.  Of
the fraction of y sixteen bits select from two tables, and what is left, below 2^−16, needs a cubic.
"""

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache, lru_cache
from math import isqrt
from typing import Any

import numpy as np

BITS = 64
PRECISE = 192
"""Bits of ln 2, from which a factor of 64 bits is divided."""

FIXED = """\
// 64 bits are two words, the low one first; 96 bits are three.
fn plus(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}
fn minus(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}
fn up(a: vec2<u32>, n: u32) -> vec2<u32> {
    let s = n & 31u;
    let near = vec2<u32>(a.x << s, (a.y << s) | ((a.x >> 1u) >> (31u - s)));
    return select(select(near, vec2<u32>(0u, a.x << s), n >= 32u), vec2<u32>(), n >= 64u);
}
fn down(a: vec2<u32>, n: u32) -> vec2<u32> {
    let s = n & 31u;
    let near = vec2<u32>((a.x >> s) | ((a.y << 1u) << (31u - s)), a.y >> s);
    return select(select(near, vec2<u32>(a.y >> s, 0u), n >= 32u), vec2<u32>(), n >= 64u);
}
// The upper half of a product.
fn high64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let first = high_product(a.x, b.x);
    let second = first + a.x * b.y;
    let third = second + a.y * b.x;
    let carry = select(0u, 1u, second < first) + select(0u, 1u, third < second);
    let top = vec2<u32>(a.y * b.y, high_product(a.y, b.y));
    let sides = plus(vec2<u32>(high_product(a.x, b.y), 0u), vec2<u32>(high_product(a.y, b.x), 0u));
    return plus(plus(top, sides), vec2<u32>(carry, 0u));
}
fn plus96(a: vec3<u32>, b: vec3<u32>) -> vec3<u32> {
    let low = plus(a.xy, b.xy);
    let carry = low.y < a.y || (low.y == a.y && low.x < a.x);
    return vec3<u32>(low, a.z + b.z + select(0u, 1u, carry));
}
fn exceeds(a: vec3<u32>, b: vec3<u32>) -> bool {
    if (a.z != b.z) { return a.z > b.z; }
    if (a.y != b.y) { return a.y > b.y; }
    return a.x > b.x;
}
// The whole part of a sum times a fraction.
fn part_of(a: vec3<u32>, fraction: vec2<u32>) -> vec3<u32> {
    let upper = vec3<u32>(0u, a.z * fraction.y, high_product(a.z, fraction.y));
    let lower = vec3<u32>(a.z * fraction.x, high_product(a.z, fraction.x), 0u);
    return plus96(vec3<u32>(high64(a.xy, fraction), 0u), plus96(upper, lower));
}

const FAR = 0xffffffffu;
struct Gap { whole: u32, part: vec2<u32> }  // FAR: that or more

fn significand(size: u32) -> vec2<u32> {
    return vec2<u32>(0u, ((size & 0x7fffffu) | select(0u, 0x800000u, size >= 0x800000u)) << 6u);
}

// (most − value) times a factor, `by` · 2^shift; both are given by their bits, and most is no less.
fn gap(most: u32, value: u32, by: vec2<u32>, shift: i32) -> Gap {
    let a = most & 0x7fffffffu;
    let b = value & 0x7fffffffu;
    if (key(most) == key(value)) { return Gap(0u, vec2<u32>()); }
    if (max(a, b) >= 0x7f800000u) { return Gap(FAR, vec2<u32>()); }
    let exponents = max(vec2<u32>(a >> 23u, b >> 23u), vec2<u32>(1u));
    let top = max(exponents.x, exponents.y);
    let first = down(significand(a), top - exponents.x);
    let second = down(significand(b), top - exponents.y);
    let apart = most < 0x80000000u && value >= 0x80000000u;
    let whole = select(select(minus(first, second), minus(second, first), most >= 0x80000000u),
                       plus(first, second), apart);
    let zeros = select(countLeadingZeros(whole.y), 32u + countLeadingZeros(whole.x), whole.y == 0u);
    let product = high64(up(whole, zeros), by);
    let place = i32(top) - 124 - i32(zeros) + shift;  // the product's lowest bit is 2^place
    if (place >= 0) { return Gap(FAR, vec2<u32>()); }
    let n = u32(-place);
    if (n >= 64u) { return Gap(0u, down(product, n - 64u)); }
    let steps = down(product, n);
    return Gap(select(steps.x, FAR, steps.y != 0u), up(product, 64u - n));
}

fn weight(y: Gap) -> vec2<u32> {
    if (y.whole > 63u) { return vec2<u32>(); }
    let coarse = tables[y.part.y >> 24u];
    var w = minus(coarse, high64(coarse, tables[256u + ((y.part.y >> 16u) & 255u)]));
    let x = high64(vec2<u32>(y.part.x, y.part.y & 0xffffu), LN2);
    let short = (x.x >> 16u) | (x.y << 16u);
    let square = high_product(short, short);
    let cube = high_product(square, short) >> 16u;
    w = minus(w, high64(w, plus(minus(x, vec2<u32>(square >> 1u, 0u)), vec2<u32>(cube / 6u, 0u))));
    return down(w, y.whole);
}
"""


def words(value: int) -> tuple[int, int]:
    """64 bits, the low word first."""
    return value & 0xFFFFFFFF, value >> 32


@cache
def _ln2() -> int:
    with localcontext(prec=80):
        return int(Decimal(2).ln() * 2**PRECISE)


def ln2_words() -> tuple[int, int]:
    """ln 2 as a fraction of 64 bits."""
    return words(_ln2() >> (PRECISE - BITS))


@lru_cache(maxsize=256)
def factor(temperature: float) -> tuple[int, int, int]:
    """log2(e) / temperature as 64 bits, the highest of them set, and the power of two that multiplies them."""
    ratio = Fraction(1 << PRECISE, _ln2()) / Fraction(temperature)
    shift = ratio.numerator.bit_length() - ratio.denominator.bit_length() - BITS + 1
    value = int(ratio / Fraction(2) ** shift)
    if value >> BITS:
        value, shift = value >> 1, shift + 1
    if not value >> (BITS - 1):
        value, shift = int(ratio / Fraction(2) ** (shift - 1)), shift - 1
    return (*words(value), shift)


def fraction(value: float) -> tuple[int, int]:
    """A number of [0, 1) as 64 bits behind the point."""
    return words(int(Fraction(value) * 2**BITS))


@lru_cache(maxsize=256)
def steps(value: float) -> tuple[int, int, int]:
    """−log2 of a number of (0, 1]: its whole part, and 64 bits behind the point."""
    with localcontext(prec=60):
        fixed = int(-Decimal(value).ln() / Decimal(2).ln() * 2**BITS)
    return (fixed >> BITS, *words(fixed % 2**BITS))


def tables() -> np.ndarray[Any, Any]:
    """2^63 · 2^(−i/256), and 2^64 · (1 − 2^(−i/65536)), for i below 256: uint64 [512]."""
    scale, columns = 128, []
    for times in (8, 16):
        root = 1 << (scale - 1)
        for _ in range(times):
            root = isqrt(root << scale)
        power, column = 1 << scale, []
        for _ in range(256):
            column.append(power)
            power = power * root >> scale
        columns.append(column)
    coarse = [(p + (1 << (scale - 64))) >> (scale - 63) for p in columns[0]]
    fine = [((1 << scale) - p) >> (scale - 64) for p in columns[1]]
    return np.array(coarse + fine, np.uint64)
