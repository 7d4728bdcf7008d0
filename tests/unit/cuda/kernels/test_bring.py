"""What brings new tokens into a cache, as one kernel, on the emulator: which ops join, and what they give."""

import numpy as np
import pytest
import trueno
from seeds import fresh_seed
from trueno.ops.shared import SharedOp
from trueno_cuda.kernels.caches import bring

F = np.float32
WIDTH = {"f32": 4, "f16": 2, "bf16": 2}


@pytest.fixture
def rng():
    print(f"seed {(seed := fresh_seed())}")
    return np.random.default_rng(seed)


class Tokens:
    """Some tokens, and a batch on the emulator that brings them into caches of `pages` × 4 slots."""

    def __init__(self, rng, n=1, heads=4, kept=2, d=16, e=None, form="f16", slots=None, pages=5, **rope):
        e = e or d
        self.form, self.rope, self.slots = form, {"theta": 1e6} | rope, slots
        self.q, self.k = (rng.standard_normal((n, h, d)).astype(F) for h in (heads, kept))
        self.v = rng.standard_normal((n, kept, e)).astype(F)
        self.positions = rng.integers(0, 4000, n)
        self.slots = np.array(rng.permutation(4 * pages)[:n] if slots is None else slots)
        nbytes = {"q8_0": lambda m: m // 32 * 34}.get(form, lambda m: m * WIDTH[form])
        self.caches = [rng.integers(0, 60, (pages, 4, kept, nbytes(m)), np.uint8) for m in (d, e)]

    def record(self, b, order="qkKV"):
        q, k, v = (b.upload(x) for x in (self.q, self.k, self.v))
        positions, slots = b.upload(self.positions), b.upload(self.slots)
        keys, values = map(b.upload, self.caches)
        turned = b.rope(q, positions, **self.rope), b.rope(k, positions, **self.rope)
        if order == "qkVK":
            values = b.kv_cache_scatter(values, v, slots, format=self.form)
        keys = b.kv_cache_scatter(keys, turned[1], slots, format=self.form)
        if order == "qkKV":
            values = b.kv_cache_scatter(values, v, slots, format=self.form)
        b.keep(turned[0])
        return [turned[0], keys, values], turned[1]

    def alone(self):
        """What each op gives by itself."""
        with trueno.use("cuda_emulated"):
            q, k = (trueno.rope(x, self.positions, **self.rope) for x in (self.q, self.k))
            keys, values = (
                trueno.kv_cache_scatter(cache, x, self.slots, format=self.form)
                for cache, x in zip(self.caches, (k, self.v), strict=True)
            )
        return [trueno.numpy(x) for x in (q, keys, values)]


def assert_same(got, want):
    for name, one, other in zip(("queries", "keys", "values"), got, want, strict=True):
        assert np.array_equal(one, other), name


@pytest.mark.parametrize("form", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("style", ["neox", "interleaved"])
@pytest.mark.parametrize("n", [1, 3])
def test_one_kernel_gives_the_bytes_of_four(rng, form, style, n):
    tokens = Tokens(rng, n, form=form, style=style, e=24)
    with trueno.Batch("cuda_emulated") as b:
        results, _ = tokens.record(b, "qkVK" if n > 1 else "qkKV")
        (step,) = b._schedule().steps
        assert isinstance(step.op, SharedOp) and step.op.updates
        assert "rope, rope, kv_cache_scatter, kv_cache_scatter of the same tokens" in str(b)
        assert "separately" not in str(b) and "no kernel" not in str(b)
        for _ in range(3):  # as calls, and as a recording
            b.execute()
        assert b.counts.kernels == 3
        assert_same([b.read(h) for h in results], tokens.alone())


@pytest.mark.parametrize("v", [1, 2, 4])
def test_wide_accesses(rng, monkeypatch, v):
    monkeypatch.setattr(bring, "SMALL", 0)
    tokens = Tokens(rng, 5, d=2 * v * 3, e=v * 5, scaling="yarn", factor=4.0, context=4096.0)
    with trueno.Batch("cuda_emulated") as b:
        results, _ = tokens.record(b)
        b.execute()
        assert_same([b.read(h) for h in results], tokens.alone())


def test_slots_that_are_left_out_or_meet(rng):
    slots = [3, -1, 7, 3, 19, 7, 3]
    tokens = Tokens(rng, len(slots), slots=slots)
    with trueno.Batch("cuda_emulated") as b:
        results, _ = tokens.record(b)
        b.execute()
        got = [b.read(h) for h in results]
    assert_same(got, tokens.alone())
    touched = {slot for slot in slots if slot >= 0}
    for now, before in zip(got[1:], tokens.caches, strict=True):
        for slot in set(range(20)) - touched:
            assert np.array_equal(now[slot // 4, slot % 4], before[slot // 4, slot % 4])


def test_a_slot_beyond_the_cache_writes_nothing(rng):
    """The host cannot check slots that lie on a device, as those of a recorded step."""
    tokens = Tokens(rng, 3)
    with trueno.Batch("cuda_emulated") as b:
        results, _ = tokens.record(b)
        b.execute()
        (slots,) = (v for v, _ in b._schedule().steps[0].reads if b._graph.values[v].shape == (3,) and v != 3)
        b._uploads.arrays[slots].elements[...] = [20, 1 << 40, -5]
        for cache, h in zip(tokens.caches, results[1:], strict=True):
            b._replay.array(h.value if hasattr(h, "value") else h._value).elements.reshape(cache.shape)[...] = cache
        b.execute()
        for cache, h in zip(tokens.caches, results[1:], strict=True):
            assert np.array_equal(b.read(h), cache)


@pytest.mark.parametrize(
    "unusual",
    [
        {"form": "q8_0", "d": 32, "e": 64},
        {"dims": 8},
        {"n": bring.MOST_TOKENS + 1, "heads": 2, "kept": 1, "d": 4, "pages": 20},
    ],
)
def test_what_the_kernel_does_not_do_runs_as_four(rng, unusual, monkeypatch):
    monkeypatch.setattr(bring, "launch", None)
    tokens = Tokens(rng, **unusual)
    with trueno.Batch("cuda_emulated") as b:
        results, _ = tokens.record(b)
        assert len(b._schedule().steps) == 1
        for _ in range(3):
            b.execute()
        assert_same([b.read(h) for h in results], tokens.alone())


def test_guards_look_at_what_the_ops_give(rng):
    stop = trueno.Action.STOP
    guard = trueno.JidokaGuard().on(trueno.Condition.OVERFLOW, stop).on(trueno.Condition.divergence(1e-2), stop)
    tokens = Tokens(rng, 2)
    with trueno.Batch("cuda_emulated") as b, guard:
        results, _ = tokens.record(b)
        b.execute()
        assert_same([b.read(h) for h in results], tokens.alone())
    for x in (tokens.k, tokens.v):  # beyond float16
        before, x[1, 1, 3] = x[1, 1, 3], 1e6
        with trueno.Batch("cuda_emulated") as b, guard:
            tokens.record(b)
            with pytest.raises(trueno.GuardError):
                b.execute()
        x[1, 1, 3] = before


def test_what_does_not_belong_together_stays_apart(rng):
    def kernels(change):
        with trueno.Batch("cuda_emulated") as b:
            results, turned = tokens.record(b) if change != "other positions" else other(b)
            if change == "turned keys are read":
                b.keep(turned)
            steps = b._schedule().steps
            b.execute()
            if change != "other positions":
                assert_same([b.read(h) for h in results], tokens.alone())
            return len(steps)

    def other(b):
        q, k, v = (b.upload(x) for x in (tokens.q, tokens.k, tokens.v))
        keys, values = map(b.upload, tokens.caches)
        slots = b.upload(tokens.slots)
        turned = [b.rope(x, b.upload(tokens.positions), **tokens.rope) for x in (q, k)]
        keys = b.kv_cache_scatter(keys, turned[1], slots, format=tokens.form)
        values = b.kv_cache_scatter(values, v, slots, format=tokens.form)
        b.keep(turned[0])
        return [turned[0], keys, values], turned[1]

    tokens = Tokens(rng, 2)
    assert kernels("") == 1
    assert kernels("turned keys are read") == 4
    assert kernels("other positions") == 4


@pytest.mark.parametrize("backend", ["scalar", "simd"])
def test_the_host_runs_them_one_by_one(rng, backend):
    tokens = Tokens(rng, 2)
    with trueno.Batch(backend) as b:
        tokens.record(b)
        assert len(b._schedule().steps) == 4 and "of the same tokens" not in str(b)
