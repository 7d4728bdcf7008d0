"""x·y + z is rounded once wherever the reference computes it, and the judge takes that for right."""

import numpy as np
import pytest
from seeds import fresh_seed
from trueno.discovery.protocol import Accuracy
from trueno.judge.bound import bound, judge
from trueno.ops import TABLE
from trueno.programs.evaluate import evaluate
from trueno.programs.fused import fma
from unit.fused import exact, operands, same

PROGRAM = TABLE["fma"].program()


@pytest.fixture
def seed():
    return fresh_seed()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_one_rounding(dtype, seed):
    arrays = operands(np.dtype(dtype), np.random.default_rng(seed))
    want = exact(*arrays)
    assert same(fma(*arrays), want), f"seed {seed}"
    if dtype != "float16":  # whose sums are exact in float64
        x, y, z = arrays
        with np.errstate(all="ignore"):
            plain = (x.astype(np.float64) * y + z).astype(dtype)
        assert not same(plain, want), "operands that two roundings get right prove nothing"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_reference_and_the_judge_agree_with_fractions(dtype, seed):
    arrays = [v[None] for v in operands(np.dtype(dtype), np.random.default_rng(seed), n=60)]
    (got,) = evaluate(PROGRAM, arrays, [], dtype)
    want = exact(*(v[0] for v in arrays))[None]
    assert same(got, want), f"seed {seed}"
    (allowed,) = bound(PROGRAM, arrays, [], dtype, Accuracy())
    assert judge(want, allowed), f"seed {seed}: {judge(want, allowed)}"


def test_the_judge_does_not_round_twice():
    """z + x·y lies 2⁻⁷⁰ below the middle of two float32, which float64 takes for the middle itself."""
    x, y, z = (np.float32([[v]]) for v in (1 + 2.0**-23, (1 - 2.0**-23) * 2.0**-24, 1 + 2.0**-23))
    (allowed,) = bound(PROGRAM, [x, y, z], [], np.float32, Accuracy())
    assert judge(z, allowed)
    assert not judge(z - np.spacing(z), allowed)
    assert not judge(z + 2 * np.spacing(z), allowed)


def test_the_judge_takes_a_signalling_nan():
    signalling = np.uint64([[0x7FF0000000000001]]).view(np.float64)
    (allowed,) = bound(PROGRAM, [signalling] * 3, [], np.float64, Accuracy())
    assert judge(signalling, allowed)
    assert not judge(np.zeros((1, 1)), allowed)


def test_shapes_broadcast(seed):
    rng = np.random.default_rng(seed)
    x, y, z = rng.standard_normal((3, 1)), rng.standard_normal(4), np.float64(rng.standard_normal())
    got = fma(x, y, z)
    assert got.shape == (3, 4)
    assert same(got.reshape(-1), exact(*(np.broadcast_to(v, (3, 4)).reshape(-1) for v in (x, y, z)))), f"seed {seed}"
    assert fma(np.zeros((0, 4)), y, z).shape == (0, 4)
