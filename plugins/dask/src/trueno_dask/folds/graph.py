"""The layers of an op whose rows are cut: each stage of every chunk, trees that merge them, and the elements."""

from typing import Any

from trueno.deferred import rules

from trueno_dask.folds import guarding
from trueno_dask.folds.chunk import Elements, Local, PerRow, Root
from trueno_dask.folds.partial import merged
from trueno_dask.folds.split import Split, split
from trueno_dask.layers import Chunks, Label, Labelled, blocks, item, objects, tree
from trueno_dask.request import Request, refused


def folded(request: Request, operands: list[Labelled], chunks: dict[Label, Chunks]) -> Any:
    """The lazy results of a call whose rows lie in several chunks."""
    op, checked = request.op, request.checked
    static = tuple(checked.static.items())
    whole = split(op.name, static)
    shape = _possible(request, whole)
    assert whole is not None
    facts = (op.name, request.scopes, static, checked.params, checked.axes, checked.dtype)
    rest = (checked.keepdims, shape)
    labels = tuple(range(-len(checked.whole), 0))
    lead = tuple(label for label in labels if label not in checked.axes)
    cut = {axis: (1,) * len(chunks[axis]) for axis in checked.axes}
    known: list[Labelled] = []
    for stage in range(len(whole.stages)):
        local, root = Local(*facts, stage, *rest), Root(*facts, stage, *rest)
        name = request.name(f"stage-{stage + 1}")
        parts = Labelled(blocks(local, name, labels, [*operands, *known], chunks, objects(len(labels)), cut), labels)
        beside = known[0].array if known else None
        if stage == len(whole.stages) - 1 and not whole.along:
            return _reductions(request, parts, root, chunks, beside)
        sizes = [chunks[label] for label in lead]
        array = tree(
            parts, checked.axes, merged, root, request.name(f"rows-{stage + 1}"), sizes, objects(len(lead)), beside
        )
        known = [Labelled(array, lead)]
    elements = Elements(*facts, len(whole.stages), *rest)
    outputs = op.signature.outputs
    if len(outputs) == 1:
        return blocks(elements, request.name(), labels, [*operands, *known], chunks, request.meta(0, len(labels)))
    name = request.name("elements")
    base = Labelled(blocks(elements, name, labels, [*operands, *known], chunks, objects(len(labels))), labels)
    results = []
    for k, spec in enumerate(outputs):
        if k in whole.along:
            meta = request.meta(k, len(labels))
            results.append(item(base, whole.along.index(k), request.name(spec.name), labels, meta, {}))
        else:
            meta = request.meta(k, len(lead))
            pick = PerRow(whole.program.outputs[k], checked.dtypes[k])
            results.append(blocks(pick, request.name(spec.name), lead, known, chunks, meta))
    return tuple(results)


def _possible(request: Request, whole: Split | None) -> tuple[int, ...] | None:
    """The whole shape, if positions in it are wanted, or None; ParameterError for a call that cannot be split."""
    op, checked = request.op, request.checked
    if whole is None:
        raise refused(request, "a result depends on the place in a row, and rows lie in several chunks; rechunk them")
    if not request.on_host:
        raise refused(request, "rows lie in several chunks of a device; rechunk the row axis to one chunk")
    guarding.possible(op, request.scopes.rules or rules())
    positions = any(fold.kind.startswith("arg") for folds in whole.stages for fold in folds)
    if not positions or len(checked.axes) == 1:
        return None
    if request.unknown:
        raise refused(request, "a position needs the sizes of all chunks; call compute_chunk_sizes() first")
    return checked.whole


def _reductions(request: Request, parts: Labelled, root: Root, chunks: dict[Label, Chunks], beside: Any) -> Any:
    """The results, all of which have a value per row."""
    axes, keepdims = request.checked.axes, request.checked.keepdims
    labels = tuple(label for label in parts.labels if keepdims or label not in axes)
    sizes = [(1,) if label in axes else chunks[label] for label in labels]
    outputs = request.op.signature.outputs
    if len(outputs) == 1:
        meta = request.meta(0, len(labels))
        return tree(parts, axes, merged, root, request.name(), sizes, meta, beside, keepdims)
    meta = objects(len(labels))
    base = Labelled(tree(parts, axes, merged, root, request.name("all"), sizes, meta, beside, keepdims), labels)
    return tuple(
        item(base, k, request.name(spec.name), labels, request.meta(k, len(labels)), {})
        for k, spec in enumerate(outputs)
    )
