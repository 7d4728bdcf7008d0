"""Element kinds that IEEE 754 defines to the last bit, comparisons, choices and casts in PTX, against NumPy."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from seeds import fresh_seed
from trueno.programs.evaluate import ELEMENT_FUNCTIONS
from trueno.programs.program import ELEMENTS
from trueno_cuda.ptx import Type, f32, f64, kernel, ptr, u32
from trueno_cuda.ptx.emulate import load
from trueno_cuda.rows.expressions import EXPRESSIONS, SINGLE
from unit.cuda.rows.elementary import DTYPES, Array, element, random_bits, run

BOTH = pytest.mark.parametrize("dtype", [f32, f64], ids=str)
EXACT = sorted(set(ELEMENTS) - set(SINGLE) - {"fma", "where", "cast"})


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A fresh seed each run; pytest shows it when a test fails."""
    seed = fresh_seed()
    print(f"seed {seed} of {request.node.name}")
    return np.random.default_rng(seed)


def operands(rng: np.random.Generator, dtype: Type, arity: int) -> list[Array]:
    """Any bits, halves of small integers, and all pairs (triples) of special numbers."""
    info = np.finfo(DTYPES[dtype])
    tiny, least, most = float(info.tiny), float(info.smallest_subnormal), float(info.max)
    special = np.array([0, -0.0, 1, -1, 0.5, -0.5, np.inf, -np.inf, np.nan, tiny, -tiny, least, -least, most, -most])
    grid = [g.ravel() for g in np.meshgrid(*[special] * arity)]
    small = [rng.integers(-20, 20, 500) * 0.5 for _ in range(arity)]
    parts = [[s.astype(DTYPES[dtype]), random_bits(rng, dtype, 1500), g.astype(DTYPES[dtype])]
             for s, g in zip(small, grid, strict=True)]  # fmt: skip
    return [np.concatenate(p) for p in parts]


@BOTH
@pytest.mark.parametrize("kind", EXACT)
def test_the_same_as_numpy(rng: np.random.Generator, kind: str, dtype: Type) -> None:
    arrays = operands(rng, dtype, ELEMENTS[kind].arity)
    with np.errstate(all="ignore"):
        want = ELEMENT_FUNCTIONS[kind](*arrays).astype(DTYPES[dtype])
    got = run(element(kind, dtype), *arrays)
    np.testing.assert_array_equal(got, want)
    if kind not in ("maximum", "minimum"):  # of +0 and -0 either
        number = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(want[number]))


@BOTH
def test_fma_rounds_once(rng: np.random.Generator, dtype: Type) -> None:
    """a · b - fl(a · b) is a float, and is lost where the product is rounded first."""
    kind = DTYPES[dtype]
    a, b = (rng.uniform(-2, 2, 500).astype(kind) for _ in range(2))
    p = a * b
    want = [
        float(Fraction(x) * Fraction(y) - Fraction(z))
        for x, y, z in zip(*map(np.ndarray.tolist, (a, b, p)), strict=True)
    ]
    got = run(element("fma", dtype), a, b, -p)
    np.testing.assert_array_equal(got, np.array(want, kind))
    assert np.count_nonzero(got) > 400


def built(dtype: Type, count: int, body: Any) -> Any:
    """Runs `body(k, values)`, a value, over arrays."""

    @kernel(threads=128)
    def some(k: Any, a: ptr(dtype), b: ptr(dtype), out: ptr(dtype), n: u32) -> None:
        i = k.ctaid * 128 + k.tid
        with k.when(i < n):
            out.store(i, body(k, a.load(i), b.load(i)))

    made = some.build(arch="sm_80")

    def call(a: Array, b: Array) -> Array:
        out = np.full_like(a, 12345)
        report = load(made.text).launch(made.name, -(-count // 128), 128, [a, b, out, count])
        assert not report.findings, report
        return out

    return call


@BOTH
def test_choices(rng: np.random.Generator, dtype: Type) -> None:
    """`where` with a truth value and with a number for one, of numbers and of truth values; Python numbers too."""
    where, cast, less = (EXPRESSIONS[kind] for kind in ("where", "cast", "lt"))
    a, b = operands(rng, dtype, 2)
    cases = [
        (lambda k, x, y: where(k, less(k, x, y), x, y), np.where(a < b, a, b)),
        (lambda k, x, y: where(k, x, y, 3.0), np.where(a != 0, b, 3)),
        (lambda k, x, y: where(k, less(k, x, 1.0), -np.inf, y), np.where(a < 1, -np.inf, b)),
        (
            lambda k, x, y: cast(k, where(k, less(k, x, y), less(k, x, 0.0), less(k, 0.0, y)), dtype),
            np.where(a < b, a < 0, b > 0),
        ),
    ]
    for body, want in cases:
        np.testing.assert_array_equal(built(dtype, a.size, body)(a, b), want.astype(a.dtype))


@BOTH
def test_truth_values_join(rng: np.random.Generator, dtype: Type) -> None:
    e = EXPRESSIONS
    a, b = operands(rng, dtype, 2)
    cases = [
        (lambda k, x, y: e["and"](k, e["isnan"](k, x), e["not"](k, e["isinf"](k, y))), np.isnan(a) & ~np.isinf(b)),
        (lambda k, x, y: e["or"](k, e["ge"](k, x, y), e["ne"](k, y, y)), (a >= b) | np.isnan(b)),
    ]
    for body, want in cases:
        call = built(dtype, a.size, lambda k, x, y, body=body: e["cast"](k, body(k, x, y), dtype))
        np.testing.assert_array_equal(call(a, b), want.astype(a.dtype))


@BOTH
def test_casts_of_positions(dtype: Type) -> None:
    """Whole numbers are rounded to nearest."""
    a = np.zeros(300, DTYPES[dtype])
    big = 2**24 + 1  # not a float32
    got = built(dtype, 300, lambda k, x, y: EXPRESSIONS["cast"](k, k.tid + big, dtype))(a, a)
    np.testing.assert_array_equal(got, (np.arange(300) % 128 + big).astype(DTYPES[dtype]))


def test_products_and_sums_may_be_contracted() -> None:
    """No rounding mode is named, so ptxas may make one fma of two; see the judge's rules."""
    for dtype in (f32, f64):
        for kind in ("add", "sub", "mul"):
            assert f"{kind}.{dtype} " in element(kind, dtype).text
