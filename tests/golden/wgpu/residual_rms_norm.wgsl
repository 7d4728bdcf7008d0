// residual_rms_norm: x[...,n] residual[...,n] w[n] -> h[...,n] y[...,n], operands eew.  h = x + residual and y = rms_norm(h, w), in one read of each.
// operands e e w params 1
// %0 = leaf('x0') e T
// %1 = leaf('x1') e T
// %2 = leaf('x2') e T
// %3 = param('p0') u T
// %4 = add(%0, %1) e T
// %5 = mul(%4, %4) e T
// %6 = sum(%5) r T
// %7 = count() u T
// %8 = div(%6, %7) r T
// %9 = add(%3, %8) r T
// %10 = rsqrt(%9) r T
// %11 = mul(%4, %10) e T
// %12 = mul(%2, %11) e T
// out %4 %12

struct Uniforms { zero: u32, items: u32, n: u32, start: u32, chunk: u32, chunks: u32, here: u32, inf: f32, nan: f32, length: f32, p0: f32 }
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read> in0: array<f32>;
@group(0) @binding(2) var<storage, read> in1: array<f32>;
@group(0) @binding(3) var<storage, read> in2: array<f32>;
@group(0) @binding(4) var<storage, read_write> out0: array<f32>;
@group(0) @binding(5) var<storage, read_write> out1: array<f32>;
var<workgroup> room0: array<vec2<u32>, 256>;

fn bits(x: f32) -> u32 { return bitcast<u32>(x); }

fn size_bits(x: f32) -> u32 { return bitcast<u32>(x) & 0x7fffffffu; }

fn hide(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ u.zero); }

fn is_nan(x: f32) -> bool { return size_bits(x) > 0x7f800000u; }

fn with_sign(x: f32, s: f32) -> f32 { return bitcast<f32>(size_bits(x) | (bits(hide(s)) & 0x80000000u)); }

fn add_exactly(s: vec2<f32>, v: f32) -> vec2<f32> {
    let t = hide(s.x + v);
    let b = hide(t - s.x);
    return vec2<f32>(t, s.y + ((s.x - hide(t - b)) + (v - b)));
}

fn whole(s: vec2<f32>) -> f32 {
    return select(s.x + s.y, s.x, size_bits(s.x) >= 0x7f800000u);
}

fn quotient(x: f32, y: f32) -> f32 {
    let far = select(1.0, 0.25, size_bits(y) >= 0x7e800000u);
    return (x / (y * far)) * far;
}

fn inverse_root(x: f32) -> f32 {
    let b = bits(x);
    let z = select(inverseSqrt(x), 0.0, b == 0x7f800000u);
    let y = select(z, u.nan, (b > 0x80000000u) | is_nan(x));
    return select(y, with_sign(u.inf, x), size_bits(x) == 0u);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let lane = lid % 256u;
    let team = (wid.x + wid.y * grid.x) * 1u + lid / 256u;
    let row = min(team, u.items - 1u);
    let n = select(0u, u.n, team < u.items);
    let base = row * u.n;
    var pair6 = vec2<f32>(0.0, 0.0);
    for (var low = lane; low < n; low += 8192u) {
        var s6 = 0.0;
        let end = min(n, low + 8192u);
        for (var near = low; near < end; near += 1024u) {
            let far1 = min(near + 256u, end - 1u);
            let far2 = min(near + 512u, end - 1u);
            let far3 = min(near + 768u, end - 1u);
            let all0 = vec4<f32>(in0[base + near], in0[base + far1], in0[base + far2], in0[base + far3]);
            let all1 = vec4<f32>(in1[base + near], in1[base + far1], in1[base + far2], in1[base + far3]);
            for (var k = 0u; k < 4u; k++) {
                let col = near + k * 256u;
                if (col >= end) { break; }
                let v0 = all0[k];
                let v1 = all1[k];
                let at = base + col;
                let v4 = v0 + v1;
                let v5 = hide(v4) * hide(v4);
                s6 = s6 + v5;
                out0[at] = v4;
            }
        }
        pair6 = add_exactly(pair6, s6);
    }
    var s6 = whole(pair6);
    room0[lid] = vec2<u32>(bits(s6), 0u);
    workgroupBarrier();
    for (var step = 128u; step > 0u; step = step >> 1u) {
        if (lane < step) {
            let t6 = bitcast<f32>(room0[lid + step].x);
            s6 = s6 + t6;
            room0[lid] = vec2<u32>(bits(s6), 0u);
        }
        workgroupBarrier();
    }
    s6 = bitcast<f32>(room0[lid - lane].x);
    workgroupBarrier();
    let r6 = s6;
    let r8 = quotient(r6, u.length);
    let r9 = u.p0 + r8;
    let r10 = inverse_root(r9);
    for (var near = lane; near < n; near += 1024u) {
        let far1 = min(near + 256u, n - 1u);
        let far2 = min(near + 512u, n - 1u);
        let far3 = min(near + 768u, n - 1u);
        let all2 = vec4<f32>(in2[near], in2[far1], in2[far2], in2[far3]);
        let all4 = vec4<f32>(out0[base + near], out0[base + far1], out0[base + far2], out0[base + far3]);
        for (var k = 0u; k < 4u; k++) {
            let col = near + k * 256u;
            if (col >= n) { break; }
            let v2 = all2[k];
            let v4 = all4[k];
            let at = base + col;
            let v11 = hide(v4) * r10;
            let v12 = v2 * hide(v11);
            out1[at] = v12;
        }
    }
}
