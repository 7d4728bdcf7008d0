"""Asynchronous copies in flight: what they will write once a thread waits for them."""

from dataclasses import dataclass

import numpy as np

from trueno_cuda.ptx.emulate.lanes import Lanes
from trueno_cuda.ptx.emulate.shadow import SharedShadow
from trueno_cuda.ptx.syntax.tree import Instruction
from trueno_cuda.ptx.syntax.types import Array


@dataclass
class ThreadCopy:
    """cp.async of one instruction: `data[lane]` goes to `index[lane]` of shared memory.  number: each lane's group."""

    ins: Instruction
    lanes: Array
    index: Array
    data: Array
    number: Array

    def land(self, m: Lanes, shadow: SharedShadow | None, mask: Array) -> bool:
        """The copies of some lanes arrive; whether any stay in flight."""
        size = self.data.shape[1]
        at = self.index[mask][:, None] + np.arange(size)
        m.shared[at] = self.data[mask]
        if shadow is not None:
            words = shadow.words(self.index[mask], size)
            shadow.land(words, np.broadcast_to(self.lanes[mask][:, None], words.shape))
        keep = ~mask
        if not keep.any():
            return False
        self.lanes, self.index, self.data, self.number = (
            self.lanes[keep], self.index[keep], self.data[keep], self.number[keep],
        )  # fmt: skip
        if shadow is not None:
            shadow.in_flight += 1
            shadow.flying[shadow.words(self.index, size)] = 1
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

    def start(self, shadow: SharedShadow | None) -> None:
        if shadow is not None and self.data is not None:
            shadow.depart(np.unique(self.index >> shadow.shift))

    def land(self, m: Lanes, shadow: SharedShadow | None) -> None:
        m.launch.changes += 1
        if self.data is not None:
            m.shared[self.index] = self.data
            if shadow is not None:
                words = np.unique(self.index >> shadow.shift)
                shadow.land(words, np.full(len(words), self.lane))
        else:
            assert self.source is not None
            m.arena.bytes[self.index] = m.shared[self.source]


class Copies:
    """The copies of a chunk that are in flight, but for those that report to an mbarrier, which it keeps itself.

    threads: cp.async; bulk: with the number of its group.  group, bulk_group: of each lane, the one that it is filling.
    """

    def __init__(self, lanes: Lanes, shadow: SharedShadow | None) -> None:
        self.m = lanes
        self.shadow = shadow
        self.threads: list[ThreadCopy] = []
        self.group = np.zeros(lanes.size, np.int64)
        self.bulk: list[tuple[int, BulkCopy]] = []
        self.bulk_group = np.zeros(lanes.size, np.int64)

    def land(self, lanes: Array, before: Array) -> None:
        """cp.async of these lanes whose group number is below `before` arrive, in the order in which they began."""
        limit = np.full(self.m.size, -1, np.int64)
        limit[lanes] = before
        kept = []
        for copy in self.threads:
            mask = copy.number < limit[copy.lanes]
            if not mask.any() or copy.land(self.m, self.shadow, mask):
                kept.append(copy)
        self.threads[:] = kept
