"""attention in the table of kernels: shapes, numbers, and the run of what is planned."""

import math
import struct
from collections.abc import Sequence
from functools import partial
from typing import Any

from trueno.backend import Call, Kernel, Rates

from trueno_wgpu.device.gpu import Gpu
from trueno_wgpu.kernels.attention import join
from trueno_wgpu.kernels.attention.plan import Extra, Sizes, Step, steps
from trueno_wgpu.kernels.dispatches import Plans, Shape
from trueno_wgpu.kernels.memory import bind, clashes, zero
from trueno_wgpu.kernels.stacked import stack
from trueno_wgpu.kernels.table import KERNELS

RATES = Rates(launch_s=1e-4, flops=5e12, bytes=3e11, link_s=6e-5, link_bytes=8e9)
"""Of a discrete GPU: as matrix products by half, because of the softmax between the two."""
LARGEST, SMALLEST = float.fromhex("0x1.fffffep127"), 2.0**-126
NO_CAP = 1e30
"""A cap from which scores below 10²⁷ keep every digit, and their quotient by it may be lost as a subnormal."""


def run(
    gpu: Gpu, planned: Sequence[Step], q: Any, k: Any, v: Any, numbers: bytes, out: Any, guarded: bool,
    mask: Any = None, sinks: Any = None,
) -> int:  # fmt: skip
    """Run what was planned.  numbers: scale, cap and after."""
    limits, status = gpu.limits, [gpu.status] if guarded else []
    operands = (q, k, v) if mask is None else (q, k, v, mask)
    hq, e = out.shape[-2:]
    more = [] if sinks is None else [bind(None, sinks.buffer, sinks.nbytes, limits)]
    for step in planned:
        target = bind(step.out, out.buffer, out.nbytes, limits)
        joined = step.parts > 1 or sinks is not None
        ends = [target, *status]
        if joined:
            ends = [gpu.alloc(step.parts * step.rows * e * 4), gpu.alloc(step.parts * step.rows * 8)]
        for one in step.passes:
            reads = [bind(band, x.buffer, x.nbytes, limits) for band, x in zip(one.reads, operands, strict=True)]
            gpu.run(one.shader, [*reads, *ends], numbers + one.uniforms, one.groups)
        if joined:
            shader, uniforms, groups = join.launch(
                step.rows, e, step.parts, hq, guarded, sinks is not None, limits.groups
            )
            gpu.run(shader, [*ends, *more, target, *status], uniforms, groups)
    return 0


def numbers(scale: float, softcap: float, d: int) -> bytes:
    """Scale, cap and after: what queries, and capped scores, are multiplied by.  Weights are powers of two."""
    scale, to_two = scale or d**-0.5, math.log2(math.e)
    values = (scale, max(softcap, SMALLEST), softcap * to_two) if softcap else (scale * to_two, 1.0, 1.0)
    return struct.pack("<3f", *(min(value, LARGEST) for value in values))


@KERNELS.add("attention", "attention_sinks", "attention_masked", rates=RATES)
def attention(gpu: Gpu, call: Call) -> Kernel:
    """q[...,t,hq,d] k[...,s,hk,d] v[...,s,hk,e], sinks[hq] or mask[...,m,r,s] -> out[...,t,hq,e]."""
    static, guarded = dict(call.static), call.guarded
    causal, window = static["causal"], static["window"]
    has_sinks, has_mask = (call.op.name == f"attention_{kind}" for kind in ("sinks", "masked"))

    def make(capped: bool, q: Shape, k: Shape, v: Shape, *more: Shape) -> list[Step] | None:
        *extra, out = more
        if min(map(len, (q, k, v, *extra[:has_mask]))) < 3:
            return None
        (t, hq, d), (s, hk, e) = q[-3:], v[-3:]
        if k[-3:] != (s, hk, d) or out[-3:] != (t, hq, e) or hq % max(hk, 1) or (has_sinks and extra[0] != (hq,)):
            return None
        leads, sizes = [q[:-3], k[:-3], v[:-3]], [t * hq * d, s * hk * d, s * hk * e]
        mask = None
        if has_mask:
            mask = m, r, width = extra[0][-3:]
            if m not in (1, hq) or r not in (1, t) or width != s:
                return None
            leads.append(extra[0][:-3])
            sizes.append(m * r * s)
        whole = stack(out[:-3], leads, sizes)
        if whole is None:
            return None
        if 0 in (*q, *k, *v, *out):
            return []
        kind = Extra(has_sinks, mask)
        return steps(Sizes(t, s, hq, hk, d, e), whole, causal, window, capped, guarded, gpu.limits, kind)

    plain, capping = (Plans(partial(make, capped)) for capped in (False, True))

    def kernel(q: Any, k: Any, v: Any, *rest: Any) -> int:
        *more, scale, softcap, out = rest
        softcap = softcap if softcap < NO_CAP else 0.0
        planned = (capping if softcap else plain)(q.shape, k.shape, v.shape, *(x.shape for x in more), out.shape)
        if planned is None or clashes(out, q, k, v, *more):
            return -1
        if not planned:
            return zero(out) if out.size else 0
        extra = dict(zip(("mask" if has_mask else "sinks",), more, strict=False))
        return run(gpu, planned, q, k, v, numbers(scale, softcap, q.shape[-1]), out, guarded, **extra)

    return kernel
