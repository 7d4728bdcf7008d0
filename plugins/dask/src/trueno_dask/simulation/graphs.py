"""The tasks of a lazy array, as Dask would run them, and what one of each kind takes in this process."""

import pickle
import re
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf, isnan, prod
from time import perf_counter
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask._task_spec import Alias, DataNode, GraphNode, convert_legacy_graph
from dask.order import order
from trueno.errors import ParameterError
from trueno.settings import settings

from trueno_dask.simulation.cluster import Cost, Work

TOKEN = re.compile(r"-?[0-9a-f]{32}")
INNER = re.compile(r"_\.(\d+)")
"""In a name within a fused task: an axis of the task's number that is an axis of the chunk."""

LARGE = 1 << 16
"""Bytes of a chunk from which a measured time is taken to grow with them; below, it is mostly that of the call."""


@dataclass(slots=True)
class Tasks:
    """A graph in lists, by number of the task; the scheduler prefers tasks with lower numbers."""

    keys: list[Hashable] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    nbytes: list[float] = field(default_factory=list)
    needs: list[tuple[int, ...]] = field(default_factory=list)
    held: list[bool] = field(default_factory=list)

    def add(self, key: Hashable, kind: str, seconds: float, nbytes: float, held: bool) -> None:
        """One more task, whose needs are set later."""
        self.keys.append(key)
        self.kinds.append(kind)
        self.seconds.append(seconds)
        self.nbytes.append(nbytes)
        self.held.append(held)


def written(graph: Mapping[Any, Work]) -> Tasks:
    """The tasks of a graph that is written out, ranked in its order; ParameterError for one that cannot run."""
    tasks = Tasks()
    numbers = {key: i for i, key in enumerate(graph)}
    for key, work in graph.items():
        if not isinstance(work, Work):
            raise ParameterError(f"simulate: graph[{key!r}] is {type(work).__name__}; give trueno_dask.Work(seconds)")
        missing = [need for need in work.needs if need not in numbers]
        if missing:
            raise ParameterError(f"simulate: graph[{key!r}] needs {missing[0]!r}, which the graph lacks; add it")
        tasks.add(key, work.kind or repr(key), work.seconds, work.nbytes, work.held)
        tasks.needs.append(tuple(dict.fromkeys(numbers[need] for need in work.needs)))
    return tasks


def roots(tasks: Tasks, threads: int) -> list[bool]:
    """Which tasks wait at the scheduler, as Dask's do: those of large kinds that read fewer than five results."""
    count: dict[str, int] = {}
    reads: dict[str, set[int]] = {}
    own: set[str] = set()
    for i, needs in enumerate(tasks.needs):
        name = tasks.kinds[i]
        count[name] = count.get(name, 0) + 1
        known = reads.setdefault(name, set())
        for need in needs:
            if tasks.kinds[need] == name:
                own.add(name)
            if len(known) < 5:
                known.add(need)
    wide = {name for name, n in count.items() if n > 2 * threads and len(reads[name]) < 5 and name not in own}
    return [not needs or name in wide for needs, name in zip(tasks.needs, tasks.kinds, strict=True)]


# ---- lazy arrays ---------------------------------------------------------------------------------------------------


def kind(key: Any) -> str:
    """The name of a task's layer without the hash of its operands: `softmax-stage-1`."""
    return TOKEN.sub("", str(key[0] if isinstance(key, tuple) else key)) or "data"


class Graph:
    """The tasks of an array after Dask's own optimization, and the bytes of its chunks."""

    def __init__(self, x: da.Array) -> None:
        (optimized,) = dask.optimize(x)
        graph: dict[Any, Any] = dict(convert_legacy_graph(dict(optimized.__dask_graph__())))
        whole = x.__dask_graph__()
        for key in sorted({need for node in graph.values() for need in node.dependencies} - graph.keys(), key=str):
            graph[key] = DataNode(key, whole[key])  # a chunk that workers have, of an array that was persisted
        self.aliases = {key: node.target for key, node in graph.items() if isinstance(node, Alias)}
        self.nodes: dict[Any, GraphNode] = {k: node for k, node in graph.items() if k not in self.aliases}
        self.layers = {
            name: (layer.collection_annotations["chunks"], layer.collection_annotations["dtype"].itemsize)
            for name, layer in whole.layers.items()
            if layer.collection_annotations and layer.collection_annotations["dtype"].kind != "O"
        }
        ranks = order(graph)
        self.ranked = sorted(self.nodes, key=ranks.__getitem__)

    def needs(self, key: Any) -> list[Any]:
        """The keys that a task reads, in an order that is the same in every run."""
        return sorted({self.target(need) for need in self.nodes[key].dependencies}, key=str)

    def target(self, key: Any) -> Any:
        """The task behind a second name."""
        while key in self.aliases:
            key = self.aliases[key]
        return key

    def nbytes(self, name: Any, at: tuple[int, ...]) -> float:
        """The bytes of a chunk; 0 where they are not known."""
        if name not in self.layers:
            return 0
        chunks, itemsize = self.layers[name]
        if len(chunks) != len(at):
            return 0
        sizes = [sizes[i] if i < len(sizes) else max(sizes) for sizes, i in zip(chunks, at, strict=True)]
        return 0 if any(map(isnan, sizes)) else prod(sizes) * itemsize

    def result(self, key: Any) -> float:
        """The bytes of a task's result."""
        return self.nbytes(key[0], key[1:]) if isinstance(key, tuple) else 0

    def largest(self, key: Any) -> float:
        """The bytes of the largest chunk that a task reads, makes, or has between the steps that Dask fused."""
        arguments = getattr(self.nodes[key], "args", ())
        steps = arguments[0] if arguments and isinstance(arguments[0], dict) else {}
        between = [self.step(step, key) for step in steps]
        return max([self.result(key), *between, *(self.result(self.target(n)) for n in self.nodes[key].dependencies)])

    def step(self, step: Any, key: Any) -> float:
        """The bytes of the result of a step within a fused task: its key, or its layer with some axes of the task's."""
        if not isinstance(step, str) or not isinstance(key, tuple):
            return self.result(step)
        axes = [int(axis) for axis in INNER.findall(step)]
        return self.nbytes(INNER.sub("", step), tuple(key[1 + axis] for axis in axes if axis + 1 < len(key)))


def lazy(x: da.Array, costs: Mapping[str, Cost]) -> Tasks:
    """The tasks of a lazy array at these costs; ParameterError names a kind that has none."""
    graph, tasks = Graph(x), Tasks()
    numbers = {key: i for i, key in enumerate(graph.ranked)}
    for key in graph.ranked:
        held = isinstance(graph.nodes[key], DataNode)
        name = kind(key)
        cost = costs.get(name)
        if not isinstance(cost, Cost) and not held:
            known = ", ".join(sorted(map(str, costs))) or "nothing"
            raise ParameterError(f"simulate: costs has no {name!r}, but {known}; add a trueno_dask.Cost, or measure(x)")
        cost = cost or Cost()
        seconds = 0.0 if held else cost.seconds + graph.largest(key) / cost.rate
        tasks.add(key, name, seconds, graph.result(key) or cost.nbytes, held)
        tasks.needs.append(tuple(numbers[need] for need in graph.needs(key)))
    return tasks


# ---- measuring -----------------------------------------------------------------------------------------------------


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Let calls use so many threads."""
    before = settings.origin("TRUENO_THREADS")
    settings.override("TRUENO_THREADS", count)
    try:
        yield
    finally:
        settings.override("TRUENO_THREADS", before.value if before.origin == "code" else None)


def measure(x: da.Array, *, threads: int = 1, repeat: int = 3) -> dict[str, Cost]:
    """The cost of each kind of task in a lazy array: one task of each runs in this process, on its largest chunk.

    Its inputs are results of the tasks that ran before, so nothing else is computed.  threads: that a call may use, as
    on the workers.  repeat: runs after the first, of which the fastest counts.  A kind with large chunks has a rate, so
    that its cost holds for other chunks of about this size.  ParameterError where one task cannot stand for all.
    """
    if not isinstance(x, da.Array):
        raise ParameterError(f"measure: x is {type(x).__name__}; give a Dask array")
    for what, value in (("threads", threads), ("repeat", repeat)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ParameterError(f"measure: {what} is {value!r}; give a whole number of at least 1")
    sampled = _Sampled(Graph(x), repeat)
    with _threads(threads):
        for name in sampled.keys:
            sampled.run(name)
    return sampled.costs


def _fetched(value: Any) -> Any:
    """Data of the graph; a persisted chunk is copied from the worker that has it."""
    return value.result() if type(value).__module__.startswith("distributed.") else value


def _length(result: Any) -> int:
    """The bytes that a result takes on the link: Dask's own estimate does not look into parts of rows."""
    return int(result.nbytes) if isinstance(result, np.ndarray) else len(pickle.dumps(result, protocol=5))


class _Sampled:
    """One task of each kind: its key, its result and its cost."""

    def __init__(self, graph: Graph, repeat: int) -> None:
        self.graph, self.repeat = graph, repeat
        self.keys: dict[str, Any] = {}
        self.results: dict[str, Any] = {}
        self.costs: dict[str, Cost] = {}
        most: dict[str, float] = {}
        for key in graph.ranked:
            name, size = kind(key), graph.largest(key)
            if size > most.get(name, -1):
                self.keys[name], most[name] = key, size

    def run(self, name: str) -> Any:
        """The result of a kind's task, after those that it needs."""
        if name in self.results:
            return self.results[name]
        key = self.keys[name]
        node = self.graph.nodes[key]
        self.results[name] = None  # a task that needs its own kind gets this
        if isinstance(node, DataNode):
            self.results[name] = _fetched(node.value)
            return self.results[name]
        inputs = {need: self.run(kind(self.graph.target(need))) for need in node.dependencies}
        try:
            result, best = node(inputs), inf
            for _ in range(self.repeat):
                start = perf_counter()
                node(inputs)
                best = min(best, perf_counter() - start)
        except Exception as error:
            remedy = "write its kinds of tasks out as costs={kind: trueno_dask.Cost(seconds)}"
            problem = f"the task {name!r} does not run on results of other chunks ({type(error).__name__}: {error})"
            raise ParameterError(f"measure: {problem}; {remedy}") from error
        size = self.graph.largest(key)
        fixed, rate = (0.0, size / best) if size >= LARGE else (best, inf)
        self.costs[name] = Cost(fixed, rate, 0 if self.graph.result(key) else _length(result))
        self.results[name] = result
        return result
