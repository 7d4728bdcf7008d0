"""sample: filters keep the beginning of the tokens in descending order, so a few of the largest are mostly enough.

A row's largest come from `topk`: as many as top_k keeps, or `AT_FIRST`.  Where the token, or the end of what top_p and
min_p keep, is not among them, `crossing` finds it without ranking the others.  Sums over a whole row are needed where
there is no top_k; they take one pass with an exponential each, in float64, a token at a time.

Floor: the bytes of the logits read.  Measured on a Zen 5, 151 936 float32 logits: 20 us with top_k = 40 and all other
filters (NumPy 154, PyTorch 161), 2.3 ms with top_p = 0.9 alone, which needs exponentials of all (NumPy and PyTorch,
which sort, 12).
"""

from typing import Any

import numpy as np
from numba import types
from trueno.backend import Call, Kernel, Rates

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels.crossing import SUMS, crossing32, crossing64, weight
from trueno_simd.kernels.operands import F32, F64, SCRATCH, adapted, number, overlaps, source, target
from trueno_simd.kernels.quant.matvec import with_kept_scratch
from trueno_simd.kernels.table import KERNELS
from trueno_simd.kernels.tile import address, get_word
from trueno_simd.kernels.topk import best32, best64, key_of
from trueno_simd.llvm.jit import inner, outer

AT_FIRST = 64  # tokens that are ranked at first where top_k does not say
RANKED = 1024  # the most tokens that are ranked
ROOM = 64 + 8 * max(2 * RANKED, SUMS)  # bytes of scratch
LOWEST = np.iinfo(np.int64).min
key32, key64 = key_of(types.float32), key_of(types.float64)


@outer
def weights(row, most, cold):
    """The sum over a row."""
    total = 0.0
    for i in range(row.size):
        total += weight(row[i], most, cold)
    return total


@outer
def ranking(like, best, row, r, cold, top_k, top_p, min_p, values, ids):
    """The token, or −1 if it is not among the first that are ranked, or the filters' end is not."""
    n = row.size
    limit = min(n, top_k) if top_k else n
    ranked = limit if top_k else min(n, AT_FIRST)
    best(address(row), n, ranked, values, ids)
    most = row[get_word(ids, 0)]
    if most != most or cold == 0.0:
        return get_word(ids, 0)
    kept, ended = ranked, ranked == limit
    if top_p < 1.0:
        if ended:
            whole = 0.0
            for i in range(ranked):
                whole += weight(row[get_word(ids, i)], most, 1.0)
        else:
            whole = weights(row, most, 1.0)
        total = 0.0
        for i in range(ranked):
            total += weight(row[get_word(ids, i)], most, 1.0)
            if total >= top_p * whole:
                kept, ended = i + 1, True
                break
    if min_p > 0.0:
        i = 1
        while i < kept and weight(row[get_word(ids, i)], most, 1.0) >= min_p:
            i += 1
        ended = ended or i < kept
        kept = i
    if not ended and (top_p < 1.0 or min_p > 0.0):
        return -1
    if ended:
        whole = 0.0
        for i in range(kept):
            whole += weight(row[get_word(ids, i)], most, cold)
    else:
        whole = weights(row, most, cold)
    total = 0.0
    for i in range(kept):
        total += weight(row[get_word(ids, i)], most, cold)
        if total > r * whole:
            return get_word(ids, i)
    return get_word(ids, kept - 1) if ended else -1


@outer
def drawn(like, best, crossing, key, row, r, cold, top_k, top_p, min_p, values, ids):
    """The token."""
    n = row.size
    few = top_k if top_k <= RANKED else 0
    if few > 0 or top_k == 0 or top_k >= n:
        token = ranking(like, best, row, r, cold, few, top_p, min_p, values, ids)
        if token >= 0:
            return token
    best(address(row), n, 1, values, ids)
    at = get_word(ids, 0)
    most = row[at]
    if most != most or cold == 0.0:
        return at
    last, last_at = LOWEST, n
    if 0 < top_k < n:
        last_at = crossing(row, most, cold, 0.0, False, top_k, last, last_at, 0.0, values)
        last = np.int64(key(row[last_at]))
    if top_p < 1.0:
        last_at = crossing(row, most, 1.0, top_p, False, 0, last, last_at, 0.0, values)
        last = np.int64(key(row[last_at]))
    return crossing(row, most, cold, r, True, 0, last, last_at, min_p, values)


@inner
def rows(like, best, crossing, key, logits, numbers, temperature, top_k, top_p, min_p, tokens, scratch):
    """0, or −1 for operands that do not fit, or the bytes of scratch that it needs."""
    if numbers.size != logits.shape[0] or tokens.size != numbers.size or logits.shape[1] == 0:
        return -1
    if overlaps(tokens, logits) or overlaps(tokens, numbers):
        return -1
    if scratch.size < ROOM:
        return ROOM
    cold = 1.0 / temperature if temperature > 0.0 else 0.0
    values = (address(scratch) + 63) // 64 * 64
    ids = values + 8 * RANKED
    for i in range(numbers.size):
        r = np.float64(numbers[i])
        r = min(max(r, 0.0), 1.0 - 2.0**-53) if r == r else 0.0
        tokens[i] = drawn(like, best, crossing, key, logits[i], r, cold, top_k, top_p, min_p, values, ids)
    return 0


def _sample32(logits, numbers, temperature, top_p, min_p, top_k, tokens, scratch):
    return rows(F32, best32, crossing32, key32, logits, numbers, temperature, top_k, top_p, min_p, tokens, scratch)


def _sample64(logits, numbers, temperature, top_p, min_p, top_k, tokens, scratch):
    return rows(F64, best64, crossing64, key64, logits, numbers, temperature, top_k, top_p, min_p, tokens, scratch)


@KERNELS.add("sample", rates=Rates(2e-6, 5e9, 4e10))
def sample(device: None, call: Call) -> Kernel:
    """logits[...,n] r[...] -> token[...], the leading axes equal."""
    kind, top_k = number(call.dtype), min(dict(call.static)["top_k"], 1 << 60)
    signature = types.intp(source(kind, 2), source(kind, 1), types.float64, types.float64, types.float64, types.int64,
                           target(types.int64, 1), SCRATCH)  # fmt: skip
    compiled = with_kept_scratch(kernel_entry(signature)(_sample32 if kind == types.float32 else _sample64))

    def flat(logits: Any, r: Any, temperature: float, top_p: float, min_p: float, token: Any) -> tuple[Any, ...] | None:
        if not logits.shape[:-1] == r.shape == token.shape or not logits.ndim:
            return None
        if not all(x.flags.c_contiguous for x in (logits, r, token)):
            return None
        rows, r, token = logits.reshape(r.size, logits.shape[-1]), r.reshape(-1), token.reshape(-1)
        return rows, r, temperature, top_p, min_p, top_k, token

    return adapted(flat, compiled)
