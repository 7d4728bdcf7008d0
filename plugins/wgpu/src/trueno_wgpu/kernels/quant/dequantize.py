"""dequantize w[m,b] bytes -> y[m,k]: an invocation decodes a unit, 16 to 64 elements.

Floor: the bytes of w read and 4 k m written.  Bits are ggml's: every product fits into the 24 bits of a float32, so
that whether a driver fuses the last addition into it changes nothing; a device that flushes subnormal numbers shows
only in formats whose scale is a float32 or a power of two, and there values are made by their bits.
"""

import struct
from functools import cache
from string import Template
from typing import Any

from trueno.backend import FORMATS, Call, Kernel, unit_shape
from trueno.errors import KernelError

from trueno_wgpu.device.gpu import Gpu, View
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.memory import clashes, whole
from trueno_wgpu.kernels.quant import blocks
from trueno_wgpu.kernels.quant.declared import declared

SIZE = 64  # invocations of a workgroup

MODULE = Template("""\
struct Sizes { units: u32, }
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> w: array<$words>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;
$decoding
@compute @workgroup_size($size)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) ngroups: vec3<u32>,
  @builtin(local_invocation_index) lid: u32,
) {
  let u = (wid.x + wid.y * ngroups.x) * ${size}u + lid;
  if (u < sizes.units) {
    $unit
    let a = block * ${nbytes}u;
    let h = head(a);
    $raws
    for (var i = 0u; i < ${ways}u; i++) {
      let at = e + i * ${run}u;
      let g = $group;
      let c = $codes;
      let scale = $factor;
      let to = (block * ${elements}u + at) / 4u;
      for (var j = 0u; j < 4u; j++) {
        y[to + j] = $value;
      }
    }
  }
}
""")

BY_BITS = """\
fn scaled(v: f32, e: u32) -> f32 {
  let bits = bitcast<u32>(v);
  let size = bits & 0x7fffffffu;
  let wanted = i32(size >> 23u) + i32(e) - 128;
  let normal = select(size + (e << 23u) - 0x40000000u, 0x7f800000u, wanted > 254);
  let small = u32(abs(v)) << min(e + 21u, 31u);
  return bitcast<f32>(select(select(small, normal, wanted > 0) | (bits & 0x80000000u), 0u, size == 0u));
}
fn each(v: vec4<f32>, e: u32) -> vec4<f32> {
  return vec4<f32>(scaled(v.x, e), scaled(v.y, e), scaled(v.z, e), scaled(v.w, e));
}
"""
"""v · 2^(e − 128), v a small whole number, also where that is subnormal: v · 2^(e + 21) units of 2^−149."""


def source(name: str, module: Template = MODULE) -> str:
    """The text for a format."""
    f, s = FORMATS[name], unit_shape(name)
    value = "floats(c[j]) * scale" + (" + offset" if f.m else "")
    offset = f" let offset = {blocks.offset(f, 'g')};" if f.m else ""
    decoding = blocks.decoding(name)
    factor = blocks.factor(f, "g") + ";" + offset
    if f.e8m0:
        decoding += BY_BITS
        factor, value = f"byte(a + {f.fields[f.d].offset}u);", "each(floats(c[j]), scale)"
    return module.substitute(
        words=blocks.word_type(name), decoding=decoding, size=SIZE, unit=blocks.unit("e", name), nbytes=f.nbytes,
        ways=s.ways, run=s.run, elements=f.elements, raws=blocks.raws(f, "a", "e"), group=blocks.group_of(f, "at"),
        codes=blocks.codes(f, "at"), factor=factor.removesuffix(";"), value=value,
    )  # fmt: skip


@cache
def shader(name: str) -> Shader:
    return Shader(f"dequantize {name}", source(name), (False, True))


@declared("dequantize")
def dequantize(gpu: Gpu, call: Call) -> Kernel:
    """w[m,b] bytes -> out[m,k] float32, static["format"] blocks: one row of blocks after another is one long row."""
    f, s = FORMATS[dict(call.static)["format"]], unit_shape(dict(call.static)["format"])
    code = shader(f.name)

    def kernel(w: Any, out: Any) -> int:
        if len(w.shape) != 2:
            return -1
        m, b = w.shape
        if b % f.nbytes or out.shape != (m, b // f.nbytes * f.elements) or clashes(out, w):
            return -1
        count = m * (b // f.nbytes)
        if not count:
            return 0
        limits = gpu.limits
        step = limits.binding // max(4 * f.elements, f.nbytes) // 256 * 256  # so parts begin at multiples of 256 bytes
        if count * 4 * f.elements <= limits.binding:
            step = count
        elif step == 0:
            raise KernelError(
                f"dequantize: this adapter binds {limits.binding} bytes, less than 256 blocks of {f.name}"
            )
        for first in range(0, count, step):
            n = min(step, count - first)
            source: Any = whole(w.buffer, -(-w.nbytes // 4) * 4, limits)
            target: Any = whole(out.buffer, out.nbytes, limits)
            if n < count:
                source = View(w.buffer, first * f.nbytes, -(-n * f.nbytes // 4) * 4)
                target = View(out.buffer, first * 4 * f.elements, n * 4 * f.elements)
            grid = fold(-(-n * s.units // SIZE), limits.groups)
            gpu.run(code, (source, target), struct.pack("<I", n * s.units), grid)
        return 0

    return kernel
