"""Sums and rows of several GPUs on the emulator: launches in threads, and a GPU that does not come."""

import numpy as np
import pytest
from trueno.discovery.protocol import Call
from trueno.errors import KernelError
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels.exchange.inboxes import BLOCKS, POLLS_EMULATED, THREADS
from trueno_cuda.kernels.exchange.launches import exchanged_rows, exchanged_sum, source
from trueno_cuda.kernels.table import KERNELS
from unit.cuda.kernels.exchanging import F4, emulators, grouped, kernel, together
from unit.cuda.kernels.moves import part, random, shifted, unwritten


@pytest.fixture(scope="module", params=[2, 3])
def devices(request):
    return emulators(request.param)


@pytest.fixture
def group(devices):
    with grouped(devices) as made:
        yield made


@pytest.mark.parametrize("n", [1, 3, 4, 7, 64, 1023, 1024, 4096])
def test_sums(group, devices, n):
    """Two launches, which use both sides, and a third one, which uses the first side again."""
    rng, kernels = random(), [kernel(group, i) for i in range(len(devices))]
    for turn in range(3):
        arrays = [rng.standard_normal(n).astype("f4") for _ in devices]
        given = [d.to_device(x) for d, x in zip(devices, arrays, strict=True)]
        outs = [unwritten(d, (n,), "f4") for d in devices]
        assert together(kernels, given, outs) == [0] * len(devices)
        want = arrays[0]
        for x in arrays[1:]:
            want = want + x
        assert [y.elements.tobytes() for y in outs] == [want.tobytes()] * len(devices), turn
        assert [x.elements.tobytes() for x in given] == [x.tobytes() for x in arrays]
    assert [e.elements.tolist() for e in group.epochs] == [[3] * BLOCKS] * len(devices)


def test_launches_of_several_sizes(group, devices):
    """A small one has fewer blocks; all blocks count it, so that a larger one finds the same side."""
    rng, kernels = random(), [kernel(group, i) for i in range(len(devices))]
    for n in (4096, 4, 2047, 1, 4096):
        arrays = [rng.standard_normal(n).astype("f4") for _ in devices]
        outs = [unwritten(d, (n,), "f4") for d in devices]
        together(kernels, [d.to_device(x) for d, x in zip(devices, arrays, strict=True)], outs)
        for y in outs:
            np.testing.assert_allclose(y.elements, sum(arrays), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "rows, widths", [(1, (4, 8, 12)), (3, (4, 4, 4)), (3, (5, 2, 1)), (61, (12, 20, 8)), (2, (3, 3, 3))]
)
def test_rows(group, devices, rows, widths):
    rng, widths = random(), widths[: len(devices)]
    text = " ".join(map(str, widths))
    kernels = [kernel(group, i, exchanged_rows, widths=text) for i in range(len(devices))]
    for _ in range(2):
        arrays = [rng.standard_normal((rows, n)).astype("f4") for n in widths]
        outs = [unwritten(d, (rows, sum(widths)), "f4") for d in devices]
        together(kernels, [d.to_device(x) for d, x in zip(devices, arrays, strict=True)], outs)
        for y in outs:
            assert y.elements.tobytes() == np.hstack(arrays).tobytes()


@pytest.mark.parametrize("shift", [1, 2])
def test_arrays_that_are_not_aligned(group, devices, shift):
    rng, kernels = random(), [kernel(group, i) for i in range(len(devices))]
    arrays = [rng.standard_normal(64).astype("f4") for _ in devices]
    given = [shifted(d, x, shift) for d, x in zip(devices, arrays, strict=True)]
    outs = [unwritten(d, (64,), "f4", shift) for d in devices]
    together(kernels, given, outs)
    for y in outs:
        np.testing.assert_allclose(y.elements, sum(arrays), rtol=1e-6, atol=1e-6)


def test_what_it_refuses(group, devices):
    first, x = kernel(group, 0), devices[0].to_device(np.ones(4097, "f4"))
    with pytest.raises(KernelError, match="exchanged_sum: 4097 numbers; an exchange is made for 4096"):
        first(x, devices[0].empty((4097,), F4))
    assert first(devices[0].empty((0,), F4), devices[0].empty((0,), F4)) == -1
    with pytest.raises(KernelError, match="part 0 belongs to another GPU than cuda_emulated:0"):
        kernel(group, 0, rank_of=1)
    call = Call(exchanged_sum, np.dtype("f8"), "e", 1, (8,), (("group", group.number), ("rank", 0)))
    assert KERNELS.refusal(call).code == "unsupported_dtype"


# ---- launches without the others


def launched(device, name, ranks, rank, x, arrived, polls, V=1, widths=(), epoch=0, capacity=64):
    """One GPU's launch.  arrived: what each other GPU has sent, or None; result, what it sent, its flags at others."""
    others, blocks = [i for i in range(ranks) if i != rank], -(-x.size // (V * THREADS))
    inbox, flags = np.zeros((2, ranks, capacity), "f4"), np.zeros((BLOCKS, ranks), np.uint32)
    flags[:] = epoch & 0xFFFFFFFF
    for i, sent in zip(others, arrived, strict=True):
        if sent is not None:
            inbox[(epoch + 1) & 1, i, : sent.size] = sent.ravel()
            flags[:, i] = (epoch + 1) & 0xFFFFFFFF
    own = [device.to_device(v) for v in (inbox, flags, np.full(BLOCKS, epoch & 0xFFFFFFFF, np.uint32))]
    theirs = [device.to_device(np.zeros_like(inbox)) for _ in others]
    signals = [device.to_device(np.zeros_like(flags)) for _ in others]
    out = unwritten(device, (x.shape[0], sum(widths)) if widths else x.shape, "f4")
    more = {"WIDTHS": widths} if widths else {}
    built = source(name, ranks, rank).build(device.arch, N=ranks, RANK=rank, CAPACITY=capacity, V=V, **more)
    number = x.shape[0] if widths else x.size // V
    launch = device.prepare(built, (blocks, 1, 1), (number, polls))
    arrays = [device.to_device(x), out, *own, *theirs, *signals]
    launch([a.data.ptr for a in arrays])
    return out.elements, [t.elements for t in theirs], [s.elements for s in signals], own[2].elements


@pytest.mark.parametrize("name, widths", [("sum", ()), ("rows", (6, 6, 6))])
@pytest.mark.parametrize("missing", [0, 1])
def test_a_gpu_that_does_not_come(name, widths, missing):
    """The results are NaN after so many looks, and the GPU's own part has been sent all the same."""
    rng, device = random(), Emulator("sm_90")
    x, *sent = rng.standard_normal((3, 2, 6)).astype("f4")
    sent[missing] = None
    y, theirs, signals, epochs = launched(device, name, 3, 1, x, sent, polls=5, widths=widths)
    assert np.isnan(y).all()
    for there, signal in zip(theirs, signals, strict=True):
        assert np.array_equal(there[1, 1, :12], x.ravel()) and signal[0, 1] == 1
    assert epochs.tolist() == [1] * BLOCKS


@pytest.mark.parametrize("epoch", [0, 1, 2, 2**31 - 1, 2**32 - 1, 2**32 - 2])
def test_counts_go_round(epoch):
    rng, device = random(), Emulator("sm_90")
    x, sent = rng.standard_normal((2, 8)).astype("f4")
    y, (there,), (signal,), epochs = launched(device, "sum", 2, 0, x, [sent], POLLS_EMULATED, V=4, epoch=epoch)
    assert np.array_equal(y, x + sent)
    assert np.array_equal(there[(epoch + 1) & 1, 0, :8], x) and not there[epoch & 1].any()
    assert signal[0, 0] == epochs[-1] == (epoch + 1) % 2**32


def test_a_gpu_that_is_one_launch_ahead():
    """Its flag counts further, and what it sent for this launch is still there, on the other side."""
    rng, device = random(), Emulator("sm_90")
    x, sent = rng.standard_normal((2, 8)).astype("f4")
    inbox, flags = np.zeros((2, 2, 64), "f4"), np.zeros((BLOCKS, 2), np.uint32)
    inbox[1, 1, :8], inbox[0, 1, :8], flags[:, 1] = sent, 99, 2
    out = unwritten(device, (8,), "f4")
    more = (inbox, flags, np.zeros(BLOCKS, np.uint32), inbox * 0, flags * 0)
    arrays = [device.to_device(x), out, *map(device.to_device, more)]
    built = source("sum", 2, 0).build("sm_90", N=2, RANK=0, CAPACITY=64, V=1)
    device.prepare(built, (1, 1, 1), (8, 4))([a.data.ptr for a in arrays])
    assert np.array_equal(out.elements, x + sent)


# ---- all GPUs launch the same blocks: each waits for the same block of the others


@pytest.mark.parametrize(
    "op, shapes",
    [
        (exchanged_sum, [(3000,), (3000,)]),
        (exchanged_rows, [(4, 64), (4, 64)]),
        (exchanged_rows, [(4, 64), (4, 512)]),
        (exchanged_rows, [(1, 1001), (1, 1000)]),
    ],
)
def test_all_gpus_launch_the_same_blocks(monkeypatch, op, shapes):
    """A block waits for the same block of the others, and reads what it has sent."""
    grids, devices = [], [Emulator("sm_90", i) for i in range(2)]
    for device in devices:
        real = device.prepare

        def prepare(built, grid, numbers, real=real):
            grids.append((grid, built.name.partition("_V")[2][:1]))
            return real(built, grid, numbers)

        monkeypatch.setattr(device, "prepare", prepare)
    static = {"widths": " ".join(str(s[-1]) for s in shapes)} if op is exchanged_rows else {}
    width = sum(s[-1] for s in shapes) if static else shapes[0][-1]
    given = [d.to_device(np.ones(s, "f4")) for d, s in zip(devices, shapes, strict=True)]
    with grouped(devices) as group:
        kernels = [kernel(group, i, op, **static) for i in range(2)]
        together(kernels, given, [d.empty((*s[:-1], width), F4) for d, s in zip(devices, shapes, strict=True)])
    assert len(grids) == 2 and grids[0] == grids[1]


def test_one_gpu_that_is_not_aligned(monkeypatch):
    """Each GPU has as many blocks as the others then, too."""
    grids, devices = [], [Emulator("sm_90", i) for i in range(2)]
    for device in devices:
        real = device.prepare
        monkeypatch.setattr(device, "prepare", lambda b, g, n, real=real: (grids.append((b.name, g)), real(b, g, n))[1])
    x = np.ones(2048, "f4")
    whole = devices[1].to_device(np.ones(2049, "f4"))
    odd = part(whole, (2048,), 1)
    outs = [d.empty((2048,), F4) for d in devices]
    with grouped(devices) as group:
        together([kernel(group, i) for i in range(2)], [devices[0].to_device(x), odd], outs)
    assert len({grid for _, grid in grids}) == 1
