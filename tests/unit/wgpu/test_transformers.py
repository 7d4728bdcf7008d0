"""rope and attention of wgpu as users reach them: arrays that stay, one recording for every token, asyncio, guards."""

import asyncio

import numpy as np
import pytest
import trueno
from seeds import fresh_seed
from trueno.errors import GuardError, ParameterError

pytest.importorskip("wgpu")
HEADS, SHARED, D, KEYS = 4, 2, 16, 40


@pytest.fixture
def rng(request):
    seed = fresh_seed()
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def tokens(rng, t, heads=HEADS):
    return rng.standard_normal((t, heads, D)).astype(np.float32)


def rotated(x, positions, theta=1e4):
    """neox, in float64: small positions alone, so that float64 angles are exact enough."""
    angles = np.asarray(positions)[..., None, None] * theta ** (-np.arange(D // 2) / (D // 2))
    a, b = x[..., : D // 2].astype("f8"), x[..., D // 2 :].astype("f8")
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)


def attended(q, k, v):
    """Causal, in float64."""
    t, s = len(q), len(k)
    k, v = (np.repeat(x.astype("f8"), HEADS // SHARED, 1) for x in (k, v))
    scores = np.einsum("ihd,jhd->hij", q.astype("f8"), k) / np.sqrt(D)
    scores = np.where(np.arange(s) <= s - t + np.arange(t)[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdims=True), v)


def test_arrays_that_stay(chosen, rng):
    x, k, v, positions = tokens(rng, 3), tokens(rng, KEYS, SHARED), tokens(rng, KEYS, SHARED), np.array([37, 38, 39])
    there = [trueno.to(a, "wgpu") for a in (x, positions, k, v)]
    with trueno.trace() as trace:
        q = trueno.rope(*there[:2], theta=1e6)
        y = trueno.attention(q, *there[2:], causal=True)
    assert "transfer" not in str(trace)
    assert type(y).__module__ == "trueno_wgpu"
    np.testing.assert_allclose(trueno.numpy(y), attended(rotated(x, positions, 1e6), k, v), rtol=0, atol=3e-6)


def test_numpy_arrays_and_what_the_core_checks(chosen, rng):
    x = tokens(rng, 6)
    with trueno.use("wgpu"):
        got = trueno.rope(x, np.arange(6, dtype=np.int32), style="neox")
        np.testing.assert_allclose(got, rotated(x, np.arange(6)), rtol=0, atol=1e-6)
        got = trueno.rope(x[:, ::2], range(6))  # strided
        np.testing.assert_allclose(got, rotated(x, np.arange(6))[:, ::2], rtol=0, atol=1e-6)
        with pytest.raises(ParameterError, match=r"rope: positions\[2\] is -1"):
            trueno.rope(x, [0, 1, -1, 2, 3, 4])
        out = np.empty_like(x)
        assert trueno.attention(x, x[:, :2], x[:, :2], causal=True, out=out) is out
        np.testing.assert_allclose(out, attended(x, x[:, :2], x[:, :2]), rtol=0, atol=3e-6)


def test_a_recording_serves_every_token(chosen, rng):
    """Positions and tokens are arrays of the device; a run allocates nothing and submits once."""
    k, v = tokens(rng, KEYS, SHARED), tokens(rng, KEYS, SHARED)
    with trueno.Batch("wgpu") as b:
        x, positions = b.upload(tokens(rng, 1)), b.upload(np.array([0]))
        keys, values = b.upload(k), b.upload(v)
        q = b.rope(x, positions)
        y = b.add(b.attention(q, keys, values, causal=True), 1.0)
        b.execute()
        assert "general path" not in str(b)
        before = b.counts
        for position in (5, 17, 39):
            token = tokens(rng, 1)
            b.update(x, token)
            b.update(positions, np.array([position]))
            b.execute()
            want = attended(rotated(token, [position]), k, v) + 1
            np.testing.assert_allclose(b.read(y), want, rtol=0, atol=3e-6)
        assert b.counts.submits == before.submits + 3 and b.counts.allocations == before.allocations


def test_a_batch_of_many_queries(chosen, rng):
    x, k, v = tokens(rng, 25), tokens(rng, KEYS, SHARED), tokens(rng, KEYS, SHARED)
    positions = np.arange(15, 40)
    with trueno.Batch("wgpu") as b:
        q, keys = b.rope(b.upload(x), b.upload(positions)), b.rope(b.upload(k), b.upload(np.arange(KEYS)))
        y = b.attention(q, keys, b.upload(v), causal=True)
        b.execute()
        want = attended(rotated(x, positions), rotated(k, np.arange(KEYS)), v)
        np.testing.assert_allclose(b.read(y), want, rtol=0, atol=3e-6)


def test_asyncio(chosen, rng):
    x, k, v = tokens(rng, 4), tokens(rng, KEYS, SHARED), tokens(rng, KEYS, SHARED)

    async def run(first):
        there = [await trueno.aio.to(a, "wgpu") for a in (x, np.arange(first, first + 4), k, v)]
        q = await trueno.aio.rope(*there[:2])
        return await trueno.aio.numpy(await trueno.aio.attention(q, *there[2:], causal=True))

    async def several():
        return await asyncio.gather(*[run(first) for first in range(8)])

    for first, got in enumerate(asyncio.run(several())):
        want = attended(rotated(x, np.arange(first, first + 4)), k, v)
        np.testing.assert_allclose(got, want, rtol=0, atol=3e-6)


def test_a_guard_raises(chosen, rng):
    """Products beyond the largest float, and a pair that turns beyond it."""
    q, k, v = tokens(rng, 4), tokens(rng, KEYS, SHARED), tokens(rng, KEYS, SHARED)
    guard = trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP)
    guard = guard.on(trueno.Condition.OVERFLOW, trueno.Action.STOP)
    there = [trueno.to(a, "wgpu") for a in (q, k, v, 1e30 * q, 1e30 * k)]
    positions = trueno.to(np.arange(4), "wgpu")
    with guard:
        trueno.attention(*there[:3])
        trueno.rope(there[0], positions)
        with pytest.raises(GuardError, match="attention"):
            trueno.attention(*there[3:], there[2])
        with pytest.raises(GuardError, match="rope"):
            trueno.rope(trueno.to(np.full_like(q, 3e38), "wgpu"), positions)
