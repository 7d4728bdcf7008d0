"""Row programs: elementwise ops, and rows.

An op without folds splits anywhere.  One with folds takes whole rows, chunk by chunk, where no row is cut; where rows
are cut, `trueno_dask.folds` splits the program.
"""

from typing import Any

from trueno.ops.op import Op
from trueno.programs.program import FOLDS

from trueno_dask.chains import Batched, Chain, Step, joined, remember
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
        operands.append(Labelled(x, labels, op.operands[i]))
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
        meta = request.meta(0, len(labels))
        chain = chained(request, operands, scalars)
        if chain is not None and len(chain.steps) > 1:
            inputs, known = aligned(op.name, chain.inputs)
            if uncut(chain, known):
                result = blocks(Batched(chain), request.name("fused"), labels, inputs, known, meta, sizes)
                return remembered(result, chain, labels, checked.whole)
        return remembered(
            blocks(task, request.name(), labels, operands, chunks, meta, sizes), chain, labels, checked.whole
        )
    everywhere = tuple(range(-len(checked.whole), 0))
    base = Labelled(
        blocks(task, request.name("all"), everywhere, operands, chunks, objects(len(everywhere))), everywhere
    )
    results = []
    for k, spec in enumerate(op.signature.outputs):
        labels, sizes = result_labels(request, k)
        results.append(item(base, k, request.name(spec.name), labels, request.meta(k, len(labels)), sizes))
    return tuple(results)


def chained(request: Request, operands: list[Labelled], scalars: dict[str, Any]) -> Chain | None:
    """The chain of which the call is the last step; None outside of `fused`."""
    places = {i: k for k, i in enumerate(sorted(request.arrays))}
    numbers = sorted(request.numbers)
    sources = tuple(
        ("x", places[i]) if i in places else ("number", numbers.index(i)) for i in range(len(request.op.operands))
    )
    axes = request.checked.axes
    rows = axes if axes and whole_rows(request.op, request.checked.static) else ()
    held = tuple(request.numbers[i] for i in numbers)
    return joined(Step(request.op.name, sources, held, tuple(scalars.items()), rows), operands, request.scopes)


def uncut(chain: Chain, chunks: dict[Label, Chunks]) -> bool:
    """Whether every step has whole rows where it needs them."""
    return all(len(chunks.get(axis, (0,))) == 1 for step in chain.steps for axis in step.rows)


def remembered(result: Any, chain: Chain | None, labels: Labels, whole: tuple[int, ...]) -> Any:
    """The result, which a later op may join if it has all the axes of the chain."""
    if chain is not None and labels == tuple(range(-len(whole), 0)):
        remember(result, chain)
    return result


def run(request: Request) -> Any:
    """The lazy results of a row program."""
    operands, chunks = aligned(request.op.name, labelled(request))
    cut = any(len(chunks[axis]) > 1 for axis in request.checked.axes if axis in chunks)
    if cut and whole_rows(request.op, request.checked.static):
        return folded(request, operands, chunks)
    return computed(request, operands, chunks)
