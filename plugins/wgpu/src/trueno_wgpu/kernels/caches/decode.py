"""attention_decode: a workgroup takes a share of one sequence's keys, of one head, for up to eight rows of queries.

128 keys at a time, a key an invocation, whose page it looks up:

    scores     queries in workgroup memory, each read by all invocations at once, times the invocation's own key
    weights    the maximum of each row, by a tree; then 2^(score − maximum) in place
    values     invocations along a row of values, the others on further keys; added up over these at the end

A share is cut from the sequence's own length, which only the device knows: shares of a short sequence are short, and
the last of them empty.  `attention.join` puts them together, with a sink where there is one.  No subgroups are used.

A page outside of the cache that holds a key, and a length outside of the table, are not read and give NaN; the host
refuses them where it can.

Bytes: the keys and values of each sequence, once for every eight rows of queries.  Flops: 2 (d + e) for each query and
key that it sees, and 6 to widen a number of 16 bits.  On an H200, 28 heads over 4
of keys and 260 tokens took 41 µs when each piece of a key was waited for.
"""

import re
from dataclasses import dataclass
from functools import cache

from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.attention.text import CAPPED, WEIGHT
from trueno_wgpu.kernels.caches.cells import WIDENING, Rows
from trueno_wgpu.kernels.store import PLAIN, Store
from trueno_wgpu.rows.prelude import prelude

SIZE = 128
"""Invocations of a workgroup, and keys at a time."""
MOST_ROWS = 8
ROOM = 13312
"""Bytes of workgroup memory for queries and scores, of the 16 KiB that every device has."""
AHEAD = 4
"""Pieces of a key, and values, that an invocation reads before it uses them."""


@dataclass(frozen=True, slots=True)
class Form:
    """What changes the text.  rows: 1, 2, 4 or 8 of queries.  store: a partial one leaves sums, and their `stats`."""

    keys: Rows
    values: Rows
    rows: int
    capped: bool = False
    store: Store = PLAIN

    @property
    def deep(self) -> int:
        """vec4s of a query, with zeros behind it up to a whole piece."""
        return self.keys.pieces * self.keys.vectors

    @property
    def across(self) -> int:
        """Invocations along a row of values: a power of two."""
        return min(1 << (self.values.pieces - 1).bit_length(), SIZE)

    @property
    def down(self) -> int:
        """Values that the workgroup reads at once."""
        return SIZE // self.across

    @property
    def wide(self) -> int:
        """Workgroups along a row of values."""
        return -(-self.values.pieces // SIZE)

    @property
    def sums(self) -> int:
        """vec4s of results that an invocation holds."""
        return self.rows * self.values.vectors

    def trips(self) -> int:
        """Loop trips that 128 keys cost an invocation, and more."""
        return self.keys.pieces + -(-SIZE // (AHEAD * self.down)) + SIZE.bit_length() + 4

    def first_trips(self) -> int:
        """Loop trips before and after all keys."""
        return self.rows * self.deep // SIZE + SIZE.bit_length() + self.sums * (self.down + 2) + 8


def rows_for(rows: int, d: int, keys: Rows) -> int:
    """Rows of queries of a workgroup; 0 where not even one fits into its memory."""
    each = 16 * keys.pieces * keys.vectors + 4 * SIZE
    most = min(1 << (rows - 1).bit_length(), MOST_ROWS)
    while most and most * each > ROOM:
        most //= 2
    return most


SIZES = """\
struct Sizes {
    scale: f32, cap: f32, after: f32,  // of queries; scores are after · tanh(score / cap), if there is a cap
    zero: u32, nan: f32,
    t: u32, hq: u32, hk: u32, group: u32,  // heads of queries that share a head of keys
    page: u32, blocks: u32, pages: u32,  // tokens of a page; columns of the table; pages of the cache
    top: u32, height: u32,  // pages before those that are bound; of those
    window: i32,
    tiles: u32, splits: u32, part: u32,  // of rows of queries; of keys; the part that the first split writes
    rows: u32, groups: u32,  // rows of one part; workgroups
}
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> k: array<KEYS>;
@group(0) @binding(3) var<storage, read> v: array<VALUES>;
@group(0) @binding(4) var<storage, read> table: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read> lengths: array<vec2<u32>>;
@group(0) @binding(6) var<storage, read_write> out: array<RESULT>;
"""
STATS = (
    "@group(0) @binding(7) var<storage, read_write> stats: array<vec2<f32>>;  // of each row: maximum, sum of weights\n"
)
PUT = {
    4: "fn put(at: u32, column: u32, y: vec4<f32>) { if (column < Eu) { store(at + column, 0u, 0u, y); } }\n",
    1: """\
fn put(at: u32, column: u32, y: vec4<f32>) {
    if (column < Eu) { store(at + column, 0u, 0u, y.x); }
    if (column + 1u < Eu) { store(at + column + 1u, 0u, 0u, y.y); }
    if (column + 2u < Eu) { store(at + column + 2u, 0u, 0u, y.z); }
    if (column + 3u < Eu) { store(at + column + 3u, 0u, 0u, y.w); }
}
""",
}
NOWHERE = "0xffffffffu"
START = f"""\
@compute @workgroup_size({SIZE})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) ngroups: vec3<u32>,
        @builtin(local_invocation_index) me: u32) {{
    let number = wid.x + wid.y * ngroups.x;
    if (number >= sizes.groups) {{ return; }}
    let tile = number % sizes.tiles;
    let head = number / sizes.tiles % sizes.hk;
    let split = number / (sizes.tiles * sizes.hk) % sizes.splits;
    let side = number / (sizes.tiles * sizes.hk * sizes.splits) % WIDEu;
    let sequence = number / (sizes.tiles * sizes.hk * sizes.splits * WIDEu);
    let word = lengths[sequence];
    let broken = word.y != 0u || word.x > sizes.blocks * sizes.page;
    let length = select(word.x, 0u, broken);
    let height = sizes.t * sizes.group;
    let offset = i32(length) - i32(sizes.t);  // the first query's position
    let nearest = offset + i32(tile * ROWSu / sizes.group);
    let farthest = offset + i32(min(tile * ROWSu + (ROWSu - 1u), height - 1u) / sizes.group);
    let begin = u32(max(nearest - sizes.window + 1, 0));
    let end = u32(max(farthest + 1, 0));
    let share = ((max(end, begin) - begin + sizes.splits - 1u) / sizes.splits + {SIZE - 1}u) / {SIZE}u * {SIZE}u;
    let low = begin + split * share;
    let high = min(low + share, end);
    for (var u = me; u < ROWSu * DEEPu; u += {SIZE}u) {{
        let n = min(tile * ROWSu + u / DEEPu, height - 1u);
        let q_at = ((sequence * sizes.t + n / sizes.group) * sizes.hq + head * sizes.group + n % sizes.group) * Du;
        let c = u % DEEPu * 4u;
        var x = vec4<f32>();
        if (c < Du) {{ x.x = q[q_at + c]; }}
        if (c + 1u < Du) {{ x.y = q[q_at + c + 1u]; }}
        if (c + 2u < Du) {{ x.z = q[q_at + c + 2u]; }}
        if (c + 3u < Du) {{ x.w = q[q_at + c + 3u]; }}
        queries[u] = x * sizes.scale;
    }}
    workgroupBarrier();
"""
LOOKUP = f"""\
let key = at + me;
let seen = key < high;
let entry = table[sequence * sizes.blocks + select(0u, key / sizes.page, seen)];
let lost = seen && (entry.y != 0u || entry.x >= sizes.pages);
let here = seen && !lost && entry.x >= sizes.top && entry.x - sizes.top < sizes.height;
let row = select({NOWHERE}, ((entry.x - sizes.top) * sizes.page + key % sizes.page) * sizes.hk + head, here);
places[me] = row;
"""


@cache
def shader(form: Form) -> Shader:
    partial = form.store.partial
    writes = (False,) * 5 + (True,) + (True,) * partial + form.store.writes
    return Shader(f"attention_decode {form.keys.form} {form.rows}", text(form), writes)


def text(f: Form) -> str:
    width = 4 if f.values.n % 4 == 0 else 1
    own = WEIGHT + (CAPPED if f.capped else "")
    memory = [f"var<workgroup> queries: array<vec4<f32>, {f.rows * f.deep}>;",
              f"var<workgroup> scores: array<f32, {f.rows * SIZE}>;", f"var<workgroup> sums: array<f32, {SIZE}>;",
              f"var<workgroup> places: array<u32, {SIZE}>;",
              f"var<workgroup> held: array<vec4<f32>, {SIZE}>;\n"]  # fmt: skip
    parts = [SIZES + (STATS if f.store.partial else ""), f.store.declarations(8 if f.store.partial else 7),
             re.sub(r"\bu\.", "sizes.", prelude(own)), own, WIDENING[f.keys.form], f.keys.reader("k"),
             f.values.reader("v"), f.store.function(width), PUT[width], *memory, START, _state(f), _loop(f), _end(f),
             f.store.end + "}\n"]  # fmt: skip
    words = {"KEYS": f.keys.words, "VALUES": f.values.words, "RESULT": "f32" if width == 1 else "vec4<f32>",
             "WIDEu": f"{f.wide}u", "ROWSu": f"{f.rows}u", "DEEPu": f"{f.deep}u", "Du": f"{f.keys.n}u",
             "Eu": f"{f.values.n}u"}  # fmt: skip
    whole = "\n".join(part for part in parts if part)
    return re.sub(rf"\b({'|'.join(words)})\b", lambda m: words[m[1]], whole)


def _lines(lines: list[str], indent: int) -> str:
    return "\n".join(" " * indent + line for line in lines)


def _state(f: Form) -> str:
    lines = [f"let own = me % {f.rows}u;", f"let place = side * {SIZE}u + me % {f.across}u;",
             f"let along = me / {f.across}u;", "var most = LOW;", "var total = 0.0;"]  # fmt: skip
    for r in range(f.rows):
        number = f"min(tile * ROWSu + {r}u, height - 1u)"
        lines += [f"let p{r} = offset + i32({number} / sizes.group);", f"var most{r} = LOW;"]
    lines += [f"var o{i} = vec4<f32>();" for i in range(f.sums)]
    return _lines(lines, 4)


def _loop(f: Form) -> str:
    lines = [f"for (var at = low; at < high; at += {SIZE}u) {{"]
    for part in (_scores(f), _weights(f), _values(f)):
        lines += ["    " + line for line in part]
    return _lines([*lines, "    workgroupBarrier();", "}"], 4)


def _scores(f: Form) -> list[str]:
    lines = LOOKUP.splitlines() + [f"var s{r} = 0.0;" for r in range(f.rows)]
    ahead = next(n for n in (AHEAD, 2, 1) if f.keys.pieces % n == 0)  # a load waits as long as all of them
    lines += ["if (here) {", f"    for (var c = 0u; c < {f.keys.pieces}u; c += {ahead}u) {{"]
    lines += [f"        let x{u} = read_k(row, c + {u}u);" for u in range(ahead)]
    for u, r in ((u, r) for u in range(ahead) for r in range(f.rows)):
        places = [f"{r * f.deep + u * f.keys.vectors + i}u + c * {f.keys.vectors}u" for i in range(f.keys.vectors)]
        dots = [f"dot(queries[{place}], x{u}.{'ab'[i]})" for i, place in enumerate(places)]
        lines.append(f"        s{r} += {' + '.join(dots)};")
    lines += ["    }", "}", "let j = i32(key);"]
    for r in range(f.rows):
        value = f"capped(s{r})" if f.capped else f"s{r}"
        near = f"(here | lost) & (j <= p{r}) & (j > p{r} - sizes.window)"
        lines.append(f"scores[me * {f.rows}u + {r}u] = select(LOW, select({value}, sizes.nan, lost), {near});")
    return [*lines, "workgroupBarrier();"]


def _tree(f: Form, joined: str) -> list[str]:
    """Join `sums` of all invocations that have the same row: the first places hold the rows' results."""
    return [f"for (var half = {SIZE // 2}u; half >= {f.rows}u; half = half / 2u) {{", "    workgroupBarrier();",
            f"    if (me < half) {{ sums[me] = {joined}; }}", "}", "workgroupBarrier();"]  # fmt: skip


def _weights(f: Form) -> list[str]:
    each = range(f.rows)
    lines = [f"let x{i} = scores[me + {i * SIZE}u];" for i in each]
    most = "x0"
    for i in each[1:]:
        most = f"max({most}, x{i})"
    lines += [f"sums[me] = {most};", *_tree(f, "max(sums[me], sums[me + half])"), "let now = max(most, sums[own]);"]
    for r in each:
        lines += [f"let now{r} = max(most{r}, sums[{r}u]);", f"let old{r} = weight(most{r} - now{r});",
                  f"most{r} = now{r};"]  # fmt: skip
        lines += [f"o{i} *= old{r};" for i in range(r * f.values.vectors, (r + 1) * f.values.vectors)]
    lines += [f"let w{i} = weight_of(x{i}, now);" for i in each]
    lines += [f"total = total * weight(most - now) + ({' + '.join(f'w{i}' for i in each)});", "most = now;"]
    lines += [f"scores[me + {i * SIZE}u] = w{i};" for i in each]
    return [*lines, "workgroupBarrier();"]


def _values(f: Form) -> list[str]:
    vectors = range(f.values.vectors)
    lines = [f"for (var near = along; near < min({SIZE}u, high - at); near += {AHEAD * f.down}u) {{"]
    for u in range(AHEAD):
        lines += [f"    let near{u} = near + {u * f.down}u;",
                  f"    let at{u} = select({NOWHERE}, places[min(near{u}, {SIZE - 1}u)], near{u} < {SIZE}u);",
                  f"    let in{u} = at{u} != {NOWHERE} && place < {f.values.pieces}u;",
                  f"    let v{u} = read_v(select(0u, at{u}, in{u}), select(0u, place, in{u}));"]  # fmt: skip
    for u in range(AHEAD):
        lines += [f"    let v{u}_{i} = select(vec4<f32>(), v{u}.{'ab'[i]}, in{u});" for i in vectors]
        lines.append(f"    let at_w{u} = min(near{u}, {SIZE - 1}u) * {f.rows}u;")
        for r in range(f.rows):
            lines.append(f"    let w{u}_{r} = vec4<f32>(select(0.0, scores[at_w{u} + {r}u], in{u}));")
            lines += [f"    o{r * f.values.vectors + i} = fma(w{u}_{r}, v{u}_{i}, o{r * f.values.vectors + i});"
                      for i in vectors]  # fmt: skip
    return [*lines, "}"]


def _end(f: Form) -> str:
    """One vec4 after another: a loop, because software compiles each barrier for a second where many registers live."""
    vectors = f.values.vectors
    lines = ["sums[me] = total;", *_tree(f, "sums[me] + sums[me + half]")]
    if f.store.partial:
        lines += ["if (me == 0u) {", *(f"    scores[{r}] = most{r};" for r in range(f.rows)), "}"]
    lines += [
        f"for (var i = 0u; i < {f.sums}u; i += 1u) {{",
        "    workgroupBarrier();",
        "    switch i {",
        *(f"        case {i}u: {{ held[me] = o{i}; }}" for i in range(1, f.sums)),
        "        default: { held[me] = o0; }",
        "    }",
        "    workgroupBarrier();",
        f"    let n = tile * ROWSu + i / {vectors}u;",
        "    if (along == 0u && n < height) {",
        "        var y = vec4<f32>();",
        f"        for (var u = 0u; u < {f.down}u; u += 1u) {{ y += held[u * {f.across}u + me % {f.across}u]; }}",
        "        let query = sequence * sizes.t + n / sizes.group;",
        "        let row = query * sizes.hq + head * sizes.group + n % sizes.group;",
        f"        let sum = select(sums[i / {vectors}u], sizes.nan, broken);",
    ]
    if f.store.partial:
        lines += [
            "        let to = (sizes.part + split) * sizes.rows + row;",
            f"        if (place == 0u && i % {vectors}u == 0u) {{",
            f"            stats[to] = vec2<f32>(scores[i / {vectors}u], sum);",
            "        }",
        ]
    else:
        lines += [
            "        let to = row;",
            "        y = select(select(y / sum, vec4<f32>(sum), is_nan(sum)), vec4<f32>(), bits(sum) == 0u);",
        ]
    lines += [f"        put(to * Eu, place * {f.values.piece}u + i % {vectors}u * 4u, y);", "    }", "}"]
    return _lines(lines, 4) + "\n"
