"""attention of wgpu against PyTorch's scaled_dot_product_attention in float64, in every form and cut."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("wgpu")
pytest.importorskip("torch")
from trueno.errors import KernelError
from trueno_wgpu.device.array import Array
from trueno_wgpu.device.shader import shared_bytes
from trueno_wgpu.kernels.attention import few, plan, tile
from trueno_wgpu.kernels.attention.kernel import numbers, run
from trueno_wgpu.kernels.attention.plan import Sizes, steps
from trueno_wgpu.kernels.attention.text import Form
from trueno_wgpu.kernels.memory import clashes
from trueno_wgpu.kernels.stacked import stack
from trueno_wgpu.kernels.store import PARTIAL
from unit.attention import by_torch
from unit.wgpu.products import floats, kernel, unwritten

ALLOWED = 6e-6
SHAPES = [  # t, s, hq, hk, d, e
    (1, 1, 1, 1, 1, 1),
    (1, 700, 14, 2, 64, 64),
    (1, 130, 1, 1, 256, 300),
    (2, 300, 3, 1, 80, 96),
    (8, 90, 1, 1, 33, 7),
    (3, 65, 4, 1, 96, 64),
    (9, 64, 2, 1, 64, 130),
    (70, 70, 3, 1, 128, 128),
    (40, 130, 2, 2, 5, 300),
    (130, 20, 1, 1, 17, 256),
]
WAYS = [
    {"causal": True},
    {"window": 20},
    {"causal": True, "window": 33, "softcap": 3.0},
    {"scale": 0.3, "softcap": 30.0},
]


def operands(rng, t, s, hq, hk, d, e, lead=()):
    return floats(rng, *lead, t, hq, d), floats(rng, *lead, s, hk, d), floats(rng, *lead, s, hk, e)


def attend(gpu, q, k, v, out=None, guarded=False, softcap=0.0, scale=0.0, causal=False, window=0):
    result = unwritten(gpu, out or (*q.shape[:-1], v.shape[-1]))
    given = [Array.of(gpu, x) for x in (q, k, v)]
    call = kernel(gpu, "attention", q, k, v, guarded=guarded, causal=causal, window=window)
    assert call(*given, scale, softcap, result) == 0
    return result.numpy()


def planned(gpu, limits, q, k, v, causal=False, window=0, softcap=0.0, scale=0.0):
    """The result under other limits, and the steps."""
    (t, hq, d), (s, hk, e) = q.shape[-3:], v.shape[-3:]
    leads = [x.shape[:-3] for x in (q, k, v)]
    lead = np.broadcast_shapes(*leads)
    whole = stack(lead, leads, (t * hq * d, s * hk * d, s * hk * e))
    todo = steps(Sizes(t, s, hq, hk, d, e), whole, causal, window, softcap > 0, False, limits)
    out, given = unwritten(gpu, (*lead, t, hq, e)), [Array.of(gpu, x) for x in (q, k, v)]
    assert run(gpu, todo, *given, numbers(scale, softcap, d), out, False) == 0
    return out.numpy(), todo


def assert_near(got, want):
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=0, atol=ALLOWED)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_against_pytorch(gpu, rng, shape):
    x = operands(rng, *shape)
    for given in WAYS:
        assert_near(attend(gpu, *x, **given), by_torch(*x, **given))


@pytest.mark.parametrize("shape", [(1, 900, 6, 2, 64, 64), (90, 300, 2, 1, 32, 40)], ids=str)
@pytest.mark.parametrize("given", WAYS, ids=str)
def test_keys_in_splits(gpu, rng, shape, given):
    """As on a GPU that a few workgroups would not fill; a split may have nothing that a query sees."""
    x = operands(rng, *shape)
    got, todo = planned(gpu, replace(gpu.limits, trips=0), *x, **given)
    assert [step.parts > 1 for step in todo] == [True]
    assert_near(got, by_torch(*x, **given))


@pytest.mark.parametrize("shape", [(1, 700, 2, 1, 16, 16), (20, 700, 2, 1, 16, 16)], ids=str)
def test_a_small_loop_budget_takes_more_splits(gpu, rng, shape):
    x = operands(rng, *shape)
    got, todo = planned(gpu, replace(gpu.limits, trips=100), *x)
    assert todo[0].parts > 1
    assert_near(got, by_torch(*x))


@pytest.mark.parametrize(("t", "s"), [(1, 900_000), (10, 150_000)])
def test_more_keys_than_a_cpu_adapter_loops(gpu, rng, t, s):
    """Equal scores, so that every key counts: the mean of the values, which it would not be if a loop had ended."""
    q, k, v = np.ones((t, 1, 1), np.float32), np.ones((s, 1, 1), np.float32), np.arange(s, dtype=np.float32)
    got = attend(gpu, q, k, v.reshape(s, 1, 1) / s)
    np.testing.assert_allclose(got, 0.5, rtol=1e-4)


@pytest.mark.parametrize("shape", [(2, 900, 2, 1, 64, 32), (200, 300, 2, 1, 64, 64)], ids=str)
@pytest.mark.parametrize("trips", [0, 60_000])
def test_what_one_binding_cannot_hold_comes_in_bands(gpu, rng, shape, trips):
    x = operands(rng, *shape)
    given = {"causal": True, "window": 150}
    got, todo = planned(gpu, replace(gpu.limits, binding=48 << 10, trips=trips), *x, **given)
    assert todo[0].parts > 1 and (len(todo) > 1) == (shape[0] == 200)
    assert_near(got, by_torch(*x, **given))
    with pytest.raises(KernelError, match="attention: k has 900 rows of 256 bytes"):
        planned(gpu, replace(gpu.limits, binding=128), *operands(rng, 2, 900, 2, 1, 64, 32))


def test_problems_in_bands(gpu, rng):
    x = operands(rng, 20, 30, 2, 1, 64, 32, lead=(9,))
    got, todo = planned(gpu, replace(gpu.limits, binding=48 << 10), *x)
    assert len(todo) > 2
    assert_near(got, by_torch(*x))


def test_long_work_takes_several_dispatches(gpu, rng, monkeypatch):
    monkeypatch.setattr(plan, "WORK", 1 << 20)
    x = operands(rng, 300, 80, 2, 1, 64, 32)
    got, todo = planned(gpu, replace(gpu.limits, trips=0), *x, causal=True)
    assert len(todo) == 1 and len(todo[0].passes) > 1
    assert_near(got, by_torch(*x, causal=True))
    x = operands(rng, 30, 80, 2, 1, 64, 32, lead=(4,))
    got, todo = planned(gpu, replace(gpu.limits, trips=0), *x, causal=True)
    assert len(todo) == 2
    assert_near(got, by_torch(*x, causal=True))


def test_leading_axes_are_broadcast(gpu, rng):
    q, k, v = operands(rng, 3, 40, 4, 2, 16, 8, lead=(2, 3))
    want = by_torch(q, k, v)
    assert_near(attend(gpu, q, k, v), want)
    shared = [np.ascontiguousarray(np.broadcast_to(x[0], x.shape)) for x in (k, v)]
    assert_near(attend(gpu, q, k[0], v[0]), by_torch(q, *shared))
    assert_near(attend(gpu, q[:, :1], k, v, out=want.shape), by_torch(np.repeat(q[:, :1], 3, 1), k, v))
    wide, both = np.broadcast_to(q[0, 0], (2, 1, 3, 4, 16)).copy(), np.stack([v[0, :1]] * 2)
    assert_near(attend(gpu, q[0, 0], k[:, :1], v[0, :1], out=(2, 1, 3, 4, 8)), by_torch(wide, k[:, :1], both))


def test_scores_of_any_size(gpu, rng):
    for t in (2, 30):
        q, k, v = operands(rng, t, 300, 2, 1, 16, 8)
        k[130:140] *= 40
        k[290] *= 300
        for scale, softcap in (
            (30.0, 0.0),
            (1e-9, 0.0),
            (1e-3, 5.0),
            (1.0, 1e5),
            (1.0, 1e37),
            (50.0, 2.0),
            (1.0, 1e-42),
        ):
            given = {"scale": scale, "softcap": softcap}
            size = scale * np.abs(q).sum(-1).max() * np.abs(k).max()
            got = attend(gpu, q, k, v, **given)
            sizes = min(size, softcap) if softcap else size
            np.testing.assert_allclose(got, by_torch(q, k, v, **given), rtol=0, atol=3e-6 * (1 + sizes))
            assert (np.abs(got) <= np.abs(v).max() * (1 + 3e-6)).all()


@pytest.mark.parametrize("t", [4, 150])
@pytest.mark.parametrize("split", [False, True])
def test_nan_reaches_the_rows_that_see_it(gpu, rng, t, split):
    limits = replace(gpu.limits, trips=0) if split else gpu.limits
    q, k, v = operands(rng, t, 150, 2, 2, 16, 16)
    q[1, 1, 3] = np.nan
    got, _ = planned(gpu, limits, q, k, v, causal=True)
    assert np.isnan(got[1, 1]).all()
    got[1, 1] = 0
    assert np.isfinite(got).all()
    near = t - 3  # the query before the last two keys
    k[20, 0, 5] = v[148, 1, 2] = np.nan
    got, _ = planned(gpu, limits, np.nan_to_num(q), k, v, causal=True)
    first = max(20 - (150 - t), 0)
    assert np.isnan(got[first:, 0]).all() and np.isnan(got[near + 1 :, 1, 2]).all()
    assert np.isfinite(got[:first, 0]).all() and np.isfinite(got[:, 1, 3:]).all()


def test_queries_that_see_no_key_give_0(gpu, rng):
    for t in (7, 90):
        q, k, v = operands(rng, t, 5, 2, 1, 8, 12)
        for limits in (gpu.limits, replace(gpu.limits, trips=0)):
            got, _ = planned(gpu, limits, q, k, v, causal=True)
            assert (got[: t - 5] == 0).all() and not np.signbit(got[: t - 5]).any()
            assert_near(got, by_torch(q, k, v, causal=True))


@pytest.mark.parametrize("t", [1, 40])
def test_a_guard_hears_of_nan_and_inf(gpu, rng, t):
    x = operands(rng, t, 70, 2, 1, 16, 8)
    gpu.take_status()
    assert_near(attend(gpu, *x, guarded=True), by_torch(*x))
    assert gpu.take_status() == 0
    for value, bits in ((np.nan, 1), (np.inf, 2)):
        v = x[2].copy()
        v[3, 0, 5] = value
        got = attend(gpu, *x[:2], v, guarded=True)
        assert (np.isnan if bits == 1 else np.isinf)(got[..., 5]).all() and gpu.take_status() == bits


def test_every_text_keeps_to_16_kib(gpu):
    """And to 256 invocations: what every device has."""
    for form in (Form(4, 4), Form(1, 1, True), Form(4, 1, store=PARTIAL)):
        for rows in (16, 32, 64):
            for d in (16, 32):
                for e in (64, 128, 192, 256, 1000):
                    chosen = tile.tile_for(rows, d, e)
                    assert chosen.rows == rows and chosen.size <= 256
                    assert shared_bytes(tile.shader(chosen, form)) <= 16 << 10
        for rows in range(1, 9):
            lanes = few.lanes_for(rows, 64, 64, form)
            assert shared_bytes(few.shader(lanes, form)) <= 16 << 10


def test_no_array_has_all_scores(gpu, rng):
    """What is allocated beside the operands is a part of t · s."""
    for t in (1, 400):
        q, k, v = operands(rng, t, 2000, 1, 1, 4, 4)
        for limits in (gpu.limits, replace(gpu.limits, trips=0)):
            _, (step,) = planned(gpu, limits, q, k, v)
            assert step.parts == 1 or step.parts * step.rows * (4 + 2) < t * 2000 / 4


def test_refusals(gpu, rng):
    shapes = [
        ((3, 4, 8), (5, 3, 8), (5, 3, 6), (3, 4, 6)),
        ((3, 4, 8), (5, 2, 7), (5, 2, 6), (3, 4, 6)),
        ((3, 4, 8), (5, 2, 8), (4, 2, 6), (3, 4, 6)),
        ((3, 4, 8), (5, 2, 8), (5, 1, 6), (3, 4, 6)),
        ((3, 4, 8), (5, 2, 8), (5, 2, 6), (3, 4, 7)),
        ((3, 4, 8), (5, 2, 8), (5, 2, 6), (1, 3, 4, 6)),
        ((2, 3, 4, 8), (3, 5, 2, 8), (5, 2, 6), (2, 3, 4, 6)),
        ((4, 8), (5, 8), (5, 6), (4, 6)),
    ]
    for *given, out in shapes:
        made = unwritten(gpu, out)
        x = [floats(rng, *shape) for shape in given]
        call = kernel(gpu, "attention", *x, causal=False, window=0)
        assert call(*(Array.of(gpu, a) for a in x), 0.0, 0.0, made) == -1, given
        assert np.isnan(made.numpy()).all()
    x = floats(rng, 3, 2, 8)
    held = Array.of(gpu, x)
    call = kernel(gpu, "attention", x, x, x, causal=False, window=0)
    assert clashes(held, held) and call(held, held, held, 0.0, 0.0, held) == -1
    made = unwritten(gpu, (3, 2, 8))
    assert call(held, held, held, 0.0, 0.0, made) == 0  # one array, three times read
    assert_near(made.numpy(), by_torch(x, x, x))


def test_empty_arrays(gpu):
    def zeros(*shape):
        return np.zeros(shape, np.float32)

    assert attend(gpu, zeros(0, 2, 4), zeros(3, 1, 4), zeros(3, 1, 5)).size == 0
    assert (attend(gpu, zeros(2, 2, 4), zeros(0, 1, 4), zeros(0, 1, 5)) == 0).all()
    assert (attend(gpu, zeros(2, 2, 0), zeros(3, 1, 0), zeros(3, 1, 5)) == 0).all()
