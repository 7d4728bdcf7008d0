"""What a worker runs: a public function on chunks, inside the caller's scopes, with errors that name the chunk.

Tasks are small: an op's name, parameters and scopes, never data.  They are sent to every worker, so each states the
version that made it.
"""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

from dask.layers import ArrayBlockwiseDep
from dask.utils import cached_cumsum
from trueno.deferred import Scopes, inside
from trueno.dispatch.function import function
from trueno.errors import ShapeError, TruenoError
from trueno.settings import settings
from trueno.version import __version__

NONE = Scopes()
around: list[Callable[[str], AbstractContextManager[Any]]] = []
"""What surrounds every task of this process: a trace, or nothing (`trueno_dask.workers`)."""


class Place(ArrayBlockwiseDep):
    """For each chunk its number, and the index of its first element; None along axes of unknown sizes."""

    def __getitem__(self, idx: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        starts = [cached_cumsum(c, initial_zero=True)[i] for i, c in zip(idx, self.chunks, strict=True)]
        return idx, None if any(n != n for n in starts) else tuple(int(n) for n in starts)

    def __dask_tokenize__(self) -> Any:
        return "trueno_dask.Place", self.chunks


class Task:
    """A part of a call; subclasses say what it computes.

    op: its name in the table.  scopes: those of the caller.  version: of the Trueno that made the task.  alike: groups
    of axes that must have one size, which was not known at the call; of each axis the operand's place, the axis and the
    operand's name.
    """

    __slots__ = ("alike", "op", "scopes", "version")

    def __init__(self, op: str, scopes: Scopes) -> None:
        self.op, self.scopes, self.version = op, scopes, __version__
        self.alike: tuple[tuple[tuple[int, int, str], ...], ...] = ()

    def compute(self, blocks: list[Any], place: Any) -> Any:
        """The result for chunks of the operands."""
        raise NotImplementedError

    def __call__(self, *blocks: Any) -> Any:
        """blocks: the chunks, and last their `Place`."""
        *chunks, place = blocks
        if self.version != __version__:
            remedy = "install one version on the client and on all workers"
            problem = f"made by trueno {self.version}, but this process has {__version__}"
            raise TruenoError(f"{self.op}: the task was {problem}; {remedy}")
        prepare()
        chunks = [one(x) for x in chunks]
        try:
            self.compare(chunks)
            if self.scopes == NONE and not around:
                return self.compute(chunks, place)
            with around[0](self.op) if around else nullcontext(), inside(self.scopes):
                return self.compute(chunks, place)
        except TruenoError as error:
            raise located(error, self.where(place)) from error.__cause__

    def compare(self, chunks: list[Any]) -> None:
        """Raise ShapeError for chunks that must be alike and are not: a chunk of 1 would be broadcast to the other."""
        for (i, axis, name), *others in self.alike:
            x = chunks[i]
            for k, along, other in others:
                y = chunks[k]
                if x.shape[axis] != y.shape[along]:
                    sizes = f"{other} has {y.shape[along]} along axis {along - y.ndim}, but {name} has {x.shape[axis]}"
                    problem = f"chunks of shapes {y.shape} and {x.shape}, whose sizes were not known at the call"
                    remedy = f"give {name} and {other} of one size; compute_chunk_sizes() makes the sizes known"
                    raise ShapeError(f"{self.called}: {sizes} ({problem}); {remedy}")

    @property
    def called(self) -> str:
        """What an error names."""
        return self.op

    def where(self, place: Any) -> Any:
        """The place that an error names, in the result that the caller sees."""
        return place

    def __reduce__(self) -> Any:
        return _made, (type(self), tuple(getattr(self, name) for name in self.fields()))

    @classmethod
    def fields(cls) -> tuple[str, ...]:
        """The names of all that a task holds."""
        return tuple(name for kind in reversed(cls.__mro__) for name in getattr(kind, "__slots__", ()))

    def __dask_tokenize__(self) -> Any:
        return type(self).__qualname__, *(repr(getattr(self, name)) for name in self.fields())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.op}>"


def _made(kind: type[Task], values: tuple[Any, ...]) -> Task:
    task = object.__new__(kind)
    for name, value in zip(kind.fields(), values, strict=True):
        setattr(task, name, value)
    return task


class Call(Task):
    """A public function on chunks of its operands.

    numbers: the operands that are numbers, by place.  scalars: the keywords.
    """

    __slots__ = ("numbers", "scalars")

    def __init__(self, op: str, scopes: Scopes, numbers: dict[int, Any], scalars: dict[str, Any]) -> None:
        super().__init__(op, scopes)
        self.numbers, self.scalars = numbers, scalars

    def compute(self, blocks: list[Any], place: Any) -> Any:
        """The function's result."""
        for i, number in sorted(self.numbers.items()):
            blocks.insert(i, number)
        return function(self.op)(*blocks, **self.scalars)


class Item:
    """One result of several."""

    __slots__ = ("k",)

    def __init__(self, k: int) -> None:
        self.k = k

    def __call__(self, results: Any) -> Any:
        return one(results)[self.k]

    def __reduce__(self) -> Any:
        return Item, (self.k,)

    def __dask_tokenize__(self) -> Any:
        return "trueno_dask.Item", self.k


def one(block: Any) -> Any:
    """A chunk; Dask passes it within lists, if the axis along which it is the only one is not in the result."""
    while isinstance(block, list):
        (block,) = block
    return block


def located(error: TruenoError, place: Any) -> TruenoError:
    """The error with the chunk in its message, and as `chunk`; and as `start`, where that is known."""
    if place is None or hasattr(error, "chunk"):
        return error
    number, start = place
    where = f"in chunk {number}" + (f", whose first element is {start}" if start and any(start) else "")
    error.args = (f"{error.args[0] if error.args else error} ({where})", *error.args[1:])
    vars(error).update(chunk=number, start=start)
    return error


@lru_cache(1)
def prepare() -> None:
    """Once per process: let a worker's calls use as many threads as its nanny grants to other libraries.

    Dask sets OMP_NUM_THREADS for the workers of a cluster, to one per call, since they run several tasks at once.
    TRUENO_THREADS wins.
    """
    granted = os.environ.get("OMP_NUM_THREADS", "")
    if _in_worker() and granted.isdigit() and int(granted) and settings.origin("TRUENO_THREADS").origin == "default":
        settings.override("TRUENO_THREADS", int(granted))


def _in_worker() -> bool:
    worker = sys.modules.get("distributed.worker")
    return worker is not None and bool(worker.Worker._instances)
