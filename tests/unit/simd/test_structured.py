"""The hand-written kernels against float64 NumPy, SciPy and PyTorch, never against themselves.

A product of k terms summed in any order is off by at most gamma_k (|a| @ |b|), gamma_k = k u / (1 - k u) with
u half the spacing at 1; a few roundings more for the partial sums make it k + 3.
"""

import contextlib
import itertools
import zlib

import numpy as np
import pytest
from trueno.errors import ParameterError

pytest.importorskip("numba")

import trueno
from unit.simd.structured import structured_kernel

DTYPES = [np.dtype("float32"), np.dtype("float64")]
SIZES = [1, 2, 3, 5, 8, 13, 16, 17, 31, 33, 64, 65]
SENTINEL = -77.0

_made: dict = {}


def kernel(op, dtype, **static):
    """One kernel of each kind a session: compiling takes seconds."""
    key = op, dtype, tuple(static.items())
    if key not in _made:
        _made[key] = structured_kernel(op, dtype, **static)
    return _made[key]


@pytest.fixture
def rng(request):
    seed = zlib.crc32(request.node.name.encode())
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def values(rng, shape, dtype):
    return rng.standard_normal(shape).astype(dtype)


def guarded(shape, dtype):
    """An output between two runs of sentinels."""
    size = int(np.prod(shape))
    whole = np.full(size + 64, SENTINEL, dtype)
    return whole, whole[32 : 32 + size].reshape(shape)


def untouched(whole):
    return (whole[:32] == SENTINEL).all() and (whole[-32:] == SENTINEL).all()


def assert_within(got, want, weight, terms, dtype):
    """|got - want| <= gamma * weight, in float64."""
    u = np.finfo(dtype).eps / 2
    gamma = (terms + 3) * u / (1 - (terms + 3) * u)
    tiny = (terms + 3) * float(np.finfo(dtype).smallest_subnormal)
    # the oracle is rounded as well where the kernel computes in float64
    oracle = (terms + 3) * 2.0**-53 * weight
    error = np.abs(got.astype(np.float64) - want)
    excess = error - (gamma * weight + oracle + tiny)
    assert (excess <= 0).all(), f"worst excess {excess.max()} where the error is {error.max()}"


def check_product(run, a, b, dtype, want=None):
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    want = wide_a @ wide_b if want is None else want
    whole, out = guarded(want.shape, dtype)
    out.fill(np.nan)  # what was there must not come in
    assert run(out) == 0
    assert_within(out, want, np.abs(wide_a) @ np.abs(wide_b), a.shape[-1], dtype)
    assert untouched(whole)


# ------------------------------------------------------------------------------------------- products


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_matmul(dtype, rng):
    run = kernel("matmul", dtype)
    shapes = [tuple(rng.choice(SIZES, 3)) for _ in range(120)]
    shapes += [(1, 1, 1), (0, 3, 4), (3, 0, 4), (0, 0, 0), (12, 32, 256), (13, 33, 257), (200, 300, 600)]
    shapes += [(61, 1030, 530), (30, 1100, 300), (2, 5000, 300), (5000, 2, 300), (128, 128, 128), (97, 700, 513)]
    for m, n, k in shapes:
        a, b = values(rng, (m, k), dtype), values(rng, (k, n), dtype)
        check_product(lambda out, a=a, b=b: run(a, b, out), a, b, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("m", "n", "k"), [(5, 7, 9), (70, 90, 130), (200, 1030, 520)])
def test_matmul_keeps_nan_and_inf_in_their_row_and_column(m, n, k, dtype, rng):
    a, b = values(rng, (m, k), dtype), values(rng, (k, n), dtype)
    a[m // 2, k // 3] = np.nan
    a[0, k - 1] = np.inf
    b[k // 2, n - 1] = -np.inf
    out = np.full((m, n), np.nan, dtype)
    assert kernel("matmul", dtype)(a, b, out) == 0
    with np.errstate(invalid="ignore"):
        want = np.array(
            [[np.sum(a[i].astype("f8") * b[:, j].astype("f8")) for j in range(n)] for i in (0, m // 2, m - 1)]
        )
    got = out[[0, m // 2, m - 1]]
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert np.array_equal(np.isposinf(got), np.isposinf(want))
    assert np.array_equal(np.isneginf(got), np.isneginf(want))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_terms_give_zeros(dtype):
    for op, a, b, shape in (
        ("matmul", (3, 0), (0, 5), (3, 5)),
        ("batched_matmul", (2, 3, 0), (2, 0, 5), (2, 3, 5)),
        ("matvec", (4, 0), (0,), (4,)),
        ("vecmat", (0,), (0, 4), (4,)),
    ):
        out = np.full(shape, np.nan, dtype)
        assert kernel(op, dtype)(np.empty(a, dtype), np.empty(b, dtype), out) == 0
        assert (out == 0).all(), op


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_batched_matmul(dtype, rng):
    run = kernel("batched_matmul", dtype)
    for batch, (m, n, k) in itertools.product(
        [(1,), (5,), (2, 3), (0,), (3, 0)], [(1, 1, 1), (7, 33, 5), (64, 64, 64), (0, 2, 3), (100, 130, 260)]
    ):
        a, b = values(rng, (*batch, m, k), dtype), values(rng, (*batch, k, n), dtype)
        check_product(lambda out, a=a, b=b: run(a, b, out), a, b, dtype)
    a, b = values(rng, (2, 40, 600), dtype), values(rng, (2, 600, 700), dtype)  # each large: packed
    check_product(lambda out: run(a, b, out), a, b, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_matvec_and_vecmat(dtype, rng):
    matvec, vecmat = kernel("matvec", dtype), kernel("vecmat", dtype)
    shapes = [tuple(rng.choice(SIZES, 2)) for _ in range(60)]
    shapes += [(1, 1), (0, 5), (5, 0), (1000, 777), (3, 40001), (40001, 3), (513, 1025)]
    shapes += [(1200, 700), (4001, 29), (3001, 100), (130, 4099), (700, 2050), (257, 4096)]  # the ways of large ones
    for m, k in shapes:
        a, x = values(rng, (m, k), dtype), values(rng, k, dtype)
        check_product(lambda out, a=a, x=x: matvec(a, x, out), a, x, dtype)
        z = values(rng, m, dtype)
        want = z.astype("f8") @ a.astype("f8")
        whole, out = guarded(want.shape, dtype)
        out.fill(np.nan)
        assert vecmat(z, a, out) == 0
        assert_within(out, want, np.abs(z).astype("f8") @ np.abs(a).astype("f8"), m, dtype)
        assert untouched(whole)


def test_any_number_of_threads_gives_the_same_vector(rng):
    a, x, w = (values(rng, shape, np.dtype("f4")) for shape in ((1200, 700), 700, 1200))
    results = []
    for threads in (1, 2, 3):
        trueno.settings.override("TRUENO_THREADS", threads)
        try:
            with trueno.use("simd"):
                results.append(trueno.matvec(a, x).tobytes() + trueno.vecmat(w, a).tobytes())
        finally:
            trueno.settings.override("TRUENO_THREADS", None)
    assert len(set(results)) == 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_matvec_and_vecmat_propagate_nan(dtype, rng):
    a = values(rng, (37, 45), dtype)
    a[5, 44], a[36, 0] = np.nan, np.inf
    y, w = np.zeros(37, dtype), np.zeros(45, dtype)
    assert kernel("matvec", dtype)(a, np.ones(45, dtype), y) == 0
    assert kernel("vecmat", dtype)(np.ones(37, dtype), a, w) == 0
    assert np.isnan(y[5]) and np.isposinf(y[36]) and np.isfinite(np.delete(y, [5, 36])).all()
    assert np.isnan(w[44]) and np.isposinf(w[0]) and np.isfinite(w[1:44]).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_outer_is_exact(dtype, rng):
    run = kernel("outer", dtype)
    for m, n in [(1, 1), (0, 4), (4, 0), (3, 17), (65, 33), (500, 301)]:
        x, y = values(rng, m, dtype), values(rng, n, dtype)
        if m and n:
            x[0], y[n // 2] = 0.0, -1.0  # the product's -0 must stay
        whole, out = guarded((m, n), dtype)
        assert run(x, y, out) == 0
        assert out.tobytes() == np.multiply.outer(x, y).tobytes()
        assert untouched(whole)


# ---------------------------------------------------------------------------------------- convolution


def correlated(x, weights, mode):
    """By SciPy's correlate, one channel at a time, in float64: (value, sum of absolute products)."""
    signal = pytest.importorskip("scipy.signal")
    x, weights = x.astype("f8"), weights.astype("f8")
    kh, kw = weights.shape[-2:]
    if mode == "same":
        top, left = (kh - 1) // 2, (kw - 1) // 2
        pads = [(0, 0)] * (x.ndim - 2) + [(top, kh - 1 - top), (left, kw - 1 - left)]
        x = np.pad(x, pads)
    if x.ndim == 2:
        return tuple(signal.correlate(f(x), f(weights), "valid", "direct") for f in (np.asarray, np.abs))
    return tuple(
        np.array(
            [sum(signal.correlate(f(x[c]), f(w[c]), "valid", "direct") for c in range(x.shape[0])) for w in weights]
        )
        for f in (np.asarray, np.abs)
    )


@pytest.mark.parametrize("mode", ["valid", "same"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_convolve2d_one_channel(dtype, mode, rng):
    run = kernel("convolve2d", dtype, mode=mode)
    for _ in range(40):
        kh, kw = (int(v) for v in rng.integers(1, 8, 2))
        h, w = (int(v) for v in rng.integers([kh, kw], [40, 300]))
        x, weights = values(rng, (h, w), dtype), values(rng, (kh, kw), dtype)
        want, weight = correlated(x, weights, mode)
        whole, out = guarded(want.shape, dtype)
        assert run(x, weights, out) == 0
        assert_within(out, want, weight, kh * kw, dtype)
        assert untouched(whole)


@pytest.mark.parametrize("mode", ["valid", "same"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_convolve2d_many_channels(dtype, mode, rng):
    run = kernel("convolve2d", dtype, mode=mode)
    for c_in, c_out in [(1, 1), (3, 2), (2, 3), (4, 8), (5, 13), (2, 17)]:
        kh, kw = (int(v) for v in rng.integers(1, 6, 2))
        h, w = (int(v) for v in rng.integers([kh, kw], [24, 80]))
        x, weights = values(rng, (c_in, h, w), dtype), values(rng, (c_out, c_in, kh, kw), dtype)
        want, weight = correlated(x, weights, mode)
        whole, out = guarded(want.shape, dtype)
        assert run(x, weights, out) == 0
        assert_within(out, want, weight, c_in * kh * kw, dtype)
        assert untouched(whole)


@pytest.mark.filterwarnings("ignore:Using padding")  # about a copy that PyTorch makes
def test_convolve2d_agrees_with_pytorch(rng):
    torch = pytest.importorskip("torch")
    dtype = np.dtype("float64")
    x, weights = values(rng, (3, 31, 43), dtype), values(rng, (6, 3, 4, 3), dtype)
    for mode in ("valid", "same"):
        want = torch.nn.functional.conv2d(torch.from_numpy(x)[None], torch.from_numpy(weights), padding=mode)[0].numpy()
        out = np.empty(want.shape, dtype)
        assert kernel("convolve2d", dtype, mode=mode)(x, weights, out) == 0
        np.testing.assert_allclose(out, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("mode", ["valid", "same"])
def test_convolve2d_keeps_nan_near(mode):
    dtype = np.dtype("float32")
    x, weights = np.ones((20, 50), dtype), np.ones((3, 3), dtype)
    x[10, 25] = np.nan
    want, _ = correlated(x, weights, mode)
    out = np.empty(want.shape, dtype)
    assert kernel("convolve2d", dtype, mode=mode)(x, weights, out) == 0
    centre = (10, 25) if mode == "same" else (9, 24)
    near = np.zeros(want.shape, bool)
    near[centre[0] - 1 : centre[0] + 2, centre[1] - 1 : centre[1] + 2] = True
    assert np.array_equal(np.isnan(out), near)


# --------------------------------------------------------------------------------- moves, eigenvalues


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_transpose(dtype, rng):
    run = kernel("transpose", dtype)
    shapes = [tuple(rng.choice(SIZES, 2)) for _ in range(60)]
    shapes += [
        (0, 3),
        (3, 0),
        (1, 1),
        (512, 256),
        (129, 1000),
        (4000, 3),
        (2, 5, 7),
        (3, 0, 4),
        (4, 64, 96),
        (2, 3, 17, 20),
    ]
    for shape in shapes:
        x = values(rng, shape, dtype)
        if x.size:
            x.reshape(-1)[0] = np.nan
        whole, out = guarded((*shape[:-2], shape[-1], shape[-2]), dtype)
        assert run(x, out) == 0
        assert out.tobytes() == x.swapaxes(-1, -2).tobytes()
        assert untouched(whole)


@pytest.mark.parametrize("which", ["int32", "int64"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_embedding_lookup(dtype, which, rng):
    run = kernel("embedding_lookup", dtype)
    for v, d, shape in [
        (1, 1, (1,)),
        (10, 7, (0,)),
        (50, 16, (33,)),
        (9, 0, (4,)),
        (300, 129, (20, 30)),
        (5, 3, ()),
        (7, 2, (2, 0, 3)),
    ]:
        table, indices = values(rng, (v, d), dtype), rng.integers(0, v, shape).astype(which)
        indices = np.asarray(indices)
        whole, out = guarded((*shape, d), dtype)
        assert run(table, indices, out) == 0
        assert np.array_equal(out, table[indices])
        assert untouched(whole)


@pytest.mark.parametrize("bad", [-1, 50, 2**40, -(2**62)])
def test_embedding_lookup_refuses_a_wrong_index(bad, rng):
    dtype = np.dtype("float32")
    table, indices = values(rng, (50, 8), dtype), rng.integers(0, 50, 100)
    indices[77] = bad
    out = np.full((100, 8), SENTINEL, dtype)
    assert kernel("embedding_lookup", dtype)(table, indices, out) == -1
    assert (out == SENTINEL).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 17, 60])
def test_symmetric_eigen(n, dtype, rng):
    a = values(rng, (n, n), dtype)
    a = (a + a.T) / dtype.type(2)
    w, v = np.empty(n, dtype), np.empty((n, n), dtype)
    assert kernel("symmetric_eigen", dtype)(a, w, v) == 0
    wide = a.astype("f8")
    bound = 16 * max(n, 1) * np.finfo(dtype).eps * max(np.linalg.norm(wide), 1e-30)
    assert (np.diff(w) <= 0).all()
    assert np.abs(w - np.linalg.eigvalsh(wide)[::-1]).max(initial=0) <= bound
    v = v.astype("f8")
    assert np.abs(v * w @ v.T - wide).max(initial=0) <= bound
    assert np.abs(v.T @ v - np.eye(n)).max(initial=0) <= 16 * max(n, 1) * np.finfo(dtype).eps


def test_symmetric_eigen_of_nan_is_an_error_and_writes_nothing():
    a = np.eye(4)
    a[2, 2] = np.nan
    w, v = np.full(4, SENTINEL), np.full((4, 4), SENTINEL)
    with pytest.raises(ParameterError, match="symmetric_eigen"):
        kernel("symmetric_eigen", np.dtype("float64"))(a, w, v)
    assert (w == SENTINEL).all() and (v == SENTINEL).all()


# -------------------------------------------------------------------------------------------- refusals

BINARY = {  # op: shapes of the operands, shape of the output, and shapes that do not agree
    "matmul": [((4, 5), (5, 6), (4, 6)), ((4, 5), (4, 6), (4, 6)), ((4, 5), (5, 6), (4, 5)), ((4, 5), (5, 6), (3, 6))],
    "batched_matmul": [
        ((2, 4, 5), (2, 5, 6), (2, 4, 6)),
        ((2, 4, 5), (3, 5, 6), (2, 4, 6)),
        ((2, 4, 5), (2, 5, 6), (3, 4, 6)),
    ],
    "matvec": [((4, 5), (5,), (4,)), ((4, 5), (4,), (4,)), ((4, 5), (5,), (5,))],
    "vecmat": [((4,), (4, 5), (5,)), ((5,), (4, 5), (5,)), ((4,), (4, 5), (4,))],
    "outer": [((4,), (5,), (4, 5)), ((4,), (5,), (5, 4)), ((4,), (5,), (4, 4))],
    "convolve2d": [
        ((8, 9), (3, 2), (6, 8)),
        ((8, 9), (3, 2), (8, 9)),
        ((2, 9), (3, 2), (0, 8)),
        ((8, 9), (0, 2), (9, 8)),
        ((2, 8, 9), (4, 3, 3, 3), (4, 6, 7)),
        ((2, 8, 9), (4, 2, 3, 3), (3, 6, 7)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", BINARY)
def test_shapes_that_do_not_agree_are_refused(op, dtype):
    run = kernel(op, dtype)
    right, *wrong = BINARY[op]
    assert run(*(np.ones(shape, dtype) for shape in right)) == 0
    for first, second, shape in wrong:
        if 0 in first + second and op != "convolve2d":
            continue
        out = np.full(shape, SENTINEL, dtype)
        assert run(np.ones(first, dtype), np.ones(second, dtype), out) == -1, (first, second, shape)
        assert (out == SENTINEL).all()


@pytest.mark.parametrize("op", BINARY)
def test_overlap_is_refused(op):
    dtype = np.dtype("float32")
    first, second, result = BINARY[op][0]
    size = int(np.prod(result))
    for which in (0, 1):
        shapes = [first, second]
        count = int(np.prod(shapes[which]))
        memory = np.full(count + size - 1, 0.5, dtype)  # the operand's last number is the output's first
        operands = [np.ones(shape, dtype) for shape in shapes]
        operands[which] = memory[:count].reshape(shapes[which])
        before = memory.copy()
        assert kernel(op, dtype)(*operands, memory[count - 1 :].reshape(result)) == -1
        assert np.array_equal(memory, before)


def test_unary_refusals():
    dtype = np.dtype("float32")
    run = kernel("transpose", dtype)
    x = np.arange(12, dtype=dtype).reshape(3, 4)
    assert run(x, x.reshape(4, 3)) == -1
    assert run(x, np.empty((3, 4), dtype)) == -1
    assert run(np.ones((2, 3, 4), dtype), np.empty((3, 4, 3), dtype)) == -1
    assert run(np.ones(3, dtype), np.ones(3, dtype)) == -1

    run = kernel("embedding_lookup", dtype)
    table, indices = np.ones((5, 4), dtype), np.zeros(3, np.int64)
    assert run(table, indices, np.empty((3, 5), dtype)) == -1
    assert run(table, indices, np.empty((2, 4), dtype)) == -1
    assert run(table, indices, table[:3]) == -1
    assert run(table, indices.astype("int16"), np.empty((3, 4), dtype)) == -1
    assert run(table, np.zeros((2, 3), np.int64), np.empty((3, 2, 4), dtype)) == -1

    run = kernel("symmetric_eigen", dtype)
    w, v, a = np.empty(3, dtype), np.empty((3, 3), dtype), np.eye(3, dtype=dtype)
    assert run(a, w, a) == -1
    assert run(a, v[0], v) == -1
    assert run(a[:2], w, v) == -1
    assert run(a, w[:2], v) == -1
    assert run(a.astype("f8"), w, v) == -1


@pytest.mark.parametrize("op", BINARY)
def test_what_the_signature_refuses_is_untouched(op):
    """Another dtype or layout, or a read-only output: TypeError or -1, and nothing written.

    Not byte order: Numba tells arrays that are not plain by a fingerprint without it, so the core compares dtypes.
    """
    dtype = np.dtype("float32")
    first, second, result = (np.ones(shape, dtype) for shape in BINARY[op][0])
    run = kernel(op, dtype)
    strided = np.ones((*first.shape[:-1], first.shape[-1] * 2), dtype)[..., ::2]
    frozen = result.copy()
    frozen.flags.writeable = False
    first.flags.writeable = second.flags.writeable = False  # read-only operands are welcome
    assert run(first, second, result) == 0
    for bad in (
        (first.astype("f8"), second, result),
        (strided, second, result),
        (first, second, frozen),
        (first, second, np.ones((*result.shape[:-1], result.shape[-1] * 2), dtype)[..., ::2]),
    ):
        before = bad[2].copy()
        with contextlib.suppress(TypeError):
            assert run(*bad) == -1
        assert np.array_equal(bad[2], before)
