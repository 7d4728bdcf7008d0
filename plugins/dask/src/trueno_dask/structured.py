"""Structured ops: which of their symbols may be split follows from what the table says of the op.

leading axes   `...` are many calls side by side: they may be split in every op.
products       `chain` names one symbol, which no result has: results are sums of products over it.  Partial sums add
               up, and every symbol that an operand shares with a result may be split.
arrangements   a result has all symbols of the operands: in another order, without flops, or with one flop for each
               element, of operands that have no symbol in common.
blocks         a format encodes each row separately: symbols of a matrix of blocks other than its last, which results
               have, may be split; of interleaved rows at multiples of their number.
lookups        `table[v,d] i[...]:index -> y[...,d]`: each chunk of the table is searched for its rows.

All other symbols need one chunk, and ShapeError says so: no operand is gathered silently.
"""

from collections.abc import Iterable
from typing import Any

import dask.array as da
import numpy as np
from trueno.errors import ShapeError
from trueno.formats.table import INTERLEAVED, ROWS
from trueno.ops.op import Op
from trueno.ops.signature import ArraySpec

from trueno_dask import lookup, overlap
from trueno_dask.layers import Chunks, Label, Labelled, Labels, aligned, blocks, item, objects
from trueno_dask.request import Request, refused, whole
from trueno_dask.sums import added
from trueno_dask.task import Call


def joined(request: Request) -> da.Array:
    """Arrays one after the other: their chunks stay as they are."""
    return da.concatenate([x for _, x in sorted(request.arrays.items())], axis=request.scalars["axis"])


OWN = {"convolve2d": overlap.run, "concatenate": joined}
"""Ops whose results' shapes no signature describes."""


def run(request: Request) -> Any:
    """The lazy results of a structured op."""
    op = request.op
    if op.name in OWN:
        return OWN[op.name](request)
    if op.shapes is not None:
        raise refused(request, "its results' shapes do not follow from its signature, so it takes no Dask array")
    if lookup.fits(op) and lookup.cut(request):
        return lookup.run(request)
    summed = contracted(op)
    return split(request, free(op, summed), summed)


def contracted(op: Op) -> str:
    """The symbol over which results are sums of products; empty if there is none."""
    made = {s for spec in op.signature.outputs for s in spec.dims}
    held = [s for spec in op.signature.inputs for s in spec.dims]
    return op.chain if op.chain and held.count(op.chain) == 2 and op.chain not in made else ""


def free(op: Op, summed: str) -> set[str]:
    """The symbols that may be split, beside the leading axes."""
    inputs, outputs = op.signature.inputs, op.signature.outputs
    made = {s for spec in outputs for s in spec.dims}
    held = {s for spec in inputs for s in spec.dims}
    if summed:
        symbols = (made & held) | {summed}
    elif _arranged(op):
        symbols = made
    else:
        symbols = {s for spec in (*inputs, *outputs) if spec.type == "blocks" for s in spec.dims[:-1]} & made & held
    return symbols - {spec.dims[-1] for spec in (*inputs, *outputs) if spec.blocks}


def _arranged(op: Op) -> bool:
    """Whether the only result has numbers of the operands in another order, or one product of them at each place."""
    inputs, (result, *others) = op.signature.inputs, op.signature.outputs
    symbols = [s for spec in inputs for s in spec.dims]
    plain = not others and not any(spec.type or spec.leading for spec in (*inputs, result))
    if not plain or op.chain or op.check or sorted(symbols) != sorted(result.dims):
        return False
    if op.flops_text == "0":
        return len(inputs) == 1 and tuple(symbols) != result.dims
    return len(inputs) > 1 and op.flops_text == "*".join(result.dims)


def labelled(request: Request) -> list[Labelled]:
    """The operands, labelled by symbols, and leading axes counted from the end.

    Bytes of rows have a label of their own, since symbols count elements.
    """
    operands = []
    for i, x in sorted(request.arrays.items()):
        spec = request.op.signature.inputs[i]
        cut = x.ndim - len(spec.dims)
        labels = (*(f"... {cut - j}" for j in range(cut)), *symbolic(spec))
        operands.append(Labelled(x, labels, request.op.operands[i]))
    return operands


def symbolic(spec: ArraySpec) -> Labels:
    """The labels of an array's own axes: its symbols, of which two of one array must not be equal labels."""
    labels: list[str] = []
    for k, symbol in enumerate(spec.dims):
        name = f"bytes of {symbol}" if spec.blocks and k == len(spec.dims) - 1 else symbol
        labels.append(f"{name} again" if name in labels else name)
    return tuple(labels)


def together(request: Request, i: int) -> None:
    """Raise ShapeError if operand `i` is cut inside of rows that are interleaved."""
    sizes = request.arrays[i].chunks[0]
    if any(n % ROWS for n in sizes[:-1]):
        name, fitting = request.op.operands[i], ROWS * max(1, int(np.nan_to_num(sizes[0])) // ROWS)
        problem = f"{name} has {ROWS} rows interleaved, but is cut at other places"
        raise ShapeError(f"{request.op.name}: {problem}; give {name}.rechunk({{0: {fitting}}})")


def split(request: Request, symbols: Iterable[str], summed: str) -> Any:
    """The results, with chunks along the leading axes and these symbols."""
    op, checked = request.op, request.checked
    operands = labelled(request)
    for i, x in zip(sorted(request.arrays), operands, strict=True):
        for axis, label in enumerate(x.labels):
            if not label.startswith("... ") and label not in symbols:
                symbol = label.removesuffix(" again")
                what = symbol if label.startswith("bytes") else f"{op.operands[i]}'s {symbol}"
                whole(request, i, axis, f"{op.name} needs {what} in one chunk")
        if op.signature.inputs[i].blocks and checked.static["format"] in INTERLEAVED:
            together(request, i)
    operands, chunks = aligned(op.name, operands)
    lead = sorted({label for x in operands for label in x.labels if label.startswith("... ")},
                  key=lambda label: -int(label[4:]))  # fmt: skip
    results = [(*lead, *symbolic(spec)) if spec.leading else symbolic(spec) for spec in op.signature.outputs]
    task = Call(op.name, request.scopes, request.numbers, request.scalars)
    if len(results) > 1:
        every = tuple(label for label in results[0] if all(label in r for r in results) and label in chunks)
        base = Labelled(blocks(task, request.name("all"), every, operands, chunks, objects(len(every))), every)
        made = []
        for k, (spec, labels) in enumerate(zip(op.signature.outputs, results, strict=True)):
            single = {s: (n,) for s, n in zip(labels, checked.shapes[k], strict=True) if s not in every}
            made.append(item(base, k, request.name(spec.name), labels, request.meta(k, len(labels)), single))
        return tuple(made)
    (labels,) = results
    sizes: dict[Label, Chunks] = {s: (n,) for s, n in zip(labels, checked.shapes[0], strict=True) if s not in chunks}
    meta = request.meta(0, len(labels))
    if not summed or len(chunks[summed]) == 1:
        return blocks(task, request.name(), labels, operands, chunks, meta, sizes)
    return added(request, labels, summed, operands, chunks, sizes, meta)
