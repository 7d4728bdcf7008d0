"""All GPUs of an exchange launch the same blocks: each waits for the same block of the others."""

from threading import Thread

import numpy as np
import pytest
from trueno.discovery.protocol import Call
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels import exchange
from trueno_cuda.kernels.exchange import EXCHANGES, Exchange
from trueno_cuda.kernels.table import KERNELS
from unit.cuda.kernels.moves import part

F4 = np.dtype(np.float32)


def kernel(group, rank, op=exchange.exchanged_sum, rank_of=None, **static):
    """What a backend makes for a call of this GPU."""
    static = {"group": group.number, "rank": rank} | static
    call = Call(op, F4, "e", 1, (8,), tuple(static.items()), f"cuda_emulated:{rank}")
    assert KERNELS.refusal(call) is None
    return KERNELS.kernel(call, group.devices[rank if rank_of is None else rank_of])


def together(kernels, given, outs):
    """One launch of each GPU, at once."""
    done = [None] * len(kernels)

    def run(i):
        try:
            done[i] = kernels[i](given[i], outs[i])
        except Exception as error:
            done[i] = error

    threads = [Thread(target=run, args=(i,)) for i in range(len(kernels))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in done:
        if isinstance(one, Exception):
            raise one
    return done


@pytest.mark.parametrize(
    "op, shapes",
    [
        (exchange.exchanged_sum, [(3000,), (3000,)]),
        (exchange.exchanged_rows, [(4, 64), (4, 64)]),
        (exchange.exchanged_rows, [(4, 64), (4, 512)]),
        (exchange.exchanged_rows, [(1, 1001), (1, 1000)]),
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
    number = (1 << 30) + 1
    group = EXCHANGES[number] = Exchange(number, devices, 4096)
    static = {"widths": " ".join(str(s[-1]) for s in shapes)} if op is exchange.exchanged_rows else {}
    width = sum(s[-1] for s in shapes) if static else shapes[0][-1]
    kernels = [kernel(group, i, op, **static) for i in range(2)]
    given = [d.to_device(np.ones(s, "f4")) for d, s in zip(devices, shapes, strict=True)]
    together(kernels, given, [d.empty((*s[:-1], width), F4) for d, s in zip(devices, shapes, strict=True)])
    assert len(grids) == 2 and grids[0] == grids[1]


def test_one_gpu_that_is_not_aligned(monkeypatch):
    """Each GPU has as many blocks as the others then, too."""
    grids, devices = [], [Emulator("sm_90", i) for i in range(2)]
    for device in devices:
        real = device.prepare
        monkeypatch.setattr(device, "prepare", lambda b, g, n, real=real: (grids.append((b.name, g)), real(b, g, n))[1])
    number = (1 << 30) + 2
    group = EXCHANGES[number] = Exchange(number, devices, 4096)
    x = np.ones(2048, "f4")
    whole = devices[1].to_device(np.ones(2049, "f4"))
    odd = part(whole, (2048,), 1)
    outs = [d.empty((2048,), F4) for d in devices]
    together([kernel(group, i) for i in range(2)], [devices[0].to_device(x), odd], outs)
    assert len({grid for _, grid in grids}) == 1
