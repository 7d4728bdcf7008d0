"""Products of a few rows of x with blocks that run along the result: y[c, j] = Σ x[c, k] · w[k, j].

An invocation decodes the same column of 16 results from one row of w after another, and adds it x[c, k] times; eight
share a column within a workgroup, and several workgroups share one where the matrix is narrow.  What they have summed
is added by a second pass.

Floor: the bytes of w, once for every four rows of x.
"""

import struct
from collections.abc import Sequence
from functools import cache
from string import Template

from trueno.backend import FORMATS, Format

from trueno_wgpu.device.gpu import Buffer, Gpu, View
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.quant import blocks

SIZE, SLICES = 128, 8  # invocations of a workgroup, and how many share a column
WIDE = SIZE // SLICES  # columns of a workgroup: 256 results
MOST = 4  # rows of x at a time
GROUPS = 512  # workgroups that keep a large GPU busy
SHORT = 8  # rows of w that an invocation takes at least, before more workgroups share a column

MODULE = Template("""\
struct Sizes { n: u32, k: u32, first: u32, count: u32, row_bytes: u32, given: u32, wide: u32, splits: u32, slot: u32, }
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> w: array<$words>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
var<workgroup> sums: array<f32, $room>;
$functions
@compute @workgroup_size($size)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) ngroups: vec3<u32>,
  @builtin(local_invocation_index) lid: u32,
) {
  let flat = wid.x + wid.y * ngroups.x;
  let split = flat / sizes.wide;
  let lane = lid % ${wide}u;
  let column = (flat % sizes.wide * ${wide}u + lane) * 16u;
  let inside = column < sizes.n && split < sizes.splits;
$totals
  if (inside) {
    let e = column % ${elements}u;
    for (var i = split * ${slices}u + lid / ${wide}u; i < sizes.count; i += sizes.splits * ${slices}u) {
      let a = i * sizes.row_bytes + column / ${elements}u * ${nbytes}u;
      let h = head(a);
      let g = $group;
      let code = column_of(a, e);
      let scale = $factor;
$offset
$body
    }
  }
$fold
}
""")

FOLD = Template("""\
  workgroupBarrier();
$keep
  workgroupBarrier();
  for (var i = lid; i < ${results}u; i += ${size}u) {
    let at = i % 16u * ${size}u + i / 16u;
    var total = 0.0;
    for (var s = 0u; s < ${size}u; s += ${wide}u) {
      total += sums[at + s];
    }
    let to = flat % sizes.wide * ${results}u + i;
    if (to < sizes.n && split < sizes.splits && ${c}u < sizes.given) {
      y[((sizes.slot + split) * sizes.given + ${c}u) * sizes.n + to] = total;
    }
  }""")

SUM = f"""\
struct Sizes {{ count: u32, slots: u32, }}
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> parts: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size({SIZE})
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) ngroups: vec3<u32>,
  @builtin(local_invocation_index) lid: u32,
) {{
  let i = (wid.x + wid.y * ngroups.x) * {SIZE}u + lid;
  if (i < sizes.count) {{
    var total = 0.0;
    for (var s = 0u; s < sizes.slots; s++) {{
      total += parts[s * sizes.count + i];
    }}
    y[i] = total;
  }}
}}
"""
ADDITION = Shader("sum of parts", SUM, (False, True))


def _lines(text: Sequence[str], indent: int) -> str:
    return "\n".join(" " * indent + t for t in text)


@cache
def shader(name: str, rows: int) -> Shader:
    """Of the format called `name`, for so many rows of x."""
    f = FORMATS[name]
    body, folds = [f"let x{c} = x[min({c}u, sizes.given - 1u) * sizes.k + sizes.first + i];" for c in range(rows)], []
    for j, letter in enumerate(blocks.LETTERS):
        body.append(f"let v{j} = floats(code.{letter}) * scale{' + offset' if f.m else ''};")
        body += [f"t{c}_{j} += v{j} * x{c};" for c in range(rows)]
    for c in range(rows):
        keep = [
            f"sums[{(4 * j + i) * SIZE}u + lid] = t{c}_{j}.{letter};"
            for j in range(4)
            for i, letter in enumerate(blocks.LETTERS)
        ]
        folds.append(FOLD.substitute(c=c, keep=_lines(keep, 2), results=16 * WIDE, size=SIZE, wide=WIDE))
    source = MODULE.substitute(
        words=blocks.word_type(name), room=16 * SIZE, functions=blocks.decoding(name), size=SIZE, wide=WIDE,
        slices=SLICES, totals=_lines([f"var t{c}_{j} = vec4<f32>();" for c in range(rows) for j in range(4)], 2),
        elements=f.elements, nbytes=f.nbytes, group=blocks.group_of(f, "e"), factor=blocks.factor(f, "g"),
        offset=f"      let offset = {blocks.offset(f, 'g')};" if f.m else "", body=_lines(body, 6),
        fold="\n".join(folds),
    )  # fmt: skip
    return Shader(f"quantized columns {name} {rows}", source, (False, False, True))


def _splits(gpu: Gpu, groups: int, count: int) -> int:
    """Workgroups that share a column of `count` rows."""
    wanted = min(-(-GROUPS // groups), -(-count // (SLICES * SHORT)))
    trips = gpu.limits.trips // 2
    return max(wanted, -(-count // (SLICES * trips)) if trips else 1)


def run(
    gpu: Gpu,
    f: Format,
    w: Sequence[tuple[int, int, Buffer | View]],
    x: Buffer | View,
    y: Buffer | View,
    sizes: tuple[int, int, int, int],
) -> None:
    """w: (first row, rows, what is bound).  sizes: rows of x, columns of the result, k, bytes of a row of w."""
    m, n, k, row_bytes = sizes
    code = shader(f.name, next(c for c in (1, 2, MOST) if c >= m))
    groups = -(-n // (16 * WIDE))
    shares = [_splits(gpu, groups, count) for _, count, _ in w]
    slots = sum(shares)
    parts = y if slots == 1 else gpu.alloc(4 * slots * m * n)
    slot = 0
    for (first, count, bound), splits in zip(w, shares, strict=True):
        packed = struct.pack("<9I", n, k, first, count, row_bytes, m, groups, splits, slot)
        gpu.run(code, (bound, x, parts), packed, fold(groups * splits, gpu.limits.groups))
        slot += splits
    if slots > 1:
        grid = fold(-(-m * n // SIZE), gpu.limits.groups)
        gpu.run(ADDITION, (parts, y), struct.pack("<2I", m * n, slots), grid)
