"""The text of sample: a workgroup takes a row, and searches it by digits.

Tokens are ordered by their logits' bits, which are made to order like them, and then by position: 32 bits each, of
which a pass over the row looks at eight.  It adds up the tokens of each digit, by a histogram in workgroup memory, and
what lies before the token that is sought says in which digit that is; the next pass looks at the next digit of these.
Where one token is left the search ends, and the passes that remain read nothing.

    top_k       the token at which the number of tokens reaches k
    top_p       of those up to it, the token at which their weights at temperature 1 reach p of all
    the token   of those up to it and within min_p, where their weights at the temperature exceed r of all

Bytes: 4 n for the largest, and for each search 4 n for every digit until one token is left, mostly three or four times;
no order and no weight is stored.  Operations: about 400 on integers for a token's weight, in the first pass of the last
two searches, and a few for others.  Only llvmpipe has run it: no GPU has measured it yet.
"""

from functools import cache

from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.sampling.fixed import FIXED, factor, ln2_words
from trueno_wgpu.kernels.stacked import place
from trueno_wgpu.kernels.topk import KEY
from trueno_wgpu.rows.prelude import prelude

GREEDY, TOP_P, MIN_P = 1, 2, 4
"""Bits of `flags`."""
RUN = 32768
"""Tokens between two carries: sums of so many times 16 bits fit into a word."""
SIZES = """\
struct Sizes {
    cold_low: u32, cold_high: u32, cold_shift: i32,  // log2(e) / temperature
    share_low: u32, share_high: u32,  // top_p
    far: u32, far_low: u32, far_high: u32,  // the gap that min_p allows
    flags: u32,
    count: u32, n: u32, digits: u32, top_k: u32,  // rows; tokens of one; passes of a search
    zero: u32, spare: u32, rest: u32,
    lead: vec4<u32>, x_step: vec4<u32>, r_step: vec4<u32>,
}
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read> numbers: array<u32>;
@group(0) @binding(3) var<storage, read> tables: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> tokens: array<vec2<u32>>;
const COUNT = 0u;
const PLAIN = 1u;
const COLD = 2u;
var<workgroup> bins: array<atomic<u32>, 2048>;  // of a digit: four words of 16 bits and what is above; tokens; the last
var<workgroup> groups: array<vec3<u32>, 16>;
var<workgroup> keys: array<u32, 256>;
var<workgroup> places: array<u32, 256>;
var<private> me: u32;
var<private> bound: vec2<u32>;  // the last token that is kept
"""
SEARCH = """\
fn fraction_of(b: u32) -> vec2<u32> {
    if (b >= 0x7f800001u) { return vec2<u32>(); }  // below 0, or a NaN
    if (b >= 0x3f800000u) { return vec2<u32>(0xfffff800u, 0xffffffffu); }
    let exponent = b >> 23u;
    let m = vec2<u32>((b & 0x7fffffu) | 0x800000u, 0u);
    return select(down(m, 86u - exponent), up(m, exponent - 86u), exponent >= 86u);
}

fn digit(token: vec2<u32>, d: u32) -> u32 {
    return select(token.y >> (8u * (sizes.digits - 1u - d)), token.x >> (24u - 8u * d), d < 4u) & 255u;
}

fn begins(token: vec2<u32>, known: vec2<u32>, d: u32) -> bool {
    if (d == 0u) { return true; }
    if (d < 4u) { return (token.x ^ known.x) >> (32u - 8u * d) == 0u; }
    return token.x == known.x && (d == 4u || (token.y ^ known.y) >> (8u * (sizes.digits - d)) == 0u);
}

// Four tokens, 256 apart: of eight that are read before the first is looked at, so that reads do not wait for sums.
fn words_of(base: u32, at: u32) -> vec4<u32> {
    let last = sizes.n - 1u;
    return vec4<u32>(x[base + min(at, last)], x[base + min(at + 256u, last)], x[base + min(at + 512u, last)],
                     x[base + min(at + 768u, last)]);
}

fn measure(mode: u32, most: u32, word: u32) -> vec2<u32> {
    if (mode == COUNT) { return vec2<u32>(1u, 0u); }
    if (mode == PLAIN || (sizes.flags & MIN_Pu) != 0u) {
        let plain = gap(most, word, PLAIN_BY, PLAIN_SHIFT);
        if (mode == PLAIN) { return weight(plain); }
        let over = plain.part.y > sizes.far_high || (plain.part.y == sizes.far_high && plain.part.x > sizes.far_low);
        if (plain.whole > sizes.far || (plain.whole == sizes.far && over)) { return vec2<u32>(); }
    }
    return weight(gap(most, word, vec2<u32>(sizes.cold_low, sizes.cold_high), sizes.cold_shift));
}

fn total_of(bin: u32) -> vec3<u32> {
    let at = bin * 8u;
    return vec3<u32>(atomicLoad(&bins[at]) | (atomicLoad(&bins[at + 1u]) << 16u),
                     atomicLoad(&bins[at + 2u]) | (atomicLoad(&bins[at + 3u]) << 16u), atomicLoad(&bins[at + 4u]));
}

fn aim_of(mode: u32, total: vec3<u32>, r: vec2<u32>) -> vec3<u32> {
    if (mode == COUNT) { return vec3<u32>(sizes.top_k - 1u, 0u, 0u); }
    if (mode == COLD) { return part_of(total, r); }
    let share = part_of(total, vec2<u32>(sizes.share_low, sizes.share_high));
    let none = all(share == vec3<u32>());
    return plus96(share, select(vec3<u32>(0xffffffffu), vec3<u32>(), none));  // one less: this sum may be reached
}

// The first token up to `bound` at which the sum of the measure exceeds its aim.
fn search(mode: u32, base: u32, most: u32, r: vec2<u32>) -> vec2<u32> {
    var known = vec2<u32>();
    var before = vec3<u32>();
    var aim = vec3<u32>();
    var single = false;
    for (var d = 0u; d < sizes.digits; d += 1u) {
        for (var i = 0u; i < 8u; i += 1u) { atomicStore(&bins[me * 8u + i], 0u); }
        workgroupBarrier();
        for (var begin = 0u; begin < sizes.n; begin += RUNu) {
            let end = select(min(begin + RUNu, sizes.n), 0u, single);
            for (var next = begin + me; next < end; next += 2048u) {
                let near = words_of(base, next);
                let far = words_of(base, next + 1024u);
                for (var j = 0u; j < 8u; j += 1u) {
                    let at = next + 256u * j;
                    let word = select(near[j & 3u], far[j & 3u], j > 3u);
                    let token = vec2<u32>(~key(word), at);
                    let kept = token.x < bound.x || (token.x == bound.x && token.y <= bound.y);
                    if (at < end && kept && begins(token, known, d)) {
                        let bin = digit(token, d) * 8u;
                        let w = measure(mode, most, word);
                        atomicAdd(&bins[bin], w.x & 0xffffu);
                        atomicAdd(&bins[bin + 1u], w.x >> 16u);
                        atomicAdd(&bins[bin + 2u], w.y & 0xffffu);
                        atomicAdd(&bins[bin + 3u], w.y >> 16u);
                        atomicAdd(&bins[bin + 5u], 1u);
                        atomicStore(&bins[bin + 6u], token.x);
                        atomicStore(&bins[bin + 7u], token.y);
                    }
                }
            }
            workgroupBarrier();
            for (var i = me * 8u; i < me * 8u + 4u; i += 1u) {
                let sum = atomicLoad(&bins[i]);
                atomicStore(&bins[i], sum & 0xffffu);
                atomicAdd(&bins[i + 1u], sum >> 16u);
            }
            workgroupBarrier();
        }
        if (me < 16u) {
            var sum = vec3<u32>();
            for (var i = 0u; i < 16u; i += 1u) { sum = plus96(sum, total_of(me * 16u + i)); }
            groups[me] = sum;
        }
        workgroupBarrier();
        if (d == 0u) {
            var total = vec3<u32>();
            for (var i = 0u; i < 16u; i += 1u) { total = plus96(total, groups[i]); }
            aim = aim_of(mode, total, r);
        }
        if (!single) {
            var bin = 0u;
            for (; bin < 15u; bin += 1u) {
                let next = plus96(before, groups[bin]);
                if (exceeds(next, aim)) { break; }
                before = next;
            }
            bin = bin * 16u;
            let last = bin + 15u;
            for (; bin < last; bin += 1u) {
                let next = plus96(before, total_of(bin));
                if (exceeds(next, aim)) { break; }
                before = next;
            }
            single = atomicLoad(&bins[bin * 8u + 5u]) == 1u;
            if (single) {
                known = vec2<u32>(atomicLoad(&bins[bin * 8u + 6u]), atomicLoad(&bins[bin * 8u + 7u]));
            } else if (d < 4u) {
                known.x |= bin << (24u - 8u * d);
            } else {
                known.y |= bin << (8u * (sizes.digits - 1u - d));
            }
        }
        workgroupBarrier();
    }
    return known;
}
"""
MAIN = """\
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) ngroups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let row = wid.x + wid.y * ngroups.x;
    if (row >= sizes.count) { return; }
    me = lane;
PLACE    var best = 0u;
    var first = 0xffffffffu;
    for (var next = lane; next < sizes.n; next += 1024u) {
        let near = words_of(base, next);
        for (var j = 0u; j < 4u; j += 1u) {
            let rank = key(near[j]);
            let at = next + 256u * j;
            if (at < sizes.n && (rank > best || first == 0xffffffffu)) {
                best = rank;
                first = at;
            }
        }
    }
    keys[lane] = best;
    places[lane] = first;
    for (var half = 128u; half > 0u; half = half / 2u) {
        workgroupBarrier();
        if (lane < half) {
            let other = places[lane + half];
            let rank = keys[lane + half];
            if (rank > keys[lane] || (rank == keys[lane] && other < places[lane])) {
                keys[lane] = rank;
                places[lane] = other;
            }
        }
    }
    workgroupBarrier();
    var token = vec2<u32>(0u, places[0]);
    let most = x[base + token.y];
    if ((sizes.flags & GREEDYu) == 0u) {
        bound = vec2<u32>(0xffffffffu);
        let r = fraction_of(numbers[place]);
        if (sizes.top_k > 0u && sizes.top_k < sizes.n) { bound = search(COUNT, base, most, r); }
        if ((sizes.flags & TOP_Pu) != 0u) { bound = search(PLAIN, base, most, r); }
        let drawn = search(COLD, base, most, r);
        if ((most & 0x7fffffffu) <= 0x7f800000u) { token = drawn; }
    }
    if (lane == 0u) { tokens[row] = vec2<u32>(token.y, 0u); }
}
"""


def _vec2(low: int, high: int) -> str:
    return f"vec2<u32>({low:#x}u, {high:#x}u)"


@cache
def shader() -> Shader:
    low, high, shift = factor(1.0)
    constants = f"const LN2 = {_vec2(*ln2_words())};\nconst PLAIN_BY = {_vec2(low, high)};\n"
    constants += f"const PLAIN_SHIFT = {shift};\n"
    words = {"RUNu": f"{RUN}u", "GREEDYu": f"{GREEDY}u", "TOP_Pu": f"{TOP_P}u", "MIN_Pu": f"{MIN_P}u"}
    text = FIXED + SEARCH + MAIN.replace("PLACE", place("row", base="x_step", place="r_step"))
    for word, value in words.items():
        text = text.replace(word, value)
    whole = [SIZES, constants, prelude(text), KEY, text]
    return Shader("sample", "\n".join(whole), (False, False, False, True))


def trips(n: int) -> int:
    """Loop trips of an invocation, at most."""
    digits = 4 + -(-max(n - 1, 1).bit_length() // 8)
    each = 64 + 9 * -(-n // 2048) + 15 * -(-n // RUN)
    return 5 * -(-n // 1024) + 8 + 3 * digits * each
