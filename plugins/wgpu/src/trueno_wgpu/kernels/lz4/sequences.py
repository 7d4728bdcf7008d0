"""The text of lz4_compress: 32 positions at a time, a window, look for matches, and those taken become sequences.

A table in workgroup memory holds for each hash of four bytes the last position that was passed, plus one.  Each
invocation looks up its own position, and compares the last four bytes before it, for what repeats within the window.
The first position with a match is taken, then the first one behind that match, until the window is passed.  Level 2
has half a table for hashes of eight bytes; a position has the longest of its matches, and is not taken if the next
position has a longer one.  All positions that are passed enter the table, by an atomic maximum: the result does not
depend on which invocation comes first.

A sequence is written at once: its bytes are 0 before, so words that it shares with its neighbours are combined by
atomic operations.

The page stays in storage, and comes through the caches: workgroup memory that it would take there is better spent on
more workgroups, as each of them waits most of the time for the step before.
"""

from functools import cache

from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.lz4.words import PUT, SETTLE, SPAN, four

COMPARED = 20
"""Bytes of a match that each invocation compares; the workgroup compares the rest of the one that is taken."""

TEXT = """\
struct Sizes { pages: u32, page: u32, windows: u32, }  // pages that are bound; bytes of one
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> blocks: array<atomic<u32>>;
@group(0) @binding(3) var<storage, read_write> counts: array<vec2<u32>>;
var<workgroup> table: array<atomic<u32>, ENTRIES>;
var<workgroup> matching: atomic<u32>;  // a bit per position
var<workgroup> matches: u32;  // the same for all to read
var<workgroup> chosen: vec2<u32>;  // length and distance
LENGTHS
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
    for (var word = (first >> 2u) + me; 4u * word < first + sizes.page; word += 32u) { settle(first, word, 0u); }
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
    for (var window = 0u; window < sizes.windows; window += 1u) {
        if (raw || i + 12u >= sizes.page) { break; }
        workgroupBarrier();
        let at = i + me;
        var slot = 0u;
        var long_slot = 0u;
        var own = vec2<u32>();  // length and distance of the position's match
        if (at + 12u < sizes.page) {
            let bytes = four(first + at);
            slot = slot_of(bytes);
            var distance = before(first, at, bytes, atomicLoad(&table[slot]));
            if (LAZY) {
                own = longer(first, at, own, distance);
                long_slot = long_slot_of(bytes, first + at);
                own = longer(first, at, own, before(first, at, bytes, atomicLoad(&table[long_slot])));
                distance = nearby(first, at, bytes);
            } else if (distance == 0u) {
                distance = nearby(first, at, bytes);
            }
            own = longer(first, at, own, distance);
        }
        var takes = own.x != 0u;
        GIVE_WAY
        if (takes) { atomicOr(&matching, 1u << me); }
        workgroupBarrier();
        if (me == 0u) { matches = atomicExchange(&matching, 0u); }
        var left = workgroupUniformLoad(&matches);
        var next = i + 32u;
        while (left != 0u && !raw) {
            let best = firstTrailingBit(left);
            if (me == best) { chosen = own; }
            let choice = workgroupUniformLoad(&chosen);
            let start = i + best;
            let most = sizes.page - 5u - start;
            var run = choice.x;
            var goes_on = run == COMPAREDu;
            while (goes_on) {
                let there = run + 4u * me;
                if (there < most) {
                    let differ = four(first + start + there) ^ four(first + start + there - choice.y);
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
            if (!raw) { emit(first + used, first + anchor, literals, run, choice.y, me); }
            used += bytes;
            anchor = start + run;
            next = max(next, anchor);
            let passed = best + run;
            left = select(left & (0xffffffffu << passed), 0u, passed >= 32u);
        }
        if (at + 12u < sizes.page) {
            atomicMax(&table[slot], at + 1u);
            if (LAZY) { atomicMax(&table[long_slot], at + 1u); }
        }
        let further = max(i, max(next, 64u) - 64u) + 32u + me;
        if (further < next && further + 12u < sizes.page) {
            let bytes = four(first + further);
            atomicMax(&table[slot_of(bytes)], further + 1u);
            if (LAZY) { atomicMax(&table[long_slot_of(bytes, first + further)], further + 1u); }
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
        emit(first + used, first + anchor, literals, 0u, 0u, me);
        if (me == 0u) { counts[row] = vec2<u32>(total, 0u); }
    }
}
"""
LENGTHS = "var<workgroup> lengths: array<u32, 32>;"
GIVE_WAY = """\
lengths[me] = own.x;
        workgroupBarrier();
        takes = takes && (me == 31u || lengths[me + 1u] <= own.x);"""
"""Of level 2."""


@cache
def shader(level: int, bits: int) -> Shader:
    """bits: of the number of the table's entries, each of four bytes."""
    functions = [SPAN, PUT.replace("ARRAY", "blocks"), SETTLE.replace("ARRAY", "blocks"), four("four", "x")]
    parts = {
        "FUNCTIONS": "\n".join(functions),
        "ENTRIES": str(1 << bits),
        "IS_LAZY": str(level > 1).lower(),
        "BY_BITS": str(32 - bits + (level > 1)),
        "LENGTHS": LENGTHS if level > 1 else "",
        "GIVE_WAY": GIVE_WAY if level > 1 else "",
        "COMPARED": str(COMPARED),
    }
    text = TEXT
    for name, part in parts.items():
        text = text.replace(name, part)
    return Shader(f"lz4_compress, level {level}", text, (False, True, True))
