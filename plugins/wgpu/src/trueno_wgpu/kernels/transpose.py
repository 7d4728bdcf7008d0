"""transpose: tiles of 32x32 through workgroup memory, so that reads and writes both run along rows.

A tile's rows are 33 words long there: a column then touches every bank once.  Words are copied as u32, bits and all.
"""

import struct
from typing import Any

from trueno.backend import Call, Kernel

from trueno_wgpu.device.gpu import Gpu, Limits
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.dispatches import Dispatch, Plans, Shape, run
from trueno_wgpu.kernels.memory import Band, bands, clashes
from trueno_wgpu.kernels.store import GUARD, Store
from trueno_wgpu.kernels.table import KERNELS, RATES

SIDE = 32

TEXT = """\
struct Sizes {
    alpha: f32,
    m: u32, n: u32,  // of the whole matrix
    top: u32, height: u32, left: u32, width: u32,  // of the block: rows of x that are bound, rows of y that are
    groups: u32, across: u32,
}
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;
STATUSvar<workgroup> tile: array<array<u32, 33>, 32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) me: u32) {
    let group = wid.x + wid.y * groups.x;
    if (group >= sizes.groups) { return; }
    let top = group / sizes.across * 32u;
    let left = group % sizes.across * 32u;
    let along = me % 32u;
    let down = me / 32u;
    for (var r = down; r < 32u; r += 8u) {
        if (top + r < sizes.height && left + along < sizes.width) {
            tile[r][along] = x[(top + r) * sizes.n + sizes.left + left + along];
        }
    }
    workgroupBarrier();
    for (var r = down; r < 32u; r += 8u) {
        if (left + r < sizes.width && top + along < sizes.height) {
            let word = tile[along][r];
            out[(left + r) * sizes.m + sizes.top + top + along] = word;
LOOK        }
    }
"""


def _shader(guarded: bool) -> Shader:
    store = Store(guarded)
    text = TEXT.replace("STATUS", store.declarations(3) + "\n" if guarded else "")
    text = text.replace("LOOK", "            look(bitcast<f32>(word));\n" if guarded else "")
    assert not guarded or GUARD in text
    return Shader("transpose", text + store.end + "}\n", (False, True, *store.writes))


def dispatches(m: int, n: int, limits: Limits, shader: Shader) -> list[Dispatch]:
    """Blocks of x's rows by blocks of y's, each of them as many as a binding holds: most often one."""
    planned = []
    tops, lefts = (bands("transpose", "x", *size, limits) for size in ((m, (n * 4,)), (n, (m * 4,))))
    for top, height in tops:
        for left, width in lefts:
            x = None if height == m else Band(top, height, n * 4)
            out = None if width == n else Band(left, width, m * 4)
            across = -(-width // SIDE)
            groups = -(-height // SIDE) * across
            packed = struct.pack("<8I", m, n, top, height, left, width, groups, across)
            planned.append(Dispatch(shader, packed, fold(groups, limits.groups), ((0, x),), out))
    return planned


@KERNELS.add("transpose", rates=RATES)
def transpose(gpu: Gpu, call: Call) -> Kernel:
    """x[m,n] -> out[n,m]."""
    shader = _shader(call.guarded)

    def make(x: Shape, out: Shape) -> list[Dispatch] | None:
        if len(x) != 2 or out != x[::-1]:
            return None
        return dispatches(*x, gpu.limits, shader) if 0 not in x else []

    plans = Plans(make)

    def kernel(x: Any, out: Any) -> int:
        planned = plans(x.shape, out.shape)
        if planned is None or clashes(out, x):
            return -1
        return run(gpu, planned, (x,), out, guarded=call.guarded)

    return kernel
