"""The safe functions: WGSL that is right at NaN, ±Inf, ±0 and overflow whatever the driver assumes.

WGSL lets an implementation assume that there is neither NaN nor Inf and reassociate as it likes; drivers do both.
So tests for NaN and Inf, signs and orders look at bits; no literal is infinite (`u.inf` and `u.nan` come with the
call); and a rounded intermediate whose rounding is needed goes through `hide`, an exclusive or with a word that is
zero, which no compiler can know.  So does a number whose sign is copied (where Mesa 22 knows it to be positive, it
forgets the exponent of the result), and an operand less another, which may be the same array: x − x is not 0 for an
Inf.  Drivers may flush subnormals to zero; nothing here depends on it.

A module is printed with the functions that it uses, and those that they use.  `FUNCTIONS` has them all by name.
"""

import re
from collections.abc import Iterable

from trueno_wgpu.rows.elementary import ELEMENTARY
from trueno_wgpu.rows.power import POWER
from trueno_wgpu.rows.waves import WAVES

BITS = """
fn bits(x: f32) -> u32 { return bitcast<u32>(x); }

fn size_bits(x: f32) -> u32 { return bitcast<u32>(x) & 0x7fffffffu; }

fn hide(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ u.zero); }

fn is_nan(x: f32) -> bool { return size_bits(x) > 0x7f800000u; }

fn is_inf(x: f32) -> bool { return size_bits(x) == 0x7f800000u; }

fn ordered(x: f32, y: f32) -> bool { return max(size_bits(x), size_bits(y)) <= 0x7f800000u; }

fn with_sign(x: f32, s: f32) -> f32 { return bitcast<f32>(size_bits(x) | (bits(hide(s)) & 0x80000000u)); }

fn absolute(x: f32) -> f32 { return bitcast<f32>(size_bits(x)); }

fn negative(x: f32) -> f32 { return bitcast<f32>(bits(x) ^ 0x80000000u); }

fn tame(x: f32, low: f32, high: f32) -> f32 { return clamp(select(x, 0.0, is_nan(x)), low, high); }

fn trouble(x: f32) -> u32 {
    let size = size_bits(x);
    return select(0u, 1u, size > 0x7f800000u) | select(0u, 2u, size == 0x7f800000u);
}
"""

ORDER = """
fn less(x: f32, y: f32) -> bool { return (x < y) & ordered(x, y); }

fn less_equal(x: f32, y: f32) -> bool { return (x <= y) & ordered(x, y); }

fn equal(x: f32, y: f32) -> bool { return (x == y) & ordered(x, y); }

fn height(x: f32) -> i32 {
    let b = bitcast<i32>(x);
    return b ^ ((b >> 31u) & 0x7fffffff);
}

fn maximum(x: f32, y: f32) -> f32 {
    return select(u.nan, select(y, x, height(x) > height(y)), ordered(x, y));
}

fn minimum(x: f32, y: f32) -> f32 {
    return select(u.nan, select(y, x, height(x) < height(y)), ordered(x, y));
}
"""
"""Every comparison with NaN is false, but `x != y`.  `maximum` compares integers: where subnormals flush, all
of them are equal, and the smaller would do.
"""

ROUNDING = """
fn rounded_down(x: f32) -> f32 { return select(floor(x), x, size_bits(x) >= 0x4b000000u); }

fn rounded_up(x: f32) -> f32 { return select(ceil(x), x, size_bits(x) >= 0x4b000000u); }

fn rounded_off(x: f32) -> f32 { return select(trunc(x), x, size_bits(x) >= 0x4b000000u); }

fn rounded_even(x: f32) -> f32 { return select(round(x), x, size_bits(x) >= 0x4b000000u); }
"""

FOLDING = """
fn add_exactly(s: vec2<f32>, v: f32) -> vec2<f32> {
    let t = hide(s.x + v);
    let b = hide(t - s.x);
    return vec2<f32>(t, s.y + ((s.x - hide(t - b)) + (v - b)));
}

fn whole(s: vec2<f32>) -> f32 {
    return select(s.x + s.y, s.x, size_bits(s.x) >= 0x7f800000u);
}

fn rank_high(x: f32) -> u32 {
    let b = select(bits(x), 0u, size_bits(x) == 0u);
    return select(select(b | 0x80000000u, ~b, b >= 0x80000000u), 0xffffffffu, is_nan(x));
}

fn rank_low(x: f32) -> u32 { return select(~rank_high(x), 0xffffffffu, is_nan(x)); }

fn better(s: vec2<u32>, t: vec2<u32>) -> vec2<u32> {
    return select(s, t, (t.x > s.x) | ((t.x == s.x) & (t.y < s.y)));
}
"""
"""Accumulators: sums of two floats whose low part is what rounding lost, and (rank of the value, its position) pairs.

A rank is an integer that orders floats, NaN above all; 0 is below every number's.  Among equal ranks the first
position wins.
"""


def functions_of(text: str) -> dict[str, str]:
    """Functions by name, in order of definition."""
    parts = re.split(r"\n(?=fn )", "\n" + text.strip())
    return {re.match(r"fn (\w+)", part)[1]: part.strip() for part in parts if part.strip()}  # type: ignore[index]


FUNCTIONS = functions_of("\n".join((BITS, ORDER, ROUNDING, FOLDING, ELEMENTARY, WAVES, POWER)))
_CALLS = {name: set(re.findall(r"\b(\w+)\(", text)) & FUNCTIONS.keys() - {name} for name, text in FUNCTIONS.items()}


def prelude(text: str) -> str:
    """The functions that `text` calls, with all that they call, in the order of definition; "" for none."""
    needed: set[str] = set()
    todo: Iterable[str] = set(re.findall(r"\b(\w+)\(", text)) & FUNCTIONS.keys()
    while todo:
        needed |= set(todo)
        todo = {call for name in todo for call in _CALLS[name]} - needed
    return "\n\n".join(body for name, body in FUNCTIONS.items() if name in needed)
