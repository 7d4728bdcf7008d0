// add: x[...] y[...] -> z[...], operands ee.  x + y.
// operands e e params 0
// %0 = leaf('x0') e T
// %1 = leaf('x1') e T
// %2 = add(%0, %1) e T
// out %2

struct Uniforms { zero: u32, items: u32, n: u32, start: u32, chunk: u32, chunks: u32, here: u32, inf: f32, nan: f32, length: f32 }
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read_write> in0: array<f32>;
@group(0) @binding(2) var<storage, read> in1: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let first = (wid.x + wid.y * grid.x) * 1024u + lid;
    for (var k = 0u; k < 4u; k++) {
        let i = first + k * 256u;
        if (i < u.items) {
            let v0 = in0[i];
            let v1 = in1[i];
            let v2 = v0 + v1;
            in0[i] = v2;
        }
    }
}
