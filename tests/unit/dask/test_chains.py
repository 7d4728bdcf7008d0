"""Chains as one batch per block: the same results, fewer kernels, and arrays in between that stay usable."""

import dask.array as da
import numpy as np
import pytest
import trueno
import trueno_dask
from hypothesis import given, settings
from trueno.errors import GuardError
from unit.dask.chunking import DRAWN, chunked

F4 = np.float32
UNARY = ("relu", "gelu", "abs", "sigmoid", "exp", "neg", "softmax")  # none that magnifies rounding
BINARY = ("add", "mul", "sub", "maximum")


def recorded(random, x, w, steps):
    """Random ops, each on random results of earlier ones."""
    made = [x]
    for _ in range(steps):
        a, b = random.choice(made), random.choice([*made, w, 0.75])
        name = random.choice(UNARY + BINARY)
        if name in UNARY:
            axis = {"axis": random.choice([0, 1])} if name == "softmax" else {}
            made.append(getattr(trueno, name)(a, **axis))
        else:
            made.append(getattr(trueno, name)(*random.choice([(a, b), (b, a)])))
        made[-1] = trueno.clamp(made[-1], -5.0, 5.0)
    return made


@settings(max_examples=15, deadline=None)
@given(random=DRAWN)
def test_random_chains(random):
    rng = np.random.default_rng(random.getrandbits(32))
    x, w = (rng.standard_normal(shape).astype(F4) for shape in ((9, 14), (14,)))
    state = random.getstate()
    with trueno.use("scalar"):
        plain = recorded(random, x, w, 6)
        random.setstate(state)
        lazy = chunked(random, x)
        random.setstate(state)
        with trueno_dask.fused():
            arrays = recorded(random, lazy, w, 6)
    for expected, y in zip(plain, arrays, strict=True):
        assert np.allclose(y.compute(), expected, rtol=2e-4, atol=2e-5, equal_nan=True)


def test_one_kernel_for_each_block():
    x = da.from_array(np.ones((8, 6), F4), chunks=(4, 6))
    with trueno.use("scalar"):
        with trueno_dask.fused():
            y = trueno.relu(trueno.scale(trueno.add(x, x), 2.0))
        with trueno.trace("run") as t:
            assert (y.compute() == 4).all()
    assert len(t.events) == 2 and {e.op.rpartition("_")[0] for e in t.events} == {"add_scale_relu"}


def test_shared_steps_do_not_multiply():
    y = da.from_array(np.ones(6, F4), chunks=3)
    with trueno.use("scalar"), trueno_dask.fused():
        for _ in range(60):
            y = trueno.add(y, y)
            y = trueno.scale(y, 0.5)
    assert (y.compute() == 1).all() and len(y.dask.layers) < 14


def test_outside_and_across_scopes_nothing_is_joined():
    x = da.from_array(np.ones(6, F4), chunks=3)
    y = trueno.exp(trueno.neg(x))
    assert len(y.dask.layers) == 3
    with trueno_dask.fused():
        with trueno.use("scalar"):
            inner = trueno.neg(x)
        with trueno.use("reference"):
            y = trueno.exp(inner)
    assert len(y.dask.layers) == 3 and np.allclose(y.compute(), np.exp(-1))


def test_guards_and_halves_run_call_by_call():
    x = da.from_array(np.array([1.0, -1.0], F4), chunks=1)
    with trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP), trueno_dask.fused():
        y = trueno.exp(trueno.ln(trueno.neg(x)))
    with pytest.raises(GuardError, match=r"ln on .* in chunk \(0,\)|ln on .*\(in chunk \(0,\)\)"):
        y.compute()
    with trueno_dask.fused():
        half = trueno.exp(trueno.neg(x.astype(np.float16)))
    assert half.compute().dtype == np.float16
