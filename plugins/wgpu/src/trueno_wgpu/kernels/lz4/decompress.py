"""lz4_decompress: a workgroup decodes a page, and all its invocations parse the same tokens.

They read tokens from a read-only array, at places on which all of them agree, so compilers see that they take the same
branches and meet at each barrier.  Then each copies one word of literals, a barrier follows, and each copies one word
of the match.  Byte i of a match equals byte i modulo the offset of those before it, so a match that overlaps itself
needs no order.  A turn of the loop reads as much of a sequence as it can, and copies at most 128 literals and 128 bytes
of a match: the page bounds the number of turns, which stays below what llvmpipe allows.

Bytes: the block and the page, once each; a page in storage is cleared before.  Operations: about 150 on integers per
invocation for a sequence.
"""

import struct
from functools import cache
from typing import Any

from trueno.backend import Call, Kernel

from trueno_wgpu.device.gpu import Gpu
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.lz4.words import MOST, PUT, SETTLE, SHARED, SPAN, complete, four, rows
from trueno_wgpu.kernels.memory import bands, clashes
from trueno_wgpu.kernels.table import KERNELS, RATES

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

// What a turn begins with; it goes on to what follows as far as it can.
const TOKEN = 0u;
const MORE_LITERALS = 1u;
const LITERALS = 2u;
const COPY_LITERALS = 3u;
const MORE_MATCH = 4u;
const MATCH = 5u;
const COPY_MATCH = 6u;
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
    CLEAR
    let begin = offsets[row];
    let count = counts[row];
    let raw = count.y == 0xffffffffu;
    let end = select(count.x, 0u - count.x, raw);  // of the block, counted from its first byte, as `ip` is
    let sane = count.y == 0u || (raw && count.x != 0u && end <= sizes.page);
    let inside = begin.y == 0u && begin.x <= sizes.bytes && end <= sizes.bytes - min(begin.x, sizes.bytes);
    let empty = all(count == vec2<u32>());
    var verdict = select(WRONG, RUNNING, empty || (sane && inside));
    var state = select(TOKEN, COPY_LITERALS, raw || empty);
    var last = state == COPY_LITERALS;
    var left = select(0u, end, raw);  // bytes of a length that is read, then bytes to copy
    var ip = 0u;
    var source = begin.x;
    var start = 0u;  // of the sequence
    var token = 0u;
    var op = 0u;  // bytes decoded
    var offset = 0u;
    var match_at = 0u;
    var overlaps = false;
    for (var turn = 0u; turn < sizes.turns && verdict == RUNNING; turn += 1u) {
        if (state == TOKEN) {
            start = ip;
            token = byte_at(begin.x + ip);
            ip += 1u;
            left = token >> 4u;
            state = select(LITERALS, MORE_LITERALS, left == 15u);
        }
        if (state == MORE_LITERALS) {
            if (ip >= end || left > sizes.page) { verdict = WRONG; break; }
            let more = byte_at(begin.x + ip);
            ip += 1u;
            left += more;
            if (more < 255u) { state = LITERALS; }
        }
        if (state == LITERALS) {
            last = op + left + 12u > sizes.page || ip + left + 8u > end;
            if (last && (ip + left != end || op + left > sizes.page)) { verdict = WRONG; break; }
            source = begin.x + ip;
            ip += left;
            state = COPY_LITERALS;
        }
        if (state == COPY_LITERALS) {
            let to = base + op;
            let word = 4u * ((to >> 2u) + me);
            let low = max(word, to);
            let high = min(word + 4u, to + left);
            if (low < high) { put(low, high, packed_four(source + low - to)); }
            let done = min(left, 128u - (to & 3u));
            op += done;
            source += done;
            left -= done;
            if (left == 0u) {
                if (last) { verdict = RIGHT; break; }
                offset = byte_at(begin.x + ip) | (byte_at(begin.x + ip + 1u) << 8u);
                ip += 2u;
                left = token & 15u;
                state = select(MATCH, MORE_MATCH, left == 15u);
            }
        }
        if (state == MORE_MATCH) {
            if (ip + 4u >= end || left > sizes.page) { verdict = WRONG; break; }
            let more = byte_at(begin.x + ip);
            ip += 1u;
            left += more;
            if (more < 255u) { state = MATCH; }
        }
        if (state == MATCH) {
            left += 4u;
            if (offset == 0u || offset > op || op + left + 5u > sizes.page) { verdict = WRONG; break; }
            match_at = base + op;
            overlaps = offset < left;
            state = COPY_MATCH;
        }
        BARRIER
        if (state == COPY_MATCH) {
            let to = base + op;
            let word = 4u * ((to >> 2u) + me);
            let low = max(word, to);
            let high = min(word + 4u, to + left);
            if (low < high) {
                var bytes = 0u;
                if (overlaps) {
                    var place = (low - match_at) % offset;
EACH_BYTE                } else {
                    bytes = written_four(low - offset);
                }
                put(low, high, bytes);
            }
            let done = min(left, 128u - (to & 3u));
            op += done;
            left -= done;
            if (left == 0u) { state = TOKEN; }
        }
    }
    BARRIER
    let right = verdict == RIGHT;
    END
    if (me == 0u) { lengths[row] = select(vec2<u32>(~start, 0xffffffffu), vec2<u32>(op, 0u), right); }
}
"""
BYTE = """\
                    bytes |= written(match_at - offset + place) << {shift}u;
                    place = select(place + 1u, 0u, place + 1u == offset);
"""
CLEAR = {
    # llvmpipe leaves what an earlier workgroup wrote, although WGSL says that this memory is 0.
    True: """\
for (var word = me; 4u * word < base + sizes.page; word += 32u) { atomicStore(&cells[word], 0u); }
    workgroupBarrier();""",
    False: """\
for (var word = (first >> 2u) + me; 4u * word < first + sizes.page; word += 32u) { settle(first, word, 0u); }
    storageBarrier();""",
}
END = {
    True: """\
for (var word = me; 4u * word < base + sizes.page; word += 32u) {
        settle(first, (first >> 2u) + word, select(0u, atomicLoad(&cells[word]), right));
    }""",
    False: """\
if (!right) {
        for (var word = (first >> 2u) + me; 4u * word < first + sizes.page; word += 32u) { settle(first, word, 0u); }
    }""",
}
"""By whether the page is in workgroup memory."""


@cache
def shader(shared: bool) -> Shader:
    """shared: whether pages are decoded in workgroup memory."""
    cells = "cells" if shared else "y"
    functions = [SPAN, PUT.replace("ARRAY", cells), SETTLE.replace("ARRAY", "y")]
    functions += [four("packed_four", "packed"), four("written_four", cells, atomic=True)]
    parts = {
        "MEMORY": f"var<workgroup> cells: array<atomic<u32>, {SHARED // 4 + 1}>;" if shared else "",
        "FUNCTIONS": "\n".join(functions),
        "BASE": "first & 3u" if shared else "first",
        "CLEAR": CLEAR[shared],
        "BARRIER": "workgroupBarrier();" if shared else "storageBarrier();",
        "EACH_BYTE": "".join(BYTE.format(shift=shift) for shift in (0, 8, 16, 24)),
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
