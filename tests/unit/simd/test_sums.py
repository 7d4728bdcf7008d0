"""Sums of like numbers, where every addition of a lane rounds the same way, and of random ones.

Errors are in units of the last place of the exact sum, and so must hold at every length.
"""

import math
import os
from fractions import Fraction

import numpy as np
import pytest
import trueno

pytest.importorskip("numba")
from seeds import fresh_seed
from trueno_simd.llvm import isa

SEED = int(os.environ.get("SUMS_SEED", "0")) or fresh_seed(__name__)
SUMS = {
    "sum": (lambda x: (x,), lambda v: v),
    "dot": (lambda x: (x, x), lambda v: v * v),
    "sum_of_squares": (lambda x: (x,), lambda v: v * v),
    "norm_l1": (lambda x: (-x,), lambda v: v),
}
"""Operands of a row, and the term of an element."""
LIKE, RANDOM = 5.0, 1.5
"""Ulps.  A lane adds 8 terms, which errs by 2 at most where they are equal; or 16, by 4, where LLVM uses half of
AVX-512's width.  The result rounds as well."""


def ulps(got, exact, dtype):
    return float(abs(Fraction(float(got)) - exact) / Fraction(float(np.spacing(dtype(float(exact))))))


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_like_numbers(name, dtype):
    rng = np.random.default_rng(SEED)
    print(f"SUMS_SEED={SEED}")
    operands, term = SUMS[name]
    lengths = [4096, 100_000, 1 << 20, *(int(n) for n in rng.integers(4096, 70_000, 12))]
    for n in lengths:
        for _ in range(4):
            c = dtype(rng.uniform(1, 2))
            with trueno.use("simd"):
                got = getattr(trueno, name)(*operands(np.full(n, c, dtype)))
            assert ulps(got, n * term(Fraction(float(c))), dtype) <= LIKE, (n, c)


def test_random_numbers():
    rng = np.random.default_rng(SEED)
    print(f"SUMS_SEED={SEED}")
    for n in (4096, 33_333, 1 << 20):
        x = rng.random(n).astype(np.float32)
        with trueno.use("simd"):
            assert ulps(trueno.sum(x), Fraction(math.fsum(x)), np.float32) <= RANDOM


def test_what_is_declared_covers_a_lane_of_a_run():
    """However few lanes LLVM has, down to one register of the level's narrowest code, a term passes through no more."""
    from trueno.discovery import registry

    lanes = min(isa.lanes(isa.level(), 4), 8)
    run = isa.block("float32") // isa.RUNS
    assert run == 2 * isa.block("float64") // isa.RUNS
    assert registry.load("simd").accuracy.chain == isa.chain() >= run // lanes + math.log2(lanes)
