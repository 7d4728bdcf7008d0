"""Where lanes wait for lanes: warps at warp-wide instructions, blocks at barriers, clusters at theirs."""

from typing import TYPE_CHECKING

import numpy as np

from trueno_cuda.ptx.emulate.group import WARP, Group
from trueno_cuda.ptx.emulate.report import RISK
from trueno_cuda.ptx.emulate.types import Array

if TYPE_CHECKING:
    from trueno_cuda.ptx.emulate.machine import Machine

NUMBERS = 16  # barriers a block
WARPGROUP = 128


class Barriers:
    """arrived: lanes that `bar.arrive` counted, by block and barrier; warps_arrived: whose."""

    def __init__(self, machine: "Machine") -> None:
        self.m = machine
        self.arrived = np.zeros(machine.blocks_here * NUMBERS, np.int64)
        self.awaited = np.zeros(machine.blocks_here * NUMBERS, np.int64)
        self.warps_arrived: dict[int, set[int]] = {}
        self.passed = np.zeros(machine.blocks_here, np.int32)  # barriers, by block
        self.cluster_phase = np.zeros(machine.blocks_here, np.int64)
        self.cluster_arrived = np.full(machine.size, -1, np.int64)  # the phase that a lane arrived at

    # ---- warps and warp groups ------------------------------------------------------------------

    def all_named(self, g: Group, at: int) -> bool:
        """Whether the instruction names all 32 lanes."""
        members = self.m.kernel.members[at]
        if members is None:
            return True
        return bool((members(self.m, g) == np.uint32(0xFFFF_FFFF)).all())

    def gather(self, g: Group, at: int) -> Group | None:
        """Lanes whose whole warp (or warp group) is here pass; the others are parked until it is."""
        m = self.m
        width = WARPGROUP if m.flow.blocks[at].meeting == "group" else WARP
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
            m.find("missing-lanes", m.flow.instructions[m.flow.blocks[at].start],
                   f"lane {lane % WARP} is named but has left the kernel", g.lanes[0])  # fmt: skip
        stay = np.repeat(coming, width)[g.lanes]
        if not stay.any():
            return g
        m.park(g.take(stay, m.kernel.live[at], at), at)
        return None if stay.all() else g.take(~stay, m.kernel.live[at], at)

    def _needed(self, g: Group, at: int) -> Array:
        """All lanes that the instruction names, in the warps of the group."""
        m = self.m
        members = m.kernel.members[at]
        needed = np.zeros(m.size, bool)
        if m.flow.blocks[at].meeting == "group":
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
        members = self.m.kernel.members[at]
        if members is None:
            return
        outside = (members(self.m, g).astype(np.int64) >> (g.lanes & 31)) & 1 == 0
        if outside.any():
            ins = self.m.flow.instructions[self.m.flow.blocks[at].start]
            lane = g.lanes[int(np.argmax(outside))]
            self.m.find("missing-lanes", ins, "the lane is not in its own member mask", lane)

    def report_missing(self, g: Group, at: int) -> None:
        """Lanes that were waited for in vain."""
        m = self.m
        here = np.zeros(m.size, bool)
        here[g.lanes] = True
        absent = self._needed(g, at) & ~here
        lane = int(np.argmax(absent))
        where = next((f"line {m.flow.instructions[m.flow.blocks[k].start].line}" for k, other in
                      (*m.parked.items(), *m.yielded.items()) if lane in other.lanes), "elsewhere")  # fmt: skip
        m.find("missing-lanes", m.flow.instructions[m.flow.blocks[at].start],
               f"lane {lane % WARP} is needed here but waits at {where}", g.lanes[0],
               int(np.count_nonzero(absent)))  # fmt: skip

    # ---- blocks ---------------------------------------------------------------------------------

    def block(self, g: Group, at: int) -> Group | None:
        """bar.sync, bar.red and bar.arrive."""
        m = self.m
        bar = m.kernel.barriers[at]
        number = bar.number(m, g)
        if (number >= NUMBERS).any():
            m.find("barrier", bar.ins, f"barrier {int(number.max())} of {NUMBERS}", g.lanes[0])
        wanted = None if bar.count is None else bar.count(m, g)
        if wanted is not None and (wanted % WARP).any():
            m.find("barrier", bar.ins, f"a count of {int(wanted.max())} is no multiple of 32", g.lanes[0])
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
            and not m.parked
            and g.n == np.count_nonzero(m.live)
        ):
            self._early_exits(g, at)
            self.passed += 1
            if m.shadow is not None:
                m.shadow.full_barrier()
            if bar.result is not None:
                self._reduce(at, [(at, g, self._key(g, number), np.ones(g.n, bool))])
            m.launch.changes += 1
            return g
        m.park(g, at)
        if bar.aligned:
            self._divergent(m.parked[at], at)
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
        waiting = [(at, g, self._key(g, m.kernel.barriers[at].number(m, g))) for at, g in m.parked.items()
                   if m.flow.blocks[at].meeting == "block"]  # fmt: skip
        if not waiting:
            return False
        size = len(self.arrived)
        here = np.zeros(size, np.int64)
        wanted = self.awaited.copy()
        for at, g, key in waiting:
            bar = m.kernel.barriers[at]
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
            m.find("barrier", m.kernel.barriers[at].ins,
                   f"{int((here + self.arrived)[over][0])} threads came, {int(wanted[over][0])} are awaited",
                   g.lanes[0])  # fmt: skip
        going = [(at, g, key, done[key]) for at, g, key in waiting]
        going = [one for one in going if one[3].any()]
        self._synchronise(going, done)
        self._reduce(-1, going)
        for at, g, _, mask in going:
            del m.parked[at]
            passed = g
            if not mask.all():
                m.parked[at] = g.take(~mask, m.kernel.live[at], at)
                after = m.flow.blocks[at].successors[0]
                passed = g.take(mask, m.kernel.live[after], after)
            m.went_on(passed, at)
        self.passed[np.unique(np.flatnonzero(done) // NUMBERS)] += 1
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
            bar = m.kernel.barriers[at]
            if bar.vote is None:
                continue
            some = True
            p = np.broadcast_to(bar.vote(m, g), g.n)
            votes += np.bincount(key[p & mask], minlength=size)
            total += np.bincount(key[mask], minlength=size)
        if not some:
            return
        for at, g, key, _ in going:
            bar = m.kernel.barriers[at]
            if bar.result is not None:
                counts = votes[key]
                values = {"popc": counts.astype(np.uint32), "and": counts == total[key], "or": counts > 0}
                bar.result(g, values[bar.kind], None)

    def _early_exits(self, g: Group, at: int) -> None:
        m = self.m
        if g.whole or not m.kernel.barriers[at].aligned:
            return
        short = np.bincount(np.searchsorted(g.warps, g.lanes >> 5), minlength=len(g.warps)) < WARP
        full = np.minimum(WARP, m.threads - g.warps % m.block_warps * WARP)
        count = np.bincount(np.searchsorted(g.warps, g.lanes >> 5), minlength=len(g.warps))
        short = count < full
        if short.any():
            warp = g.warps[int(np.argmax(short))]
            m.find("early-exit", m.kernel.barriers[at].ins, "some lanes of the warp left the kernel before the barrier",
                   g.lanes[int(np.argmax(g.lanes >> 5 == warp))], severity=RISK)  # fmt: skip

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
        for where, other in (*m.ready.items(), *m.yielded.items(), *m.parked.items()):
            late = absent[other.lanes] if where > at or (where in m.parked and where != at) else np.zeros(1, bool)
            if late.any():
                self._say_divergent(at, g, int(other.lanes[int(np.argmax(late))]), where)
                return

    def _say_divergent(self, at: int, g: Group, lane: int, where: int) -> None:
        m = self.m
        line = m.flow.instructions[min(m.flow.blocks[where].start, len(m.flow.instructions) - 1)].line
        mine = g.lanes[int(np.argmax(g.lanes >> 5 == lane >> 5))]
        m.find("divergent-barrier", m.kernel.barriers[at].ins,
               f"lane {lane % WARP} of the warp does not come with the others: it is at line {line}", mine)  # fmt: skip

    def left(self, g: Group) -> None:
        """Lanes left the kernel while others of their warp wait at a barrier."""
        m = self.m
        gone = np.zeros(m.size // WARP, bool)
        gone[g.warps] = True
        for at, other in m.parked.items():
            if m.flow.blocks[at].meeting == "block" and m.kernel.barriers[at].aligned:
                hit = gone[other.lanes >> 5]
                if hit.any():
                    warp = int(other.lanes[int(np.argmax(hit))] >> 5)
                    lane = int(g.lanes[int(np.argmax(g.lanes >> 5 == warp))])
                    self._say_divergent(at, other, lane, g.block)

    # ---- clusters -------------------------------------------------------------------------------

    def cluster(self, g: Group, at: int) -> Group | None:
        """barrier.cluster.arrive counts a lane; .wait waits until all lanes of the cluster's blocks have arrived."""
        m = self.m
        ins = m.flow.instructions[m.flow.blocks[at].start]
        group_of = m.cta(g) // m.launch.cluster_blocks
        if "arrive" in ins.mods:
            self.cluster_arrived[g.lanes] = self.cluster_phase[group_of]
            if m.shadow is not None:
                m.shadow.cluster_arrive(g.warps)
            m.launch.changes += 1
            return g
        if (self.cluster_arrived[g.lanes] < 0).any():
            m.find("barrier", ins, "barrier.cluster.wait without an arrive before it", g.lanes[0])
        m.park(g, at)
        return None

    def release_clusters(self) -> bool:
        m = self.m
        waiting = [(at, g) for at, g in m.parked.items() if m.flow.blocks[at].meeting == "cluster"]
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
            del m.parked[at]
            if m.shadow is not None:
                m.shadow.cluster_wait(g.warps[np.isin(g.warps, g.lanes[mask] >> 5)])
            self.cluster_arrived[g.lanes[mask]] = -1
            if mask.all():
                m.went_on(g, at)
            else:
                after = m.flow.blocks[at].successors[0]
                m.parked[at] = g.take(~mask, m.kernel.live[at], at)
                m.went_on(g.take(mask, m.kernel.live[after], after), at)
        m.launch.changes += moved
        return moved
