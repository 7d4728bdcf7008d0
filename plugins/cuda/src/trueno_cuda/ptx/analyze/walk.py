"""One block of a kernel, walked through with whole numbers: which words of shared memory its threads touch, in order.

Indices are those of the block, parameters that the caller does not name have a made-up number, and what is loaded is
not known.  A branch on something unknown goes one way, and threads that come to it are not looked at until the ways
meet again.  So everything reported happens in a launch with these parameters, and nothing is said of the others.
Kernels whose threads meet in other ways than at barriers of the block or of a warp (mbarriers, clusters, named barriers
of a part) are not walked through.
"""

from collections.abc import Iterator

import numpy as np

from trueno_cuda.ptx.analyze.access import ROW, Access
from trueno_cuda.ptx.analyze.concrete import Value, literal, result
from trueno_cuda.ptx.analyze.effects import aborts, address, plain, waits
from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.graph import OUT
from trueno_cuda.ptx.analyze.lanes import PERSONAL
from trueno_cuda.ptx.analyze.shadow import Clash, Shadow
from trueno_cuda.ptx.syntax.tree import Address, Immediate, Instruction, Not, Operand, Register, Special, Symbol
from trueno_cuda.ptx.syntax.types import Array

STEPS = 4000
"""Instructions that a walk executes."""
BLOCKS = 64
"""Of the grid along x, where it is not known."""
APART = 20
"""Bits of an address within a variable of shared memory."""
GENERIC = 1 << 44
"""What cvta.shared adds."""
DYNAMIC = 1 << 18
"""Bytes of an array whose size the launch decides."""
ROUNDS = 2
"""Of a loop whose condition is not known."""
NEVER = -2
"""The block at which threads are looked at again: none."""
MOST_GROUPS = 1 << 30
"""Of asynchronous copies that may be left: more than a walk commits."""


class Walk:
    """registers: values by index; murky: threads for which a register is not known, where others know it.

    muted: of each thread the block at which it is looked at again, −1 if it is.  derived: registers that hold what
    follows from a parameter; accesses at such addresses are left out, as the parameter's value is not the real one.
    relevant: of each instruction, whether it is executed.
    """

    def __init__(self, entry: Entry, parameter: int, derived: set[int], relevant: list[bool]) -> None:
        self.entry, self.graph = entry, entry.graph
        self.parameter, self.derived, self.relevant = parameter, derived, relevant
        self.lanes = entry.block_lanes
        self.threads = np.arange(entry.threads)
        self.live = np.ones(entry.threads, bool)
        self.muted = np.full(entry.threads, -1)
        self.silent = False  # whether some thread is muted
        self.counted = True  # whether it is known how many groups of copies there are
        self.registers: dict[int, Value] = {}
        self.murky: dict[int, Array] = {}
        self.seen: Array | None = None
        self.visits: dict[int, int] = {}
        self.stays: dict[int, int] = {}  # of branches, the way that stays in more loops than the other; −1 for neither
        self.clashes: dict[tuple[str, int, int], Clash] = {}
        self.rank = {n: k for k, n in enumerate(self.graph.order)}
        self.by_site: dict[int, list[Access]] = {}
        for access in entry.accesses:
            if access.space == "shared":
                self.by_site.setdefault(access.at, []).append(access)
        self.lockstep = not any(waits(entry.code[at]) == "warp" for at in entry.reachable)
        variables = [*entry.program.variables, *entry.function.variables]
        self.shared = [v for v in variables if v.space == "shared"]
        self.places = {v.name: k + 1 << APART for k, v in enumerate(self.shared)}
        sizes = [v.size if v.size and not v.extern else DYNAMIC for v in self.shared]
        self.sizes = np.array([0, *sizes])
        self.grain = min([a.bytes for ones in self.by_site.values() for a in ones if a.bytes], default=4)
        self.grain = min(self.grain, 4)
        self.starts = np.concatenate([[0], np.cumsum(-(-self.sizes // self.grain))])
        self.shadow = Shadow(int(self.starts[-1]), entry.threads)

    # ---- threads --------------------------------------------------------------------------------

    def run(self) -> list[Clash]:
        ready: dict[int, Array] = {0: self.live.copy()}  # threads by the instruction that they come to
        at_warp: dict[int, Array] = {}
        at_block: dict[int, Array] = {}
        self.steps = 0
        while self.steps < STEPS and (ready or at_warp or at_block):
            if not ready:
                ready = at_warp or at_block
                if at_warp:
                    self._ordered(np.logical_or.reduce(list(at_warp.values())))
                    at_warp = {}
                else:
                    self.shadow.epoch += 1
                    at_block = {}
            at = min(ready, key=lambda k: (self.rank[self.graph.block_of[k]], k))
            mask = ready.pop(at) & self.live
            if not mask.any():
                continue
            for where, when, going in self._block(at, mask):
                target = {"warp": at_warp, "block": at_block}.get(when, ready)
                if going.any() and where < len(self.entry.code):
                    target[where] = target[where] | going if where in target else going
        return list(self.clashes.values())

    def _ordered(self, mask: Array) -> None:
        if mask.all():
            self.shadow.rounds += 1
        else:
            self.shadow.rounds[np.unique(self.threads[mask] // 32)] += 1

    def _block(self, start: int, mask: Array) -> Iterator[tuple[int, str, Array]]:
        """Run to the end of a basic block, or to where threads wait: what comes next, what for, and for whom."""
        graph, code = self.graph, self.entry.code
        home = graph.block_of[start]
        if start == graph.blocks[home].start and self.silent:
            self.muted[mask & (self.muted == home)] = -1
            self.silent = bool((self.muted != -1).any())
        whole = bool(mask.all())
        for at in range(start, graph.blocks[home].end):
            ins = code[at]
            self.steps += 1
            if at == graph.blocks[home].end - 1 and (
                ins.opcode in ("bra", "brx", "ret", "exit", "trap") or aborts(ins)
            ):
                yield from self._leave(home, ins, at, mask)
                return
            if not self.relevant[at]:
                continue
            active, unknown = mask, None
            if ins.guard is not None:
                active, unknown = self._guarded(ins, mask)
            kind = waits(ins) or ("warp" if "sync" in ins.mods else "")
            if kind:
                kind = "warp" if kind == "warp" else "block"
                if unknown is not None:
                    active = active | unknown
                if (active == self.live).all():
                    if kind == "warp":
                        self._ordered(active)
                    else:
                        self.shadow.epoch += 1
                    self._execute(ins, at, active, whole and ins.guard is None, unknown)
                    continue
                self._execute(ins, at, active, False, unknown)
                yield at + 1, kind, active
                mask, whole = mask & ~active, False
                if not mask.any():
                    return
                continue
            self._execute(ins, at, active, whole and ins.guard is None, unknown)
        for n in graph.blocks[home].successors:
            if n != OUT:
                yield graph.blocks[n].start, "", mask
                return
        self.live &= ~mask

    def _guarded(self, ins: Instruction, mask: Array) -> tuple[Array, Array | None]:
        """The threads that execute an instruction, and those of which that is not known."""
        self.seen = None
        value = self._read(ins.guard)  # type: ignore[arg-type]
        if value is None:
            return np.zeros_like(mask), mask
        active = np.broadcast_to(np.asarray(value, bool) ^ ins.negated, mask.shape) & mask
        unknown = None if self.seen is None else self.seen & mask
        return (active if unknown is None else active & ~unknown), unknown

    def _leave(self, home: int, ins: Instruction, at: int, mask: Array) -> Iterator[tuple[int, str, Array]]:
        """Where the threads go behind a block."""
        after = self.graph.blocks[home].successors
        if ins.opcode == "brx":
            return
        if ins.guard is None:
            yield from self._go(after[0], mask)
            return
        taken, unknown = self._guarded(ins, mask)
        if unknown is not None and unknown.any():
            k = self._chosen(home, after)
            self._mute(home, unknown)
            if k == 0:
                taken = taken | unknown
        yield from self._go(after[0], taken)
        yield from self._go(after[1], mask & ~taken)

    def _go(self, block: int, mask: Array) -> Iterator[tuple[int, str, Array]]:
        if block == OUT:
            self.live &= ~mask
        elif mask.any():
            yield self.graph.blocks[block].start, "", mask

    def _chosen(self, home: int, after: list[int]) -> int:
        """Which way a branch on something unknown goes: a few rounds of a loop, then out of it; else by turns."""
        count = self.visits[home] = self.visits.get(home, 0) + 1
        if home not in self.stays:
            loops = self.graph.loops
            depths = [loops.left(home, [n]) for n in after]  # of the loops around it that each way stays in
            self.stays[home] = -1 if depths[0] == depths[1] else depths.index(max(depths))
        if self.stays[home] >= 0:
            return self.stays[home] if count <= ROUNDS else 1 - self.stays[home]
        if OUT in after:
            return after.index(OUT) ^ 1
        return count % 2

    def _mute(self, home: int, threads: Array) -> None:
        """Threads go different ways, and which is not known: nothing that they do there counts."""
        end = self.graph.postdominator.get(home, OUT)
        now = threads & (self.muted == -1)
        self.muted[now] = NEVER if end == OUT else end
        self.silent = True
        reached, todo = {end}, [n for n in self.graph.blocks[home].successors if n != OUT]
        while todo:
            n = todo.pop()
            if n in reached:
                continue
            reached.add(n)
            block = self.graph.blocks[n]
            for at in range(block.start, block.end):
                for index in self.entry.flow.writes[at]:
                    self._write(index, None, now, False, None)
                if self.entry.code[at].opcode == "cp":
                    self.counted = False
            todo += [t for t in block.successors if t != OUT]

    # ---- registers ------------------------------------------------------------------------------

    def _read(self, operand: Operand) -> Value:
        if isinstance(operand, Register):
            unknown = self.murky.get(operand.index)
            if unknown is not None:
                self.seen = unknown if self.seen is None else self.seen | unknown
            return self.registers.get(operand.index)
        if isinstance(operand, Special):
            return self._special(operand.name)
        if isinstance(operand, Not):
            value = self._read(plain(operand))
            return None if value is None else np.logical_not(value)
        if isinstance(operand, Symbol) and operand.variable is not None:
            place = self.places.get(operand.name)
            return None if place is None else place + operand.offset
        return literal(operand)

    def _special(self, name: str) -> Value:
        known = self.entry.launch.special(name)
        if known is not None:
            return known
        if name in PERSONAL:
            return self.lanes.places[name]
        head, _, axis = name.partition(".")
        if head == "ntid":
            return self.entry.shape["xyz".index(axis)]
        if head in ("ctaid", "nctaid") and axis:
            return (BLOCKS if axis == "x" else 1) if head == "nctaid" else 0
        return None

    def _write(self, index: int, value: Value, mask: Array, whole: bool, unknown: Array | None) -> None:
        old, before = self.registers.get(index, self), self.murky.pop(index, None)
        if value is None:
            if whole or old is self or old is None:
                self.registers[index] = None
            else:
                self.murky[index] = mask if before is None else before | mask
            return
        if whole or old is self:
            self.registers[index] = value
        elif old is None:
            self.registers[index] = value
            before = ~mask
        else:
            self.registers[index] = np.where(mask, value, old)
        if before is not None and not whole:
            unknown = before & ~mask if unknown is None else unknown | (before & ~mask)
        if unknown is not None and unknown.any():
            self.murky[index] = unknown

    # ---- instructions ---------------------------------------------------------------------------

    def _execute(self, ins: Instruction, at: int, active: Array, whole: bool, unsure: Array | None) -> None:
        for access in self.by_site.get(at, ()):
            self._access(access, active)
        if ins.opcode == "wgmma" and "mma_async" in ins.mods:
            self._tiles(ins, at, active)
        if ins.opcode == "cp" and "async" in ins.mods:
            self._copies(ins, active)
        written = self.entry.flow.writes[at]
        if not written:
            return
        self.seen, value = None, None
        if len(written) == 1 and isinstance(ins.operands[0], Register):
            value = self._parameter(ins) if ins.opcode == "ld" else result(ins, self._read)
            if value is not None and ins.opcode == "cvta" and "shared" in ins.mods:
                value = value - GENERIC if "to" in ins.mods else value + GENERIC
        unknown = self.seen
        if self.silent:
            unknown = (self.muted != -1) if unknown is None else unknown | (self.muted != -1)
        unknown = None if unknown is None else unknown & active
        for index in written:
            self._write(index, value, active, whole, unknown)
            if unsure is not None and unsure.any():
                self._write(index, None, unsure, False, None)

    def _parameter(self, ins: Instruction) -> Value:
        place = address(ins)
        if place is None or not ("param" in ins.mods or "param::entry" in ins.mods) or isinstance(place.base, Register):
            return None
        return self.entry.launch.params.get(getattr(place.base, "name", ""), self.parameter)

    def _copies(self, ins: Instruction, active: Array) -> None:
        threads = self.threads[active]
        if "commit_group" in ins.mods:
            self.shadow.commit(threads)
        elif "wait_all" in ins.mods or any(m.startswith("mbarrier") for m in ins.mods):
            self.shadow.commit(threads)
            self.shadow.wait(threads, 0)
        elif "wait_group" in ins.mods and len(threads):
            left = ins.operands[0].value if ins.operands and isinstance(ins.operands[0], Immediate) else 0
            self.shadow.wait(threads, max(min(int(left), MOST_GROUPS), 0))

    def _tiles(self, ins: Instruction, at: int, active: Array) -> None:
        """A product of a warp group reads its tiles, of which a descriptor has the address: the first row of each."""
        if len(self.shared) != 1 or self.silent or not active[self.live].all():
            return
        for operand in ins.operands[1:3]:
            if not isinstance(operand, Register) or operand.index in self.derived:
                continue
            self.seen, value = None, self._read(operand)
            if value is None or self.seen is not None or np.ptp(value):
                continue
            place = (int(np.max(value)) & 0x3FFF) << 4
            if place + ROW <= self.sizes[1]:
                words = self.starts[1] + place // self.grain + np.arange(ROW // self.grain)
                reader = np.full(len(words), int(np.flatnonzero(active)[0]))
                self._found(self.shadow.load(at, words, reader, False))

    def _found(self, clashes: list[Clash]) -> None:
        for clash in clashes:
            if clash.kind == "race" or self.counted:
                self.clashes.setdefault((clash.kind, clash.first, clash.second), clash)

    def _access(self, access: Access, active: Array) -> None:
        """Threads access shared memory, where they know the address."""
        place = access.ins.operands[0] if access.kind == "copy" else address(access.ins)
        if not isinstance(place, Address) or not access.bytes or (access.ordered and self.lockstep):
            return
        self.seen = None
        if isinstance(place.base, Register) and place.base.index in self.derived:
            return
        base = self.places.get(place.base.name) if hasattr(place.base, "space") else None  # type: ignore[union-attr]
        value = self._read(place.base) if isinstance(place.base, Register) else base
        if value is None:
            return
        if self.silent:
            active = active & (self.muted == -1)
        if access.lanes < 32:
            active = active & (self.threads % 32 < access.lanes)
        if self.seen is not None:
            active = active & ~self.seen
        threads, values = self.threads, np.broadcast_to(value, active.shape)
        if not active.all():
            threads, values = threads[active], values[active]
        addresses = (values.astype(np.int64) + place.offset) % GENERIC
        which = addresses >> APART
        good = (which > 0) & (which < len(self.sizes))
        offsets = addresses & ((1 << APART) - 1)
        good &= offsets + access.bytes <= self.sizes[np.where(good, which, 0)]
        if not good.all():
            threads, which, offsets = threads[good], which[good], offsets[good]
        words = self.starts[which] + offsets // self.grain
        many = max(access.bytes // self.grain, 1)
        if many > 1:
            words = (words[:, None] + np.arange(many)).ravel()
            threads = np.repeat(threads, many)
        if not len(words):
            return
        if access.kind == "atomic":
            self.shadow.forget(words)
            return
        take = self.shadow.load if access.reads else self.shadow.store
        extra = {} if access.reads else {"copy": access.kind == "copy"}
        self._found(take(access.at, words, threads, access.ordered, **extra))
