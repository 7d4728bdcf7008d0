// gelu: x[...] -> y[...], operands e.  x · Φ(x), Φ the normal distribution; by default x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))).
// operands e params 0
// %0 = leaf('x0') e T
// %1 = mul(%0, %0) e T
// %2 = mul(%0, %1) e T
// %3 = const(0.044715) u T
// %4 = mul(%2, %3) e T
// %5 = add(%0, %4) e T
// %6 = const(1.5957691216057308) u T
// %7 = mul(%5, %6) e T
// %8 = neg(%7) e T
// %9 = exp(%8) e T
// %10 = const(1.0) u T
// %11 = add(%9, %10) e T
// %12 = div(%0, %11) e T
// out %12

struct Uniforms { zero: u32, items: u32, n: u32, start: u32, chunk: u32, chunks: u32, here: u32, inf: f32, nan: f32, length: f32 }
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read> in0: array<f32>;
@group(0) @binding(2) var<storage, read_write> out0: array<f32>;

fn bits(x: f32) -> u32 { return bitcast<u32>(x); }

fn size_bits(x: f32) -> u32 { return bitcast<u32>(x) & 0x7fffffffu; }

fn hide(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ u.zero); }

fn is_nan(x: f32) -> bool { return size_bits(x) > 0x7f800000u; }

fn negative(x: f32) -> f32 { return bitcast<f32>(bits(x) ^ 0x80000000u); }

fn tame(x: f32, low: f32, high: f32) -> f32 { return clamp(select(x, 0.0, is_nan(x)), low, high); }

fn scaled(x: f32, n: i32) -> f32 {
    let h = n >> 1u;
    return hide(x * bitcast<f32>((h + 127) << 23u)) * bitcast<f32>((n - h + 127) << 23u);
}

fn exp_rest(x: f32, n: f32) -> f32 {
    return hide(x - n * 0.693359375) + n * 0.00021219444;
}

fn safe_exp(x: f32) -> f32 {
    let c = tame(x, -104.0, 89.0);
    let n = round(c * 1.442695);
    let r = exp_rest(c, n);
    let y = scaled(1.0 + (r + r * r * (0.49999994 + r * (0.16666521 + r * (0.041668274 + r * (0.008368683 + r * 0.0013820052))))), i32(n));
    let z = select(select(y, 0.0, x < -104.0), u.inf, x > 88.72284);
    return select(z, x, is_nan(x));
}

fn quotient(x: f32, y: f32) -> f32 {
    let far = select(1.0, 0.25, size_bits(y) >= 0x7e800000u);
    return (x / (y * far)) * far;
}

const c3 = 0.0447149985f;
const c6 = 1.59576917f;
const c10 = 1.0f;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let first = (wid.x + wid.y * grid.x) * 1024u + lid;
    for (var k = 0u; k < 4u; k++) {
        let i = first + k * 256u;
        if (i < u.items) {
            let v0 = in0[i];
            let v1 = v0 * v0;
            let v2 = v0 * hide(v1);
            let v4 = hide(v2) * c3;
            let v5 = v0 + v4;
            let v7 = hide(v5) * c6;
            let v8 = negative(v7);
            let v9 = safe_exp(v8);
            let v11 = v9 + c10;
            let v12 = quotient(v0, v11);
            out0[i] = v12;
        }
    }
}
