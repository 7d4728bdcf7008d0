"""Products of a few rows of x with rows of blocks: y[c, i] = Σ x[c, k] · w[i, k].

A team of lanes takes one or two rows of w, a lane one unit after another of them.  It decodes a unit once for all rows
of x (up to eight), and reads x once for both rows of w.  What the lanes have summed is folded in workgroup memory; no
subgroups are asked for.  With 8-bit activations the products of a unit, and the scales of its groups, are whole
numbers, and become a float32 once a unit and row of x; with "f32" ones values are decoded to float32.

Floor: the bytes of w, once for every eight rows of x.
"""

import struct
from collections.abc import Sequence
from functools import cache
from string import Template

from trueno.backend import FORMATS, Format
from trueno.errors import KernelError

from trueno_wgpu.device.gpu import Buffer, Gpu, View
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.quant import blocks

SIZE = 128  # invocations of a workgroup
MOST = 8  # rows of x at a time
USUAL = 32  # lanes of a row that is long enough
BUSY = 1 << 17  # invocations that keep a large GPU busy; with fewer, more lanes share a row

MODULE = Template("""\
struct Sizes { rows: u32, first: u32, units: u32, lanes: u32, row_bytes: u32, k: u32, stride: u32, given: u32, }
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> w: array<$words>;
$bindings
var<workgroup> sums: array<f32, $room>;
$functions
@compute @workgroup_size($size)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) ngroups: vec3<u32>,
  @builtin(local_invocation_index) lid: u32,
) {
  let lanes = sizes.lanes;
  let lane = lid & (lanes - 1u);
  let row = ((wid.x + wid.y * ngroups.x) * (${size}u / lanes) + lid / lanes) * ${rows}u;
  let column = wid.z * ${columns}u;
$totals
  for (var u = lane; u < sizes.units; u += lanes) {
    $unit
    let start = block * ${elements}u + e;
$body
  }
$keep
  for (var s = lanes >> 1u; s > 0u; s = s >> 1u) {
    workgroupBarrier();
    if (lane < s) {
$fold
    }
  }
  if (lane == 0u) {
$store
  }
}
""")

QUANTIZED = """\
@group(0) @binding(2) var<storage, read> codes: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> scales: array<f32>;
@group(0) @binding(4) var<storage, read> added: array<i32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;"""
FLOAT = """\
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;"""

DOT = """\
fn products(a: vec4<u32>, b: vec4<u32>) -> i32 {
  return dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y) + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w);
}
"""


def _given(f: Format, ways: Sequence[int], columns: int, run: int, activations: str) -> list[str]:
    """What a unit needs of each row of x."""
    lines = []
    for c in range(columns):
        lines.append(f"let at{c} = min(column + {c}u, sizes.given - 1u) * sizes.k + start;")
        if activations == "f32":
            lines += [f"let x{c}_{i}_{j} = x[(at{c} + {i * run}u) / 4u + {j}u];" for i in ways for j in range(4)]
            continue
        lines += [f"let x{c}_{i} = codes[(at{c} + {i * run}u) / {blocks.COLUMN}u];" for i in ways]
        if f.bias or f.m:
            lines += [f"let s{c}_{i} = added[(at{c} + {i * run}u) / {blocks.COLUMN}u];" for i in ways]
        lines.append(f"let d{c} = scales[at{c} / {FORMATS[f.activations].elements}u];")
    return lines


def _quantized(f: Format, ways: Sequence[int], columns: int, run: int, r: int) -> list[str]:
    """One row's products with 8-bit activations: the bias of codes is taken off by the sums of x's codes."""
    lines = []
    for i in ways:
        code = blocks.codes(f, f"(e + {i * run}u)")
        lines.append(f"let c{i} = {f'values({code})' if f.values else code};")
        group = blocks.group_of(f, f"e + {i * run}u")
        if f.scales:
            lines.append(f"let n{i} = scale_of(a, h, {group});")
        if f.mins:
            lines.append(f"let l{i} = least_of(a, h, {group});")
    for c in range(columns):
        dots = [f"products(c{i}, x{c}_{i})" + (f" - {f.bias} * s{c}_{i}" if f.bias else "") for i in ways]
        whole = " + ".join(f"n{i} * ({d})" if f.scales else d for i, d in zip(ways, dots, strict=True))
        if f.e8m0:  # a large power of two would overflow before a small scale of x brought it back
            lines.append(f"t{r}_{c} += d{c} * f32({whole}) * h.d;")
            continue
        value = f"h.d * f32({whole})"
        if f.mins:
            value += f" - h.m * f32({' + '.join(f'l{i} * s{c}_{i}' for i in ways)})"
        elif f.m:
            value += f" + h.m * f32({' + '.join(f's{c}_{i}' for i in ways)})"
        lines.append(f"t{r}_{c} += d{c} * ({value});")
    return lines


def _float(f: Format, ways: Sequence[int], columns: int, run: int, r: int) -> list[str]:
    lines = []
    for i in ways:
        group = blocks.group_of(f, f"e + {i * run}u")
        lines.append(f"let c{i} = {blocks.codes(f, f'(e + {i * run}u)')};")
        lines.append(f"let f{i} = {blocks.factor(f, group)};")
        added = ""
        if f.m:
            lines.append(f"let o{i} = {blocks.offset(f, group)};")
            added = f" + o{i}"
        for j, letter in enumerate(blocks.LETTERS):
            lines.append(f"let v{i}_{j} = floats(c{i}.{letter}) * f{i}{added};")
            lines += [f"t{r}_{c} += dot(v{i}_{j}, x{c}_{i}_{j});" for c in range(columns)]
    return lines


@cache
def shader(name: str, activations: str, columns: int) -> Shader:
    """Of the format called `name`, for so many rows of x at a time."""
    f, s = FORMATS[name], blocks.shape(name)
    ways, rows = range(s.ways), 2 if columns <= 2 else 1
    pairs = [(r, c) for r in range(rows) for c in range(columns)]
    body = _given(f, ways, columns, s.run, activations)
    for r in range(rows):
        body += [
            "{",
            f"let a = min(row + {r}u, sizes.rows - 1u) * sizes.row_bytes + block * {f.nbytes}u;",
            "let h = head(a);",
            blocks.raws(f, "a", "e"),
            *(_float if activations == "f32" else _quantized)(f, ways, columns, s.run, r),
            "}",
        ]

    def lines(text: Sequence[str], indent: int) -> str:
        return "\n".join(" " * indent + t for t in text)

    keep = [f"sums[{i * SIZE}u + lid] = t{r}_{c};" for i, (r, c) in enumerate(pairs)]
    fold_ = [f"sums[{i * SIZE}u + lid] += sums[{i * SIZE}u + lid + s];" for i in range(len(pairs))]
    store = [
        f"if (row + {r}u < sizes.rows && column + {c}u < sizes.given) {{ "
        f"y[(column + {c}u) * sizes.stride + sizes.first + row + {r}u] = sums[{i * SIZE}u + lid]; }}"
        for i, (r, c) in enumerate(pairs)
    ]
    source = MODULE.substitute(
        words=s.words, bindings=FLOAT if activations == "f32" else QUANTIZED, room=SIZE * len(pairs), size=SIZE,
        functions=blocks.decoding(name) + ("" if activations == "f32" else DOT), rows=rows, columns=columns,
        totals=lines([f"var t{r}_{c} = 0.0;" for r, c in pairs], 2), unit=blocks.unit("e", name), elements=f.elements,
        body=lines(body, 4), keep=lines(keep, 2), fold=lines(fold_, 6), store=lines(store, 4),
    )  # fmt: skip
    reads = 2 if activations == "f32" else 4
    return Shader(f"quantized rows {name} {activations} {columns}", source, (False,) * reads + (True,))


def lanes_for(units: int, rows: int) -> int:
    """Lanes that share a row: a power of two."""
    lanes = 1
    while lanes < SIZE and 2 * lanes <= units and (lanes < USUAL or rows * lanes < BUSY):
        lanes *= 2
    return lanes


def run(
    gpu: Gpu,
    op: str,
    f: Format,
    activations: str,
    w: Buffer | View,
    given: Sequence[Buffer | View],
    y: Buffer | View,
    sizes: tuple[int, int, int, int, int],
) -> None:
    """sizes: rows of w that are bound, columns of y before theirs, columns of y in all, k, rows of x.

    given: x, or its codes, scales and sums.
    """
    rows, first, stride, k, m = sizes
    columns = next(c for c in (1, 2, 4, MOST) if c >= min(m, MOST))
    code = shader(f.name, activations, columns)
    units = k // f.elements * blocks.shape(f.name).units
    lanes = lanes_for(units, rows)
    if gpu.limits.trips and -(-units // lanes) + SIZE.bit_length() > gpu.limits.trips:
        raise KernelError(f"{op}: rows of {k} elements are more than this adapter's loops may be long; split k")
    teams = SIZE // lanes * (2 if columns <= 2 else 1)
    x, y_groups, _ = fold(-(-rows // teams), gpu.limits.groups)
    packed = struct.pack("<8I", rows, first, units, lanes, f.row_bytes(k), k, stride, m)
    gpu.run(code, (w, *given, y), packed, (x, y_groups, -(-m // columns)))
