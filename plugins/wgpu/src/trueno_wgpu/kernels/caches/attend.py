"""attention_decode in the table of kernels: shares of the keys, dispatches, and the run of them.

Keys are cut into as many shares as fill a GPU, or keep an invocation of a CPU adapter within its loop budget, by what
the table can hold at most; the device cuts each sequence's own keys into so many.  A cache that one binding does not
hold is bound in bands of pages, each of which gives a part of every result.  Parts are joined, and so is a sink to one
part.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import nan
from typing import Any

from trueno.backend import Call, Kernel
from trueno.errors import KernelError

from trueno_wgpu.device.gpu import Gpu, Groups, Limits
from trueno_wgpu.device.grid import fold
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.attention import join
from trueno_wgpu.kernels.attention.kernel import NO_CAP, RATES, numbers
from trueno_wgpu.kernels.attention.plan import FILLING, MOST_SPLITS, SPARE
from trueno_wgpu.kernels.caches.cells import Rows
from trueno_wgpu.kernels.caches.decode import SIZE, Form, rows_for, shader
from trueno_wgpu.kernels.dispatches import Plans, Shape
from trueno_wgpu.kernels.memory import Band, bands, bind, clashes, whole, zero
from trueno_wgpu.kernels.store import PARTIAL, Store
from trueno_wgpu.kernels.table import KERNELS

LEAST = 2 * SIZE
"""Keys of a share, at least."""
FAR = 1 << 30
"""A window that sees all: positions are below it."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One dispatch.  uniforms: all but scale, cap and after.  keys, values: which pages are bound; None for all."""

    shader: Shader
    uniforms: bytes
    groups: Groups
    keys: Band | None
    values: Band | None


@dataclass(frozen=True, slots=True)
class Plan:
    """Dispatches that leave `parts` parts of each of `rows` rows of e numbers, for hq heads; joined: if not results."""

    passes: tuple[Pass, ...]
    rows: int
    e: int
    parts: int
    hq: int
    joined: bool


def plan(q: Shape, pages: int, page: int, hk: int, keys: Rows, values: Rows, blocks: int, window: int,
         capped: bool, guarded: bool, limits: Limits, sinks: bool = False) -> Plan:  # fmt: skip
    """For operands of these sizes, none of which is 0."""
    b, t, hq, d = q
    group = hq // hk
    rows = rows_for(t * group, d, keys)
    if not rows:
        raise KernelError(f"attention_decode: heads of {d} numbers do not fit into a workgroup's memory; use the host")
    form = Form(keys, values, rows, capped, Store(guarded))
    tiles = -(-t * group // rows)
    longest = min(blocks * page, window + t) if window else blocks * page
    each = b * hk * tiles * form.wide
    if limits.trips:
        reach = max((int(limits.trips * SPARE) - form.first_trips()) // form.trips() - 1, 1) * SIZE
        splits = -(-longest // reach)
    else:
        splits = max(min(FILLING // each, longest // LEAST, MOST_SPLITS), 1)
    sizes = page * hk * keys.nbytes, page * hk * values.nbytes
    runs = bands("attention_decode", "the cache", pages, sizes, limits)
    results = b * t * hq
    if not limits.trips:
        splits = max(min(splits, limits.binding // (results * values.n * 4 * len(runs))), 1)
    parts = splits * len(runs)
    joined = parts > 1 or sinks
    if joined:
        form = replace(form, store=PARTIAL)
    passes = []
    for i, (top, height) in enumerate(runs):
        groups = each * splits
        packed = struct.pack(
            "<If9Ii5I", 0, nan, t, hq, hk, group, page, blocks, pages, top, height, min(window or FAR, FAR),
            tiles, splits, i * splits, results, groups,
        )  # fmt: skip
        bound = [None if height == pages else Band(top, height, size) for size in sizes]
        passes.append(Pass(shader(form), packed, fold(groups, limits.groups), *bound))
    return Plan(tuple(passes), results, values.n, parts, hq, joined)


def run(gpu: Gpu, planned: Plan, operands: Sequence[Any], scaled: bytes, out: Any, guarded: bool) -> int:
    """Run what was planned.  operands: q, k, v, table, lengths, and sinks or not.  scaled: scale, cap and after."""
    limits, status = gpu.limits, [gpu.status] if guarded else []
    q, k, v, table, lengths, *more = operands
    target = whole(out.buffer, out.nbytes, limits)
    ends = [target, *status]
    if planned.joined:
        ends = [gpu.alloc(planned.parts * planned.rows * planned.e * 4), gpu.alloc(planned.parts * planned.rows * 8)]
    first, *others = (whole(x.buffer, x.nbytes, limits) for x in (q, table, lengths))
    for one in planned.passes:
        pages = [bind(band, x.buffer, -(-x.nbytes // 4) * 4, limits)
                 for band, x in ((one.keys, k), (one.values, v))]  # fmt: skip
        gpu.run(one.shader, [first, *pages, *others, *ends], scaled + one.uniforms, one.groups)
    if planned.joined:
        sinks = [whole(x.buffer, x.nbytes, limits) for x in more]
        code, uniforms, groups = join.launch(
            planned.rows, planned.e, planned.parts, planned.hq, guarded, bool(sinks), limits.groups
        )
        gpu.run(code, [*ends, *sinks, target, *status], uniforms, groups)
    return 0


@KERNELS.add("attention_decode", "attention_decode_sinks", rates=RATES)
def attention_decode(gpu: Gpu, call: Call) -> Kernel:
    """q[b,t,hq,d] k, v [pages,page,hk,bytes] table[b,blocks] lengths[b], sinks[hq] -> out[b,t,hq,e]."""
    static, guarded = dict(call.static), call.guarded
    form, window = static["format"], min(static["window"], FAR)
    has_sinks = call.op.name == "attention_decode_sinks"

    def make(capped: bool, q: Shape, k: Shape, v: Shape, table: Shape, lengths: Shape, *rest: Shape) -> Any:
        *sinks, out = rest
        if (len(q), len(k), len(v), len(table), len(lengths), len(out)) != (4, 4, 4, 2, 1, 4):
            return None
        keys, values = Rows(form, q[3]), Rows(form, out[3])
        (pages, page, hk, row), (b, _, hq, _) = k, q
        if row != keys.nbytes or v != (pages, page, hk, values.nbytes) or out[:3] != q[:3] or hq % max(hk, 1):
            return None
        if table[0] != b or lengths != (b,) or sinks != [(hq,)] * has_sinks:
            return None
        if 0 in (*q, *k, *v, *table):
            return []
        limits = gpu.limits
        return [plan(q, pages, page, hk, keys, values, table[1], window, capped, guarded, limits, has_sinks)]

    plain, capping = (Plans(partial(make, capped)) for capped in (False, True))

    def kernel(*arguments: Any) -> int:
        *operands, scale, softcap, out = arguments
        softcap = softcap if softcap < NO_CAP else 0.0
        planned = (capping if softcap else plain)(*(x.shape for x in operands), out.shape)
        if planned is None or clashes(out, *operands):
            return -1
        if not planned:
            return zero(out) if out.size else 0
        return run(gpu, planned[0], operands, numbers(scale, softcap, operands[0].shape[-1]), out, guarded)

    return kernel
