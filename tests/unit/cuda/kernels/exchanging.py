"""Launches of a group of emulated GPUs, each in its thread."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from threading import Thread
from typing import Any

import numpy as np
from trueno.discovery.protocol import Call
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.kernels.exchange.inboxes import EXCHANGES, Exchange
from trueno_cuda.kernels.exchange.launches import exchanged_sum
from trueno_cuda.kernels.table import KERNELS
from unit.cuda.kernels.moves import unwritten

F4 = np.dtype(np.float32)
_numbers = count(1 << 30)


def emulators(ranks: int, arch: str = "sm_90") -> list[Emulator]:
    return [Emulator(arch, number) for number in range(ranks)]


@contextmanager
def grouped(devices: list[Emulator], capacity: int = 4096) -> Iterator[Exchange]:
    """Their exchange, which the kernels find by its number."""
    number = next(_numbers)
    made = EXCHANGES[number] = Exchange(number, devices, capacity)
    try:
        yield made
    finally:
        del EXCHANGES[number]


def kernel(group: Exchange, rank: int, op: Any = exchanged_sum, rank_of: int | None = None, **static: Any) -> Any:
    """What a backend makes for a call of this GPU."""
    static = {"group": group.number, "rank": rank} | static
    call = Call(op, F4, "e", 1, (8,), tuple(static.items()), f"cuda_emulated:{rank}")
    assert KERNELS.refusal(call) is None
    return KERNELS.kernel(call, group.devices[rank if rank_of is None else rank_of])


def together(kernels: list[Any], given: list[Any], outs: list[Any]) -> list[Any]:
    """One launch of each GPU, at once."""
    done: list[Any] = [None] * len(kernels)

    def run(i: int) -> None:
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


def summed(group: Exchange, kernels: list[Any], arrays: list[Any]) -> list[Any]:
    """The result of each GPU, on the host."""
    given = [d.to_device(x) for d, x in zip(group.devices, arrays, strict=True)]
    outs = [unwritten(d, x.shape, "f4") for d, x in zip(group.devices, arrays, strict=True)]
    assert together(kernels, given, outs) == [0] * len(kernels)
    assert [x.elements.tobytes() for x in given] == [x.tobytes() for x in arrays]
    return [y.elements for y in outs]
