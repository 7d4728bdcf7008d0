"""concatenate: an invocation copies a word of the result from where it lies, in a or in b."""

import struct
from functools import cache
from math import prod
from typing import Any

from trueno.backend import Call, Kernel
from trueno.errors import KernelError, ShapeError

from trueno_wgpu.device.gpu import Gpu
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.dispatches import INVOCATIONS
from trueno_wgpu.kernels.memory import clashes, whole
from trueno_wgpu.kernels.store import Store
from trueno_wgpu.kernels.table import KERNELS, RATES

TEXT = """\
struct Sizes { count: u32, first: u32, second: u32, }  // words in all, and of a row of a and of b
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> a: array<u32>;
@group(0) @binding(2) var<storage, read> b: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<u32>;
STATUS
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) me: u32) {
    let at = (wid.x + wid.y * groups.x) * 256u + me;
    if (at < sizes.count) {
        let row = at / (sizes.first + sizes.second);
        let column = at % (sizes.first + sizes.second);
        var word: u32;
        if (column < sizes.first) {
            word = a[row * sizes.first + column];
        } else {
            word = b[row * sizes.second + column - sizes.first];
        }
        out[at] = word;
LOOK    }
"""


@cache
def shader(guarded: bool) -> Shader:
    store = Store(guarded)
    look = "        look(bitcast<f32>(word));\n" if guarded else ""
    text = TEXT.replace("STATUS", store.declarations(4)).replace("LOOK", look)
    return Shader("concatenate", text + store.end + "}\n", (False, False, True, *store.writes))


@KERNELS.add("concatenate", rates=RATES)
def concatenate(gpu: Gpu, call: Call) -> Kernel:
    """Two arrays with one shape but along the axis."""
    static, limits, guarded = dict(call.static), gpu.limits, call.guarded

    def kernel(a: Any, b: Any, out: Any) -> int:
        try:
            fits = (tuple(out.shape),) == call.op.result_shapes((tuple(a.shape), tuple(b.shape)), static)
        except ShapeError:
            return -1
        if not fits or clashes(out, a, b):
            return -1
        if out.nbytes > limits.binding:
            raise KernelError(
                f"concatenate: the result has {out.nbytes} bytes, and this adapter binds {limits.binding}; "
                "work on the parts"
            )
        at = static["axis"] % len(a.shape)
        if out.size:
            buffers = [whole(x.buffer, x.nbytes, limits) for x in (a, b, out)] + [gpu.status] * guarded
            numbers = struct.pack("<3I", out.size, prod(a.shape[at:]), prod(b.shape[at:]))
            gpu.run(shader(guarded), buffers, numbers, fold(-(-out.size // INVOCATIONS), limits.groups))
        return 0

    return kernel
