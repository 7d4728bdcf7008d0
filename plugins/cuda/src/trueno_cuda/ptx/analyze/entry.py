"""One entry under analysis: its graph, data flow, values, levels and memory operations, each computed at first use."""

from collections.abc import Hashable, Iterator
from functools import cached_property
from math import prod

import numpy as np

from trueno_cuda.ptx.analyze.access import ORDERED, Access, accesses
from trueno_cuda.ptx.analyze.assembled import Assembled
from trueno_cuda.ptx.analyze.dataflow import Dataflow
from trueno_cuda.ptx.analyze.effects import space, waits
from trueno_cuda.ptx.analyze.graph import Graph
from trueno_cuda.ptx.analyze.lanes import Lanes
from trueno_cuda.ptx.analyze.launch import Launch, Size, shown, sizes
from trueno_cuda.ptx.analyze.uniform import BLOCK, LANE, WARP, Uniformity
from trueno_cuda.ptx.analyze.values import Values
from trueno_cuda.ptx.syntax.tree import Function, Instruction, Program, Register, Special, Symbol
from trueno_cuda.ptx.syntax.types import Array

ORDERING = {"bar", "barrier", "mbarrier", "fence", "membar", "call"}
"""Opcodes that may order memory."""
ARITHMETIC = {"setp", "xor", "not", "add", "sub", "mul", "mad", "fma", "cvt", "mov", "neg", "abs"}
"""Opcodes whose result can be anything if one of their operands can."""


class Entry:
    """An entry, or a device function, with what is known of its launch.

    shape: the block that addresses are evaluated for; assumed: whether only the analyzer chose it.  refused: why the
    launch's block is not this one's.  assembled: what ptxas or nvJitLink reports, where the caller asked.  cut: rules
    that ended before they had looked at everything, as the code is too intricate.
    """

    def __init__(
        self, program: Program, function: Function, launch: Launch | None = None, graph: Graph | None = None
    ) -> None:
        self.program = program
        self.function = function
        self.name = function.name
        self.refused = (launch or Launch()).refused(function)
        self.launch = (launch or Launch()).of(function)
        self.graph = graph or Graph(function)
        self.assumed = self.launch.block is None
        self.shape = self.launch.block or self._likely()
        self.assembled: Assembled | None = None
        self.cut: set[str] = set()

    def forget(self) -> None:
        """Drop what can be computed again, which takes a hundred times the text."""
        for name, kind in vars(type(self)).items():
            if isinstance(kind, cached_property):
                self.__dict__.pop(name, None)

    @property
    def notes(self) -> list[str]:
        """What the user should know of the launch."""
        result = [self.refused] if self.refused else []
        if self.assumed and self.function.entry:
            result.append(
                "the block is not known, so fewer races and bounds are checked; "
                f"name it, such as --block {shown(self.shape)}"
            )
        if self.graph.effort < 1 or self.flow.effort < 1 or ("uniformity" in vars(self) and self.uniformity.cut):
            result.append(
                "the branches are too intricate to follow all of them: findings about threads and addresses may be "
                "missing, or wrong"
            )
        if self.cut:
            result.append(f"the code is too intricate for {', '.join(sorted(self.cut))}: findings may be missing")
        return result

    def _likely(self) -> Size:
        """A block for addresses where neither the text nor the user gives one."""
        most = sizes(self.function, "maxntid")
        if most and prod(most) <= 1024:
            return most
        return (16, 16, 1) if self.deep else (256, 1, 1)

    @cached_property
    def small(self) -> "Entry":
        """The same with a small block: where the block is not known, what holds for both does not depend on it."""
        given = self.launch
        block = self.shape if self.threads < 64 else (8, 8, 1) if self.deep else (64, 1, 1)
        few = Launch(block, given.grid, given.params, given.multiples)
        other = Entry(self.program, self.function, few, self.graph)
        other.__dict__["flow"], other.cut = self.flow, self.cut
        return other

    @cached_property
    def deep(self) -> bool:
        """Whether the code looks at the second or third coordinate of a thread."""
        names = {o.name for ins in self.code for o in ins.operands if isinstance(o, Special)}
        return bool(names & {"tid.y", "tid.z"})

    @property
    def code(self) -> list[Instruction]:
        return self.graph.code

    @cached_property
    def flow(self) -> Dataflow:
        return Dataflow(self.function, self.graph)

    @cached_property
    def values(self) -> Values:
        return Values(self.function, self.graph, self.flow, self.launch)

    @cached_property
    def uniformity(self) -> Uniformity:
        places = Lanes(self.values, self.shape, self.launch, lambda atom: False)
        return Uniformity(self.function, self.graph, self.flow, self.values, places)

    @cached_property
    def block_lanes(self) -> Lanes:
        """Forms over the threads of a block: what is unknown is the same for all of them."""
        return Lanes(self.values, self.shape, self.launch, lambda atom: self.uniformity.atom(atom) == BLOCK)

    @cached_property
    def warp_lanes(self) -> Lanes:
        """Forms over the threads of a warp."""
        return Lanes(self.values, self.shape, self.launch, lambda atom: self.uniformity.atom(atom) >= WARP)

    @cached_property
    def accesses(self) -> list[Access]:
        return accesses(self.graph, self.values)

    @cached_property
    def meetings(self) -> dict[tuple[Hashable, ...], tuple[int, int] | None]:
        """The threads that two accesses bring to one word, by all that this depends on: what `races` has compared."""
        return {}

    @cached_property
    def places(self) -> dict[tuple[int, str], int]:
        """Of accesses, by instruction and space, the number of what `alike` has for it."""
        return {}

    @cached_property
    def alike(self) -> dict[tuple[Hashable, ...], int]:
        """Numbers for what tells, but for a constant, where accesses go in which threads."""
        return {}

    # ---- control --------------------------------------------------------------------------------

    @cached_property
    def barriers(self) -> list[int]:
        """Instructions, within reach, that make threads wait for all or a part of their block."""
        return [at for at in self.reachable if waits(self.code[at]) in ("block", "part")]

    @property
    def reachable(self) -> Iterator[int]:
        """Instructions that some way leads to, in the order of the text."""
        for n in sorted(self.graph.reachable):
            yield from range(self.graph.blocks[n].start, self.graph.blocks[n].end)

    def synchronizes(self, at: int) -> bool:
        """Whether an instruction may order memory between the threads of a block."""
        return self._ordering[at]

    @cached_property
    def landmarks(self) -> list[list[int]]:
        """Of each block, the instructions that access memory or may order it."""
        places = sorted({access.at for access in self.accesses} | {at for at, o in enumerate(self._ordering) if o})
        result: list[list[int]] = [[] for _ in self.graph.blocks]
        for at in places:
            result[self.graph.block_of[at]].append(at)
        return result

    @cached_property
    def _ordering(self) -> list[bool]:
        return [(ins.opcode in ORDERING or ins.unread) and self._orders(ins) for ins in self.code]

    def _orders(self, ins: Instruction) -> bool:
        kind = waits(ins)
        if kind == "warp":
            return self.assumed
        if kind in ("block", "part", "phase", "cluster", "arrive"):
            return True
        if ins.opcode in ("fence", "membar") or ins.unread or (ins.opcode == "mbarrier" and self.phased):
            return True
        return ins.opcode == "call" and self.callee_waits(ins)

    def callee_waits(self, ins: Instruction) -> bool:
        target = ins.operands[0] if ins.operands else None
        if not isinstance(target, Symbol):
            return True
        callee = self.program.functions.get(target.name)
        if callee is None or not callee.defined:
            return target.name not in ("vprintf", "malloc", "free")
        return any(isinstance(i, Instruction) and (waits(i) or i.opcode == "call") for i in callee.body)

    @cached_property
    def phased(self) -> bool:
        """Whether anything waits for a phase of an mbarrier; only then an arrival may order something."""
        return any(waits(ins) == "phase" for ins in self.code)

    @cached_property
    def _masks(self) -> dict[int, tuple[Array, bool]]:
        return {}

    def active(self, block: int) -> tuple[Array, bool]:
        """Which threads may run a block, as far as branches on their places tell, and whether that is all there is:
        False where a branch depends on something else that differs between threads."""
        if block not in self._masks:
            self._masks[block] = np.ones(self.threads, bool), True  # of a cycle
            self._masks[block] = self._active(block)
        return self._masks[block]

    def _active(self, block: int) -> tuple[Array, bool]:
        mask, exact = np.ones(self.threads, bool), True
        graph = self.graph
        deciders = [(b, t) for b, t in graph.deciders.get(block, ()) if not graph.dominates(block, b)]
        if len(deciders) > 1:
            return mask, all(self.uniformity.decision(b) == BLOCK for b in graph.all_deciders(block))
        for branch, target in deciders:
            outer, certain = self.active(branch)
            mask, exact = mask & outer, exact and certain
            guard = graph.last(branch).guard
            end = graph.blocks[branch].end - 1
            vector = None if guard is None else self.uniformity.vector(guard.index, end)
            if guard is not None and vector is not None:
                taken = graph.blocks[branch].successors[0] == target
                mask = mask & (vector if taken != graph.last(branch).negated else ~vector)
            elif self.uniformity.decision(branch) != BLOCK and not (guard is not None and self._free(guard, end)):
                exact = False
        return mask, exact

    def _free(self, guard: Register, at: int, depth: int = 8) -> bool:
        """Whether numbers that each thread loads decide a predicate: any thread may come to what it guards."""
        site = self.flow.only(guard.index)
        ins = self.code[site] if site >= 0 else None
        if ins is None or depth == 0 or self.uniformity.at(guard.index, at) > LANE:
            return False
        if ins.opcode == "ld":
            return space(ins) in ("global", "shared") and ORDERED.isdisjoint(ins.mods)
        sources = [o for o in ins.operands[1:] if isinstance(o, Register)]
        if ins.opcode not in ARITHMETIC or not sources:
            return False
        return any(self._free(o, site, depth - 1) for o in sources)

    def runs(self, at: int) -> tuple[Array, bool]:
        """Which threads may execute an instruction, its guard included; see `active`."""
        mask, exact = self.active(self.graph.block_of[at])
        ins = self.code[at]
        if ins.guard is None:
            return mask, exact
        vector = self.uniformity.vector(ins.guard.index, at)
        if vector is not None:
            return mask & (~vector if ins.negated else vector), exact
        return mask, exact and self.uniformity.at(ins.guard.index, at) == BLOCK

    @property
    def threads(self) -> int:
        return self.shape[0] * self.shape[1] * self.shape[2]

    def register(self, index: int) -> Register:
        return self.function.registers[index]


def entries(program: Program, launch: Launch | None = None) -> list[Entry]:
    """All defined entries and device functions of a program."""
    return [Entry(program, f, launch) for f in program.functions.values() if f.defined]
