"""The kernels of sums between GPUs, each in float32 and bfloat16, on the emulator; and which of them a call takes."""

from itertools import product

import numpy as np
import pytest
from ml_dtypes import bfloat16
from trueno.errors import KernelError
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels.exchange import launches, packets, shares
from trueno_cuda.kernels.exchange.cells import loaded, stored
from trueno_cuda.kernels.exchange.inboxes import BLOCKS, SMALL, half
from trueno_cuda.kernels.exchange.launches import chosen, exchanged_rows, source
from trueno_cuda.kernels.exchange.played import Form, play
from trueno_cuda.kernels.exchange.shares import MEETING, owned
from unit.cuda.kernels.exchanging import emulators, grouped, kernel, summed, together
from unit.cuda.kernels.moves import random, shifted, unwritten

FORMS = {"small": (SMALL, MEETING), "sum": (0, 1 << 40), "shared": (0, 1)}
"""Numbers that go into packets, and bytes that a second meeting must spare, so that a call takes this kernel."""
CASES = [(form, ranks) for form, ranks in product(FORMS, (1, 2, 3, 4)) if form != "shared" or ranks > 2]


@pytest.fixture
def take(monkeypatch):
    """Let calls take a kernel."""

    def taken(form):
        monkeypatch.setattr(launches, "SMALL", FORMS[form][0])
        monkeypatch.setattr(shares, "MEETING", FORMS[form][1])

    return taken


def rounded(x):
    """By a package that knows nothing of ours."""
    return np.asarray(x).astype(bfloat16).astype(np.float32)


def total(arrays, form="sum", precision="f32"):
    """What each GPU must have: in the order of the GPUs."""
    arrays = list(map(rounded, arrays)) if precision == "bf16" else arrays
    y = arrays[0]
    for x in arrays[1:]:
        y = y + x
    return rounded(y) if precision == "bf16" and form == "shared" else y


@pytest.mark.parametrize("form, ranks", CASES)
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_sums(take, form, ranks, precision):
    """Of every size, one after the other, so that both sides are used; near the exact sum as the docs say."""
    take(form)
    rng, devices = random(), emulators(ranks)
    assert chosen("sum", ranks, 8, (), precision == "bf16").name == form
    with grouped(devices) as group:
        kernels = [kernel(group, i, precision=precision) for i in range(ranks)]
        for n in (1, 3, 8, 7, 2, 64, 1023, 1024, 4095, 4096):
            arrays = [(rng.standard_normal(n) * 10.0 ** rng.integers(-6, 6, n)).astype("f4") for _ in devices]
            results, want = summed(group, kernels, arrays), total(arrays, form, precision)
            assert [y.tobytes() for y in results] == [want.tobytes()] * ranks, n
            exact, size = (sum(np.float64(1) * x for x in map(f, arrays)) for f in (np.float64, np.abs))
            unit = (2**-7 * 1.01 if form == "shared" else 2**-8) if precision == "bf16" else 0
            assert (np.abs(want - exact) <= (unit + ranks * 2**-24) * size).all()


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_shares_of_eight_gpus(take, precision):
    """Fewer numbers than GPUs, and many."""
    take("shared")
    rng, devices = random(), emulators(8)
    with grouped(devices) as group:
        kernels = [kernel(group, i, precision=precision) for i in range(8)]
        for n in (5, 4096):
            arrays = [rng.standard_normal(n).astype("f4") for _ in devices]
            want = total(arrays, "shared", precision)
            assert [y.tobytes() for y in summed(group, kernels, arrays)] == [want.tobytes()] * 8


@pytest.mark.parametrize("ranks", [3, 4])
def test_kernels_in_turns(take, ranks):
    """Each finds the side that the one before it left, whichever that was."""
    rng, devices, order = random(), emulators(ranks), ["shared", "small", "shared", "shared", "sum", "rows", "sum"]
    with grouped(devices) as group:
        for turn, form in enumerate([*order, *order[::-1]]):
            n, precision = (4096, 1000, 12, 333)[turn % 4], ("f32", "bf16")[turn // 2 % 2]
            arrays = [rng.standard_normal(n).astype("f4") for _ in devices]
            if form == "rows":
                widths = " ".join([str(n)] * ranks)
                kernels = [kernel(group, i, exchanged_rows, widths=widths) for i in range(ranks)]
                outs = [unwritten(d, (ranks * n,), "f4") for d in devices]
                together(kernels, [d.to_device(x) for d, x in zip(devices, arrays, strict=True)], outs)
                results, want = [y.elements for y in outs], np.concatenate(arrays)
            else:
                take(form)
                kernels = [kernel(group, i, precision=precision) for i in range(ranks)]
                results, want = summed(group, kernels, arrays), total(arrays, form, precision)
            assert [y.tobytes() for y in results] == [want.tobytes()] * ranks, turn
        assert {int(e) for epochs in group.epochs for e in epochs.elements} == {turn + 1}


@pytest.mark.parametrize("form, ranks", [("small", 2), ("sum", 2), ("shared", 3)])
@pytest.mark.parametrize("shift", [1, 2])
def test_arrays_that_are_not_aligned(take, form, ranks, shift):
    take(form)
    rng, devices = random(), emulators(ranks)
    arrays = [rng.standard_normal(64).astype("f4") for _ in devices]
    outs = [unwritten(d, (64,), "f4", shift) for d in devices]
    with grouped(devices) as group:
        kernels = [kernel(group, i, precision="bf16") for i in range(ranks)]
        together(kernels, [shifted(d, x, shift) for d, x in zip(devices, arrays, strict=True)], outs)
    assert [y.elements.tobytes() for y in outs] == [total(arrays, form, "bf16").tobytes()] * ranks


SPECIAL = np.float32([0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, 1e-40, -1e-45, 1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-9])
"""Ties, and what becomes Inf."""


@pytest.mark.parametrize("form, ranks", [("small", 2), ("sum", 2), ("shared", 3)])
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_rounding_of_special_numbers(take, form, ranks, arch):
    """An architecture without an instruction for it rounds as the others do."""
    take(form)
    devices = emulators(ranks, arch)
    arrays = [SPECIAL, *[np.zeros_like(SPECIAL)] * (ranks - 1)]
    with grouped(devices) as group, np.errstate(over="ignore"):
        results = summed(group, [kernel(group, i, precision="bf16") for i in range(ranks)], arrays)
        want = total(arrays, form, "bf16")
    for y in results:
        assert np.array_equal(y, want, equal_nan=True)


# ---- a GPU that does not come


def alone(arrived, flags, narrow=False, polls=5, ranks=3, rank=1, capacity=64):
    """The launch of GPU 1 of three, with numbers of their own: result, what it sent to the others, its flags there."""
    rng, device, V = random(), Emulator("sm_90"), 8 if narrow else 4
    x = rng.standard_normal(24).astype("f4")
    inbox, others = np.zeros((2, ranks, capacity), "f4"), [i for i in range(ranks) if i != rank]
    for i in others:
        bits = stored(arrived[i], narrow)
        words = inbox[1, i].view(bits.dtype)
        start = half(capacity) * 4 // bits.itemsize
        words[:8], words[start : start + 8] = bits[8:16], stored(np.full(8, i + 1, "f4"), narrow)
    own = [device.to_device(v) for v in (inbox, flags, np.zeros(BLOCKS, np.uint32))]
    theirs = [device.to_device(np.zeros_like(inbox)) for _ in others]
    signals = [device.to_device(np.zeros_like(flags)) for _ in others]
    out, more = unwritten(device, (24,), "f4"), {"NARROW": True} if narrow else {}
    built = source("shared", ranks, rank).build(device.arch, N=ranks, RANK=rank, CAPACITY=capacity, V=V, **more)
    launch = device.prepare(built, (1, 1, 1), (24 // V, polls))
    arrays = [device.to_device(x), out, *own, *theirs, *signals]
    launch([a.data.ptr for a in arrays])
    return x, out.elements, [t.elements for t in theirs], [s.elements for s in signals]


def told(meetings, missing=()):
    flags = np.zeros((2, BLOCKS, 3), np.uint32)
    flags[:meetings] = 1
    for meeting, rank in missing:
        flags[meeting, :, rank] = 0
    return flags


@pytest.mark.parametrize("narrow", [False, True])
def test_a_share_is_the_sum_and_the_others_are_theirs(narrow):
    parts = random().standard_normal((3, 24)).astype("f4")
    x, y, theirs, signals = alone(parts, told(2), narrow)
    parts[1] = x
    want = np.repeat(np.float32([1, 0, 3]), 8)
    want[8:16] = total(parts[:, 8:16], "shared", "bf16" if narrow else "f32")
    assert np.array_equal(y, want)
    for i, there, signal in zip((0, 2), theirs, signals, strict=True):
        kind = np.uint16 if narrow else np.uint32
        words = there[1, 1].view(kind)
        start = half(64) * 4 // words.itemsize
        assert np.array_equal(words[:8], stored(x[8 * i :][:8], narrow))
        assert np.array_equal(loaded(words[start : start + 8]), want[8:16])
        words[:8], words[start : start + 8] = 0, 0
        assert not there.any() and signal[:, 0, 1].tolist() == [1, 1]


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("missing", [[(0, 0)], [(0, 2), (1, 2)], [(0, 0), (1, 2)]])
def test_one_that_does_not_send_its_part(narrow, missing):
    """All results are NaN, and so are the shares that the others get."""
    x, y, theirs, signals = alone(np.ones((3, 24), "f4"), told(2, missing), narrow)
    assert np.isnan(y).all()
    for i, there, signal in zip((0, 2), theirs, signals, strict=True):
        words = there[1, 1].view(np.uint16 if narrow else np.uint32)
        start = half(64) * 4 // words.itemsize
        assert np.array_equal(words[:8], stored(x[8 * i :][:8], narrow))
        assert np.isnan(loaded(words[start : start + 8])).all() and signal[:, 0, 1].tolist() == [1, 1]


def test_one_that_does_not_send_its_share():
    x, y, theirs, _ = alone(np.ones((3, 24), "f4"), told(2, [(1, 2)]))
    assert np.isnan(y[:8]).all() and np.isnan(y[16:]).all() and np.array_equal(y[8:16], 1 + x[8:16] + 1)
    assert all(np.array_equal(there[1, 1, half(64) :][:8], y[8:16]) for there in theirs)


@pytest.mark.parametrize("epoch", [0, 2**31 - 1, 2**32 - 1])
def test_counts_go_round_at_both_meetings(take, epoch):
    take("shared")
    rng, devices = random(), emulators(3)
    with grouped(devices) as group:
        for epochs, flags in zip(group.epochs, group.flags, strict=True):
            epochs.elements[:], flags.elements[:] = epoch, epoch
        kernels = [kernel(group, i) for i in range(3)]
        for _ in range(3):
            arrays = [rng.standard_normal(100).astype("f4") for _ in devices]
            assert [y.tobytes() for y in summed(group, kernels, arrays)] == [total(arrays).tobytes()] * 3


@pytest.mark.parametrize("form, ranks", [("small", 2), ("sum", 2), ("shared", 3)])
def test_a_kernel_that_does_not_send_is_found(monkeypatch, form, ranks):
    """What the emulator plays for the others is no excuse."""
    devices = emulators(ranks)
    with grouped(devices) as group:
        monkeypatch.setattr(group, "meet", lambda: None)
        x = devices[0].to_device(np.ones(64, "f4"))
        with pytest.raises(KernelError, match="GPU 0 has not sent what it had to"):
            play(group, 0, x, Form(form, False, 4, 1), lambda: None)


# ---- which kernel


def test_a_call_takes_the_kernel_of_its_size():
    assert [chosen("sum", 4, n).name for n in (1, SMALL, SMALL + 4, 1 << 17, 1 << 18, 1 << 22)] == [
        "small", "small", "sum", "sum", "shared", "shared"]  # fmt: skip
    assert chosen("sum", 2, 1 << 24).name == "sum"  # two GPUs send no less by shares
    assert chosen("sum", 3, 3 << 17).name == "shared" and chosen("sum", 3, (3 << 17) - 4).name == "sum"
    assert chosen("sum", 4, 1 << 18, (), True).name == "sum"  # half of the bytes
    assert chosen("sum", 4, 1 << 19, (), True).name == "shared"
    assert chosen("rows", 4, 1 << 22, (4096,) * 4).name == "rows"
    assert [chosen("sum", 2, n, (), narrow).V for n in (100_000, 100_004, 100_001) for narrow in (False, True)] == [
        4, 8, 4, 1, 1, 1]  # fmt: skip
    assert [chosen("sum", 4, n).blocks for n in (1, 513, 1 << 20)] == [1, 2, BLOCKS]
    assert packets.packed(5) == 12 and packets.packed(5, True) == 8


@pytest.mark.parametrize("count", [0, 1, 2, 5, 6, 7, 1000])
@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_shares_are_all_numbers_once(count, ranks):
    parts = owned(count, ranks)
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(count))
    assert max(part.stop - part.start for part in parts) == -(-count // ranks)


@pytest.mark.parametrize("capacity", [1024, 1028, 4096, 16384])
def test_a_share_fits_into_half_of_what_a_gpu_may_fill(capacity):
    for ranks in (3, 4, 8):
        for count in range(capacity - 9, capacity + 1):
            for V in (1, 4, 8):
                if count % V == 0:
                    most = owned(count // V, ranks)[0].stop * V
                    assert most <= half(capacity) and half(capacity) % 4 == 0 and half(capacity) + most <= capacity
