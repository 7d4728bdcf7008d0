"""Calls of a kernel as the core makes them, through the protocol: its key, its operands in canonical form, its results.

A kernel refuses by returning -1 or by raising `Refused`, having written nothing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.discovery.protocol import Call, Kernel, Refused
from trueno.ops.op import Op
from trueno.testing.case import Case, keywords, rng_for
from trueno.testing.cases import cases, grid, natural
from trueno.testing.checks import SENTINEL, empty_results, sentinels, untouched
from trueno.testing.expected import split
from trueno.testing.layouts import SQUARE, TALL, THOROUGH, forms, user_shapes
from trueno.testing.subject import Subject

Array = npt.NDArray[Any]
LARGEST = 20_000
"""The most elements of an operand: these checks do not depend on size."""


@dataclass(frozen=True, slots=True)
class Direct:
    """One call of a kernel: its key, host operands as a user has them, and the form of the results."""

    call: Call
    case: Case
    wanted: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]

    @property
    def operands(self) -> tuple[Array, ...]:
        """In canonical form, as kernels get them: a column becomes one value per row."""
        if self.case.op.structured or self.case.op.over is not None:
            return self.case.operands
        pairs = zip(self.case.operands, self.call.layout, strict=True)
        return tuple(x.reshape(-1) if letter == "r" else x for x, letter in pairs)

    @property
    def scalars(self) -> tuple[float, ...]:
        return split(self.case.op, self.case.kwargs)[0]

    def __str__(self) -> str:
        return f"{self.case}, layout {self.call.layout!r}"

    def told(self, shapes: Iterable[tuple[int, ...]] = ()) -> str:
        """The kernel's arguments, for people: each operand and result with its shape; in `shapes` if they differ."""
        op = self.case.op
        names = [*op.operands, *(f"result {s.name}" for s in op.signature.outputs)]
        own = [*(x.shape for x in self.operands), *(shape for shape, _ in self.wanted)]
        return ", ".join(f"{name} of {_size(s)}" for name, s in zip(names, shapes or own, strict=True))


def _size(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "one value"


def directs(
    op: Op, dtype: npt.DTypeLike, by: Subject, seed: int = 0, *, every_layout: bool = True, plain: bool = False
) -> Iterator[Direct]:
    """Calls that the backend takes: each static choice, one row and several, every layout.

    every_layout: otherwise only the ops of `THOROUGH` have the layouts that broadcasting leads to; plain: none have.
    """
    for case, layout in _canonical(op, np.dtype(dtype), seed, not plain and (every_layout or op.name in THOROUGH)):
        call = by.call(case, layout)
        if by.backend.supports(call) is None:
            yield Direct(call, case, tuple(empty_results(op, case, case.dtype)))


def _canonical(op: Op, T: np.dtype[Any], seed: int, every: bool) -> Iterator[tuple[Case, str]]:
    if op.structured:
        seen: dict[str, int] = {}
        for case in cases(op, T, seed, long=False):
            key = str(case.kwargs)
            few = all(1 < x.size <= LARGEST for x in case.operands) and seen.get(key, 0) < 3
            if case.label == "normal" and few:
                seen[key] = seen.get(key, 0) + 1
                yield case, ""
        return
    rng = rng_for(op, T, seed)
    for kwargs in keywords(op):
        rows = grid(op, T, rng, 65)
        one = tuple(x if k == "w" else np.array(x[0]) for x, k in zip(rows, op.layout, strict=True))
        yield Case(op, T, "one row of 65", one, kwargs), ""
        yield Case(op, T, "rows of 33", grid(op, T, rng, 33), kwargs), ""
    for layout in forms(op) if every else ():
        # One value beside others that vary alike: it arrives as one row.
        sizes = {"one row": (1, 65)} if "u" in layout else {"rows": TALL, "square": SQUARE}
        for label, (count, n) in sizes.items():
            shapes = user_shapes(op, layout, count, n)
            shapes = [s[1:] if label == "one row" else s for s in shapes]
            operands = tuple(np.asarray(natural(op, rng, s), T) for s in shapes)
            yield Case(op, T, label, operands, keywords(op)[0]), layout


def attempt(kernel: Kernel, *arguments: Any) -> int:
    """Status of a call; -1 for what is `Refused`.  AssertionError for a result that is not a status."""
    try:
        status = kernel(*arguments)
    except Refused:
        return -1
    if status is None:
        return 0
    try:
        return int(status.__index__())
    except AttributeError:
        raise AssertionError(f"the kernel returned {status!r}; it must be 0, None, status bits or -1") from None


class Outs:
    """Arrays for results, full of sentinels; on the host with sentinels on both sides too."""

    def __init__(self, by: Subject, direct: Direct, step: int = 1) -> None:
        self.by = by
        self.made = [sentinels(shape, dtype, step) for shape, dtype in direct.wanted]
        self.given = [by.give(view) for _, view in self.made]

    def results(self) -> list[Array]:
        return [np.asarray(self.by.take(x)) for x in self.given]

    def check_margins(self) -> None:
        for raw, view in self.made:
            untouched(raw, view)

    def check_nothing_written(self, asked: str = "it need not take this") -> None:
        for (_, view), got in zip(self.made, self.results(), strict=True):
            assert got.shape == view.shape, f"a refused result was resized from {view.shape} to {got.shape}"
            whole = np.ascontiguousarray(got).reshape(-1).view(np.uint8)
            assert (whole == SENTINEL).all(), f"{asked}; it refused after it had written, so the result is half changed"
        self.check_margins()
