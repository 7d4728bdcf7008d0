"""What happens to the sums of a launch of several matrices: their epilogues, guards and stores."""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from trueno_cuda.kernels.operands import INF, NAN
from trueno_cuda.ptx import Value, u32


class Ending:
    """Writes it.  form: of the kernel (`rows.Form`); p: its parameters."""

    def __init__(self, k: Any, p: Any, form: Any) -> None:
        self.k, self.p, self.form = k, p, form
        self.bits: Any = k.var(u32, 0) if form.guarded else None

    def store(
        self, section: Sequence[Any], first: int, totals: Sequence[Value], at: Value, column: Value, row: Value,
        live: Value,
    ) -> None:  # fmt: skip
        """Store one element of each part of a section, where `live`.

        first: the number of its first part.  at: of the element in the result; row: of the matrix, which is the place
        along the result's last axis; column: of the vector.
        """
        k, p = self.k, self.p
        results: list[Value] = []
        places = {"e": at, "w": row, "r": column, "u": 0}
        for i, (part, value) in enumerate(zip(section, totals, strict=True)):
            number = first + i
            if part.epilogue is not None:
                kinds = part.epilogue.beside
                others = [
                    results[n] if where == "result"
                    else getattr(p, f"beside{number}_{j}").load(places[kind], where=live)
                    for j, ((where, n), kind) in enumerate(zip(part.sources, kinds, strict=True))
                ]  # fmt: skip
                numbers = [getattr(p, f"number{number}_{j}") for j in range(part.epilogue.numbers)]
                value = part.epilogue.write(k, value, others, numbers)
            results.append(value)
            if part.kept:
                getattr(p, f"out{number}").store(at, value, where=live)
                if self.bits is not None:
                    special = k.select(
                        value != value, k.const(u32, NAN), k.select(abs(value) == inf, k.const(u32, INF), 0)
                    )
                    self.bits |= k.select(live, special, 0)

    def end(self) -> None:
        """The kernel's last statement, which whole warps reach."""
        if self.bits is None:
            return
        k = self.k
        bits = k.warp_reduce(self.bits, "or_")
        self.p.status.reduce("or", 0, bits, where=(bits != 0) & (k.lane == 0))


def each_section(k: Any, p: Any, form: Any, write: Callable[[int, int], None]) -> None:
    """Let each block do its section's part: `write(number of the section, number of its first part)`."""

    def turn(n: int, at: int) -> None:
        if n + 1 == len(form.sections):
            write(n, at)
            return
        with k.when(k.ctaid < getattr(p, f"start{n + 1}")):
            write(n, at)
        with k.otherwise():
            turn(n + 1, at + len(form.sections[n]))

    turn(0, 0)
