"""Users' own kernels, on the emulated device."""
# mypy: disable-error-code="valid-type"

import numpy as np
import pytest
import trueno
import trueno_cuda
from seeds import fresh_seed
from trueno_cuda.ptx import f32, kernel, ptr, u32

NAME = "cuda_emulated"
F = np.float32


@pytest.fixture
def rng():
    seed = fresh_seed()
    print(f"seed {seed}")
    return np.random.default_rng(seed)


@kernel(threads=64)
def saxpy(k, x: ptr(f32), y: ptr(f32), out: ptr(f32), n: u32, a: f32):
    i = k.ctaid * k.threads + k.tid
    live = i < n
    out.store(i, k.fma(x.load(i, where=live), a, y.load(i, where=live)), where=live)


@kernel(threads=32)
def mixed(k, n: u32, x: ptr(f32)):
    x.store(k.tid, 1.0, where=k.tid < n)


@kernel(max_threads=128)
def open_(k, x: ptr(f32)):
    x.store(k.tid, 2.0)


@kernel(threads=32)
def late(k, a: f32, n: u32, x: ptr(f32)):
    x.store(k.tid, a, where=k.tid < n)


def test_the_first_parameter_out_of_order_is_named():
    with pytest.raises(trueno.ParameterError, match=r"late: n \(u32\) stands too late in the signature"):
        trueno_cuda.prepared(late.build(), 1, (3,), backend=NAME)


def arrays(rng, n=100):
    x, y = (rng.standard_normal(n).astype(F) for _ in range(2))
    return x, y, [trueno.to(a, NAME) for a in (x, y, np.zeros(n, F))]


def test_a_launch_is_prepared_once(rng):
    x, y, there = arrays(rng)
    launch = trueno_cuda.prepared(saxpy.build(), 2, (100,), backend=NAME)
    for a in (2.0, -1.0):
        launch(*there, a)
        np.testing.assert_allclose(trueno.numpy(there[2]), F(a) * x + y, rtol=1e-6, atol=1e-6)


def test_run_is_once(rng):
    x, y, there = arrays(rng)
    trueno_cuda.run(saxpy.build(), 2, there, (100,), (3.0,), backend=NAME)
    np.testing.assert_allclose(trueno.numpy(there[2]), 3 * x + y, rtol=1e-6, atol=1e-6)
    (one,) = (trueno.to(np.zeros(128, F), NAME),)
    trueno_cuda.run(open_.build(), 1, [one], block=128, backend=NAME)
    assert trueno.numpy(one).tolist() == [2.0] * 128


def test_wrong_arguments_are_named(rng):
    x, _, there = arrays(rng)
    built = saxpy.build()
    with pytest.raises(trueno.ParameterError, match=r"mixed: x \(ptr\(f32\)\) stands too late .* pointers, then whole"):
        trueno_cuda.prepared(mixed.build(), 1, (3,), backend=NAME)
    with pytest.raises(trueno.ParameterError, match="takes 1 whole number, and got 0; n is missing"):
        trueno_cuda.prepared(built, 1, (), backend=NAME)
    with pytest.raises(trueno.ParameterError, match="runs no PTX"):
        trueno_cuda.prepared(built, 1, (3,), backend="reference")
    with pytest.raises(trueno.UnknownBackend):
        trueno_cuda.prepared(built, 1, (3,), backend="cudda")
    launch = trueno_cuda.prepared(built, 2, (100,), backend=NAME)
    with pytest.raises(trueno.ParameterError, match="3 arrays and 1 float, and got 3; a is missing"):
        launch(*there)
    with pytest.raises(trueno.ParameterError, match="x is ndarray; move it"):
        launch(x, *there[1:], 1.0)
    with pytest.raises(trueno.DtypeError, match="y is float64, but its elements are f32"):
        launch(there[0], trueno.to(np.zeros(100), NAME), there[2], 1.0)
    with pytest.raises(trueno.DtypeError, match="x is int32, but its elements are f32"):
        launch(trueno.to(np.zeros(100, np.int32), NAME), *there[1:], 1.0)
    with pytest.raises(trueno.ParameterError, match="not the floats"):
        launch(*there, "x")
    for number in (-1, 1 << 32, 100.0, None, True):
        with pytest.raises(trueno.ParameterError, match=r"n is .*; it must be a whole number of u32"):
            trueno_cuda.prepared(built, 2, (number,), backend=NAME)
    with pytest.raises(trueno.ParameterError, match="numbers is 40; give a tuple of 1 whole number"):
        trueno_cuda.prepared(built, 2, 40, backend=NAME)
    with pytest.raises(trueno.KernelError, match="65535"):
        trueno_cuda.run(built, (1, 70000), there, (100,), (1.0,), backend=NAME)
    for grid in (2.5, 0, (4, 1, 1, 1), "2"):
        with pytest.raises(trueno.ParameterError, match=r"grid is .*; give one to three positive ints"):
            trueno_cuda.prepared(built, grid, (100,), backend=NAME)
    with pytest.raises(trueno.ParameterError, match="block is 128, but the kernel is built for"):
        trueno_cuda.prepared(built, 2, (100,), block=128, backend=NAME)
    with pytest.raises(trueno.ParameterError, match=r"'saxpy' is not built; give kernel.build"):
        trueno_cuda.prepared(saxpy, 2, (100,), backend=NAME)
    with pytest.raises(
        trueno.KernelError,
        match=r'sm_100, and .* sm_90: say build.arch="sm_90".*EMULATED_ARCH=sm_100',
    ):
        trueno_cuda.prepared(saxpy.build(arch="sm_100"), 2, (100,), backend=NAME)
    with pytest.raises(trueno.ParameterError, match=r"open_ leaves its threads open: give block=, .* up to 128"):
        trueno_cuda.prepared(open_.build(), 1, backend=NAME)


def test_what_the_emulator_finds_is_an_error(rng):
    """A grid too small leaves elements; one element too many is out of bounds, which hardware would not say."""
    _, _, there = arrays(rng)
    with pytest.raises(trueno.KernelError, match="saxpy") as caught:
        trueno_cuda.run(saxpy.build(), 2, there, (101,), (1.0,), backend=NAME)
    assert "out-of-bounds" in str(caught.value) and "sectors a request" not in str(caught.value)


def test_a_gpu_that_is_not_there_says_so():
    if trueno.backends()["cuda"].available:
        pytest.skip("there is a GPU")
    with pytest.raises(trueno.BackendUnavailable, match=r'^cuda: .*; without a GPU: backend="cuda_emulated"$'):
        trueno_cuda.prepared(saxpy.build(), 1, (3,))
