"""attention_ragged: attention of many sequences at once, with `attend`'s blocks, shared by their work.

A plan lists the blocks of all sequences, with the pairs of a query and a key that they see, added up.  A chunk takes
the tasks, blocks of one head of keys each, whose sums lie in its share of the total: so long and short sequences share
the threads, and a long one is in many chunks.  Keys of a sequence with several blocks are packed once beforehand, a
panel begins where the sequence does.  Queries of no sequence are sequences without keys.

Floor: that of `attention` for each sequence.
"""

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
from trueno_simd.kernels.tile import WIDTH, address, get_word, put_word, size_of
from trueno_simd.llvm.calls import acquire_gil, address_of, pack, release_gil
from trueno_simd.llvm.jit import inner, outer
from trueno_simd.threads.pool import parallel_for

CHUNKS = 64  # at most; each has its own scratch
SEQUENCE = 6  # words: first query and key, how many of each, first panel, first panel's chunk
BLOCK = 3  # words: sequence, first row, sum of pairs before it
COPIED = 8  # panels of keys that one chunk copies


@inner
def limits(sequences, queries, keys, group, step):
    """At most so many blocks and panels, whatever the offsets."""
    return queries * group // ROWS + sequences, keys // step + sequences


@inner
def pairs(t, s, top, height, group, causal, window):
    """Pairs of a row and a key that a block goes through, and 16 for each row that it writes."""
    nearest, farthest = s - t + top // group, s - t + (top + height - 1) // group
    low = max(0, nearest - window + 1) if window else 0
    high = farthest + 1 if causal else farthest + window if window else s
    return height * (max(0, min(s, high) - low) + 16)


@outer
def planned(plan, of_q, of_k, n, tokens, group, step, causal, window):
    """Write the sequences, the blocks behind them, and return blocks, panels' chunks, and the sum of pairs."""
    blocks_at = plan + (n + 1) * SEQUENCE * 8
    blocks, panels, copies, total = 0, 0, 0, 0
    for i in range(n + 1):  # the first and the last are queries of no sequence
        first = get_word(of_q, i - 1) if i else 0
        end = get_word(of_q, i) if i < n else tokens
        inside = 0 < i < n
        first_key = get_word(of_k, i - 1) if inside else 0
        s = get_word(of_k, i) - first_key if inside else 0
        t, row = end - first, plan + i * SEQUENCE * 8
        own = (t * group + ROWS - 1) // ROWS
        own_panels = (s + step - 1) // step if own > 1 else 0  # a block alone packs its keys itself
        put_word(row, 0, first)
        put_word(row, 1, first_key)
        put_word(row, 2, t)
        put_word(row, 3, s)
        put_word(row, 4, panels)
        put_word(row, 5, copies)
        for b in range(own):
            place = blocks_at + (blocks + b) * BLOCK * 8
            put_word(place, 0, i)
            put_word(place, 1, b * ROWS)
            put_word(place, 2, total)
            total += pairs(t, s, b * ROWS, min(ROWS, t * group - b * ROWS), group, causal, window)
        blocks, panels = blocks + own, panels + own_panels
        copies += (own_panels + COPIED - 1) // COPIED
    put_word(blocks_at + blocks * BLOCK * 8, 2, total)
    return blocks, copies, total


@outer
def pack_some(like, job, index):
    """Some panels of one head of one sequence."""
    k, v, keys, values, plan, n, hk, d, e, wide, panels, keys_in_all, copies = job
    size = size_of(like)
    step = WIDTH // size
    head, copy = index // copies, index % copies
    low, high = 0, n + 1
    while high - low > 1:  # the last sequence whose first chunk is not behind this one
        middle = (low + high) // 2
        if get_word(plan + middle * SEQUENCE * 8, 5) <= copy:
            low = middle
        else:
            high = middle
    row = plan + low * SEQUENCE * 8
    first, s, base = get_word(row, 1), get_word(row, 3), get_word(row, 4)
    begin = (copy - get_word(row, 5)) * COPIED
    for panel in range(begin, min(begin + COPIED, (s + step - 1) // step)):
        shift = (first * hk + head) * size
        pack_panel(like, k + shift * d, v + shift * e, keys + (head * panels + base + panel) * d * WIDTH,
                   values + (head * keys_in_all + first + panel * step) * wide * size, panel * step, s, hk, d, e,
                   wide)  # fmt: skip


@outer
def attend(like, block, job, index):
    """The tasks whose sums of pairs lie in this chunk's share."""
    (q, k, v, keys, values, plan, n, out, scratch, room, hq, hk, d, e, wide, panels, keys_in_all, causal, window,
     blocks, total, chunks, numbers) = job  # fmt: skip
    size = size_of(like)
    group, of_blocks = hq // hk, plan + (n + 1) * SEQUENCE * 8
    first, end = index * hk * total // chunks, (index + 1) * hk * total // chunks
    head = first // total
    low, high = 0, blocks  # the first task that does not begin before `first`
    while low < high:
        middle = (low + high) // 2
        if head * total + get_word(of_blocks + middle * BLOCK * 8, 2) < first:
            low = middle + 1
        else:
            high = middle
    while True:
        if low == blocks:
            head, low = head + 1, 0
        place = of_blocks + low * BLOCK * 8
        if head == hk or head * total + get_word(place, 2) >= end:
            break
        sequence, top = plan + get_word(place, 0) * SEQUENCE * 8, get_word(place, 1)
        first_q, first_k = get_word(sequence, 0), get_word(sequence, 1)
        t, s = get_word(sequence, 2), get_word(sequence, 3)
        packed, copied = 0, 0
        if t * group > ROWS:
            packed = keys + (head * panels + get_word(sequence, 4)) * d * WIDTH
            copied = values + (head * keys_in_all + first_k) * wide * size
        block(q + first_q * hq * d * size, k + first_k * hk * d * size, v + first_k * hk * e * size, packed, copied,
              out + first_q * hq * e * size, scratch + index * room, head, top, t, s, hq, hk, d, e, wide, causal,
              window, 0, 0, 0, 0, numbers)  # fmt: skip
        low += 1


PACK_JOB, ATTEND_JOB = reader(13), reader(23)


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
def rising(offsets, most):
    """Whether offsets are 0 to `most`, and none is less than the one before it."""
    wrong = (offsets[0] < 0) | (offsets[offsets.size - 1] > most)
    for i in range(1, offsets.size):
        wrong |= offsets[i] < offsets[i - 1]
    return not wrong


@inner
def fits(q, k, v, of_q, of_k, out):
    """Whether operands and result agree."""
    (t, hq, d), (s, hk, e) = q.shape, v.shape
    if k.shape[0] != s or k.shape[1] != hk or k.shape[2] != d or hk == 0 or hq % hk != 0:
        return False
    if out.shape[0] != t or out.shape[1] != hq or out.shape[2] != e or of_q.size != of_k.size or of_q.size == 0:
        return False
    if overlaps(out, q) or overlaps(out, k) or overlaps(out, v) or overlaps(out, of_q) or overlaps(out, of_k):
        return False
    return rising(of_q, t) and rising(of_k, s)


@inner
def ragged_all(like, pack_piece, piece, q, k, v, of_q, of_k, numbers, causal, window, out, scratch):
    """0, −1 for operands that do not fit, or the bytes of scratch that it needs, which depend on shapes alone."""
    if not fits(q, k, v, of_q, of_k, out):
        return -1
    if out.size == 0:
        return 0
    (tokens, hq, d), (keys_in_all, hk, e), n = q.shape, v.shape, of_q.size
    size, group = size_of(like), hq // hk
    step = WIDTH // size
    wide = (e + step - 1) // step * step
    most, panels = limits(n + 1, tokens, keys_in_all, group, step)
    plan_bytes = ((n + 1) * SEQUENCE + (most + 1) * BLOCK) * 8
    plan_bytes = (plan_bytes + LINE - 1) // LINE * LINE
    packed = 0 if tokens * group <= ROWS else (hk * panels * d * WIDTH + LINE - 1) // LINE * LINE
    copied = 0 if tokens * group <= ROWS else (hk * keys_in_all * wide * size + LINE - 1) // LINE * LINE
    room = (ROWS * (KEYS + wide + d + 2) + KEYS * (d + wide)) * size
    room = (room + LINE - 1) // LINE * LINE
    need = LINE + plan_bytes + packed + copied + min(most * hk, CHUNKS) * room
    if scratch.size < need:
        return need
    plan = (address(scratch) + LINE - 1) // LINE * LINE
    keys = plan + plan_bytes
    values = keys + packed
    rooms = values + copied
    state = release_gil()
    blocks, copies, total = planned(plan, address(of_q), address(of_k), n, tokens, group, step, causal, window)
    if copies:
        job = pack((address(k), address(v), keys, values, plan, n, hk, d, e, wide, panels, keys_in_all, copies))
        parallel_for(address_of(pack_piece), job, hk * copies)
    chunks = min(blocks * hk, CHUNKS)
    job = pack((address(q), address(k), address(v), keys, values, plan, n, address(out), rooms, room, hq, hk, d, e,
                wide, panels, keys_in_all, causal, window, blocks, total, chunks, address(numbers)))  # fmt: skip
    parallel_for(address_of(piece), job, chunks)
    acquire_gil(state)
    return 0


def _ragged32(q, k, v, of_q, of_k, numbers, causal, window, out, scratch):
    return ragged_all(F32, pack32, piece32, q, k, v, of_q, of_k, numbers, causal, window, out, scratch)


def _ragged64(q, k, v, of_q, of_k, numbers, causal, window, out, scratch):
    return ragged_all(F64, pack64, piece64, q, k, v, of_q, of_k, numbers, causal, window, out, scratch)


@KERNELS.add("attention_ragged", rates=Rates(1e-5, 7e10, 5e10))
def attention_ragged(device: None, call: Call) -> Kernel:
    """q[t,hq,d] k[s,hk,d] v[s,hk,e] offsets_q[n] offsets_k[n] -> out[t,hq,e].

    An offset that is out of range or falls: -1 with nothing written, and the core raises.
    """
    kind, index = number(call.dtype), types.int64
    one = source(kind, 3)
    signature = types.intp(one, one, one, source(index, 1), source(index, 1), source(types.float64, 1), index, index,
                           target(kind, 3), SCRATCH)  # fmt: skip
    compiled = with_scratch(kernel_entry(signature)(_ragged32 if kind == types.float32 else _ragged64))
    static = dict(call.static)
    causal, window = int(static["causal"]), min(static["window"], 1 << 60)

    def adapt(q: Any, k: Any, v: Any, of_q: Any, of_k: Any, scale: float, softcap: float, out: Any) -> tuple[Any, ...]:
        return q, k, v, of_q, of_k, numbers_of(q, scale, softcap), causal, window, out

    return adapted(adapt, compiled)
