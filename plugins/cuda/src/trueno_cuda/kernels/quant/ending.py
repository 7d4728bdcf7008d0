"""What happens to the sums of a launch of several matrices: their epilogues, guards and stores."""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NamedTuple

from trueno_cuda.kernels.operands import INF, NAN
from trueno_cuda.ptx import Value, u32


class Element(NamedTuple):
    """An element of the results of a section, and whether it is there.

    at: its place in a result; row: of the matrix, which is the place along the result's last axis; column: of the
    vector.
    """

    at: Value
    row: Value
    column: Value
    live: Value


class Ending:
    """Writes it.  form: of the kernel (`rows.Form`); p: its parameters."""

    def __init__(self, k: Any, p: Any, form: Any) -> None:
        self.k, self.p, self.form = k, p, form
        self.bits: Any = k.var(u32, 0) if form.guarded else None

    def beside(self, section: Sequence[Any], first: int, element: Element) -> list[list[Any]]:
        """Begin to read what epilogues need beside the sums of one element; None where that is a result."""
        places = {"e": element.at, "w": element.row, "r": element.column, "u": 0}
        return [
            [
                None if where == "result"
                else getattr(self.p, f"beside{first + i}_{j}").load(places[kind], where=element.live)
                for j, ((where, _), kind) in enumerate(zip(part.sources, part.epilogue.beside, strict=True))
            ] if part.epilogue else []
            for i, part in enumerate(section)
        ]  # fmt: skip

    def store(
        self, section: Sequence[Any], first: int, totals: Sequence[Value], element: Element,
        beside: Sequence[Sequence[Any]],
    ) -> None:  # fmt: skip
        """Store one element of each part of a section.  first: the number of its first part."""
        k, p, at, live = self.k, self.p, element.at, element.live
        results: list[Value] = []
        for i, (part, value) in enumerate(zip(section, totals, strict=True)):
            number = first + i
            if part.epilogue is not None:
                others = [
                    results[n] if where == "result" else read
                    for (where, n), read in zip(part.sources, beside[i], strict=True)
                ]
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
