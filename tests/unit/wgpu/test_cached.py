"""CachedMatmul: one layout for every number of rows, what is uploaded and submitted, bad input, threads, the end."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("wgpu")
from trueno.errors import BackendUnavailable, DtypeError, KernelError, OutError, ParameterError, ShapeError
from trueno_wgpu.kernels import gemv
from trueno_wgpu.kernels.cached_matmul import CachedMatmul
from unit.wgpu.products import assert_product, floats

ROWS = (1, 2, 3, 4, 5, 17, 70)


@pytest.fixture
def cached(gpu):
    with CachedMatmul(gpu) as made:
        yield made


def test_it_is_the_packages_own():
    import trueno_wgpu

    assert trueno_wgpu.CachedMatmul is CachedMatmul
    assert "CachedMatmul" in trueno_wgpu.__all__


# ---- products -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "k"), [(64, 128), (37, 53), (130, 64), (5, 1), (1, 9), (6, 2500)])
def test_every_number_of_rows_reads_the_same_weight(cached, rng, n, k):
    w = floats(rng, n, k)
    cached.cache("w", w)
    for m in ROWS:
        x = floats(rng, m, k)
        assert_product(cached.matmul("w", x), x, w.T)
        assert_product(cached.matmul("w", x, alpha=-0.25), -0.25 * x, w.T)
    x = floats(rng, k)
    y = cached.matmul("w", x)
    assert y.shape == (n,)
    assert_product(y, x, w.T)
    assert gemv.MOST_VECTORS == 3, "one row, two or three, four and more"


def test_the_ways_to_multiply_agree(cached, rng):
    """The same rows alone, in threes and all at once."""
    w, x = floats(rng, 50, 200), floats(rng, 9, 200)
    cached.cache("w", w)
    whole = cached.matmul("w", x)
    threes = np.concatenate([cached.matmul("w", x[i : i + 3]) for i in (0, 3, 6)])
    ones = np.stack([cached.matmul("w", row) for row in x])
    bound = 2 * 203 * 2.0**-24 * (np.abs(x).astype("f8") @ np.abs(w.T).astype("f8"))
    assert (np.abs(whole - threes) <= bound).all() and (np.abs(whole - ones) <= bound).all()


def test_many_weights_by_name(cached, rng):
    weights = {f"layer {i}": floats(rng, 10 + i, 20 + i) for i in range(5)}
    for name, w in weights.items():
        cached.cache(name, w)
    assert cached.weight_count == 5 and list(cached) == list(weights) and "layer 3" in cached
    assert cached.weight_bytes == sum(w.nbytes for w in weights.values())
    for name, w in reversed(weights.items()):
        x = floats(rng, 4, w.shape[1])
        assert_product(cached.matmul(name, x), x, w.T)
    cached.drop("layer 0")
    assert cached.weight_count == 4 and "layer 0" not in cached
    cached.cache("layer 1", weights["layer 2"])
    assert cached.weight_count == 4
    x = floats(rng, 22)
    assert_product(cached.matmul("layer 1", x), x, weights["layer 2"].T)


def test_memory_that_is_longer_than_needed(cached, rng):
    w, x = floats(rng, 8, 16), floats(rng, 100)
    cached.cache("w", w)
    out = np.full(60, 7.0, np.float32)
    y = cached.matmul("w", x, m=6, out=out)
    assert y is out and (out[48:] == 7).all()
    assert_product(out[:48].reshape(6, 8), x[:96].reshape(6, 16), w.T)
    out = np.empty((6, 8), np.float32)
    assert cached.matmul("w", x[:96].reshape(6, 16), out=out) is out
    assert_product(out, x[:96].reshape(6, 16), w.T)


def test_any_layout_of_x(cached, rng):
    w, x = floats(rng, 8, 16), floats(rng, 32, 5)
    cached.cache("w", w.T.copy().T)
    assert_product(cached.matmul("w", x.T[:, ::2]), x.T[:, ::2], w.T)
    x = floats(rng, 3, 16)
    x.flags.writeable = False
    assert_product(cached.matmul("w", x), x, w.T)


def test_nothing(cached):
    cached.cache("no rows", np.empty((0, 4), np.float32))
    cached.cache("no columns", np.empty((3, 0), np.float32))
    assert cached.matmul("no rows", np.ones((2, 4), np.float32)).shape == (2, 0)
    assert (cached.matmul("no columns", np.ones((2, 0), np.float32)) == np.zeros((2, 3))).all()
    cached.cache("w", np.ones((3, 4), np.float32))
    assert cached.matmul("w", np.ones((0, 4), np.float32)).shape == (0, 3)


def test_a_weight_beyond_a_binding_comes_in_blocks(gpu, rng, monkeypatch):
    monkeypatch.setattr(gpu, "limits", replace(gpu.limits, binding=32 << 10))
    for n, k in ((300, 64), (301, 61)):
        w = floats(rng, n, k)
        with CachedMatmul(gpu) as cached:
            cached.cache("w", w)
            assert len(cached._weights["w"].blocks) > 1
            assert cached.weight_bytes == w.nbytes
            for m in (1, 2, 4, 20):
                x = floats(rng, m, k)
                assert_product(cached.matmul("w", x, alpha=2.0), 2 * x, w.T)
            with pytest.raises(KernelError, match=r"CachedMatmul: weight 'wide': w has 70 rows of 40000 bytes"):
                cached.cache("wide", np.ones((70, 10_000), np.float32))


def test_a_hundred_thousand_ones(cached):
    w = np.ones((3, 100_000), np.float32)
    cached.cache("w", w)
    for m in (1, 2, 4):
        assert (cached.matmul("w", np.ones((m, 100_000), np.float32)) == 100_000).all()


# ---- what it costs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 2, 4])
def test_one_submission_and_one_kernel_a_call(cached, gpu, rng, m):
    cached.cache("w", floats(rng, 64, 64))
    x = floats(rng, m, 64)
    cached.matmul("w", x)
    gpu.counts.reset()
    for _ in range(5):
        cached.matmul("w", x)
    counts = gpu.counts
    assert (counts.submits, counts.kernels, counts.uploads, counts.downloads) == (5, 5, 5, 5)
    assert counts.bytes_up == 5 * x.nbytes, "the weight stays where it is"
    assert (counts.allocations, counts.pipelines, counts.bind_groups) == (0, 0, 0)


def test_buffers_only_grow(cached, gpu, rng):
    cached.cache("w", floats(rng, 64, 64))
    sizes = []
    for m in (4, 40, 4, 41, 20, 80):
        cached.matmul("w", floats(rng, m, 64))
        sizes.append(cached._input.size)
    assert sizes == sorted(sizes) and len(set(sizes)) <= 3
    gpu.counts.reset()
    for m in (4, 40, 41):
        cached.matmul("w", floats(rng, m, 64))
    assert gpu.counts.allocations == 0


# ---- bad input ----------------------------------------------------------------------------------------


def test_an_unknown_weight(cached, rng):
    with pytest.raises(ParameterError, match="no weight is called 'w'; there are: none"):
        cached.matmul("w", floats(rng, 3))
    cached.cache("query", floats(rng, 4, 3))
    with pytest.raises(ParameterError, match=r"no weight is called 'qurey'; did you mean \"query\"\?"):
        cached.matmul("qurey", floats(rng, 3))
    with pytest.raises(ParameterError, match="'nothing'"):
        cached.drop("nothing")


def test_what_is_too_short_says_need_and_have(cached, rng):
    cached.cache("w", floats(rng, 8, 16))
    with pytest.raises(
        ShapeError, match=r"x is too short: 4 rows of weight 'w' \[8, 16\] need 64 values, and x has 60"
    ):
        cached.matmul("w", floats(rng, 60), m=4)
    with pytest.raises(ShapeError, match=r"rows of 15 values, and weight 'w' \[8, 16\] needs rows of 16"):
        cached.matmul("w", floats(rng, 2, 15))
    with pytest.raises(ShapeError, match=r"out is too short: y\[2, 8\] needs 16 values, and out has 15"):
        cached.matmul("w", floats(rng, 2, 16), out=np.empty(15, np.float32))


def test_other_bad_input(cached, rng):
    cached.cache("w", floats(rng, 8, 16))
    with pytest.raises(DtypeError, match="x is float64; convert it to float32"):
        cached.matmul("w", np.ones(16))
    with pytest.raises(DtypeError, match="weight 'v' is float16"):
        cached.cache("v", np.ones((2, 2), np.float16))
    with pytest.raises(ShapeError, match=r"weight 'v' has shape \(4,\)"):
        cached.cache("v", np.ones(4, np.float32))
    assert "v" not in cached
    with pytest.raises(ShapeError, match=r"x has shape \(1, 2, 16\)"):
        cached.matmul("w", floats(rng, 1, 2, 16))
    with pytest.raises(ParameterError, match="m is -1"):
        cached.matmul("w", floats(rng, 16), m=-1)
    x = floats(rng, 2, 16)
    with pytest.raises(OutError, match=r"out has shape \(4, 4\)"):
        cached.matmul("w", x, out=np.empty((4, 4), np.float32))
    with pytest.raises(OutError, match="out is float64"):
        cached.matmul("w", x, out=np.empty((2, 8)))
    with pytest.raises(OutError, match="strided or read-only"):
        cached.matmul("w", x, out=np.empty((2, 16), np.float32)[:, ::2])
    frozen = np.zeros((2, 8), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(OutError, match="strided or read-only"):
        cached.matmul("w", x, out=frozen)
    assert (frozen == 0).all()


def test_a_weight_that_fails_leaves_the_one_before(cached, rng):
    w = floats(rng, 8, 16)
    cached.cache("w", w)
    with pytest.raises(DtypeError):
        cached.cache("w", np.ones((2, 2)))
    x = floats(rng, 16)
    assert_product(cached.matmul("w", x), x, w.T)


# ---- threads and the end ------------------------------------------------------------------------------


def test_eight_threads(cached, rng):
    weights = {str(i): floats(rng, 20 + i, 30) for i in range(4)}
    for name, w in weights.items():
        cached.cache(name, w)
    jobs = [(str(i % 4), floats(rng, 1 + i % 6, 30)) for i in range(64)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda job: cached.matmul(*job), jobs))
    for (name, x), y in zip(jobs, found, strict=True):
        assert_product(y, x, weights[name].T)


def test_after_close(gpu, rng):
    cached = CachedMatmul(gpu)
    cached.cache("w", floats(rng, 4, 4))
    assert "1 weights of 64 bytes" in repr(cached)
    cached.close()
    cached.close()
    assert cached.weight_count == cached.weight_bytes == 0 and "closed" in repr(cached)
    x, w = np.ones(4, np.float32), np.ones((2, 2), np.float32)
    for call in (lambda: cached.matmul("w", x), lambda: cached.cache("w", w), lambda: cached.drop("w")):
        with pytest.raises(BackendUnavailable, match="CachedMatmul: it was closed"):
            call()
