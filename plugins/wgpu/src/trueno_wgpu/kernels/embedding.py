"""embedding_lookup: rows of a table, copied as bits.

Indices are int64, so pairs of words, low first.  The op checks them on the host where it can; one that is outside
nevertheless reads nothing and gives a row of NaN.
"""

import struct
from functools import cache
from math import prod
from typing import Any

from trueno.backend import Call, Kernel

from trueno_wgpu.device.gpu import Gpu, Limits
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.dispatches import INVOCATIONS, Dispatch, Plans, Shape, run
from trueno_wgpu.kernels.memory import Band, bands, clashes
from trueno_wgpu.kernels.store import Store
from trueno_wgpu.kernels.table import KERNELS, RATES

TEXT = """\
struct Sizes {
    alpha: f32,
    count: u32, d: u32, v: u32,  // words of the result, of a row, and rows of the table
    top: u32, height: u32,  // rows of the table that are bound
}
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> table: array<KIND>;
@group(0) @binding(2) var<storage, read> indices: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read_write> out: array<KIND>;
STATUS
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) me: u32) {
    let at = (wid.x + wid.y * groups.x) * 256u + me;
    if (at < sizes.count) {
        let index = indices[at / sizes.d];
        if (index.y != 0u || index.x >= sizes.v) {
            let word = KIND(0x7fc00000u);
            out[at] = word;
LOOK        } else if (index.x >= sizes.top && index.x - sizes.top < sizes.height) {
            let word = table[(index.x - sizes.top) * sizes.d + at % sizes.d];
            out[at] = word;
LOOK        }
    }
"""


@cache
def shader(width: int, guarded: bool) -> Shader:
    store = Store(guarded)
    kind = "u32" if width == 1 else "vec4<u32>"
    looks = ["word"] if width == 1 else [f"word.{c}" for c in "xyzw"]
    look = "".join(f"            look(bitcast<f32>({w}));\n" for w in looks) if guarded else ""
    text = TEXT.replace("KIND", kind).replace("STATUS", store.declarations(4)).replace("LOOK", look)
    return Shader("embedding_lookup", text + store.end + "}\n", (False, False, True, *store.writes))


def dispatches(v: int, d: int, rows: int, limits: Limits, guarded: bool) -> list[Dispatch]:
    width = 4 if d % 4 == 0 else 1
    planned = []
    for first, count in bands("embedding_lookup", "the result", rows, (d * 4, 8), limits):
        some = count != rows
        indices, out = (Band(first, count, size) if some else None for size in (8, d * 4))
        for top, height in bands("embedding_lookup", "table", v, (d * 4,), limits):
            table = None if height == v else Band(top, height, d * 4)
            words = count * d // width
            packed = struct.pack("<5I", words, d // width, v, top, height)
            groups = fold(-(-words // INVOCATIONS), limits.groups)
            planned.append(Dispatch(shader(width, guarded), packed, groups, ((0, table), (1, indices)), out))
    return planned


@KERNELS.add("embedding_lookup", rates=RATES)
def embedding_lookup(gpu: Gpu, call: Call) -> Kernel:
    """table[v,d] i[...] -> out[...,d]."""

    def make(table: Shape, i: Shape, out: Shape) -> list[Dispatch] | None:
        if len(table) != 2 or out != (*i, table[1]) or (table[0] == 0 and 0 not in out):
            return None
        return dispatches(*table, prod(i), gpu.limits, call.guarded) if 0 not in out else []

    plans = Plans(make)

    def kernel(table: Any, i: Any, out: Any) -> int:
        planned = plans(table.shape, i.shape, out.shape)
        if planned is None or clashes(out, table, i):
            return -1
        return run(gpu, planned, (table, i), out, guarded=call.guarded)

    return kernel
