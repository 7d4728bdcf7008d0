"""Kernels that read a row once and keep it in registers: all passes run over these, and the row is written once.

A team of lanes has a row: a few of a warp or all of them, several teams a block, or a whole block.  A lane holds
`groups` times 16 bytes of it, all of them asked for before the first is used.  Only block-wide folds go through shared
memory.  Floor: the bytes of operands and results, over the memory's bandwidth.

The last `tails` groups alone are masked: the launch takes as few groups as hold the row, so the others are full.
"""

from collections.abc import Callable
from typing import Any

from trueno.backend import Lowering, Pass

from trueno_cuda.ptx import Kernel, Value, u64
from trueno_cuda.rows.folds import NOBODY, State, halved
from trueno_cuda.rows.printer import Lane, Printer, Reduce
from trueno_cuda.rows.schedule import OF_CLUSTER

NUMBERS = ("rows", "n")
BATCH = 4
"""Groups whose shared operands are asked for together, and whose elements a fold takes together; of one operand."""


class RegisterResident(Printer):
    """Prints the kernel."""

    def rows(
        self,
        arch: str,
        lanes: int,
        groups: int,
        *,
        threads: int = 256,
        tails: int = 1,
        blocks_per_sm: int | None = None,
        along_y: bool = False,
        early: bool = False,
    ) -> Kernel:
        """A team of `lanes` a row, up to 32, a block or a cluster; threads: of a block of several teams.

        along_y: the batched form, whose rows lie along the grid's y.  early: what rows share is loaded with the row.
        """
        self.blocks = lanes // OF_CLUSTER if lanes > 1024 else 1
        threads = threads if lanes <= 32 else lanes // self.blocks
        teams = threads * self.blocks // lanes
        tail = groups - tails

        def body(rows: Value, n: Value) -> None:
            k: Any = self.k
            n = k.multiple_of(n, self.width)
            block = k.ctaid_y if along_y else k.ctaid
            row, self.lane, alive = block, k.tid, None
            if teams > 1:
                row, self.lane = block * teams + (k.tid // lanes), k.tid % lanes
                alive = row < rows
            if self.blocks > 1:
                row, self.lane = k.ctaid // self.blocks, k.ctaid % self.blocks * threads + k.tid
            first = self.lane * self.width
            self.steps = [j * lanes * self.width for j in range(groups * self.units)]
            self.at = [first + step for step in self.steps]
            self.live = [self._live(at < n if j >= tail * self.units else None, alive) for j, at in enumerate(self.at)]
            self.start: Value = k.mad_wide(row, n, first.to(u64))
            self.known: dict[int, list[list[Value]]] = {}
            if early:
                self._load_shared()
            self.row_leaves(row, alive)
            for number, pass_ in enumerate(self.plan.passes):
                self.row_ops(pass_.before)
                later = {i for after in self.plan.passes[number + 1 :] for i, _ in after.loads}
                self._pass(pass_, later, lanes)
            self.row_ops(self.plan.tail)
            self.row_stores(row, self._live(self.lane == 0, alive))
            if self.blocks > 1:
                k.sync_cluster()  # no block ends while another one reads its folds

        schedule = f"held{lanes}x{groups}{'e' * early}{'y' * along_y}_v{self.width}" + (
            f"_tails{tails}" if tails > 1 else ""
        )
        cluster = self.blocks if self.blocks > 1 else None
        return self.build(
            schedule, body, NUMBERS, threads=threads, arch=arch, blocks_per_sm=blocks_per_sm, cluster=cluster
        )

    def _live(self, inside: Value | None, alive: Value | None) -> Value | None:
        return inside if alive is None else alive if inside is None else inside & alive

    def _load_shared(self) -> None:
        """Ask for all operands that rows share."""
        for i, source in dict.fromkeys(load for pass_ in self.plan.passes for load in pass_.loads):
            if isinstance(source, str) and self.kinds[source] == "w":
                base = self.pointer(source) + self.at[0]
                pairs = zip(self.steps, self.live, strict=True)
                self.known[i] = [self.load(base, step, live, self.width) for step, live in pairs]

    def _pass(self, pass_: Pass, later: set[int], lanes: int) -> None:
        """known: node → its values, [unit][element], of what an earlier pass left in registers."""
        k, units = self.k, range(len(self.at))
        shared = {i: s for i, s in pass_.loads if isinstance(s, str) and self.kinds[s] == "w" and i not in self.known}
        for i, source in pass_.loads:
            if i not in self.known and i not in shared:
                base = self.pointer(source) + self.start
                self.known[i] = [self.load(base, self.steps[j], self.live[j], self.width) for j in units]
        bases = {i: self.pointer(s) + self.at[0] for i, s in shared.items()}
        outs = {number: self.pointer(number) + self.start for number, _ in pass_.stores}
        states: dict[int, State] = {f: tuple(self.fold(f).begin(k, self.kind)) for f in pass_.folds}
        computed: dict[int, list[list[Value]]] = {i: [] for i in later & {*pass_.body, *shared}}
        batch_groups = BATCH // (2 if lanes == 1024 else 1)  # whose threads have 64 registers each
        size = max(batch_groups // max(len(shared), 1), 1) * self.units
        for first in range(0, len(units), size):
            batch = units[first : first + size]
            asked = {
                i: {j: self.load(base, self.steps[j], self.live[j], self.width) for j in batch}
                for i, base in bases.items()
            }
            taken: list[tuple[Lane, Value, Value | None]] = []
            for j in batch:
                resident = {i: self.known[i][j] for i, _ in pass_.loads if i in self.known}
                resident |= {i: values[j] for i, values in asked.items()}
                table = [{i: v[e] for i, v in resident.items()} for e in range(self.width)]
                for e, lane in enumerate(table):
                    self.compute(pass_.body, lane, self.column(self.at[j], e))
                for i, kept in computed.items():
                    kept.append([self.value(i, lane) for lane in table])
                for number, i in pass_.stores:
                    if self.program.outputs[number] == i:  # what is only kept for later stays in registers
                        values = [self.value(i, lane) for lane in table]
                        self.store(outs[number], self.steps[j], values, self.live[j])
                        self.watch(values, self.live[j])
                taken += [(lane, self.column(self.at[j], e), self.live[j]) for e, lane in enumerate(table)]
            for f in pass_.folds:
                states[f] = self.fold(f).take(k, states[f], self.elements(f, taken))
        self.known |= computed
        self.results(self.joined({f: self._settled(f, s) for f, s in states.items()}, self._team(lanes)))

    def _settled(self, f: int, state: State) -> State:
        """argmax of nothing but -Inf has no winner yet: it is the lane's first element, if it has one."""
        if self.nodes[f].type != "index":
            return state
        none, live = state[1] == NOBODY, self.live[0]
        return state[0], self.k.select(none if live is None else none & live, self.at[0], state[1])

    def _team(self, lanes: int) -> Reduce:
        def over_lanes(states: State, combine: Callable[[State, State], State]) -> State:
            folded = self.k.warp_reduce(states, combine, lanes)
            assert isinstance(folded, tuple)
            return folded

        def over_blocks(states: State, combine: Callable[[State, State], State]) -> State:
            k: Any = self.k
            own = k.block_reduce(states, combine)
            shared = [k.shared(value.type, 1) for value in own]
            with k.when(k.tid == 0):
                for array, value in zip(shared, own, strict=True):
                    array.store(0, value)
            k.sync_cluster()
            parts = [tuple(k.in_block(a, b).load(0) for a in shared) for b in range(self.blocks)]
            return halved(k, lambda _, a, b: combine(a, b), parts)

        return over_lanes if lanes <= 32 else over_blocks if self.blocks > 1 else self.k.block_reduce


def live_values(plan: Lowering) -> int:
    """Operands and intermediate values that a lane holds of every element."""
    kinds = dict(plan.program.operands)
    most = 1
    for number, pass_ in enumerate(plan.passes):
        later = {i for after in plan.passes[number + 1 :] for i, _ in after.loads}
        resident = {i for i, s in pass_.loads if not (isinstance(s, str) and kinds[s] == "w")}
        most = max(most, len(resident), len(later & {*resident, *pass_.body}))
    return most
