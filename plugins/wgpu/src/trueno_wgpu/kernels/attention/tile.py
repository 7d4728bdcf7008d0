"""Many queries: a workgroup takes 16 to 64 rows of queries against 64 keys at a time.

    S = Q Kᵀ                   4x4 scores an invocation; slices of d pass through workgroup memory, transposed
    P = 2^(S − max)            the maximum of a row is joined from 16 invocations, the sum only at the end
    O = O · 2^(…) + P V        4 rows by 4 to 16 columns an invocation; P and V pass through workgroup memory, half
                               of the keys at a time

All of it shares 16 KiB, which every device has.  Where invocations side by side would store to one bank, a slot's
number is combined with the row's by an exclusive or.

Floor: 2 (d + e) operations per visible pair.  On llvmpipe, two cores, 8 heads of 64 and 1 024² pairs take 1.15 times as
long as the two matrix products of `matmul` alone, without a softmax, and half of that if causal; 16 rows take a third
of the time of 64.  No GPU has measured it yet.
"""

from dataclasses import dataclass
from functools import cache

from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.attention.text import Form, head, seen, start, start_ragged
from trueno_wgpu.kernels.stacked import place

KEYS = 64
ACROSS = 16
"""Invocations along the keys, and along the columns of the result."""
MOST_COLUMNS = 4
"""vec4s of a row of the result that an invocation sums: 256 columns a workgroup."""
UNROLL = 16


@dataclass(frozen=True, slots=True)
class Tile:
    """rows: 16, 32 or 64.  depth: of a slice of d, 16 or 32.  columns: vec4s of each row that an invocation sums."""

    rows: int
    depth: int
    columns: int

    @property
    def tall(self) -> int:
        """Invocations along the rows."""
        return self.rows // 4

    @property
    def size(self) -> int:
        """Invocations of a workgroup."""
        return self.tall * ACROSS

    @property
    def turn(self) -> int:
        """Keys whose values are in workgroup memory at once."""
        return 32 // (4 if self.columns > 2 else self.columns)

    @property
    def room(self) -> int:
        """vec4s of workgroup memory: slices of Q and K, or partial maxima, or P and V."""
        return max(self.depth * (self.tall + ACROSS), self.size, 32 * self.tall + self.turn * ACROSS * self.columns)

    def trips(self, d: int) -> int:
        """Loop trips that 64 keys cost an invocation, and more."""
        slices = -(-d // self.depth)
        copies = -(-self.turn * ACROSS * self.columns // self.size)
        return 4 + slices * (self.depth // UNROLL + 2) + 32 // self.turn * 2 * (self.turn // 4 + copies + 3)


def tile_for(rows: int, d: int, e: int) -> Tile:
    """The tile for so many rows in all."""
    height = 16 if rows <= 16 else 32 if rows <= 32 else 64
    return Tile(height, 16 if 0 < d % 32 <= 16 else 32, min(-(-e // KEYS), MOST_COLUMNS))


@cache
def shader(tile: Tile, form: Form) -> Shader:
    return Shader(f"attention {tile}", text(tile, form), form.writes)


def text(t: Tile, form: Form) -> str:
    memory = f"var<workgroup> pool: array<vec4<f32>, {t.room}>;\n"
    begin = start_ragged(t.size, t.rows) if form.ragged else start(t.size) + place("problem", **form.bases)
    parts = [head(form), memory, begin, seen(t.rows), _begin(t, form), _loop(t, form), _end(t, form),
             form.store.end + "}\n"]  # fmt: skip
    return "\n".join(part for part in parts if part)


def _row(number: str) -> tuple[str, str]:
    """Query (of those bound) and head of a row."""
    return f"(sizes.top + {number} / sizes.group)", f"(head * sizes.group + {number} % sizes.group)"


def _begin(t: Tile, form: Form) -> str:
    deep = t.depth // 4
    lines = [f"let tx = me % {ACROSS}u;", f"let ty = me / {ACROSS}u;", f"let first = block * {t.rows}u;"]
    lines += [f"let along = me / {deep}u;", f"let deep = me % {deep}u;"]  # of the rows that it reads
    for r in range(4):
        query, of = _row(f"(first + along * 4u + {r}u)")
        lines += [f"let q_at{r} = from_q + ({query} * sizes.hq + {of}) * sizes.d;",
                  f"let q_in{r} = first + along * 4u + {r}u < height;",
                  f"let p{r} = offset + i32((first + ty * 4u + {r}u) / sizes.group);"]  # fmt: skip
        if form.masked:
            query, of = _row(f"min(first + ty * 4u + {r}u, height - 1u)")
            lines.append(f"let m_at{r} = from_m + {of} * sizes.mask_head + (sizes.before + {query}) * sizes.mask_row;")
    lines += ["var most = vec4<f32>(LOW);", "var total = vec4<f32>();"]
    lines += [f"var o{r}_{c} = vec4<f32>();" for r in range(4) for c in range(t.columns)]
    return "\n".join(f"    {line}" for line in lines)


def _loop(t: Tile, form: Form) -> str:
    lines = [f"for (var at = low; at < high; at += {KEYS}u) {{", *[f"    var s{r} = vec4<f32>();" for r in range(4)]]
    lines += [f"    for (var c = 0u; c < sizes.d; c += {t.depth}u) {{", "        workgroupBarrier();"]
    lines += ["        " + line for line in _slices(t)]
    lines += ["        workgroupBarrier();", *["        " + line for line in _scores(t)], "    }"]
    lines += ["    " + line for line in _softmax(form)]
    lines += ["    " + line for line in _values(t)]
    return "\n".join(f"    {line}" for line in [*lines, "}"])


def _slices(t: Tile) -> list[str]:
    """Read blocks of 4 rows by 4 columns of Q and K, and store them transposed."""
    deep, queries = t.depth // 4, t.tall * t.depth // 4
    keys = ACROSS * deep
    lines = [f"if (me < {queries}u) {{"]
    lines += [f"    let r{r} = read_q4(q_at{r}, c + deep * 4u, q_in{r}) * sizes.scale;" for r in range(4)]
    for j, part in enumerate("xyzw"):
        slot = f"(deep * 4u + {j}u) * {t.tall}u + (along ^ (deep & {t.tall - 1}u))"
        lines.append(f"    pool[{slot}] = vec4<f32>(r0.{part}, r1.{part}, r2.{part}, r3.{part});")
    lines.append("}")
    shift = queries if queries + keys <= t.size else 0
    for r in range(-(-keys // t.size)):
        slot = f"me + {r * t.size}u" if r else f"me - {shift}u" if shift else "me"
        lines += ["{", f"    let slot = {slot};"]  # of those before, the number is large
        lines += [
            f"    if (slot < {keys}u) {{",
            f"        let row = slot / {deep}u;",
            f"        let deep = slot % {deep}u;",
        ]
        for i in range(4):
            key = f"at + row + {ACROSS * i}u"
            lines.append(f"        let r{i} = read_k4(from_k + (({key} - sizes.skip) * sizes.hk + head) * sizes.d, "
                         f"c + deep * 4u, {key} < high);")  # fmt: skip
        for j, part in enumerate("xyzw"):
            slot = f"{t.depth * t.tall}u + (deep * 4u + {j}u) * {ACROSS}u + (row ^ (deep & 15u))"
            lines.append(f"        pool[{slot}] = vec4<f32>(r0.{part}, r1.{part}, r2.{part}, r3.{part});")
        lines += ["    }", "}"]
    return lines


def _scores(t: Tile) -> list[str]:
    lines = [f"for (var turn = 0u; turn < {t.depth // UNROLL}u; turn += 1u) {{"]
    for u in range(UNROLL):
        if u % 4 == 0:
            mix = f"(turn * {UNROLL // 4}u + {u // 4}u)"
            lines += [f"    let x{u} = ty ^ ({mix} & {t.tall - 1}u);", f"    let y{u} = tx ^ {mix};"]
        row = f"(turn * {UNROLL}u + {u}u)"
        lines.append(f"    let a{u} = pool[{row} * {t.tall}u + x{u // 4 * 4}];")
        lines.append(f"    let b{u} = pool[{t.depth * t.tall}u + {row} * {ACROSS}u + y{u // 4 * 4}];")
        lines += [f"    s{r} = fma(vec4<f32>(a{u}.{'xyzw'[r]}), b{u}, s{r});" for r in range(4)]
    return [*lines, "}"]


def _softmax(form: Form) -> list[str]:
    """Weights in place of scores; sums so far are brought to the new maximum."""
    lines = []
    if form.capped or form.masked:
        for r in range(4):  # a key that there is: others are not seen
            scores = [form.score(f"s{r}.{c}", f"m_at{r} + min(at + tx + {ACROSS * i}u, high - 1u)")
                      for i, c in enumerate("xyzw")]  # fmt: skip
            lines.append(f"s{r} = vec4<f32>({', '.join(scores)});")
    lines += [
        f"let all_seen = i32(at) >= farthest - sizes.back && i32(at) + {KEYS - 1} <= nearest + sizes.ahead;",
        f"if (at + {KEYS}u > high || !all_seen) {{",
        f"    let keys = vec4<u32>(at + tx) + vec4<u32>(0u, {ACROSS}u, {2 * ACROSS}u, {3 * ACROSS}u);",
        "    let j = vec4<i32>(keys);",
    ]
    for r in range(4):
        near = f"(j >= vec4<i32>(p{r} - sizes.back)) & (j <= vec4<i32>(p{r} + sizes.ahead)) & (keys < vec4<u32>(high))"
        lines.append(f"    s{r} = select(vec4<f32>(LOW), s{r}, {near});")
    lines += ["}", "workgroupBarrier();"]
    rows = ", ".join(f"max(max(s{r}.x, s{r}.y), max(s{r}.z, s{r}.w))" for r in range(4))
    lines += [f"pool[me] = vec4<f32>({rows});", "workgroupBarrier();", "var now = most;"]
    lines += [f"now = max(now, pool[ty * {ACROSS}u + {i}u]);" for i in range(ACROSS)]
    each = ", ".join(f"weight(most.{c} - now.{c})" for c in "xyzw")
    lines += [f"let old = vec4<f32>({each});", "most = now;"]
    for r, c in enumerate("xyzw"):
        values = ", ".join(f"weight_of(s{r}.{part}, now.{c})" for part in "xyzw")
        lines.append(f"s{r} = vec4<f32>({values});")
    sums = ", ".join(f"(s{r}.x + s{r}.y) + (s{r}.z + s{r}.w)" for r in range(4))
    return [*lines, f"total = total * old + vec4<f32>({sums});"]


def _values(t: Tile) -> list[str]:
    """Add the products of weights with values, `turn` keys at a time; half of the weights are in memory at once."""
    lines = [f"o{r}_{c} = o{r}_{c} * old.{'xyzw'[r]};" for r in range(4) for c in range(t.columns)]
    wide = ACROSS * t.columns
    lines += [
        f"for (var begin = 0u; begin < {KEYS}u; begin += {t.turn}u) {{",
        "    workgroupBarrier();",
        "    let late = begin != 0u;",
        "    if (begin % 32u == 0u) {",
    ]
    for i, (early, late) in enumerate(("xz", "yw")):
        weights = ", ".join(f"select(s{r}.{early}, s{r}.{late}, late)" for r in range(4))
        slot = f"(tx + {ACROSS * i}u) * {t.tall}u + (ty ^ (tx & {t.tall - 1}u))"
        lines.append(f"        pool[{slot}] = vec4<f32>({weights});")
    lines += [
        "    }",
        f"    for (var slot = me; slot < {t.turn * wide}u; slot += {t.size}u) {{",
        f"        let key = at + begin + slot / {wide}u;",
        f"        let column = across * {wide * 4}u + slot % {wide}u * 4u;",
        "        let v_at = from_v + ((key - sizes.skip) * sizes.hk + head) * sizes.e;",
        f"        pool[{32 * t.tall}u + slot] = read_v4(v_at, column, key < high);",
        "    }",
        "    workgroupBarrier();",
        f"    for (var key = 0u; key < {t.turn}u; key += 4u) {{",
        "        let row = begin % 32u + key;",
    ]
    for u in range(4):
        row = f"(row + {u}u)"
        lines.append(f"        let w{u} = pool[{row} * {t.tall}u + (ty ^ ({row} & {t.tall - 1}u))];")
        for c in range(t.columns):
            lines.append(f"        let v{u}_{c} = pool[{32 * t.tall}u + (key + {u}u) * {wide}u + {ACROSS * c}u + tx];")
            lines += [f"        o{r}_{c} = fma(vec4<f32>(w{u}.{'xyzw'[r]}), v{u}_{c}, o{r}_{c});" for r in range(4)]
    return [*lines, "    }", "}"]


def _end(t: Tile, form: Form) -> str:
    lines = ["workgroupBarrier();", "pool[me] = total;", "workgroupBarrier();", "var sum = vec4<f32>();"]
    lines += [f"sum += pool[ty * {ACROSS}u + {i}u];" for i in range(ACROSS)]
    for r, part in enumerate("xyzw"):
        query, of = _row(f"(first + ty * 4u + {r}u)")
        lines += [f"if (first + ty * 4u + {r}u < height) {{",
                  f"    let row = (problem * sizes.bound + {query}) * sizes.hq + {of};"]  # fmt: skip
        if form.store.partial:
            stats = f"vec2<f32>(most.{part}, sum.{part})"
            lines.append("    let to = (sizes.part + split) * sizes.rows + row;")
            lines.append(f"    if (tx == 0u && across == 0u) {{ stats[to] = {stats}; }}")
        else:
            lines += [
                "    let to = row;",
                f"    let none = bits(sum.{part}) == 0u;",
                f"    let over = 1.0 / sum.{part};",
            ]
        for c in range(t.columns):
            value = f"o{r}_{c}" if form.store.partial else f"select(o{r}_{c} * over, vec4<f32>(), none)"
            column = f"across * {ACROSS * t.columns * 4}u + {ACROSS * 4 * c}u + tx * 4u"
            lines.append(f"    put(to * sizes.e, {column}, {value});")
        lines.append("}")
    return "\n".join(f"    {line}" for line in lines) + "\n"
