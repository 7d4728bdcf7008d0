"""attention_decode: a few queries of each sequence against all keys of its pages, each byte of the cache read once.

A task takes some tokens of one sequence, `KEYS` at a time, and all heads of these, which are neighbours in memory:

    S = Q Kᵀ                 `dots`: keys are rows as the cache holds them
    P = exp2(S − max)        `flash`, a row at a time in vectors
    O = O · exp2(…) + P V    the register tile

Queries that share a head of keys are the rows of one block.  Keys and values in float32 whose run on a page is long
enough are read where they lie; others are widened into 64 rows in L1 or L2, once for all queries.  A sequence is cut
into as many tasks as its own length needs, so that all cores work on one sequence too, and a short one beside a long
one is one task; then the parts of a row meet.

Floor: the bytes of the keys and values of each sequence.  Measured on two cores of a Zen 5, a sequence of 4 096 tokens
with 14 heads of 64 on 2: 139 µs in float32, 30 GB/s, and 106 in bfloat16; with 28 heads of 128 on 4: 698 µs in float32
(24 GB/s), 350 in float16 and 600 in q8_0, where widening takes most of the time.
"""

from typing import Any

from numba import types
from trueno.backend import Call, Kernel, Rates

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels import tile
from trueno_simd.kernels.cells import CODES, row_bytes, widen_row
from trueno_simd.kernels.dots import LANES, products
from trueno_simd.kernels.flash import numbers_of, rows
from trueno_simd.kernels.gather import scaled_row
from trueno_simd.kernels.operands import F32, SCRATCH, adapted, overlaps, reader, source, target, with_scratch
from trueno_simd.kernels.quant.regions import share_out
from trueno_simd.kernels.table import BLOCKS, KERNELS
from trueno_simd.kernels.tile import WIDTH, address, get_word, put_word, strip
from trueno_simd.llvm import vectors
from trueno_simd.llvm.calls import address_of, pack
from trueno_simd.llvm.jit import inner, outer

KEYS = 64  # tokens of a block
SHARE = 256  # tokens of a task at least
TASKS = 64  # that all sequences are cut into, about
CHUNKS = 64  # at most; each has its own scratch
LINE = 64
STEP = WIDTH // 4

ROWS = rows(types.float32, F32)
begin, sink, join, meet, finish = ROWS.begin, ROWS.sink, ROWS.join, ROWS.meet, ROWS.finish
read_double = vectors.number_reader(types.float64)
JOB, MEET_JOB = reader(29), reader(10)


@outer
def widen_block(form, cache, table, page, heads, head, row, start, count, n, target, stride):
    """Tokens of one head, wherever their pages are, as rows of float32."""
    done = 0
    while done < count:
        token = start + done
        run = min(page - token % page, count - done)
        place = cache + ((get_word(table, token // page) * page + token % page) * heads + head) * row
        for j in range(run):
            widen_row(form, place + j * heads * row, target + (done + j) * stride, n)
        done += run


@outer
def attend(args, index):
    """Every `chunks`-th task from `index` on: `share` tokens of one sequence, and the rows of all its queries."""
    (q, k, v, tables, lengths, scratch, room, parts, part, starts, share, tasks, chunks, t, hq, hk, d, e, page,
     blocks, form, window, k_row, v_row, deep, wide, numbers, height, sinks) = JOB(args)  # fmt: skip
    group = hq // hk
    queries = scratch + index * room
    scores = queries + t * hq * deep * 4
    keys_here = scores + height * KEYS * 4
    values_here = keys_here + KEYS * deep * 4
    cap = read_double(numbers + 16)
    tile.clear(queries, t * hq * deep * 4)
    tile.clear(keys_here, KEYS * deep * 4)
    i = 0
    for task in range(index, tasks, chunks):
        while get_word(starts, i + 1) <= task:
            i += 1
        length, table = get_word(lengths, i), tables + i * blocks * 8
        low = max(0, length - t - window + 1) if window else 0
        first = low + (task - get_word(starts, i)) * share
        end = min(first + share, length)
        states = parts + task * part
        sums = states + t * hq * 8
        for r in range(t * hq):
            seeing = length - t + r % height // group >= 0  # else the row is 0, also where its sink is NaN
            if sinks and seeing and task == get_word(starts, i):
                sink(states + 8 * r, sinks + 4 * (r // height * group + r % height % group))
            else:
                begin(states + 8 * r)
        tile.clear(sums, t * hq * wide * 4)
        if first < end:
            for r in range(t * hq):  # a head's rows are neighbours
                place = ((i * t + r % height // group) * hq + r // height * group + r % height % group) * d * 4
                scaled_row(F32, numbers, q + place, queries + r * deep * 4, d)
        for start in range(first, end, KEYS):
            count = min(KEYS, end - start)
            near = form == 0 and page - start % page >= count
            token = get_word(table, start // page) * page + start % page
            for head in range(hk):
                keys, k_step = keys_here, deep * 4
                values, v_step = values_here, wide * 4
                if near and deep == d:
                    keys, k_step = k + (token * hk + head) * k_row, hk * k_row
                else:
                    widen_block(form, k, table, page, hk, head, k_row, start, count, d, keys, k_step)
                if near:
                    values, v_step = v + (token * hk + head) * v_row, hk * v_row
                else:
                    widen_block(form, v, table, page, hk, head, v_row, start, count, e, values, v_step)
                row = head * height
                products(queries + row * deep * 4, deep * 4, keys, k_step, scores, KEYS * 4, deep, height, count)
                for r in range(height):
                    position = length - t + r // group
                    nearest = max(0, position - window + 1 - start) if window else 0
                    join(scores + r * KEYS * 4, nearest, min(position + 1 - start, count), count,
                         states + (row + r) * 8, sums + (row + r) * wide * 4, wide, cap)  # fmt: skip
                for c in range(0, e, STEP):
                    strip(F32, scores, KEYS * 4, values + c * 4, v_step, sums + (row * wide + c) * 4, wide * 4,
                          height, count, min(STEP, e - c), 1)  # fmt: skip
    return 0


@outer
def gather(args, i):
    """The parts of one sequence's rows meet in the first one, and become results."""
    parts, part, starts, t, hq, height, group, e, wide, out = MEET_JOB(args)
    begun = get_word(starts, i)
    states = parts + begun * part
    sums = states + t * hq * 8
    for s in range(1, get_word(starts, i + 1) - begun):
        for r in range(t * hq):
            other = states + s * part
            meet(states + 8 * r, sums + r * wide * 4, other + 8 * r, other + (t * hq * 2 + r * wide) * 4, wide)
    for r in range(t * hq):
        place = ((i * t + r % height // group) * hq + r // height * group + r % height % group) * e * 4
        finish(states + 8 * r, sums + r * wide * 4, out + place, e)
    return 0


@inner
def fits(q, k, v, table, lengths, form, out):
    """Whether operands and result agree, and every page that holds tokens exists."""
    (b, t, hq, d), (pages, page, hk), e = q.shape, k.shape[:3], out.shape[3]
    if v.shape[0] != pages or v.shape[1] != page or v.shape[2] != hk or hk == 0 or hq % hk != 0:
        return False
    if k.shape[3] != row_bytes(form, d) or v.shape[3] != row_bytes(form, e):
        return False
    if table.shape[0] != b or lengths.shape[0] != b or out.shape[0] != b or out.shape[1] != t or out.shape[2] != hq:
        return False
    if overlaps(out, q) or overlaps(out, k) or overlaps(out, v) or overlaps(out, table) or overlaps(out, lengths):
        return False
    for i in range(b):
        length = lengths[i]
        if length < 0 or length > table.shape[1] * page:
            return False
        wrong = 0
        for j in range((length + page - 1) // page if page else 0):
            wrong |= (table[i, j] < 0) | (table[i, j] >= pages)
        if wrong:
            return False
    return True


@inner
def decode_all(q, k, v, table, lengths, sinks, numbers, form, window, out, scratch):
    """0, −1 for operands that do not fit, or the bytes of scratch that it needs; sinks: their address, or 0."""
    if not fits(q, k, v, table, lengths, form, out):
        return -1
    if out.size == 0:
        return 0
    (b, t, hq, d), (_, page, hk), e = q.shape, k.shape[:3], out.shape[3]
    total = 0
    for i in range(b):
        total += min(lengths[i], window + t) if window else lengths[i]
    share = max(SHARE, (total // TASKS + KEYS - 1) // KEYS * KEYS)
    most = min(b + TASKS, b * max(1, (table.shape[1] * page + SHARE - 1) // SHARE))  # tasks, whatever the lengths
    deep, wide = (d + LANES - 1) // LANES * LANES, (e + LANES - 1) // LANES * LANES
    height = t * (hq // hk)
    part = (t * hq * (2 + wide) * 4 + LINE - 1) // LINE * LINE
    room = (t * hq * deep + height * KEYS + KEYS * (deep + wide)) * 4
    room = (room + LINE - 1) // LINE * LINE
    listed = ((b + 1) * 8 + LINE - 1) // LINE * LINE
    need = LINE + listed + most * part + min(most, CHUNKS) * room
    if scratch.size < need:
        return need
    starts = (address(scratch) + LINE - 1) // LINE * LINE
    rooms = starts + listed
    parts = rooms + min(most, CHUNKS) * room
    tasks = 0
    for i in range(b):
        put_word(starts, i, tasks)
        seen = min(lengths[i], window + t) if window else lengths[i]
        tasks += max(1, (seen + share - 1) // share)
    put_word(starts, b, tasks)
    chunks = min(tasks, CHUNKS)
    job = pack((address(q), address(k), address(v), address(table), address(lengths), rooms, room,
                parts, part, starts, share, tasks, chunks, t, hq, hk, d, e, page, table.shape[1], form, window,
                k.shape[3], v.shape[3], deep, wide, address(numbers), height, sinks))  # fmt: skip
    share_out(address_of(attend), job, chunks)
    job = pack((parts, part, starts, t, hq, height, hq // hk, e, wide, address(out)))
    share_out(address_of(gather), job, b)
    return 0


def _decode(q, k, v, table, lengths, numbers, form, window, out, scratch):
    return decode_all(q, k, v, table, lengths, 0, numbers, form, window, out, scratch)


def _decode_sinks(q, k, v, table, lengths, sinks, numbers, form, window, out, scratch):
    if sinks.size != q.shape[2] or overlaps(out, sinks):
        return -1
    return decode_all(q, k, v, table, lengths, address(sinks), numbers, form, window, out, scratch)


@KERNELS.add("attention_decode", "attention_decode_sinks", rates=Rates(1e-5, 5e10, 3e10), dtypes=BLOCKS)
def attention_decode(device: None, call: Call) -> Kernel:
    """q[b,t,hq,d] k, v [pages,page,hk,bytes] table[b,blocks] lengths[b], and sinks[hq] -> out[b,t,hq,e].

    A length beyond the table, or a page out of range: -1 with nothing written, and the core raises.
    """
    index, floats = types.int64, types.float32
    run, extra = (_decode, ()) if call.op.name == "attention_decode" else (_decode_sinks, (source(floats, 1),))
    signature = types.intp(source(floats, 4), source(types.uint8, 4), source(types.uint8, 4), source(index, 2),
                           source(index, 1), *extra, source(types.float64, 1), index, index, target(floats, 4),
                           SCRATCH)  # fmt: skip
    compiled = with_scratch(kernel_entry(signature)(run))
    static = dict(call.static)
    form, window = CODES[static["format"]], min(static["window"], 1 << 60)

    def adapt(q: Any, *rest: Any) -> tuple[Any, ...]:
        *more, scale, softcap, out = rest
        return q, *more, numbers_of(q, scale, softcap), form, window, out

    return adapted(adapt, compiled)
