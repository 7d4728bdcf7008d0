"""The tasks: a stage of a chunk, the whole of a row's parts, and the elements of a chunk."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from trueno.deferred import Scopes, inside, rules, run_rows
from trueno.dispatch.function import function
from trueno.errors import TruenoError
from trueno.ops import TABLE
from trueno.ops.op import Op
from trueno.programs.evaluate import ELEMENT_FUNCTIONS

from trueno_dask.folds import guarding
from trueno_dask.folds.partial import Partial, merged, of_chunk, settled
from trueno_dask.folds.parts import Part, compensated_sum, final, local
from trueno_dask.folds.split import Split, Static, split
from trueno_dask.task import Task, located, one

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
HALF = np.dtype(np.float32)
"""In what 16-bit floats are computed."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What is known of whole rows: values by node, and `found` as in `Partial`."""

    n: int
    values: dict[int, Array]
    found: int


class FoldTask(Task):
    """A task of an op whose rows are cut.

    static, params: the parameters.  axes: of the rows, counted from the end.  dtype: of the call.  stage: the number of
    the stage.  keepdims: of a reduction.  shape: the operands' broadcast shape, where positions in it are wanted.
    """

    __slots__ = ("axes", "dtype", "keepdims", "params", "shape", "stage", "static")

    def __init__(
        self, op: str, scopes: Scopes, static: Static, params: dict[str, float],
        axes: tuple[int, ...], dtype: np.dtype[Any], stage: int, keepdims: bool, shape: Shape | None,
    ) -> None:  # fmt: skip
        super().__init__(op, scopes)
        self.static, self.params, self.axes, self.dtype = static, params, axes, dtype
        self.stage, self.keepdims, self.shape = stage, keepdims, shape

    @property
    def whole(self) -> Split:
        """The op's program in stages."""
        program = split(self.op, self.static)
        assert program is not None
        return program

    @property
    def computing(self) -> np.dtype[Any]:
        """The dtype in which kernels compute."""
        return HALF if self.dtype.itemsize == 2 else self.dtype

    def operands(self, blocks: Sequence[Any], names: Sequence[str], shape: Shape) -> list[Array]:
        """The chunks of these operands as [outer, n, inner], or [n]."""
        specs = {spec.name: (spec, x) for spec, x in zip(TABLE[self.op].signature.inputs, blocks, strict=False)}
        laid = []
        for name in names:
            spec, x = specs[name]
            x = np.asarray(x).astype(self.computing, copy=False)
            laid.append(_laid(x, shape, self.axes) if spec.leading else np.ascontiguousarray(x))
        return laid

    def results(self, part: Part, blocks: Sequence[Any], known: Rows | None, shape: Shape) -> list[Array]:
        """What a program computes of chunks of this shape, and of what is known of their rows."""
        arrays = self.operands(blocks, part.leaves, shape)
        around = _around(shape, self.axes)
        if known is not None:
            arrays += [known.values[i].reshape(around).astype(self.computing, copy=False) for i in part.known]
        return run_rows(part.op, part.kinds, arrays, [self.params[p] for p in part.params], self.computing)

    def chunk_shape(self, blocks: Sequence[Any]) -> Shape:
        """The broadcast shape of the chunks that vary along rows."""
        inputs = TABLE[self.op].signature.inputs
        return np.broadcast_shapes(*(x.shape for spec, x in zip(inputs, blocks, strict=False) if spec.leading))

    def program(self) -> tuple[Op, str, np.dtype[Any]]:
        """The program of a chunk, the letters of its operands, and the dtype in which it computes."""
        last = self.stage == len(self.whole.stages)
        part = final(self.op, self.static) if last else local(self.op, self.static, self.stage)[0]
        return part.op, part.kinds, self.computing


class Local(FoldTask):
    """A stage of one chunk; the chunk of `Rows` of earlier stages comes after the operands."""

    __slots__ = ()

    def compute(self, blocks: list[Any], place: Any) -> Partial:
        """Its part of the rows."""
        folds = self.whole.stages[self.stage]
        known = blocks.pop() if self.stage else None
        shape = self.chunk_shape(blocks)
        lead = _lead(shape, self.axes)
        n = prod(shape[a] for a in self.axes)
        found = guarding.found(blocks) | (known.found if known else 0) if rules() else 0
        kinds = tuple(
            f"{f.kind} everywhere" if self.shape is not None and f.kind.startswith("arg") else f.kind for f in folds
        )
        if not n or not folds:  # or only the length of rows is wanted
            return Partial(kinds, n, (), lead, found)
        part, counts = local(self.op, self.static, self.stage)
        results = self.results(part, blocks, known, shape)
        values = []
        for fold, count in zip(folds, counts, strict=True):
            own, results = results[:count], results[count:]
            if fold.kind == "fsum":
                own = _compensated(own[0], self.computing)
            if self.shape is not None and fold.kind.startswith("arg"):
                own = [_position(own[0], shape, place[1], self.shape), own[1]]
            values.append(tuple(v.reshape(lead) for v in of_chunk(fold, own, n)))
        return Partial(kinds, n, tuple(values), lead, found)


class Root(FoldTask):
    """The parts of whole rows: `Rows` if a later task needs them, else the results."""

    __slots__ = ()

    def __call__(self, parts: list[Partial], *rest: Any) -> Any:
        """parts: the last ones of a tree, in order.  rest: the `Rows` of earlier stages, and the chunk's number."""
        *known, at = rest
        with inside(self.scopes):
            try:
                return self.settle(merged(parts), known[0] if known else None)
            except TruenoError as error:
                raise located(error, (tuple(at), None)) from error.__cause__

    def settle(self, part: Partial, before: Rows | None) -> Any:
        """What follows from all chunks of the rows."""
        whole, op = self.whole, TABLE[self.op]
        last = self.stage == len(whole.stages) - 1
        if not part.n:  # every chunk of these rows is empty
            nothing = self.of_nothing(part.lead)
            known = {whole.program.outputs[k]: nothing[k] for k in whole.per_row}
            return Rows(0, known, part.found) if whole.along or not last else self.shaped(nothing)
        values = dict(before.values) if before else {}
        for fold, kind, v in zip(whole.stages[self.stage], part.kinds, part.values, strict=False):
            values[fold.node] = settled(kind, v, self.computing)
        roots = [a for folds in whole.stages[self.stage + 1 :] for fold in folds for a in fold.args]
        wanted = {*whole.frontier([*roots, *(whole.program.outputs[k] for k in whole.along)])}
        wanted |= {whole.program.outputs[k] for k in whole.per_row} if last else set()
        values |= self.evaluated(values, wanted, part, last)
        if not last or whole.along:
            return Rows(part.n, values, part.found)
        dtypes = [spec.holds(self.dtype) for spec in op.signature.outputs]
        with np.errstate(all="ignore"):
            results = [values[o].astype(d) for o, d in zip(whole.program.outputs, dtypes, strict=True)]
        if rules():
            guarding.inspect(op.signature.outputs, op.name, results, part.found)
        return self.shaped(results)

    def of_nothing(self, lead: Shape) -> list[Array]:
        """The op's own results for empty rows; its ShapeError if there are none."""
        op = TABLE[self.op]
        operands = [np.empty((*lead, 0) if spec.leading else (0,), self.dtype) for spec in op.signature.inputs]
        result = function(self.op)(*operands, **self.params, **dict(self.static))
        return [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]

    def evaluated(self, values: dict[int, Array], wanted: set[int], part: Partial, last: bool) -> dict[int, Array]:
        """The wanted values per row that follow from those of folds; of an earlier stage those that can be known."""
        nodes, T = self.whole.program.nodes, self.computing
        made = dict(values)

        def value(i: int) -> Array:
            if i in made:
                return made[i]
            node = nodes[i]
            if node.kind == "const":
                made[i] = np.asarray(node.value, T)
            elif node.kind == "param":
                made[i] = np.asarray(self.params[str(node.value)], T)
            elif node.kind == "count":
                made[i] = np.asarray(part.n, T)
            else:
                made[i] = np.asarray(ELEMENT_FUNCTIONS[node.kind](*(value(a) for a in node.args)))
            return made[i]

        results = {}
        with np.errstate(all="ignore"):
            for i in sorted(wanted):
                try:
                    results[i] = np.broadcast_to(value(i), part.lead)
                except KeyError:  # a fold of a later stage
                    if last:
                        raise
        return results

    def shaped(self, results: list[Array]) -> Any:
        """The results as chunks."""
        if self.keepdims:
            rank = results[0].ndim + len(self.axes)
            results = [np.expand_dims(r, tuple(a + rank for a in self.axes)) for r in results]
        return results[0] if len(results) == 1 else tuple(results)


class Elements(FoldTask):
    """The results with a value per element, of one chunk."""

    __slots__ = ()

    def compute(self, blocks: list[Any], place: Any) -> Any:
        """Its chunk of each of them."""
        whole, op = self.whole, TABLE[self.op]
        known: Rows = blocks.pop()
        shape, dtype = self.chunk_shape(blocks), self.dtype
        part = final(self.op, self.static)
        made = [np.empty(shape, self.computing)] * len(whole.along)
        if prod(shape):
            made = self.results(part, blocks, known, shape)
        with np.errstate(all="ignore"):
            results: list[Any] = [_back(y, shape, self.axes).astype(dtype, copy=False) for y in made]
        if rules():
            guarding.inspect([op.signature.outputs[k] for k in whole.along], op.name, results, known.found)
        return results[0] if len(op.signature.outputs) == 1 else tuple(results)


class PerRow:
    """One value per row of an op that has results of both kinds: of a node of its program."""

    __slots__ = ("dtype", "node")

    def __init__(self, node: int, dtype: np.dtype[Any]) -> None:
        self.node, self.dtype = node, dtype

    def __call__(self, known: Any, place: Any) -> Array:
        return np.asarray(one(known).values[self.node]).astype(self.dtype)

    def __reduce__(self) -> Any:
        return PerRow, (self.node, self.dtype)

    def __dask_tokenize__(self) -> Any:
        return "trueno_dask.PerRow", self.node, repr(self.dtype)


def _lead(shape: Shape, axes: Sequence[int]) -> Shape:
    """The shape without the row axes."""
    return tuple(n for i, n in enumerate(shape) if i - len(shape) not in axes)


def _run(shape: Shape, axes: Sequence[int]) -> tuple[int, int] | None:
    """The first and last row axis, if no other axis is between them."""
    places = sorted(a + len(shape) for a in axes)
    return (places[0], places[-1]) if places[-1] - places[0] + 1 == len(places) else None


def _around(shape: Shape, axes: Sequence[int]) -> tuple[int, int]:
    """How many rows lie apart in memory, and how many beside one another."""
    run = _run(shape, axes)
    return (prod(_lead(shape, axes)), 1) if run is None else (prod(shape[: run[0]]), prod(shape[run[1] + 1 :]))


def _laid(x: Array, shape: Shape, axes: Sequence[int]) -> Array:
    """An operand as [outer, n, inner]."""
    x = np.broadcast_to(x, shape)
    outer, inner = _around(shape, axes)
    if _run(shape, axes) is None:
        x = np.moveaxis(x, sorted(axes), range(-len(axes), 0))
    return x.reshape(outer, prod(shape[a] for a in axes), inner)


def _back(y: Array, shape: Shape, axes: Sequence[int]) -> Array:
    """A result [outer, n, inner] in the operands' shape."""
    if _run(shape, axes) is not None or not prod(shape):
        return y.reshape(shape)
    moved = (*_lead(shape, axes), *(shape[a] for a in sorted(axes)))
    return np.moveaxis(y.reshape(moved), range(-len(axes), 0), sorted(axes))


def _position(index: Array, shape: Shape, start: Shape, whole: Shape) -> Array:
    """A position in a chunk, which is one row, as that in the whole array."""
    at = np.unravel_index(index, shape)
    return np.asarray(np.ravel_multi_index(tuple(i + s for i, s in zip(at, start, strict=True)), whole))


def _compensated(x: Array, dtype: np.dtype[Any]) -> list[Array]:
    """Sums with compensation, and what rounding them has lost: the sum of the same numbers and the negated sum."""
    program = compensated_sum()
    (total,) = run_rows(program, "e", [x], [], dtype)
    safe = np.where(np.isfinite(total), total, 0)
    (lost,) = run_rows(program, "e", [np.concatenate([x, -safe[:, None, :]], 1)], [], dtype)
    return [np.asarray(total, np.float64), np.where(np.isfinite(total), lost, 0.0).astype(np.float64)]
