"""Up to eight rows of queries, as in decoding: a workgroup reads its share of one head's keys and values once.

Some keys at a time, as many as 1 024 scores are:

    scores     8 to 32 lanes share a key, several keys an invocation at once; lanes add up in workgroup memory
    weights    the maximum of each row, by a tree; then 2^(score − maximum) in place
    values     lanes along a row of V, the others on further keys; added up over these at the end

No subgroups are asked for.  Shares are joined by `join`.

Floor: the bytes of keys and values.  On llvmpipe, two cores, one query of 14 heads on 2, of 64, at 4 096 keys takes
0.67 times as long as a tile of 16 rows, and eight rows 0.84 times.  No GPU has measured it yet.
"""

from dataclasses import dataclass
from functools import cache

from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.attention.text import Form, head, seen, start
from trueno_wgpu.kernels.stacked import place

SIZE = 256
SCORES = 1024
MOST_ROWS = 8
STEPS = 4
"""Reads of a lane along one key, at most: what it needs of the queries stays in registers."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """How the invocations divide the work.

    rows: 1, 2, 4 or 8 of queries.  keys, values: lanes that share a row of K, and of V.  steps: a lane's reads of a row
    of K.
    """

    rows: int
    keys: int
    values: int
    steps: int

    @property
    def chunk(self) -> int:
        """Keys whose scores are in workgroup memory at once."""
        return SCORES // self.rows

    @property
    def ahead(self) -> int:
        """Keys that an invocation multiplies at once."""
        return MOST_ROWS // self.rows

    @property
    def turn(self) -> int:
        """Keys that the workgroup multiplies at once."""
        return SIZE // self.keys * self.ahead

    def trips(self) -> int:
        """Loop trips that a chunk costs an invocation, and more."""
        return (
            16 + self.chunk // self.turn * (self.keys + 3) + self.chunk * self.values // SIZE + 4 + SCORES // SIZE * 2
        )


def lanes_for(rows: int, d: int, e: int, form: Form) -> Lanes | None:
    """The lanes for so many rows, or None: too many rows, or longer ones than lanes take."""
    if rows > MOST_ROWS:
        return None
    reads, writes = -(-d // form.keys), -(-e // form.values)
    keys = min(max(1 << max((reads // 2).bit_length() - 1, 0), 8), 32)
    values = 1 << (writes - 1).bit_length()
    steps = -(-reads // keys)
    return Lanes(1 << (rows - 1).bit_length(), keys, values, steps) if steps <= STEPS and values <= SIZE else None


@cache
def shader(lanes: Lanes, form: Form) -> Shader:
    return Shader(f"attention {lanes}", text(lanes, form), form.writes)


def text(t: Lanes, form: Form) -> str:
    kind = "f32" if form.values == 1 else "vec4<f32>"
    memory = [f"var<workgroup> scores: array<f32, {SCORES}>;", f"var<workgroup> sums: array<f32, {MOST_ROWS * SIZE}>;",
              f"var<workgroup> held: array<{kind}, {SIZE}>;\n"]  # fmt: skip
    parts = [head(form), *memory, start(SIZE), place("problem", **form.bases),
             seen(MOST_ROWS), _begin(t, form), _loop(t, form), _end(t, form), form.store.end + "}\n"]  # fmt: skip
    return "\n".join(part for part in parts if part)


def _row(r: str) -> str:
    """Number of a row of queries among those of one problem that are bound."""
    return f"(sizes.top + {r} / sizes.group) * sizes.hq + head * sizes.group + {r} % sizes.group"


def _begin(t: Lanes, form: Form) -> str:
    kind = "f32" if form.values == 1 else "vec4<f32>"
    lines = [f"let lane = me % {t.keys}u;", f"let team = me / {t.keys}u;", f"let own = me % {t.rows}u;"]
    lines += [
        f"let place = me % {t.values}u;",
        f"let along = me / {t.values}u;",
        f"let column = place * {form.values}u;",
    ]
    for r in range(t.rows):  # past the last row: the last again, not stored
        row = _row(f"min({r}u, height - 1u)") if r else _row("0u")
        lines.append(f"let q_at{r} = from_q + ({row}) * sizes.d;")
        for i in range(t.steps):
            lines.append(f"let q{r}_{i} = {_query(form, r, i, t)} * sizes.scale;")
        lines += [f"var most{r} = LOW;", f"var o{r} = {kind}();"]
    lines += ["var most = LOW;", "var total = 0.0;"]
    return "\n".join(f"    {line}" for line in lines)


def _column(i: int, t: Lanes, form: Form) -> str:
    return f"(lane + {i * t.keys}u) * {form.keys}u"


def _query(form: Form, r: int, i: int, t: Lanes) -> str:
    return f"read_q{form.keys}(q_at{r}, {_column(i, t, form)}, true)"


def _loop(t: Lanes, form: Form) -> str:
    lines = [f"for (var at = low; at < high; at += {t.chunk}u) {{", f"    let stop = min(at + {t.chunk}u, high);"]
    lines += ["    " + line for line in _scores(t, form)]
    lines += ["    " + line for line in _weights(t)]
    lines += ["    " + line for line in _values(t, form)]
    return "\n".join(f"    {line}" for line in [*lines, "    workgroupBarrier();", "}"])


def _scores(t: Lanes, form: Form) -> list[str]:
    """All scores of a chunk; LOW beyond its end, and where a row does not see the key."""
    teams = SIZE // t.keys
    lines = [f"for (var near = 0u; near < {t.chunk}u; near += {t.turn}u) {{"]
    for j in range(t.ahead):
        key = f"at + near + {j * teams}u + team" if j else "at + near + team"
        lines.append(f"    let key{j} = {key};")
        lines.append(f"    let k_at{j} = from_k + ((key{j} - sizes.skip) * sizes.hk + head) * sizes.d;")
        lines += [
            f"    let k{j}_{i} = read_k{form.keys}(k_at{j}, {_column(i, t, form)}, key{j} < stop);"
            for i in range(t.steps)
        ]
    for r in range(t.rows):
        for j in range(t.ahead):
            dots = [f"q{r}_{i} * k{j}_{i}" if form.keys == 1 else f"dot(q{r}_{i}, k{j}_{i})" for i in range(t.steps)]
            lines.append(f"    sums[{(j * t.rows + r) * SIZE}u + me] = {' + '.join(dots)};")
    count = teams * t.ahead * t.rows  # at most 256: 8 lanes or more share a key
    lines += [
        "    workgroupBarrier();",
        f"    if (me < {count}u) {{",
        f"        let slot = me / {teams}u;",
        f"        let own_team = me % {teams}u;",
        "        var score = 0.0;",
        f"        for (var i = 0u; i < {t.keys}u; i += 1u) {{",
        f"            score += sums[slot * {SIZE}u + own_team * {t.keys}u + ((i + own_team) & {t.keys - 1}u)];",
        "        }",
        f"        let r = slot % {t.rows}u;",
        f"        let key = near + slot / {t.rows}u * {teams}u + own_team;",
        "        let position = offset + i32(r / sizes.group);",
        "        let j = i32(at + key);",
        "        let near_it = (at + key < stop) & (j >= position - sizes.back) & (j <= position + sizes.ahead);",
    ]
    if form.masked:
        lines += [
            "        let here = min(r, height - 1u);",  # and a key that there is: others are not seen
            "        let m_at = from_m + (head * sizes.group + here % sizes.group) * sizes.mask_head",
            "            + (sizes.before + sizes.top + here / sizes.group) * sizes.mask_row",
            "            + min(at + key, stop - 1u);",
        ]
    value = form.score("score", "m_at")
    lines += [
        f"        scores[key * {t.rows}u + r] = select(LOW, {value}, near_it);",
        "    }",
        "    workgroupBarrier();",
        "}",
    ]
    return lines


def _weights(t: Lanes) -> list[str]:
    each = SCORES // SIZE
    lines = [f"let x{i} = scores[me + {i * SIZE}u];" for i in range(each)]
    lines += ["sums[me] = max(max(x0, x1), max(x2, x3));", *_tree(t, "max(sums[me], sums[me + half])")]
    lines += ["let now = max(most, sums[own]);"]
    for r in range(t.rows):
        lines += [f"let now{r} = max(most{r}, sums[{r}u]);", f"o{r} *= weight(most{r} - now{r});", f"most{r} = now{r};"]
    lines += [f"let w{i} = weight_of(x{i}, now);" for i in range(each)]
    lines += ["total = total * weight(most - now) + ((w0 + w1) + (w2 + w3));", "most = now;"]
    lines += [f"scores[me + {i * SIZE}u] = w{i};" for i in range(each)]
    return [*lines, "workgroupBarrier();"]


def _tree(t: Lanes, joined: str) -> list[str]:
    """Join `sums` of all invocations that have the same row: the first `rows` places hold the rows' results."""
    return [
        f"for (var half = {SIZE // 2}u; half >= {t.rows}u; half = half / 2u) {{",
        "    workgroupBarrier();",
        f"    if (me < half) {{ sums[me] = {joined}; }}",
        "}",
        "workgroupBarrier();",
    ]


def _values(t: Lanes, form: Form) -> list[str]:
    down = SIZE // t.values
    kind = "f32" if form.values == 1 else "vec4<f32>"
    lines = [f"for (var near = along; near < stop - at; near += {4 * down}u) {{"]
    for u in range(4):
        key = f"near + {u * down}u" if u else "near"
        lines.append(f"    let key{u} = {key};")
        lines.append(f"    let v_at{u} = from_v + ((at + key{u} - sizes.skip) * sizes.hk + head) * sizes.e;")
        lines.append(f"    let v{u} = read_v{form.values}(v_at{u}, column, at + key{u} < stop);")
    for u in range(4):
        lines.append(f"    let s{u} = min(key{u}, {t.chunk - 1}u) * {t.rows}u;")
        lines += [f"    o{r} = fma({kind}(scores[s{u} + {r}u]), v{u}, o{r});" for r in range(t.rows)]
    return [*lines, "}"]


def _end(t: Lanes, form: Form) -> str:
    """One row after another: a loop, because software compiles each barrier for a second where many registers live."""
    down = SIZE // t.values
    kind = "f32" if form.values == 1 else "vec4<f32>"
    lines = ["sums[me] = total;", *_tree(t, "sums[me] + sums[me + half]")]
    if form.store.partial:
        lines += ["if (me == 0u) {", *(f"    scores[{r}] = most{r};" for r in range(t.rows)), "}"]
    lines += [
        f"for (var r = 0u; r < {t.rows}u; r += 1u) {{",
        "    workgroupBarrier();",
        "    switch r {",
        *(f"        case {r}u: {{ held[me] = o{r}; }}" for r in range(1, t.rows)),
        "        default: { held[me] = o0; }",
        "    }",
        "    workgroupBarrier();",
        "    if (along == 0u && r < height) {",
        f"        var y = {kind}();",
        f"        for (var i = 0u; i < {down}u; i += 1u) {{ y += held[i * {t.values}u + place]; }}",
        f"        let row = problem * sizes.bound * sizes.hq + {_row('r')};",
    ]
    if form.store.partial:
        lines += [
            "        let to = (sizes.part + split) * sizes.rows + row;",
            "        if (place == 0u) { stats[to] = vec2<f32>(scores[r], sums[r]); }",
        ]
    else:
        lines += [
            "        let to = row;",
            f"        y = select(y / sums[r], {kind}(), bits(sums[r]) == 0u);",
        ]
    lines += ["        if (column < sizes.e) { store(to * sizes.e + column, 0u, 0u, y); }", "    }", "}"]
    return "\n".join(f"    {line}" for line in lines) + "\n"
