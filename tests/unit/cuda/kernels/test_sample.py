"""sample of the CUDA backend, on the emulator: against the judge's tokens, by NumPy's sort in float64."""

import numpy as np
import pytest
from ml_dtypes import bfloat16
from trueno.judge.bound import EXACT
from trueno.judge.selection import sample_bound
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels import sample
from unit.cuda.kernels.moves import call, part, random, shifted

FILTERS = [
    {},
    {"temperature": 0.0},
    {"temperature": 0.3, "top_k": 5},
    {"top_k": 40, "top_p": 0.9, "min_p": 0.05},
    {"top_p": 0.5, "temperature": 2.0},
    {"top_p": 0.0},
    {"min_p": 1.0},
    {"min_p": 0.2, "temperature": 1e-300},
    {"top_k": 1},
    {"temperature": 1e18, "top_p": 0.99},
]
ROWS = ["normal", "flat", "equal", "few values", "peaked", "infinite", "masked", "wide", "tiny differences"]


@pytest.fixture(scope="module")
def device():
    return Emulator("sm_90")


def row_of(rng, kind, n):
    x = rng.standard_normal(n) * {"flat": 1.0, "wide": 1e4, "peaked": 8.0}.get(kind, 3.0)
    if kind == "equal":
        x[:] = rng.standard_normal()
    if kind == "few values":
        x = rng.choice([-1.0, -0.0, 0.0, 0.5], n)
    if kind == "infinite":
        x[rng.integers(0, n, 1 + n // 9)] = rng.choice([np.inf, -np.inf])
        x[rng.integers(0, n, 1 + n // 9)] = -np.inf
    if kind == "masked":
        x[rng.random(n) < 0.5] = -1e30
    if kind == "tiny differences":
        x = 1000 + x * 1e-3
    return x


def drawn(device, x, r, shift=0, top_k=0, temperature=1.0, top_p=1.0, min_p=0.0):
    kernel = sample.sample(device, call("sample", x.dtype, x, r, top_k=top_k))
    token = device.to_device(np.full(np.broadcast_shapes(x.shape[:-1], r.shape), -7, np.int64))
    assert kernel(shifted(device, x, shift), device.to_device(r), temperature, top_p, min_p, token) == 0
    return token.elements.copy()


def assert_allowed(x, r, tokens, **filters):
    parameters = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0} | filters
    (bound,) = sample_bound((x, r), parameters, np.float64, EXACT)
    flat = tokens.reshape(-1)
    right = bound.allowed[np.arange(flat.size), flat]
    assert right.all(), (filters, flat[~right], bound.value.reshape(-1)[~right])


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_tokens_are_those_that_the_judge_allows(device, filters):
    rng = random()
    for dtype in (np.float32, (np.float64, bfloat16, np.float16)[rng.integers(3)]):
        n = int(rng.choice([1, 2, 7, 40, 300, 600]))
        with np.errstate(over="ignore"):
            x = np.array([row_of(rng, kind, n) for kind in ROWS]).astype(dtype)
        r = rng.choice([rng.random(), 0.0, 1.0, -3.0, np.nan, 7.0, 1 - 2.0**-24], len(x)).astype(dtype)
        r[: len(x) // 2] = rng.random(len(x) // 2)
        assert_allowed(x, r, drawn(device, x, r, int(rng.integers(2)), **filters), **filters)


@pytest.mark.parametrize("filters", [{"temperature": 0.375}, {"temperature": 0.375, "top_p": 0.5}], ids=str)
def test_the_last_token_is_drawn_where_sums_lose_bits(device, filters):
    """Weights add up to 2^63, which is more than the 53 bits of a sum, and r asks for all of them."""
    x = random().standard_normal((600, 64)).astype("f4")
    r = np.full(len(x), 1.5, "f4")
    assert_allowed(x, r, drawn(device, x, r, **filters), **filters)


@pytest.mark.parametrize("blocks", [2, 8])
def test_blocks_of_a_cluster_share_a_row(device, monkeypatch, blocks):
    monkeypatch.setattr(sample, "shape_of", lambda *_: (64, blocks))
    rng = random()
    for filters in FILTERS[2:4]:
        n = int(rng.choice([3, 77, 500]))
        with np.errstate(over="ignore"):
            x = np.array([row_of(rng, kind, n) for kind in ROWS]).astype("f4")
        r = rng.random(len(x)).astype("f4")
        got = drawn(device, x, r, **filters)
        assert_allowed(x, r, got, **filters)
        monkeypatch.setattr(sample, "shape_of", lambda *_: (128, 1))
        assert (drawn(device, x, r, **filters) == got).all(), "a token depends on who adds up"
        monkeypatch.setattr(sample, "shape_of", lambda *_: (64, blocks))


def test_leading_axes_are_broadcast(device):
    rng = random()
    for lead, numbers in (((), (5,)), ((4, 1), (3,)), ((2, 1, 2), (2, 3, 1)), ((3,), ())):
        x, r = rng.standard_normal((*lead, 33)).astype("f4"), rng.random(numbers).astype("f4")
        got = drawn(device, x, np.asarray(r), top_k=9)
        assert got.shape == np.broadcast_shapes(lead, numbers)
        assert_allowed(x, r, got, top_k=9)


def test_the_first_nan_is_the_token(device):
    x = random().standard_normal((3, 50)).astype("f4")
    x[0, [17, 30]], x[1, 49], x[2, 0] = np.nan, np.nan, np.nan
    x[0, 3] = np.inf
    for filters in FILTERS[:4]:
        assert drawn(device, x, np.full(3, 0.5, "f4"), **filters).tolist() == [17, 49, 0]


def test_frequencies_are_those_of_the_softmax(device):
    x = np.array([2.0, 0.5, -1.0, 1.0], np.float64)
    r = (np.arange(200) + 0.5) / 200
    got = np.bincount(drawn(device, x, r, temperature=0.8), minlength=4) / 200
    p = np.exp(x / 0.8)
    assert np.abs(got - p / p.sum()).max() <= 1 / 200


def test_what_is_refused(device):
    for x, r, token in (((3, 4), (3,), (2,)), ((3, 0), (3,), (3,)), ((3, 4), (2,), (3,)), ((4,), (), (1,))):
        kernel = sample.sample(device, call("sample", "f4", np.zeros(x), np.zeros(r), top_k=0))
        out = device.to_device(np.full(token, -7, np.int64))
        arrays = device.to_device(np.zeros(x, "f4")), device.to_device(np.zeros(r, "f4"))
        assert kernel(*arrays, 1.0, 1.0, 0.0, out) == -1 and (out.elements == -7).all()
    kernel = sample.sample(device, call("sample", "f4", np.zeros((0, 4)), np.zeros(0), top_k=0))
    empty = [device.to_device(np.zeros(s, "f4")) for s in ((0, 4), (0,))]
    assert kernel(*empty, 1.0, 1.0, 0.0, device.to_device(np.zeros(0, np.int64))) == 0
    both = device.to_device(np.zeros(20, np.int64))
    x = part(both, (2, 4), 0)
    x.dtype = np.dtype("f4")
    out = part(both, (2,), 3)
    kernel = sample.sample(device, call("sample", "f4", np.zeros((2, 4)), np.zeros(2), top_k=0))
    assert kernel(x, device.to_device(np.zeros(2, "f4")), 1.0, 1.0, 0.0, out) == -1
