"""Activations to 8 bits: what a product with a quantized matrix runs first.

Rows of float32 become codes, four int8 a word; one scale d a block, float32; and the sum of each 16 codes, int32.
Blocks have 32 elements (`q8_0`, `q8_1`) or 256 (`q8_k`).  Codes and scales are ggml's to the bit, on every driver:

    q8_0, q8_1   d = amax / 127 rounded to float16, code = nearest even of x · (127 / amax)
    q8_k         v the first x of the largest magnitude, code = nearest even of x · (−127 / v), d = 1 / (−127 / v)

A code that is off by one is wrong by 1/127 of the largest x, more than a short product may err; and WGSL's division may
be off by 2.5 units in the last place.  So quotients are corrected by whole-number remainders.  Products are rounded
once by the language's own rule.  A block that holds a NaN or an infinity gets d = NaN, and codes of 0.
"""

from dataclasses import dataclass
from functools import cache
from string import Template

from trueno.backend import FORMATS

from trueno_wgpu.device.gpu import Buffer, Gpu, View
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.quant.blocks import HALF

LANES = 64  # invocations of a workgroup, each with four elements: one block of 256, or eight of 32

QUOTIENT = """\
// The bits of a / b, rounded to nearest even: a and b positive and normal, given by their bits, and a / b no smaller
// than the least normal number.  Between the significands the remainder of an estimate fits into 32 bits, however
// far their product does not.
fn quotient(a: u32, b: u32) -> u32 {
  var top = (a & 0x7fffffu) | 0x800000u;
  let under = (b & 0x7fffffu) | 0x800000u;
  var exponent = i32(a >> 23u) - i32(b >> 23u) + 126;
  if (top < under) {
    top = top << 1u;
    exponent -= 1;
  }
  var q = u32(f32(top) / f32(under) * 8388608.0);
  var rest = bitcast<i32>((top << 23u) - q * under);
  for (var i = 0; i < 8; i++) {
    if (rest < 0) {
      q -= 1u;
      rest += i32(under);
    } else if (rest >= i32(under)) {
      q += 1u;
      rest -= i32(under);
    }
  }
  let twice = 2u * u32(rest);
  q += select(0u, 1u, twice > under || (twice == under && (q & 1u) != 0u));
  let bits = q + (u32(max(exponent, 0)) << 23u);
  return select(bits, 0x7f800000u, exponent > 254 || bits >= 0x7f800000u);
}
"""

HALF_BITS = """\
// A positive float32, by its bits, to the nearest float16, ties to even.
fn half_bits(x: u32) -> u32 {
  let kept = (x & 0x7fffffu) | 0x800000u;
  let s = clamp(126u - min(x >> 23u, 126u), 1u, 25u);
  let cut = kept & ((1u << s) - 1u);
  let middle = 1u << (s - 1u);
  let small = (kept >> s) + select(0u, 1u, cut > middle || (cut == middle && ((kept >> s) & 1u) != 0u));
  let normal = (x - 0x38000000u + 0xfffu + ((x >> 13u) & 1u)) >> 13u;
  return select(select(normal, 0x7c00u, x >= 0x477ff000u), small, x < 0x38800000u);
}
"""

SCALES = {
    32: """\
    let size = abs_of(most);
    let finite = size < 0x7f800000u;
    let some = finite && size >= 0x02fe0000u;
    let factor = bitcast<f32>(select(0u, quotient(0x42fe0000u, max(size, 0x02fe0000u)), some));
    let exact = quotient(max(size, 0x08000000u), 0x42fe0000u);
    let d = select(0u, bitcast<u32>(half(half_bits(exact))), size >= 0x08000000u);
""",
    256: """\
    let size = abs_of(most);
    let finite = size < 0x7f800000u;
    let some = finite && size >= 0x02fe0000u;
    let inverse = quotient(0x42fe0000u, max(size, 0x02fe0000u));
    let sign = ~most & 0x80000000u;
    let factor = bitcast<f32>(select(0u, inverse | sign, some));
    let d = select(0u, bitcast<u32>(1.0 / factor), some);
""",
}
"""From the element of largest magnitude: `factor`, by which x is multiplied, and the bits of `d`.

Below 127 / the largest float32 (0x02fe0000) the factor overflows, and ggml's d is 0; codes are 0 then, whose values are
those of ggml's.  The scale of 256 only multiplies sums, so that its last bit may be the driver's.
"""

MODULE = Template("""\
struct Sizes { words: u32, }
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> codes: array<u32>;
@group(0) @binding(3) var<storage, read_write> scales: array<u32>;
@group(0) @binding(4) var<storage, read_write> sums: array<i32>;
var<workgroup> mosts: array<u32, $lanes>;
var<workgroup> parts: array<i32, $lanes>;
$functions
fn abs_of(bits: u32) -> u32 { return bits & 0x7fffffffu; }
fn larger(a: u32, b: u32) -> u32 { return select(a, b, abs_of(b) > abs_of(a)); }
@compute @workgroup_size($lanes)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) ngroups: vec3<u32>,
  @builtin(local_invocation_index) lid: u32,
) {
  let at = (wid.x + wid.y * ngroups.x) * ${lanes}u + lid;
  let inside = at < sizes.words;
  var v = vec4<u32>();
  if (inside) {
    v = x[at];
  }
  mosts[lid] = larger(larger(v.x, v.y), larger(v.z, v.w));
  for (var step = 1u; step < ${share}u; step = step << 1u) {
    workgroupBarrier();
    if (lid % (2u * step) == 0u) {
      mosts[lid] = larger(mosts[lid], mosts[lid + step]);
    }
  }
  workgroupBarrier();
  let most = mosts[lid / ${share}u * ${share}u];
$scales
  let rounded = vec4<i32>(round(bitcast<vec4<f32>>(v) * factor));
  let code = select(vec4<i32>(), clamp(rounded, vec4<i32>(-128), vec4<i32>(127)), some);
  let low = bitcast<vec4<u32>>(code) & vec4<u32>(0xffu);
  parts[lid] = code.x + code.y + code.z + code.w;
  workgroupBarrier();
  if (inside) {
    codes[at] = low.x | (low.y << 8u) | (low.z << 16u) | (low.w << 24u);
    if (lid % ${share}u == 0u) {
      scales[at / ${share}u] = select(0x7fc00000u, d, finite);
    }
    if (lid % 4u == 0u) {
      sums[at / 4u] = parts[lid] + parts[lid + 1u] + parts[lid + 2u] + parts[lid + 3u];
    }
  }
}
""")


@dataclass(frozen=True, slots=True)
class Activations:
    """Rows of 8-bit activations on the device: codes, scales, sums."""

    codes: Buffer
    scales: Buffer
    sums: Buffer


@cache
def shader(block: int) -> Shader:
    functions = QUOTIENT + (HALF_BITS + HALF if block == 32 else "")
    source = MODULE.substitute(lanes=LANES, share=block // 4, functions=functions, scales=SCALES[block].rstrip())
    return Shader(f"activations by {block}", source, (False, True, True, True))


def quantized(gpu: Gpu, x: Buffer | View, count: int, partner: str) -> Activations:
    """`count` floats, whole blocks of the format `partner`: rows one after another; made once for several products."""
    return gpu.once(x, (count, partner), lambda: _quantized(gpu, x, count, partner))


def _quantized(gpu: Gpu, x: Buffer | View, count: int, partner: str) -> Activations:
    block = FORMATS[partner].elements
    result = Activations(gpu.alloc(count), gpu.alloc(count // block * 4), gpu.alloc(count // 4))
    grid = fold(-(-count // (4 * LANES)), gpu.limits.groups)
    gpu.run(shader(block), (x, result.codes, result.scales, result.sums), (count // 4).to_bytes(4, "little"), grid)
    return result
