"""attention by flash tiles: scores of some queries and keys at a time, in cache, with a softmax that is joined online.

Keys are transposed into panels one register tile wide, and values copied head by head, once per call.  Where there are
so few queries that one task reads all of a head's keys, it does so for the keys at hand, and reads both once.  Each
task takes `ROWS` queries of one head of keys and goes through the keys that they see, `KEYS` at a time:

    S = Q Kᵀ                 the register tile
    P = exp2(S − max)        `flash`, a row at a time in vectors
    O = O · exp2(…) + P V    the register tile

Queries of all heads that share a head of keys are rows of one block, so that grouped queries read keys once.  Q is
multiplied by scale · log₂ e beforehand.  Scores are nowhere in memory but in the block, which has 24 KiB.

Floor: 2 (d + e) operations per visible pair at the multiply-add units' peak, and an exponential; for few queries the
bytes of keys and values.  Measured on two cores of a Zen 5, float32: 4 096 causal tokens of 14 heads of 64 at 266 of
516 GFLOP/s; one query of 32 heads on 8, of 128, at 4 096 keys in 1.5 ms, 22 GB/s.
"""

import math
from typing import Any

import numpy as np
from numba import types
from trueno.backend import Call, Kernel, Rates

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels import tile
from trueno_simd.kernels import transpose as transposing
from trueno_simd.kernels.flash import LOG2_E, rows
from trueno_simd.kernels.gather import scaled_row
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
from trueno_simd.kernels.tile import VECTOR_BYTES, WIDTH, address, size_of, strip
from trueno_simd.llvm import vectors
from trueno_simd.llvm.calls import acquire_gil, address_of, pack, release_gil
from trueno_simd.llvm.jit import inner, outer
from trueno_simd.threads.pool import parallel_for

ROWS = 48  # queries of a block: four of the tallest tiles
KEYS = 128  # keys of a block
TASKS = 64  # chunks at most; each has its own scratch, and takes every 64th task
COPIED = 8  # panels of keys that one chunk copies
LINE = 64


@outer
def pack_panel(like, k, v, keys, values, first, s, hk, d, e, wide):
    """Transpose one panel of a head's keys, from key `first` on, and copy their values."""
    size = size_of(like)
    step, lanes = WIDTH // size, VECTOR_BYTES // size
    end = min(first + step, s)
    for j in range(first, end, lanes):
        for p in range(0, d, lanes):
            a, b = k + (j * hk * d + p) * size, keys + p * WIDTH + (j - first) * size
            if j + lanes <= s and p + lanes <= d:
                transposing.tile(like, a, hk * d * size, b, WIDTH, lanes, lanes)
            else:
                transposing.edge_tile(like, a, hk * d * size, b, WIDTH, min(s - j, lanes), min(d - p, lanes))
    for j in range(end - first):
        if wide > e:
            tile.clear(values + (j * wide + e) * size, (wide - e) * size)
        tile.copy(values + j * wide * size, v + (first + j) * hk * e * size, e * size)


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


def _attend(like: Any, functions: tuple[Any, Any, Any, Any]) -> Any:
    """A function attend(job, index): every `chunks`-th task from `index` on, blocks of queries and what they see."""
    begin, join, _, finish = functions

    @outer
    def attend(job, index):
        (q, k, v, near, out, scratch, room, t, s, hq, hk, d, e, wide, panels, causal, window, blocks, tasks,
         chunks, numbers) = job  # fmt: skip
        size = size_of(like)
        step, group = WIDTH // size, hq // hk
        scores = scratch + index * room
        sums = scores + ROWS * KEYS * size
        queries = sums + ROWS * wide * size
        states = queries + ROWS * d * size
        keys_here = states + 2 * ROWS * size
        values_here = keys_here + KEYS * d * size
        cap = read_double(numbers + 16)
        for task in range(index, tasks, chunks):
            head, top = task // blocks, (blocks - 1 - task % blocks) * ROWS
            height = min(ROWS, t * group - top)
            for r in range(height):
                row = (head // hk * t + (top + r) // group) * hq + head % hk * group + (top + r) % group
                scaled_row(like, numbers, q + row * d * size, queries + r * d * size, d)
                begin(states + 2 * r * size)
            tile.clear(sums, height * wide * size)
            nearest, farthest = s - t + top // group, s - t + (top + height - 1) // group
            low = max(0, nearest - window + 1) // step * step if window else 0
            high = farthest + 1 if causal else farthest + window if window else s
            high = min(s, high)
            for start in range(low, high, KEYS):
                count = min(KEYS, high - start)
                keys, values = k + (head * panels + start // step) * d * WIDTH, v + (head * s + start) * wide * size
                if near:
                    shift = (head // hk * s * hk + head % hk) * size
                    keys, values = keys_here, values_here
                    for j in range(0, count, step):
                        pack_panel(like, k + shift * d, v + shift * e, keys + j * d * size, values + j * wide * size,
                                   start + j, s, hk, d, e, wide)  # fmt: skip
                for j in range(0, count, step):
                    strip(like, queries, d * size, keys + j * d * size, WIDTH, scores + j * size, KEYS * size,
                          height, d, step, 0)  # fmt: skip
                for r in range(height):
                    position = s - t + (top + r) // group
                    first = max(0, position - window + 1 - start) if window else 0
                    end = position + 1 if causal else position + window if window else s
                    join(scores + r * KEYS * size, first, min(end - start, count), count, states + 2 * r * size,
                         sums + r * wide * size, wide, cap)  # fmt: skip
                for c in range(0, wide, step):
                    strip(like, scores, KEYS * size, values + c * size, wide * size,
                          sums + c * size, wide * size, height, count, step, 1)  # fmt: skip
            for r in range(height):
                row = (head // hk * t + (top + r) // group) * hq + head % hk * group + (top + r) % group
                finish(states + 2 * r * size, sums + r * wide * size, out + row * e * size, e)

    return attend


read_double = vectors.number_reader(types.float64)
attend32, attend64 = (_attend(like, rows(kind, like)) for kind, like in ((types.float32, F32), (types.float64, F64)))
PACK_JOB, ATTEND_JOB = reader(10), reader(21)


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
    attend32(ATTEND_JOB(args), index)
    return 0


@outer
def piece64(args, index):
    attend64(ATTEND_JOB(args), index)
    return 0


@inner
def attention_all(like, pack_piece, piece, q, k, v, out, numbers, causal, window, scratch):
    """0, or −1 for operands that do not fit, or the bytes of scratch that it needs."""
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
                causal, window, blocks, tasks, chunks, address(numbers)))  # fmt: skip
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


def _attention32(q, k, v, numbers, causal, window, out, scratch):
    if not fits(q, k, v, out):
        return -1
    return attention_all(F32, pack32, piece32, q, k, v, out, numbers, causal, window, scratch)


def _attention64(q, k, v, numbers, causal, window, out, scratch):
    if not fits(q, k, v, out):
        return -1
    return attention_all(F64, pack64, piece64, q, k, v, out, numbers, causal, window, scratch)


@KERNELS.add("attention", rates=Rates(8e-6, 7e10, 5e10))
def attention(device: None, call: Call) -> Kernel:
    """q[...,t,hq,d] k[...,s,hk,d] v[...,s,hk,e] -> out[...,t,hq,e], the leading axes equal."""
    kind = number(call.dtype)
    one = source(kind, 4)
    signature = types.intp(one, one, one, source(types.float64, 1), types.int64, types.int64, target(kind, 4),
                           SCRATCH)  # fmt: skip
    compiled = with_scratch(kernel_entry(signature)(_attention32 if kind == types.float32 else _attention64))
    given = dict(call.static)
    causal, window = int(given["causal"]), min(given["window"], 1 << 60)

    def adapt(q: Any, k: Any, v: Any, scale: float, softcap: float, out: Any) -> tuple[Any, ...] | None:
        if q.ndim < 3 or not q.ndim == k.ndim == v.ndim == out.ndim:
            return None
        if q.ndim != 4:
            if (
                not all(x.flags.c_contiguous for x in (q, k, v, out))
                or not q.shape[:-3] == k.shape[:-3] == v.shape[:-3]
            ):
                return None
            batch = math.prod(q.shape[:-3])
            q, k, v, out = (x.reshape(batch, *x.shape[-3:]) for x in (q, k, v, out))
        factor = scale or 1 / math.sqrt(max(q.shape[3], 1))
        factor = factor / softcap if softcap else factor * LOG2_E
        numbers = np.zeros(3)
        numbers[:2].view(q.dtype)[0] = factor  # as the call's type, at the beginning
        numbers[2] = softcap * LOG2_E
        return q, k, v, numbers, causal, window, out

    return adapted(adapt, compiled)
