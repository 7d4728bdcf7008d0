"""convolve2d: each invocation sums a few places of a few channels of the result, straight from memory.

Taps, over channels and the kernel's rows and columns, are one loop: a CPU adapter's loop budget then ends it where we
say, and the next dispatch goes on.  Outside of x is 0 (mode same), where the first element is read and not
used: a branch for each read takes some compilers minutes (see `trueno_wgpu.kernels.tile`).
"""

import struct
from functools import cache
from math import prod
from typing import Any

from trueno.backend import Call, Kernel
from trueno.errors import KernelError

from trueno_wgpu.device.gpu import Gpu, Limits
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.dispatches import Dispatch, Plans, Shape, run
from trueno_wgpu.kernels.memory import Band, bands, clashes, zero
from trueno_wgpu.kernels.store import Store
from trueno_wgpu.kernels.table import KERNELS, RATES

ACROSS, DOWN = 32, 8  # invocations of a workgroup over the columns and rows of the result
PLACES, CHANNELS = 4, 4  # of an invocation, where there are as many
NARROW = 64  # columns up to which an invocation sums one place

HEAD = """\
struct Sizes {
    alpha: f32,
    h: u32, w: u32, p: u32, q: u32,  // of x and of the kernel
    height: u32, width: u32, channels: u32,  // of the result
    top: u32, left: u32,  // rows and columns of zeros before x
    taps: u32, begin: u32, end: u32, add: u32,  // of one channel of the result, and those summed in this dispatch
    groups: u32, across: u32, down: u32,  // workgroups; of one channel, along columns and along rows
    first: u32,  // channels before those that are bound of the result
}
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> weights: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
"""
MAIN = """\
fn at(c: u32, row: u32, column: u32) -> f32 {
    let inside = (row < sizes.h) & (column < sizes.w);
    return select(0.0, x[select(0u, (c * sizes.h + row) * sizes.w + column, inside)], inside);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) me: u32) {
    let group = wid.x + wid.y * groups.x;
    if (group >= sizes.groups) { return; }
    let column = group % sizes.across * SPANu + me % 32u;
    let row = group / sizes.across % sizes.down * 8u + me / 32u;
    let channel = group / (sizes.across * sizes.down) * CHANNELSu;
    var j = sizes.begin % sizes.q;
    var i = sizes.begin / sizes.q % sizes.p;
    var c = sizes.begin / (sizes.q * sizes.p);
"""


@cache
def shader(places: int, channels: int, store: Store) -> Shader:
    sums = [(o, s) for o in range(channels) for s in range(places)]
    lines = [HEAD, store.declarations(4), store.function(1, adds=True)]
    lines.append(MAIN.replace("SPAN", str(places * ACROSS)).replace("CHANNELS", str(channels)))
    for o in range(channels):  # past the last channel: the last again, not stored
        channel = f"min(channel + {o}u, sizes.channels - 1u)" if o else "channel"
        lines.append(f"    let w{o} = (sizes.first + {channel}) * sizes.taps;")
    lines += [f"    var s{o}_{s} = 0.0;" for o, s in sums]
    lines.append("    for (var t = sizes.begin; t < sizes.end; t += 1u) {")
    for s in range(places):
        lines.append(f"        let x{s} = at(c, row + i - sizes.top, column + {s * ACROSS}u + j - sizes.left);")
    for o in range(channels):
        lines.append(f"        let k{o} = weights[w{o} + t];")
        lines += [f"        s{o}_{s} = fma(k{o}, x{s}, s{o}_{s});" for s in range(places)]
    lines += [
        "        j += 1u;",
        "        if (j == sizes.q) { j = 0u; i += 1u; }",
        "        if (i == sizes.p) { i = 0u; c += 1u; }",
        "    }",
        "    if (row < sizes.height) {",
    ]
    for o, s in sums:
        test = f"(channel + {o}u < sizes.channels) & (column + {s * ACROSS}u < sizes.width)"
        place = f"((channel + {o}u) * sizes.height + row) * sizes.width + column + {s * ACROSS}u"
        lines.append(f"        if ({test}) {{ store({place}, row, column + {s * ACROSS}u, s{o}_{s}); }}")
    lines.append("    }")
    text = "\n".join(line for line in lines if line) + "\n" + store.end + "}\n"
    return Shader("convolve2d", text, (False, False, True, *store.writes))


def dispatches(x: Shape, weights: Shape, out: Shape, same: bool, limits: Limits, store: Store) -> list[Dispatch]:
    (h, w), (p, q), (height, width) = x[-2:], weights[-2:], out[-2:]
    channels, taps = (out[0] if len(out) == 3 else 1), prod(weights[-3:])
    for name, shape in (("x", x), ("kernel", weights)):
        if prod(shape) * 4 > limits.binding:
            raise KernelError(
                f"convolve2d: {name} has {prod(shape) * 4} bytes, and this adapter binds {limits.binding}; convolve "
                "in parts, or use another backend"
            )
    top, left = ((p - 1) // 2, (q - 1) // 2) if same else (0, 0)
    places = PLACES if width > NARROW else 1
    budget = int(limits.trips * 0.9) if limits.trips else taps
    planned = []
    for first, count in bands("convolve2d", "the result", channels, (height * width * 4,), limits):
        each = CHANNELS if count >= CHANNELS else 1
        result = None if count == channels else Band(first, count, height * width * 4)
        across, down = -(-width // (places * ACROSS)), -(-height // DOWN)
        groups = across * down * -(-count // each)
        for begin in range(0, taps, budget):
            end = min(begin + budget, taps)
            used = shader(places, each, store if end == taps else Store())
            words = (h, w, p, q, height, width, count, top, left, taps, begin, end, begin > 0, groups, across, down,
                     first)  # fmt: skip
            packed = struct.pack("<17I", *words)
            grid = fold(groups, limits.groups)
            planned.append(Dispatch(used, packed, grid, ((0, None), (1, None)), result, end == taps))
    return planned


@KERNELS.add("convolve2d", rates=RATES)
def convolve2d(gpu: Gpu, call: Call) -> Kernel:
    """x[h,w] kernel[p,q] -> out[i,j], or x[c,h,w] kernel[o,c,p,q] -> out[o,i,j]."""
    store, same = Store(call.guarded), dict(call.static).get("mode", "valid") == "same"

    def make(x: Shape, weights: Shape, out: Shape) -> list[Dispatch] | None:
        if (len(x), len(weights), len(out)) not in ((2, 2, 2), (3, 4, 3)) or 0 in weights[-2:]:
            return None
        (h, w), (p, q) = x[-2:], weights[-2:]
        extent = (h, w) if same else (h - p + 1, w - q + 1)
        if not same and (p > h or q > w):
            return None
        if out != (*weights[:-3], *extent) or (len(x) == 3 and weights[1] != x[0]):
            return None
        return dispatches(x, weights, out, same, gpu.limits, store) if 0 not in (*x, *weights, *out) else []

    plans = Plans(make)

    def kernel(x: Any, weights: Any, out: Any) -> int:
        planned = plans(x.shape, weights.shape, out.shape)
        if planned is None or clashes(out, x, weights):
            return -1
        if not planned:
            return zero(out) if out.size else 0
        return run(gpu, planned, (x, weights), out, guarded=call.guarded)

    return kernel
