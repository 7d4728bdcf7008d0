"""Where results may lie: operands themselves, never parts of them; and what a kernel refuses untouched."""

import threading

import numpy as np
import pytest
from trueno.ops import TABLE
from trueno.programs.lower import lower
from trueno_scalar.operands import clash

F32 = np.float32
IN_PLACE = [name for name, op in TABLE.items() if not op.structured and not op.reduces]
SHAPES = [(9,), (70_001,), (3, 5), (200, 300), (200, 5), (2, 70_001)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name, shape, launch, rng):
    call = launch(name, F32, len(shape))
    operands = call.operands(rng, shape)
    want = call(operands, shape)
    hazards = lower(call.program, "cache").hazards
    for k in range(len(want)):
        for j, (x, kind) in enumerate(zip(operands, call.layout, strict=True)):
            if kind != "e":
                continue
            arrays = [a.copy() for a in operands]
            outs = call.results(shape)
            outs[k] = arrays[j]
            status = call.kernel(*arrays, *call.params, *outs)
            if (k, call.program.operands[j][0]) in hazards:
                assert status == -1
                np.testing.assert_array_equal(arrays[j], x)
                continue
            assert status == 0
            for got, expected in zip(outs, want, strict=True):
                np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("shape", [(50,), (70_001,), (40, 300)], ids=str)
def test_both_results_over_both_operands(shape, launch, rng):
    call = launch("residual_rms_norm", F32, len(shape))
    operands = call.operands(rng, shape)
    want = call(operands, shape)
    for order in (0, 1), (1, 0):
        arrays = [a.copy() for a in operands]
        outs = [arrays[j] for j in order]
        status = call.kernel(*arrays, *call.params, *outs)
        assert status in (0, -1)
        for got, expected in zip(outs, want if status == 0 else [operands[j] for j in order], strict=True):
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", ["add", "gelu", "softmax", "rms_norm"])
def test_overlap_is_refused(name, launch, rng):
    for n in (50, 70_001):
        call = launch(name, F32, 1)
        operands = call.operands(rng, (n,))
        for shift in (-1, 1):
            whole = np.arange(n + 1, dtype=F32)
            x, y = (whole[1:], whole[:-1]) if shift < 0 else (whole[:-1], whole[1:])
            before = whole.copy()
            assert call.kernel(x, *operands[1:], *call.params, y) == -1
            np.testing.assert_array_equal(whole, before)


def test_results_that_overlap_each_other_are_refused(launch, rng):
    call = launch("residual_rms_norm", F32, 1)
    operands = call.operands(rng, (20,))
    whole = np.zeros(30, F32)
    assert call.kernel(*operands, *call.params, whole[:20], whole[10:]) == -1
    same = np.zeros(20, F32)
    assert call.kernel(*operands, *call.params, same, same) == -1
    assert not whole.any() and not same.any()


def test_a_shared_row_as_result_is_refused(launch, rng):
    call = launch("rms_norm", F32, 2)
    x, w = call.operands(rng, (1, 20))
    assert call.kernel(x, w, *call.params, w.reshape(1, 20)) == -1


def test_views_that_are_apart_are_taken(launch, rng):
    call = launch("add", F32, 1)
    whole = rng.standard_normal(300).astype(F32)
    x, y, z = whole[:100], whole[100:200], whole[200:]
    want = x + y
    assert call.kernel(x, y, z) == 0
    np.testing.assert_array_equal(z, want)
    again = z[:]  # the same memory under another object is still the operand itself
    assert call.kernel(z, y, again) == 0
    np.testing.assert_array_equal(z, want + y)


def test_lengths_and_dtypes_are_checked(launch):
    one, two, out = np.zeros(1, F32), np.zeros(2, F32), np.full(2, 7, F32)
    add = launch("add", F32, 1).kernel
    assert add(one, two, out) == -1  # a ufunc would broadcast
    assert add(two, two, np.zeros(3, F32)) == -1
    assert add(two, two.astype(np.float64), out) == -1
    assert add(two, two, out.astype(np.float64)) == -1
    assert add(two, two.astype(">f4"), out) == -1
    assert add(two[None], two[None], out[None]) == -1
    rows = launch("rms_norm", F32, 2).kernel
    x = np.zeros((3, 2), F32)
    assert rows(x, np.zeros(3, F32), 1e-6, x.copy()) == -1
    assert launch("argmax", F32, 1).kernel(two, np.zeros((), F32)) == -1
    assert (out == 7).all()


def test_strided_results_are_never_lost(launch, rng):
    """The protocol promises contiguous arrays; what breaks the promise is computed or refused, never dropped."""
    for shape in (40, 50), (300, 400):
        for name in "gelu", "softmax":
            call = launch(name, F32, 2)
            (x,) = call.operands(rng, shape)
            (want,) = call([x], shape)
            wide = np.zeros((shape[0], 2 * shape[1]), F32)
            status = call.kernel(x, wide[:, ::2])
            assert status == -1 or np.array_equal(wide[:, ::2], want)
            assert not wide[:, 1::2].any()


def test_clash():
    a, b = np.zeros(10, F32), np.zeros(10, F32)
    assert clash((a,), (b,)) == 0
    assert clash((a,), (a,)) == 1
    assert clash((a,), (a,), frozenset({(0, 0)})) == -1
    assert clash((a[1:],), (a[:-1],)) == -1
    assert clash((a[::2],), (a[1::2],)) in (0, -1)


def test_threads_share_no_scratch(launch, rng):
    call = launch("softmax", F32, 2)
    inputs = [call.operands(rng, (64, 500)) for _ in range(4)]
    want = [call(x, (64, 500))[0] for x in inputs]
    wrong = []

    def work(i):
        wrong.extend(i for _ in range(30) if not np.array_equal(call(inputs[i], (64, 500))[0], want[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
