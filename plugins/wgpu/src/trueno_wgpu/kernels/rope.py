"""rope: an invocation takes one pair of a token, computes its cosine and sine once, and turns that pair in some heads.

An angle is position · turns modulo 2⁶⁴, a turn being 2⁶⁴, in 32-bit words: exact, whatever the position.  The nearest
quarter comes off, and what remains is normalized to 32 bits and multiplied by π as integers, so that the one rounding
is that to float32; two polynomials follow.  The driver's own sin and cos promise nothing near their zeros.

Positions are int64, pairs of words with the low one first.  The core refuses negative ones where it can read them; on
the device they give NaN.  Frequencies are a small table on the device, kept per set of parameters.

Floor: every byte of x read once and written once.
"""

import struct
from functools import cache
from math import prod
from typing import Any

from trueno.backend import Call, Kernel, rotation

from trueno_wgpu.device.array import Array
from trueno_wgpu.device.gpu import Gpu, Limits
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.dispatches import INVOCATIONS, Dispatch, Plans, Shape, run
from trueno_wgpu.kernels.memory import clashes
from trueno_wgpu.kernels.stacked import parts, place, stack
from trueno_wgpu.kernels.store import Store
from trueno_wgpu.kernels.table import KERNELS, RATES
from trueno_wgpu.rows.prelude import prelude

HEADS = 4
"""Heads that an invocation turns: half of what a pair costs is its angle, and few tokens must still fill a GPU."""
TABLES = 64
"""Tables of frequencies that a kernel keeps; all are dropped when there are more."""

TEXT = """\
struct Sizes {
    magnitude: f32,
    count: u32, slots: u32, parts: u32,  // invocations; of one token and head: pairs, then copies; groups of heads
    heads: u32, d: u32, pairs: u32, rest: u32,
    lead: vec4<u32>, x_step: vec4<u32>, p_step: vec4<u32>,
}
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read> positions: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> turns: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> out: array<u32>;
STATUS
PRELUDE
struct Angle { r: f32, quarter: u32 }

fn angle(position: vec2<u32>, turn: vec2<u32>) -> Angle {
    let low = position.x * turn.x;
    let high = high_product(position.x, turn.x) + position.x * turn.y + position.y * turn.x;
    let quarter = (high + 0x20000000u) >> 30u;
    let left = high - (quarter << 30u);
    let down = left >= 0x80000000u;
    let upper = select(left, ~left + select(0u, 1u, low == 0u), down);
    let lower = select(low, 0u - low, down);
    let wide = upper != 0u;
    let first = select(lower, upper, wide);
    let second = select(0u, lower, wide);
    let zeros = min(countLeadingZeros(first), 31u);
    let top = (first << zeros) | ((second >> 1u) >> (31u - zeros));
    let size = f32(high_product(top, 0xc90fdaa2u)) * bitcast<f32>((select(66u, 98u, wide) - zeros) << 23u);
    return Angle(select(size, -size, down), quarter);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) me: u32) {
    let at = (wid.x + wid.y * groups.x) * 256u + me;
    if (at < sizes.count) {
    let slot = at % sizes.slots;
    let token = at / (sizes.slots * sizes.parts);
    let first = at / sizes.slots % sizes.parts * HEADSu;
    let last = min(first + HEADSu, sizes.heads);
PLACE    let position = positions[place];
    let wrong = position.y >= 0x80000000u;
    let to = token * sizes.heads * sizes.d;
    if (slot < sizes.pairs) {
        let a = angle(position, turns[slot]);
        let c = wave(a.r, a.quarter + 1u) * sizes.magnitude;
        let s = wave(a.r, a.quarter) * sizes.magnitude;
        for (var head = first; head < last; head += 1u) {
            let i = head * sizes.d + ONE;
            let j = head * sizes.d + OTHER;
            let v = bitcast<f32>(x[from_x + i]);
            let w = bitcast<f32>(x[from_x + j]);
            let y = select(bitcast<u32>(v * c - w * s), 0x7fc00000u, wrong);
            let z = select(bitcast<u32>(w * c + v * s), 0x7fc00000u, wrong);
            out[to + i] = y;
            out[to + j] = z;
LOOK_PAIR        }
    } else {
        let column = 2u * slot;
        for (var head = first; head < last; head += 1u) {
            for (var i = column; i < min(column + 2u, sizes.d); i += 1u) {
                let word = x[from_x + head * sizes.d + i];
                out[to + head * sizes.d + i] = word;
LOOK_COPY            }
        }
    }
    }
"""


@cache
def shader(interleaved: bool, guarded: bool) -> Shader:
    store = Store(guarded)
    one, other = ("2u * slot", "2u * slot + 1u") if interleaved else ("slot", "slot + sizes.pairs")
    pair = "            look(bitcast<f32>(y));\n            look(bitcast<f32>(z));\n"
    copy = "                look(bitcast<f32>(word));\n"
    words = {
        "STATUS": store.declarations(5),
        "PRELUDE": prelude(TEXT),
        "PLACE": place("token", from_x="x_step", place="p_step"),
        "HEADS": str(HEADS),
        "ONE": one,
        "OTHER": other,
        "LOOK_PAIR": pair if guarded else "",
        "LOOK_COPY": copy if guarded else "",
    }
    text = TEXT
    for word, value in words.items():
        text = text.replace(word, value)
    return Shader("rope", text + store.end + "}\n", (False, False, False, True, *store.writes))


def dispatches(
    x: Shape, positions: Shape, out: Shape, pairs: int, limits: Limits, interleaved: bool, guarded: bool
) -> list[Dispatch] | None:
    """Steps for operands of these shapes, operand 2 being the table; None for shapes that do not agree."""
    heads, d = x[-2:]
    whole = stack(out[:-2], (x[:-2], positions), (heads * d, 1))
    if whole is None:
        return None
    slots, groups = pairs + -(-(d - 2 * pairs) // 2), -(-heads // HEADS)
    planned = []
    for part in parts("rope", whole, (heads * d * 4, 8), heads * d * 4, limits):
        count = part.count * slots * groups
        packed = struct.pack("<19I", count, slots, groups, heads, d, pairs, 0, *part.words())
        grid = fold(-(-count // INVOCATIONS), limits.groups)
        reads = ((0, part.operands[0]), (1, part.operands[1]), (2, None))
        planned.append(Dispatch(shader(interleaved, guarded), packed, grid, reads, part.out))
    return planned


@KERNELS.add("rope", rates=RATES)
def rope(gpu: Gpu, call: Call) -> Kernel:
    """x[...,h,d] positions[...] -> out[...,h,d]; a negative position gives NaN."""
    static, guarded = dict(call.static), call.guarded
    dims, scaling, interleaved = static["dims"], static["scaling"], static["style"] == "interleaved"
    tables: dict[tuple[Any, ...], tuple[Array, bytes]] = {}

    def table(*key: Any) -> tuple[Array, bytes]:
        kept = tables.get(key)
        if kept is None:
            pairs, theta, *scaled = key
            turns, magnitude = rotation(pairs, theta, scaling, *scaled)
            if len(tables) >= TABLES:
                tables.clear()
            kept = tables[key] = Array.of(gpu, turns), struct.pack("<f", magnitude)
        return kept

    def make(x: Shape, positions: Shape, out: Shape) -> list[Dispatch] | None:
        turned = (dims or x[-1]) if len(x) >= 2 else 1
        if turned % 2 or turned > x[-1] or out[-2:] != x[-2:] or len(out) != max(len(x), len(positions) + 2):
            return None
        if not prod(out):
            return []
        return dispatches(x, positions, out, turned // 2, gpu.limits, interleaved, guarded)

    plans = Plans(make)

    def kernel(x: Any, positions: Any, theta: float, factor: float, context: float, slow: float, fast: float,
               magnitude: float, out: Any) -> int:  # fmt: skip
        planned = plans(x.shape, positions.shape, out.shape)
        if planned is None or clashes(out, x, positions):
            return -1
        if not planned:
            return 0
        turns, by = table((dims or x.shape[-1]) // 2, theta, factor, context, slow, fast, magnitude)
        return run(gpu, planned, (x, positions, turns), out, alpha=by, guarded=guarded)

    return kernel
