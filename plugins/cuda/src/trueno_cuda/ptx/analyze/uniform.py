"""Which threads agree on a value: all of a block, all of a warp, or none that is known.

The levels only fall: every register begins as uniform, and an instruction, a branch that decides whether a write runs,
or a loop that threads leave at different times takes it lower, until nothing changes.

How the threads come to a block follows from the branches that decide whether it runs.  Those may be as many as the
blocks, so they are not listed: a branch at which the level falls takes all blocks to it that it decides.
"""

from trueno_cuda.ptx.analyze.dataflow import Dataflow
from trueno_cuda.ptx.analyze.effects import address, element, plain, space
from trueno_cuda.ptx.analyze.graph import OUT, Graph
from trueno_cuda.ptx.analyze.lanes import Lanes
from trueno_cuda.ptx.analyze.values import Atom, Form, Values
from trueno_cuda.ptx.emulate.effects import registers
from trueno_cuda.ptx.syntax.tree import Function, Immediate, Instruction, Operand, Register, Special, Variable
from trueno_cuda.ptx.syntax.types import TYPES, Array

LANE, WARP, BLOCK = range(3)
PASSES, STEPS = 8, 150_000
"""Passes over any code, and instructions that further ones may look at; compilers' code takes a handful of passes."""
OF_A_LANE = {"tid", "laneid", "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt"}
OF_A_WARP = {"warpid", "clock", "clock64", "clock_hi", "globaltimer", "globaltimer_lo", "globaltimer_hi"}


class Uniformity:
    """levels: of each register, over which threads it is the same whichever write reaches it; sites: of each write."""

    def __init__(self, function: Function, graph: Graph, flow: Dataflow, values: Values, lanes: Lanes | None) -> None:
        self.function, self.graph, self.flow, self.values, self.lanes = function, graph, flow, values, lanes
        self.levels = [BLOCK] * len(function.registers)
        self.sites: dict[tuple[int, int], int] = {}
        self.slots: dict[tuple[str, int], int] = {}  # of local memory, by variable and offset
        self.vague = BLOCK  # of what is stored to local memory at places that are not known
        self.patterns: dict[tuple[int, int], int] = {}
        self.regions = [BLOCK] * len(graph.blocks)
        self.decided = [BLOCK] * len(graph.blocks)  # of the branches at the blocks' ends, as of the last pass
        self._above = [[*range(len(graph.blocks)), OUT] for _ in (LANE, WARP)]
        loops = graph.loops
        self._leaving = {n: loops.left(n, graph.blocks[n].successors) for n in graph.order if n in loops.inner}
        straight = not loops.heads  # then each instruction comes behind all that it depends on
        self.passes = 0
        self.cut = False  # whether more passes would have been needed than may be
        while self._pass() and not straight and not self.cut:
            self.passes += 1
            self.cut = self.passes >= PASSES and self.passes * len(graph.code) > STEPS

    # ---- the fixed point ------------------------------------------------------------------------

    def _pass(self) -> bool:
        changed = False
        graph, flow = self.graph, self.flow
        self._uneven = self._left_unevenly()
        for n in graph.order:
            region = self.regions[n]
            for at in range(graph.blocks[n].start, graph.blocks[n].end):
                ins = graph.code[at]
                if ins.opcode == "st":
                    changed |= self._store(ins, at, region)
                written = flow.writes[at]
                if not written:
                    continue
                level = self._result(ins, at)
                if ins.guard is not None:
                    level = min(level, self.at(ins.guard.index, at))
                for index in written:
                    lower = level
                    if lower > LANE:
                        lower = min(lower, self._left(index, n))
                    if lower < BLOCK:
                        lower = max(lower, self._pattern(index, at))
                    if lower < self.sites.get((index, at), BLOCK):
                        self.sites[index, at] = lower
                        changed = True
                    several = len(flow.definitions[index]) > 1
                    self.levels[index] = min(self.levels[index], lower, region if several else BLOCK)
            level = self.decision(n) if len(graph.blocks[n].successors) > 1 else BLOCK
            if level < self.decided[n]:
                self.decided[n] = level
                self._divide(n, level)
                changed = True
        return changed

    def _divide(self, branch: int, level: int) -> None:
        """Take all blocks that a branch decides, directly or through others, to a level.

        A branch decides the blocks from its successors up to its post-dominator.  Blocks that have come to a level are
        stepped over the next time, so all calls together take as many steps as there are blocks and branches.
        """
        graph, above, todo = self.graph, self._above[level], [branch]
        parents, depths = graph.postdominator, graph.postdepth
        while todo:
            n = todo.pop()
            end = depths[parents[n]]
            for at in graph.blocks[n].successors:
                while True:
                    while above[at] != at:
                        above[at] = at = above[above[at]]
                    if depths[at] <= end:
                        break
                    above[at] = parents[at]
                    self.regions[at] = min(self.regions[at], level)
                    if len(graph.blocks[at].successors) > 1:
                        todo.append(at)

    def _left_unevenly(self) -> list[dict[int, int]]:
        """For each level below that of a block, and each loop, the innermost one of it and those around it that threads
        leave at different times: of which a branch out of it is decided at this level or below."""
        loops = self.graph.loops
        result: list[dict[int, int]] = []
        for level in (LANE, WARP):
            least = dict(loops.depth)  # of a loop's branches, around how few loops they lead
            for n, depth in self._leaving.items():
                if self.decided[n] <= level:
                    head = loops.inner[n]
                    least[head] = min(least[head], depth)
            for head in reversed(loops.inwards):
                if head in loops.outer:
                    least[loops.outer[head]] = min(least[loops.outer[head]], least[head])
            nearest: dict[int, int] = {}
            for head in loops.inwards:
                if least[head] < loops.depth[head]:
                    nearest[head] = head
                elif (outer := loops.outer.get(head)) in nearest:
                    nearest[head] = nearest[outer]
            result.append(nearest)
        return result

    def at(self, index: int, at: int) -> int:
        """Over which threads a register is the same before an instruction.

        Where several writes reach it, the branches that choose between them count too.
        """
        sites = self.flow.definitions[index]
        if len(sites) == 1:
            return self.sites.get((index, sites[0]), BLOCK)
        if self.flow.effort < 1:
            return self.levels[index]
        reaching = self.flow.reaching(index, at)
        level = min([self.sites.get((index, s), BLOCK) for s in reaching], default=BLOCK)
        if len(reaching) > 1 and level > LANE:
            graph = self.graph
            low = [s for s in reaching if self.regions[graph.block_of[s]] < level]
            common = graph.all_deciders(graph.block_of[at]) if low else set()
            for s in low:
                for branch in graph.all_deciders(graph.block_of[s]) - common if graph.effort > 0 else ():
                    level = min(level, self.decision(branch))
        return level

    def decision(self, branch: int) -> int:
        """Over which threads the branch at a block's end goes the same way."""
        ins, at = self.graph.last(branch), self.graph.blocks[branch].end - 1
        if ins.opcode == "brx" and ins.operands and isinstance(ins.operands[0], Register):
            return self.at(ins.operands[0].index, at)
        return self.at(ins.guard.index, at) if ins.guard is not None else BLOCK

    def _left(self, index: int, block: int) -> int:
        """Of a value of a loop: if threads leave the loop at different times, they disagree behind it."""
        loops = self.graph.loops
        if block not in loops.inner or not self.flow.uses[index]:
            return BLOCK
        for level in (LANE, WARP):
            head = self._uneven[level].get(loops.inner[block])
            if head is not None:  # where it holds all uses, so do the loops around it
                first, end = loops.span(head)
                low, high = self.flow.used(index)
                if low < first or high >= end:
                    return level
        return BLOCK

    def _pattern(self, index: int, site: int) -> int:
        """What a written value itself shows where it follows from a thread's place alone, as `tid.x / 32` does."""
        if (index, site) not in self.patterns:
            self.patterns[index, site] = self._level(self._written(index, site))
        return self.patterns[index, site]

    def _level(self, vector: Array | None) -> int:
        if vector is None or not len(vector):
            return LANE
        if (vector == vector[0]).all():
            return BLOCK
        whole = len(vector) // 32 * 32
        rows = vector[:whole].reshape(-1, 32)
        agree = (rows == rows[:, :1]).all() and (vector[whole:] == vector[whole : whole + 1]).all()
        return WARP if agree else LANE

    def vector(self, index: int, at: int) -> Array | None:
        """A register's value for every thread of the block before an instruction, where it follows from a thread's
        place."""
        reaching = self.flow.reaching(index, at)
        return self._written(index, reaching[0]) if len(reaching) == 1 else None

    def _written(self, index: int, site: int) -> Array | None:
        if self.lanes is None or self.graph.code[site].guard is not None:
            return None
        if self.function.registers[index].type.kind == "p":
            return self.compared(self.graph.code[site], site)
        form = self.values.written.get((index, site))
        return None if form is None else self.lanes.known(form)

    def compared(self, ins: Instruction, at: int) -> Array | None:
        """A comparison's outcome for every thread, where both sides follow from its place."""
        if self.lanes is None or ins.opcode != "setp" or len(ins.operands) != 3:
            return None
        if not isinstance(ins.operands[0], Register) or not ins.mods or ins.mods[0] not in COMPARE:
            return None
        kind = TYPES.get(element(ins))
        if kind is None or kind.kind not in "usb":
            return None
        sides = [self.values.operand(plain(o), ins, at) for o in ins.operands[1:]]
        vectors = [None if side is None else self.lanes.known(side) for side in sides]
        if vectors[0] is None or vectors[1] is None:
            return None
        a, b = vectors
        if kind.kind != "s" and (int(a.min()) < 0 or int(b.min()) < 0):
            return None
        return COMPARE[ins.mods[0]](a, b)  # type: ignore[no-any-return]

    # ---- instructions ---------------------------------------------------------------------------

    def of(self, operand: Operand, at: int) -> int:
        """Over which threads an operand of an instruction is the same."""
        if isinstance(operand, Register):
            return self.at(operand.index, at)
        if isinstance(operand, Immediate):
            return BLOCK
        if isinstance(operand, Special):
            return special_level(operand.name) if self.values.launch.special(operand.name) is None else BLOCK
        return min([self.at(r.index, at) for r in registers(operand)], default=BLOCK)

    def _result(self, ins: Instruction, at: int) -> int:
        name, mods = ins.opcode, ins.mods
        if ins.unread:
            return LANE
        if name in ("ld", "ldu"):
            return self._load(ins, at)
        if name in ("atom", "mbarrier", "elect", "tex", "tld4", "suld", "ldmatrix", "wmma", "mma", "wgmma", "call",
                    "alloca"):  # fmt: skip
            return LANE
        if name == "bar" or (name == "barrier" and "red" in mods):
            return BLOCK
        if name in ("vote", "activemask", "redux") or (name == "match" and "all" in mods):
            return WARP
        if name == "match":
            return LANE
        if name == "shfl":
            if "idx" in mods and len(ins.operands) > 2 and self.of(ins.operands[2], at) >= WARP:
                return WARP
            return LANE
        level = BLOCK
        for operand in ins.operands[1:]:
            level = min(level, self.of(operand, at))
        return level

    def _load(self, ins: Instruction, at: int) -> int:
        place = address(ins)
        if place is None:
            return LANE
        where = space(ins)
        form = self.values.address(place, at)
        slot = local_slot(form)
        if slot is not None:
            return min(self.slots.get(slot, BLOCK), self.vague)
        if where == "local" or local_part(form):
            return LANE
        if where == "param" and isinstance(place.base, Variable):
            if any(place.base is p for p in self.function.params):
                return BLOCK  # of a device function too: what its caller passes is not known
            return LANE
        return self.of(place, at)

    def _store(self, ins: Instruction, at: int, region: int) -> bool:
        place = address(ins)
        if place is None or not ins.operands:
            return False
        form = self.values.address(place, at)
        slot = local_slot(form)
        level = min(self.of(ins.operands[-1], at), region)
        if ins.guard is not None:
            level = min(level, self.at(ins.guard.index, at))
        if slot is not None:
            if level < self.slots.get(slot, BLOCK):
                self.slots[slot] = level
                return True
        elif (space(ins) == "local" or local_part(form)) and level < self.vague:
            self.vague = level
            return True
        return False

    # ---- atoms ----------------------------------------------------------------------------------

    def atom(self, atom: Atom) -> int:
        """Over which threads an atom of a form is the same."""
        kind = atom[0]
        if kind == "special":
            return special_level(atom[1])
        if kind == "value":
            return self.levels[atom[1]] if atom[2] < 0 else self.sites.get((atom[1], atom[2]), BLOCK)
        if kind == "count":
            step = self.values.steps.get(atom[1], Form(0))
            return min((self.atom(a) for a, _ in step.terms), default=BLOCK)
        if kind == "op":
            return min((self.atom(a) for form in atom[2:] for a, _ in form.terms), default=BLOCK)
        return BLOCK

    def form(self, form: Form) -> int:
        return min((self.atom(a) for a, _ in form.terms), default=BLOCK)


COMPARE = {"eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
           "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "lo": lambda a, b: a < b, "ls": lambda a, b: a <= b,
           "hi": lambda a, b: a > b, "hs": lambda a, b: a >= b}  # fmt: skip


def special_level(name: str) -> int:
    head = name.partition(".")[0]
    return LANE if head in OF_A_LANE else WARP if head in OF_A_WARP else BLOCK


def local_part(form: Form) -> bool:
    """Whether a form is an address in local memory."""
    return any(a[0] == "var" and a[1] == "local" for a, _ in form.terms)


def local_slot(form: Form) -> tuple[str, int] | None:
    """The variable and offset of an address in local memory that is the same in every execution."""
    if len(form.terms) != 1:
        return None
    (only,) = form.terms
    return (only[0][2], form.const) if only[1] == 1 and only[0][0] == "var" and only[0][1] == "local" else None
