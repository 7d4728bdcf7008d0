"""matmul and batched_matmul against wider NumPy: every kernel, sizes at the seams of tiles, splits, stacks, guards."""

import numpy as np
import pytest
from trueno_cuda.kernels.gemm import matmul
from trueno_cuda.kernels.gemm.choice import MOST_SPLITS, TILES, Choice, choose
from trueno_cuda.kernels.gemm.matmul import product_launches
from trueno_cuda.kernels.gemm.problem import Problem
from trueno_cuda.kernels.gemm.simt import simt
from trueno_cuda.kernels.store import PLAIN, Store
from trueno_cuda.ptx import f32, f64
from unit.cuda.kernels.products import (
    DEVICE,
    EMULATED,
    FLOATS,
    assert_product,
    assert_right,
    called,
    compute,
    floats,
    fresh,
    measured,
    planned,
)
from unit.cuda.ptx.assembler import assembled

TILED = [(element, name) for element, tiles in TILES.items() for name in tiles]
NUMPY = {f32: np.float32, f64: np.float64}
STORES = {"plain": PLAIN, "guarded": Store(guarded=True), "part": Store(partial=True)}


# ---- tiles --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("element, name", TILED, ids=str)
@pytest.mark.parametrize("more, vectors", [((0, 0, 0), True), ((-3, 4, 3), True), ((1, -1, -7), False)], ids=str)
def test_every_tile_at_its_seams(element, name, more, vectors):
    """A tile exactly, and a bit more and less in each direction; more slices than stages."""
    tile, rng = TILES[element][name], fresh()
    m, n, depth = tile.rows + more[0], tile.columns + more[1], 4 * tile.depth + more[2]
    a, b = floats(rng, NUMPY[element], m, depth), floats(rng, NUMPY[element], depth, n)
    assert_product(planned(DEVICE, Choice(name), a, b, aligned=vectors), a, b)


@pytest.mark.parametrize("element, name", [*TILED, (f32, "naive"), (f64, "naive")], ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 5), (5, 40, 17), (33, 2, 1)], ids=str)
def test_sizes_far_below_a_tile(element, name, shape):
    (m, n, depth), rng = shape, fresh()
    a, b = floats(rng, NUMPY[element], m, depth), floats(rng, NUMPY[element], depth, n)
    assert_product(planned(DEVICE, Choice(name), a, b), a, b)


@pytest.mark.parametrize("element", [f32, f64], ids=str)
@pytest.mark.parametrize("name", ["naive", "small"])
def test_many_tiles_in_both_directions(element, name):
    """More rows of tiles than share a group, and a last group that is not full."""
    (m, n, depth), rng = (64 * 9 + 5, 64 * 2 + 4, 20), fresh()
    a, b = floats(rng, NUMPY[element], m, depth), floats(rng, NUMPY[element], depth, n)
    assert_product(planned(DEVICE, Choice(name), a, b), a, b)


@pytest.mark.parametrize("element, name", [(f32, "naive"), (f32, "small"), (f64, "small")], ids=str)
@pytest.mark.parametrize("n", [36, 35])
def test_splits_are_added_up_in_order(element, name, n):
    """Twice the same bits; the last split has less to do."""
    (m, depth), rng = (40, 300), fresh()
    a, b = floats(rng, NUMPY[element], m, depth), floats(rng, NUMPY[element], depth, n)
    first, second = (planned(DEVICE, Choice(name, 3), a, b) for _ in range(2))
    assert first.tobytes() == second.tobytes()
    assert_product(first, a, b)


def test_architectures_without_hopper():
    rng = fresh()
    a, b = floats(rng, np.float32, 70, 50), floats(rng, np.float32, 50, 68)
    assert_product(planned(EMULATED["sm_80"], Choice("small"), a, b), a, b)


@pytest.mark.parametrize("element, name", TILED, ids=str)
def test_no_bank_is_hit_twice(element, name):
    """Neither by the copies, of which those of A transpose, nor by the reads."""
    tile, rng = TILES[element][name], fresh()
    m, n, depth = tile.rows, tile.columns, 2 * tile.depth
    a, b = floats(rng, NUMPY[element], m, depth), floats(rng, NUMPY[element], depth, n)
    out = np.zeros((m, n), a.dtype)
    report = measured(
        simt("sm_90", element, tile, True, PLAIN), (1, 1, 1), (a, b, out), (m, n, depth, n, depth, 1, 1, 0, 0, 0, 0)
    )
    assert_product(out, a, b)
    reads = [c for c in report.bank_conflicts.values() if c.text.startswith("ld.shared")]
    copies = [c for c in report.bank_conflicts.values() if c.text.startswith("cp.async")]
    assert reads and copies
    assert all(c.conflicts == 0 for c in report.bank_conflicts.values()), report


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("element, name", TILED, ids=str)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_ptxas_takes_every_tile(arch, element, name, vectors, store):
    tile = TILES[element][name]
    report = assembled(simt(arch, element, tile, vectors, STORES[store]))
    print(f"{element} {name} {arch}: {report.registers} registers, {report.spilled} bytes spilled")
    assert report.spilled == 0
    assert report.registers * tile.threads * tile.blocks_per_sm <= 65536


# ---- the ops ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(3, 5, 4), (70, 36, 200), (1, 1, 0), (3, 5, 0), (130, 257, 33)], ids=str)
def test_matmul(dtype, shape):
    (m, n, depth), rng = shape, fresh()
    a, b = floats(rng, dtype, m, depth), floats(rng, dtype, depth, n)
    assert_right("matmul", compute(DEVICE, "matmul", (m, n), a, b), a, b)


STACKS = [
    ((2, 20, 30), (2, 30, 24), (2,)),
    ((3, 20, 30), (30, 24), (3,)),
    ((20, 30), (3, 30, 24), (3,)),
    ((2, 3, 9, 30), (3, 30, 24), (2, 3)),
    ((2, 1, 3, 9, 7), (4, 1, 7, 6), (2, 4, 3)),
    ((2, 1, 2, 1, 5, 7), (1, 3, 1, 2, 7, 6), (2, 3, 2, 2)),
    ((1, 70, 66), (2, 66, 65), (2,)),
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("a_shape, b_shape, lead", STACKS, ids=str)
def test_batched_matmul(dtype, a_shape, b_shape, lead):
    rng = fresh()
    a, b = floats(rng, dtype, *a_shape), floats(rng, dtype, *b_shape)
    got = compute(DEVICE, "batched_matmul", (*lead, a_shape[-2], b_shape[-1]), a, b)
    assert_right("batched_matmul", got, a, b)


def test_more_products_than_a_grid_has_layers(monkeypatch):
    monkeypatch.setattr(matmul, "GRID_Z", 3)
    rng = fresh()
    a, b = floats(rng, np.float32, 2, 4, 5, 7), floats(rng, np.float32, 4, 7, 6)
    assert_right("batched_matmul", compute(DEVICE, "batched_matmul", (2, 4, 5, 6), a, b), a, b)


def test_splits_of_stacks():
    rng = fresh()
    problem = Problem(20, 24, 200, (2, 3), (3 * 20 * 200, 20 * 200), (0, 200 * 24))
    a, b = floats(rng, np.float32, 2, 3, 20, 200), floats(rng, np.float32, 3, 200, 24)
    from unit.cuda.kernels.products import run

    launches = product_launches(DEVICE, problem, f32, PLAIN, True, Choice("small", 2))
    assert launches[0].then is not None
    assert_right("batched_matmul", run(DEVICE, launches, a, b, (2, 3, 20, 24)), a, b)


@pytest.mark.parametrize("name, splits", [("naive", 1), ("small", 1), ("middle", 1), ("small", 2)])
@pytest.mark.parametrize("sick, bits", [({}, 0), ({(3, 7): np.nan}, 1), ({(69, 5): np.inf}, 3), ({(0, 0): 3e38}, 2)])
def test_guards_see_what_is_stored_and_nothing_else(name, splits, sick, bits):
    """Rows and columns behind the end of C are computed from those before it, and must not count."""
    rng = fresh()
    a, b = floats(rng, np.float32, 70, 200), np.abs(floats(rng, np.float32, 200, 68)) + np.float32(2)
    for place, value in sick.items():
        a[place] = value
    if bits == 3:
        b[5, 2] = 0  # Inf * 0
    DEVICE.take_status()
    got = planned(DEVICE, Choice(name, splits), a, b, store=Store(guarded=True), ends=(DEVICE.status(),))
    with np.errstate(all="ignore"):
        want = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    assert (np.isnan(got) == np.isnan(want)).all() and (np.isinf(got) == np.isinf(want)).all()
    assert DEVICE.take_status() == bits


def test_the_ops_are_guarded():
    rng = fresh()
    a, b = floats(rng, np.float32, 40, 40), floats(rng, np.float32, 40, 40)
    compute(DEVICE, "matmul", (40, 40), a, b, guarded=True)
    assert DEVICE.take_status() == 0
    a[3, 4] = np.nan
    compute(DEVICE, "matmul", (40, 40), a, b, guarded=True)
    assert DEVICE.take_status() == 1


# ---- what is not for them -----------------------------------------------------------------------------


def test_shapes_that_do_not_agree_write_nothing():
    rng = fresh()
    a, b = floats(rng, np.float32, 4, 5), floats(rng, np.float32, 5, 6)
    kernel = called(DEVICE, "matmul", a, b)
    x, y, out = DEVICE.to_device(a), DEVICE.to_device(b), DEVICE.to_device(np.full((4, 6), 7, np.float32))
    for p, q, r in [(y, x, out), (x, x, out), (x, y, out.reshape((6, 4))), (x, y.reshape((5, 6, 1)), out)]:
        assert kernel(p, q, r) == -1
    assert (DEVICE.to_host(out) == 7).all()


def test_a_result_in_an_operand_is_refused():
    a = floats(fresh(), np.float32, 6, 6)
    x, y = DEVICE.to_device(a), DEVICE.to_device(a)
    kernel = called(DEVICE, "matmul", a, a)
    assert kernel(x, y, x) == kernel(x, y, y) == -1
    assert DEVICE.to_host(x).tobytes() == DEVICE.to_host(y).tobytes() == a.tobytes()


def test_pointers_that_are_aligned_to_an_element_only():
    from trueno_cuda.device.emulated import Array

    rng = fresh()
    a, b = floats(rng, np.float32, 70, 44), floats(rng, np.float32, 44, 68)
    whole = DEVICE.to_device(np.concatenate([[0], b.ravel()]).astype(np.float32))

    class Later:
        """Memory from its second element on."""

        ptr, bytes = whole.data.ptr + 4, whole.data.bytes[4:]

    moved = Array((44, 68), np.float32, Later())
    x, out = DEVICE.to_device(a), DEVICE.to_device(np.full((70, 68), np.nan, np.float32))
    assert called(DEVICE, "matmul", a, b)(x, moved, out) == 0
    assert_right("matmul", DEVICE.to_host(out), a, b)


# ---- the choice ---------------------------------------------------------------------------------------


class Sized:
    """A device's figures."""

    def __init__(self, sms: int, shared: int) -> None:
        self.sms, self.shared = sms, shared


def test_the_choice_fills_a_large_device():
    h200 = Sized(132, 227 * 1024)
    assert choose(Problem(8, 8, 8), f32, h200).name == "naive"
    assert choose(Problem(4096, 4096, 4096), f32, h200) in (Choice("large"), Choice("wide"))
    assert choose(Problem(64, 64, 1 << 16), f32, h200).splits > 8
    assert choose(Problem(256, 256, 256, (512,)), f32, h200).splits == 1
    for element in (f32, f64):
        for m, n, depth in [(1, 5000, 3), (5000, 1, 3000), (129, 129, 129), (20000, 64, 64)]:
            assert choose(Problem(m, n, depth), element, h200).splits <= MOST_SPLITS


def test_a_device_of_little_shared_memory_takes_small_tiles():
    assert choose(Problem(4096, 4096, 4096), f32, Sized(40, 32 * 1024)).name == "small"
