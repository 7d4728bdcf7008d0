"""What the texts of attention share: uniforms, which keys a query sees, the weight of a score, reads and stores."""

import re
from dataclasses import dataclass

from trueno_wgpu.kernels.store import PLAIN, Store
from trueno_wgpu.rows.prelude import prelude

LOW = 0xFF7FFFFF
"""The bits of the score of a key that is not seen: the least float32.  Its weight is 0, whatever the maximum."""

SIZES = """\
struct Sizes {
    scale: f32, cap: f32, after: f32,  // of queries; scores are after · tanh(score / cap), if there is a cap
    zero: u32,
    t: u32, s: u32, hq: u32, hk: u32,
    d: u32, e: u32, group: u32,  // heads of queries that share a head of keys
    bound: u32, before: u32,  // queries that are bound of each problem, and queries before them
    top: u32, queries: u32,  // of those bound, the queries of this dispatch
    skip: u32, begin: u32, end: u32,  // keys before those that are bound; keys of this dispatch
    share: u32, splits: u32, part: u32,  // keys of one split; the part that the first split writes
    back: i32, ahead: i32,  // how far before and after its own position a query sees
    groups: u32, blocks: u32, wide: u32,  // workgroups; blocks of rows, and of columns of the result
    rows: u32, spare: u32,  // rows of one part
    lead: vec4<u32>, q_step: vec4<u32>, k_step: vec4<u32>, v_step: vec4<u32>,
MORE}
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> q: array<QK>;
@group(0) @binding(2) var<storage, read> k: array<QK>;
@group(0) @binding(3) var<storage, read> v: array<VALUE>;
"""
OFFSETS = """\
@group(0) @binding(4) var<storage, read> offsets_q: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read> offsets_k: array<vec2<u32>>;
"""
OFFSETS_SIZES = (
    "    n: u32, first_block: u32,  // offsets of each kind; of all sequences' blocks, the first of this dispatch\n"
)
OFFSET = """
fn offset_at(x: vec2<u32>, most: u32) -> u32 {
    return select(min(x.x, most), select(most, 0u, x.y >= 0x80000000u), x.y != 0u);
}
"""
"""An int64, cut to what there is: it is not checked on a device."""
OUT = "@group(0) @binding({}) var<storage, read_write> out: array<VALUE>;\n"
STATS = (
    "@group(0) @binding({}) var<storage, read_write> stats: array<vec2<f32>>;  // per row: maximum, sum of weights\n"
)
MASK = "@group(0) @binding(4) var<storage, read> mask: array<f32>;\n"
MASK_SIZES = "    m_step: vec4<u32>, mask_head: u32, mask_row: u32,  // elements from one head and query to the next\n"
MASKED = """
fn masked(score: f32, at: u32) -> f32 {
    let m = mask[at];
    return select(score + m * 1.4426950408889634, LOW, bits(m) == 0xff800000u);
}
"""

WEIGHT = """\
const LOW = -0x1.fffffep+127f;

fn weight(x: f32) -> f32 {
    let c = tame(x, -126.0, 0.0);
    let n = round(c);
    return select(select(two_to(c - n, n), 0.0, x < -126.0), x, is_nan(x));
}

fn weight_of(score: f32, most: f32) -> f32 {
    return select(weight(score - most), 0.0, bits(score) == 0xff7fffffu);
}
"""
"""Powers of two: scores are multiplied by log2(e) beforehand.  The largest score of a row has the weight 1."""
CAPPED = """
fn capped(x: f32) -> f32 { return safe_tanh(quotient(x, sizes.cap)) * sizes.after; }
"""

READ = {
    4: """\
fn read_NAME4(at: u32, column: u32, inside: bool) -> vec4<f32> {
    let here = inside & (column < sizes.WIDTH);
    return select(vec4<f32>(), NAME[select(0u, (at + column) / 4u, here)], here);
}
""",
    1: """\
fn read_NAME1(at: u32, column: u32, inside: bool) -> f32 {
    let here = inside & (column < sizes.WIDTH);
    return select(0.0, NAME[select(0u, at + column, here)], here);
}
fn read_NAME4(at: u32, column: u32, inside: bool) -> vec4<f32> {
    return vec4<f32>(read_NAME1(at, column, inside), read_NAME1(at, column + 1u, inside),
                     read_NAME1(at, column + 2u, inside), read_NAME1(at, column + 3u, inside));
}
""",
}
PUT = {
    4: """\
fn put(at: u32, column: u32, y: vec4<f32>) {
    if (column < sizes.e) { store(at + column, 0u, 0u, y); }
}
""",
    1: """\
fn put(at: u32, column: u32, y: vec4<f32>) {
    if (column < sizes.e) { store(at + column, 0u, 0u, y.x); }
    if (column + 1u < sizes.e) { store(at + column + 1u, 0u, 0u, y.y); }
    if (column + 2u < sizes.e) { store(at + column + 2u, 0u, 0u, y.z); }
    if (column + 3u < sizes.e) { store(at + column + 3u, 0u, 0u, y.w); }
}
""",
}


@dataclass(frozen=True, slots=True)
class Form:
    """What changes the text of every kernel here.

    keys, values: elements that are read at once, 4 or 1, of queries and keys, and of values and results.  capped:
    whether scores have a cap.  store: a partial one leaves sums of values, not divided, and their `stats`.  masked:
    whether a mask is added to scores.  ragged: whether offsets say where sequences begin.
    """

    keys: int
    values: int
    capped: bool = False
    store: Store = PLAIN
    masked: bool = False
    ragged: bool = False

    @property
    def writes(self) -> tuple[bool, ...]:
        """Of the bindings: q, k, v, a mask or offsets, and what is written."""
        reads = 3 + self.masked + 2 * self.ragged
        return (*(False,) * reads, True, *((True,) if self.store.partial else ()), *self.store.writes)

    @property
    def bases(self) -> dict[str, str]:
        """Where a problem begins in each operand, as `stacked.place` prints it."""
        names = "qkvm" if self.masked else "qkv"
        return {f"from_{name}": f"{name}_step" for name in names}

    def score(self, value: str, at: str) -> str:
        """A score, capped, and with the number of the mask at a place."""
        value = f"capped({value})" if self.capped else value
        return f"masked({value}, {at})" if self.masked else value


def head(form: Form) -> str:
    """Uniforms, bindings, and functions: `read_q4`, `read_k4`, `read_v4`, `put`, `weight_of`, and `capped`."""
    partial, free = form.store.partial, 4 + form.masked + 2 * form.ragged
    kinds = {"QK": form.keys, "VALUE": form.values}
    more = MASK_SIZES if form.masked else OFFSETS_SIZES if form.ragged else ""
    text = SIZES.replace("MORE", more) + (MASK if form.masked else OFFSETS if form.ragged else "")
    text += OUT.format(free) + (STATS.format(free + 1) if partial else "")
    for word, width in kinds.items():
        text = text.replace(f"<{word}>", "<f32>" if width == 1 else "<vec4<f32>>")
    reads = [
        READ[width].replace("NAME", name).replace("WIDTH", extent)
        for name, width, extent in (("q", form.keys, "d"), ("k", form.keys, "d"), ("v", form.values, "e"))
    ]
    own = WEIGHT + (CAPPED if form.capped else "") + (MASKED if form.masked else "")
    own += OFFSET if form.ragged else ""
    functions = re.sub(r"\bu\.", "sizes.", prelude(own))
    parts = [text, form.store.declarations(free + 1 + partial), functions, own, *reads,
             form.store.function(form.values), PUT[form.values]]  # fmt: skip
    return "\n".join(part for part in parts if part)


def start(size: int) -> str:
    """The beginning of `main`, of so many invocations: the workgroup's block, split, head, columns and problem."""
    return f"""\
@compute @workgroup_size({size})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) ngroups: vec3<u32>,
        @builtin(local_invocation_index) me: u32) {{
    let number = wid.x + wid.y * ngroups.x;
    if (number >= sizes.groups) {{ return; }}
    let block = sizes.blocks - 1u - number % sizes.blocks;  // causal: those that see most begin first
    let head = number / sizes.blocks % sizes.hk;
    let split = number / (sizes.blocks * sizes.hk) % sizes.splits;
    let across = number / (sizes.blocks * sizes.hk * sizes.splits) % sizes.wide;
    let problem = number / (sizes.blocks * sizes.hk * sizes.splits * sizes.wide);
    let height = sizes.queries * sizes.group;
    let offset = i32(sizes.s) - i32(sizes.t) + i32(sizes.before + sizes.top);  // the first query's position
    let keys_begin = sizes.begin;
    let keys_end = sizes.end;
    let share = sizes.share;
"""


def start_ragged(size: int, rows: int) -> str:
    """The same for sequences: a block of so many rows looks for its own; `problem` is its first query.

    Queries before the first offset and behind the last one are sequences without keys.
    """
    return f"""\
@compute @workgroup_size({size})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) ngroups: vec3<u32>,
        @builtin(local_invocation_index) me: u32) {{
    let number = wid.x + wid.y * ngroups.x;
    if (number >= sizes.groups) {{ return; }}
    let head = number / sizes.blocks % sizes.hk;
    let split = number / (sizes.blocks * sizes.hk) % sizes.splits;
    let across = number / (sizes.blocks * sizes.hk * sizes.splits) % sizes.wide;
    var block = sizes.first_block + number % sizes.blocks;
    var problem = 0u;
    var queries = 0u;
    var first_key = 0u;
    var keys_end = 0u;
    var last = 0u;
    var last_key = 0u;
    for (var i = 0u; i <= sizes.n; i += 1u) {{
        let first = last;
        let before = last_key;
        if (i < sizes.n) {{
            last = max(first, offset_at(offsets_q[i], sizes.t));
            last_key = max(before, offset_at(offsets_k[i], sizes.s));
        }} else {{
            last = sizes.t;
        }}
        let own = ((last - first) * sizes.group + {rows - 1}u) / {rows}u;
        if (block < own) {{
            problem = first;
            queries = last - first;
            if (i > 0u && i < sizes.n) {{
                first_key = before;
                keys_end = last_key - before;
            }}
            break;
        }}
        block -= own;
    }}
    if (queries == 0u) {{ return; }}
    let height = queries * sizes.group;
    let offset = i32(keys_end) - i32(queries);
    let keys_begin = 0u;
    let share = (keys_end + sizes.splits * 64u - 1u) / (sizes.splits * 64u) * 64u;
    let from_q = problem * sizes.hq * sizes.d;
    let from_k = first_key * sizes.hk * sizes.d;
    let from_v = first_key * sizes.hk * sizes.e;
"""


def seen(rows: int) -> str:
    """The keys that a block of so many rows sees: `low` to `high`; `nearest` and `farthest` are its positions."""
    return f"""\
    let nearest = offset + i32(block * {rows}u / sizes.group);
    let farthest = offset + i32(min(block * {rows}u + {rows - 1}u, height - 1u) / sizes.group);
    let begin = keys_begin + split * share;
    let low = u32(max(i32(begin), nearest - sizes.back));
    let high = u32(max(min(i32(min(begin + share, keys_end)), farthest + sizes.ahead + 1), 0));
"""
