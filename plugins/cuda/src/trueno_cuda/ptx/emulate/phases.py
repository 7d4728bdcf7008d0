"""mbarriers: arrivals, bytes expected of asynchronous copies, phases, and the lanes that wait for one.

An mbarrier is eight bytes of shared memory; its state is kept beside the memory, in a slot an eight bytes.  The
copies that report to a barrier land when a thread waits for it, so data that is read without a wait is old data.
"""

import numpy as np

from trueno_cuda.ptx.emulate.access import Access
from trueno_cuda.ptx.emulate.copies import BulkCopy, Copies
from trueno_cuda.ptx.emulate.findings import BARRIER
from trueno_cuda.ptx.emulate.group import Group
from trueno_cuda.ptx.emulate.lanes import Lanes
from trueno_cuda.ptx.emulate.shadow import SharedShadow
from trueno_cuda.ptx.syntax.tree import Instruction
from trueno_cuda.ptx.syntax.types import Array

UNSET = -1


class Phases:
    """expected: arrivals a phase wants (UNSET before init); pending: still missing; bytes: still to come; phase: how
    many have completed."""

    def __init__(self, lanes: Lanes, access: Access, copies: Copies, shadow: SharedShadow | None) -> None:
        self.m = lanes
        self.access = access
        self.thread_copies = copies
        self.shadow = shadow
        slots = len(lanes.shared) // 8 if lanes.layout.uses_mbarrier else 0  # the last lies behind all blocks' memory
        self.expected = np.full(slots, UNSET, np.int64)
        self.pending = np.zeros(slots, np.int64)
        self.bytes = np.zeros(slots, np.int64)
        self.phase = np.zeros(slots, np.int64)
        self.tried = np.zeros(lanes.size, bool)  # lanes that polled in vain a moment ago
        self.answer = np.zeros(lanes.size, bool)  # what the last poll said
        self.copies: dict[int, list[BulkCopy]] = {}
        self.deferred: dict[int, list[tuple[Array, Array]]] = {}  # cp.async.mbarrier.arrive: lanes, copies before

    def slots(self, ins: Instruction, g: Group, lanes: Array, address: Array, space: str = "shared") -> Array:
        """The slot of each lane's barrier; bad addresses are reported and lead to the last, unused slot."""
        m = self.m
        if space == "generic":
            address = address - m.generic("shared")
        place = self.access.place(ins, g, lanes, address, "shared", 8, 8)
        slots = np.broadcast_to(place.at >> 3, lanes.shape)
        return slots if place.good is None else np.where(place.good, slots, len(self.phase) - 1)

    def check(self, ins: Instruction, lanes: Array, slots: Array) -> None:
        unset = self.expected[slots] == UNSET
        if unset.any():
            self.m.find(BARRIER, ins, "the mbarrier was not initialised", lanes[int(np.argmax(unset))],
                        int(np.count_nonzero(unset)))  # fmt: skip
        elif self.shadow is not None:
            self.shadow.ordered(ins, lanes, slots * 8)

    def init(self, ins: Instruction, lanes: Array, slots: Array, counts: Array) -> None:
        if (counts <= 0).any():
            self.m.find(BARRIER, ins, f"an mbarrier of {int(counts.min())} arrivals", lanes[0])
        self.expected[slots] = counts
        self.pending[slots] = counts
        self.bytes[slots] = 0
        self.phase[slots] = 0
        self.m.launch.changes += 1
        if self.shadow is not None:
            self.shadow.write(ins, lanes, slots * 8, 8)

    def expect(self, slots: Array, amounts: Array) -> None:
        np.add.at(self.bytes, slots, amounts)
        self.m.launch.changes += 1

    def arrive(self, ins: Instruction, lanes: Array, slots: Array, counts: Array, drop: bool = False) -> Array:
        """Count arrivals; returns the phase that each lane arrived in."""
        self.check(ins, lanes, slots)
        before = self.phase[slots]
        if self.shadow is not None:
            self.shadow.arrive(slots, lanes >> 5)
        if drop:
            np.subtract.at(self.expected, slots, counts)
        total: dict[int, int] = {}
        for slot, count in zip(slots.tolist(), counts.tolist(), strict=True):
            total[slot] = total.get(slot, 0) + count
        for slot, count in total.items():
            while count:
                pending = int(self.pending[slot])
                if self.bytes[slot] == 0 and 0 < pending == self.expected[slot]:  # whole phases, however many
                    self.phase[slot] += count // pending
                    count %= pending
                step = min(count, pending)
                if not count:
                    break
                if step <= 0:
                    lane = lanes[int(np.argmax(slots == slot))]
                    self.m.find(BARRIER, ins, f"{count} more arrivals than the mbarrier's phase expects", lane)
                    break
                self.pending[slot] -= step
                count -= step
                self._complete(slot)
        self.m.launch.changes += 1
        return before

    def _complete(self, slot: int) -> None:
        if self.pending[slot] == 0 and self.bytes[slot] == 0 and self.expected[slot] != UNSET:
            self.phase[slot] += 1
            self.pending[slot] = self.expected[slot]
            self.m.launch.changes += 1

    def land(self, slots: Array) -> None:
        """Copies that report to these barriers arrive, and arrivals that wait for a thread's own copies happen."""
        for slot in np.unique(slots).tolist():
            for lanes, before in self.deferred.pop(slot, []):
                self.thread_copies.land(lanes, before)
                self.pending[slot] -= len(lanes)
                if self.shadow is not None:
                    self.shadow.arrive(np.full(len(lanes), slot), lanes >> 5)
                self._complete(slot)
            for copy in self.copies.pop(slot, []):
                copy.land(self.m, self.shadow)
                self.bytes[slot] -= copy.size
                if self.shadow is not None:
                    self.shadow.arrive(np.array([slot]), np.array([copy.lane >> 5]))
                self._complete(slot)

    def passed(self, slots: Array, state: Array, parity: bool) -> Array:
        """Whether the phase that a lane waits for is complete."""
        now = self.phase[slots]
        return np.asarray(((now & 1) != (state & 1)) if parity else (now != state.astype(np.int64)))
