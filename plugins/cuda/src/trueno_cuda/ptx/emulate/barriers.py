"""Waiting of blocks at barriers, and of clusters at theirs."""

import numpy as np

from trueno_cuda.ptx.emulate.findings import BARRIER, DIVERGENT_BARRIER, EARLY_EXIT
from trueno_cuda.ptx.emulate.group import WARP, Group
from trueno_cuda.ptx.emulate.kernel import Kernel
from trueno_cuda.ptx.emulate.machine import Machine
from trueno_cuda.ptx.emulate.parking import Parking
from trueno_cuda.ptx.syntax.types import Array

NUMBERS = 16  # barriers a block


class Barriers:
    """arrived: lanes that `bar.arrive` counted, by block and barrier; warps_arrived: whose."""

    def __init__(self, kernel: Kernel, machine: Machine, parking: Parking) -> None:
        self.kernel = kernel
        self.flow = kernel.flow
        self.m = machine
        self.parking = parking
        self.arrived = np.zeros(machine.blocks_here * NUMBERS, np.int64)
        self.awaited = np.zeros(machine.blocks_here * NUMBERS, np.int64)
        self.warps_arrived: dict[int, set[int]] = {}
        self.cluster_phase = np.zeros(machine.blocks_here, np.int64)
        self.cluster_arrived = np.full(machine.size, -1, np.int64)  # the phase that a lane arrived at

    # ---- blocks ---------------------------------------------------------------------------------

    def block(self, g: Group, at: int) -> Group | None:
        """bar.sync, bar.red and bar.arrive."""
        m = self.m
        bar = self.kernel.barriers[at]
        number = bar.number(m, g)
        if (number >= NUMBERS).any():
            m.find(BARRIER, bar.ins, f"barrier {int(number.max())} of {NUMBERS}", g.lanes[0])
        wanted = None if bar.count is None else bar.count(m, g)
        if wanted is not None and (wanted % WARP).any():
            m.find(BARRIER, bar.ins, f"a count of {int(wanted.max())} is not a multiple of 32", g.lanes[0])
        if bar.arrive:
            key = self._key(g, number)
            np.add.at(self.arrived, key[self._firsts(g)], WARP)
            self.awaited[key] = wanted if wanted is not None else 0
            for one in np.unique(key).tolist():
                self.warps_arrived.setdefault(one, set()).update((g.lanes[key == one] >> 5).tolist())
            m.launch.changes += 1
            return g
        if (
            number.size == 1
            and (wanted is None or (wanted.size == 1 and int(wanted[0]) == -(-m.threads // WARP) * WARP))
            and not self.arrived.any()
            and not self.parking.parked
            and g.n == np.count_nonzero(m.live)
        ):
            self._early_exits(g, at)
            m.passed += 1
            if m.shadow is not None:
                m.shadow.full_barrier()
            if bar.result is not None:
                self._reduce(at, [(at, g, self._key(g, number), np.ones(g.n, bool))])
            m.launch.changes += 1
            return g
        self.parking.park(g, at)
        if bar.aligned:
            self._divergent(self.parking.parked[at], at)
        return None

    @staticmethod
    def _firsts(g: Group) -> Array:
        """The first lane of each warp in a group, by position."""
        w = g.lanes >> 5
        return np.flatnonzero(np.concatenate([[True], w[1:] != w[:-1]]))

    def _key(self, g: Group, number: Array) -> Array:
        return np.asarray(self.m.cta(g) * NUMBERS + (number.astype(np.int64) & (NUMBERS - 1)))

    def release(self) -> bool:
        """Let every complete barrier go; whether there was one."""
        m = self.m
        waiting = [(at, g, self._key(g, self.kernel.barriers[at].number(m, g))) for at, g in self.parking.parked.items()
                   if self.flow.blocks[at].meeting == "block"]  # fmt: skip
        if not waiting:
            return False
        size = len(self.arrived)
        here = np.zeros(size, np.int64)
        wanted = self.awaited.copy()
        for at, g, key in waiting:
            bar = self.kernel.barriers[at]
            if bar.count is None:
                here += np.bincount(key, minlength=size)
                np.maximum.at(wanted, key, m.live_count[m.cta(g)])
            else:  # a count is of warps: one with lanes that left, or a short last one, counts in full
                here += WARP * np.bincount(key[self._firsts(g)], minlength=size)
                np.maximum.at(wanted, key, bar.count(m, g).astype(np.int64))
        done = (here > 0) & (here + self.arrived >= wanted)
        if not done.any():
            return False
        over = done & (here + self.arrived > wanted)
        if over.any():
            at, g, key = waiting[0]
            m.find(BARRIER, self.kernel.barriers[at].ins,
                   f"{int((here + self.arrived)[over][0])} threads came, {int(wanted[over][0])} are awaited",
                   g.lanes[0])  # fmt: skip
        going = [(at, g, key, done[key]) for at, g, key in waiting]
        going = [one for one in going if one[3].any()]
        self._synchronise(going, done)
        self._reduce(-1, going)
        for at, _, _, mask in going:
            after = self.flow.blocks[at].successors[0]
            self.parking.went_on(self.parking.free(at, mask, after), at)
        m.passed[np.unique(np.flatnonzero(done) // NUMBERS)] += 1
        self.arrived[done] = 0
        self.awaited[done] = 0
        m.launch.changes += 1
        return True

    def _synchronise(self, going: list[tuple[int, Group, Array, Array]], done: Array) -> None:
        shadow = self.m.shadow
        for key in np.flatnonzero(done).tolist():
            warps = {w for _, g, keys, _ in going for w in (g.lanes[keys == key] >> 5).tolist()} if shadow else set()
            warps |= self.warps_arrived.pop(key, set())
            if shadow is not None:
                shadow.meet(key // NUMBERS, sorted(warps))

    def _reduce(self, only: int, going: list[tuple[int, Group, Array, Array]]) -> None:
        """The result of bar.red for all who go on."""
        m = self.m
        size = len(self.arrived)
        votes, total = np.zeros(size, np.int64), np.zeros(size, np.int64)
        some = False
        for at, g, key, mask in going:
            bar = self.kernel.barriers[at]
            if bar.vote is None:
                continue
            some = True
            p = np.broadcast_to(bar.vote(m, g), g.n)
            votes += np.bincount(key[p & mask], minlength=size)
            total += np.bincount(key[mask], minlength=size)
        if not some:
            return
        for at, g, key, _ in going:
            bar = self.kernel.barriers[at]
            if bar.result is not None:
                counts = votes[key]
                values = {"popc": counts.astype(np.uint32), "and": counts == total[key], "or": counts > 0}
                bar.result(g, values[bar.kind], None)

    def _early_exits(self, g: Group, at: int) -> None:
        m = self.m
        if g.whole or not self.kernel.barriers[at].aligned:
            return
        short = np.bincount(np.searchsorted(g.warps, g.lanes >> 5), minlength=len(g.warps)) < WARP
        full = np.minimum(WARP, m.threads - g.warps % m.block_warps * WARP)
        count = np.bincount(np.searchsorted(g.warps, g.lanes >> 5), minlength=len(g.warps))
        short = count < full
        if short.any():
            warp = g.warps[int(np.argmax(short))]
            words = "some lanes of the warp left the kernel before the barrier"
            lane = g.lanes[int(np.argmax(g.lanes >> 5 == warp))]
            m.find(EARLY_EXIT, self.kernel.barriers[at].ins, words, lane)

    def _divergent(self, g: Group, at: int) -> None:
        """A warp of which some lanes wait here while others are past this barrier, or at another one."""
        m = self.m
        if g.whole:
            return
        absent = np.zeros(m.size, bool)
        absent.reshape(-1, WARP)[g.warps] = True
        absent &= m.live
        absent[g.lanes] = False
        if not absent.any():
            self._early_exits(g, at)
            return
        ready, yielded, parked = self.parking.ready, self.parking.yielded, self.parking.parked
        for where, other in (*ready.items(), *yielded.items(), *parked.items()):
            late = absent[other.lanes] if where > at or (where in parked and where != at) else np.zeros(1, bool)
            if late.any():
                self._say_divergent(at, g, int(other.lanes[int(np.argmax(late))]), where)
                return

    def _say_divergent(self, at: int, g: Group, lane: int, where: int) -> None:
        m = self.m
        line = self.flow.instructions[min(self.flow.blocks[where].start, len(self.flow.instructions) - 1)].line
        mine = g.lanes[int(np.argmax(g.lanes >> 5 == lane >> 5))]
        m.find(DIVERGENT_BARRIER, self.kernel.barriers[at].ins,
               f"lane {lane % WARP} of the warp does not come with the others: it is at line {line}", mine)  # fmt: skip

    def left(self, g: Group) -> None:
        """Lanes left the kernel while others of their warp wait at a barrier."""
        m = self.m
        gone = np.zeros(m.size // WARP, bool)
        gone[g.warps] = True
        for at, other in self.parking.parked.items():
            if self.flow.blocks[at].meeting == "block" and self.kernel.barriers[at].aligned:
                hit = gone[other.lanes >> 5]
                if hit.any():
                    warp = int(other.lanes[int(np.argmax(hit))] >> 5)
                    lane = int(g.lanes[int(np.argmax(g.lanes >> 5 == warp))])
                    self._say_divergent(at, other, lane, g.block)

    # ---- clusters -------------------------------------------------------------------------------

    def cluster(self, g: Group, at: int) -> Group | None:
        """barrier.cluster.arrive counts a lane; .wait waits until all lanes of the cluster's blocks have arrived."""
        m = self.m
        ins = self.flow.first(at)
        group_of = m.cta(g) // m.launch.cluster_blocks
        if "arrive" in ins.mods:
            self.cluster_arrived[g.lanes] = self.cluster_phase[group_of]
            if m.shadow is not None:
                m.shadow.cluster_arrive(g.warps)
            m.launch.changes += 1
            return g
        if (self.cluster_arrived[g.lanes] < 0).any():
            m.find(BARRIER, ins, "barrier.cluster.wait without an arrive before it", g.lanes[0])
        self.parking.park(g, at)
        return None

    def release_clusters(self) -> bool:
        m = self.m
        waiting = [(at, g) for at, g in self.parking.parked.items() if self.flow.blocks[at].meeting == "cluster"]
        if not waiting:
            return False
        lanes = m.block_lanes * m.launch.cluster_blocks
        phase = np.repeat(self.cluster_phase[: m.size // lanes], lanes)
        pending = np.logical_or.reduce((m.live & (self.cluster_arrived < phase)).reshape(-1, lanes), axis=1)
        self.cluster_phase[: len(pending)] += ~pending
        moved = False
        for at, g in waiting:
            mask = self.cluster_arrived[g.lanes] < self.cluster_phase[m.cta(g) // m.launch.cluster_blocks]
            if not mask.any():
                continue
            moved = True
            if m.shadow is not None:
                m.shadow.cluster_wait(g.warps[np.isin(g.warps, g.lanes[mask] >> 5)])
            self.cluster_arrived[g.lanes[mask]] = -1
            after = self.flow.blocks[at].successors[0]
            self.parking.went_on(self.parking.free(at, mask, after), at)
        m.launch.changes += moved
        return moved
