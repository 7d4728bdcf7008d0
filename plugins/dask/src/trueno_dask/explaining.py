"""Which backend would run the chunks of a lazy array, on each worker."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
import trueno
from dask.blockwise import Blockwise
from trueno.deferred import StandIn, decide, inside
from trueno.errors import ParameterError, TruenoError
from trueno.showing import Shown
from trueno.text import columns, duration, number

from trueno_dask.folds.chunk import FoldTask
from trueno_dask.task import Call, Task
from trueno_dask.workers import each

Shapes = tuple[tuple[tuple[int, ...], str], ...]


@dataclass(frozen=True, slots=True)
class Line:
    """A layer of the graph on one worker.

    chunks: how many tasks it has.  shapes: of the operands' largest chunks.  seconds: predicted, of one task, or None.
    reason: why this backend, or the sentence of the error that the tasks would raise.
    """

    op: str
    chunks: int
    shapes: tuple[tuple[int, ...], ...]
    worker: str
    backend: str
    seconds: float | None
    reason: str


@dataclass(frozen=True, slots=True, repr=False)
class Explained(Shown):
    """What would run where; it shows itself as a table."""

    lines: tuple[Line, ...]

    def json(self) -> list[dict[str, Any]]:
        """As data that JSON can hold."""
        return [{name: getattr(line, name) for name in Line.__slots__} for line in self.lines]

    def __str__(self) -> str:
        head = ("op", "tasks", "of chunks", "worker", "backend", "each", "reason")
        rows = [
            (line.op, number(line.chunks), " ".join("×".join(map(number, s)) or "a number" for s in line.shapes),
             line.worker, line.backend, duration(line.seconds), line.reason)
            for line in self.lines
        ]  # fmt: skip
        return "\n".join(columns([head, *rows], right=(1, 5))) if rows else "no task of this array is one of trueno's"


def explain(x: da.Array, client: Any = None) -> Explained:
    """Which backend would run the tasks of a lazy array on which worker, and in what time; nothing is computed.

    client: of a cluster; by default the one in force, and without one this process alone.
    """
    if not isinstance(x, da.Array):
        raise ParameterError(f"explain: {type(x).__name__} is not a Dask array; trueno.explain is for calls of an op")
    layers = list(_layers(x))
    answers = each(_current() if client is None else client, _decided, [(task, shapes) for task, _, shapes in layers])
    lines = [
        Line(task.op, count, tuple(shape for shape, _ in shapes), worker, *answers[worker][k])
        for k, (task, count, shapes) in enumerate(layers)
        for worker in answers
    ]
    return Explained(tuple(lines))


def _current() -> Any:
    """The client in force; None if there is none."""
    distributed = sys.modules.get("distributed")
    try:
        return None if distributed is None else distributed.default_client()
    except ValueError:
        return None


def _layers(x: da.Array) -> Iterator[tuple[Task, int, Shapes]]:
    """Our tasks in the order in which they depend on one another, how many there are, and their largest chunks."""
    graph = x.dask
    for name in graph._toposort_layers():
        layer = graph.layers[name]
        task = getattr(getattr(layer, "task", None), "func", None)
        if not isinstance(layer, Blockwise) or not isinstance(task, Task):
            continue
        known = [graph.layers[dep].collection_annotations for dep, _ in layer.indices if dep in graph.layers]
        shapes = tuple((_largest(facts["chunks"]), str(facts["dtype"])) for facts in known if facts)
        yield task, len(layer.get_output_keys()), shapes


def _largest(chunks: Any) -> tuple[int, ...]:
    return tuple(int(np.nan_to_num(max(c, default=0))) for c in chunks)


def _decided(layers: list[tuple[Task, Shapes]]) -> list[tuple[str, float | None, str]]:
    """For each task the backend that would run it here, the predicted seconds, and the reason."""
    answers: list[tuple[str, float | None, str]] = []
    for task, shapes in layers:
        try:
            with inside(task.scopes):
                answers.append(_one(task, shapes))
        except (TruenoError, ValueError) as error:
            answers.append(("–", None, str(error)))
    return answers


def _one(task: Task, shapes: Shapes) -> tuple[str, float | None, str]:
    operands: list[Any] = [StandIn(shape, np.dtype(dtype)).array for shape, dtype in shapes if dtype != "object"]
    if isinstance(task, FoldTask):
        program, kinds, dtype = task.program()
        decision = decide(program, kinds, int(np.prod(task.chunk_shape(operands))), dtype)
    elif isinstance(task, Call):
        for i, value in sorted(task.numbers.items()):
            operands.insert(i, value)
        decision = trueno.explain(task.op, *operands, **task.scalars)
    else:
        return "–", None, "it moves data, and calls no kernel by itself"
    chosen = next((c for c in decision.candidates if c.name == decision.chosen), None)
    return decision.chosen, chosen.seconds if chosen else None, decision.by
