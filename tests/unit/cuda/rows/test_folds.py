"""Folds where they are hard: NaN, infinities, ties, signed zeros, rows of nothing but -Inf, sums that cancel."""

import numpy as np
import pytest
from trueno_cuda.device.emulated import Emulator
from unit.cuda.rows.calls import judged

SCHEDULES = ("held8", "held64", "swept32x1", "long32x1")
INF, NAN = np.inf, np.nan


@pytest.fixture(scope="module")
def device() -> Emulator:
    return Emulator("sm_90")


def rows(n: int, dtype: type) -> np.ndarray:
    """Rows of n elements, an edge each."""
    rng = np.random.default_rng(n)
    x = rng.uniform(-1, 1, (10, n)).astype(dtype)
    x[0] = -INF
    x[1] = INF
    x[2, [n // 3, n // 2]] = NAN
    x[3, [n // 2, n - 1]] = 5  # the first of equals
    x[4, [n // 2, n - 1]] = -5
    x[5, [0, n - 1]] = INF, NAN
    x[6, [0, n - 1]] = INF, -INF
    x[7] = -0.0
    x[8] = 0
    x[8, n - 2] = NAN
    x[9] = -INF
    x[9, n - 1] = -1e30
    return x


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("op", ["max", "min", "argmax", "argmin", "sum", "sum_kahan"])
def test_edges(device: Emulator, op: str, schedule: str, dtype: type) -> None:
    for n in (32, 31) if schedule == "held8" else (300, 301):
        x = rows(n, dtype)
        (got,) = judged(device, op, [x], schedule=schedule)
        if op.startswith("arg") or op in ("max", "min"):
            np.testing.assert_array_equal(got, getattr(np, op)(x, axis=1))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_truth_and_products(device: Emulator, schedule: str) -> None:
    """No op of the table has these folds."""
    from trueno.ops.op import TABLE, op
    from trueno.programs import language as lang

    def truths(x):
        some, every = lang.any(x > 0.5), lang.all(x)
        return lang.where(some, 1.0, 0.0) + lang.where(every, 2.0, 0.0), lang.prod(x)

    truths.__name__ = "truths_" + schedule
    made = op("x[...,n] -> r[...] p[...]", over="n")(truths)
    del TABLE[made.name]
    n = 40 if schedule == "held8" else 300
    rng = np.random.default_rng(3)
    x = rng.uniform(-0.5, 0.5, (5, n)).astype(np.float32) + np.float32(1)
    x[0] = 0
    x[1, 7] = 0
    x[2] = 0.25
    x[3, n - 1] = NAN
    x[4, 0] = -1
    truth, _ = judged(device, made, [x], schedule=schedule)
    np.testing.assert_array_equal(truth, [(v > 0.5).any() + 2.0 * v.all() for v in x])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_compensated_sum_that_cancels(device: Emulator, schedule: str, dtype: type) -> None:
    rng = np.random.default_rng(5)
    n = 60 if schedule == "held8" else 1000
    x = rng.uniform(0, 1, (2, n)).astype(dtype)
    x[:, ::3] *= 1e6
    x[:, 1::3] = -x[:, ::3][:, : x[:, 1::3].shape[1]]
    judged(device, "sum_kahan", [x], schedule=schedule)


@pytest.mark.parametrize("schedule", ["swept32x1", "long32x2"])
def test_a_chain_is_short_however_long_the_row(device: Emulator, schedule: str) -> None:
    """Ones after a large number: plain addition in order would lose every one of them."""
    n = 20_000
    x = np.ones((1, n), np.float32)
    x[0, 0] = 2**24
    (got,) = judged(device, "sum", [x], schedule=schedule)
    assert abs(float(got[0]) - (2**24 + n - 1)) <= 32
