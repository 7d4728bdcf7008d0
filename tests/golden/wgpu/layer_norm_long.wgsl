// layer_norm: x[...,n] w[n] b[n] -> y[...,n], operands eww.  (x − mean) / √(variance + eps) · w + b.
// operands e w w params 1
// %0 = leaf('x0') e T
// %1 = leaf('x1') e T
// %2 = leaf('x2') e T
// %3 = param('p0') u T
// %4 = sum(%0) r T
// %5 = count() u T
// %6 = div(%4, %5) r T
// %7 = sub(%0, %6) e T
// %8 = mul(%7, %7) e T
// %9 = sum(%8) r T
// %10 = div(%9, %5) r T
// %11 = add(%3, %10) r T
// %12 = rsqrt(%11) r T
// %13 = mul(%7, %12) e T
// %14 = mul(%1, %13) e T
// %15 = add(%2, %14) e T
// out %15

struct Uniforms { zero: u32, items: u32, n: u32, start: u32, chunk: u32, chunks: u32, here: u32, inf: f32, nan: f32, length: f32, p0: f32 }
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read> in0: array<f32>;
@group(0) @binding(2) var<storage, read_write> scratch: array<vec2<u32>>;
var<workgroup> room0: array<vec2<u32>, 256>;

fn bits(x: f32) -> u32 { return bitcast<u32>(x); }

fn size_bits(x: f32) -> u32 { return bitcast<u32>(x) & 0x7fffffffu; }

fn hide(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ u.zero); }

fn add_exactly(s: vec2<f32>, v: f32) -> vec2<f32> {
    let t = hide(s.x + v);
    let b = hide(t - s.x);
    return vec2<f32>(t, s.y + ((s.x - hide(t - b)) + (v - b)));
}

fn whole(s: vec2<f32>) -> f32 {
    return select(s.x + s.y, s.x, size_bits(s.x) >= 0x7f800000u);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let lane = lid;
    let group = wid.x + wid.y * grid.x;
    let row = min(group / u.here, u.items - 1u);
    let number = u.start + group % u.here;
    let skipped = u.start * u.chunk;
    let base = row * u.n - skipped;
    let from_col = number * u.chunk;
    let stop = select(from_col, min(from_col + u.chunk, u.n), group < u.items * u.here);
    var pair4 = vec2<f32>(0.0, 0.0);
    for (var low = from_col + lane; low < stop; low += 8192u) {
        var s4 = 0.0;
        let end = min(stop, low + 8192u);
        for (var col = low; col < end; col += 256u) {
            let at = base + col;
            let v0 = in0[at];
            s4 = s4 + v0;
        }
        pair4 = add_exactly(pair4, s4);
    }
    var s4 = whole(pair4);
    room0[lid] = vec2<u32>(bits(s4), 0u);
    workgroupBarrier();
    for (var step = 128u; step > 0u; step = step >> 1u) {
        if (lane < step) {
            let t4 = bitcast<f32>(room0[lid + step].x);
            s4 = s4 + t4;
            room0[lid] = vec2<u32>(bits(s4), 0u);
        }
        workgroupBarrier();
    }
    s4 = bitcast<f32>(room0[lid - lane].x);
    workgroupBarrier();
    if (lane == 0u && group < u.items * u.here) {
        scratch[(0u * u.items + row) * u.chunks + number] = vec2<u32>(bits(s4), 0u);
    }
}

// layer_norm: x[...,n] w[n] b[n] -> y[...,n], operands eww.  (x − mean) / √(variance + eps) · w + b.
// operands e w w params 1
// %0 = leaf('x0') e T
// %1 = leaf('x1') e T
// %2 = leaf('x2') e T
// %3 = param('p0') u T
// %4 = sum(%0) r T
// %5 = count() u T
// %6 = div(%4, %5) r T
// %7 = sub(%0, %6) e T
// %8 = mul(%7, %7) e T
// %9 = sum(%8) r T
// %10 = div(%9, %5) r T
// %11 = add(%3, %10) r T
// %12 = rsqrt(%11) r T
// %13 = mul(%7, %12) e T
// %14 = mul(%1, %13) e T
// %15 = add(%2, %14) e T
// out %15

struct Uniforms { zero: u32, items: u32, n: u32, start: u32, chunk: u32, chunks: u32, here: u32, inf: f32, nan: f32, length: f32, p0: f32 }
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read> in0: array<f32>;
@group(0) @binding(2) var<storage, read_write> scratch: array<vec2<u32>>;
var<workgroup> room0: array<vec2<u32>, 256>;

fn bits(x: f32) -> u32 { return bitcast<u32>(x); }

fn size_bits(x: f32) -> u32 { return bitcast<u32>(x) & 0x7fffffffu; }

fn hide(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ u.zero); }

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

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let lane = lid;
    let group = wid.x + wid.y * grid.x;
    let row = min(group / u.here, u.items - 1u);
    let number = u.start + group % u.here;
    let skipped = u.start * u.chunk;
    let base = row * u.n - skipped;
    let from_col = number * u.chunk;
    let stop = select(from_col, min(from_col + u.chunk, u.n), group < u.items * u.here);
    var s4 = 0.0;
    for (var c = lane; c < u.chunks; c += 256u) {
        let t4 = bitcast<f32>(scratch[(0u * u.items + row) * u.chunks + c].x);
        s4 = s4 + t4;
    }
    room0[lid] = vec2<u32>(bits(s4), 0u);
    workgroupBarrier();
    for (var step = 128u; step > 0u; step = step >> 1u) {
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
    let r6 = quotient(r4, u.length);
    var pair9 = vec2<f32>(0.0, 0.0);
    for (var low = from_col + lane; low < stop; low += 8192u) {
        var s9 = 0.0;
        let end = min(stop, low + 8192u);
        for (var col = low; col < end; col += 256u) {
            let at = base + col;
            let v0 = in0[at];
            let v7 = v0 - r6;
            let v8 = hide(v7) * hide(v7);
            s9 = s9 + v8;
        }
        pair9 = add_exactly(pair9, s9);
    }
    var s9 = whole(pair9);
    room0[lid] = vec2<u32>(bits(s9), 0u);
    workgroupBarrier();
    for (var step = 128u; step > 0u; step = step >> 1u) {
        if (lane < step) {
            let t9 = bitcast<f32>(room0[lid + step].x);
            s9 = s9 + t9;
            room0[lid] = vec2<u32>(bits(s9), 0u);
        }
        workgroupBarrier();
    }
    s9 = bitcast<f32>(room0[lid - lane].x);
    workgroupBarrier();
    if (lane == 0u && group < u.items * u.here) {
        scratch[(1u * u.items + row) * u.chunks + number] = vec2<u32>(bits(s9), 0u);
    }
}

// layer_norm: x[...,n] w[n] b[n] -> y[...,n], operands eww.  (x − mean) / √(variance + eps) · w + b.
// operands e w w params 1
// %0 = leaf('x0') e T
// %1 = leaf('x1') e T
// %2 = leaf('x2') e T
// %3 = param('p0') u T
// %4 = sum(%0) r T
// %5 = count() u T
// %6 = div(%4, %5) r T
// %7 = sub(%0, %6) e T
// %8 = mul(%7, %7) e T
// %9 = sum(%8) r T
// %10 = div(%9, %5) r T
// %11 = add(%3, %10) r T
// %12 = rsqrt(%11) r T
// %13 = mul(%7, %12) e T
// %14 = mul(%1, %13) e T
// %15 = add(%2, %14) e T
// out %15

struct Uniforms { zero: u32, items: u32, n: u32, start: u32, chunk: u32, chunks: u32, here: u32, inf: f32, nan: f32, length: f32, p0: f32 }
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read> in0: array<f32>;
@group(0) @binding(2) var<storage, read> in1: array<f32>;
@group(0) @binding(3) var<storage, read> in2: array<f32>;
@group(0) @binding(4) var<storage, read_write> out0: array<f32>;
@group(0) @binding(5) var<storage, read> scratch: array<vec2<u32>>;
var<workgroup> room0: array<vec2<u32>, 256>;

fn bits(x: f32) -> u32 { return bitcast<u32>(x); }

fn size_bits(x: f32) -> u32 { return bitcast<u32>(x) & 0x7fffffffu; }

fn hide(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ u.zero); }

fn is_nan(x: f32) -> bool { return size_bits(x) > 0x7f800000u; }

fn with_sign(x: f32, s: f32) -> f32 { return bitcast<f32>(size_bits(x) | (bits(s) & 0x80000000u)); }

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
    let lane = lid;
    let group = wid.x + wid.y * grid.x;
    let row = min(group / u.here, u.items - 1u);
    let number = u.start + group % u.here;
    let skipped = u.start * u.chunk;
    let base = row * u.n - skipped;
    let from_col = number * u.chunk;
    let stop = select(from_col, min(from_col + u.chunk, u.n), group < u.items * u.here);
    var s4 = 0.0;
    for (var c = lane; c < u.chunks; c += 256u) {
        let t4 = bitcast<f32>(scratch[(0u * u.items + row) * u.chunks + c].x);
        s4 = s4 + t4;
    }
    room0[lid] = vec2<u32>(bits(s4), 0u);
    workgroupBarrier();
    for (var step = 128u; step > 0u; step = step >> 1u) {
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
    let r6 = quotient(r4, u.length);
    var s9 = 0.0;
    for (var c = lane; c < u.chunks; c += 256u) {
        let t9 = bitcast<f32>(scratch[(1u * u.items + row) * u.chunks + c].x);
        s9 = s9 + t9;
    }
    room0[lid] = vec2<u32>(bits(s9), 0u);
    workgroupBarrier();
    for (var step = 128u; step > 0u; step = step >> 1u) {
        if (lane < step) {
            let t9 = bitcast<f32>(room0[lid + step].x);
            s9 = s9 + t9;
            room0[lid] = vec2<u32>(bits(s9), 0u);
        }
        workgroupBarrier();
    }
    s9 = bitcast<f32>(room0[lid - lane].x);
    workgroupBarrier();
    let r9 = s9;
    let r10 = quotient(r9, u.length);
    let r11 = u.p0 + r10;
    let r12 = inverse_root(r11);
    for (var col = from_col + lane; col < stop; col += 256u) {
        let at = base + col;
        let v0 = in0[at];
        let v1 = in1[col - skipped];
        let v2 = in2[col - skipped];
        let v7 = v0 - r6;
        let v13 = hide(v7) * r12;
        let v14 = v1 * hide(v13);
        let v15 = v2 + v14;
        out0[at] = v15;
    }
}
