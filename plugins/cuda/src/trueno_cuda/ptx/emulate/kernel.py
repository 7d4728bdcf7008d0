"""A compiled entry: its blocks' steps, its branches and its waits."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from trueno_cuda.ptx.emulate import instructions  # registers the families
from trueno_cuda.ptx.emulate.compile import Compiler, Fetch, Step, Store, refusals
from trueno_cuda.ptx.emulate.effects import ends, flops, masked
from trueno_cuda.ptx.emulate.findings import TRAP
from trueno_cuda.ptx.emulate.group import Group
from trueno_cuda.ptx.emulate.layout import Layout
from trueno_cuda.ptx.emulate.machine import Machine
from trueno_cuda.ptx.syntax.tree import Function, Immediate, Instruction, Program
from trueno_cuda.ptx.syntax.types import B32, PRED, U32, Array


class Barrier:
    """A `bar` or `barrier` instruction: which barrier, how many threads, and what its reduction gives."""

    def __init__(self, compiler: Compiler, ins: Instruction) -> None:
        self.ins = ins
        mods = [m for m in ins.mods if m not in ("cta", "aligned")]
        self.arrive = "arrive" in mods
        self.aligned = ins.opcode == "bar" or "aligned" in ins.mods
        operands = list(ins.operands)
        self.result: Store | None = None
        self.vote: Fetch | None = None
        self.kind = ""
        if "red" in mods:
            self.kind = next(m for m in mods if m in ("popc", "and", "or"))
            self.result = compiler.store(operands.pop(0), U32 if self.kind == "popc" else PRED)
            self.vote = compiler.fetch(operands.pop(), PRED)
        self.number = compiler.fetch(operands[0], U32) if operands else compiler.fetch(Immediate(0), U32)
        self.count = compiler.fetch(operands[1], U32) if len(operands) > 1 else None


class Control(Protocol):
    """What the end of a block asks of who schedules: where its lanes go on."""

    def put(self, at: int, g: Group) -> None: ...
    def branch(self, g: Group, p: Array, taken: int, otherwise: int) -> int: ...
    def leave(self, g: Group) -> None: ...


End = Callable[[Machine, Control, Group], int]
"""Where a group goes on at the end of a block, −1 where it goes no further together."""


class Kernel(Layout):
    """One entry, ready to launch."""

    def __init__(self, program: Program, function: Function) -> None:
        super().__init__(program, function)
        self.compiler = compiler = Compiler(self)
        blocks, code = self.flow.blocks, self.flow.instructions
        self.tally = [(i.name, flops(i)) for i in code]
        self.live = [compiler.live(b.live) for b in blocks]
        self.members: list[Fetch | None] = [None] * len(blocks)
        self.barriers: dict[int, Barrier] = {}
        self.waits: dict[int, Callable[[Machine, Group, bool], Array]] = {}
        self.guards: dict[int, tuple[Fetch, Instruction]] = {}
        self.steps: list[list[Step]] = []
        self.ends: list[End | None] = []
        self.leaves: list[bool] = []
        for at, block in enumerate(blocks):
            body = code[block.start : block.end]
            last = body[-1] if body else None
            control = last if last is not None and ends(last) else None
            self.ends.append(None if control is None else self._end(at, control))
            self.leaves.append(
                len(body) == 1 and last is not None and last.opcode in ("ret", "exit") and last.guard is None
            )
            if block.meeting:
                self.steps.append(self._meeting(at, block.meeting, body[0]))
            else:
                self.steps.append([compiler.step(i) for i in (body if control is None else body[:-1])])

    # ---- control --------------------------------------------------------------------------------

    def _meeting(self, at: int, kind: str, ins: Instruction) -> list[Step]:
        compiler = self.compiler
        if ins.guard is not None:
            self.guards[at] = compiler.fetch(ins.guard, PRED), ins
        with refusals(ins):
            if kind == "block":
                self.barriers[at] = Barrier(compiler, ins)
                return []
            if kind == "cluster":
                return []
            if kind == "phase":
                self.waits[at] = instructions.wait_test(compiler, ins)
            self.members[at] = self._members(ins)
        plain = ins.but(guard=None, negated=False)
        return [compiler.step(plain)]

    def _members(self, ins: Instruction) -> Fetch | None:
        """The member mask of a warp-wide instruction; None: the whole warp."""
        return self.compiler.fetch(ins.operands[-1], B32) if masked(ins) else None

    def _end(self, at: int, ins: Instruction) -> End:
        after = self.flow.blocks[at].successors
        guard = None if ins.guard is None else self.compiler.fetch(ins.guard, PRED)
        negated = ins.negated
        flag = None if ins.guard is None else self.compiler.flags.get(ins.guard.index)

        def truth(m: Machine, g: Group) -> Array:
            assert guard is not None and ins.guard is not None
            if flag is not None:
                m.need_written(ins, g, None, flag, ins.guard.index)
            p = guard(m, g)
            return ~p if negated else p

        if ins.opcode == "bra":
            if guard is None:
                return lambda m, control, g: after[0]
            return lambda m, control, g: control.branch(g, truth(m, g), after[0], after[1])
        if ins.opcode == "brx":
            index = self.compiler.fetch(ins.operands[0], U32)
            return lambda m, control, g: self._switch(control, g, np.broadcast_to(index(m, g), g.n), after)

        def leave(m: Machine, control: Control, g: Group) -> int:
            if ins.opcode == "trap":
                m.find(TRAP, ins, "the kernel gave up", g.lanes[0], g.n)
                m.report.completed = False
            control.leave(g)
            return -1

        if guard is None:
            return leave

        def leave_some(m: Machine, control: Control, g: Group) -> int:
            p = np.broadcast_to(truth(m, g), g.n)
            if p.all():
                return leave(m, control, g)
            if not p.any():
                return after[0]
            leave(m, control, g.take(p, [], at))
            control.put(after[0], g.take(~p, self.live[after[0]], after[0]))
            return -1

        return leave_some

    def _switch(self, control: Control, g: Group, index: Array, targets: list[int]) -> int:
        index = np.minimum(index, len(targets) - 1)
        chosen = np.array(targets)[index]
        for t in np.unique(chosen).tolist():
            control.put(t, g.take(chosen == t, self.live[t], t))
        return -1
