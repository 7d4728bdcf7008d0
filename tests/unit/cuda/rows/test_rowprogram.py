"""What depends on arrays and not on the op: shared memory, odd addresses, other shapes, launches in pieces, flags."""

from itertools import islice
from typing import Any

import numpy as np
import pytest
from trueno.errors import KernelError
from trueno.ops.op import TABLE, op
from trueno.programs import language as lang
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.rows import rowprogram
from trueno_cuda.rows.rowprogram import RowKernel, kernel, refusal
from unit.cuda.rows.calls import Inside, judged, key, results, run

F = np.float32


@pytest.fixture
def device() -> Emulator:
    return Emulator("sm_90")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(17)


def declared(signature: str, body: Any, over: str | None = "n") -> Any:
    """An op that is in no table."""
    made = op(signature, over=over)(body)
    del TABLE[made.name]
    return made


# ---- memory that is shared, or begins anywhere -------------------------------------------------------------


@pytest.mark.parametrize("name, schedule", [("silu", ""), ("softmax", "held32"), ("softmax", "swept32x1")])
def test_in_place(device: Emulator, rng: np.random.Generator, name: str, schedule: str) -> None:
    x = rng.uniform(-2, 2, (3, 200)).astype(F)
    (want,) = run(device, key(name), [x], schedule=schedule)
    array = device.to_device(x)
    assert RowKernel(device, key(name), schedule)(array, array) == 0
    np.testing.assert_array_equal(device.to_host(array), want)


def test_results_that_overlap_something_are_left_alone(device: Emulator, rng: np.random.Generator) -> None:
    whole = device.to_device(rng.uniform(-2, 2, (4, 8)).astype(F))
    before = device.to_host(whole)
    part = [Inside((3, 8), F, whole.data.ptr + 32 * i) for i in range(2)]
    assert RowKernel(device, key("neg"))(part[0], part[1]) == -1
    assert RowKernel(device, key("neg"))(part[1], part[0]) == -1
    made = RowKernel(device, key("residual_rms_norm"))
    w = device.to_device(np.ones(8, F))
    assert made(part[0], part[0], w, 1e-6, part[0], part[0]) == -1  # two results in one place
    row = Inside((1, 8), F, w.data.ptr)
    assert RowKernel(device, key("add", "ew"))(row, w, row) == -1  # other rows would read what one wrote
    np.testing.assert_array_equal(device.to_host(whole), before)
    np.testing.assert_array_equal(device.to_host(w), 1)


def test_a_result_that_an_operand_is_still_needed_after(device: Emulator, rng: np.random.Generator) -> None:
    """The first result is written before the sweep that reads x again."""
    made = declared("x[...,n] y[...,n] -> a[...,n] b[...,n]", lambda x, y: (y + 1.0, x - lang.mean(y) - x * x))
    x, y = (rng.uniform(-1, 1, (2, 100)).astype(F) for _ in range(2))
    want = run(device, key(made), [x, y], schedule="swept32x1")
    a, b, other = device.to_device(x), device.to_device(y), device.empty((2, 100), np.dtype(F))
    assert RowKernel(device, key(made), "swept32x1")(a, b, a, other) == -1
    np.testing.assert_array_equal(device.to_host(a), x)
    assert RowKernel(device, key(made), "swept32x1")(a, b, b, other) == 0  # y is read for the last time before
    np.testing.assert_array_equal(device.to_host(b), want[0])
    np.testing.assert_array_equal(device.to_host(other), want[1])


@pytest.mark.parametrize("name", ["add", "softmax", "argmax"])
def test_addresses_that_no_vector_may_have(device: Emulator, rng: np.random.Generator, name: str) -> None:
    call = key(name)
    operands = [rng.uniform(-2, 2, (3, 64)).astype(F) for _ in call.op.operands]
    want = run(device, call, operands)
    for shifted in range(len(operands) + 1):
        arrays: list[Any] = [device.to_device(x) for x in operands]
        (shape, dtype), item = results(call, operands)[0], np.dtype(results(call, operands)[0][1]).itemsize
        rooms = [device.to_device(np.zeros(x.size + 1, F)) for x in operands]
        if shifted < len(operands):
            rooms[shifted].elements[1:] = operands[shifted].reshape(-1)
            arrays[shifted] = Inside(operands[shifted].shape, F, rooms[shifted].data.ptr + 4)
        room = device.to_device(np.zeros(int(np.prod(shape)) + 1, dtype))
        out = Inside(shape, dtype, room.data.ptr + (item if shifted == len(operands) else 0))
        assert RowKernel(device, call)(*arrays, out) == 0
        got = room.elements[1:] if shifted == len(operands) else room.elements[:-1]
        np.testing.assert_allclose(got.reshape(shape), want[0], rtol=1e-6)


# ---- shapes ------------------------------------------------------------------------------------------------


def test_shapes_that_do_not_agree(device: Emulator) -> None:
    def array(*shape: int) -> Any:
        return device.to_device(np.ones(shape, F))

    add = RowKernel(device, key("add", "ew"))
    assert add(array(2, 5), array(4), array(2, 5)) == -1
    assert add(array(2, 5), array(5), array(2, 4)) == -1
    assert add(array(5), array(5), array(2, 5)) == -1
    assert RowKernel(device, key("sum"))(array(2, 5), array(3)) == -1
    assert add(array(0, 5), array(5), array(0, 5)) == 0
    assert RowKernel(device, key("sum"))(array(2, 0), array(2)) == -1


def test_one_row_and_one_value(device: Emulator, rng: np.random.Generator) -> None:
    x = rng.uniform(-1, 1, 50).astype(F)
    out = device.empty((), np.dtype(F))
    assert RowKernel(device, key("sum", rank=1))(device.to_device(x), out) == 0
    np.testing.assert_allclose(device.to_host(out), x.astype(np.float64).sum(), rtol=1e-6)
    made = RowKernel(device, key("mul", "eu", rank=1))
    out = device.empty((50,), np.dtype(F))
    assert made(device.to_device(x), device.to_device(np.asarray(3, F)), out) == 0
    np.testing.assert_array_equal(device.to_host(out), x * F(3))


@pytest.mark.parametrize("layout", ["ee", "ew", "er", "eu"])
@pytest.mark.parametrize("most", [64, 24])
def test_more_elements_than_a_launch_has(
    device: Emulator, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, layout: str, most: int
) -> None:
    monkeypatch.setattr(rowprogram, "MOST", most)
    shapes = {"e": (7, 40), "w": (40,), "r": (7,), "u": ()}
    operands = [rng.uniform(-1, 1, shapes[kind]).astype(F) for kind in layout]
    judged(device, "sub", operands, layout=layout)


@pytest.mark.parametrize("by_row", [False, True])
def test_ranges_cover_what_no_launch_holds(by_row: bool) -> None:
    for rows, n in ((3, (1 << 31) + 5), (1 << 31, 3), (1, 1 << 30), (5, (1 << 30) + 1), (1 << 16, 1 << 16)):
        at = 0
        for row, column, count, pitch in islice(rowprogram._ranges(rows, n, by_row), 10_000):
            assert row * n + column == at
            assert 0 < count <= rowprogram.MOST
            assert not by_row or (column + min(count, pitch) <= n and (pitch == n or count == pitch))
            at += count
        assert at == rows * n


def test_another_architecture(rng: np.random.Generator) -> None:
    for arch in ("sm_80", "sm_90a"):
        judged(Emulator(arch), "softmax", [rng.uniform(-2, 2, (2, 300)).astype(F)])


def test_a_row_too_long(device: Emulator) -> None:
    long = Inside((1, 1 << 32), F, 0)
    with pytest.raises(KernelError, match=r"sum on cuda: rows of 4294967296 elements; 4293918720 is the most"):
        RowKernel(device, key("sum"))(long, Inside((1,), F, 0))


def test_what_is_refused(device: Emulator) -> None:
    truths = declared("x[...,n] -> t[...,n]", lambda x: x > 0.0)
    reject = refusal(key(truths))
    assert reject is not None
    assert reject.code == "unsupported_op"
    with pytest.raises(KernelError, match="gives truth values"):
        kernel(device, key(truths))


def test_a_second_call_prepares_nothing(device: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    made, x = RowKernel(device, key("sum"), "long32x1"), device.to_device(np.ones((1, 300), F))
    out = device.empty((1,), np.dtype(F))
    assert made(x, out) == 0
    monkeypatch.setattr(device, "prepare", None)
    assert made(x, out) == 0
    assert device.to_host(out)[0] == 300


# ---- flags -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F, np.float64])
@pytest.mark.parametrize("schedule", ["held8", "held64", "swept32x1", "long32x1"])
@pytest.mark.parametrize("edge, bits", [(0.0, 0), (np.nan, 1), (np.inf, 3), (3e38, 2)])
def test_flags_of_rows(device: Emulator, schedule: str, edge: float, bits: int, dtype: type) -> None:
    """x · x overflows in the sum alone; +Inf gives Inf − Inf, too."""
    body = declared("x[...,n] -> a[...,n] b[...]", lambda x: (x - lang.max(x), lang.sum(x)))
    x = np.zeros((2, 40), dtype)
    x[1, 17:20] = edge if edge != 3e38 else np.finfo(dtype).max
    run(device, key(body, dtype=dtype, guarded=True), [x], schedule=schedule)
    assert device.take_status() == bits
    assert device.take_status() == 0


@pytest.mark.parametrize("n", [40, 41])
def test_flags_of_elements(device: Emulator, n: int) -> None:
    """Lanes beyond the end compute 1/0, and that Inf does not count."""
    x = np.ones((3, n), F)
    for edge, bits in ((2.0, 0), (0.0, 2), (np.nan, 1)):
        x[2, n - 1] = edge
        (got,) = run(device, key("recip", guarded=True), [x])
        with np.errstate(divide="ignore"):
            np.testing.assert_array_equal(got, 1 / x)
        assert device.take_status() == bits
