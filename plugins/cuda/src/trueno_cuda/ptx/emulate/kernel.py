"""An entry, compiled: its blocks' steps, where it branches and waits, and how its memory is laid out."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from trueno_cuda.ptx.emulate import instructions  # registers the families
from trueno_cuda.ptx.emulate.compile import Compiler, Fetch, Step, Store, refusals
from trueno_cuda.ptx.emulate.control import Flow
from trueno_cuda.ptx.emulate.effects import flops, written
from trueno_cuda.ptx.emulate.errors import PtxError
from trueno_cuda.ptx.emulate.group import Group
from trueno_cuda.ptx.emulate.inline import inlined
from trueno_cuda.ptx.emulate.memory import SHARED_BASE, Allocation, too_many
from trueno_cuda.ptx.emulate.opcodes import form_of
from trueno_cuda.ptx.emulate.provenance import Provenance
from trueno_cuda.ptx.emulate.syntax import Function, Immediate, Instruction, Program, Variable
from trueno_cuda.ptx.emulate.types import B32, PRED, TYPES, U32, Array

if TYPE_CHECKING:
    from trueno_cuda.ptx.emulate.machine import Machine

End = Callable[["Machine", Group], int]
PLACES = {"shared": 16, "local": 16, "param": 1}


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


def _check_room(function: Function, space: str, size: int) -> None:
    wrong = too_many(space, size)
    if wrong:
        raise PtxError(wrong, function.line, function.name)


class Kernel:
    """One entry, ready to launch.  offsets: each variable's byte in its space (shared, local, param)."""

    def __init__(self, program: Program, function: Function) -> None:
        self.name = function.name
        self.program = program
        self.function = flat = inlined(program, function)
        self.params = flat.params
        self._lay_out(program, flat)
        codes = [i for i in flat.body if isinstance(i, Instruction)]
        for ins in codes:
            form_of(ins)
        self.warpgroups = any(i.opcode == "wgmma" for i in codes)
        self.uses_mbarrier = any(i.opcode == "mbarrier" or any(m.startswith("mbarrier") for m in i.mods) for i in codes)
        self.granule = self._granule(codes)
        self.accumulators = [r for i in codes if i.opcode == "wgmma" for r in written(i)]
        keep = 0
        for r in self.accumulators:
            keep |= 1 << r.index
        self.flow = Flow(flat.body, keep)
        self.registers = flat.registers
        self.compiler = compiler = Compiler(self.flow, flat.registers, flat.params)
        compiler.kernel = self
        self.initial = compiler.initial
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
            ends = last is not None and last.opcode in ("bra", "brx", "ret", "exit", "trap")
            self.ends.append(self._end(at, last) if ends and last is not None else None)
            self.leaves.append(
                len(body) == 1 and last is not None and last.opcode in ("ret", "exit") and last.guard is None
            )
            if block.meeting:
                self.steps.append(self._meeting(at, block.meeting, body[0]))
            else:
                self.steps.append([compiler.step(i) for i in (body[:-1] if ends else body)])

    # ---- memory ---------------------------------------------------------------------------------

    def _lay_out(self, program: Program, function: Function) -> None:
        self.offsets: dict[int, int] = {}
        at = 0
        for p in function.params:
            at = -(-at // p.align) * p.align
            self.offsets[id(p)] = at
            at += p.size
        self.param_size = at
        _check_room(function, "param", at)
        entry = {id(p) for p in function.params}
        at = 0
        for v in function.variables:
            if v.space in ("local", "param") and id(v) not in entry:
                at = -(-at // v.align) * v.align
                self.offsets[id(v)] = at
                at += v.size
        self.local_size = -(-at // 16) * 16
        _check_room(function, "local", at)
        shared = [v for v in (*program.variables, *function.variables) if v.space == "shared"]
        at = 0
        for v in [v for v in shared if not (v.extern or v.size == 0)]:
            at = -(-at // v.align) * v.align
            self.offsets[id(v)] = at
            at += v.size
        self.static_shared = at
        _check_room(function, "shared", at)
        dynamic = [v for v in shared if v.extern or v.size == 0]
        for v in dynamic:
            at = -(-at // max(v.align, 16)) * max(v.align, 16)
        for v in dynamic:
            self.offsets[id(v)] = at
        self.shared_before_dynamic = at
        self.shared_variables: list[Variable] = sorted(shared, key=lambda v: self.offsets[id(v)])
        self.shared_arrays: dict[Variable, Allocation] = {}
        for v in shared:
            if v not in dynamic:
                start = SHARED_BASE + self.offsets[id(v)]
                self.shared_arrays[v] = Allocation(v.name, start, v.size, "", v.type.bytes, start, start + v.size)

    def shared_name(self, offset: int, ins: Instruction) -> tuple[str | None, str]:
        """The shared variable that holds a byte, and the place in words: in elements, as `ins` accesses them."""
        found = None
        for v in self.shared_variables:
            if self.offsets[id(v)] <= offset:
                found = v
        if found is None:
            return None, f"shared byte {offset}"
        start = offset - self.offsets[id(found)]
        size = next((TYPES[m].bytes for m in reversed(ins.mods) if m in TYPES), 1)
        if size == 1 or start % size:
            return found.name, f"byte {start} of {found.name}"
        return found.name, f"{found.name}[{start // size}]"

    def _granule(self, codes: list[Instruction]) -> int:
        """Bytes that the shadow of shared memory tells apart: the narrowest access."""
        size = 4
        for i in codes:
            if i.opcode in ("ld", "st", "atom", "red") and not {"global", "param", "const", "local"} & set(i.mods):
                size = min(size, *(TYPES[m].bytes for m in i.mods if m in TYPES and TYPES[m].bits >= 8), 4)
        return size

    def source(self, ins: Instruction) -> str:
        """The line of the source that an instruction comes from, as `add.py:12`, where the text says so."""
        if ins.written is None:
            return ""
        file, line = ins.written
        return f"{self.program.files.get(file, 'source')}:{line}"

    @cached_property
    def provenance(self) -> Provenance:
        return Provenance(self.flow.instructions)

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
        plain = replace(ins, guard=None, negated=False)
        return [compiler.step(plain)]

    def _members(self, ins: Instruction) -> Fetch | None:
        """The member mask of a warp-wide instruction; None: the whole warp."""
        if ins.opcode in ("shfl", "vote", "match", "redux", "elect") or ins.opcode in ("bar", "barrier"):
            last = ins.operands[-1]
            return self.compiler.fetch(last, B32)
        return None

    def _end(self, at: int, ins: Instruction) -> End:
        after = self.flow.blocks[at].successors
        guard = None if ins.guard is None else self.compiler.fetch(ins.guard, PRED)
        negated = ins.negated
        flag = None if ins.guard is None else self.compiler.flags.get(ins.guard.index)

        def truth(m: "Machine", g: Group) -> Array:
            assert guard is not None and ins.guard is not None
            if flag is not None:
                m.need_written(ins, g, None, flag, ins.guard.index)
            p = guard(m, g)
            return ~p if negated else p

        if ins.opcode == "bra":
            if guard is None:
                return lambda m, g: after[0]
            return lambda m, g: m.branch(g, truth(m, g), after[0], after[1])
        if ins.opcode == "brx":
            index = self.compiler.fetch(ins.operands[0], U32)
            return lambda m, g: self._switch(m, g, np.broadcast_to(index(m, g), g.n), after)

        def leave(m: "Machine", g: Group) -> int:
            if ins.opcode == "trap":
                m.find("trap", ins, "the kernel gave up", g.lanes[0], g.n)
                m.report.completed = False
            m.leave(g)
            return -1

        if guard is None:
            return leave

        def leave_some(m: "Machine", g: Group) -> int:
            p = np.broadcast_to(truth(m, g), g.n)
            if p.all():
                return leave(m, g)
            if not p.any():
                return after[0]
            leave(m, g.take(p, [], at))
            m.put(after[0], g.take(~p, self.live[after[0]], after[0]))
            return -1

        return leave_some

    def _switch(self, m: "Machine", g: Group, index: Array, targets: list[int]) -> int:
        index = np.minimum(index, len(targets) - 1)
        chosen = np.array(targets)[index]
        for t in np.unique(chosen).tolist():
            m.put(t, g.take(chosen == t, self.live[t], t))
        return -1

    def land_thread_copies(self, m: "Machine", lanes: Array, before: Array) -> None:
        """cp.async copies of these lanes with a number below `before` arrive."""
        instructions.land_copies(m, lanes, before)
