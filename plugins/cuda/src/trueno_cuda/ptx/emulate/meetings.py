"""Where lanes wait within a warp or a warp group, and for a phase of an mbarrier."""

import numpy as np

from trueno_cuda.ptx.emulate.findings import MISSING_LANES
from trueno_cuda.ptx.emulate.group import WARP, Group
from trueno_cuda.ptx.emulate.kernel import Kernel
from trueno_cuda.ptx.emulate.machine import Machine
from trueno_cuda.ptx.emulate.parking import Parking
from trueno_cuda.ptx.syntax.types import Array

WARPGROUP = 128


class Meetings:
    """Lets lanes through, or parks them until the lanes that they need have come."""

    def __init__(self, kernel: Kernel, machine: Machine, parking: Parking) -> None:
        self.kernel = kernel
        self.flow = kernel.flow
        self.m = machine
        self.parking = parking

    # ---- warps and warp groups ------------------------------------------------------------------

    def all_named(self, g: Group, at: int) -> bool:
        """Whether the instruction names all 32 lanes."""
        members = self.kernel.members[at]
        if members is None:
            return True
        return bool((members(self.m, g) == np.uint32(0xFFFF_FFFF)).all())

    def gather(self, g: Group, at: int) -> Group | None:
        """Lanes whose whole warp (or warp group) is here pass; the others are parked until it is."""
        m = self.m
        width = WARPGROUP if self.flow.blocks[at].meeting == "group" else WARP
        here = np.zeros(m.size, bool)
        here[g.lanes] = True
        needed = self._needed(g, at)
        absent = needed & ~here
        if not absent.any():
            self._outsiders(g, at)
            return g
        coming = (absent & m.live).reshape(-1, width).any(axis=1)
        gone = absent & ~m.live
        gone.reshape(-1, width)[coming] = False
        if gone.any():
            lane = int(np.argmax(gone))
            m.find(MISSING_LANES, self.flow.first(at),
                   f"lane {lane % WARP} is named but has left the kernel", g.lanes[0])  # fmt: skip
        stay = np.repeat(coming, width)[g.lanes]
        if not stay.any():
            return g
        self.parking.park(g.take(stay, self.kernel.live[at], at), at)
        return None if stay.all() else g.take(~stay, self.kernel.live[at], at)

    def _needed(self, g: Group, at: int) -> Array:
        """All lanes that the instruction names, in the warps of the group."""
        m = self.m
        members = self.kernel.members[at]
        needed = np.zeros(m.size, bool)
        if self.flow.blocks[at].meeting == "group":
            needed.reshape(-1, WARPGROUP)[np.unique(g.lanes // WARPGROUP)] = True
            return needed & np.tile(np.arange(m.block_lanes) < m.threads, m.blocks_here)
        if members is None:
            needed.reshape(-1, WARP)[g.warps] = True
        else:
            mask = np.broadcast_to(members(m, g).astype(np.uint32), g.n)
            first = np.concatenate([[True], (g.lanes[1:] >> 5) != (g.lanes[:-1] >> 5)])
            masks = np.bitwise_or.reduceat(mask, np.flatnonzero(first))  # parts of a warp may name each their own lanes
            bits = masks[:, None] >> np.arange(WARP, dtype=np.uint32) & 1
            needed.reshape(-1, WARP)[g.warps] = bits.astype(bool)
        return needed & np.tile(np.arange(m.block_lanes) < m.threads, m.blocks_here)

    def _outsiders(self, g: Group, at: int) -> None:
        """Report lanes that are not in the mask that they give."""
        members = self.kernel.members[at]
        if members is None:
            return
        outside = (members(self.m, g).astype(np.int64) >> (g.lanes & 31)) & 1 == 0
        if outside.any():
            ins = self.flow.first(at)
            lane = g.lanes[int(np.argmax(outside))]
            self.m.find(MISSING_LANES, ins, "the lane is not in its own member mask", lane)

    def report_missing(self, g: Group, at: int) -> None:
        """Lanes that were waited for in vain."""
        m = self.m
        here = np.zeros(m.size, bool)
        here[g.lanes] = True
        absent = self._needed(g, at) & ~here
        lane = int(np.argmax(absent))
        waiting = (*self.parking.parked.items(), *self.parking.yielded.items())
        where = next((f"line {self.flow.first(k).line}" for k, other in waiting if lane in other.lanes), "elsewhere")
        m.find(MISSING_LANES, self.flow.first(at), f"lane {lane % WARP} is needed here but waits at {where}",
               g.lanes[0], int(np.count_nonzero(absent)))  # fmt: skip

    # ---- phases of mbarriers --------------------------------------------------------------------

    def poll(self, g: Group, at: int) -> Group | None:
        """mbarrier.try_wait: lanes pass when their phase is complete, or told that it is not; else they wait here."""
        pass_ = self.kernel.waits[at](self.m, g, True)
        if pass_.all():
            return g
        if not pass_.any():
            self.parking.park(g, at)
            return None
        self.parking.park(g.take(~pass_, self.kernel.live[at], at), at)
        return g.take(pass_, self.kernel.live[at], at)

    def release(self) -> bool:
        """Let all go whose phase has completed."""
        moved = False
        for at in [at for at in self.parking.parked if self.flow.blocks[at].meeting == "phase"]:
            done = self.kernel.waits[at](self.m, self.parking.parked[at], False)
            if not done.any():
                continue
            moved = True
            self.parking.pass_meeting(self.parking.free(at, done, at), at)
        return moved
