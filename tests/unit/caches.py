"""Caches of keys and values for tests of every backend: operands, the bytes that they hold, and PyTorch in float64."""

import gguf
import ml_dtypes
import numpy as np
from trueno.formats import FORMATS, decode
from trueno.formats.encoders import encode

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
FORMS = (*DTYPES, "q8_0")


def stored(x, form):
    """An array of the cache's dtype, or blocks; and the numbers that it holds."""
    if form == "q8_0":
        rows = encode(FORMATS[form], x)
        return rows, decode(FORMATS[form], rows)
    kept = x.astype(DTYPES[form])
    return kept, kept.astype(np.float32)


def held(x, form):
    """The bytes of x in a format, uint8 [..., bytes of a row], by the gguf package and ml_dtypes."""
    if form == "q8_0":
        return gguf.quantize(x, gguf.GGMLQuantizationType.Q8_0)
    with np.errstate(over="ignore"):
        return x.astype(DTYPES[form]).view(np.uint8)


def by_torch(q, keys, values, window=0, softcap=0.0, scale=0.0):
    """Causal attention of the last tokens of one sequence in float64; a query that sees nothing gives 0."""
    import torch  # tests of scattered bytes need none

    q, k, v = (torch.from_numpy(np.ascontiguousarray(x)).double().transpose(-2, -3) for x in (q, keys, values))
    t, s, group = q.shape[-2], k.shape[-2], q.shape[-3] // k.shape[-3]
    distance = s - t + torch.arange(t)[:, None] - torch.arange(s)
    seen = distance >= 0
    if window:
        seen &= distance < window
    scale = scale or q.shape[-1] ** -0.5
    if not softcap and s >= t and s:
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(q, k, v, attn_mask=seen, scale=scale, enable_gqa=True).transpose(-2, -3).numpy()
    k, v = k.repeat_interleave(group, -3), v.repeat_interleave(group, -3)
    scores = q @ k.transpose(-1, -2) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    weights = torch.softmax(scores.masked_fill(~seen, -torch.inf), -1).nan_to_num(0.0)
    return (weights @ v).transpose(-2, -3).numpy()


def problem(rng, shape, form):
    """Operands of a call, and the numbers that the caches hold."""
    b, t, hq, hk, d, e, pages, page, blocks = shape
    q = rng.normal(size=(b, t, hq, d)).astype(np.float32)
    k, keys = stored(rng.normal(size=(pages, page, hk, d)).astype(np.float32), form)
    v, values = stored(rng.normal(size=(pages, page, hk, e)).astype(np.float32), form)
    table = np.array([rng.permutation(pages)[:blocks] for _ in range(b)])
    lengths = rng.integers(t, blocks * page + 1, b) if blocks * page > t else np.full(b, blocks * page)
    for i in range(b):
        table[i, -(-lengths[i] // page) :] = -7  # never read
    return (q, k, v, table, lengths), keys, values


def assert_right(got, operands, keys, values, page, atol, **options):
    """Every sequence against PyTorch.  keys, values: the numbers that the caches in `operands` hold."""
    q, _, _, table, lengths = operands
    for i, length in enumerate(lengths):
        at = table[i, np.arange(length) // page], np.arange(length) % page
        want = by_torch(q[i], keys[at], values[at], **options)
        np.testing.assert_allclose(got[i], want, rtol=0, atol=atol, err_msg=f"sequence {i}, {options}")


def sequences_outside(rng, form):
    """Six sequences of which five name what is outside, keys and values: see `assert_outside`."""
    operands, keys, values = problem(rng, (6, 2, 4, 2, 32, 32, 5, 8, 3), form)
    _, _, _, table, lengths = operands
    table[:], lengths[:] = [[0, 1, 2]], 20
    lengths[1], lengths[2], lengths[3] = 25, -1, 2**32 + 1
    table[4, 2] = 5
    lengths[4] = 17  # of its two queries the first does not see the page
    table[5, 1] = -(2**32) + 1
    return operands, keys, values


def assert_outside(got, operands, keys, values, atol):
    """What is outside gives NaN, and its neighbours are right."""
    q = operands[0]
    assert np.isnan(got[[1, 2, 3, 5]]).all() and np.isnan(got[4, 1]).all()
    at = np.arange(20) // 8, np.arange(20) % 8
    np.testing.assert_allclose(got[0], by_torch(q[0], keys[at], values[at]), rtol=0, atol=atol)
    np.testing.assert_allclose(got[4, :1], by_torch(q[4, :1], keys[at][:16], values[at][:16]), rtol=0, atol=atol)


def written(cache, x, slots, form):
    """The bytes of a cache after a scatter; slots outside are left out, and of rows of one slot the last counts."""
    want, rows = cache.copy(), held(x, form)
    flat = want.reshape(-1, *cache.shape[2:])
    for row, slot in zip(rows, slots, strict=True):
        if 0 <= slot < len(flat):
            flat[slot] = row
    return want


def every_size_of_q8_0(rng):
    """Rows x [n, 1, 32] and their blocks [n, 1, 34].

    Blocks of all magnitudes and of subnormals, halves between codes, zeros, and what is not finite.
    """
    sizes = np.concatenate([10.0 ** np.arange(-45, 39), 2.0 ** np.arange(-140, -100)])
    x = (rng.uniform(-1, 1, (len(sizes), 1, 32)) * sizes[:, None, None]).astype(np.float32)
    ties = (np.arange(-127, 129).reshape(8, 1, 32) - 0.5).astype(np.float32) * np.float32(2.0**-7)
    ties[:, 0, 0] = 127 * 2.0**-7
    edges = np.zeros((5, 1, 32), np.float32)
    edges[1, 0, 3], edges[2, 0, 31], edges[3, 0, 0], edges[4, 0, :2] = np.nan, np.inf, -np.inf, (1e-45, 3.4e38)
    whole = np.concatenate([x, ties, edges])
    finite = np.isfinite(whole).all((1, 2))
    want = encode(FORMATS["q8_0"], np.where(finite[:, None, None], whole, 0))
    want[~finite, :, :2] = np.array([np.nan], np.float16).view(np.uint8)
    return whole, want


def halfway(step):
    """float32 near what 16 bits round to even: every `step`-th upper half, with low halves about the ties."""
    high = np.arange(0, 2**16, step, dtype=np.uint32) << 16
    lows = (0, 1, 0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0xF000)
    x = np.concatenate([high + low for low in lows]).view(np.float32)
    return np.where(np.isnan(x), np.float32(np.nan), x)
