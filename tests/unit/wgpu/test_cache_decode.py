"""attention_decode of wgpu against PyTorch in float64, and in a batch that is replayed for every token."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("wgpu")
pytest.importorskip("torch")
import trueno
from trueno.errors import KernelError, ParameterError
from trueno_wgpu.device.array import Array
from trueno_wgpu.kernels.attention.kernel import numbers
from trueno_wgpu.kernels.caches import attend
from trueno_wgpu.kernels.caches.cells import Rows
from unit.caches import FORMS, assert_outside, assert_right, by_torch, problem, sequences_outside
from unit.wgpu.products import kernel, unwritten

pytestmark = pytest.mark.usefixtures("chosen")

SHAPES = [  # b, t, hq, hk, d, e, pages, page, blocks
    (1, 1, 1, 1, 32, 32, 1, 1, 1),
    (3, 1, 14, 2, 64, 64, 3, 300, 1),
    (2, 1, 8, 8, 128, 96, 90, 16, 40),
    (2, 5, 6, 2, 32, 64, 9, 130, 4),
    (1, 3, 20, 1, 96, 32, 7, 64, 7),
]
UNEVEN = [(2, 2, 3, 1, 7, 5, 9, 3, 4), (1, 1, 2, 2, 33, 66, 3, 50, 2), (2, 1, 4, 1, 1, 1, 4, 8, 3)]
ATOL = 1e-5


def compute(gpu, operands, form, e, *, scale=0.0, window=0, softcap=0.0, guarded=False):
    q, k, v, table, lengths = operands
    there = [Array.of(gpu, np.ascontiguousarray(x)) for x in (q, k.view(np.uint8), v.view(np.uint8), table, lengths)]
    out = unwritten(gpu, (*q.shape[:3], e))
    call = kernel(gpu, "attention_decode", *operands, guarded=guarded, format=form, window=window)
    assert call(*there, scale, softcap, out) == 0
    return out.numpy()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_against_pytorch(gpu, rng, form, shape):
    capped = {"softcap": 3.0, "scale": 0.2}
    for options in ({}, {"window": 33}, capped)[: 3 if shape is SHAPES[1] else 2]:
        operands, keys, values = problem(rng, shape, form)
        assert_right(
            compute(gpu, operands, form, shape[5], **options), operands, keys, values, shape[7], ATOL, **options
        )


@pytest.mark.parametrize("form", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("shape", UNEVEN, ids=str)
def test_rows_that_no_vector_reads(gpu, rng, form, shape):
    operands, keys, values = problem(rng, shape, form)
    assert_right(compute(gpu, operands, form, shape[5]), operands, keys, values, shape[7], ATOL)


def test_long_heads(gpu, rng):
    """Fewer rows of queries fit beside one another, and values need several workgroups; longer ones are an error."""
    for d, e in ((600, 1100), (2048, 40)):
        operands, keys, values = problem(rng, (1, 2, 4, 1, d, e, 2, 5, 2), "f32")
        assert_right(compute(gpu, operands, "f32", e), operands, keys, values, 5, ATOL)
    operands, *_ = problem(rng, (1, 1, 1, 1, 4000, 8, 1, 2, 1), "f32")
    with pytest.raises(KernelError, match="attention_decode: heads of 4000 numbers do not fit"):
        compute(gpu, operands, "f32", 8)


@pytest.mark.parametrize(("form", "guarded"), [*((form, False) for form in FORMS), ("f16", True)])
def test_shares_and_bands_are_joined(gpu, rng, form, guarded):
    """As on a GPU, which has no loop budget; and where a binding holds a part of the pages."""
    shape = (2, 3, 6, 2, 64, 32, 30, 64, 24)
    operands, keys, values = problem(rng, shape, form)
    q, k, v, table, lengths = operands
    table[:] = [rng.permutation(30)[:24] for _ in range(2)]
    lengths[1] = 70  # most shares of this one are empty
    there = [Array.of(gpu, np.ascontiguousarray(x)) for x in (q, k.view(np.uint8), v.view(np.uint8), table, lengths)]
    for limits in (replace(gpu.limits, trips=0), replace(gpu.limits, trips=0, binding=512 << 10)):
        for window in (0, 200):
            rows = Rows(form, 64), Rows(form, 32)
            planned = attend.plan(q.shape, 30, 64, 2, *rows, 24, window, False, guarded, limits)
            assert window or planned.parts > 2
            out = unwritten(gpu, (*q.shape[:3], 32))
            assert attend.run(gpu, planned, there, numbers(0.0, 0.0, 64), out, guarded) == 0
            assert_right(out.numpy(), operands, keys, values, 64, ATOL, window=window)
    assert (len(planned.passes) > 1) == (form == "f32")


def with_sinks(q, keys, values, sinks, window):
    """One sequence in float64: the softmax has the term e^sink more."""
    t, hq, d = q.shape
    group, s = hq // keys.shape[1], len(keys)
    y = np.zeros((t, hq, values.shape[-1]))
    for i, h in np.ndindex(t, hq):
        p = s - t + i
        seen = slice(max(0, p - window + 1) if window else 0, max(p + 1, 0))
        scores = keys[seen, h // group].astype("f8") @ q[i, h].astype("f8") * d**-0.5
        weights = np.exp(np.append(scores, sinks[h]) - max(scores.max(initial=-np.inf), sinks[h]))
        y[i, h] = weights[:-1] @ values[seen, h // group].astype("f8") / weights.sum()
    return y


@pytest.mark.parametrize("guarded", [False, True])
def test_sinks(gpu, rng, guarded):
    """Of one part, and of several; a sequence without a token gives 0, and a sink of -Inf is not one."""
    shape = (3, 2, 6, 2, 64, 32, 30, 64, 20)
    operands, keys, values = problem(rng, shape, "f16")
    q, k, v, table, lengths = operands
    table[:] = [rng.permutation(30)[:20] for _ in range(3)]
    lengths[:] = 1200, 0, 70
    sinks = np.array([0.5, 3.0, -2.0, 8.0, -90.0, 90.0], np.float32)
    there = [Array.of(gpu, np.ascontiguousarray(x))
             for x in (q, k.view(np.uint8), v.view(np.uint8), table, lengths, sinks)]  # fmt: skip
    rows = Rows("f16", 64), Rows("f16", 32)
    gpu.take_status()
    for limits in (gpu.limits, replace(gpu.limits, trips=0)):
        for window in (0, 33):
            planned = attend.plan(q.shape, 30, 64, 2, *rows, 20, window, False, guarded, limits, True)
            out = unwritten(gpu, (3, 2, 6, 32))
            assert attend.run(gpu, planned, there, numbers(0.0, 0.0, 64), out, guarded) == 0
            got = out.numpy()
            for i, length in enumerate(lengths):
                at = table[i, np.arange(length) // 64], np.arange(length) % 64
                want = with_sinks(q[i], keys[at], values[at], sinks, window)
                np.testing.assert_allclose(got[i], want, rtol=0, atol=1e-5)
    assert gpu.take_status() == 0
    there[-1] = Array.of(gpu, np.full(6, np.nan, np.float32))
    planned = attend.plan(q.shape, 30, 64, 2, *rows, 20, 0, False, False, gpu.limits, True)
    assert attend.run(gpu, planned, there, numbers(0.0, 0.0, 64), out, False) == 0
    got = out.numpy()
    assert (got[1] == 0).all() and np.isnan(got[[0, 2]]).all()
    call = kernel(gpu, "attention_decode_sinks", *operands, sinks, format="f16", window=0)
    none = Array.of(gpu, np.full(6, -np.inf, np.float32))
    assert call(*there[:5], none, 0.0, 0.0, out) == 0
    np.testing.assert_allclose(out.numpy(), compute(gpu, operands, "f16", 32), rtol=0, atol=1e-6)
    assert call(*there[:5], Array.of(gpu, sinks[:5]), 0.0, 0.0, out) == -1


def test_a_loop_budget_ends_a_share(gpu, rng):
    limits, rows = replace(gpu.limits, trips=400), Rows("f16", 32)
    planned = attend.plan((1, 1, 2, 32), 4, 700, 1, rows, rows, 3, 0, False, False, limits)
    assert planned.parts > 1
    operands, keys, values = problem(rng, (1, 1, 2, 1, 32, 32, 4, 700, 3), "f16")
    there = [Array.of(gpu, x.view(np.uint8) if x.dtype == np.float16 else x) for x in operands]
    out = unwritten(gpu, (1, 1, 2, 32))
    assert attend.run(gpu, planned, there, numbers(0.0, 0.0, 32), out, False) == 0
    assert_right(out.numpy(), operands, keys, values, 700, ATOL)


def test_a_query_before_the_first_token_gives_zero(gpu, rng):
    (q, k, v, *_), keys, values = problem(rng, (2, 4, 2, 1, 32, 32, 2, 8, 1), "f32")
    got = compute(gpu, (q, k, v, np.array([[1], [0]]), np.array([0, 2])), "f32", 32)
    assert not got[0].any() and not got[1, :2].any()
    np.testing.assert_allclose(got[1, 2:], by_torch(q[1, 2:], keys[0, :2], values[0, :2]), atol=1e-6)


@pytest.mark.parametrize("guarded", [False, True])
def test_what_is_outside_gives_nan(gpu, rng, guarded):
    """The host refuses it where it can; on the device nothing outside is read, and neighbours stay right."""
    operands, keys, values = sequences_outside(rng, "f16")
    gpu.take_status()
    got = compute(gpu, operands, "f16", 32, guarded=guarded)
    assert gpu.take_status() == int(guarded)
    assert_outside(got, operands, keys, values, ATOL)


def test_refusals(gpu, rng):
    (q, k, v, table, lengths), *_ = problem(rng, (2, 1, 4, 2, 32, 32, 3, 8, 2), "f16")
    there = [Array.of(gpu, x) for x in (q, k.view(np.uint8), v.view(np.uint8), table, lengths)]
    call = kernel(gpu, "attention_decode", q, k, v, table, lengths, format="f16", window=0)
    assert call(*there, 0.0, 0.0, unwritten(gpu, (2, 1, 4, 16))) == -1
    assert call(*there, 0.0, 0.0, there[0]) == -1
    for wrong in (q[:, :, :3], q[:1], q[..., :16]):
        x = Array.of(gpu, np.ascontiguousarray(wrong))
        assert call(x, *there[1:], 0.0, 0.0, unwritten(gpu, (*wrong.shape[:3], 32))) == -1


def test_a_batch_updates_the_cache_and_is_replayed(gpu, rng):
    """One recording serves every token: only the tokens, slots and lengths are uploaded again."""
    pages = np.zeros((2, 8, 2, 32), np.float16)
    tokens = rng.normal(size=(12, 1, 2, 32)).astype(np.float32)
    with trueno.Batch("wgpu") as b:
        keys, values = b.upload(trueno.Pages(pages)), b.upload(trueno.Pages(pages))
        x, q = b.upload(tokens[0]), b.upload(rng.normal(size=(1, 1, 4, 32)).astype(np.float32))
        slot, length, table = b.upload(np.array([8])), b.upload(np.array([1])), b.upload(np.array([[1, 0]]))
        before = b.attention_decode(q, keys, values, table, length)
        keys_after = b.kv_cache_scatter(keys, b.mul(x, 2.0), slot)
        after = b.attention_decode(q, keys_after, b.kv_cache_scatter(values, x, slot), table, length)
        assert "general path" not in str(b)
        for n, token in enumerate(tokens):
            b.update(x, token)
            b.update(slot, np.array([8 + n if n < 8 else n - 8]))
            b.update(length, np.array([n + 1]))
            b.execute()
            seen = tokens[: n + 1, 0]
            held = [(f * seen).astype(np.float16).astype(np.float32) for f in (2, 1)]
            np.testing.assert_allclose(b.read(after)[0], by_torch(b.read(q)[0], *held), rtol=0, atol=1e-5)
            held[0][-1] = held[1][-1] = 0  # not there yet
            np.testing.assert_allclose(b.read(before)[0], by_torch(b.read(q)[0], *held), rtol=0, atol=1e-5)
        got = b.read(keys_after).view(np.float16)
        np.testing.assert_array_equal(got[1], (2 * tokens[:8, 0]).astype(np.float16))
        np.testing.assert_array_equal(got[0, :4], (2 * tokens[8:, 0]).astype(np.float16))
        assert not got[0, 4:].any() and not pages.any(), "the user's own array is on the host"
        b.update(slot, np.array([99]))  # on the device it is not checked: it is left out
        b.execute()
        np.testing.assert_array_equal(b.read(keys_after).view(np.float16), got)


def test_a_guard_lets_a_batch_update_the_cache(gpu):
    pages, x = np.zeros((2, 8, 2, 32), np.float16), np.ones((1, 2, 32), np.float32)
    with trueno.Batch("wgpu") as b, trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP):
        after = b.kv_cache_scatter(b.upload(trueno.Pages(pages)), b.upload(x), b.upload(np.array([3])))
        for _ in range(3):
            b.execute()
        got = b.read(after).view(np.float16)
    assert (got[0, 3] == 1).all()
    assert np.count_nonzero(got) == 64


def test_host_arrays_are_checked_on_the_host(gpu, rng):
    (q, k, v, table, lengths), keys, values = problem(rng, (2, 1, 4, 2, 32, 32, 3, 8, 2), "f16")
    lengths[0], table[0] = 16, [2, 0]
    with trueno.use("wgpu"):
        got = trueno.attention_decode(q, k, v, table, lengths)
        assert_right(got, (q, k, v, table, lengths), keys, values, 8, ATOL)
        with pytest.raises(ParameterError, match=r"lengths\[0\] is 17"):
            trueno.attention_decode(q, k, v, table, [17, 8])
