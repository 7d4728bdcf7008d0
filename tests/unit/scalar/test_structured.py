"""Structured ops within the bound of their chain of products, and what they refuse."""

import numpy as np
import pytest
from trueno.discovery.protocol import Call
from trueno.judge.structured import judge_structured
from trueno.ops import TABLE
from trueno_scalar.backend import ScalarBackend
from trueno_scalar.kernels import KERNELS

DTYPES = [np.float32, np.float64]
CASES = {
    "matmul": [((31, 17), (17, 9), (31, 9)), ((3, 0), (0, 9), (3, 9)), ((1, 1), (1, 1), (1, 1))],
    "matvec": [((31, 17), (17,), (31,)), ((4, 0), (0,), (4,))],
    "vecmat": [((31,), (31, 7), (7,))],
    "batched_matmul": [((2, 5, 31, 17), (2, 5, 17, 9), (2, 5, 31, 9)), ((2, 1, 3, 4), (3, 4, 5), (2, 3, 3, 5))],
    "outer": [((30,), (7,), (30, 7)), ((1,), (1,), (1, 1))],
    "transpose": [((301, 77), (77, 301)), ((1, 5), (5, 1)), ((16, 16), (16, 16))],
}
CONVOLUTIONS = [
    ((40, 50), (3, 4)),
    ((5, 5), (5, 5)),
    ((600, 700), (3, 3)),
    ((5, 60, 70), (6, 5, 5, 2)),
    ((0, 6, 6), (2, 0, 3, 3)),
]


def run(op, operands, shapes, dtype, guarded=False, **static):
    call = Call(TABLE[op], np.dtype(dtype), "", operands[0].ndim, (1,), tuple(static.items()), "host", guarded)
    outs = [np.full(s, np.nan, dtype) for s in shapes]
    return ScalarBackend().kernel(call)(*operands, *outs), outs


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op, shapes", [(op, case) for op, cases in CASES.items() for case in cases], ids=str)
def test_products_and_copies(op, shapes, dtype, rng):
    operands = [rng.standard_normal(s).astype(dtype) for s in shapes[:-1]]
    status, outs = run(op, operands, shapes[-1:], dtype)
    assert status == 0
    assert (verdict := judge_structured(TABLE[op], operands, {}, dtype, outs)), str(verdict)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["valid", "same"])
@pytest.mark.parametrize("x, kernel", CONVOLUTIONS, ids=str)
def test_convolution(x, kernel, mode, dtype, rng):
    operands = [rng.standard_normal(s).astype(dtype) for s in (x, kernel)]
    size = x[-2:] if mode == "same" else tuple(a - b + 1 for a, b in zip(x[-2:], kernel[-2:], strict=True))
    status, outs = run("convolve2d", operands, [(*kernel[:-3], *size)], dtype, mode=mode)
    assert status == 0
    assert (verdict := judge_structured(TABLE["convolve2d"], operands, {"mode": mode}, dtype, outs)), str(verdict)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("indices", [np.int64, np.int32, np.uint8])
def test_embedding_lookup(indices, dtype, rng):
    table = rng.standard_normal((30, 7)).astype(dtype)
    i = rng.integers(0, 30, (4, 5)).astype(indices)
    status, (y,) = run("embedding_lookup", [table, i], [(4, 5, 7)], dtype)
    assert status == 0
    np.testing.assert_array_equal(y, table[i])
    for bad in 30, -1:
        i = np.zeros((4, 5), np.int64)
        i[2, 2] = bad
        status, (y,) = run("embedding_lookup", [table, i], [(4, 5, 7)], dtype)
        assert status == -1 and np.isnan(y).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [0, 1, 2, 30])
def test_symmetric_eigen(n, dtype, rng):
    a = rng.standard_normal((n, n)).astype(dtype)
    a = (a + a.T) / 2
    status, outs = run("symmetric_eigen", [a], [(n,), (n, n)], dtype)
    assert status == 0
    assert (verdict := judge_structured(TABLE["symmetric_eigen"], [a], {}, dtype, outs)), str(verdict)
    assert (np.diff(outs[0]) <= 0).all()


def test_nothing_is_written_where_shapes_do_not_fit(rng):
    a = rng.standard_normal((4, 5)).astype(np.float32)
    for op, operands, shape in (
        ("matmul", [a, a], (4, 5)),
        ("matmul", [a, a.T.copy()], (4, 5)),
        ("matmul", [a, a.T.astype(np.float64)], (4, 4)),
        ("matvec", [a, a[:, 0].copy()], (4,)),
        ("batched_matmul", [a[None], np.stack([a.T] * 3)[:, :4]], (3, 4, 4)),
        ("convolve2d", [a, np.ones((5, 1), np.float32)], (1, 5)),
        ("convolve2d", [a[None], np.ones((1, 1), np.float32)], (1, 4, 5)),
        ("symmetric_eigen", [a], (4,)),
    ):
        status, (y, *_) = run(op, operands, [shape], np.float32)
        assert status == -1 and np.isnan(y).all(), op


def test_a_result_over_an_operand_is_refused(rng):
    a = rng.standard_normal((4, 4)).astype(np.float32)
    before = a.copy()
    for op, count in ("transpose", 1), ("matmul", 2):
        call = Call(TABLE[op], a.dtype, "", 2, (3, 3))
        assert ScalarBackend().kernel(call)(*[a] * count, a) == -1
        np.testing.assert_array_equal(a, before)


def test_guarded(rng):
    a = rng.standard_normal((6, 6)).astype(np.float32)
    assert run("matmul", [a, a], [(6, 6)], np.float32, guarded=True)[0] == 0
    a[0, 0] = np.inf
    assert run("transpose", [a], [(6, 6)], np.float32, guarded=True)[0] == 2
    a[0, 1] = np.nan
    assert run("transpose", [a], [(6, 6)], np.float32, guarded=True)[0] == 3


def test_unknown_structured_ops_are_rejected():
    class Unknown:
        structured = True
        name = "unheard_of"

        @property
        def table_op(self):
            return self

    refused = ScalarBackend().supports(Call(Unknown(), np.dtype(np.float32), "", 2, (1,)))
    assert refused is not None and refused.code == "unsupported_op"
    assert all(TABLE[name].structured for name in KERNELS)
