"""lz4_decompress: a workgroup decodes a page, and all its invocations parse the same tokens.

They read tokens from a read-only array, at places on which all of them agree, so compilers see that they take the same
branches and meet at each barrier.  A turn of the loop reads a sequence, and each invocation makes one word of its
literals and of its match together, up to 128 bytes; longer ones take more turns.  A match may refer to literals of its
own sequence: what no earlier turn has written is read from the block.  Byte i of a match equals byte i modulo the
offset of those before it, so one that overlaps itself needs no order.  The page bounds the number of turns, which stays
below what llvmpipe allows.

Bytes: the block and the page, once each.  A turn waits for the token, for the offset, then for the words of its copy,
and once for a barrier.  Operations: about 100 on integers per invocation.
"""

import struct
from functools import cache
from typing import Any

from trueno.backend import Call, Kernel

from trueno_wgpu.device.gpu import Gpu
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.lz4.words import MOST, RATES, SETTLE, SHARED, SPAN, complete, four, rows
from trueno_wgpu.kernels.memory import bands, clashes
from trueno_wgpu.kernels.table import KERNELS

TEXT = """\
struct Sizes {
    pages: u32, page: u32,  // that are bound; bytes of one
    bytes: u32,  // of packed
    turns: u32,
}
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> packed: array<u32>;
@group(0) @binding(2) var<storage, read> offsets: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> counts: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> y: array<atomic<u32>>;
@group(0) @binding(5) var<storage, read_write> lengths: array<vec2<u32>>;
MEMORY
FUNCTIONS
fn byte_at(at: u32) -> u32 { return (packed[at >> 2u] >> (8u * (at & 3u))) & 255u; }
fn written(at: u32) -> u32 { return (atomicLoad(&CELLS[at >> 2u]) >> (8u * (at & 3u))) & 255u; }

// The bits of the bytes before `end` in the word that begins at byte `at`.
fn before(at: u32, end: u32) -> u32 {
    let half = 4u * u32(clamp(i32(end - at), 0, 4));
    return ~((0xffffffffu << half) << half);
}
fn either(a: u32, b: u32, bits: u32) -> u32 { return (a & bits) | (b & ~bits); }

const RUNNING = 0u;
const RIGHT = 1u;
const WRONG = 2u;

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) me: u32) {
    let row = wid.x + wid.y * groups.x;
    if (row >= sizes.pages) { return; }
    let first = row * sizes.page;
    let base = BASE;  // the page's first byte in the array that it is decoded into
    let begin = offsets[row];
    let count = counts[row];
    let raw = count.y == 0xffffffffu;
    let end = select(count.x, 0u - count.x, raw);  // of the block, counted from its first byte, as `ip` is
    let sane = count.y == 0u || (raw && count.x != 0u && end <= sizes.page);
    let inside = begin.y == 0u && begin.x <= sizes.bytes && end <= sizes.bytes - min(begin.x, sizes.bytes);
    let empty = all(count == vec2<u32>());
    var verdict = select(WRONG, RUNNING, empty || (sane && inside));
    var last = raw || empty;
    var literals = select(0u, end, raw);  // of the sequence, that are not copied yet
    var match_bytes = 0u;  // the same of its match
    var source = begin.x;  // of the next literal
    var ip = 0u;
    var start = 0u;  // of the sequence
    var op = 0u;  // bytes decoded
    var offset = 0u;
    var match_at = 0u;
    var overlaps = false;
    for (var turn = 0u; turn < sizes.turns && verdict == RUNNING; turn += 1u) {
        if (literals + match_bytes == 0u) {
            if (last) { verdict = RIGHT; break; }
            start = ip;
            let token = byte_at(begin.x + ip);
            ip += 1u;
            literals = token >> 4u;
            var more = select(0u, 255u, literals == 15u);
            while (more == 255u) {
                if (ip >= end || literals > sizes.page) { verdict = WRONG; break; }
                more = byte_at(begin.x + ip);
                ip += 1u;
                literals += more;
            }
            if (verdict != RUNNING) { break; }
            last = op + literals + 12u > sizes.page || ip + literals + 8u > end;
            if (last && (ip + literals != end || op + literals > sizes.page)) { verdict = WRONG; break; }
            source = begin.x + ip;
            ip += literals;
            if (!last) {
                offset = packed_four(begin.x + ip) & 0xffffu;
                ip += 2u;
                match_bytes = token & 15u;
                more = select(0u, 255u, match_bytes == 15u);
                while (more == 255u) {
                    if (ip + 4u >= end || match_bytes > sizes.page) { verdict = WRONG; break; }
                    more = byte_at(begin.x + ip);
                    ip += 1u;
                    match_bytes += more;
                }
                match_bytes += 4u;
                let there = op + literals;
                if (offset == 0u || offset > there || there + match_bytes + 5u > sizes.page) { verdict = WRONG; }
                if (verdict != RUNNING) { break; }
                match_at = base + there;
                overlaps = offset < match_bytes;
            }
        }
        let to = base + op;
        let match_from = to + literals;
        let part = min(literals + match_bytes, 128u - (to & 3u));
        let stop = to + part;
        let at = (to & ~3u) + 4u * me;
        if (at < stop) {
            var bytes = 0u;
            if (match_bytes != 0u && at + 4u > match_from) {
                if (!overlaps) {
                    bytes = written_four(at - offset);
                    if (to + offset < stop) {
                        bytes = either(bytes, packed_four(source + at - offset - to), before(at, to + offset));
                    }
                }
                var place = 0u;
                if (overlaps) { place = (max(at, match_from) - match_at) % offset; }
                let own = select(4u, max(at, match_from) - at, overlaps);  // the first byte, of four, of such a match
                REPEAT
            }
            if (literals != 0u) { bytes = either(packed_four(source + at - to), bytes, before(at, match_from)); }
            if (at < to) { bytes = either(atomicLoad(&CELLS[at >> 2u]), bytes, before(at, to)); }
            STORE
        }
        let literals_done = min(part, literals);
        op += part;
        source += literals_done;
        literals -= literals_done;
        match_bytes -= part - literals_done;
        // Behind enough repetitions the match is also one with a distance that a turn does not reach.
        if (overlaps && literals == 0u && base + op - match_at >= 128u) {
            offset = (127u + offset) / offset * offset;
            overlaps = false;
        }
        BARRIER
    }
    let used = base + select(0u, op, verdict == RIGHT);
    END
    if (me == 0u) { lengths[row] = select(vec2<u32>(~start, 0xffffffffu), vec2<u32>(op, 0u), verdict == RIGHT); }
}
"""
BYTE = """\
{
                    let from_byte = match_at - offset + place;
                    var byte = 0u;
                    if (from_byte < to) { byte = written(from_byte); } else { byte = byte_at(source + from_byte - to); }
                    bytes |= byte << (8u * i);
                    place = select(place + 1u, 0u, place + 1u == offset);
                }"""
REPEAT = {
    # A loop without trips costs nothing on llvmpipe, where a branch that is not taken does; but with loops in each turn
    # a long page could have more trips than it allows.
    True: f"for (var i = own; i < 4u; i += 1u) {BYTE}",
    False: "\n                ".join(f"if (own <= {i}u) {BYTE.replace('* i)', f'* {i}u)')}" for i in range(4)),
}
STORE = {True: "atomicStore(&cells[at >> 2u], bytes);", False: "settle(first, at >> 2u, bytes);"}
END = {
    True: """\
for (var at = 4u * me; at < base + sizes.page; at += 128u) {
        settle(first, (first + at) >> 2u, atomicLoad(&cells[at >> 2u]) & before(at, used));
    }""",
    False: """\
for (var at = (used & ~3u) + 4u * me; at < first + sizes.page; at += 128u) {
        settle(first, at >> 2u, atomicLoad(&y[at >> 2u]) & before(at, used));
    }""",
}
"""By whether the page is in workgroup memory."""


@cache
def shader(shared: bool) -> Shader:
    """shared: whether pages are decoded in workgroup memory."""
    cells = "cells" if shared else "y"
    functions = [SPAN, SETTLE.replace("ARRAY", "y")]
    functions += [four("packed_four", "packed"), four("written_four", cells, atomic=True)]
    parts = {
        "MEMORY": f"var<workgroup> cells: array<atomic<u32>, {SHARED // 4 + 1}>;" if shared else "",
        "FUNCTIONS": "\n".join(functions),
        "BASE": "first & 3u" if shared else "first",
        "BARRIER": "workgroupBarrier();" if shared else "storageBarrier();",
        "REPEAT": REPEAT[shared],
        "STORE": STORE[shared],
        "END": END[shared],
        "CELLS": cells,
    }
    text = TEXT
    for name, part in parts.items():
        text = text.replace(name, part)
    writes = (False, False, False, True, True)
    return Shader(f"lz4_decompress in {'workgroup memory' if shared else 'storage'}", text, writes)


def turns(page: int) -> int:
    """More turns than a page needs: one per sequence, 255 bytes of a length, and 125 bytes of a copy."""
    return page // 4 + page // 32 + 16


@KERNELS.add("lz4_decompress", rates=RATES)
def lz4_decompress(gpu: Gpu, call: Call) -> Kernel:
    """packed[m] offsets[n] sizes[n] -> y[n,page] lengths[n].  A guarded kernel has nothing to report: y is bytes."""
    static, limits = dict(call.static), gpu.limits

    def kernel(packed: Any, offsets: Any, sizes: Any, y: Any, lengths: Any) -> int:
        if len(packed.shape) != 1 or len(y.shape) != 2 or y.shape[1] != static["page"] or not 1 <= y.shape[1] <= MOST:
            return -1
        n, page = y.shape
        operands = (packed, offsets, sizes)
        if not offsets.shape == sizes.shape == lengths.shape == (n,):
            return -1
        if clashes(y, *operands, lengths) or clashes(lengths, *operands):
            return -1
        if not n:
            return 0
        source = complete("lz4_decompress", "packed", packed, limits)
        for first, count in bands("lz4_decompress", "y", n, (page, 8), limits):
            places = [rows(x, first, count, 8) for x in (offsets, sizes)]
            results = [rows(y, first, count, page), rows(lengths, first, count, 8)]
            numbers = struct.pack("<4I", count, page, packed.size, turns(page))
            gpu.run(shader(page <= SHARED), [source, *places, *results], numbers, fold(count, limits.groups))
        return 0

    return kernel
