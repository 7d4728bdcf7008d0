"""attention_ragged by the tiles of `tile`: each workgroup looks in the offsets for the sequence of its block.

The host does not know the offsets, so it starts as many workgroups as there may be blocks; what is too many ends at
once.  On a device offsets are not checked: what is out of range is cut to it, and no offset goes back, so every query
is in one block, whatever they are.

Floor: that of `tile` for each sequence.
"""

import struct
from dataclasses import dataclass
from functools import partial
from typing import Any

from trueno.backend import Call, Kernel
from trueno.errors import KernelError

from trueno_wgpu.device.gpu import Gpu, Limits
from trueno_wgpu.device.grid import fold
from trueno_wgpu.kernels.attention import join, tile
from trueno_wgpu.kernels.attention.kernel import NO_CAP, RATES, numbers
from trueno_wgpu.kernels.attention.plan import FILLING, LEAST, MOST_SPLITS, SPARE, WORK, Pass, Sizes
from trueno_wgpu.kernels.attention.text import Form
from trueno_wgpu.kernels.dispatches import Plans, Shape
from trueno_wgpu.kernels.memory import clashes, whole, zero
from trueno_wgpu.kernels.store import PARTIAL, Store
from trueno_wgpu.kernels.table import KERNELS


@dataclass(frozen=True, slots=True)
class Plan:
    """Dispatches, and the parts of each result that they leave."""

    passes: tuple[Pass, ...]
    parts: int


def planned(sizes: Sizes, n: int, causal: bool, window: int, capped: bool, guarded: bool, limits: Limits) -> Plan:
    """What computes so many queries and keys of n − 1 sequences, whatever their lengths."""
    t, s, hq, hk, d, e = sizes.t, sizes.s, sizes.hq, sizes.hk, sizes.d, sizes.e
    largest = max(t * hq * max(d, e), s * hk * max(d, e), 2 * n) * 4
    if largest > limits.binding:
        raise KernelError(
            f"attention_ragged: operands of {largest} bytes, and this adapter binds {limits.binding}; call it for some "
            "of the sequences"
        )
    sequences = max(n - 1, 1)
    chosen = tile.tile_for(max(t * sizes.group // sequences, 1), d, e)
    blocks, wide = t * sizes.group // chosen.rows + n + 1, -(-e // (chosen.columns * tile.ACROSS * 4))
    most = blocks
    if limits.trips:
        budget = int(limits.trips * SPARE) - 2 * (n + 1)  # of which a workgroup's search takes its share
        reach = (budget // chosen.trips(d) - 2) * tile.KEYS
        if reach <= 0:
            raise KernelError(
                f"attention_ragged: {n - 1} sequences are more than loops of this adapter go through; call it for some "
                "of them"
            )
        splits = -(-s // reach)
    else:
        splits = max(min(FILLING // (blocks * hk * wide), s // sequences // LEAST, MOST_SPLITS), 1)
        most = max(WORK // (chosen.rows * min(s, 2 * s // sequences) * hk * (d + e)), 1)
    if splits > 1 and splits * t * hq * e * 4 > limits.binding:
        splits = max(limits.binding // (t * hq * e * 4), 1)
    store = PARTIAL if splits > 1 else Store(guarded)
    form = Form(4 if d % 4 == 0 else 1, 4 if e % 4 == 0 else 1, capped, store, ragged=True)
    back = min(window - 1, s + t) if window else s + t
    ahead, passes = 0 if causal else back, []
    for first in range(0, blocks, most):
        some = min(most, blocks - first)
        groups = some * hk * splits * wide
        words = (
            t, s, hq, hk, d, e, sizes.group, 1, 0, 0, t, 0, 0, s, 0, splits, 0, back, ahead, groups, some, wide, t * hq,
            0, *(0,) * 16, n, first, 0, 0,
        )  # fmt: skip
        packed = struct.pack("<I17I2i25I", 0, *words)
        passes.append(Pass(tile.shader(chosen, form), packed, fold(groups, limits.groups), (None,) * 5))
    return Plan(tuple(passes), splits)


@KERNELS.add("attention_ragged", rates=RATES)
def attention_ragged(gpu: Gpu, call: Call) -> Kernel:
    """q[t,hq,d] k[s,hk,d] v[s,hk,e] offsets_q[n] offsets_k[n] -> out[t,hq,e]."""
    static, guarded, limits = dict(call.static), call.guarded, gpu.limits

    def make(capped: bool, q: Shape, k: Shape, v: Shape, of_q: Shape, of_k: Shape, out: Shape) -> Plan | None:
        if not len(q) == len(k) == len(v) == 3 or len(of_q) != 1 or of_q != of_k or not of_q[0]:
            return None
        (t, hq, d), (s, hk, e) = q, v
        if k != (s, hk, d) or out != (t, hq, e) or hq % max(hk, 1):
            return None
        if 0 in (*q, *k, *v):
            return Plan((), 0)
        sizes = Sizes(t, s, hq, hk, d, e)
        return planned(sizes, of_q[0], static["causal"], static["window"], capped, guarded, limits)

    plain, capping = (Plans(partial(make, capped)) for capped in (False, True))

    def kernel(q: Any, k: Any, v: Any, of_q: Any, of_k: Any, scale: float, softcap: float, out: Any) -> int:
        softcap = softcap if softcap < NO_CAP else 0.0
        operands = (q, k, v, of_q, of_k)
        plan: Any = (capping if softcap else plain)(*(x.shape for x in operands), out.shape)
        if plan is None or clashes(out, *operands):
            return -1
        if not plan.passes:
            return zero(out) if out.size else 0
        rows, e, status = q.shape[0] * q.shape[1], out.shape[-1], [gpu.status] * guarded
        target = whole(out.buffer, out.nbytes, limits)
        ends = [target, *status]
        if plan.parts > 1:
            ends = [gpu.alloc(plan.parts * rows * e * 4), gpu.alloc(plan.parts * rows * 8)]
        reads = [whole(x.buffer, x.nbytes, limits) for x in operands]
        beginning = numbers(scale, softcap, q.shape[-1])
        for one in plan.passes:
            gpu.run(one.shader, [*reads, *ends], beginning + one.uniforms, one.groups)
        if plan.parts > 1:
            launch = join.launch(rows, e, plan.parts, q.shape[1], guarded, False, limits.groups)
            gpu.run(launch[0], [*ends, target, *status], *launch[1:])
        return 0

    return kernel
