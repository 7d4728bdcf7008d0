// layer_norm: x[...,n] w[n] b[n] -> y[...,n], operands eww.  (x − mean) / √(variance + eps) · w + b.
// operands e w w params 1
// %0 = leaf('x0') e T
// %1 = leaf('x1') e T
// %2 = leaf('x2') e T
// %3 = param('p0') u T
// %4 = min(%0, 'numbers') r T
// %5 = max(%0, 'numbers') r T
// %6 = sum(%0) r T
// %7 = count() u T
// %8 = div(%6, %7) r T
// %9 = maximum(%4, %8) r T
// %10 = minimum(%5, %9) r T
// %11 = sub(%0, %10) e T
// %12 = mul(%11, %11) e T
// %13 = sum(%12) r T
// %14 = div(%13, %7) r T
// %15 = add(%3, %14) r T
// %16 = rsqrt(%15) r T
// %17 = mul(%11, %16) e T
// %18 = mul(%1, %17) e T
// %19 = add(%2, %18) e T
// out %19

struct Uniforms { zero: u32, items: u32, n: u32, start: u32, chunk: u32, chunks: u32, here: u32, inf: f32, nan: f32, length: f32, p0: f32 }
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read> in0: array<f32>;
@group(0) @binding(2) var<storage, read_write> scratch: array<vec2<u32>>;
var<workgroup> room0: array<vec2<u32>, 256>;
var<workgroup> room1: array<vec2<u32>, 256>;
var<workgroup> room2: array<vec2<u32>, 256>;

fn bits(x: f32) -> u32 { return bitcast<u32>(x); }

fn size_bits(x: f32) -> u32 { return bitcast<u32>(x) & 0x7fffffffu; }

fn hide(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ u.zero); }

fn ordered(x: f32, y: f32) -> bool { return max(size_bits(x), size_bits(y)) <= 0x7f800000u; }

fn negative(x: f32) -> f32 { return bitcast<f32>(bits(x) ^ 0x80000000u); }

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
    var s4 = u.inf;
    var s5 = negative(u.inf);
    var pair6 = vec2<f32>(0.0, 0.0);
    for (var low = from_col + lane; low < stop; low += 8192u) {
        var s6 = 0.0;
        let end = min(stop, low + 8192u);
        for (var near = low; near < end; near += 1024u) {
            let far1 = min(near + 256u, end - 1u);
            let far2 = min(near + 512u, end - 1u);
            let far3 = min(near + 768u, end - 1u);
            let all0 = vec4<f32>(in0[base + near], in0[base + far1], in0[base + far2], in0[base + far3]);
            for (var k = 0u; k < 4u; k++) {
                let col = near + k * 256u;
                if (col >= end) { break; }
                let v0 = all0[k];
                let at = base + col;
                s4 = minimum(s4, v0);
                s5 = maximum(s5, v0);
                s6 = s6 + v0;
            }
        }
        pair6 = add_exactly(pair6, s6);
    }
    var s6 = whole(pair6);
    room0[lid] = vec2<u32>(bits(s4), 0u);
    room1[lid] = vec2<u32>(bits(s5), 0u);
    room2[lid] = vec2<u32>(bits(s6), 0u);
    workgroupBarrier();
    for (var step = 128u; step > 0u; step = step >> 1u) {
        if (lane < step) {
            let t4 = bitcast<f32>(room0[lid + step].x);
            s4 = minimum(s4, t4);
            room0[lid] = vec2<u32>(bits(s4), 0u);
            let t5 = bitcast<f32>(room1[lid + step].x);
            s5 = maximum(s5, t5);
            room1[lid] = vec2<u32>(bits(s5), 0u);
            let t6 = bitcast<f32>(room2[lid + step].x);
            s6 = s6 + t6;
            room2[lid] = vec2<u32>(bits(s6), 0u);
        }
        workgroupBarrier();
    }
    s4 = bitcast<f32>(room0[lid - lane].x);
    s5 = bitcast<f32>(room1[lid - lane].x);
    s6 = bitcast<f32>(room2[lid - lane].x);
    workgroupBarrier();
    if (lane == 0u && group < u.items * u.here) {
        scratch[(0u * u.items + row) * u.chunks + number] = vec2<u32>(bits(s4), 0u);
        scratch[(1u * u.items + row) * u.chunks + number] = vec2<u32>(bits(s5), 0u);
        scratch[(2u * u.items + row) * u.chunks + number] = vec2<u32>(bits(s6), 0u);
    }
}

// layer_norm: x[...,n] w[n] b[n] -> y[...,n], operands eww.  (x − mean) / √(variance + eps) · w + b.
// operands e w w params 1
// %0 = leaf('x0') e T
// %1 = leaf('x1') e T
// %2 = leaf('x2') e T
// %3 = param('p0') u T
// %4 = min(%0, 'numbers') r T
// %5 = max(%0, 'numbers') r T
// %6 = sum(%0) r T
// %7 = count() u T
// %8 = div(%6, %7) r T
// %9 = maximum(%4, %8) r T
// %10 = minimum(%5, %9) r T
// %11 = sub(%0, %10) e T
// %12 = mul(%11, %11) e T
// %13 = sum(%12) r T
// %14 = div(%13, %7) r T
// %15 = add(%3, %14) r T
// %16 = rsqrt(%15) r T
// %17 = mul(%11, %16) e T
// %18 = mul(%1, %17) e T
// %19 = add(%2, %18) e T
// out %19

struct Uniforms { zero: u32, items: u32, n: u32, start: u32, chunk: u32, chunks: u32, here: u32, inf: f32, nan: f32, length: f32, p0: f32 }
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read> in0: array<f32>;
@group(0) @binding(2) var<storage, read_write> scratch: array<vec2<u32>>;
var<workgroup> room0: array<vec2<u32>, 256>;
var<workgroup> room1: array<vec2<u32>, 256>;
var<workgroup> room2: array<vec2<u32>, 256>;

fn bits(x: f32) -> u32 { return bitcast<u32>(x); }

fn size_bits(x: f32) -> u32 { return bitcast<u32>(x) & 0x7fffffffu; }

fn hide(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ u.zero); }

fn ordered(x: f32, y: f32) -> bool { return max(size_bits(x), size_bits(y)) <= 0x7f800000u; }

fn negative(x: f32) -> f32 { return bitcast<f32>(bits(x) ^ 0x80000000u); }

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
    var s4 = u.inf;
    var s5 = negative(u.inf);
    var s6 = 0.0;
    for (var c = lane; c < u.chunks; c += 256u) {
        let t4 = bitcast<f32>(scratch[(0u * u.items + row) * u.chunks + c].x);
        s4 = minimum(s4, t4);
        let t5 = bitcast<f32>(scratch[(1u * u.items + row) * u.chunks + c].x);
        s5 = maximum(s5, t5);
        let t6 = bitcast<f32>(scratch[(2u * u.items + row) * u.chunks + c].x);
        s6 = s6 + t6;
    }
    room0[lid] = vec2<u32>(bits(s4), 0u);
    room1[lid] = vec2<u32>(bits(s5), 0u);
    room2[lid] = vec2<u32>(bits(s6), 0u);
    workgroupBarrier();
    for (var step = 128u; step > 0u; step = step >> 1u) {
        if (lane < step) {
            let t4 = bitcast<f32>(room0[lid + step].x);
            s4 = minimum(s4, t4);
            room0[lid] = vec2<u32>(bits(s4), 0u);
            let t5 = bitcast<f32>(room1[lid + step].x);
            s5 = maximum(s5, t5);
            room1[lid] = vec2<u32>(bits(s5), 0u);
            let t6 = bitcast<f32>(room2[lid + step].x);
            s6 = s6 + t6;
            room2[lid] = vec2<u32>(bits(s6), 0u);
        }
        workgroupBarrier();
    }
    s4 = bitcast<f32>(room0[lid - lane].x);
    s5 = bitcast<f32>(room1[lid - lane].x);
    s6 = bitcast<f32>(room2[lid - lane].x);
    workgroupBarrier();
    let r4 = s4;
    let r5 = s5;
    let r6 = s6;
    let r8 = quotient(r6, u.length);
    let r9 = maximum(r4, r8);
    let r10 = minimum(r5, r9);
    var pair13 = vec2<f32>(0.0, 0.0);
    for (var low = from_col + lane; low < stop; low += 8192u) {
        var s13 = 0.0;
        let end = min(stop, low + 8192u);
        for (var near = low; near < end; near += 1024u) {
            let far1 = min(near + 256u, end - 1u);
            let far2 = min(near + 512u, end - 1u);
            let far3 = min(near + 768u, end - 1u);
            let all0 = vec4<f32>(in0[base + near], in0[base + far1], in0[base + far2], in0[base + far3]);
            for (var k = 0u; k < 4u; k++) {
                let col = near + k * 256u;
                if (col >= end) { break; }
                let v0 = all0[k];
                let at = base + col;
                let v11 = v0 - r10;
                let v12 = hide(v11) * hide(v11);
                s13 = s13 + v12;
            }
        }
        pair13 = add_exactly(pair13, s13);
    }
    var s13 = whole(pair13);
    room0[lid] = vec2<u32>(bits(s13), 0u);
    workgroupBarrier();
    for (var step = 128u; step > 0u; step = step >> 1u) {
        if (lane < step) {
            let t13 = bitcast<f32>(room0[lid + step].x);
            s13 = s13 + t13;
            room0[lid] = vec2<u32>(bits(s13), 0u);
        }
        workgroupBarrier();
    }
    s13 = bitcast<f32>(room0[lid - lane].x);
    workgroupBarrier();
    if (lane == 0u && group < u.items * u.here) {
        scratch[(3u * u.items + row) * u.chunks + number] = vec2<u32>(bits(s13), 0u);
    }
}

// layer_norm: x[...,n] w[n] b[n] -> y[...,n], operands eww.  (x − mean) / √(variance + eps) · w + b.
// operands e w w params 1
// %0 = leaf('x0') e T
// %1 = leaf('x1') e T
// %2 = leaf('x2') e T
// %3 = param('p0') u T
// %4 = min(%0, 'numbers') r T
// %5 = max(%0, 'numbers') r T
// %6 = sum(%0) r T
// %7 = count() u T
// %8 = div(%6, %7) r T
// %9 = maximum(%4, %8) r T
// %10 = minimum(%5, %9) r T
// %11 = sub(%0, %10) e T
// %12 = mul(%11, %11) e T
// %13 = sum(%12) r T
// %14 = div(%13, %7) r T
// %15 = add(%3, %14) r T
// %16 = rsqrt(%15) r T
// %17 = mul(%11, %16) e T
// %18 = mul(%1, %17) e T
// %19 = add(%2, %18) e T
// out %19

struct Uniforms { zero: u32, items: u32, n: u32, start: u32, chunk: u32, chunks: u32, here: u32, inf: f32, nan: f32, length: f32, p0: f32 }
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read> in0: array<f32>;
@group(0) @binding(2) var<storage, read> in1: array<f32>;
@group(0) @binding(3) var<storage, read> in2: array<f32>;
@group(0) @binding(4) var<storage, read_write> out0: array<f32>;
@group(0) @binding(5) var<storage, read> scratch: array<vec2<u32>>;
var<workgroup> room0: array<vec2<u32>, 256>;
var<workgroup> room1: array<vec2<u32>, 256>;
var<workgroup> room2: array<vec2<u32>, 256>;

fn bits(x: f32) -> u32 { return bitcast<u32>(x); }

fn size_bits(x: f32) -> u32 { return bitcast<u32>(x) & 0x7fffffffu; }

fn hide(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ u.zero); }

fn is_nan(x: f32) -> bool { return size_bits(x) > 0x7f800000u; }

fn ordered(x: f32, y: f32) -> bool { return max(size_bits(x), size_bits(y)) <= 0x7f800000u; }

fn with_sign(x: f32, s: f32) -> f32 { return bitcast<f32>(size_bits(x) | (bits(hide(s)) & 0x80000000u)); }

fn negative(x: f32) -> f32 { return bitcast<f32>(bits(x) ^ 0x80000000u); }

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
    var s4 = u.inf;
    var s5 = negative(u.inf);
    var s6 = 0.0;
    for (var c = lane; c < u.chunks; c += 256u) {
        let t4 = bitcast<f32>(scratch[(0u * u.items + row) * u.chunks + c].x);
        s4 = minimum(s4, t4);
        let t5 = bitcast<f32>(scratch[(1u * u.items + row) * u.chunks + c].x);
        s5 = maximum(s5, t5);
        let t6 = bitcast<f32>(scratch[(2u * u.items + row) * u.chunks + c].x);
        s6 = s6 + t6;
    }
    room0[lid] = vec2<u32>(bits(s4), 0u);
    room1[lid] = vec2<u32>(bits(s5), 0u);
    room2[lid] = vec2<u32>(bits(s6), 0u);
    workgroupBarrier();
    for (var step = 128u; step > 0u; step = step >> 1u) {
        if (lane < step) {
            let t4 = bitcast<f32>(room0[lid + step].x);
            s4 = minimum(s4, t4);
            room0[lid] = vec2<u32>(bits(s4), 0u);
            let t5 = bitcast<f32>(room1[lid + step].x);
            s5 = maximum(s5, t5);
            room1[lid] = vec2<u32>(bits(s5), 0u);
            let t6 = bitcast<f32>(room2[lid + step].x);
            s6 = s6 + t6;
            room2[lid] = vec2<u32>(bits(s6), 0u);
        }
        workgroupBarrier();
    }
    s4 = bitcast<f32>(room0[lid - lane].x);
    s5 = bitcast<f32>(room1[lid - lane].x);
    s6 = bitcast<f32>(room2[lid - lane].x);
    workgroupBarrier();
    let r4 = s4;
    let r5 = s5;
    let r6 = s6;
    let r8 = quotient(r6, u.length);
    let r9 = maximum(r4, r8);
    let r10 = minimum(r5, r9);
    var s13 = 0.0;
    for (var c = lane; c < u.chunks; c += 256u) {
        let t13 = bitcast<f32>(scratch[(3u * u.items + row) * u.chunks + c].x);
        s13 = s13 + t13;
    }
    room0[lid] = vec2<u32>(bits(s13), 0u);
    workgroupBarrier();
    for (var step = 128u; step > 0u; step = step >> 1u) {
        if (lane < step) {
            let t13 = bitcast<f32>(room0[lid + step].x);
            s13 = s13 + t13;
            room0[lid] = vec2<u32>(bits(s13), 0u);
        }
        workgroupBarrier();
    }
    s13 = bitcast<f32>(room0[lid - lane].x);
    workgroupBarrier();
    let r13 = s13;
    let r14 = quotient(r13, u.length);
    let r15 = u.p0 + r14;
    let r16 = inverse_root(r15);
    for (var near = from_col + lane; near < stop; near += 1024u) {
        let far1 = min(near + 256u, stop - 1u);
        let far2 = min(near + 512u, stop - 1u);
        let far3 = min(near + 768u, stop - 1u);
        let all0 = vec4<f32>(in0[base + near], in0[base + far1], in0[base + far2], in0[base + far3]);
        let all1 = vec4<f32>(in1[near - skipped], in1[far1 - skipped], in1[far2 - skipped], in1[far3 - skipped]);
        let all2 = vec4<f32>(in2[near - skipped], in2[far1 - skipped], in2[far2 - skipped], in2[far3 - skipped]);
        for (var k = 0u; k < 4u; k++) {
            let col = near + k * 256u;
            if (col >= stop) { break; }
            let v0 = all0[k];
            let v1 = all1[k];
            let v2 = all2[k];
            let at = base + col;
            let v11 = v0 - r10;
            let v17 = hide(v11) * r16;
            let v18 = v1 * hide(v17);
            let v19 = v2 + v18;
            out0[at] = v19;
        }
    }
}
