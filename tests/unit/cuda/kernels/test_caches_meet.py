"""Decoding in one launch of the CUDA backend, on the emulator: clusters of every size, and which calls have them."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")
from trueno_cuda.kernels.caches import attend
from trueno_cuda.kernels.caches.attend import TWICE, Tuning
from trueno_cuda.kernels.caches.cells import Rows
from unit.caches import assert_outside, assert_right, by_torch, problem, sequences_outside
from unit.cuda.kernels.products import DEVICE, fresh
from unit.cuda.kernels.test_caches import ATOL, attended

H200 = SimpleNamespace(arch="sm_90a", sms=132)


@pytest.fixture
def tuned(monkeypatch):
    """Have all calls use a tuning; how many of them `meet` took is the length of the list."""
    calls, launched = [], attend.by_meeting

    def tune(tuning):
        monkeypatch.setattr(attend, "PLANNED", tuning)
        return calls

    monkeypatch.setattr(attend, "by_meeting", lambda *given: calls.append(given) or launched(*given))
    return tune


@pytest.mark.parametrize(
    ("tuning", "form", "shape", "options"),
    [
        (Tuning(8, 4), "f16", (2, 1, 14, 2, 128, 128, 20, 64, 8), {}),
        (Tuning(16, 8), "f16", (1, 1, 14, 2, 64, 64, 20, 100, 12), {}),  # more blocks than keys for them, or fewer
        (Tuning(2, 12), "f16", (2, 1, 7, 1, 128, 128, 20, 64, 8), {}),
        (Tuning(8, 8), "q8_0", (3, 1, 8, 1, 64, 64, 9, 60, 4), {"softcap": 3.0, "scale": 0.2}),
        (Tuning(3, 4), "bf16", (2, 5, 6, 2, 32, 64, 9, 30, 4), {"window": 33}),  # two tiles of rows
        (Tuning(5, 4), "f16", (2, 2, 6, 2, 32, 96, 9, 30, 4), {"window": 33}),  # slices that end inside of a row
        (Tuning(7, 8), "f16", (2, 3, 3, 1, 32, 32, 9, 30, 4), {}),
        (Tuning(1, 4), "q8_0", (2, 2, 6, 2, 64, 128, 9, 30, 4), {"window": 33}),  # no cluster at all
        (Tuning(1, 8), "f16", (1, 1, 8, 1, 128, 96, 20, 16, 12), {}),
        (Tuning(4, 4), "f16", (2, 1, 14, 2, 64, 64, 2, 150, 1), {}),  # one page a sequence
    ],
    ids=str,
)
def test_clusters_against_pytorch(tuned, tuning, form, shape, options):
    """Sequences of every length, and both ways agree."""
    calls = tuned(tuning)
    rng = fresh()
    operands, keys, values = problem(rng, shape, form)
    got = attended(operands, form, shape[5], **options)
    assert len(calls) == 1
    assert_right(got, operands, keys, values, shape[7], ATOL, **options)
    tuned(TWICE)
    np.testing.assert_allclose(attended(operands, form, shape[5], **options), got, rtol=0, atol=ATOL)
    assert len(calls) == 1


@pytest.mark.parametrize("tuning", [Tuning(8, 4), Tuning(3, 8), Tuning(1, 4), TWICE], ids=str)
def test_sinks_and_sequences_without_keys(tuned, tuning):
    """Lengths of nothing, one key, fewer than a share and a few more; a sink of -Inf is not one."""
    tuned(tuning)
    rng = fresh()
    operands, keys, values = problem(rng, (6, 1, 4, 2, 32, 32, 6, 32, 3), "f16")
    q, _, _, table, lengths = operands
    table[:] = [[0, 1, 2]]
    lengths[:] = 0, 1, 15, 17, 70, 96
    sinks = np.array([0.5, 3.0, -90.0, 90.0], np.float32)
    DEVICE.take_status()
    got = attended(operands, "f16", 32, sinks=sinks, guarded=True)
    assert DEVICE.take_status() == 0 and not got[0].any()
    for i, length in enumerate(lengths[1:], 1):
        at = np.arange(length) // 32, np.arange(length) % 32
        for h in range(4):
            scores = keys[at][:, h // 2].astype("f8") @ q[i, 0, h] * 32**-0.5
            weights = np.exp(np.append(scores, sinks[h]) - max(scores.max(), sinks[h]))
            want = weights[:-1] @ values[at][:, h // 2].astype("f8") / weights.sum()
            np.testing.assert_allclose(got[i, 0, h], want, rtol=0, atol=ATOL)
    none = np.full(4, -np.inf, np.float32)
    np.testing.assert_array_equal(attended(operands, "f16", 32, sinks=none), attended(operands, "f16", 32))


@pytest.mark.parametrize("tuning", [Tuning(8, 4), Tuning(2, 8), Tuning(1, 4), TWICE], ids=str)
def test_what_is_outside_gives_nan(tuned, tuning):
    tuned(tuning)
    operands, keys, values = sequences_outside(fresh(), "bf16")
    DEVICE.take_status()
    got = attended(operands, "bf16", 32, guarded=True)
    assert DEVICE.take_status() == 1
    assert_outside(got, operands, keys, values, ATOL)


@pytest.mark.parametrize("tuning", [Tuning(8, 4), Tuning(1, 4)], ids=str)
def test_numbers_that_are_not_finite(tuned, tuning):
    """Of a value they are those of its column; of a key, those of all columns.  Two launches give the same."""
    operands, _, _ = problem(fresh(), (3, 1, 2, 2, 32, 32, 6, 32, 2), "f16")
    _, k, v, table, lengths = operands
    table[:] = [[0, 1], [2, 3], [4, 5]]
    lengths[:] = 60
    v[1, 7, 0, 3], v[2, 5, 1, 4], k[4, 9, 1, 2] = np.inf, np.nan, np.nan
    found = []
    for one in (tuning, TWICE):
        tuned(one)
        DEVICE.take_status()
        found.append((attended(operands, "f16", 32, guarded=True)[:, 0], DEVICE.take_status()))
    (got, status), (twice, before) = found
    assert status == before != 0
    want = np.zeros(got.shape, bool)
    want[0, 0, 3] = want[1, 1, 4] = want[2, 1] = True
    np.testing.assert_array_equal(~np.isfinite(got), want)
    np.testing.assert_allclose(got, twice, rtol=0, atol=ATOL)


def test_forks_share_pages(tuned):
    """Sequences whose tables name the same pages, up to lengths of their own."""
    tuned(Tuning(8, 8))
    operands, keys, values = problem(fresh(), (3, 1, 6, 2, 32, 32, 5, 32, 4), "f16")
    q, _, _, table, lengths = operands
    table[:] = [[3, 1, 0, 2], [3, 1, 4, -1], [3, -1, -1, -1]]
    lengths[:] = 128, 70, 9
    assert_right(attended(operands, "f16", 32), operands, keys, values, 32, ATOL)
    at = table[2, :1].repeat(9), np.arange(9)
    want = by_torch(q[2], keys[at], values[at])
    np.testing.assert_allclose(attended(operands, "f16", 32)[2], want, rtol=0, atol=ATOL)


def sizes(b, keys, form="f16", t=1, hq=28, hk=4, page=256):
    return attend.Sizes(b, t, hq, hk, 4096, page, -(-keys // page), Rows(form, 128), Rows(form, 128), 0, False)


@pytest.mark.parametrize(
    ("sequences", "keys", "want"),
    [
        (1, 512, (16, 4)),
        (1, 1024, (16, 4)),
        (1, 1280, None),  # more than one turn
        (2, 768, None),
        (4, 512, (4, 4)),
        (4, 768, (6, 4)),
        (4, 4352, None),
        (8, 768, (6, 4)),
        (8, 1024, None),  # clusters would fill the GPU
        (32, 768, None),
        (500, 512, (1, 4)),
    ],
)
def test_which_clusters(sequences, keys, want):
    assert attend.meeting(H200, sizes(sequences, keys)) == want
    assert attend.meeting(H200, sizes(sequences, keys), TWICE) is None


def test_which_calls_have_no_clusters():
    old = SimpleNamespace(arch="sm_86", sms=84)
    assert attend.meeting(old, sizes(1, 512)) is None
    assert attend.meeting(old, sizes(200, 512)) == (1, 4), "one share, and nothing to join"
    assert attend.meeting(H200, sizes(1, 512, t=64)) is None, "warps for different rows"
    small = SimpleNamespace(arch="sm_90a", sms=46)
    assert attend.meeting(small, sizes(1, 768)) is None, "no room for a large cluster"
