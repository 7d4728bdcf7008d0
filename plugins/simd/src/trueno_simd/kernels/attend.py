"""One block of attention: some queries of one head of keys, and what they see of one sequence.

Keys are panels and values are rows as `attention` packs them; where the block alone reads them, it packs the keys at
hand itself.
"""

from typing import Any

from numba import types

from trueno_simd.kernels import tile
from trueno_simd.kernels import transpose as transposing
from trueno_simd.kernels.flash import rows
from trueno_simd.kernels.gather import scaled_row
from trueno_simd.kernels.operands import F32, F64
from trueno_simd.kernels.tile import VECTOR_BYTES, WIDTH, size_of, strip
from trueno_simd.llvm import vectors
from trueno_simd.llvm.jit import outer

ROWS = 48  # queries of a block: four of the tallest tiles
KEYS = 128  # keys of a block
LINE = 64

read_double = vectors.number_reader(types.float64)


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


def _block(like: Any, functions: Any) -> Any:
    """A function of one block of `ROWS` rows of queries, from row `top` on; all places are addresses.

    q, k, v, out: of the sequence.  keys, values: of the head, packed; 0 where the block packs them.  mask: of the
    sequence's first head and query, or 0; sinks: of the first head, or 0.
    """
    begin, sink, bias, join, finish = (functions.begin, functions.sink, functions.bias, functions.join,
                                       functions.finish)  # fmt: skip

    @outer
    def block(q, k, v, keys_of, values_of, out, scratch, head, top, t, s, hq, hk, d, e, wide, causal, window,
              mask, mask_head, mask_row, sinks, numbers):  # fmt: skip
        size = size_of(like)
        step, group = WIDTH // size, hq // hk
        scores = scratch
        sums = scores + ROWS * KEYS * size
        queries = sums + ROWS * wide * size
        states = queries + ROWS * d * size
        keys_here = states + 2 * ROWS * size
        values_here = keys_here + KEYS * d * size
        cap = read_double(numbers + 16)
        height = min(ROWS, t * group - top)
        for r in range(height):
            of = head * group + (top + r) % group
            row = (top + r) // group * hq + of
            scaled_row(like, numbers, q + row * d * size, queries + r * d * size, d)
            if sinks:
                sink(states + 2 * r * size, sinks + of * size)
            else:
                begin(states + 2 * r * size)
        tile.clear(sums, height * wide * size)
        nearest, farthest = s - t + top // group, s - t + (top + height - 1) // group
        low = max(0, nearest - window + 1) // step * step if window else 0
        high = farthest + 1 if causal else farthest + window if window else s
        high = min(s, high)
        for start in range(low, high, KEYS):
            count = min(KEYS, high - start)
            keys, values = keys_of + start // step * d * WIDTH, values_of + start * wide * size
            if keys_of == 0:
                keys, values = keys_here, values_here
                for j in range(0, count, step):
                    pack_panel(like, k + head * d * size, v + head * e * size, keys + j * d * size,
                               values + j * wide * size, start + j, s, hk, d, e, wide)  # fmt: skip
            for j in range(0, count, step):
                strip(like, queries, d * size, keys + j * d * size, WIDTH, scores + j * size, KEYS * size,
                      height, d, step, 0)  # fmt: skip
            for r in range(height):
                i = (top + r) // group
                position = s - t + i
                first = max(0, position - window + 1 - start) if window else 0
                end = position + 1 if causal else position + window if window else s
                rest = cap
                if mask:
                    of = head * group + (top + r) % group
                    bias(scores + r * KEYS * size, count, mask + (of * mask_head + i * mask_row + start) * size, cap)
                    rest = 0.0
                join(scores + r * KEYS * size, first, min(end - start, count), count, states + 2 * r * size,
                     sums + r * wide * size, wide, rest)  # fmt: skip
            for c in range(0, wide, step):
                strip(like, scores, KEYS * size, values + c * size, wide * size,
                      sums + c * size, wide * size, height, count, step, 1)  # fmt: skip
        for r in range(height):
            row = (top + r) // group * hq + head * group + (top + r) % group
            finish(states + 2 * r * size, sums + r * wide * size, out + row * e * size, e)

    return block


block32, block64 = (_block(like, rows(kind, like)) for kind, like in ((types.float32, F32), (types.float64, F64)))
