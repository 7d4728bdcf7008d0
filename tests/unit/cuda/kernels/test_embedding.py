"""embedding_lookup of the CUDA backend, on the emulator: to the bit."""

import numpy as np
import pytest
from ml_dtypes import bfloat16
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels import embedding, operands
from unit.cuda.kernels.moves import FLOATS, call, compute, part, random, unwritten

CASES = [
    (1, 1, (1,)),
    (50, 16, (33,)),
    (300, 29, (20, 3)),
    (5, 3, ()),
    (7, 4, (2, 1, 3)),
    (9, 1100, (5,)),
    (9, 270, (7,)),
]


@pytest.fixture(scope="module")
def device():
    return Emulator("sm_90")


def looked_up(device, shape, table, i, **options):
    return compute(device, embedding.embedding_lookup, "embedding_lookup", shape, table, i, **options)


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("v, d, shape", CASES, ids=str)
def test_rows_are_copied(device, dtype, v, d, shape, guarded):
    rng = random()
    table, i = rng.standard_normal((v, d)).astype(dtype), np.asarray(rng.integers(0, v, shape), np.int64)
    for shift in (0, 1):
        got = looked_up(device, (*shape, d), table, i, guarded=guarded, shift=shift)
        assert got.tobytes() == table[i].tobytes()
    assert device.take_status() == 0


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bits_are_copied_and_told(device, dtype):
    table = random().integers(0, 256, (40, 6, dtype.itemsize), np.uint8).view(dtype)[..., 0]
    table[11], table[12] = 1, 1
    table[12, 5] = np.inf
    i = np.arange(40)[::-1].copy()
    assert looked_up(device, (40, 6), table, i).tobytes() == table[i].tobytes()
    for rows, told in (([11, 11], 0), ([11, 12], 2)):
        looked_up(device, (2, 6), table, np.array(rows), guarded=True)
        assert device.take_status() == told


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), np.dtype(bfloat16)], ids=str)
@pytest.mark.parametrize("v, d, shape", [*CASES, (9, 40, (5,))], ids=str)
def test_rows_of_16_bit_floats_are_copied(device, dtype, v, d, shape):
    rng = random()
    table, i = rng.integers(0, 1 << 16, (v, d), np.uint16).view(dtype), np.asarray(rng.integers(0, v, shape), np.int64)
    for shift in (0, 1):
        got = looked_up(device, (*shape, d), table, i, shift=shift)
        assert got.tobytes() == table[i].tobytes()
    i = i.reshape(-1)
    i[0] = v
    got = looked_up(device, (i.size, d), table, i)
    assert np.isnan(got[0].astype("f4")).all() and got[1:].tobytes() == table[i[1:]].tobytes()


@pytest.mark.parametrize("d", [7, 8])
@pytest.mark.parametrize("bad", [-1, 50, 2**32, 2**32 + 3, -(2**62), 2**31, 2**63 - 1, -(2**63)])
def test_an_index_outside_reads_nothing(device, bad, d):
    """The op checks indices where it can; on the device a wrong one gives NaN, and a guard hears of it."""
    rng = random()
    table, i = rng.standard_normal((50, d)).astype("f4"), rng.integers(0, 50, 20)
    i[7] = bad
    got = looked_up(device, (20, d), table, i, guarded=True)
    assert np.isnan(got[7]).all() and device.take_status() == 1
    assert np.delete(got, 7, 0).tobytes() == table[np.delete(i, 7)].tobytes()


def test_large_results_are_split(device, monkeypatch):
    monkeypatch.setattr(operands, "REACH", 16)
    rng = random()
    for d in (7, 40):
        table, i = rng.standard_normal((30, d)).astype("f4"), rng.integers(0, 30, 37)
        assert looked_up(device, (37, d), table, i).tobytes() == table[i].tobytes()


@pytest.mark.parametrize(
    "table, i, out", [((4, 5), (3,), (3, 4)), ((4,), (3,), (3,)), ((0, 5), (3,), (3, 5)), ((4, 5), (3,), (2, 5))]
)
def test_shapes_that_do_not_agree_are_refused(device, table, i, out):
    inputs = np.zeros(table, "f4"), np.zeros(i, np.int64)
    result = unwritten(device, out, "f4")
    kernel = embedding.embedding_lookup(device, call("embedding_lookup", "f4", *inputs))
    assert kernel(*map(device.to_device, inputs), result) == -1
    assert np.isnan(result.elements).all()


def test_a_result_over_the_table_is_refused(device):
    whole, i = device.to_device(np.ones((6, 5), "f4")), device.to_device(np.zeros(2, np.int64))
    kernel = embedding.embedding_lookup(device, call("embedding_lookup", "f4", np.ones((4, 5)), np.zeros(2)))
    assert kernel(part(whole, (4, 5), 0), i, part(whole, (2, 5), 20)) == 0
    assert kernel(part(whole, (4, 5), 0), i, part(whole, (2, 5), 19)) == -1


def test_empty_arrays(device):
    table = np.ones((2, 3), "f4")
    assert looked_up(device, (0, 3), table, np.empty(0, np.int64)).size == 0
    assert looked_up(device, (2, 0), table[:, :0], np.zeros(2, np.int64)).size == 0
    assert looked_up(device, (0, 3), table[:0], np.empty(0, np.int64)).size == 0
