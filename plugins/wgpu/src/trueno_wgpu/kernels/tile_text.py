"""What the texts of matrix products share: uniforms, reads, stores, and which tile a workgroup makes.

What lies outside of an operand is 0 without a branch: the first element is read instead, and not used.  With a branch
for each of an invocation's reads SwiftShader compiled a kernel for more than five minutes.
"""

from typing import Literal

Reads = Literal["whole", "fours", "ones"]
"""How memory is read and written: sizes are multiples of the tile's; rows are multiples of four; single elements."""

SIZES = """\
struct Sizes {
    alpha: f32,
    m: u32, n: u32, k: u32,
    begin: u32, end: u32,  // of k, in this dispatch
    share: u32, splits: u32,  // k of one split
    skip: u32,  // rows of B that lie before what is bound of it
    add: u32,  // whether C holds a part of the sums
    groups: u32, down: u32, across: u32,  // workgroups, tiles along m, tiles along n
    first: u32, pitch: u32,  // of C: the column where this product begins, elements from row to row
    above: u32,  // rows of the result before this product's
    lead: vec4<u32>, a_step: vec4<u32>, b_step: vec4<u32>,  // leading axes, and elements from one to the next
GIVEN}
@group(0) @binding(0) var<uniform> sizes: Sizes;
"""

READ = {
    "whole": """\
fn NAME4(row: u32, k: u32) -> vec4<f32> {
    return ARRAY[(base_NAME + row * PITCH + k) / 4u];
}
""",
    "fours": """\
fn NAME4(row: u32, k: u32) -> vec4<f32> {
    let inside = (row < ROWS) & (k < COLUMNS);
    return select(vec4<f32>(), ARRAY[select(0u, (base_NAME + row * PITCH + k) / 4u, inside)], inside);
}
""",
    "ones": """\
fn NAME1(row: u32, k: u32) -> f32 {
    let inside = (row < ROWS) & (k < COLUMNS);
    return select(0.0, ARRAY[select(0u, base_NAME + row * PITCH + k, inside)], inside);
}
fn NAME4(row: u32, k: u32) -> vec4<f32> {
    return vec4<f32>(NAME1(row, k), NAME1(row, k + 1u), NAME1(row, k + 2u), NAME1(row, k + 3u));
}
""",
}

PUT = {
    "whole": "    store(base_c + row * sizes.pitch + column, first_row + row, column, v);\n",
    "fours": """\
    if ((row < sizes.m) & (column < sizes.n)) {
        store(base_c + row * sizes.pitch + column, first_row + row, column, v);
    }
""",
    "ones": """\
    if (row < sizes.m) {
        let at = base_c + row * sizes.pitch + column;
        if (column < sizes.n) { store(at, first_row + row, column, v.x); }
        if (column + 1u < sizes.n) { store(at + 1u, first_row + row, column + 1u, v.y); }
        if (column + 2u < sizes.n) { store(at + 2u, first_row + row, column + 2u, v.z); }
        if (column + 3u < sizes.n) { store(at + 3u, first_row + row, column + 3u, v.w); }
    }
""",
}

PLACE = """\
    let group = wid.x + wid.y * groups.x;
    if (group >= sizes.groups) { return; }
    let tiles = sizes.down * sizes.across;
    let tile = group % tiles;
    let part = group / tiles;
    let split = part % sizes.splits;
    let band = tile / (GROUPu * sizes.across);
    let tall = min(sizes.down - band * GROUPu, GROUPu);
    let within = tile % (GROUPu * sizes.across);
    let top = (band * GROUPu + within % tall) * ROWSu;
    let left = within / tall * COLUMNSu;
    let begin = sizes.begin + split * sizes.share;
    let stop = min(begin + sizes.share, sizes.end);  // as a `let` it is known to be the same for all of a workgroup
    end = stop;
"""
BATCH = """\
    let batch = part / sizes.splits;
    first_row = batch * sizes.m;
    let index = vec4<u32>(
        batch / (sizes.lead.y * sizes.lead.z * sizes.lead.w), batch / (sizes.lead.z * sizes.lead.w) % sizes.lead.y,
        batch / sizes.lead.w % sizes.lead.z, batch % sizes.lead.w);
    base_a = dot(index, sizes.a_step);
    base_b = dot(index, sizes.b_step);
"""


def reader(name: str, reads: Reads, rows: str, columns: str, pitch: str) -> str:
    text = READ[reads]
    for word, value in {"NAME": name, "ARRAY": name, "ROWS": rows, "COLUMNS": columns, "PITCH": pitch}.items():
        text = text.replace(word, value)
    return text
