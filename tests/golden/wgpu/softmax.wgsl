// softmax: x[...,n] -> y[...,n], operands e.  e^(x − max x) / Σ e^(x − max x).
// operands e params 0
// %0 = leaf('x0') e T
// %1 = max(%0) r T
// %2 = sub(%0, %1) e T
// %3 = exp(%2) e T
// %4 = sum(%3) r T
// %5 = const(1.0) u T
// %6 = div(%5, %4) r T
// %7 = mul(%3, %6) e T
// out %7

struct Uniforms { zero: u32, items: u32, n: u32, start: u32, chunk: u32, chunks: u32, here: u32, inf: f32, nan: f32, length: f32 }
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read> in0: array<f32>;
@group(0) @binding(2) var<storage, read_write> out0: array<f32>;
var<workgroup> room0: array<vec2<u32>, 256>;

fn bits(x: f32) -> u32 { return bitcast<u32>(x); }

fn size_bits(x: f32) -> u32 { return bitcast<u32>(x) & 0x7fffffffu; }

fn hide(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ u.zero); }

fn is_nan(x: f32) -> bool { return size_bits(x) > 0x7f800000u; }

fn ordered(x: f32, y: f32) -> bool { return max(size_bits(x), size_bits(y)) <= 0x7f800000u; }

fn negative(x: f32) -> f32 { return bitcast<f32>(bits(x) ^ 0x80000000u); }

fn tame(x: f32, low: f32, high: f32) -> f32 { return clamp(select(x, 0.0, is_nan(x)), low, high); }

fn height(x: f32) -> i32 {
    let b = bitcast<i32>(x);
    return b ^ ((b >> 31u) & 0x7fffffff);
}

fn maximum(x: f32, y: f32) -> f32 {
    return select(u.nan, select(y, x, height(x) > height(y)), ordered(x, y));
}

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

const c5 = 1.0f;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let lane = lid % 64u;
    let team = (wid.x + wid.y * grid.x) * 4u + lid / 64u;
    let row = min(team, u.items - 1u);
    let n = select(0u, u.n, team < u.items);
    let base = row * u.n;
    var s1 = negative(u.inf);
    for (var col = lane; col < n; col += 64u) {
        let at = base + col;
        let v0 = in0[at];
        s1 = maximum(s1, v0);
    }
    room0[lid] = vec2<u32>(bits(s1), 0u);
    workgroupBarrier();
    for (var step = 32u; step > 0u; step = step >> 1u) {
        if (lane < step) {
            let t1 = bitcast<f32>(room0[lid + step].x);
            s1 = maximum(s1, t1);
            room0[lid] = vec2<u32>(bits(s1), 0u);
        }
        workgroupBarrier();
    }
    s1 = bitcast<f32>(room0[lid - lane].x);
    workgroupBarrier();
    let r1 = s1;
    var s4 = 0.0;
    for (var col = lane; col < n; col += 64u) {
        let at = base + col;
        let v0 = in0[at];
        let v2 = v0 - r1;
        let v3 = safe_exp(v2);
        s4 = s4 + v3;
    }
    room0[lid] = vec2<u32>(bits(s4), 0u);
    workgroupBarrier();
    for (var step = 32u; step > 0u; step = step >> 1u) {
        if (lane < step) {
            let t4 = bitcast<f32>(room0[lid + step].x);
            s4 = s4 + t4;
            room0[lid] = vec2<u32>(bits(s4), 0u);
        }
        workgroupBarrier();
    }
    s4 = bitcast<f32>(room0[lid - lane].x);
    workgroupBarrier();
    let r4 = s4;
    let r6 = quotient(c5, r4);
    for (var col = lane; col < n; col += 64u) {
        let at = base + col;
        let v0 = in0[at];
        let v2 = v0 - r1;
        let v3 = safe_exp(v2);
        let v7 = v3 * r6;
        out0[at] = v7;
    }
}
