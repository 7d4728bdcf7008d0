"""outer: one product an element, written as vec4s where rows allow."""

import struct
from functools import cache
from typing import Any

from trueno.backend import Call, Kernel

from trueno_wgpu.device.gpu import Gpu, Limits
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.dispatches import INVOCATIONS, Dispatch, Plans, Shape, run
from trueno_wgpu.kernels.memory import Band, bands, clashes
from trueno_wgpu.kernels.store import Store
from trueno_wgpu.kernels.table import KERNELS, RATES

HEAD = """\
struct Sizes {
    alpha: f32,
    count: u32, n: u32, top: u32,  // elements of the rows that are bound, and how many rows lie before
GIVEN}
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> y: array<KIND>;
@group(0) @binding(3) var<storage, read_write> out: array<KIND>;
"""
MAIN = """\
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) me: u32) {
    let at = ((wid.x + wid.y * groups.x) * 256u + me) * WIDTHu;
    if (at < sizes.count) {
        let row = sizes.top + at / sizes.n;
        let column = at % sizes.n;
        store(at, row, column, x[row] * y[column / WIDTHu]);
    }
"""


@cache
def shader(width: int, store: Store) -> Shader:
    kind = "f32" if width == 1 else "vec4<f32>"
    text = [store.sizes(HEAD).replace("KIND", kind), store.declarations(4), store.function(width)]
    text.append(MAIN.replace("WIDTH", str(width)) + store.end + "}\n")
    return Shader("outer", "\n".join(t for t in text if t), (False, False, True, *store.writes))


def dispatches(m: int, n: int, limits: Limits, store: Store) -> list[Dispatch]:
    width = 4 if n % 4 == 0 else 1
    planned = []
    for top, height in bands("outer", "the result", m, (n * 4,), limits):
        packed = struct.pack("<3I", height * n, n, top)
        groups = fold(-(-height * n // (INVOCATIONS * width)), limits.groups)
        out = None if height == m else Band(top, height, n * 4)
        planned.append(Dispatch(shader(width, store), packed, groups, ((0, None), (1, None)), out))
    return planned


@KERNELS.add("outer", rates=RATES)
def outer(gpu: Gpu, call: Call) -> Kernel:
    """x[m] y[n] -> out[m,n]."""
    store = Store(call.guarded)

    def make(x: Shape, y: Shape, out: Shape) -> list[Dispatch] | None:
        if len(x) != 1 or len(y) != 1 or out != x + y:
            return None
        return dispatches(*out, gpu.limits, store) if 0 not in out else []

    plans = Plans(make)

    def kernel(x: Any, y: Any, out: Any) -> int:
        planned = plans(x.shape, y.shape, out.shape)
        if planned is None or clashes(out, x, y):
            return -1
        # x and y may be one array: both are only read, and two bindings that read may share a buffer
        return run(gpu, planned, (x, y), out, guarded=call.guarded)

    return kernel
