"""The text of lz4_compress: a window of 32 positions looks for matches, and the one that is taken becomes a sequence.

A table in workgroup memory holds for each hash of four bytes the last position that was passed, plus one.  Each
invocation looks up its own position, and compares the last four bytes before it, for what repeats within the window.
Level 1 takes the first position with a match.  Level 2 has half a table for hashes of eight bytes; it takes the longest
of a position's matches, and goes on to the next position while that has a longer one.  All positions that are passed
enter the table, by an atomic maximum: the result does not depend on which invocation comes first.

The sequence is written at once: its bytes are 0 before, so words that it shares with its neighbours are combined by
atomic operations.
"""

from functools import cache

from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.lz4.words import PUT, SETTLE, SHARED, SPAN, four

BITS, MORE_BITS = 11, 12
"""Of the number of a table's entries.  With 2 048 of them and a page of 4 096 bytes a workgroup takes 13 of the 16 KiB
that every device has; longer pages have 4 096, where a device has ROOM."""
ROOM = 24 << 10
"""Bytes of workgroup memory."""
COMPARED = 20
"""Bytes of a match that each invocation compares; the workgroup compares the rest of the one that is taken."""
STEPS = 4
"""Positions by which level 2 goes on, at most."""

TEXT = """\
struct Sizes { pages: u32, page: u32, turns: u32, }  // pages that are bound; bytes of one
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> blocks: array<atomic<u32>>;
@group(0) @binding(3) var<storage, read_write> counts: array<vec2<u32>>;
var<workgroup> table: array<atomic<u32>, ENTRIES>;
MEMORY
var<workgroup> matching: atomic<u32>;  // a bit per position
var<workgroup> lengths: array<u32, 32>;
var<workgroup> distances: array<u32, 32>;
var<workgroup> chosen: vec3<u32>;  // position, length, distance
var<workgroup> differing: atomic<u32>;
var<workgroup> agreeing: u32;
FUNCTIONS
const LAZY = IS_LAZY;
const SHIFT = BY_BITSu;

fn slot_of(bytes: u32) -> u32 { return (bytes * 2654435761u) >> SHIFT; }

// The same for the eight bytes from `at` on, of which the first four are known, in the other half of the table.
fn long_slot_of(bytes: u32, at: u32) -> u32 {
    return ENTRIESu / 2u + ((bytes * 2654435761u + four(at + 4u) * 2246822519u) >> SHIFT);
}

// How many bytes agree of those from a and from b, up to 16.
fn alike(a: u32, b: u32) -> u32 {
    let differ = vec4<u32>(four(a), four(a + 4u), four(a + 8u), four(a + 12u))
        ^ vec4<u32>(four(b), four(b + 4u), four(b + 8u), four(b + 12u));
    if (differ.x != 0u) { return firstTrailingBit(differ.x) >> 3u; }
    if (differ.y != 0u) { return 4u + (firstTrailingBit(differ.y) >> 3u); }
    if (differ.z != 0u) { return 8u + (firstTrailingBit(differ.z) >> 3u); }
    if (differ.w != 0u) { return 12u + (firstTrailingBit(differ.w) >> 3u); }
    return 16u;
}

// The length of a match at position i, whose first four bytes agree; the last five bytes of a page are literals.
fn length_of(base: u32, i: u32, distance: u32) -> u32 {
    let at = base + i + 4u;
    return 4u + min(alike(at, at - distance), sizes.page - 9u - i);
}

// How far before position i an entry of the table is, if the same four bytes begin there; else 0.
fn before(base: u32, i: u32, bytes: u32, entry: u32) -> u32 {
    if (entry == 0u || four(base + entry - 1u) != bytes) { return 0u; }
    return i + 1u - entry;
}

// How far before position i the same four bytes begin, if that is at most four; else 0.
fn nearby(base: u32, i: u32, bytes: u32) -> u32 {
    var last = 0u;
    if (i >= 4u) {
        last = four(base + i - 4u);
    } else {
        last = (four(base) << 1u) << (31u - 8u * i);
    }
    if (i >= 1u && ((last >> 24u) | (bytes << 8u)) == bytes) { return 1u; }
    if (i >= 2u && ((last >> 16u) | (bytes << 16u)) == bytes) { return 2u; }
    if (i >= 3u && ((last >> 8u) | (bytes << 24u)) == bytes) { return 3u; }
    return select(0u, 4u, i >= 4u && last == bytes);
}

// The longer of two matches of position i, as length and distance; a distance of 0 is no match.
fn longer(base: u32, i: u32, known: vec2<u32>, distance: u32) -> vec2<u32> {
    if (distance == 0u || distance == known.y) { return known; }
    let size = length_of(base, i, distance);
    return select(known, vec2<u32>(size, distance), size > known.x);
}

// The bytes behind a token for a length of which half a token holds up to 15.
fn extra(count: u32) -> u32 { return select(0u, (count - 15u) / 255u + 1u, count >= 15u); }

// The bytes of a sequence; size is 0 for one without a match.
fn sequence_bytes(literals: u32, size: u32) -> u32 {
    return 1u + extra(literals) + literals + select(0u, 2u + extra(size - 4u), size != 0u);
}

// Write a sequence to the byte `to` of blocks; its literals begin at the byte `start` of the page's array.
fn emit(to: u32, start: u32, literals: u32, size: u32, distance: u32, me: u32) {
    let half = select(0u, size - 4u, size != 0u);
    let more = extra(literals);
    let more_match = select(0u, extra(half), size != 0u);
    let text = to + 1u + more;
    let end = text + literals;
    if (me == 0u) { put(to, to + 1u, (min(literals, 15u) << 4u) | min(half, 15u)); }
    if (size != 0u && (me == 1u || me == 2u)) { put(end + me - 1u, end + me, distance >> (8u * (me - 1u))); }
    let words = select(0u, ((end + 3u) >> 2u) - (text >> 2u), literals != 0u);
    for (var j = me; j < max(words, max(more, more_match)); j += 32u) {
        if (j < more) { put(to + 1u + j, to + 2u + j, select((literals - 15u) % 255u, 255u, j + 1u < more)); }
        if (j < more_match) { put(end + 2u + j, end + 3u + j, select((half - 15u) % 255u, 255u, j + 1u < more_match)); }
        if (j < words) {
            let word = 4u * ((text >> 2u) + j);
            let low = max(word, text);
            put(low, min(word + 4u, end), four(start + low - text));
        }
    }
}

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) me: u32) {
    let row = wid.x + wid.y * groups.x;
    if (row >= sizes.pages) { return; }
    let first = row * sizes.page;
    let base = BASE;  // the page's first byte in the array that it is read from
    for (var word = (first >> 2u) + me; 4u * word < first + sizes.page; word += 32u) { settle(first, word, 0u); }
    LOAD
    // llvmpipe leaves what an earlier workgroup wrote, although WGSL says that this memory is 0.
    for (var entry = me; entry < ENTRIESu; entry += 32u) { atomicStore(&table[entry], 0u); }
    if (me == 0u) {
        atomicStore(&matching, 0u);
        atomicStore(&differing, 128u);
    }
    storageBarrier();
    var raw = sizes.page < 13u;
    var i = 0u;  // the window's first position
    var anchor = 0u;  // the first that is in no sequence yet
    var used = 0u;  // bytes of the block
    for (var turn = 0u; turn < sizes.turns; turn += 1u) {
        if (raw || i + 12u >= sizes.page) { break; }
        workgroupBarrier();
        let at = i + me;
        var slot = 0u;
        var long_slot = 0u;
        var own = vec2<u32>();  // length and distance of the position's match
        if (at + 12u < sizes.page) {
            let bytes = four(base + at);
            slot = slot_of(bytes);
            var distance = before(base, at, bytes, atomicLoad(&table[slot]));
            if (LAZY) {
                own = longer(base, at, own, distance);
                long_slot = long_slot_of(bytes, base + at);
                own = longer(base, at, own, before(base, at, bytes, atomicLoad(&table[long_slot])));
                distance = nearby(base, at, bytes);
            } else if (distance == 0u) {
                distance = nearby(base, at, bytes);
            }
            own = longer(base, at, own, distance);
        }
        lengths[me] = own.x;
        distances[me] = own.y;
        if (own.x != 0u) { atomicOr(&matching, 1u << me); }
        workgroupBarrier();
        if (me == 0u) {
            var best = min(firstTrailingBit(atomicExchange(&matching, 0u)), 32u);
            if (LAZY) {
                GO_ON
            }
            chosen = vec3<u32>(best, lengths[min(best, 31u)], distances[min(best, 31u)]);
        }
        let choice = workgroupUniformLoad(&chosen);
        var next = i + 32u;
        if (choice.x < 32u) {
            let start = i + choice.x;
            let most = sizes.page - 5u - start;
            var run = choice.y;
            var goes_on = run == COMPAREDu;
            while (goes_on) {
                let there = run + 4u * me;
                if (there < most) {
                    let differ = four(base + start + there) ^ four(base + start + there - choice.z);
                    if (differ != 0u) { atomicMin(&differing, 4u * me + (firstTrailingBit(differ) >> 3u)); }
                }
                workgroupBarrier();
                if (me == 0u) { agreeing = min(atomicExchange(&differing, 128u), most - run); }
                let step = workgroupUniformLoad(&agreeing);
                run += step;
                goes_on = step == 128u;
            }
            let literals = start - anchor;
            let bytes = sequence_bytes(literals, run);
            raw = used + bytes + 6u >= sizes.page;
            if (!raw) { emit(first + used, base + anchor, literals, run, choice.z, me); }
            used += bytes;
            next = start + run;
            anchor = next;
        }
        if (at < next && at + 12u < sizes.page) {
            atomicMax(&table[slot], at + 1u);
            if (LAZY) { atomicMax(&table[long_slot], at + 1u); }
        }
        let further = max(i, max(next, 64u) - 64u) + 32u + me;
        if (further < next && further + 12u < sizes.page) {
            let bytes = four(base + further);
            atomicMax(&table[slot_of(bytes)], further + 1u);
            if (LAZY) { atomicMax(&table[long_slot_of(bytes, base + further)], further + 1u); }
        }
        i = next;
    }
    let literals = sizes.page - anchor;
    let total = used + sequence_bytes(literals, 0u);
    storageBarrier();
    if (raw || total >= sizes.page) {
        for (var word = (first >> 2u) + me; 4u * word < first + sizes.page; word += 32u) {
            settle(first, word, x[word]);
        }
        if (me == 0u) { counts[row] = vec2<u32>(0u - sizes.page, 0xffffffffu); }
    } else {
        emit(first + used, base + anchor, literals, 0u, 0u, me);
        if (me == 0u) { counts[row] = vec2<u32>(total, 0u); }
    }
}
"""
GO_ON = "if (best < 31u && lengths[best + 1u] > lengths[best]) { best += 1u; }"
LOAD = "for (var word = me; 4u * word < sizes.page; word += 32u) { page[word] = x_four(first + 4u * word); }"


@cache
def shader(level: int, shared: bool, room: int) -> Shader:
    """shared: whether pages are read once, into workgroup memory, of which there are `room` bytes."""
    bits = MORE_BITS if not shared and room >= ROOM else BITS
    # What is compared past the end of a page, and then not counted, is inside of the array, too.
    memory = f"var<workgroup> page: array<u32, {SHARED // 4 + 8}>;" if shared else ""
    functions = [SPAN, PUT.replace("ARRAY", "blocks"), SETTLE.replace("ARRAY", "blocks")]
    functions += [four("four", "page"), four("x_four", "x")] if shared else [four("four", "x")]
    parts = {
        "MEMORY": memory,
        "FUNCTIONS": "\n".join(functions),
        "ENTRIES": str(1 << bits),
        "IS_LAZY": str(level > 1).lower(),
        "BY_BITS": str(32 - bits + (level > 1)),
        "BASE": "0u" if shared else "first",
        "LOAD": LOAD if shared else "",
        "GO_ON": "\n                ".join([GO_ON] * STEPS),
        "COMPARED": str(COMPARED),
    }
    text = TEXT
    for name, part in parts.items():
        text = text.replace(name, part)
    return Shader(f"lz4_compress, level {level}", text, (False, True, True))
