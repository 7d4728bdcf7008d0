// sum: x[...,n] -> r[...], operands e.  Σ x.
// operands e params 0
// %0 = leaf('x0') e T
// %1 = sum(%0) r T
// out %1

struct Uniforms { zero: u32, items: u32, n: u32, start: u32, chunk: u32, chunks: u32, here: u32, inf: f32, nan: f32, length: f32 }
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
    var pair1 = vec2<f32>(0.0, 0.0);
    for (var low = from_col + lane; low < stop; low += 8192u) {
        var s1 = 0.0;
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
                s1 = s1 + v0;
            }
        }
        pair1 = add_exactly(pair1, s1);
    }
    var s1 = whole(pair1);
    room0[lid] = vec2<u32>(bits(s1), 0u);
    workgroupBarrier();
    for (var step = 128u; step > 0u; step = step >> 1u) {
        if (lane < step) {
            let t1 = bitcast<f32>(room0[lid + step].x);
            s1 = s1 + t1;
            room0[lid] = vec2<u32>(bits(s1), 0u);
        }
        workgroupBarrier();
    }
    s1 = bitcast<f32>(room0[lid - lane].x);
    workgroupBarrier();
    if (lane == 0u && group < u.items * u.here) {
        scratch[(0u * u.items + row) * u.chunks + number] = vec2<u32>(bits(s1), 0u);
    }
}

// sum: x[...,n] -> r[...], operands e.  Σ x.
// operands e params 0
// %0 = leaf('x0') e T
// %1 = sum(%0) r T
// out %1

struct Uniforms { zero: u32, items: u32, n: u32, start: u32, chunk: u32, chunks: u32, here: u32, inf: f32, nan: f32, length: f32 }
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read_write> out0: array<f32>;
@group(0) @binding(2) var<storage, read> scratch: array<vec2<u32>>;
var<workgroup> room0: array<vec2<u32>, 256>;

fn bits(x: f32) -> u32 { return bitcast<u32>(x); }

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let lane = lid;
    let group = wid.x + wid.y * grid.x;
    let row = min(group, u.items - 1u);
    var s1 = 0.0;
    for (var c = lane; c < u.chunks; c += 256u) {
        let t1 = bitcast<f32>(scratch[(0u * u.items + row) * u.chunks + c].x);
        s1 = s1 + t1;
    }
    room0[lid] = vec2<u32>(bits(s1), 0u);
    workgroupBarrier();
    for (var step = 128u; step > 0u; step = step >> 1u) {
        if (lane < step) {
            let t1 = bitcast<f32>(room0[lid + step].x);
            s1 = s1 + t1;
            room0[lid] = vec2<u32>(bits(s1), 0u);
        }
        workgroupBarrier();
    }
    s1 = bitcast<f32>(room0[lid - lane].x);
    workgroupBarrier();
    let r1 = s1;
    if (lane == 0u && group < u.items) {
        out0[row] = r1;
    }
}
