"""Chains of ops in one block as one batch: `with trueno_dask.fused(): y = trueno.relu(trueno.add(x, b))`.

Inside, an op on the result of another one becomes one layer with it, whose tasks record both in a `trueno.Batch`; so a
chunk is read and written once.  Results in between stay arrays of their own, which are computed only if something else
needs them, and then once more.  An op whose rows are cut, and a structured one, ends a chain.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
import trueno
from trueno.deferred import Scopes, rules
from trueno.dispatch.function import function
from trueno.errors import TruenoError

from trueno_dask import task
from trueno_dask.layers import Labelled
from trueno_dask.task import Task

Source = tuple[str, int]
"""`("x", i)`: an operand of the whole; `("y", k)`: the result of a step; `("number", i)`: one of the step's numbers."""
MOST = 24
"""The most steps of a chain: as many as a batch makes one kernel of."""
_open: ContextVar[bool] = ContextVar("trueno_dask_fused", default=False)


@dataclass(frozen=True, slots=True)
class Step:
    """A call: its op, where operands come from, numbers among them, and the keywords.

    rows: the axes along which it needs whole rows, counted from the end.
    """

    op: str
    sources: tuple[Source, ...]
    numbers: tuple[Any, ...]
    scalars: tuple[tuple[str, Any], ...]
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """Steps, the last of which gives the array; and the arrays of which it is computed."""

    inputs: tuple[Labelled, ...]
    steps: tuple[Step, ...]
    scopes: Scopes


KEPT = "_trueno_chain"
"""The attribute of a Dask array that holds the chain which gives it."""


@contextmanager
def fused() -> Iterator[None]:
    """Make chains of ops that are called inside, in this thread or task, one batch per block."""
    token = _open.set(True)
    try:
        yield
    finally:
        _open.reset(token)


def joined(step: Step, operands: list[Labelled], scopes: Scopes) -> Chain | None:
    """The chain that ends with this step, of operands of which some are ends of chains; None outside of `fused`.

    The step's sources count its own operands.
    """
    if not _open.get():
        return None
    inputs: list[Labelled] = []
    steps: list[Step] = []
    sources: list[Source] = []
    for x in operands:
        before: Chain | None = getattr(x.array, KEPT, None)
        if before is None or before.scopes != scopes or x.labels != tuple(range(-x.array.ndim, 0)):
            sources.append(("x", _place(inputs, x)))
            continue
        moved = {"x": [("x", _place(inputs, own)) for own in before.inputs], "y": []}
        for earlier in before.steps:
            moved["y"].append(("y", _index(steps, _moved(earlier, moved))))
        sources.append(moved["y"][-1])
    steps.append(_moved(step, {"x": sources}))
    return Chain(tuple(inputs), tuple(steps), scopes) if len(steps) <= MOST else None


def _moved(step: Step, places: dict[str, list[Source]]) -> Step:
    """A step with other places of what it takes."""
    sources = tuple(places[kind][i] if kind in places else (kind, i) for kind, i in step.sources)
    return Step(step.op, sources, step.numbers, step.scalars, step.rows)


def _index(steps: list[Step], step: Step) -> int:
    """The place of a step in a list, which has each once."""
    for i, known in enumerate(steps):
        if repr(known) == repr(step):  # 0.0 equals -0.0
            return i
    steps.append(step)
    return len(steps) - 1


def _place(inputs: list[Labelled], x: Labelled) -> int:
    """The place of an array among the inputs, which has each once."""
    for i, known in enumerate(inputs):
        if known.array.name == x.array.name and known.labels == x.labels:
            return i
    inputs.append(x)
    return len(inputs) - 1


def remember(result: da.Array, chain: Chain) -> None:
    """Let the next op join the chain that gives this array."""
    setattr(result, KEPT, chain)


class Batched(Task):
    """The steps of a chain on chunks of its inputs."""

    __slots__ = ("steps",)

    def __init__(self, chain: Chain) -> None:
        super().__init__(chain.steps[-1].op, chain.scopes)
        self.steps = chain.steps

    @property
    def called(self) -> str:
        """The ops of the chain, of which any may have taken operands that do not fit."""
        return ", ".join(step.op for step in self.steps)

    def compute(self, blocks: list[Any], place: Any) -> Any:
        """The last step's result."""
        plain = all(type(x) is np.ndarray and x.size and x.dtype.type in (np.float32, np.float64) for x in blocks)
        if plain and not rules() and not task.around:
            try:
                with trueno.Batch() as b:
                    result = self.run(b, [b.upload(x) for x in blocks])
                    b.execute()
                    return b.read(result)
            except TruenoError:  # the call itself names the op
                pass
        return self.run(None, blocks)

    def run(self, batch: Any, operands: list[Any]) -> Any:
        """Call every step, in a batch or at once."""
        results: list[Any] = []
        for step in self.steps:
            given = {"x": operands, "y": results, "number": step.numbers}
            call = function(step.op) if batch is None else getattr(batch, step.op)
            results.append(call(*(given[kind][i] for kind, i in step.sources), **dict(step.scalars)))
        return results[-1]
