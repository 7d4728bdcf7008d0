"""matmul and batched_matmul of wgpu against float64 NumPy: every tile, sizes at their seams, splits, bands, budgets."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("wgpu")
from trueno.errors import KernelError
from trueno_wgpu.device.array import Array
from trueno_wgpu.device.shader import Shader, shared_bytes
from trueno_wgpu.kernels import matmul
from trueno_wgpu.kernels.matmul import LARGE, MIDDLE, SMALL, choose, product_dispatches
from trueno_wgpu.kernels.store import PLAIN, Store
from trueno_wgpu.kernels.tile import NAIVE, Form, Tile, naive, tiled
from unit.wgpu.products import assert_product, assert_within, compute, floats, kernel, planned, unwritten

TWO = Tile(128, 128, 8, 8, 8, unroll=8, slices=2)
LATE = Tile(64, 64, 16, 4, 4, ahead=False)
UNEVEN = Tile(128, 64, 16, 8, 8, unroll=8)
TILES = (NAIVE, SMALL, MIDDLE, LARGE, TWO, LATE, UNEVEN)
SHAPES = {"whole": (256, 128, 64), "fours": (100, 132, 40), "ones": (33, 65, 19)}  # m, n, k


# ---- tiles --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reads", SHAPES)
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_every_tile_at_every_kind_of_size(gpu, rng, tile, reads):
    m, n, k = SHAPES[reads]
    a, b = floats(rng, m, k), floats(rng, k, n)
    dispatches = product_dispatches("test", m, n, k, gpu.limits, tile=tile, splits=1)
    assert reads in dispatches[0].shader.name or tile is NAIVE
    assert_product(planned(gpu, dispatches, (m, n), a, b), a, b)


@pytest.mark.parametrize("reads", SHAPES)
@pytest.mark.parametrize("tile", [NAIVE, MIDDLE, LARGE, UNEVEN], ids=str)
def test_the_second_matrix_may_be_turned(gpu, rng, tile, reads):
    m, n, k = SHAPES[reads]
    a, b = floats(rng, m, k), floats(rng, k, n)
    dispatches = product_dispatches("test", m, n, k, gpu.limits, tile=tile, splits=1, turned=True)
    assert_product(planned(gpu, dispatches, (m, n), a, np.ascontiguousarray(b.T)), a, b)


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_splits_of_k_are_added_up_in_order(gpu, rng, tile):
    """Twice the same bits; a split that has less to do than the others counts too."""
    m, n, k = 40, 36, 300
    a, b = floats(rng, m, k), floats(rng, k, n)
    dispatches = product_dispatches("test", m, n, k, gpu.limits, tile=tile, splits=3)
    assert dispatches[0].then is not None and dispatches[0].scratch >= 2 * m * n * 4
    first, second = (planned(gpu, dispatches, (m, n), a, b) for _ in range(2))
    assert first.tobytes() == second.tobytes()
    assert_product(first, a, b)


@pytest.mark.parametrize(
    "tile", [*TILES, Tile(128, 128, 16, 8, 8, slices=2), Tile(64, 64, 32, 4, 4, unroll=32)], ids=str
)
def test_a_tile_says_how_much_memory_its_text_takes(tile):
    text = naive(Form("ones")) if tile is NAIVE else tiled(tile, Form("whole"))
    assert shared_bytes(Shader("test", text, ())) == (0 if tile is NAIVE else tile.workgroup_bytes)
    assert tile.invocations <= 256


def test_what_is_chosen_fits_every_device(gpu):
    """16 KiB and 256 invocations are what WebGPU demands of any."""
    least = replace(gpu.limits, workgroup=16 << 10, trips=0)
    for size in (1, 16, 100, 1000, 4096, 10_000):
        for m, n, k in ((size, size, size), (16, size, 4096), (size, 16, 512)):
            tile, splits = choose(m, n, k, 1, least)
            assert tile.workgroup_bytes <= 16 << 10 and tile.invocations <= 256
            assert 1 <= splits <= matmul.MOST_SPLITS
    assert choose(4096, 4096, 4096, 1, least) == (LARGE, 1)
    assert choose(256, 256, 8192, 1, least)[1] > 1, "a small grid and a long k are split"


# ---- the ops ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarded", [False, True])
def test_matmul(gpu, rng, guarded):
    shapes = [(1, 1, 1), (2, 3, 5), (17, 16, 15), (64, 64, 64), (65, 63, 61), (48, 80, 128)]
    shapes += [(1, 70, 33), (70, 1, 33), (1, 1, 300), (2, 40, 50), (3, 41, 51), (4, 4, 1000), (5, 300, 4)]
    run = kernel(gpu, "matmul", np.empty((2, 2)), np.empty((2, 2)), guarded=guarded)
    for m, n, k in shapes:
        a, b = floats(rng, m, k), floats(rng, k, n)
        out = unwritten(gpu, (m, n))
        assert run(Array.of(gpu, a), Array.of(gpu, b), out) == 0
        assert_product(out.numpy(), a, b)
    assert gpu.take_status() == 0


def test_a_matrix_by_itself(gpu, rng):
    a = floats(rng, 40, 40)
    x, out = Array.of(gpu, a), unwritten(gpu, (40, 40))
    assert kernel(gpu, "matmul", a, a)(x, x, out) == 0
    assert_product(out.numpy(), a, a)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("m", "n", "k"), [(5, 7, 9), (70, 90, 33), (1, 64, 64), (64, 1, 64)])
def test_nan_and_inf_stay_in_their_row_and_are_told(gpu, rng, m, n, k, value):
    a, b = np.abs(floats(rng, m, k)), np.abs(floats(rng, k, n))
    a[m // 2, k // 3] = value
    gpu.take_status()
    got = compute(gpu, "matmul", (m, n), a, b, guarded=True)
    assert gpu.take_status() == (1 if np.isnan(value) else 2)
    with np.errstate(invalid="ignore"):
        want = a.astype(np.float64) @ b.astype(np.float64)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert np.array_equal(np.isinf(got), np.isinf(want)) and (got[np.isinf(got)] == value).all()
    rest = np.arange(m) != m // 2
    assert_product(got[rest], a[rest], b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((2, 4, 5), (2, 5, 6)),
        ((2, 3, 33, 20), (2, 3, 20, 17)),
        ((3, 1, 1, 7), (3, 1, 7, 9)),
        ((4, 5), (3, 5, 6)),
        ((3, 4, 5), (5, 6)),
        ((2, 1, 4, 5), (3, 5, 6)),
        ((2, 3, 4, 5), (2, 1, 5, 6)),
        ((2, 1, 3, 1, 4, 8), (2, 1, 5, 8, 4)),
        ((1, 1, 4, 5), (5, 6)),
        ((4, 64, 64), (4, 64, 64)),
    ],
)
def test_batched_matmul_broadcasts_leading_axes(gpu, rng, a, b):
    x, y = floats(rng, *a), floats(rng, *b)
    want = x.astype(np.float64) @ y.astype(np.float64)
    weight = np.abs(x).astype(np.float64) @ np.abs(y).astype(np.float64)
    got = compute(gpu, "batched_matmul", want.shape, x, y, guarded=True)
    assert_within(got, want, weight, a[-1])
    assert gpu.take_status() == 0


def test_splits_of_stacked_products(gpu, rng):
    x, y = floats(rng, 3, 20, 200), floats(rng, 3, 200, 24)
    dispatches = product_dispatches(
        "test", 20, 24, 200, gpu.limits, tile=SMALL, splits=2, lead=(3,), a_step=(4000,), b_step=(4800,)
    )
    assert dispatches[0].then is not None
    got = planned(gpu, dispatches, (3, 20, 24), x, y)
    for g, a, b in zip(got, x, y, strict=True):
        assert_product(g, a, b)


# ---- the loop budget of CPU adapters ------------------------------------------------------------------


@pytest.mark.parametrize("tile", [NAIVE, SMALL, MIDDLE, LARGE], ids=str)
def test_a_hundred_thousand_ones(gpu, tile):
    """llvmpipe ends an invocation's loops after 65 535 trips, without a message."""
    k = 100_000
    a, b = np.ones((3, k), np.float32), np.ones((k, 5), np.float32)
    dispatches = product_dispatches("test", 3, 5, k, gpu.limits, tile=tile, splits=1)
    assert (planned(gpu, dispatches, (3, 5), a, b) == k).all()


@pytest.mark.parametrize("tile", [NAIVE, SMALL, MIDDLE], ids=str)
@pytest.mark.parametrize("splits", [1, 3])
def test_a_small_budget_takes_more_dispatches(gpu, rng, tile, splits):
    limits = replace(gpu.limits, trips=40)
    m, n, k = 33, 20, 3000
    a, b = floats(rng, m, k), floats(rng, k, n)
    dispatches = product_dispatches("test", m, n, k, limits, tile=tile, splits=splits)
    assert len(dispatches) > 2 and [s.final for s in dispatches] == [False] * (len(dispatches) - 1) + [True]
    assert_product(planned(gpu, dispatches, (m, n), a, b), a, b)


# ---- bindings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize(("m", "n", "k"), [(500, 24, 200), (24, 500, 256), (300, 290, 64), (333, 31, 70)])
def test_operands_beyond_a_binding_come_in_bands(gpu, rng, m, n, k, splits):
    limits = replace(gpu.limits, binding=64 << 10)
    a, b = floats(rng, m, k), floats(rng, k, n)
    dispatches = product_dispatches("test", m, n, k, limits, tile=MIDDLE, splits=splits)
    assert len(dispatches) > 1
    for dispatch in dispatches:
        for view in (*(band for _, band in dispatch.reads), dispatch.out):
            if view is not None:
                assert view.first * view.row_bytes % limits.alignment == 0
                assert view.count * view.row_bytes <= limits.binding
    assert_product(planned(gpu, dispatches, (m, n), a, b), a, b)


def test_a_batch_beyond_a_binding_comes_in_parts(gpu, rng, monkeypatch):
    monkeypatch.setattr(gpu, "limits", replace(gpu.limits, binding=64 << 10))
    x, y = floats(rng, 9, 40, 64), floats(rng, 9, 64, 48)
    got = compute(gpu, "batched_matmul", (9, 40, 48), x, y)
    for g, a, b in zip(got, x, y, strict=True):
        assert_product(g, a, b)
    got = compute(gpu, "batched_matmul", (9, 40, 48), x, y[0])
    for g, a in zip(got, x, strict=True):
        assert_product(g, a, y[0])


def test_what_cannot_be_split_says_so(gpu):
    limits = replace(gpu.limits, binding=1 << 10)
    with pytest.raises(KernelError, match=r"matmul: a has 64 rows of 4000 bytes, 256000 in all, and .* binds 1024"):
        product_dispatches("matmul", 64, 8, 1000, limits)
    with pytest.raises(KernelError, match=r"batched_matmul: operands broadcast along 2 axes"):
        matmul.batch_dispatches(8, 8, 8, [4, 4], [64, 0], [0, 64], limits, PLAIN)


def test_a_grid_of_more_than_a_row(gpu, rng):
    """Beyond 65 535 workgroups along an axis; here the axis ends at 5."""
    limits = replace(gpu.limits, groups=5)
    a, b = floats(rng, 100, 8), floats(rng, 8, 40)
    dispatches = product_dispatches("test", 100, 40, 8, limits, tile=NAIVE, splits=1)
    assert dispatches[0].groups[1] > 1
    assert_product(planned(gpu, dispatches, (100, 40), a, b), a, b)


# ---- refusals -----------------------------------------------------------------------------------------


def test_shapes_that_do_not_agree_are_refused(gpu, rng):
    wrong = {
        "matmul": [((4, 5), (4, 6), (4, 6)), ((4, 5), (5, 6), (4, 5)), ((4, 5), (5, 6), (3, 6)), ((5,), (5, 6), (6,))],
        "batched_matmul": [((2, 4, 5), (3, 5, 6), (2, 4, 6)), ((2, 4, 5), (2, 5, 6), (3, 4, 6)),
                           ((2, 4, 5), (2, 5, 6), (1, 2, 4, 6)), ((1, 4, 5), (1, 5, 6), (2, 4, 6))],
    }  # fmt: skip
    for op, cases in wrong.items():
        run = kernel(gpu, op, np.empty((2, 2)), np.empty((2, 2)))
        for a, b, shape in cases:
            out = unwritten(gpu, shape)
            assert run(Array.of(gpu, floats(rng, *a)), Array.of(gpu, floats(rng, *b)), out) == -1, (op, a, b, shape)
            assert np.isnan(out.numpy()).all()


def test_a_result_in_an_operand_is_refused(gpu, rng):
    a, b = floats(rng, 6, 6), floats(rng, 6, 6)
    x, y = Array.of(gpu, a), Array.of(gpu, b)
    run = kernel(gpu, "matmul", a, b)
    assert run(x, y, x) == -1 and run(x, y, y) == -1 and run(x, y, y.reshape((6, 6))) == -1
    assert x.numpy().tobytes() == a.tobytes() and y.numpy().tobytes() == b.tobytes()


def test_nothing_to_add_up(gpu):
    assert (compute(gpu, "matmul", (3, 5), np.empty((3, 0), np.float32), np.empty((0, 5), np.float32)) == 0).all()
    assert compute(gpu, "matmul", (0, 5), np.empty((0, 4), np.float32), np.empty((4, 5), np.float32)).size == 0
    got = compute(gpu, "batched_matmul", (2, 3, 5), np.empty((2, 3, 0), np.float32), np.empty((2, 0, 5), np.float32))
    assert (got == 0).all()


def test_plans_are_kept(gpu, rng):
    a, b = floats(rng, 20, 20), floats(rng, 20, 20)
    run = kernel(gpu, "matmul", a, b)
    x, y, out = Array.of(gpu, a), Array.of(gpu, b), unwritten(gpu, (20, 20))
    run(x, y, out)
    out.numpy()
    gpu.counts.reset()
    for _ in range(5):
        run(x, y, out)
    assert gpu.counts.kernels == 5 and gpu.counts.pipelines == 0 and gpu.counts.allocations == 0


def test_a_scaled_store(gpu, rng):
    import struct

    from trueno_wgpu.kernels.dispatches import run

    a, b = floats(rng, 20, 32), floats(rng, 32, 24)
    for splits in (1, 2):
        dispatches = product_dispatches("test", 20, 24, 32, gpu.limits, Store(scaled=True), tile=SMALL, splits=splits)
        out = unwritten(gpu, (20, 24))
        run(gpu, dispatches, (Array.of(gpu, a), Array.of(gpu, b)), out, struct.pack("<f", -0.5))
        assert_product(out.numpy(), -0.5 * a, b)
