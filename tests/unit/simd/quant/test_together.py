"""Products of one vector as one region: the results of single products, bit for bit, in every format and cut."""

import weakref

import numpy as np
import pytest
import trueno

pytest.importorskip("numba")

from seeds import fresh_seed
from trueno.formats import FORMATS  # the plugin may be missing
from trueno.formats.samples import random_rows
from trueno.judge.structured import judge_structured
from trueno.ops.shared import SharedOp
from trueno.quant import INTERLEAVED
from trueno_simd.kernels.quant.together import ROWS, cut

F = np.float32


@pytest.fixture
def seed():
    seed = fresh_seed()
    print(f"seed {seed}")
    return seed


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


def matrix(rng, name, n, k):
    laid = INTERLEAVED.get(name)
    f = FORMATS[laid.plain if laid else name]
    q = trueno.QuantizedMatrix(random_rows(f, (n, f.row_bytes(k)), rng), (n, k), f.name)
    return q.interleaved() if laid else q


def kernels(b):
    return [len(step.members) or 1 for step in b._schedule().steps]


@pytest.mark.parametrize("activations", ["q8", "f32"])
@pytest.mark.parametrize("name", [name for name in FORMATS if FORMATS[name].activations])
def test_each_format_gives_the_bits_of_single_products(rng, name, activations):
    k = 512
    q, w = (matrix(rng, name, n, k) for n in (5, 37))
    x = rng.standard_normal(k).astype(F)
    with trueno.Batch("simd") as b, trueno.use("simd"):
        h = b.upload(x)
        results = [b.quant_matvec(b.upload(m), h, activations=activations) for m in (q, w)]
        assert kernels(b) == [2]
        for _ in range(3):  # Python's, then the sequence's
            b.execute()
            for result, m in zip(results, (q, w), strict=True):
                want = trueno.quant_matvec(m, x, activations=activations)
                assert np.array_equal(b.read(result), want, equal_nan=True)
        assert (b._replay._recorded._run.kept[0] != 0).all(), "every step is machine code"


def test_formats_and_layouts_mix(rng):
    """Blocks of 32 and of 256, plain and interleaved: x is quantized to both kinds of blocks."""
    names = ["q5_0", "q4_k", "q6_k_r16", "q8_0", "q4_1", "q4_0_r16", "iq4_xs"]
    sizes = rng.integers(1, 400, len(names))
    k = 256 * int(rng.integers(1, 6))
    matrices = [matrix(rng, name, int(n), k) for name, n in zip(names, sizes, strict=True)]
    x = rng.standard_normal(k).astype(F)
    with trueno.Batch("simd") as b, trueno.use("simd"):
        h = b.upload(x)
        results = [b.quant_matvec(b.upload(m), h) for m in matrices]
        assert kernels(b) == [len(names)]
        for _ in range(3):
            b.execute()
            for result, m in zip(results, matrices, strict=True):
                assert np.array_equal(b.read(result), trueno.quant_matvec(m, x), equal_nan=True), m.format


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_large_matrices_are_cut(rng, threads):
    k, sizes = 896, (1500, 128, 131)
    matrices = [matrix(rng, name, n, k) for name, n in zip(("q5_0", "q5_0", "q8_0"), sizes, strict=True)]
    x = rng.standard_normal(k).astype(F)
    biases = [rng.standard_normal(n).astype(F) for n in sizes]
    trueno.settings.override("TRUENO_THREADS", threads)
    try:
        with trueno.Batch("simd") as b, trueno.use("simd"):
            h = b.upload(x)
            results = [
                b.bias_activation(b.quant_matvec(b.upload(m), h), b.upload(bias), activation="none")
                for m, bias in zip(matrices, biases, strict=True)
            ]
            assert kernels(b) == [3]
            for _ in range(3):
                b.execute()
                for result, m, bias in zip(results, matrices, biases, strict=True):
                    assert np.array_equal(b.read(result), trueno.quant_matvec(m, x) + bias)
    finally:
        trueno.settings.override("TRUENO_THREADS", None)


@pytest.mark.parametrize("unit", ["swiglu", "geglu"])
@pytest.mark.parametrize("kept", [(), (0,), (0, 1)])
def test_a_gated_layer(rng, unit, kept):
    """Against float64 on the decoded weights by the op's own bound, and against the same ops one by one."""
    n, k = int(rng.integers(1, 5000)), 256
    gate, up = matrix(rng, "q4_k", n, k), matrix(rng, "q6_k", n, k)
    x = rng.standard_normal(k).astype(F)
    biases = [rng.standard_normal(n).astype(F) for _ in range(2)]
    with trueno.Batch("simd") as b, trueno.use("simd"):
        h = b.upload(x)
        pair = [
            b.add(b.quant_matvec(b.upload(w), h), b.upload(bias))
            for w, bias in zip((gate, up), biases, strict=True)
        ]  # fmt: skip
        for i in kept:
            b.keep(pair[i])
        y = getattr(b, unit)(*pair)
        (step,) = b._schedule().steps
        assert isinstance(step.op, SharedOp)
        parts = [trueno.add(trueno.quant_matvec(w, x), bias) for w, bias in zip((gate, up), biases, strict=True)]
        want = getattr(trueno, unit)(*parts)
        for _ in range(3):
            b.execute()
            np.testing.assert_allclose(b.read(y), want, rtol=2e-6, atol=1e-30)
        operands = [np.asarray(b._replay._array(v, b._uploads.arrays)) for v, _ in step.reads]
        results = [np.asarray(b._found(v)) for v, _ in step.makes]
        verdict = judge_structured(step.op, operands, {}, F, results, step.params)
        assert verdict.ok, str(verdict)
        for one, other in zip(pair, parts, strict=True):
            assert np.array_equal(b.read(one), other)


def test_a_residual_and_numbers_follow_one_product(rng):
    n, k = 300, 512
    w, x = matrix(rng, "q4_k", n, k), rng.standard_normal(k).astype(F)
    residual, one = rng.standard_normal(n).astype(F), rng.standard_normal(1).astype(F)
    with trueno.Batch("simd") as b, trueno.use("simd"):
        h = b.residual_add(b.quant_matvec(b.upload(w), b.upload(x)), b.upload(residual))
        y = b.mul(b.add(b.relu(h), 0.25), b.upload(one))
        assert [len(step.ops) for step in b._schedule().steps] == [5]
        want = (np.maximum(trueno.quant_matvec(w, x) + residual, 0) + F(0.25)) * one
        for _ in range(3):
            b.execute()
            np.testing.assert_allclose(b.read(y), want, rtol=1e-6)


def test_new_arrays_are_seen(rng):
    """The table of words holds addresses, so another array is another table, and new contents need no other."""
    k = 256
    pair = [matrix(rng, "q8_0", 40, k) for _ in range(2)]
    x = rng.standard_normal(k).astype(F)
    with trueno.Batch("simd") as b, trueno.use("simd"):
        h, handles = b.upload(x), [b.upload(m) for m in pair]
        results = [b.quant_matvec(w, h) for w in handles]
        for step in range(8):
            if step == 3:
                pair[1] = matrix(rng, "q8_0", 40, k)
                b.update(handles[1], pair[1])
            elif step == 5:
                x[...] = rng.standard_normal(k)
            elif step == 6:
                x = rng.standard_normal(k).astype(F)
                b.update(h, x)
            b.execute()
            for result, m in zip(results, pair, strict=True):
                assert np.array_equal(b.read(result), trueno.quant_matvec(m, x)), step


def test_what_is_not_finite_stays_so(rng):
    k, x = 256, np.ones(256, F)
    x[7] = np.nan
    with trueno.Batch("simd") as b:
        h, w = b.upload(x), b.upload(trueno.quantize(rng.standard_normal((20, k)).astype(F), "q4_k"))
        results = [b.quant_matvec(w, h), b.relu(b.quant_matvec(w, h))]
        b.execute()
        assert np.isnan(b.read(results[0])).all()


def test_a_call_that_does_not_fit_is_refused(rng):
    """The kernel itself looks at what the plan's key does not say."""
    k = 256
    with trueno.Batch("simd") as b:
        h = b.upload(rng.standard_normal(k).astype(F))
        results = [b.quant_matvec(b.upload(matrix(rng, "q8_0", n, k)), h) for n in (3, 20)]
        b.execute()
        (kernel,), (args,) = b._replay._kernels, b._replay._args
        assert kernel(*args) == 0 and len(results) == 2
        x, w, v, y, z = args
        frozen = y.copy()
        frozen.flags.writeable = False
        memory = np.zeros(64, F)
        for wrong in (
            (x[:-1].copy(), w, v, y, z), (x.astype(float), w, v, y, z), (x, w[:, 1:].copy(), v, y, z),
            (x, w, v, z, y), (x, w, v, frozen, z), (x, w, v, memory[:3], memory[2:22]), (x, w, v, x[:3], z),
            (x, w.view(np.int8), v, y, z), (x[None], w, v, y, z), (x, w[:0], v, y[:0], z),
        ):  # fmt: skip
            assert kernel(*wrong) == -1
            assert kernel.resolve(*wrong) is None


def test_a_kernel_keeps_no_array_alive_and_sees_what_changes(rng):
    """Words are remembered for arrays by what they are, and forgotten with them."""
    k = 256
    with trueno.Batch("simd") as b, trueno.use("simd"):
        w, h = matrix(rng, "q8_0", 24, k), b.upload(rng.standard_normal(k).astype(F))
        results = [b.quant_matvec(b.upload(w), h), b.scale(b.quant_matvec(b.upload(w), h), 3.0)]
        b.execute()
        (kernel,), (args,) = b._replay._kernels, b._replay._args
        assert len(results) == 2
        *operands, factor, y, z = args
        for other in (1.0, -2.0):
            assert kernel(*operands, other, y, z) == 0
            assert np.array_equal(z, y * F(other))
        assert kernel(*args) == 0 and np.array_equal(z, y * F(factor))
        many = [np.empty_like(y) for _ in range(300)]
        assert not any(kernel(*operands, factor, one, z) for one in many)
        assert all(np.array_equal(one, y) for one in many)
        gone = weakref.ref(many[-1])
        del many
        assert gone() is None
        assert kernel(*args) == 0
        y.flags.writeable = False
        assert kernel(*args) == -1
        y.flags.writeable = True


def test_runs_cover_every_row_once(rng):
    for _ in range(200):
        sizes = [(int(rng.integers(1, 4000)), int(rng.integers(18, 9000))) for _ in range(rng.integers(1, 6))]
        chunks = cut(sizes)
        seen = [np.zeros(rows, int) for rows, _ in sizes]
        for group, start, stop in (run for chunk in chunks for run in chunk):
            assert start % ROWS == 0 and (stop % ROWS == 0 or stop == sizes[group][0])
            seen[group][start:stop] += 1
        assert all((rows == 1).all() for rows in seen) and len(chunks) <= 9
