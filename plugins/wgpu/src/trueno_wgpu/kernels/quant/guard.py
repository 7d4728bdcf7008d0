"""Guarded kernels of the quantized ops: the plain kernel, then a look at what it stored.

Products are stored in four places, of three shaders each; one pass over the result, which is small beside the matrix,
keeps them as they are.  NaN and Inf are told by their bits, for WGSL lets a compiler assume that there are none.
"""

from typing import Any

from trueno.backend import Kernel

from trueno_wgpu.device.gpu import Buffer, Gpu, View
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.memory import bands, whole
from trueno_wgpu.kernels.store import GUARD

SIZE, EACH = 256, 16  # invocations of a workgroup, and the numbers that one looks at

LOOK = f"""\
struct Sizes {{ count: u32, }}
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> status: atomic<u32>;
{GUARD}
@compute @workgroup_size({SIZE})
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) ngroups: vec3<u32>,
  @builtin(local_invocation_index) lid: u32,
) {{
  let start = (wid.x + wid.y * ngroups.x) * {SIZE * EACH}u + lid;
  for (var i = 0u; i < {SIZE * EACH}u; i += {SIZE}u) {{
    if (start + i < sizes.count) {{
      look(y[start + i]);
    }}
  }}
  tell();
}}
"""
SHADER = Shader("look at a result", LOOK, (False, True))
LINE = 4 * SIZE * EACH  # bytes of a workgroup


def guarded(gpu: Gpu, plain: Kernel) -> Kernel:
    """`plain`, after which the device's status word knows of NaN and Inf in its one result."""

    def kernel(*arrays: Any) -> Any:
        answer, out = plain(*arrays), arrays[-1]
        if answer == -1 or not out.size:
            return answer
        for first, lines in bands("guard", "the result", -(-out.nbytes // LINE), (LINE,), gpu.limits):
            nbytes = min(lines * LINE, out.nbytes - first * LINE)
            part: Buffer | View = View(out.buffer, first * LINE, nbytes)
            if nbytes == out.nbytes:
                part = whole(out.buffer, nbytes, gpu.limits)
            grid = fold(-(-nbytes // LINE), gpu.limits.groups)
            gpu.run(SHADER, (part, gpu.status), (nbytes // 4).to_bytes(4, "little"), grid)
        return answer

    return kernel
