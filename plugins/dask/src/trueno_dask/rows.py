"""Row programs: elementwise ops, and rows.

An op without folds splits anywhere.  One with folds takes whole rows, chunk by chunk, where no row is cut; where rows
are cut, `trueno_dask.folds` splits the program.
"""

from typing import Any

from trueno.ops.op import Op
from trueno.programs.program import FOLDS

from trueno_dask.folds import folded
from trueno_dask.layers import Chunks, Label, Labelled, Labels, aligned, blocks, item, objects
from trueno_dask.request import Request
from trueno_dask.task import Call

ALONG = frozenset({*FOLDS, "count", "position"})
"""Kinds of nodes whose value depends on the whole row."""


def labelled(request: Request) -> list[Labelled]:
    """The operands with labels: the axes of the broadcast shape, counted from the end."""
    op, axes = request.op, request.checked.axes
    operands = []
    for i, x in sorted(request.arrays.items()):
        spec = op.signature.inputs[i]
        if spec.leading or op.over is None:
            labels: Labels = tuple(range(-x.ndim, 0))
        else:
            labels = axes  # one row that all share
        operands.append(Labelled(x, labels))
    return operands


def whole_rows(op: Op, static: dict[str, Any]) -> bool:
    """Whether a result depends on more than the elements at its own place."""
    program = op.program(**static)
    live = program.live(program.outputs)
    return any(program.nodes[i].kind in ALONG for i in live)


def result_labels(request: Request, k: int) -> tuple[Labels, dict[Label, Chunks]]:
    """The labels of result `k`, and the chunks of those along which it differs from the operands."""
    op, checked = request.op, request.checked
    labels = tuple(range(-len(checked.whole), 0))
    if op.over is None or op.over in op.signature.outputs[k].dims:
        return labels, {}
    if checked.keepdims:
        return labels, dict.fromkeys(checked.axes, (1,))
    return tuple(label for label in labels if label not in checked.axes), {}


def computed(request: Request, operands: list[Labelled], chunks: dict[Label, Chunks]) -> Any:
    """The results where no row is cut, or where rows may be: the public function on each chunk."""
    op, checked = request.op, request.checked
    scalars = dict(request.scalars)
    if op.over is not None:
        scalars["axis"] = checked.axis
        if op.reduces:
            scalars["keepdims"] = checked.keepdims
    task = Call(op.name, request.scopes, request.numbers, scalars)
    if len(op.signature.outputs) == 1:
        labels, sizes = result_labels(request, 0)
        return blocks(task, request.name(), labels, operands, chunks, request.meta(0, len(labels)), sizes)
    everywhere = tuple(range(-len(checked.whole), 0))
    base = Labelled(
        blocks(task, request.name("all"), everywhere, operands, chunks, objects(len(everywhere))), everywhere
    )
    results = []
    for k, spec in enumerate(op.signature.outputs):
        labels, sizes = result_labels(request, k)
        results.append(item(base, k, request.name(spec.name), labels, request.meta(k, len(labels)), sizes))
    return tuple(results)


def run(request: Request) -> Any:
    """The lazy results of a row program."""
    operands, chunks = aligned(request.op.name, labelled(request))
    cut = any(len(chunks[axis]) > 1 for axis in request.checked.axes if axis in chunks)
    if cut and whole_rows(request.op, request.checked.static):
        return folded(request, operands, chunks)
    return computed(request, operands, chunks)
