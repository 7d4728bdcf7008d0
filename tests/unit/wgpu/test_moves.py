"""transpose, outer and embedding_lookup of wgpu: to the bit."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("wgpu")
from trueno.errors import KernelError
from trueno_wgpu.device.array import Array
from trueno_wgpu.kernels import embedding, outer, transpose
from trueno_wgpu.kernels.store import PLAIN
from unit.wgpu.products import compute, floats, kernel, planned, unwritten

NAN = np.array([0x7FC12345, 0xFF812345, 1], np.uint32).view(np.float32)
"""Two NaNs and the smallest subnormal: bits that arithmetic would change."""


@pytest.mark.parametrize(
    ("m", "n"), [(1, 1), (1, 70), (70, 1), (3, 5), (31, 33), (32, 32), (64, 96), (129, 130), (257, 3)]
)
def test_transpose(gpu, rng, m, n):
    x = floats(rng, m, n)
    x.reshape(-1)[: len(NAN)] = NAN[: x.size]
    assert compute(gpu, "transpose", (n, m), x).tobytes() == x.T.tobytes()


def test_transpose_in_blocks(gpu, rng):
    x = floats(rng, 150, 203)
    dispatches = transpose.dispatches(
        150, 203, replace(gpu.limits, binding=64 << 10, groups=3), transpose._shader(False)
    )
    assert len(dispatches) > 2
    assert planned(gpu, dispatches, (203, 150), x).tobytes() == x.T.tobytes()


def test_transpose_tells_what_it_moves(gpu, rng):
    for value, bits in ((1.0, 0), (np.nan, 1), (-np.inf, 2)):
        x = floats(rng, 40, 50)
        x[39, 49] = value
        gpu.take_status()
        assert compute(gpu, "transpose", (50, 40), x, guarded=True).tobytes() == x.T.tobytes()
        assert gpu.take_status() == bits


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 17), (65, 33), (33, 64), (1, 1000), (1000, 1)])
def test_outer_is_exact(gpu, rng, m, n, guarded):
    x, y = floats(rng, m), floats(rng, n)
    x[0], y[n // 2] = 0.0, -1.0  # the product's -0 must stay
    gpu.take_status()
    got = compute(gpu, "outer", (m, n), x, y, guarded=guarded)
    assert got.tobytes() == np.multiply.outer(x, y).tobytes()
    assert gpu.take_status() == 0


def test_outer_of_one_array_with_itself(gpu, rng):
    a = floats(rng, 50)
    x, out = Array.of(gpu, a), unwritten(gpu, (50, 50))
    assert kernel(gpu, "outer", a, a)(x, x, out) == 0
    assert out.numpy().tobytes() == np.multiply.outer(a, a).tobytes()


def test_outer_in_bands_tells_overflow(gpu, rng):
    x, y = floats(rng, 300), floats(rng, 64)
    dispatches = outer.dispatches(300, 64, replace(gpu.limits, binding=16 << 10), PLAIN)
    assert len(dispatches) > 2
    assert planned(gpu, dispatches, (300, 64), x, y).tobytes() == np.multiply.outer(x, y).tobytes()
    x[7] = y[9] = 1e30
    gpu.take_status()
    got = compute(gpu, "outer", (300, 64), x, y, guarded=True)
    assert np.isinf(got[7, 9]) and gpu.take_status() == 2


@pytest.mark.parametrize("guarded", [False, True])
def test_embedding_lookup(gpu, rng, guarded):
    for v, d, shape in [(1, 1, (1,)), (50, 16, (33,)), (300, 29, (20, 3)), (5, 3, ()), (7, 4, (2, 1, 3))]:
        table, i = floats(rng, v, d), np.asarray(rng.integers(0, v, shape), np.int64)
        gpu.take_status()
        got = compute(gpu, "embedding_lookup", (*shape, d), table, i, guarded=guarded)
        assert got.tobytes() == table[i].tobytes() and gpu.take_status() == 0


def test_embedding_lookup_copies_bits_and_tells(gpu):
    table = np.zeros((4, 3), np.float32)
    table[2] = NAN
    got = compute(gpu, "embedding_lookup", (2, 3), table, np.array([2, 0]), guarded=True)
    assert got[0].tobytes() == NAN.tobytes() and gpu.take_status() == 1


@pytest.mark.parametrize("d", [7, 8])
@pytest.mark.parametrize("bad", [-1, 50, 2**32, 2**32 + 3, -(2**62), 2**31])
def test_an_index_outside_reads_nothing(gpu, rng, bad, d):
    """The op checks indices where it can; on the device a wrong one gives NaN, whatever lies in its low word."""
    table, i = floats(rng, 50, d), rng.integers(0, 50, 20)
    i[7] = bad
    got = compute(gpu, "embedding_lookup", (20, d), table, i)
    assert np.isnan(got[7]).all()
    assert np.delete(got, 7, 0).tobytes() == table[np.delete(i, 7)].tobytes()


def test_embedding_lookup_in_bands_of_both(gpu, rng):
    table, i = floats(rng, 200, 20), rng.integers(0, 200, 900)
    i[3] = 1000
    dispatches = embedding.dispatches(200, 20, 900, replace(gpu.limits, binding=8 << 10), False)
    assert len(dispatches) > 4
    got = planned(gpu, dispatches, (900, 20), table, i)
    assert np.isnan(got[3]).all()
    assert np.delete(got, 3, 0).tobytes() == table[np.delete(i, 3)].tobytes()
    with pytest.raises(KernelError, match="embedding_lookup: table has 2 rows of 40000 bytes"):
        embedding.dispatches(2, 10_000, 0, replace(gpu.limits, binding=8 << 10), False) or embedding.bands(
            "embedding_lookup", "table", 2, (40_000,), replace(gpu.limits, binding=8 << 10)
        )


@pytest.mark.parametrize(
    ("op", "shapes", "out"),
    [
        ("transpose", [(3, 4)], (3, 4)),
        ("transpose", [(2, 3, 4)], (4, 3, 2)),
        ("outer", [(4,), (5,)], (5, 4)),
        ("outer", [(4, 1), (5,)], (4, 5)),
        ("embedding_lookup", [(4, 5), (3,)], (3, 4)),
        ("embedding_lookup", [(4,), (3,)], (3,)),
        ("embedding_lookup", [(0, 5), (3,)], (3, 5)),
    ],
)
def test_shapes_that_do_not_agree_are_refused(gpu, op, shapes, out):
    operands = [np.zeros(s, np.int64 if op == "embedding_lookup" and k else np.float32) for k, s in enumerate(shapes)]
    made = unwritten(gpu, out)
    assert kernel(gpu, op, *operands)(*(Array.of(gpu, x) for x in operands), made) == -1
    assert np.isnan(made.numpy()).all()


def test_a_result_in_an_operand_is_refused(gpu, rng):
    x = floats(rng, 6, 6)
    held = Array.of(gpu, x)
    assert kernel(gpu, "transpose", x)(held, held) == -1
    assert held.numpy().tobytes() == x.tobytes()


def test_empty_arrays(gpu):
    nothing = np.empty((0, 3), np.float32)
    assert compute(gpu, "transpose", (3, 0), nothing).size == 0
    assert compute(gpu, "outer", (0, 3), nothing[:, 0], np.ones(3, np.float32)).size == 0
    assert compute(gpu, "embedding_lookup", (0, 3), np.ones((2, 3), np.float32), np.empty(0, np.int64)).size == 0
    assert compute(gpu, "embedding_lookup", (2, 0), np.ones((2, 0), np.float32), np.zeros(2, np.int64)).size == 0
