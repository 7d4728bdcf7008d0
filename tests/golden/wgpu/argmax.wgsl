// argmax: x[...,n] -> k[...]:index, operands e.  Position of the largest element, int64.
// operands e params 0
// %0 = leaf('x0') e T
// %1 = argmax(%0) r index
// out %1

struct Uniforms { zero: u32, items: u32, n: u32, start: u32, chunk: u32, chunks: u32, here: u32, inf: f32, nan: f32, length: f32 }
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read> in0: array<f32>;
@group(0) @binding(2) var<storage, read_write> out0: array<vec2<u32>>;
var<workgroup> room0: array<vec2<u32>, 256>;

fn bits(x: f32) -> u32 { return bitcast<u32>(x); }

fn size_bits(x: f32) -> u32 { return bitcast<u32>(x) & 0x7fffffffu; }

fn is_nan(x: f32) -> bool { return size_bits(x) > 0x7f800000u; }

fn rank_high(x: f32) -> u32 {
    let b = select(bits(x), 0u, size_bits(x) == 0u);
    return select(select(b | 0x80000000u, ~b, b >= 0x80000000u), 0xffffffffu, is_nan(x));
}

fn better(s: vec2<u32>, t: vec2<u32>) -> vec2<u32> {
    return select(s, t, (t.x > s.x) | ((t.x == s.x) & (t.y < s.y)));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let lane = lid % 64u;
    let team = (wid.x + wid.y * grid.x) * 4u + lid / 64u;
    let row = min(team, u.items - 1u);
    let n = select(0u, u.n, team < u.items);
    let base = row * u.n;
    var s1 = vec2<u32>(0u, 0xffffffffu);
    for (var col = lane; col < n; col += 64u) {
        let at = base + col;
        let v0 = in0[at];
        s1 = better(s1, vec2<u32>(rank_high(v0), col));
    }
    room0[lid] = s1;
    workgroupBarrier();
    for (var step = 32u; step > 0u; step = step >> 1u) {
        if (lane < step) {
            let t1 = room0[lid + step];
            s1 = better(s1, t1);
            room0[lid] = s1;
        }
        workgroupBarrier();
    }
    s1 = room0[lid - lane];
    workgroupBarrier();
    let r1 = s1.y;
    if (lane == 0u && team < u.items) {
        out0[u.start + row] = vec2<u32>(r1, 0u);
    }
}
