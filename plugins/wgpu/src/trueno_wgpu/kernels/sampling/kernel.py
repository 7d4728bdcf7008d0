"""sample in the table of kernels.  A temperature of 0 is topk's search for one token, by many workgroups."""

import struct
from typing import Any

import numpy as np
from trueno.backend import Call, Kernel
from trueno.errors import KernelError

from trueno_wgpu.device.array import Array
from trueno_wgpu.device.gpu import Gpu, Limits
from trueno_wgpu.device.grid import fold
from trueno_wgpu.kernels.dispatches import Dispatch, Plans, Shape, run
from trueno_wgpu.kernels.memory import clashes
from trueno_wgpu.kernels.sampling.draw import GREEDY, MIN_P, TOP_P, shader, trips
from trueno_wgpu.kernels.sampling.fixed import factor, fraction, steps, tables
from trueno_wgpu.kernels.stacked import parts, stack
from trueno_wgpu.kernels.table import KERNELS, RATES
from trueno_wgpu.kernels.topk import best


def dispatches(x: Shape, r: Shape, out: Shape, top_k: int, limits: Limits) -> list[Dispatch] | None:
    """Steps for operands of these shapes, operand 2 being the tables; None for shapes that do not agree."""
    if not x or not x[-1]:
        return None
    n = x[-1]
    whole = stack(out, (x[:-1], r), (n, 1))
    if whole is None:
        return None
    if limits.trips and trips(n) > limits.trips:
        raise KernelError(f"sample: rows of {n} logits need more loop trips than this adapter allows; use the host")
    digits = 4 + -(-max(n - 1, 1).bit_length() // 8)
    planned = []
    for part in parts("sample", whole, (n * 4, 4), 8, limits):
        packed = struct.pack("<19I", part.count, n, digits, min(top_k, n), 0, 0, 0, *part.words())
        reads = ((0, part.operands[0]), (1, part.operands[1]), (2, None))
        planned.append(Dispatch(shader(), packed, fold(part.count, limits.groups), reads, part.out))
    return planned


def filters(temperature: float, top_p: float, min_p: float) -> bytes:
    """The first uniforms."""
    flags = GREEDY * (temperature == 0) | TOP_P * (top_p < 1) | MIN_P * (min_p > 0)
    share = fraction(top_p) if top_p < 1 else (0, 0)
    return struct.pack("<2Ii6I", *factor(temperature or 1.0), *share, *steps(min_p or 1.0), flags)


@KERNELS.add("sample", rates=RATES)
def sample(gpu: Gpu, call: Call) -> Kernel:
    """logits[...,n] r[...] -> token[...].  A guarded kernel has nothing to report: the result is a position."""
    top_k = dict(call.static)["top_k"]
    kept: list[Array] = []

    def make(x: Shape, r: Shape, out: Shape) -> list[Dispatch] | None:
        return [] if 0 in out and x[-1:] != (0,) else dispatches(x, r, out, top_k, gpu.limits)

    plans = Plans(make)

    def kernel(x: Any, r: Any, temperature: float, top_p: float, min_p: float, token: Any) -> int:
        planned = plans(x.shape, r.shape, token.shape)
        if planned is None or clashes(token, x, r):
            return -1
        if not planned:
            return 0
        if temperature == 0 and x.shape[:-1] == token.shape:
            return best(gpu, x, token)
        if not kept:
            kept.append(Array.of(gpu, tables().view(np.uint32)))
        return run(gpu, planned, (x, r, kept[0]), token, alpha=filters(temperature, top_p, min_p))

    return kernel
