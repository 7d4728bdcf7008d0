"""Products of a few rows of x with rows of blocks: y[c, i] = Σ x[c, k] · w[i, k].

A team of lanes takes one or two rows of w, a lane one unit after another of them, or two at a time where they share
scales.  It decodes a unit once for all rows of x (up to eight), and reads x once for both rows of w.  What the lanes
have summed is folded in workgroup memory; no subgroups are asked for.  With 8-bit activations the products of a unit,
and the scales of its groups, are whole numbers, and become a float32 once a unit and row of x; with "f32" ones values
are decoded to float32.

Floor: the bytes of w, once for every eight rows of x.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from string import Template

from trueno.backend import COLUMN, FORMATS, Format, unit_shape
from trueno.errors import KernelError

from trueno_wgpu.device.gpu import Buffer, Gpu, View
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.quant import blocks
from trueno_wgpu.kernels.store import PLAIN, Store

SIZE = 128  # invocations of a workgroup
MOST = 8  # rows of x at a time
USUAL = 32  # lanes of a row that is long enough
BUSY = 1 << 17  # invocations that keep a large GPU busy; with fewer, more lanes share a row

MODULE = Template("""\
struct Sizes { rows: u32, first: u32, units: u32, lanes: u32, row_bytes: u32, k: u32, stride: u32, given: u32,
GIVEN}
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
@group(0) @binding(5) var<storage, read_write> out: array<f32>;"""
FLOAT = """\
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;"""

DOT = """\
fn products(a: vec4<u32>, b: vec4<u32>) -> i32 {
  return dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y) + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w);
}
"""


def _given(f: Format, ways: Sequence[int], columns: int, run: int, activations: str, together: int) -> list[str]:
    """What the units of a lane need of each row of x."""
    lines = []
    places = [(f"{i}_{t}", i * run + t * COLUMN) for i in ways for t in range(together)]
    for c in range(columns):
        lines.append(f"let at{c} = min(column + {c}u, sizes.given - 1u) * sizes.k + start;")
        if activations == "f32":
            lines += [f"let x{c}_{i}_{j} = x[(at{c} + {i * run}u) / 4u + {j}u];" for i in ways for j in range(4)]
            continue
        lines += [f"let x{c}_{name} = codes[(at{c} + {place}u) / {COLUMN}u];" for name, place in places]
        if f.bias or f.m:
            lines += [f"let s{c}_{name} = added[(at{c} + {place}u) / {COLUMN}u];" for name, place in places]
        lines.append(f"let d{c} = scales[at{c} / {FORMATS[f.activations].elements}u];")
    return lines


def _quantized(f: Format, ways: Sequence[int], columns: int, run: int, r: int, together: int) -> list[str]:
    """One row's products with 8-bit activations: the bias of codes is taken off by the sums of x's codes."""
    lines = []
    groups = []  # a name, WGSL of a group's number, and its columns
    for i in ways:
        of = [f"{i}_{t}" for t in range(together)]
        for t, name in enumerate(of):
            place = f"(e + {i * run + t * COLUMN}u)"
            code = blocks.codes(f, place, f"_{t}")
            lines.append(f"let c{name} = {f'values({code})' if f.values else code};")
            if f.group and f.group % (together * COLUMN):
                groups.append((name, blocks.group_of(f, place), [name]))
        if not f.group or f.group % (together * COLUMN) == 0:
            groups.append((of[0], blocks.group_of(f, f"e + {i * run}u"), of))
    for name, number, _ in groups:
        if f.scales:
            lines.append(f"let n{name} = scale_of(a, h, {number});")
        if f.mins:
            lines.append(f"let l{name} = least_of(a, h, {number});")

    for c in range(columns):

        def dots(of: list[str], c: int = c) -> str:
            return " + ".join(f"products(c{n}, x{c}_{n})" + (f" - {f.bias} * s{c}_{n}" if f.bias else "") for n in of)

        def sums(of: list[str], c: int = c) -> str:
            return " + ".join(f"s{c}_{n}" for n in of)

        whole = " + ".join(f"n{name} * ({dots(of)})" if f.scales else dots(of) for name, _, of in groups)
        if f.e8m0:  # a large power of two would overflow before a small scale of x brought it back
            lines.append(f"t{r}_{c} += d{c} * f32({whole}) * h.d;")
            continue
        value = f"h.d * f32({whole})"
        if f.mins:
            value += f" - h.m * f32({' + '.join(f'l{name} * ({sums(of)})' for name, _, of in groups)})"
        elif f.m:
            value += f" + h.m * f32({' + '.join(sums(of) for _, _, of in groups)})"
        lines.append(f"t{r}_{c} += d{c} * ({value});")
    return lines


def _float(f: Format, ways: Sequence[int], columns: int, run: int, r: int) -> list[str]:
    """One row's products with values of float32."""
    lines = []
    for i in ways:
        group = blocks.group_of(f, f"e + {i * run}u")
        lines.append(f"let c{i} = {blocks.codes(f, f'(e + {i * run}u)', '_0')};")
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
def shader(name: str, activations: str, columns: int, rows: int, store: Store = PLAIN) -> Shader:
    """Of the format called `name`, for so many rows of x and of w at a time.  store: for one row of x."""
    f, s = FORMATS[name], unit_shape(name)
    ways = range(s.ways)
    pairs = [(r, c) for r in range(rows) for c in range(columns)]
    together = units_of(f, activations, columns)
    body = _given(f, ways, columns, s.run, activations, together)
    for r in range(rows):
        body += [
            "{",
            f"let a = min(row + {r}u, sizes.rows - 1u) * sizes.row_bytes + block * {f.nbytes}u;",
            "let h = head(a);",
            *(blocks.raws(f, "a", f"(e + {t * COLUMN}u)", f"_{t}") for t in range(together)),
            *(
                _float(f, ways, columns, s.run, r)
                if activations == "f32"
                else _quantized(f, ways, columns, s.run, r, together)
            ),
            "}",
        ]

    def lines(text: Sequence[str], indent: int) -> str:
        return "\n".join(" " * indent + t for t in text)

    keep = [f"sums[{i * SIZE}u + lid] = t{r}_{c};" for i, (r, c) in enumerate(pairs)]
    fold_ = [f"sums[{i * SIZE}u + lid] += sums[{i * SIZE}u + lid + s];" for i in range(len(pairs))]
    at = "(column + {c}u) * sizes.stride + sizes.first + row + {r}u"
    put = f"store({at}, 0u, {at}, {{sum}})" if store.epilogue else f"out[{at}] = {{sum}}"
    stored = [
        f"if (row + {r}u < sizes.rows && column + {c}u < sizes.given) {{ "
        f"{put.format(r=r, c=c, sum=f'sums[{i * SIZE}u + lid]')}; }}"
        for i, (r, c) in enumerate(pairs)
    ]
    reads = 2 if activations == "f32" else 4
    after = f"\n{store.declarations(reads + 2)}\n{store.function(1)}" if store.epilogue else ""
    source = store.sizes(MODULE.template.replace("$functions", "$functions" + after))
    source = Template(source).substitute(
        words=blocks.word_type(name), bindings=FLOAT if activations == "f32" else QUANTIZED, room=SIZE * len(pairs),
        size=SIZE, functions=blocks.decoding(name) + ("" if activations == "f32" else DOT), rows=rows, columns=columns,
        totals=lines([f"var t{r}_{c} = 0.0;" for r, c in pairs], 2), elements=f.elements,
        unit=blocks.unit("e", name, together),
        body=lines(body, 4), keep=lines(keep, 2), fold=lines(fold_, 6), store=lines(stored, 4),
    )  # fmt: skip
    writes = (*(False,) * reads, True, *store.writes)
    return Shader(f"quantized rows {name} {activations} {columns}", source, writes)


def units_of(f: Format, activations: str, columns: int) -> int:
    """Units of one run that a lane takes at a time: they share a block's scales, and with them most of decoding."""
    return 2 if activations != "f32" and columns <= 2 and unit_shape(f.name).run >= 2 * COLUMN else 1


def units_in(f: Format, activations: str, columns: int, k: int) -> int:
    """What the lanes of a row of k elements share out."""
    return k // f.elements * (unit_shape(f.name).units // units_of(f, activations, columns))


def rows_for(columns: int) -> int:
    """Rows of w that a team takes at a time."""
    return 2 if columns <= 2 else 1


@dataclass(frozen=True, slots=True)
class Ending:
    """What follows a product: how it is stored, the arrays that this reads, and its numbers."""

    store: Store = PLAIN
    beside: tuple[Buffer | View, ...] = ()
    numbers: bytes = b""


PLAINLY = Ending()


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
    ending: Ending = PLAINLY,
) -> None:
    """sizes: rows of w that are bound, columns of y before theirs, columns of y in all, k, rows of x.

    given: x, or its codes, scales and sums.  ending: what follows the product of one row of x.
    """
    rows, first, stride, k, m = sizes
    columns = next(c for c in (1, 2, 4, MOST) if c >= min(m, MOST))
    together = rows_for(columns)
    code = shader(f.name, activations, columns, together, ending.store)
    units = units_in(f, activations, columns, k)
    lanes = lanes_for(units, rows)
    if gpu.limits.trips and -(-units // lanes) + SIZE.bit_length() > gpu.limits.trips:
        raise KernelError(f"{op}: rows of {k} elements are more than this adapter's loops may be long; split k")
    teams = SIZE // lanes * together
    x, y_groups, _ = fold(-(-rows // teams), gpu.limits.groups)
    packed = struct.pack("<8I", rows, first, units, lanes, f.row_bytes(k), k, stride, m)
    gpu.run(code, (w, *given, y, *ending.beside), packed + ending.numbers, (x, y_groups, -(-m // columns)))
