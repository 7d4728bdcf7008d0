"""attention by flash tiles: scores of some queries and keys at a time, in cache, with a softmax that is joined online.

Keys are transposed into panels one register tile wide, and values copied head by head, once per call.  Where there are
so few queries that one task reads all of a head's keys, it does so for the keys at hand, and reads both once.  Each
task takes `ROWS` queries of one head of keys and goes through the keys that they see, `KEYS` at a time (`attend`):

    S = Q Kᵀ                 the register tile
    P = exp2(S − max)        `flash`, a row at a time in vectors
    O = O · exp2(…) + P V    the register tile

Queries of all heads that share a head of keys are rows of one block, so that grouped queries read keys once.  Q is
multiplied by scale · log₂ e beforehand.  Scores are nowhere in memory but in the block, which has 24 KiB.  A mask is
added to them there; a sink is what a row has seen before its first key.

Floor: 2 (d + e) operations per visible pair at the multiply-add units' peak, and an exponential; for few queries the
bytes of keys and values.  Measured on two cores of a Zen 5, float32: 4 096 causal tokens of 14 heads of 64 at 266 of
516 GFLOP/s; one query of 32 heads on 8, of 128, at 4 096 keys in 1.5 ms, 22 GB/s.
"""

import math
from typing import Any

from numba import types
from trueno.backend import Call, Kernel, Rates

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels.attend import KEYS, LINE, ROWS, block32, block64, pack_panel
from trueno_simd.kernels.flash import numbers_of
from trueno_simd.kernels.operands import (
    F32,
    F64,
    SCRATCH,
    adapted,
    number,
    overlaps,
    reader,
    source,
    target,
    with_scratch,
)
from trueno_simd.kernels.table import KERNELS
from trueno_simd.kernels.tile import WIDTH, address, size_of
from trueno_simd.llvm.calls import acquire_gil, address_of, pack, release_gil
from trueno_simd.llvm.jit import inner, outer
from trueno_simd.threads.pool import parallel_for

TASKS = 64  # chunks at most; each has its own scratch, and takes every 64th task
COPIED = 8  # panels of keys that one chunk copies


@outer
def pack_some(like, job, index):
    """Some panels of one head."""
    k, v, keys, values, s, hk, d, e, wide, panels = job
    size = size_of(like)
    step, each = WIDTH // size, (panels + COPIED - 1) // COPIED
    head, begin = index // each, index % each * COPIED
    shift = (head // hk * s * hk + head % hk) * size
    for panel in range(begin, min(begin + COPIED, panels)):
        pack_panel(like, k + shift * d, v + shift * e, keys + (head * panels + panel) * d * WIDTH,
                   values + (head * s + panel * step) * wide * size, panel * step, s, hk, d, e, wide)  # fmt: skip


@outer
def attend(like, block, job, index):
    """Every `chunks`-th task from `index` on."""
    (q, k, v, near, out, scratch, room, t, s, hq, hk, d, e, wide, panels, causal, window, blocks, tasks, chunks, mask,
     mask_lead, mask_head, mask_row, sinks, numbers) = job  # fmt: skip
    size = size_of(like)
    for task in range(index, tasks, chunks):
        head, top = task // blocks, (blocks - 1 - task % blocks) * ROWS
        batch = head // hk
        keys, values = k + head * panels * d * WIDTH, v + head * s * wide * size
        if near:
            keys, values = 0, 0
        block(q + batch * t * hq * d * size, k + batch * s * hk * d * size, v + batch * s * hk * e * size, keys,
              values, out + batch * t * hq * e * size, scratch + index * room, head % hk, top, t, s, hq, hk, d, e,
              wide, causal, window, mask + batch * mask_lead * size, mask_head, mask_row, sinks,
              numbers)  # fmt: skip


PACK_JOB, ATTEND_JOB = reader(10), reader(26)


@outer
def pack32(args, index):
    pack_some(F32, PACK_JOB(args), index)
    return 0


@outer
def pack64(args, index):
    pack_some(F64, PACK_JOB(args), index)
    return 0


@outer
def piece32(args, index):
    attend(F32, block32, ATTEND_JOB(args), index)
    return 0


@outer
def piece64(args, index):
    attend(F64, block64, ATTEND_JOB(args), index)
    return 0


@inner
def attention_all(like, pack_piece, piece, q, k, v, out, mask, sinks, numbers, causal, window, scratch):
    """0, or the bytes of scratch that it needs; mask: its address, and the elements between problems, heads, rows."""
    (batch, t, hq, d), (_, s, hk, e) = q.shape, v.shape
    size = size_of(like)
    step = WIDTH // size
    if out.size == 0:
        return 0
    wide = (e + step - 1) // step * step
    panels = (s + step - 1) // step
    blocks = (t * (hq // hk) + ROWS - 1) // ROWS
    tasks = batch * hk * blocks
    chunks = min(tasks, TASKS)
    near = blocks == 1  # a head's keys are for one task alone, which packs them where it needs them
    packed = 0 if near else (batch * hk * panels * d * WIDTH + LINE - 1) // LINE * LINE
    copied = 0 if near else (batch * hk * s * wide * size + LINE - 1) // LINE * LINE
    room = (ROWS * (KEYS + wide + d + 2) + near * KEYS * (d + wide)) * size
    room = (room + LINE - 1) // LINE * LINE
    need = LINE + packed + copied + chunks * room
    if scratch.size < need:
        return need
    keys = (address(scratch) + LINE - 1) // LINE * LINE
    values = keys + packed
    rooms = values + copied
    state = release_gil()
    if near:
        keys, values = address(k), address(v)
    else:
        job = pack((address(k), address(v), keys, values, s, hk, d, e, wide, panels))
        parallel_for(address_of(pack_piece), job, batch * hk * ((panels + COPIED - 1) // COPIED))
    job = pack((address(q), keys, values, int(near), address(out), rooms, room, t, s, hq, hk, d, e, wide, panels,
                causal, window, blocks, tasks, chunks, mask[0], mask[1], mask[2], mask[3], sinks,
                address(numbers)))  # fmt: skip
    parallel_for(address_of(piece), job, chunks)
    acquire_gil(state)
    return 0


@inner
def fits(q, k, v, out):
    """Whether operands and result agree."""
    if not (q.shape[0] == k.shape[0] == v.shape[0] == out.shape[0]):
        return False
    if k.shape[1] != v.shape[1] or k.shape[2] != v.shape[2] or k.shape[3] != q.shape[3] or k.shape[2] == 0:
        return False
    if out.shape[1] != q.shape[1] or out.shape[2] != q.shape[2] or out.shape[3] != v.shape[3]:
        return False
    return q.shape[2] % k.shape[2] == 0 and not (overlaps(out, q) or overlaps(out, k) or overlaps(out, v))


@inner
def of_mask(mask, q, k, out):
    """Address of the mask, and its elements from one problem, head and row to the next, 0 where it is shared.

    The address is −1 for a mask that does not fit.
    """
    lead, heads, height, width = mask.shape
    fine = lead == 1 or lead == q.shape[0]
    fine &= (heads == 1 or heads == q.shape[2]) and (height == 1 or height == q.shape[1]) and width == k.shape[1]
    if not fine or overlaps(out, mask):
        return -1, 0, 0, 0
    return (address(mask), heads * height * width if lead > 1 else 0, height * width if heads > 1 else 0,
            width if height > 1 else 0)  # fmt: skip


def _attention32(q, k, v, numbers, causal, window, out, scratch):
    if not fits(q, k, v, out):
        return -1
    return attention_all(F32, pack32, piece32, q, k, v, out, (0, 0, 0, 0), 0, numbers, causal, window, scratch)


def _attention64(q, k, v, numbers, causal, window, out, scratch):
    if not fits(q, k, v, out):
        return -1
    return attention_all(F64, pack64, piece64, q, k, v, out, (0, 0, 0, 0), 0, numbers, causal, window, scratch)


def _sinks32(q, k, v, sinks, numbers, causal, window, out, scratch):
    if not fits(q, k, v, out) or sinks.size != q.shape[2] or overlaps(out, sinks):
        return -1
    return attention_all(F32, pack32, piece32, q, k, v, out, (0, 0, 0, 0), address(sinks), numbers, causal, window,
                         scratch)  # fmt: skip


def _sinks64(q, k, v, sinks, numbers, causal, window, out, scratch):
    if not fits(q, k, v, out) or sinks.size != q.shape[2] or overlaps(out, sinks):
        return -1
    return attention_all(F64, pack64, piece64, q, k, v, out, (0, 0, 0, 0), address(sinks), numbers, causal, window,
                         scratch)  # fmt: skip


def _masked32(q, k, v, mask, numbers, causal, window, out, scratch):
    added = of_mask(mask, q, k, out)
    if not fits(q, k, v, out) or added[0] == -1:
        return -1
    return attention_all(F32, pack32, piece32, q, k, v, out, added, 0, numbers, causal, window, scratch)


def _masked64(q, k, v, mask, numbers, causal, window, out, scratch):
    added = of_mask(mask, q, k, out)
    if not fits(q, k, v, out) or added[0] == -1:
        return -1
    return attention_all(F64, pack64, piece64, q, k, v, out, added, 0, numbers, causal, window, scratch)


ENTRIES = {
    "attention": (_attention32, _attention64, 0),
    "attention_sinks": (_sinks32, _sinks64, 1),
    "attention_masked": (_masked32, _masked64, 4),
}
"""By op: the functions for float32 and float64, and the axes of the operand behind v."""


def stacked(lead: tuple[int, ...], mask: Any) -> Any:
    """A mask as [1 or problems, m, r, s]; None where its leading axes are neither those of queries nor 1."""
    own = mask.shape[:-3]
    if not 3 <= mask.ndim <= 3 + len(lead) or (own != lead and math.prod(own) != 1) or not mask.flags.c_contiguous:
        return None
    return mask.reshape(math.prod(own), *mask.shape[-3:])


@KERNELS.add(*ENTRIES, rates=Rates(8e-6, 7e10, 5e10))
def attention(device: None, call: Call) -> Kernel:
    """q[...,t,hq,d] k[...,s,hk,d] v[...,s,hk,e], sinks[hq] or mask[...,m,r,s] -> out[...,t,hq,e].

    The leading axes are equal; those of a mask may be 1.
    """
    kind = number(call.dtype)
    one = source(kind, 4)
    *functions, axes = ENTRIES[call.op.name]
    extra = (source(kind, axes),) if axes else ()
    signature = types.intp(one, one, one, *extra, source(types.float64, 1), types.int64, types.int64, target(kind, 4),
                           SCRATCH)  # fmt: skip
    compiled = with_scratch(kernel_entry(signature)(functions[kind != types.float32]))
    static = dict(call.static)
    causal, window = int(static["causal"]), min(static["window"], 1 << 60)

    def adapt(q: Any, k: Any, v: Any, *rest: Any) -> tuple[Any, ...] | None:
        *more, scale, softcap, out = rest
        if q.ndim < 3 or not q.ndim == k.ndim == v.ndim == out.ndim:
            return None
        if axes == 4:
            more = [stacked(q.shape[:-3], more[0])]
            if more[0] is None:
                return None
        if q.ndim != 4:
            if (
                not all(x.flags.c_contiguous for x in (q, k, v, out))
                or not q.shape[:-3] == k.shape[:-3] == v.shape[:-3]
            ):
                return None
            batch = math.prod(q.shape[:-3])
            q, k, v, out = (x.reshape(batch, *x.shape[-3:]) for x in (q, k, v, out))
        return q, k, v, *more, numbers_of(q, scale, softcap), causal, window, out

    return adapted(adapt, compiled)
