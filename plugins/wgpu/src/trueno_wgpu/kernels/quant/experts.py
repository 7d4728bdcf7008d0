"""quant_experts: the kernel of `rows`, whose rows of w begin at those of the expert that an index names.

No index crosses to the host.  As in decoding, a workgroup takes one row of x with its own expert; where rows share
experts, `turns` puts them together on the device, and eight of one expert read it once.  x is quantized once, also
where it is broadcast.  An expert outside of w gives a row of NaN and reads nothing; the op checks indices on the host
where it can.

Bytes: the rows of an expert, once for each row of x that names it, or for eight.  Flops: 2 k for each result.  Only
llvmpipe has run it, where 800 rows of 1 024 for 8 experts of 256 take 0.5 (q8_0) to 1.06 (q4_k, "f32") times as long
together as alone, and 128 rows 0.7 to 1.45 times: there decoding counts, not bytes.  No GPU has measured it yet.
"""

import re
import struct
from functools import cache
from typing import Any

from trueno.backend import FORMATS, Call, Format, Kernel
from trueno.errors import KernelError

from trueno_wgpu.device.gpu import Gpu, View
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.memory import bands, clashes, whole, zero
from trueno_wgpu.kernels.quant import rows
from trueno_wgpu.kernels.quant.activations import quantized
from trueno_wgpu.kernels.quant.declared import declared
from trueno_wgpu.kernels.quant.turns import NONE, OUTSIDE, TOGETHER, most, sorted_pairs, worthwhile
from trueno_wgpu.kernels.stacked import Stack, place, stack

NAN = 0x7FC00000
FIELDS = """\
given: u32,
  experts: u32, top: u32, height: u32,  // of w; before those that are bound; of those
  turn: u32, nan: u32, spare: u32, rest: u32, last: u32,
  lead: vec4<u32>, x_step: vec4<u32>, i_step: vec4<u32>, }"""
ALONE = f"""\
let pair = sizes.turn + wid.z;
{place("pair", column="x_step", place="i_step")}
  let pair0 = vec2<u32>(pair, column);
  let named = ids[place];
  let outside = named.y != 0u || named.x >= sizes.experts;
  let expert = named.x;
"""
SHARED = f"""\
let turn = sizes.turn + wid.z;
  let expert = turns[turn];
  if (expert == {NONE}u) {{ return; }}
  let outside = expert == {OUTSIDE}u;
{" ".join(f"  let pair{i} = pairs[turn * {TOGETHER}u + {i}u];" for i in range(TOGETHER))}
"""
HERE = """\
  let here = !outside && expert >= sizes.top && expert - sizes.top < sizes.height;
  let above = select(0u, (expert - sizes.top) * sizes.rows, here);
  let units = select(0u, sizes.units, here);"""
STORED = (
    r"&& column \+ (\d)u < sizes\.given\) "
    r"{ out\[\(column \+ \du\) \* sizes\.stride \+ sizes\.first \+ (.*?)\] = (.*?); }"
)
CHANGED = f"""\
&& pair\\1.x != {NONE}u && (here || (outside && sizes.top == 0u))) {{ \
out[pair\\1.x * sizes.stride + \\2] = select(\\3, bitcast<f32>(sizes.nan), outside); }}"""
CHANGES = (
    (r"given: u32,\n}", FIELDS),
    (r"u < sizes\.units;", "u < units;"),
    (r"min\(column \+ (\d)u, sizes\.given - 1u\)", r"pair\1.y"),
    (r"let a = (min\(row \+ \du, sizes\.rows - 1u\)) \* sizes", r"let a = (above + \1) * sizes"),
    (STORED, CHANGED),
)
"""Of the text of `rows`: what reads the index, and the places where it counts."""
BINDING = "@group(0) @binding({}) var<storage, read> {};\n"


@cache
def shader(name: str, activations: str, columns: int) -> Shader:
    """For rows of x that are alone, or for turns of eight."""
    plain = rows.shader(name, activations, columns, rows.rows_for(columns))
    begin, bound = (ALONE, ["ids: array<vec2<u32>>"]) if columns == 1 else (
        SHARED, ["turns: array<u32>", "pairs: array<vec2<u32>>"])  # fmt: skip
    text = plain.source
    for old, new in ((rf"let column = wid\.z \* {columns}u;", begin + HERE), *CHANGES):
        text, count = re.subn(old, new, text)
        assert count, old
    after = "".join(BINDING.format(len(plain.writes) + 1 + i, each) for i, each in enumerate(bound))
    at = text.index("var<workgroup> sums")
    writes = (*plain.writes, *(False for _ in bound))
    return Shader(f"quant_experts {name} {activations} {columns}", text[:at] + after + text[at:], writes)


def multiply(gpu: Gpu, f: Format, activations: str, arrays: tuple[Any, ...], outputs: int, planned: Stack) -> None:
    """arrays: w, x, ids and the result, none of them empty."""
    w, x, ids, out = arrays
    limits, (m, row_bytes) = gpu.limits, w.shape
    experts, k, pairs = m // outputs, x.shape[-1], planned.count
    largest = max(x.nbytes, out.nbytes)
    if largest > limits.binding:
        raise KernelError(
            f"quant_experts: an array has {largest} bytes, and this adapter binds {limits.binding}; "
            "work on parts of the rows"
        )
    columns, steps = 1, pairs
    if worthwhile(pairs, experts):
        columns, steps = TOGETHER, most(pairs, experts)
    units = rows.units_in(f, activations, columns, k)
    lanes = rows.lanes_for(units, outputs * steps)
    if limits.trips and -(-units // lanes) + rows.SIZE.bit_length() > limits.trips:
        raise KernelError(
            f"quant_experts: rows of {k} elements are more than this adapter's loops may be long; split k"
        )
    source = whole(x.buffer, x.nbytes, limits)
    inputs: tuple[Any, ...] = (source,)
    count = x.size // k
    if activations != "f32":
        codes = quantized(gpu, source, x.size, f.activations)
        inputs = (codes.codes, codes.scales, codes.sums)
    named: tuple[Any, ...] = (whole(ids.buffer, ids.nbytes, limits),)
    if columns > 1:
        named = sorted_pairs(gpu, ids, planned, experts)
    ends = (whole(out.buffer, out.nbytes, limits), *named)
    code, size = shader(f.name, activations, columns), outputs * row_bytes
    x_groups, y_groups, _ = fold(-(-outputs // (rows.SIZE // lanes * rows.rows_for(columns))), limits.groups)
    for top, height in bands("quant_experts", "w", experts, (size,), limits):
        nbytes = -(-height * size // 4) * 4
        bound = whole(w.buffer, nbytes, limits) if height == experts else View(w.buffer, top * size, nbytes)
        for turn in range(0, steps, limits.groups):
            packed = struct.pack("<16I", outputs, 0, units, lanes, row_bytes, k, outputs, count, experts, top, height,
                                 turn, NAN, 0, 0, 0) + struct.pack("<12I", *planned.words())  # fmt: skip
            grid = x_groups, y_groups, min(steps - turn, limits.groups)
            gpu.run(code, (bound, *inputs, *ends), packed, grid)


@declared("quant_experts")
def quant_experts(gpu: Gpu, call: Call) -> Kernel:
    """w[m,b] bytes of static["format"], x[...,k], ids[...] -> out[...,outputs]."""
    static = dict(call.static)
    f, activations, outputs = FORMATS[static["format"]], static["activations"], static["outputs"]

    def kernel(w: Any, x: Any, ids: Any, out: Any) -> int:
        if len(w.shape) != 2 or not x.shape or out.shape[-1:] != (outputs,) or w.shape[1] % f.nbytes:
            return -1
        planned = stack(out.shape[:-1], (x.shape[:-1], ids.shape), (1, 1))
        if planned is None or w.shape[0] % outputs or x.shape[-1] != f.row_elements(w.shape[1]):
            return -1
        if clashes(out, w, x, ids):
            return -1
        if 0 in (*w.shape, *x.shape) or not out.size:
            return zero(out) if out.size else 0
        multiply(gpu, f, activations, (w, x, ids, out), outputs, planned)
        return 0

    return kernel
