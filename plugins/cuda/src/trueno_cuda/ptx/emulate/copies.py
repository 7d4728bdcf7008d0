"""Asynchronous copies in flight: what they will write once somebody waits for them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trueno_cuda.ptx.emulate.syntax import Instruction
from trueno_cuda.ptx.emulate.types import Array

if TYPE_CHECKING:
    from trueno_cuda.ptx.emulate.machine import Machine


@dataclass
class ThreadCopy:
    """cp.async of one instruction: `data[lane]` goes to `index[lane]` of shared memory.  number: each lane's group."""

    ins: Instruction
    lanes: Array
    index: Array
    data: Array
    number: Array

    def land(self, m: "Machine", mask: Array) -> bool:
        """The copies of some lanes arrive; whether any stay in flight."""
        size = self.data.shape[1]
        at = self.index[mask][:, None] + np.arange(size)
        m.shared[at] = self.data[mask]
        if m.shadow is not None:
            words = m.shadow.words(self.index[mask], size)
            m.shadow.land(words, np.broadcast_to(self.lanes[mask][:, None], words.shape))
        keep = ~mask
        if not keep.any():
            return False
        self.lanes, self.index, self.data, self.number = (
            self.lanes[keep], self.index[keep], self.data[keep], self.number[keep],
        )  # fmt: skip
        if m.shadow is not None:
            m.shadow.in_flight += 1
            m.shadow.flying[m.shadow.words(self.index, size)] = 1
        return True


@dataclass
class BulkCopy:
    """A bulk copy that one lane asked for.  to_shared: into shared memory at `index`, else to global memory.

    Into shared memory the data is taken when the copy starts; out of it when the copy lands, so a buffer that is
    overwritten before the wait sends what overwrote it.
    """

    ins: Instruction
    lane: int
    size: int
    index: Array
    data: Array | None
    source: Array | None = None

    def start(self, m: "Machine") -> None:
        if m.shadow is not None and self.data is not None:
            m.shadow.depart(np.unique(self.index >> m.shadow.shift))

    def land(self, m: "Machine") -> None:
        m.launch.changes += 1
        if self.data is not None:
            m.shared[self.index] = self.data
            if m.shadow is not None:
                words = np.unique(self.index >> m.shadow.shift)
                m.shadow.land(words, np.full(len(words), self.lane))
        else:
            assert self.source is not None
            m.arena.bytes[self.index] = m.shared[self.source]
