"""The judge judged: it never rejects a right evaluation, and it catches planted faults."""

from typing import Any

import numpy as np
import pytest
from trueno.discovery.protocol import Accuracy
from trueno.judge.bound import bound, judge
from trueno.judge.interval import Range
from trueno.judge.structured import judge_structured, structured_bound
from trueno.ops import TABLE
from trueno.programs import language as lang
from trueno.programs.evaluate import evaluate
from trueno.programs.trace import trace
from trueno.testing.case import keywords
from trueno.testing.cases import grid
from trueno.testing.expected import split

PROGRAMS = [op for op in TABLE.values() if not op.structured]
F32 = np.dtype(np.float32)


def rows(rng: np.random.Generator, n: int = 257) -> Any:
    """Rows scaled by 1e-6 … 1e6: a wrong eps hides at scale 1."""
    scales = 10.0 ** np.array([-6, -4, -2, 0, 2, 4, 6])
    return (rng.standard_normal((7, n)) * scales[:, None]).astype(np.float32)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", PROGRAMS, ids=lambda op: op.name)
def test_right_evaluations_pass(op: Any, dtype: str, seed: int) -> None:
    """NumPy in the op's own dtype is a right kernel, on hard rows too; and the meaning is inside its bound."""
    rng = np.random.default_rng([seed, *op.name.encode()])
    for options in keywords(op):
        params, static = split(op, options)
        program = op.program(**static)
        for n in (1, 2, 3, 9, 65, 300):
            operands = grid(op, np.dtype(dtype), rng, n)
            got = evaluate(program, operands, params, dtype)
            for g, b in zip(got, bound(program, operands, params, dtype, Accuracy(default=4)), strict=True):
                assert judge(g, b), f"n={n}, seed {seed}: {judge(g, b)}"
                if b.allowed is None:
                    inside = np.where(np.isnan(b.value), b.nan, (b.value >= b.low) & (b.value <= b.high))
                    assert inside.all()


@pytest.mark.parametrize("op", PROGRAMS, ids=lambda op: op.name)
def test_wider_and_fused_arithmetic_passes(op: Any) -> None:
    """A kernel may keep more digits inside: float64 rounded once at the end is right as well."""
    rng = np.random.default_rng(5)
    params, static = split(op, keywords(op)[0])
    program = op.program(**static)
    operands = grid(op, F32, rng, 33)
    params = tuple(float(np.float32(p)) for p in params)
    with np.errstate(all="ignore"):
        wider = evaluate(program, operands, params, np.float64)
        got = [g if g.dtype.kind == "i" else g.astype(np.float32) for g in wider]
    for g, b in zip(got, bound(program, operands, params, F32), strict=True):
        # Where float32 must overflow inside and float64 does not, results may differ.
        wide = np.asarray(g, np.float64)
        other = np.isinf(b.low) | np.isinf(b.high) | (b.low > b.high) | b.nan | (b.allowed is not None)
        assert (other | ((wide >= b.low) & (wide <= b.high))).all()


def gelu(x: Any, cubic: float, root: float) -> Any:
    u = root * (x + cubic * (x * x * x))
    return x / (1.0 + lang.exp(-2.0 * u))


def wrong_constant(cubic: float = 0.044715, root: float = 0.7978845608028654) -> Any:
    return trace(lambda x: gelu(x, cubic, root), [("x", "e")], [], {})


def verdict_on(name: str, operands: list[Any], got: Any, params: tuple[float, ...] = ()) -> Any:
    op = TABLE[name]
    values = params or split(op, {})[0]
    (b,) = bound(op.program(), operands, values, np.float32, Accuracy(default=4))
    return judge(got, b)


@pytest.mark.parametrize("fault", [{"cubic": 0.044716}, {"root": 0.797885}])
def test_a_wrong_constant_is_caught(fault: dict[str, float]) -> None:
    x = rows(np.random.default_rng(1))
    (right,) = evaluate(wrong_constant(), [x], [], np.float32)
    (wrong,) = evaluate(wrong_constant(**fault), [x], [], np.float32)
    np.testing.assert_allclose(wrong, right, rtol=1e-4, atol=1e-5)  # which is what a usual test would do
    assert verdict_on("gelu", [x], right)
    assert not verdict_on("gelu", [x], wrong)


@pytest.mark.parametrize("name", ["rms_norm", "layer_norm"])
def test_a_missing_eps_is_caught(name: str) -> None:
    rng = np.random.default_rng(2)
    x = rows(rng)
    operands = [x, *(np.float32(rng.standard_normal(x.shape[1])) for _ in TABLE[name].operands[1:])]
    program = TABLE[name].program()
    (right,) = evaluate(program, operands, split(TABLE[name], {})[0], np.float32)
    (wrong,) = evaluate(program, operands, [0.0], np.float32)
    assert verdict_on(name, operands, right)
    assert not verdict_on(name, operands, wrong)


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("name", ["max", "add", "relu", "clamp"])
def test_exact_ops_tolerate_no_ulp(name: str, k: int) -> None:
    rng = np.random.default_rng(3)
    x = rows(rng)
    operands = [x] if name != "add" else [x, rows(rng)]
    params = split(TABLE[name], keywords(TABLE[name])[0])[0]
    (got,) = evaluate(TABLE[name].program(), operands, params, np.float32)
    assert verdict_on(name, operands, got, params)
    wrong = got.copy()
    where = np.unravel_index(np.argmax(wrong), wrong.shape)
    for _ in range(k):
        wrong[where] = np.nextafter(wrong[where], np.float32(np.inf))
    assert not verdict_on(name, operands, wrong, params)


def test_a_dropped_element_is_caught() -> None:
    """The last one of a row: the classical mistake of a tail loop."""
    x = np.abs(rows(np.random.default_rng(4), 1023)) + np.float32(1e-7)
    assert verdict_on("sum", [x], x.sum(axis=1))
    assert not verdict_on("sum", [x], x[:, :-1].sum(axis=1))
    assert not verdict_on("norm_l2", [x], np.sqrt((x[:, :-1] ** 2).sum(axis=1)))
    assert not verdict_on("mean", [x], x[:, :-1].mean(axis=1))


def test_a_naive_long_sum_is_caught() -> None:
    """A chain as long as the row is outside what a backend states, and what `Accuracy.chain` is for."""
    x = np.full((1, 1_000_000), 0.1, np.float32)
    naive = np.cumsum(x, axis=1, dtype=np.float32)[:, -1]
    assert not verdict_on("sum", [x], naive)
    assert verdict_on("sum", [x], x.sum(axis=1))


def test_nan_and_infinity_must_be_there() -> None:
    x = np.array([[np.nan, 1.0, np.inf, -np.inf]], np.float32)
    (right,) = evaluate(TABLE["exp"].program(), [x], [], np.float32)
    assert verdict_on("exp", [x], right)
    for i, wrong in ((0, 0.0), (0, np.inf), (1, np.nan), (2, np.nan), (2, 3.4e38), (3, 1e-45)):
        got = right.copy()
        got[0, i] = wrong
        assert not verdict_on("exp", [x], got), (i, wrong)
    assert not verdict_on("max", [x], np.float32([np.inf]))
    assert verdict_on("max", [x], np.float32([np.nan]))
    assert not verdict_on("softmax", [x], np.zeros_like(x))


def test_zero_over_zero_is_nan() -> None:
    assert verdict_on("normalize", [np.zeros((1, 3), np.float32)], np.full((1, 3), np.nan, np.float32))
    assert not verdict_on("normalize", [np.zeros((1, 3), np.float32)], np.zeros((1, 3), np.float32))


def test_reciprocals_of_zeros() -> None:
    x = np.array([[0.0, -0.0]], np.float32)
    assert verdict_on("recip", [x], np.float32([[np.inf, -np.inf]]))
    assert not verdict_on("recip", [x], np.float32([[-np.inf, -np.inf]]))
    assert not verdict_on("recip", [x], np.float32([[np.inf, np.nan]]))


def test_products_with_a_zero_of_unknown_sign() -> None:
    """max(−1, 0) may be either zero, and so may what is multiplied with it or divided by a number."""
    unknown = Range(np.array([[-0.0]]), np.array([[0.0]]), np.array([[False]]))
    for name in ("mul", "div"):
        for other in (-2.0, 2.0):
            program = TABLE[name].program("eu")
            (interval,) = bound(program, [np.zeros((1, 1)), np.array(other)], [], np.float32, known={"x": unknown})
            assert np.signbit(interval.low[0, 0]) and not np.signbit(interval.high[0, 0]), (name, other)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_arguments(name: str) -> None:
    x = np.float32([[0, 2, 2, 0, 0], [np.nan, 3, np.nan, 1, 1], [np.inf, np.inf, 0, -np.inf, -np.inf], [-np.inf] * 5])
    first = {"argmax": [1, 0, 0, 0], "argmin": [0, 0, 3, 0]}[name]
    assert verdict_on(name, [x], np.array(first))
    for row, wrong in ((0, 2 if name == "argmax" else 4), (1, 2), (1, 1), (2, 1 if name == "argmax" else 4), (3, 4)):
        got = np.array(first)
        got[row] = wrong
        assert not verdict_on(name, [x], got), (row, wrong)
    got = np.array(first)
    got[0] = 5
    assert not verdict_on(name, [x], got)


def test_an_undecided_argument_may_fall_either_way() -> None:
    program = trace(lambda x: lang.argmax(lang.exp(x)), [("x", "e")], [], {})
    x = np.float32([[1.0, np.nextafter(np.float32(1), np.float32(2)), 0.5]])
    (b,) = bound(program, [x], [], np.float32, Accuracy(default=4))
    assert judge(np.array([0]), b) and judge(np.array([1]), b) and not judge(np.array([2]), b)


def test_a_tail_off_by_one_is_caught() -> None:
    x = rows(np.random.default_rng(6), 65)
    (got,) = evaluate(TABLE["tanh"].program(), [x], [], np.float32)
    wrong = got.copy()
    wrong[:, -1] = got[:, -2]
    assert not verdict_on("tanh", [x], wrong)


def test_undecided_branches_allow_both_and_no_more() -> None:
    program = trace(lambda x: lang.where(lang.exp(x) > 2.718281828, x + 10.0, x), [("x", "e")], [], {})
    (b,) = bound(program, [np.float32([[1.0, 2.0, 0.5]])], [], np.float32, Accuracy(default=4))
    for got in ([11.0, 12.0, 0.5], [1.0, 12.0, 0.5]):
        assert judge(np.float32([got]), b)
    for got in ([11.1, 12.0, 0.5], [11.0, 2.0, 0.5], [11.0, 12.0, 10.5]):
        assert not judge(np.float32([got]), b)


def test_overflow_inside_is_said_not_hidden() -> None:
    """e⁻ˣ overflows at x = −100, and 1/(1 + Inf) is still judged: 0, or the subnormal 3.8e-44."""
    x = np.float32([[-100.0, -1000.0]])
    program = trace(lambda x: 1.0 / (1.0 + lang.exp(-x)), [("x", "e")], [], {})
    (b,) = bound(program, [x], [], np.float32)
    assert not b.free.any()
    assert judge(np.float32([[3.8e-44, 0.0]]), b) and judge(np.float32([[0.0, 0.0]]), b)
    assert not judge(np.float32([[1e-40, 0.0]]), b)
    (b,) = bound(TABLE["sum"].program(), [np.float32([[3e38, 3e38, -3e38]])], [], np.float32)
    assert judge(np.float32([np.inf]), b) and judge(np.float32([3e38]), b) and not judge(np.float32([-3e38]), b)


def test_flushing_needs_to_be_stated() -> None:
    x = np.float32([[1e-40, 1.0]])
    flushed = np.float32([[0.0, 2.0]])
    program = TABLE["scale"].program()
    assert not judge(flushed, bound(program, [x], [2.0], np.float32)[0])
    assert judge(flushed, bound(program, [x], [2.0], np.float32, Accuracy(subnormals=False))[0])


def test_structured_ops() -> None:
    rng = np.random.default_rng(7)
    a, b = np.float32(rng.standard_normal((33, 65))), np.float32(rng.standard_normal((65, 31)))
    op = TABLE["matmul"]
    right = a @ b
    assert judge_structured(op, [a, b], {}, np.float32, [right])
    wrong = a[:, :-1] @ b[:-1]
    assert not judge_structured(op, [a, b], {}, np.float32, [wrong])
    half = (a.astype(np.float16) @ b.astype(np.float16)).astype(np.float32)
    assert not judge_structured(op, [a, b], {}, np.float32, [half])
    (exact,) = structured_bound(TABLE["transpose"], [a], {}, np.float32)
    assert (exact.low == exact.high).all()


def test_eigenvectors() -> None:
    rng = np.random.default_rng(8)
    a = rng.standard_normal((20, 20)).astype(np.float32)
    a = (a + a.T) / 2
    values, vectors = np.linalg.eigh(a)
    op = TABLE["symmetric_eigen"]
    good = [values[::-1], vectors[:, ::-1]]
    assert judge_structured(op, [a], {}, np.float32, good)
    assert not judge_structured(op, [a], {}, np.float32, [values, vectors])
    bent = vectors[:, ::-1].copy()
    bent[0, 3] += 1e-3
    assert not judge_structured(op, [a], {}, np.float32, [values[::-1], bent])
