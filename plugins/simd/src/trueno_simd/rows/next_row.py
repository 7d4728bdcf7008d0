"""Rows of a few pages: while one is computed, the next is brought from memory.

Processors foresee reading within a page of 4 KB, where a row of 1 024 ends.  The second pass over a row finds it in the
first cache and leaves memory idle, so there each run asks for the run of the next row.  Shorter rows the processor
foresees, and of longer ones the start matters little.  Asking for the lines of results beforehand (PREFETCHW) lost.

Measured on two cores of a Zen 5, one process, lower quartiles, without over with: layer_norm of rows of 512, 1 024 and
4 096 1.15, 1.04 to 1.27, 1.24; softmax 1.0, 1.08, 1.27; rms_norm 1.0 to 1.2; rows of 64 to 256 lost up to a tenth.
"""

from trueno.backend import Pass

from trueno_simd.rows.printer import Lines, indent
from trueno_simd.rows.streams import StreamPrinter

FROM, TO = 2 << 10, 16 << 10
"""Bytes of the rows that are fetched."""


class NextRowPrinter(StreamPrinter):
    """Prints a second pass that fetches the next row."""

    def fetches(self, pass_: Pass) -> Lines:
        """The operands whose next row is fetched during a pass."""
        second = any(pass_ is other for other in self.plan.passes[1:2])
        if not second or self.variant.rank == 1 or self.flat or not self.variant.parallel:
            return []
        return [name for name in self.arrays if self.kinds.get(name) == "e"]

    def imports(self) -> str:
        text = super().imports()
        if not any(map(self.fetches, self.plan.passes)):
            return text
        size = self.itemsize
        line = "from trueno_simd.llvm.streaming import at, fetch\n"
        return text.replace("from trueno_simd.rows.folds", f"{line}from trueno_simd.rows.folds", 1) + (
            f"SIZE, FETCHED_FROM, FETCHED_TO = {size}, {FROM // size}, {TO // size}\n"
        )

    def loop(self, pass_: Pass, start: str, stop: str) -> Lines:
        lines, operands = super().loop(pass_, start, stop), self.fetches(pass_)
        if not operands:
            return lines
        step = "RUN"
        if pass_.folds:
            where = next(k for k, line in enumerate(lines) if line.startswith("for lo in "))
            step = lines[where].rpartition(", ")[2].removesuffix("):")
        else:
            where = 0
            inside = [f"for i in range(lo, min(lo + {step}, {stop})):", *lines[1:]]
            lines = [f"for lo in range({start}, {stop}, {step}):", *indent(inside)]
        asked = [f"fetch(at({name}, base + n + lo), min({step}, n - lo) * SIZE)" for name in operands]
        return [
            *lines[: where + 1],
            *indent(["if FETCHED_FROM <= n <= FETCHED_TO:", *indent(asked)]),
            *lines[where + 1 :],
        ]
