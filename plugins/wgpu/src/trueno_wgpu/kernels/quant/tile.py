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

from trueno.backend import FORMATS, Format

from trueno_wgpu.device.gpu import Buffer, Gpu, View
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.quant import blocks
from trueno_wgpu.kernels.quant.blocks import LETTERS
from trueno_wgpu.kernels.quant.rows import DOT

TILE, SIZE = 64, 256
TURNS = {"q8": (64, 5), "f32": (32, 15), "colmajor": (32, 23)}
"""Of each kind: elements of k a step, and turns of loops that it takes, none of them unrolled."""

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
var<workgroup> wc: array<vec4<u32>, 256>;
var<workgroup> wd: array<f32, 256>;
var<workgroup> wo: array<f32, 256>;
var<workgroup> xc: array<vec4<u32>, 256>;
var<workgroup> xd: array<f32, 256>;
var<workgroup> xs: array<f32, 256>;"""
FLOAT = """\
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
var<workgroup> wt: array<vec4<f32>, 512>;
var<workgroup> xt: array<vec4<f32>, 512>;"""
COLMAJOR = FLOAT.replace("vec4<f32>", "f32", 1)
"""There k is any number, and rows of x begin anywhere."""

LOAD_QUANTIZED = Template("""\
    {
      let at = k + 16u * (lid >> 6u);
      wc[lid] = vec4<u32>();
      xc[lid] = vec4<u32>();
      wd[lid] = 0.0;
      xd[lid] = 0.0;
$clear
      if (at < sizes.end) {
        let a = min(column + (lid & 63u), sizes.n - 1u) * sizes.row_bytes + at / ${elements}u * ${nbytes}u;
        let e = at % ${elements}u;
        let h = head(a);
        let g = $group;
        wc[lid] = values(column_of(a, e));
        wd[lid] = $factor;
        let start = min(row + (lid & 63u), sizes.m - 1u) * sizes.k + at;
        xc[lid] = codes[start / 16u];
        xd[lid] = scales[start / ${block}u];
$offset
      }
    }""")
"""Sixteen elements of k a vector, and 64 rows next to each other: what an invocation decodes it stores at once."""

LOAD_FLOAT = Template("""\
    for (var i = lid; i < 512u; i += 256u) {
      let at = k + 4u * (i >> 6u);
      let start = min(row + (i & 63u), sizes.m - 1u) * sizes.k + at;
      var given = vec4<f32>();
$given
      xt[i] = given;
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
        wt[to + j * $apart] = floats(code[j]) * scale + offset;
      }
    }""")
"""Four elements of k a vector, and 64 rows next to each other; of w, colmajor, four columns a vector, 16 of them a row.

A step that is cut short holds zeros: codes of 0 may stand for another number, so the scale is 0 too.
"""

GIVEN = """\
      if (at < sizes.end) {
        given = x[start / 4u];
      }"""
GIVEN_COLMAJOR = """\
      for (var j = 0u; j < 4u && at + j < sizes.end; j++) {
        given[j] = x[start + j];
      }"""

ALONG_K = Template("""\
      let at = k + 16u * (lid >> 6u);
      let inside = at < sizes.end;
      let a = min(column + (lid & 63u), sizes.n - 1u) * sizes.row_bytes + at / ${elements}u * ${nbytes}u;
      let e = at % ${elements}u;
      let to = (lid >> 6u) * 256u + (lid & 63u);""")
ALONG_RESULT = Template("""\
      let at = column + 16u * (lid & 3u);
      let inside = at < sizes.n && k + (lid >> 2u) < sizes.end;
      let a = (k + (lid >> 2u) - sizes.first) * sizes.row_bytes + at / ${elements}u * ${nbytes}u;
      let e = at % ${elements}u;
      let to = (lid >> 2u) * 16u + 4u * (lid & 3u);""")

FOUR = range(4)
PAIRS = [(i, j) for i in FOUR for j in FOUR]


def _read(name: str, memory: str, lane: str) -> str:
    return " ".join(f"let {name}{i} = {memory}[c * 64u + {lane} + {16 * i}u];" for i in FOUR)


def _quantized_body(f: Format) -> list[str]:
    """A step's products of codes, 16 at a time."""
    lines = ["for (var c = 0u; c < 4u; c++) {", _read("a", "xc", "ty"), _read("b", "wc", "tx")]
    lines += [_read("d", "xd", "ty"), _read("s", "wd", "tx")]
    if f.m:  # together, before the scale of x: either part alone may overflow where their sum does not
        lines += [_read("e", "xs", "ty"), _read("o", "wo", "tx")]
        lines += [f"t{i}{j} += (f32(products(a{i}, b{j})) * s{j} + e{i} * o{j}) * d{i};" for i, j in PAIRS]
        return [*lines, "}"]
    # a power of two may be as large as a float32, and a scale of x as large where blocks have 256 elements
    scale = "d{i} * s{j}" if f.e8m0 else "s{j} * d{i}"
    lines += [f"t{i}{j} += f32(products(a{i}, b{j})) * {scale.format(i=i, j=j)};" for i, j in PAIRS]
    return [*lines, "}"]


def _float_body(kind: str) -> list[str]:
    lines = ["for (var c = 0u; c < 8u; c++) {", _read("a", "xt", "ty")]
    if kind == "colmajor":
        lines += [f"let b{k} = wt[(4u * c + {k}u) * 16u + tx];" for k in FOUR]
        terms = [f"t{i}{j} += a{i}.{LETTERS[k]} * b{k}.{LETTERS[j]};" for k in FOUR for i, j in PAIRS]
    else:
        lines += [_read("b", "wt", "tx")]
        terms = [f"t{i}{j} += a{i}.{letter} * b{j}.{letter};" for letter in LETTERS for i, j in PAIRS]
    return [*lines, *terms, "}"]


def _lines(text: Sequence[str], indent: int) -> str:
    return "\n".join(" " * indent + t for t in text)


@cache
def shader(name: str, kind: str) -> Shader:
    """Of the format called `name`: kind `q8`, `f32`, or `colmajor`, which takes floats too."""
    f = FORMATS[name]
    place = {"elements": f.elements, "nbytes": f.nbytes}
    common = {"group": blocks.group_of(f, "e"), "factor": blocks.factor(f, "g")}
    added = blocks.offset(f, "g") if f.m else ""
    if kind == "q8":
        clear = ["wo[lid] = 0.0;", "xs[lid] = 0.0;"] if f.m else []
        offset = [f"wo[lid] = {added};", "xs[lid] = f32(added[start / 16u]);"] if f.m else []
        load = LOAD_QUANTIZED.substitute(
            place, **common, block=FORMATS[f.activations].elements, clear=_lines(clear, 6), offset=_lines(offset, 8)
        )
        body, bindings = _quantized_body(f), QUANTIZED
    else:
        turned = kind == "colmajor"
        where = (ALONG_RESULT if turned else ALONG_K).substitute(place)
        load = LOAD_FLOAT.substitute(
            common, place=where, apart="1u" if turned else "64u", given=GIVEN_COLMAJOR if turned else GIVEN,
            offset=_lines([f"offset = {added};"] if f.m else [], 8),
        )  # fmt: skip
        body, bindings = _float_body(kind), COLMAJOR if turned else FLOAT
    begin, each = ("", "4u * tx + {j}u") if kind == "colmajor" else ("sizes.first + ", "tx + {j}u * 16u")
    store = []
    for i, j in PAIRS:
        to, at = f"row + ty + {16 * i}u", f"column + {each.format(j=j)}"
        add = f"if (sizes.add != 0u) {{ t{i}{j} += y[at]; }}"
        store.append(
            f"if ({to} < sizes.m && {at} < sizes.n) {{ "
            f"let at = ({to}) * sizes.stride + {begin}{at}; {add} y[at] = t{i}{j}; }}"
        )
    functions = blocks.decoding(name) + (DOT if kind == "q8" else "")
    source = MODULE.substitute(
        words=blocks.word_type(name), bindings=bindings, functions=functions, size=SIZE, step=TURNS[kind][0], load=load,
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
    trips = gpu.limits.trips
    longest = max(trips // turns, 1) * step if trips else sizes.k
    tiles = -(-sizes.m // TILE)
    grid = fold(tiles * -(-sizes.n // TILE), gpu.limits.groups)
    fixed = (sizes.m, sizes.n, sizes.first, sizes.stride, sizes.row_bytes, sizes.k)
    for start in range(sizes.begin, sizes.end, longest):
        packed = struct.pack("<10I", *fixed, start, min(start + longest, sizes.end), tiles, int(start > 0))
        gpu.run(shader(f.name, kind), (w, *given, y), packed, grid)
