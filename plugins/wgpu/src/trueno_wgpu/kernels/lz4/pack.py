"""lz4_pack: prefix sums of the sizes, and a copy in which each invocation makes whole words of the result.

A workgroup adds up 2 048 sizes; with more of them a first dispatch leaves its sums, and one workgroup adds up those.  A
workgroup of the copy makes 4 096 bytes: two of its invocations search for the pages of the first and of the last of
them, and all search between these for the pages of their words.  A word takes bytes from up to four pages, and is 0
behind the last page.  No word is written twice, so nothing depends on an order.

Bytes: 16 per size, 16 per offset; each byte of a block is read once, and each byte of the result written once.
"""

import struct
from functools import cache
from typing import Any

from trueno.backend import Call, Kernel

from trueno_wgpu.device.gpu import Gpu
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.lz4.words import MOST, SPAN, complete, four
from trueno_wgpu.kernels.memory import clashes
from trueno_wgpu.kernels.table import KERNELS, RATES

EACH = 2048
"""Sizes of a workgroup."""
COPIED = 1024
"""Words of a workgroup."""

SIZES = """\
struct Sizes {
    pages: u32, page: u32,  // rows of blocks; bytes of one
    parts: u32,  // workgroups that add up sizes
    words: u32,  // of the result
}
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> counts: array<vec2<u32>>;
"""
USED = """\
// The bytes of a block, |size|; at most those of a row, whatever the size is.
fn used(row: u32) -> u32 {
    if (row >= sizes.pages) { return 0u; }
    let size = counts[row];
    if (size.y == 0u) { return min(size.x, sizes.page); }
    return select(sizes.page, min(0u - size.x, sizes.page), size.y == 0xffffffffu && size.x != 0u);
}
"""
SCAN = """\
var<workgroup> sums: array<u32, 256>;

// The sum of the values of all invocations up to this one.
fn sum_up_to(me: u32, value: u32) -> u32 {
    sums[me] = value;
    for (var step = 1u; step < 256u; step = step * 2u) {
        workgroupBarrier();
        let before = select(0u, sums[me - min(me, step)], me >= step);
        workgroupBarrier();
        sums[me] += before;
    }
    workgroupBarrier();
    return sums[me];
}
"""
MAIN = """
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) me: u32) {
    let group = wid.x + wid.y * groups.x;
"""
PARTS = "@group(0) @binding(2) var<storage, read_write> parts: array<u32>;\n"
ROWS = """\
    if (group >= sizes.parts) { return; }
    let first = group * 2048u + me * 8u;
    var own = 0u;
    for (var row = first; row < first + 8u; row += 1u) { own += used(row); }
    let sum = sum_up_to(me, own);
"""
ADD = ROWS + "    if (me == 255u) { parts[group] = sum; }\n}\n"
"""The sum of a workgroup's sizes."""
ADD_PARTS = """\
    var before = 0u;
    for (var tile = 0u; tile < sizes.parts; tile += 256u) {
        let at = tile + me;
        var own = 0u;
        if (at < sizes.parts) { own = parts[at]; }
        let sum = sum_up_to(me, own);
        if (at < sizes.parts) { parts[at] = before + sum - own; }
        before += sums[255];
        workgroupBarrier();
    }
}
"""
"""One workgroup turns sums into what is before them."""
PLACES = "@group(0) @binding(2) var<storage, read_write> offsets: array<vec2<u32>>;\n"
PARTS_READ = "@group(0) @binding(3) var<storage, read> parts: array<u32>;\n"
PLACE = (
    ROWS
    + """\
    var offset = BEFORE + sum - own;
    for (var row = first; row < min(first + 8u, sizes.pages); row += 1u) {
        offsets[row] = vec2<u32>(offset, 0u);
        offset += used(row);
    }
}
"""
)
COPY = """\
@group(0) @binding(2) var<storage, read> offsets: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> blocks: array<u32>;
@group(0) @binding(4) var<storage, read_write> packed: array<u32>;
var<workgroup> ends: array<u32, 2>;

// The last page from `low` to `high` that begins at byte `at` or before it; `low` is one.
fn page_of(at: u32, low: u32, high: u32) -> u32 {
    var from_page = low;
    var to_page = high;
    while (from_page < to_page) {
        let middle = to_page - (to_page - from_page) / 2u;
        if (offsets[middle].x <= at) { from_page = middle; } else { to_page = middle - 1u; }
    }
    return from_page;
}
"""
COPY_MAIN = """\
    let begin = group * 1024u;
    if (begin >= sizes.words) { return; }
    if (me < 2u) {
        ends[me] = page_of(4u * min(begin + 1023u * me, sizes.words - 1u) + 3u * me, 0u, sizes.pages - 1u);
    }
    workgroupBarrier();
    for (var word = begin + me; word < min(begin + 1024u, sizes.words); word += 256u) {
        var bits = 0u;
        var at = 4u * word;
        for (var part = 0u; part < 4u; part += 1u) {
            let row = page_of(at, ends[0], ends[1]);
            let start = offsets[row].x;
            let stop = min(start + used(row), 4u * word + 4u);
            if (at >= stop) { break; }
            bits |= (four(row * sizes.page + at - start) << (8u * (at & 3u))) & span(at, stop);
            at = stop;
            if (at == 4u * word + 4u) { break; }
        }
        packed[word] = bits;
    }
}
"""


@cache
def shader(what: str) -> Shader:
    """add: sums of workgroups; parts: what is before each; place, place one: offsets, of one workgroup; copy."""
    texts = {
        "add": (SIZES + PARTS + USED + SCAN + MAIN + ADD, (False, True)),
        "parts": (SIZES + PARTS + SCAN + MAIN + ADD_PARTS, (False, True)),
        "place": (SIZES + PLACES + PARTS_READ + USED + SCAN + MAIN + PLACE, (False, True, False)),
        "place one": (SIZES + PLACES + USED + SCAN + MAIN + PLACE, (False, True)),
        "copy": (SIZES + COPY + USED + SPAN + four("four", "blocks") + MAIN + COPY_MAIN, (False, False, False, True)),
    }
    text, writes = texts[what]
    text = text.replace("BEFORE", "parts[group]" if what == "place" else "0u")
    return Shader(f"lz4_pack, {what}", text, writes)


@KERNELS.add("lz4_pack", rates=RATES)
def lz4_pack(gpu: Gpu, call: Call) -> Kernel:
    """blocks[n,p] sizes[n] -> packed[n·p] offsets[n].  A guarded kernel has nothing to report: results are bytes."""
    limits = gpu.limits

    def kernel(blocks: Any, sizes: Any, packed: Any, offsets: Any) -> int:
        if len(blocks.shape) != 2 or packed.shape != (blocks.size,) or not 1 <= blocks.shape[1] <= MOST:
            return -1
        if not sizes.shape == offsets.shape == blocks.shape[:1]:
            return -1
        if clashes(packed, blocks, sizes, offsets) or clashes(offsets, blocks, sizes):
            return -1
        n, page = blocks.shape
        if not n:
            return 0
        names = {"blocks": blocks, "sizes": sizes, "packed": packed, "offsets": offsets}
        source, counts, target, places = (complete("lz4_pack", name, x, limits) for name, x in names.items())
        parts, words = -(-n // EACH), -(-packed.size // 4)
        numbers, groups = struct.pack("<4I", n, page, parts, words), fold(parts, limits.groups)
        if parts == 1:
            gpu.run(shader("place one"), [counts, places], numbers, groups)
        else:
            before = gpu.alloc(parts * 4)
            gpu.run(shader("add"), [counts, before], numbers, groups)
            gpu.run(shader("parts"), [counts, before], numbers, (1, 1, 1))
            gpu.run(shader("place"), [counts, places, before], numbers, groups)
        copied = fold(-(-words // COPIED), limits.groups)
        gpu.run(shader("copy"), [counts, places, source, target], numbers, copied)
        return 0

    return kernel
