"""Sine and cosine of one float32 in WGSL, for every finite argument, in 32-bit integers.

Payne and Hanek's reduction as fixed-point arithmetic: x = ±m · 2^e with an integer m of 24 bits, so x · 2/π modulo 4
is m times a window of 96 bits of 2/π, modulo 2^96.  Its top two bits are the quadrant, the 62 bits behind them the
fraction of π/2, far more than the 31 or so leading zeros that a float32 can bring about.  Integers round nowhere and
no compiler rewrites them; a driver's own sin is off by 10^6 ulps near its zeros and lost beyond 10^5.

The polynomials are minimax fits of our own on |r| ≤ 0.885; the words of 2/π are its binary digits.
"""

from trueno_wgpu.rows.elementary import horner

SIN = (-0.16666643, 0.008331496, -0.00019432427)
COS = (1.0, -0.5, 0.041666627, -0.0013886464, 2.4343093e-05)
TWO_OVER_PI = (0x00000000, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB)


def _window(first: int) -> str:
    return "vec4<u32>(" + ", ".join(f"0x{w:08x}u" for w in TWO_OVER_PI[first : first + 4]) + ")"


WAVES = f"""
fn high_product(a: u32, b: u32) -> u32 {{
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u);
}}

fn quarter_turns(x: f32) -> vec2<f32> {{
    let b = size_bits(x);
    let m = (b & 0x007fffffu) | 0x00800000u;
    let at = clamp(i32(b >> 23u) - 120, 0, 134);
    var w = {_window(0)};
    w = select(w, {_window(1)}, at >= 32);
    w = select(w, {_window(2)}, at >= 64);
    w = select(w, {_window(3)}, at >= 96);
    w = select(w, {_window(4)}, at >= 128);
    let shift = u32(at) & 31u;
    let one = (w.x << shift) | ((w.y >> 1u) >> (31u - shift));
    let two = (w.y << shift) | ((w.z >> 1u) >> (31u - shift));
    let three = (w.z << shift) | ((w.w >> 1u) >> (31u - shift));
    let carry = high_product(m, three);
    let low = m * two + carry;
    let high = m * one + high_product(m, two) + select(0u, 1u, low < carry);
    let fraction = vec2<u32>((high << 2u) | (low >> 30u), low << 2u);
    let down = fraction.x >= 0x80000000u;
    let part = select(fraction, vec2<u32>(~fraction.x + select(0u, 1u, fraction.y == 0u), 0u - fraction.y), down);
    let zeros = min(countLeadingZeros(part.x), 31u);
    let top = (part.x << zeros) | ((part.y >> 1u) >> (31u - zeros));
    let r = f32(top) * 1.5707964 * bitcast<f32>((95u - zeros) << 23u);
    let q = (high >> 30u) + select(0u, 1u, down);
    let near = b < 0x3f490fdbu;
    return vec2<f32>(select(select(r, negative(r), down), absolute(x), near), select(f32(q & 3u), 0.0, near));
}}

fn wave(r: f32, q: u32) -> f32 {{
    let t = r * r;
    let s = r + r * (t * {horner("t", *SIN)});
    let y = select(s, {horner("t", *COS)}, (q & 1u) == 1u);
    return bitcast<f32>(bits(y) ^ ((q & 2u) << 30u));
}}

fn safe_sin(x: f32) -> f32 {{
    let t = quarter_turns(x);
    let y = wave(t.x, u32(t.y));
    let z = select(bitcast<f32>(bits(y) ^ (bits(x) & 0x80000000u)), x, size_bits(x) < 0x39800000u);
    return select(z, u.nan, size_bits(x) >= 0x7f800000u);
}}

fn safe_cos(x: f32) -> f32 {{
    let t = quarter_turns(x);
    return select(wave(t.x, u32(t.y) + 1u), u.nan, size_bits(x) >= 0x7f800000u);
}}
"""
