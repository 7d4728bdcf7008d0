"""x^y of float32 in WGSL: e^(y ln|x|) needs eight digits more than a float32 has, so logarithms are pairs of floats.

|x| = 2^e m with 0.69 ≤ m < 1.39 and c one of 5/4, 1 and 13/16, so that f = c m − 1 is exact and |f| ≤ 1/7; f is made
in integers, where it cannot be rounded.  ln m = ln(1 + f) − ln c.  Products are exact pairs after Dekker, halves being
split by masks, for a fused multiply-add may be missing (and then `fma` rounds twice, silently).  Special cases are
C99's.  The coefficients are minimax fits of our own.
"""

from trueno_wgpu.rows.elementary import EXP, horner

POW_LOG = (0.33333343, -0.2500005, 0.19996469, -0.16654435, 0.14647454, -0.13252735)

POWER = f"""
fn product(x: f32, y: f32) -> vec2<f32> {{
    let p = hide(x * y);
    let a = bitcast<f32>(bits(x) & 0xfffff000u);
    let b = bitcast<f32>(bits(y) & 0xfffff000u);
    let c = hide(x - a);
    let d = hide(y - b);
    return vec2<f32>(p, ((hide(a * b - p) + a * d) + c * b) + c * d);
}}

fn log_pair(x: f32) -> vec2<f32> {{
    let b = bits(x);
    let tiny = b < 0x00800000u;
    let s = bitcast<i32>(select(b, bits(f32(b)), tiny));
    let e = (s - 0x3f3126e9) >> 23u;
    let n = f32(e) - select(0.0, 149.0, tiny);
    let k = s - (e << 23u);
    let m = ((k & 0x007fffff) | 0x00800000) << select(0u, 1u, k >= 0x3f800000);
    let low = k < 0x3f666666;
    let above = k > 0x3f900000;
    let f = f32(m * select(select(16, 13, above), 20, low) - 0x10000000) * 3.7252903e-09;
    let base = n * 0.693145751953125 + select(select(0.0, 0.2076416015625, above), -0.22314453125, low);
    let rest = n * 1.4286068e-06 + select(select(0.0, -2.2367843e-06, above), 9.799357e-07, low);
    let half = product(f, -0.5 * f);
    let h = hide(f + half.x);
    let h_low = (f - h) + half.x + half.y;
    let head = hide(base + h);
    let head_low = h - hide(head - base);
    let tail = (f * f) * f * {horner("f", *POW_LOG)} + h_low + (rest + head_low);
    return vec2<f32>(head, tail);
}}

fn safe_pow(x: f32, y: f32) -> f32 {{
    let a = absolute(x);
    let c = tame(y, -2147483520.0, 2147483520.0);
    let l = log_pair(a);
    let p = product(c, l.x);
    let past = absolute(p.x) >= 106.0;
    let w = clamp(p.x, -106.0, 106.0);
    let v = select(p.y + c * l.y, 0.0, past);
    let n = round((w + v) * 1.442695);
    let r = hide(w - n * 0.693359375) + (v + n * 0.00021219444);
    var z = scaled(1.0 + (r + r * r * {horner("r", *EXP)}), i32(n));
    z = select(z, 0.0, w <= -105.0);
    z = select(z, u.inf, w >= 105.0);
    let up = (size_bits(x) >= 0x7f800000u) == (y > 0.0);
    z = select(z, select(0.0, u.inf, up), (size_bits(x) == 0u) | (size_bits(x) == 0x7f800000u));
    let i = i32(c);
    let integer = f32(i) == c;
    z = bitcast<f32>(bits(z) | (bits(x) & select(0u, u32(i) << 31u, integer)));
    let b = bits(x);
    z = select(z, u.nan, (b > 0x80000000u) & (b < 0xff800000u) & !integer);
    z = select(z, u.nan, is_nan(x) | is_nan(y));
    return select(z, 1.0, (b == 0x3f800000u) | (size_bits(y) == 0u));
}}
"""
