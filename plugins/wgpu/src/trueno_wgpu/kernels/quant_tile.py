"""Products of many rows of x with a matrix in blocks: tiles of 64 by 64 results, decoded into workgroup memory.

A workgroup of 256 takes a step of k at a time: some of its invocations decode a column of the matrix each, and then
each adds to its 4 by 4 results.  With 8-bit activations a step is 64 codes, kept as bytes, whose products are whole
numbers within each 16; with "f32" ones it is 32 floats.  Blocks run along k, or, `colmajor`, along the result.

Floor: the additions of the products; decoding is shared by 64 rows of x.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from string import Template

from trueno.formats.table import FORMATS, Format

from trueno_wgpu.device import Buffer, Gpu, View
from trueno_wgpu.grid import fold
from trueno_wgpu.shader import Shader
from trueno_wgpu.wgsl import blocks

TILE, SIZE = 64, 256
UNROLLED = 4  # steps of k within a turn of the innermost loop
TURNS = {"q8": (64, 5), "f32": (32, 9), "colmajor": (32, 9)}
"""Of each kind: elements of k a step, and turns of loops that it takes."""

MODULE = Template("""\
struct Sizes {
  m: u32, n: u32, first: u32, stride: u32, row_bytes: u32, k: u32, begin: u32, end: u32, tiles: u32, add: u32,
}
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> w: array<$words>;
$bindings
$functions
@compute @workgroup_size($size)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) ngroups: vec3<u32>,
  @builtin(local_invocation_index) lid: u32,
) {
  let flat = wid.x + wid.y * ngroups.x;
  let row = flat % sizes.tiles * 64u;
  let column = flat / sizes.tiles * 64u;
  let tx = lid & 15u;
  let ty = lid >> 4u;
$totals
  for (var k = sizes.begin; k < sizes.end; k += ${step}u) {
$load
    workgroupBarrier();
$body
    workgroupBarrier();
  }
$store
}
""")

QUANTIZED = """\
@group(0) @binding(2) var<storage, read> codes: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> scales: array<f32>;
@group(0) @binding(4) var<storage, read> added: array<i32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
var<workgroup> wc: array<u32, 1024>;
var<workgroup> wd: array<f32, 256>;
var<workgroup> wo: array<f32, 256>;
var<workgroup> xc: array<u32, 1024>;
var<workgroup> xd: array<f32, 256>;
var<workgroup> xs: array<f32, 256>;"""
FLOAT = """\
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
var<workgroup> wt: array<f32, 2048>;
var<workgroup> xt: array<f32, 2048>;"""

LOAD_QUANTIZED = Template("""\
    {
      let c = lid >> 6u;
      let i = lid & 63u;
      let at = k + 16u * c;
      var code = vec4<u32>();
      var given = vec4<u32>();
      wd[lid] = 0.0;
      xd[lid] = 0.0;
$clear
      if (at < sizes.end) {
        let a = min(column + i, sizes.n - 1u) * sizes.row_bytes + at / ${elements}u * ${nbytes}u;
        let e = at % ${elements}u;
        let h = head(a);
        let g = $group;
        code = values(column_of(a, e));
        wd[lid] = $factor;
        let from_x = min(row + i, sizes.m - 1u) * sizes.k + at;
        given = codes[from_x / 16u];
        xd[lid] = scales[from_x / ${block}u];
$offset
      }
      for (var j = 0u; j < 4u; j++) {
        wc[(c * 4u + j) * 64u + i] = code[j];
        xc[(c * 4u + j) * 64u + i] = given[j];
      }
    }""")

LOAD_FLOAT = Template("""\
    for (var i = lid; i < 512u; i += 256u) {
      let at = k + 4u * (i >> 6u);
      let from_x = min(row + (i & 63u), sizes.m - 1u) * sizes.k + at;
      var given = vec4<f32>();
$given
      for (var j = 0u; j < 4u; j++) {
        xt[(4u * (i >> 6u) + j) * 64u + (i & 63u)] = given[j];
      }
    }
    if (lid < 128u) {
$place
      var code = vec4<u32>();
      var scale = 0.0;
      var offset = 0.0;
      if (inside) {
        let h = head(a);
        let g = $group;
        code = column_of(a, e);
        scale = $factor;
$offset
      }
      for (var j = 0u; j < 4u; j++) {
        let v = floats(code[j]) * scale + offset;
        for (var i = 0u; i < 4u; i++) {
          wt[to + (4u * j + i) * $apart] = v[i];
        }
      }
    }""")

GIVEN = """\
      if (at < sizes.end) {
        given = x[from_x / 4u];
      }"""
GIVEN_COLMAJOR = """\
      for (var j = 0u; j < 4u && at + j < sizes.end; j++) {
        given[j] = x[from_x + j];
      }"""
"""There k is any number, and rows of x begin anywhere."""

ALONG_K = Template("""\
      let at = k + 16u * (lid >> 6u);
      let inside = at < sizes.end;
      let a = min(column + (lid & 63u), sizes.n - 1u) * sizes.row_bytes + at / ${elements}u * ${nbytes}u;
      let e = at % ${elements}u;
      let to = (lid >> 6u) * 1024u + (lid & 63u);""")
ALONG_RESULT = Template("""\
      let at = column + 16u * (lid & 3u);
      let inside = at < sizes.n && k + (lid >> 2u) < sizes.end;
      let a = (k + (lid >> 2u) - sizes.first) * sizes.row_bytes + at / ${elements}u * ${nbytes}u;
      let e = at % ${elements}u;
      let to = (lid >> 2u) * 64u + 16u * (lid & 3u);""")

FOUR = range(4)
PAIRS = [(i, j) for i in FOUR for j in FOUR]

DOT = [f"n{i}{j} += dot4I8Packed(a{i}, b{j});" for i, j in PAIRS]


def _dots() -> list[str]:
    """A step's products of codes, 16 at a time."""
    lines = ["for (var c = 0u; c < 4u; c++) {", *(f"var n{i}{j} = 0;" for i, j in PAIRS)]
    for word in FOUR:
        lines += ["{", f"let at = (c * 4u + {word}u) * 64u;"]
        lines += [f"let a{i} = xc[at + ty + {16 * i}u]; let b{i} = wc[at + tx + {16 * i}u];" for i in FOUR]
        lines += [*DOT, "}"]
    return lines


def _quantized_body(f: Format) -> list[str]:
    lines = _dots()
    lines += [f"let d{i} = xd[c * 64u + ty + {16 * i}u]; let s{i} = wd[c * 64u + tx + {16 * i}u];" for i in FOUR]
    lines += [f"t{i}{j} += f32(n{i}{j}) * s{j} * d{i};" for i, j in PAIRS]
    if f.m:
        lines += [f"let e{i} = xs[c * 64u + ty + {16 * i}u]; let o{i} = wo[c * 64u + tx + {16 * i}u];" for i in FOUR]
        lines += [f"t{i}{j} += e{i} * o{j} * d{i};" for i, j in PAIRS]
    return [*lines, "}"]


def _float_body() -> list[str]:
    lines = [f"for (var c = 0u; c < {TURNS['f32'][0]}u; c += {UNROLLED}u) {{"]
    for word in range(UNROLLED):
        lines += ["{", f"let at = (c + {word}u) * 64u;"]
        lines += [f"let a{i} = xt[at + ty + {16 * i}u]; let b{i} = wt[at + tx + {16 * i}u];" for i in FOUR]
        lines += [*(f"t{i}{j} += a{i} * b{j};" for i, j in PAIRS), "}"]
    return [*lines, "}"]


def _lines(text: Sequence[str], indent: int) -> str:
    return "\n".join(" " * indent + t for t in text)


@cache
def shader(name: str, kind: str) -> Shader:
    """Of the format called `name`: kind `q8`, `f32`, or `colmajor`, which takes floats too."""
    f, s = FORMATS[name], blocks.shape(name)
    place = {"elements": f.elements, "nbytes": f.nbytes}
    common = {"group": blocks.group_of(f, "e"), "factor": blocks.factor(f, "g")}
    added = blocks.offset(f, "g") if f.m else ""
    if kind == "q8":
        clear = ["wo[lid] = 0.0;", "xs[lid] = 0.0;"] if f.m else []
        offset = [f"wo[lid] = {added};", "xs[lid] = f32(added[from_x / 16u]);"] if f.m else []
        load = LOAD_QUANTIZED.substitute(
            place, **common, block=FORMATS[f.activations].elements, clear=_lines(clear, 6), offset=_lines(offset, 8)
        )
        body, bindings = _quantized_body(f), QUANTIZED
    else:
        where = ALONG_RESULT if kind == "colmajor" else ALONG_K
        apart = "1u" if kind == "colmajor" else "64u"
        offset = [f"offset = {added};"] if f.m else []
        load = LOAD_FLOAT.substitute(
            **common, place=where.substitute(place), apart=apart, offset=_lines(offset, 8),
            given=GIVEN_COLMAJOR if kind == "colmajor" else GIVEN,
        )  # fmt: skip
        body, bindings = _float_body(), FLOAT.replace("vec4<f32>", "f32") if kind == "colmajor" else FLOAT
    begin = "0u" if kind == "colmajor" else "sizes.first"
    store = [
        f"if (row + ty + {16 * i}u < sizes.m && column + tx + {16 * j}u < sizes.n) {{ "
        f"let at = (row + ty + {16 * i}u) * sizes.stride + {begin} + column + tx + {16 * j}u; "
        f"if (sizes.add != 0u) {{ t{i}{j} += y[at]; }} y[at] = t{i}{j}; }}"
        for i, j in PAIRS
    ]
    source = MODULE.substitute(
        words=s.words, bindings=bindings, functions=blocks.decoding(name), size=SIZE, step=TURNS[kind][0], load=load,
        totals=_lines([f"var t{i}{j} = 0.0;" for i, j in PAIRS], 2), body=_lines(body, 4), store=_lines(store, 2),
    )  # fmt: skip
    return Shader(f"quantized tile {name} {kind}", source, (False,) * (4 if kind == "q8" else 2) + (True,))


@dataclass(frozen=True, slots=True)
class Sizes:
    """m, n: rows of x, and columns of the result that are computed.  stride, k: columns of the result and of x in all.

    row_bytes: of w.  first: the first of w's rows that are bound: of the result's columns, or, colmajor, of k.
    begin, end: the part of k that is computed; one that does not begin at 0 adds to what is there.
    """

    m: int
    n: int
    stride: int
    k: int
    row_bytes: int
    first: int
    begin: int
    end: int


def run(
    gpu: Gpu,
    f: Format,
    kind: str,
    w: Buffer | View,
    given: Sequence[Buffer | View],
    y: Buffer | View,
    sizes: Sizes,
) -> None:
    """given: x, or its codes, scales and sums.  As many parts of k as the adapter's loops demand."""
    step, turns = TURNS[kind]
    longest = gpu.limits.trips // turns * step or sizes.k
    tiles = -(-sizes.m // TILE)
    grid = fold(tiles * -(-sizes.n // TILE), gpu.limits.groups)
    fixed = (sizes.m, sizes.n, sizes.first, sizes.stride, sizes.row_bytes, sizes.k)
    for start in range(sizes.begin, sizes.end, longest):
        packed = struct.pack("<10I", *fixed, start, min(start + longest, sizes.end), tiles, int(start > 0))
        gpu.run(shader(f.name, kind), (w, *given, y), packed, grid)
