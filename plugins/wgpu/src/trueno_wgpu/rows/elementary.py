"""Exponentials, logarithms, roots, quotients, tanh, erf and atan of one float32 in WGSL.

Straight lines: reduction by Cody and Waite with constants whose products are exact without a fused multiply-add,
minimax polynomials by Horner's rule, exponents put in by integer addition.  The driver's own exp, log and tanh are
not used: they are off by thousands of ulps in places, or NaN for large arguments.  Of its arithmetic only what WGSL
promises is relied on: + - * rounded correctly, a quotient within 2.5 ulp for divisors of 2^-126 to 2^126.
`trueno_wgpu.rows.accuracy` states the errors.

Ideas: Cody and Waite's reduction, FDLIBM's and Cephes' ways to split logarithms, Muller's Elementary Functions.  The
coefficients are minimax fits of our own, the same as in the other backends.
"""


def horner(x: str, *coefficients: float) -> str:
    """c0 + x·(c1 + x·(…)), as text."""
    text = repr(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        text = f"({c!r} + {x} * {text})"
    return text


EXP = (0.49999994, 0.16666521, 0.041668274, 0.008368683, 0.0013820052)
EXP2 = (1.0, 0.6931472, 0.2402265, 0.055503596, 0.0096180625, 0.0013391011, 0.00015462885)
LOG = (0.3333333, -0.2500082, 0.20001242, -0.16623409, 0.14201581, -0.13159613, 0.12762201, -0.07636403)
LOG2 = (0.44269505, -0.7213475, 0.4808965, -0.36068258, 0.2886188, -0.23995215, 0.20415677, -0.18825443,
        0.18686533, -0.11639451)  # fmt: skip
LOG10 = (-0.065705515, -0.21714725, 0.14476454, -0.10857662, 0.08687233, -0.07221139, 0.061588623, -0.056961764,
         0.05574629, -0.03387411)  # fmt: skip
TANH = (-0.33333313, 0.13332437, -0.053835757, 0.021000376, -0.006169614)
ERF = (0.12837917, -0.3761259, 0.11282865, -0.026807288, 0.0050577037, -0.00063485187)
LOG2_ERFC = (-0.00016549481, -1.6273823, -0.918422, -0.15068683, 0.03243045, -0.0044827675, 0.00029219323)
ATAN = (-0.33333153, 0.19993767, -0.14211002, 0.106657684, -0.07551656, 0.043204635, -0.016363103, 0.0029193931)

ELEMENTARY = f"""
fn scaled(x: f32, n: i32) -> f32 {{
    let h = n >> 1u;
    return hide(x * bitcast<f32>((h + 127) << 23u)) * bitcast<f32>((n - h + 127) << 23u);
}}

fn two_to(r: f32, n: f32) -> f32 {{
    return bitcast<f32>(bitcast<i32>({horner("r", *EXP2)}) + (i32(n) << 23u));
}}

fn exp_rest(x: f32, n: f32) -> f32 {{
    return hide(x - n * 0.693359375) + n * 0.00021219444;
}}

fn safe_exp(x: f32) -> f32 {{
    let c = tame(x, -104.0, 89.0);
    let n = round(c * 1.442695);
    let r = exp_rest(c, n);
    let y = scaled(1.0 + (r + r * r * {horner("r", *EXP)}), i32(n));
    let z = select(select(y, 0.0, x < -104.0), u.inf, x > 88.72284);
    return select(z, x, is_nan(x));
}}

fn safe_exp2(x: f32) -> f32 {{
    let c = tame(x, -151.0, 129.0);
    let n = round(c);
    let r = c - n;
    let y = scaled({horner("r", *EXP2)}, i32(n));
    let z = select(select(y, 0.0, x < -151.0), u.inf, x >= 128.0);
    return select(z, x, is_nan(x));
}}

fn safe_expm1(x: f32) -> f32 {{
    let c = tame(x, -18.0, 88.8);
    let n = round(c * 1.442695);
    let r = exp_rest(c, n);
    let p = r + r * r * {horner("r", *EXP)};
    let h = bitcast<f32>((i32(n) + 126) << 23u);
    let y = h * p + (h - 0.5);
    let z = select(select(y + y, p, n == 0.0), u.inf, x > 88.72284);
    return select(with_sign(z, x), x, is_nan(x));
}}

fn log_parts(x: f32) -> vec2<f32> {{
    let b = bits(x);
    let tiny = b < 0x00800000u;
    let s = bitcast<i32>(select(b, bits(f32(b)), tiny));
    let e = (s - 0x3f3504f3) >> 23u;
    let f = bitcast<f32>(s - (e << 23u)) - 1.0;
    return vec2<f32>(f, f32(e) - select(0.0, 149.0, tiny));
}}

fn log_edges(x: f32, y: f32) -> f32 {{
    let b = bits(x);
    let z = select(select(y, u.nan, b > 0x80000000u), x, (b >= 0x7f800000u) & (b < 0x80000000u));
    return select(z, negative(u.inf), size_bits(x) == 0u);
}}

fn log1p_series(f: f32, tail: f32) -> f32 {{
    let g = f * f;
    return f + (g * (f * {horner("f", *LOG)} - 0.5) + tail);
}}

fn safe_log(x: f32) -> f32 {{
    let p = log_parts(x);
    return log_edges(x, log1p_series(p.x, p.y * -0.00021219444) + p.y * 0.693359375);
}}

fn safe_log2(x: f32) -> f32 {{
    let p = log_parts(x);
    let f = p.x;
    return log_edges(x, (f * {horner("f", *LOG2)} + f) + p.y);
}}

fn safe_log10(x: f32) -> f32 {{
    let p = log_parts(x);
    let f = p.x;
    let y = f * {horner("f", *LOG10)} + (f * 0.5 + p.y * 4.605039e-06);
    return log_edges(x, y + p.y * 0.301025390625);
}}

fn safe_log1p(x: f32) -> f32 {{
    let w = hide(x + 1.0);
    let lost = x - hide(w - 1.0);
    let s = bitcast<i32>(w);
    let e = (s - 0x3f3504f3) >> 23u;
    let k = e << 23u;
    let f = (bitcast<f32>(s - k) - 1.0) + lost * bitcast<f32>(0x40800000 - k) * 0.25;
    let n = f32(e);
    let y = with_sign(log1p_series(f, n * -0.00021219444) + n * 0.693359375, x);
    let b = bits(x);
    let same = ((b >= 0x7f800000u) & (b < 0x80000000u)) | (size_bits(x) < 0x33000000u);
    let z = select(select(y, u.nan, b > 0xbf800000u), x, same);
    return select(z, negative(u.inf), b == 0xbf800000u);
}}

fn log1p_unit(x: f32) -> f32 {{
    let far = x > 0.41421357;
    let y = log1p_series(select(x, x * 0.5 - 0.5, far), 0.0) + select(0.0, 0.6931472, far);
    return select(y, x, is_nan(x));
}}

fn safe_tanh(x: f32) -> f32 {{
    let a = tame(absolute(x), 0.0, 10.0);
    let n = round(a * 2.88539);
    let far = 1.0 - 2.0 / (two_to(a * 2.88539 - n, n) + 1.0);
    let s = a * a;
    let near = a + a * (s * {horner("s", *TANH)});
    return select(with_sign(select(near, far, a > 0.55), x), x, is_nan(x));
}}

fn safe_erf(x: f32) -> f32 {{
    let a = tame(absolute(x), 0.0, 3.93);
    let w = {horner("a", *LOG2_ERFC)};
    let n = round(w);
    let far = 1.0 - two_to(w - n, n);
    let s = a * a;
    let near = select(a + a * {horner("s", *ERF)}, a * 1.1283792, a < 1e-30);
    return select(with_sign(select(near, far, a > 0.85), x), x, is_nan(x));
}}

fn safe_atan(x: f32) -> f32 {{
    let a = tame(absolute(x), 0.0, 1e+18);
    let far = a > 1.0;
    let z = select(a, -1.0 / a, far);
    let t = z * z;
    let y = z + (z * (t * {horner("t", *ATAN)}) + select(0.0, -4.371139e-08, far));
    return select(with_sign(y + select(0.0, 1.5707964, far), x), x, is_nan(x));
}}

fn quotient(x: f32, y: f32) -> f32 {{
    let far = select(1.0, 0.25, size_bits(y) >= 0x7e800000u);
    return (x / (y * far)) * far;
}}

fn root(x: f32) -> f32 {{
    let b = bits(x);
    let z = select(sqrt(x), x, ((b >= 0x7f800000u) & (b < 0x80000000u)) | (size_bits(x) == 0u));
    return select(z, u.nan, b > 0x80000000u);
}}

fn inverse_root(x: f32) -> f32 {{
    let b = bits(x);
    let z = select(inverseSqrt(x), 0.0, b == 0x7f800000u);
    let y = select(z, u.nan, (b > 0x80000000u) | is_nan(x));
    return select(y, with_sign(u.inf, x), size_bits(x) == 0u);
}}
"""
