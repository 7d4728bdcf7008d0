"""Kernels of rows that do not fit into registers: every pass reads the row again, from L2 if it is still there.

    rows      a block a row
    partial   one pass over chunks of long rows: a block joins what earlier passes left of its row, reads its chunk and
              leaves its own partial folds in scratch memory
    final     joins the last partials and stores what there is one of a row

Floor: the bytes that all passes read and write, over the memory's bandwidth.  A thread asks for `groups` times 16
bytes before it uses the first.  Elements of such a tile are added by halves, tiles exactly in two floats, so chains are
short however long the row.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from trueno.backend import Pass, Program

from trueno_cuda.ptx import Kernel, Pointer, Value
from trueno_cuda.rows.folds import LONG, NOBODY, State
from trueno_cuda.rows.printer import Lane, Printer

SLOT = 8
"""Bytes of one component of a partial fold in scratch memory."""


class MultiPass(Printer):
    """Prints the kernels.  A tile is what a block's threads load at once."""

    def one_pass(
        self, pass_: Pass, start: Value, low: Value, high: Value, threads: int, groups: int
    ) -> dict[int, State]:
        """One pass over columns low to high of the row that begins at `start`; states of this thread's elements.

        low: a multiple of a tile, as is all that the others may assume.
        """
        k: Any = self.k
        count = groups * self.units
        tile = threads * count * self.width
        states = {f: self.fold(f, LONG).begin(k, self.kind) for f in pass_.folds}
        bases = {
            i: self.pointer(s) if isinstance(s, str) and self.kinds[s] == "w" else self.pointer(s) + start
            for i, s in pass_.loads
        }
        outs = {number: self.pointer(number) + start for number, _ in pass_.stores}
        lane = k.tid * self.width
        whole = k.multiple_of(low + (high - low) // tile * tile, tile)
        for at in k.range(low, whole, tile):
            self._tile(pass_, bases, outs, at + lane, [j * threads * self.width for j in range(count)], None, states)
        for at in k.range(whole, high, threads * self.width):
            column = at + lane
            self._tile(pass_, bases, outs, column, [0], column < high, states)
        return {f: self._settled(f, tuple(s), low + lane, high) for f, s in states.items()}

    def _tile(
        self, pass_: Pass, bases: dict[int, Pointer], outs: dict[int, Pointer], first: Value,
        steps: Sequence[int], live: Value | None, states: dict[int, list[Any]],
    ) -> None:  # fmt: skip
        loaded: dict[int, list[list[Value]]] = {}
        for i, base in bases.items():
            here = base + first
            loaded[i] = [self.load(here, step, live, self.width) for step in steps]
        outs = {number: out + first for number, out in outs.items()}
        taken: list[tuple[Lane, Value, Value | None]] = []
        for j, step in enumerate(steps):
            table: list[Lane] = [{i: v[j][e] for i, v in loaded.items()} for e in range(self.width)]
            for e, lane in enumerate(table):
                self.compute(pass_.body, lane, self.column(first, step + e))
            for number, i in pass_.stores:
                values = [self.value(i, lane) for lane in table]
                self.store(outs[number], step, values, live)
                if self.program.outputs[number] == i:
                    self.watch(values, live)
            taken += [(lane, self.column(first, step + e), live) for e, lane in enumerate(table)]
        for f, state in states.items():
            folded = self.fold(f, LONG).take(self.k, tuple(state), self.elements(f, taken))
            for var, value in zip(state, folded, strict=True):
                var.set(value)

    def _settled(self, f: int, state: State, first: Value, high: Value) -> State:
        """argmax of nothing but -Inf has no winner yet: it is the thread's first element, if it has one."""
        if self.nodes[f].type != "index":
            return state
        return state[0], self.k.select((state[1] == NOBODY) & (first < high), first, state[1])

    # ---- a block a row --------------------------------------------------------------------------------

    def rows(self, arch: str, threads: int = 1024, groups: int = 4) -> Kernel:
        def body(rows: Value, n: Value) -> None:
            k: Any = self.k
            n = k.multiple_of(n, self.width)
            start = k.mul_wide(k.ctaid, n)
            self.row_leaves(k.ctaid)
            for pass_ in self.plan.passes:
                self.row_ops(pass_.before)
                states = self.one_pass(pass_, start, k.const(n.type, 0), n, threads, groups)
                self.results(self.joined(states, k.block_reduce, LONG), LONG)
            self.row_ops(self.plan.tail)
            self.row_stores(k.ctaid, k.tid == 0)

        schedule = f"swept{threads}x{groups}_v{self.width}"
        return self.build(schedule, body, ("rows", "n"), threads=threads, arch=arch)

    # ---- long rows ------------------------------------------------------------------------------------

    def partial(self, arch: str, number: int, threads: int = 256, groups: int = 4) -> Kernel:
        """Pass `number` over chunks; `chunk` elements a block, a multiple of a tile."""
        pass_ = self.plan.passes[number]
        tile = threads * groups * self.group

        def body(rows: Value, n: Value, chunk: Value, chunks: Value) -> None:
            k: Any = self.k
            n, chunk = k.multiple_of(n, self.width), k.multiple_of(chunk, tile)
            row = k.ctaid // chunks
            index = k.ctaid - row * chunks
            start = k.mul_wide(row, n)
            low = index * chunk
            high = k.multiple_of(low + k.min(chunk, n - low), self.width)
            self.row_leaves(row)
            self._gathered(number, row, rows, chunks, threads)
            self.row_ops(pass_.before)
            states = self.one_pass(pass_, start, low, high, threads, groups)
            if states:
                self._left(states, row, rows, chunks, index)

        schedule = f"part{number}_{threads}x{groups}_v{self.width}"
        numbers = ("rows", "n", "chunk", "chunks")
        return self.build(schedule, body, numbers, threads=threads, arch=arch, scratch=bool(self.program.folds))

    def final(self, arch: str, threads: int = 256) -> Kernel:
        """What there is one of a row, a block each."""

        def body(rows: Value, n: Value, chunk: Value, chunks: Value) -> None:
            self.row_leaves(self.k.ctaid)
            self._gathered(len(self.plan.passes), self.k.ctaid, rows, chunks, threads)
            self.row_ops(self.plan.tail)
            self.row_stores(self.k.ctaid, self.k.tid == 0)

        numbers = ("rows", "n", "chunk", "chunks")
        return self.build(
            f"finish{threads}", body, numbers, threads=threads, arch=arch, scratch=bool(self.program.folds)
        )

    def _places(self, f: int, row: Value, rows: Value, chunks: Value, index: Value) -> Iterator[tuple[Pointer, Value]]:
        """Where the components of a chunk's partial fold are."""
        before = [g for g in self.program.folds if g < f]
        first = sum(len(self.fold(g, LONG).start) for g in before)
        scratch = self.given["scratch"]
        for c, kind in enumerate(self.fold(f, LONG).types(self.kind)):
            slot = self.k.multiple_of((rows * (first + c) + row) * chunks + index, 1)
            yield scratch.cast(kind), slot * (SLOT // kind.bytes)

    def _left(self, states: dict[int, State], row: Value, rows: Value, chunks: Value, index: Value) -> None:
        """The block's states, joined, go to scratch memory."""
        first = self.k.tid == 0
        for f, state in self.joined(states, self.k.block_reduce, LONG).items():
            for (place, at), value in zip(self._places(f, row, rows, chunks, index), state, strict=True):
                place.store(at, value, where=first)

    def _gathered(self, passes: int, row: Value, rows: Value, chunks: Value, threads: int) -> None:
        """Row values before a pass: partials of the folds of all earlier ones, joined, and the row ops between."""
        k: Any = self.k
        for pass_ in self.plan.passes[:passes]:
            self.row_ops(pass_.before)
            states = {f: self.fold(f, LONG).begin(k, self.kind) for f in pass_.folds}
            if not states:
                continue
            for index in k.range(k.tid, chunks, threads):
                for f, state in states.items():
                    theirs = tuple(p.load(at) for p, at in self._places(f, row, rows, chunks, index))
                    for var, value in zip(state, self.fold(f, LONG).join(k, tuple(state), theirs), strict=True):
                        var.set(value)
            whole = self.joined({f: tuple(s) for f, s in states.items()}, k.block_reduce, LONG)
            self.results(whole, LONG)


def slots(program: Program) -> int:
    """8-byte words of scratch memory that a chunk needs."""
    return sum(len(LONG[program.nodes[f].kind].start) for f in program.folds)
