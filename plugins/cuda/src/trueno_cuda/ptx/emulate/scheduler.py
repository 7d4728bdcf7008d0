"""Runs the blocks of one chunk of the grid: groups of lanes, in the order of the control flow.

Each turn takes the group whose block comes first (`control` says why that reconverges).  A group stops where it
parts at a branch, where another group is at its next block (they join), where it waits, and behind a loop that
may be spinning (it then yields to all others).  When no lane can move, waiting lanes are looked at again; when
that frees none either, it is a deadlock.
"""

import numpy as np
from trueno.errors import TruenoError

from trueno_cuda.ptx.emulate.barriers import Barriers
from trueno_cuda.ptx.emulate.compile import Fetch
from trueno_cuda.ptx.emulate.errors import StepLimit
from trueno_cuda.ptx.emulate.findings import DEADLOCK
from trueno_cuda.ptx.emulate.group import WARP, Group
from trueno_cuda.ptx.emulate.kernel import Kernel
from trueno_cuda.ptx.emulate.machine import Machine
from trueno_cuda.ptx.emulate.meetings import Meetings
from trueno_cuda.ptx.syntax.errors import internal
from trueno_cuda.ptx.syntax.tree import Instruction
from trueno_cuda.ptx.syntax.types import Array

SPIN_ROUNDS = 4096
"""Rounds in which spinning groups read memory that never changes before it is called a deadlock."""


class Scheduler:
    """Groups of a chunk's lanes, by the block that they stand at: those that can run, those that yielded or wait."""

    def __init__(self, kernel: Kernel, machine: Machine) -> None:
        self.kernel = kernel
        self.flow = kernel.flow
        self.machine = machine
        self.launch = machine.launch
        self.barriers = Barriers(kernel, machine, self)
        self.meetings = Meetings(kernel, machine, self)
        self.ready: dict[int, Group] = {}
        self.yielded: dict[int, Group] = {}
        self.parked: dict[int, Group] = {}
        self.idle = 0
        self.seen_changes = -1
        self.put(0, Group(np.flatnonzero(machine.live), kernel.compiler.initial(), 0))

    def run(self) -> bool:
        """Run until all lanes have left (True), or until no lane here can move (False)."""
        launch = self.launch
        while True:
            while self.ready:
                self.turn(self.ready.pop(min(self.ready)))
            if self.parked and self.release():
                continue
            if self.yielded:
                self.idle = 0 if launch.changes != self.seen_changes else self.idle + 1
                self.seen_changes = launch.changes
                if self.idle >= SPIN_ROUNDS:
                    return self.force()
                self.ready, self.yielded = self.yielded, {}
                continue
            if not self.parked:
                return True
            return self.force()

    def resume(self) -> bool:
        """Go on after others have moved."""
        self.ready, self.yielded = self.yielded, {}
        self.idle = 0
        return self.run()

    def force(self) -> bool:
        """No lane moves: warps that wait for lanes that do not come go on without them, and are reported."""
        for at in [at for at in self.parked if self.flow.blocks[at].meeting in ("warp", "group")]:
            group = self.parked.pop(at)
            self.meetings.report_missing(group, at)
            self.pass_meeting(group, at)
            self.idle = 0
            return self.run()
        return False

    def turn(self, g: Group) -> None:
        """Run one group until it stops."""
        blocks, launch, machine = self.flow.blocks, self.launch, self.machine
        ends = self.kernel.ends
        lanes, warps = launch.lane_counts, launch.warp_counts
        at = g.block
        while True:
            block = blocks[at]
            if block.meeting:
                passed = self.meet(g, at)
                if passed is None:
                    return
                g = passed
            else:
                self.carry_out(g, at)
            lanes[at] += g.n
            warps[at] += g.n // WARP if g.whole else len(g.warps)
            launch.steps += block.end - block.start
            if launch.steps > launch.max_steps:
                ins = self.flow.instructions[block.start]
                line = self.kernel.source(ins)
                raise StepLimit(
                    f"{self.kernel.name}: not done after {launch.max_steps} steps, at {line + ', ' if line else ''}"
                    f"line {ins.line}: {ins.text}; a loop may never end, or max_steps= of launch is too few"
                )
            end = ends[at]
            following = block.successors[0] if end is None else end(machine, self, g)
            if following < 0:
                return
            target = blocks[following]
            if target.latch:
                following = target.successors[0]
                if target.spin:
                    self.put_aside(following, g)
                    return
            if self.kernel.leaves[following] or following in self.ready or following in self.parked or (
                self.ready and min(self.ready) < following
            ):  # fmt: skip
                self.put(following, g)
                return
            at = g.block = following

    def carry_out(self, g: Group, at: int) -> None:
        """The steps of a block."""
        steps, machine = self.kernel.steps[at], self.machine
        rest = iter(steps)
        try:
            for step in rest:
                step(machine, g, None)
        except (TruenoError, MemoryError):
            raise
        except Exception as error:
            ins = self.flow.instructions[self.flow.blocks[at].start + len(steps) - len(list(rest)) - 1]
            raise internal(error, ins.line, ins.text) from error

    def put(self, at: int, g: Group) -> None:
        """Make a group ready at a block, joining the lanes there; a block that only leaves is run at once."""
        block = self.flow.blocks[at]
        if block.latch:
            at = block.successors[0]
            if block.spin:
                self.put_aside(at, g)
                return
        g.block = at
        if self.kernel.leaves[at]:
            self.launch.lane_counts[at] += g.n
            self.launch.warp_counts[at] += len(g.warps)
            self.leave(g)
            return
        waiting = self.ready.get(at)
        self.ready[at] = g if waiting is None else waiting.join(g, self.kernel.live[at])

    def put_aside(self, at: int, g: Group) -> None:
        """A group that may be spinning waits until everybody else has had a turn."""
        g.block = at
        waiting = self.yielded.get(at)
        self.yielded[at] = g if waiting is None else waiting.join(g, self.kernel.live[at])

    def branch(self, g: Group, p: Array, taken: int, otherwise: int) -> int:
        """Where a group goes on, or −1 after it has parted."""
        if p.size == 1:
            return taken if p[0] else otherwise
        count = np.count_nonzero(p)
        if count == g.n:
            return taken
        if count == 0:
            return otherwise
        live = self.kernel.live
        one, other = g.take(p, live[taken], taken), g.take(~p, live[otherwise], otherwise)
        self.put(taken, one)
        self.put(otherwise, other)
        return -1

    def leave(self, g: Group) -> None:
        """Lanes that return."""
        m = self.machine
        m.live[g.lanes] = False
        m.live_count -= np.bincount(m.cta(g), minlength=m.blocks_here)
        self.launch.changes += 1
        if self.parked:
            self.barriers.left(g)
        g.n = 0

    # ---- meeting --------------------------------------------------------------------------------

    def meet(self, g: Group, at: int) -> Group | None:
        """Bring a group to a meeting point; what passes at once is returned, the rest is parked."""
        block = self.flow.blocks[at]
        guarded = self.kernel.guards.get(at)
        if guarded is not None:
            kept = self.guard(g, at, *guarded)
            if kept is None:
                return None
            g = kept
        waiting = self.parked.pop(at, None)
        if waiting is not None:
            g = waiting.join(g, self.kernel.live[at])
        kind = block.meeting
        if kind == "warp" and g.whole and self.meetings.all_named(g, at):
            passed: Group | None = g
        elif kind in ("warp", "group"):
            passed = self.meetings.gather(g, at)
        elif kind == "phase":
            passed = self.meetings.poll(g, at)
        elif kind == "cluster":
            return self.barriers.cluster(g, at)
        else:
            return self.barriers.block(g, at)
        if passed is not None:
            self.carry_out(passed, at)
        return passed

    def guard(self, g: Group, at: int, guard: Fetch, ins: Instruction) -> Group | None:
        """The lanes that a guarded meeting point concerns; the others go on."""
        flag = self.kernel.compiler.flags.get(ins.guard.index) if ins.guard is not None else None
        if flag is not None and ins.guard is not None:
            self.machine.need_written(ins, g, None, flag, ins.guard.index)
        p = guard(self.machine, g)
        p = ~p if ins.negated else p
        if p.all():
            return g
        after = self.flow.blocks[at].successors[0]
        if not p.any():
            self.put(after, g)
            return None
        kept = g.take(p, self.kernel.live[at], at)
        self.put(after, g.take(~p, self.kernel.live[after], after))
        return kept

    def park(self, g: Group, at: int) -> None:
        g.block = at
        waiting = self.parked.get(at)
        self.parked[at] = g if waiting is None else waiting.join(g, self.kernel.live[at])

    def free(self, at: int, mask: Array, block: int) -> Group:
        """The lanes of a mask wait no longer; they keep the registers that `block` needs."""
        g = self.parked.pop(at)
        if mask.all():
            return g
        self.parked[at] = g.take(~mask, self.kernel.live[at], at)
        return g.take(mask, self.kernel.live[block], block)

    def pass_meeting(self, g: Group, at: int) -> None:
        """Lanes that were parked run the instruction and go on."""
        self.carry_out(g, at)
        self.went_on(g, at)

    def went_on(self, g: Group, at: int) -> None:
        self.launch.lane_counts[at] += g.n
        self.launch.warp_counts[at] += len(g.warps)
        self.launch.steps += 1
        self.put(self.flow.blocks[at].successors[0], g)

    def release(self) -> bool:
        """Look at all who wait; whether anyone could go on."""
        return self.barriers.release() or self.barriers.release_clusters() or self.meetings.release()

    # ---- standstill -----------------------------------------------------------------------------

    def positions(self) -> list[str]:
        """Where each warp stands, in words: what a deadlock shows."""
        rows = []
        for what, groups in (("waits", self.parked), ("spins", self.yielded), ("stands", self.ready)):
            for at, g in sorted(groups.items()):
                ins = self.flow.first(at)
                for w in g.warps.tolist():
                    cta, warp = divmod(w, self.machine.block_warps)
                    count = int(np.count_nonzero(g.lanes >> 5 == w))
                    part = "" if count == WARP else f" ({count} lanes)"
                    block = self.launch.block_index(self.machine.first + cta)
                    rows.append((cta, warp, f"block {block} warp {warp}{part} {what} at line {ins.line}: {ins.text}"))
        return [text for _, _, text in sorted(rows)]

    def deadlock(self) -> None:
        """Record who stands where; the launch ends here."""
        rows = self.positions()
        groups = self.parked or self.yielded
        at, g = next(iter(sorted(groups.items())))
        ins = self.flow.first(at)
        shown = "; ".join(rows[:16]) + (f"; and {len(rows) - 16} more" if len(rows) > 16 else "")
        self.machine.find(DEADLOCK, ins, f"no lane can move: {shown}", g.lanes[0], len(rows))
