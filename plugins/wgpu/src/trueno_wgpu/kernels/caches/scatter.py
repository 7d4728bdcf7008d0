"""kv_cache_scatter: rows of float32 into slots of a cache, in its own format.

A workgroup takes a part of one row.  Its invocations first look for a later row with the same slot, which then counts,
256 of them at a time; no other workgroup writes to the slot.  Where slots share words of memory, because a slot has
an odd number of 16-bit halves, halves are written by atomic operations, and so are q8_0 blocks, of 17 halves each.

    f16, bf16   rounded to nearest even by integer arithmetic
    q8_0        d = amax / 127 and code = x · (1 / d), halves away from zero: ggml's bytes, on every driver

A slot outside of the cache is left out, as −1 is: the host checks slots where it can.  Into the cache itself only those
rows are written; into another array the cache is copied first.

Bytes: 4 n h d read, and a row of the format each written; twice the cache where it is copied.  No arithmetic but
rounding, and n²/2 comparisons of slots, 256 at a time.  Only llvmpipe has run it: no GPU has measured it yet.
"""

import struct
from functools import cache
from math import prod
from typing import Any

from trueno.backend import Call, Kernel

from trueno_wgpu.device.gpu import Gpu
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.caches.cells import Q8, Rows
from trueno_wgpu.kernels.dispatches import INVOCATIONS
from trueno_wgpu.kernels.memory import Band, bands, bind, clashes
from trueno_wgpu.kernels.quant.activations import HALF_BITS, QUOTIENT
from trueno_wgpu.kernels.table import KERNELS, RATES

EACH = 4 * INVOCATIONS
"""Words, halves or blocks of a workgroup, about."""

TEXT = """\
struct Sizes {
    n: u32, first: u32,  // rows of x, and those before the ones that are bound
    slots: u32, top: u32, height: u32,  // of the cache; before those that are bound; of those
    numbers: u32, units: u32,  // of a row of x; words, halves or blocks of a slot
    parts: u32, groups: u32,  // workgroups of a row, and in all
}
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read> slots: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read_write> cache: array<CELL>;
var<workgroup> later: atomic<u32>;
FUNCTIONS
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) me: u32) {
    let group = wid.x + wid.y * groups.x;
    if (group >= sizes.groups) { return; }
    let row = group / sizes.parts;
    if (me == 0u) { atomicStore(&later, 0u); }
    workgroupBarrier();
    let slot = slots[sizes.first + row];
    for (var j = sizes.first + row + 1u + me; j < sizes.n; j += 256u) {
        if (all(slots[j] == slot)) { atomicStore(&later, 1u); }
    }
    workgroupBarrier();
    let inside = slot.y == 0u && slot.x < sizes.slots && slot.x >= sizes.top && slot.x - sizes.top < sizes.height;
    if (inside && atomicLoad(&later) == 0u) {
        let source = row * sizes.numbers;
        let to = (slot.x - sizes.top) * sizes.units;
        for (var u = group % sizes.parts * 256u + me; u < sizes.units; u += sizes.parts * 256u) {
            COPY
        }
    }
}
"""

PUT_HALF = """\
fn put_half(at: u32, half: u32) {
    let shift = (at & 1u) * 16u;
    atomicAnd(&cache[at >> 1u], ~(0xffffu << shift));
    atomicOr(&cache[at >> 1u], half << shift);
}
"""
NARROW = {
    "f16": HALF_BITS
    + """\
fn narrow(b: u32) -> u32 {
    let size = b & 0x7fffffffu;
    let nan = 0x7e00u | ((b >> 13u) & 0x3ffu);
    return ((b >> 16u) & 0x8000u) | select(half_bits(size), nan, size > 0x7f800000u);
}
""",
    "bf16": """\
fn narrow(b: u32) -> u32 {
    let nearest = b + 0x7fffu + ((b >> 16u) & 1u);
    return select(nearest, b | 0x400000u, (b & 0x7fffffffu) > 0x7f800000u) >> 16u;
}
""",
}
"""The bits of a float32 as the 16 of a cell."""
WORDS = "cache[to + u] = x[source + u];"
PAIRS = "cache[to + u] = narrow(x[source + 2u * u]) | (narrow(x[source + 2u * u + 1u]) << 16u);"
HALVES = "put_half(to + u, narrow(x[source + u]));"

BLOCK = (
    QUOTIENT
    + HALF_BITS
    + PUT_HALF
    + """\
const SMALL = 0x04000000u;  // 2^-119, more than 127 times the least normal number: below it a scale may be subnormal

// x · 2^64, by its bits, for a small x: then no factor of a product is subnormal.
fn raised(b: u32) -> f32 {
    let size = b & 0x7fffffffu;
    let normal = bitcast<f32>(size + 0x20000000u);
    let y = select(normal, f32(size) * 0x1p-85f, size < 0x00800000u);
    return bitcast<f32>(bitcast<u32>(y) | (b & 0x80000000u));
}

// y to the nearest whole number, halves away from zero, as a byte: by y's bits, so that y is rounded before.
fn code(b: u32, factor: f32, small: bool) -> u32 {
    let y = bitcast<u32>(select(bitcast<f32>(b), raised(b), small) * factor);
    let size = y & 0x7fffffffu;
    let shift = clamp(150u - (size >> 23u), 1u, 24u);
    let whole = (((size & 0x7fffffu) | 0x800000u) + (1u << (shift - 1u))) >> shift;
    let near = select(whole, 0u, size < 0x3f000000u);
    return select(near, 0u - near, y >= 0x80000000u) & 0xffu;
}

fn put_block(source: u32, at: u32) {
    var most = 0u;
    for (var i = 0u; i < 32u; i += 1u) { most = max(most, x[source + i] & 0x7fffffffu); }
    let broken = most >= 0x7f800000u;
    let small = most < SMALL;
    // Small numbers are multiples of 2^-149, and so is their scale, which ties never round: 127 is odd.
    let units = select(most, ((most & 0x7fffffu) | 0x800000u) << (max(most >> 23u, 1u) - 1u), most >= 0x00800000u);
    let least = (select(0u, units, small) + 63u) / 127u;
    let d = quotient(select(most, SMALL, small || broken), 0x42fe0000u);
    // 1 / d in units of 2^64 where d is small; it is an Inf, which ggml multiplies to codes of 0, up to 2^-128
    let inverse = quotient(0x3f800000u, bitcast<u32>(f32(max(least, 1u)))) + (85u << 23u);
    let reciprocal = quotient(0x3f800000u, d);
    let none = broken || (small && least <= 0x200000u);
    let factor = bitcast<f32>(select(select(reciprocal, inverse, small), 0u, none));
    let scale = select(select(half_bits(d), 0u, small), 0x7e00u, broken);
    let odd = (at & 1u) == 1u;
    if (odd) { put_half(at, scale); }
    var before = scale;
    for (var i = 0u; i < 8u; i += 1u) {
        var word = 0u;
        for (var j = 0u; j < 4u; j += 1u) {
            let b = select(x[source + 4u * i + j], 0u, none);
            word |= code(b, factor, small) << (8u * j);
        }
        if (odd) {
            atomicStore(&cache[(at >> 1u) + 1u + i], word);
        } else {
            atomicStore(&cache[(at >> 1u) + i], before | (word << 16u));
        }
        before = word >> 16u;
    }
    if (!odd) { put_half(at + 16u, before); }
}
"""
)
BLOCKS = "put_block(source + 32u * u, (to + u) * 17u);"


@cache
def shader(form: str, shared: bool) -> Shader:
    """shared: whether two slots may share a word of memory."""
    functions, copy, atomic = NARROW.get(form, ""), WORDS, shared
    if form == "q8_0":
        functions, copy, atomic = BLOCK, BLOCKS, True
    elif form != "f32":
        functions, copy = (functions + PUT_HALF, HALVES) if shared else (functions, PAIRS)
    text = TEXT.replace("CELL", "atomic<u32>" if atomic else "u32").replace("FUNCTIONS", functions)
    return Shader(f"kv_cache_scatter {form}", text.replace("COPY", copy), (False, False, True))


def run(gpu: Gpu, form: str, x: Any, slots: Any, cache: Any, limits: Any) -> None:
    """Write the rows, as many of x and slots of the cache at a time as fit into a binding."""
    count, (n, h, d) = prod(cache.shape[:2]), x.shape
    numbers, slot_bytes = h * d, prod(cache.shape[2:])
    shared = form != "q8_0" and slot_bytes % 4 != 0
    units = numbers // Q8.elements if form == "q8_0" else numbers if shared else slot_bytes // 4
    parts = -(-units // EACH)
    for first, rows in bands("kv_cache_scatter", "x", n, (numbers * 4,), limits):
        source = bind(None if rows == n else Band(first, rows, numbers * 4), x.buffer, x.nbytes, limits)
        for top, height in bands("kv_cache_scatter", "the cache", count, (slot_bytes,), limits):
            whole = height == count
            target = bind(
                None if whole else Band(top, height, slot_bytes), cache.buffer, -(-cache.nbytes // 4) * 4, limits
            )
            packed = struct.pack("<9I", n, first, count, top, height, numbers, units, parts, rows * parts)
            gpu.run(shader(form, shared), (source, slots.buffer, target), packed, fold(rows * parts, limits.groups))


@KERNELS.add("kv_cache_scatter", rates=RATES)
def kv_cache_scatter(gpu: Gpu, call: Call) -> Kernel:
    """cache[pages,page,h,bytes] x[n,h,d] slots[n] -> out, which may be the cache; a slot outside is left out.

    A guarded kernel has nothing to report: the result is bytes.
    """
    form = dict(call.static)["format"]

    def kernel(cache: Any, x: Any, slots: Any, out: Any) -> int:
        if len(cache.shape) != 4 or len(x.shape) != 3 or out.shape != cache.shape or slots.shape != x.shape[:1]:
            return -1
        heads, row = cache.shape[2:]
        if x.shape[1] != heads or row != Rows(form, x.shape[2]).nbytes or clashes(out, x, slots):
            return -1
        if out.buffer is not cache.buffer:
            gpu.copy(cache.buffer, out.buffer, cache.nbytes)
        if x.size and out.size:
            run(gpu, form, x, slots, out, gpu.limits)
        return 0

    return kernel
