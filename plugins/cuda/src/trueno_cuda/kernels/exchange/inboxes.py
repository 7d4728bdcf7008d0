"""The memory of a group of GPUs that the others write to: inboxes with two sides, packets, and flags."""

from threading import Barrier, BrokenBarrierError, Lock
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from trueno.errors import KernelError

from trueno_cuda.device.protocol import Device

THREADS = 256
BLOCKS = 128
"""The most blocks of a launch, each with flags for each GPU: those of a block, which looks at them, lie together."""
POLLS = 1 << 24
"""Looks at a flag, each a microsecond or less, after which a GPU gives up: its results are NaN then."""
POLLS_EMULATED = 64
WAIT_S = 120.0
"""How long an emulated GPU waits for the others."""
SIDE = 16 << 20
"""Bytes of a side that one GPU may fill."""
SMALL, WORDS = 1 << 15, 4
"""Numbers of a sum that are sent in packets, and words of one: data, launch, data, launch."""
MEETINGS = 2
"""The most of a launch; each has its flags."""


class Exchange:
    """Inboxes of some GPUs, and the flags beside them; every GPU can write to all.

    capacity: float32 numbers that a GPU may send at once, a multiple of 4.
    """

    def __init__(self, number: int, devices: list[Device], capacity: int) -> None:
        self.number, self.devices, self.capacity = number, devices, capacity
        ranks = len(devices)
        self.inboxes = [d.empty((2, ranks, capacity), np.dtype(np.float32)) for d in devices]
        self.packets = [d.to_device(np.zeros((2, ranks, SMALL * 2), np.uint32)) for d in devices]
        self.flags = [d.to_device(np.zeros((MEETINGS, BLOCKS, ranks), np.uint32)) for d in devices]
        self.epochs = [d.to_device(np.zeros(BLOCKS, np.uint32)) for d in devices]
        for device in devices:
            device.wait()
        self.lock, self._barrier = Lock(), Barrier(ranks)

    def pointers(self, rank: int, small: bool) -> list[int]:
        """The addresses that a launch takes after its operands."""
        kinds = (self.packets,) if small else (self.inboxes, self.flags)
        arrays = [*(kind[rank] for kind in kinds), self.epochs[rank]]
        arrays += [kind[i] for kind in kinds for i in range(len(self.devices)) if i != rank]
        return [x.data.ptr for x in arrays]

    def slot(self, owner: int, epoch: int, rank: int, finished: bool = False) -> Any:
        """What GPU `rank` writes to an emulated one's inbox in launch `epoch`, as words; finished: of its share."""
        words = self.inboxes[owner].elements.view(np.uint32)[epoch & 1, rank]
        return words[half(self.capacity) :] if finished else words

    def meet(self) -> None:
        """Wait until all emulated GPUs are here."""
        try:
            self._barrier.wait(WAIT_S)
        except BrokenBarrierError:
            self._barrier.reset()
            raise KernelError("an exchange waited for the other GPUs; execute their batches in threads") from None


def half(capacity: int) -> int:
    """Where finished shares begin in what a GPU may fill, in words: a share is a third of it, or less."""
    return capacity // 8 * 4


EXCHANGES: "WeakValueDictionary[int, Exchange]" = WeakValueDictionary()
"""By number, which the ops have as a parameter."""
