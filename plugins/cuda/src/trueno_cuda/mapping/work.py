"""What a launch moves and computes, from the call that it was recorded for.

A call's operands and results have sizes; a launch moves those that its pointers name, which a kernel reads or writes as
its text does.  Of a table the rows that are looked up count, and of a cache the tokens that sequences have.  Memory
between the launches of a call counts as the kernel's own numbers say, or up to where the next pointer begins.
Flops are those that the op declares.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from trueno.backend import FORMATS, FusedOp, SharedOp, unit_shape

from trueno_cuda.kernels.quant.parts import RIGHT
from trueno_cuda.mapping.device import Launch, Planner, Request, TensorMap
from trueno_cuda.ptx.types import TensorMap as MapType
from trueno_cuda.ptx.types import ptr

LOOKUPS = ("embedding_lookup", "quant_embedding_lookup")
SCATTER = "kv_cache_scatter"
ATTENTION = ("attention_decode", "attention_decode_sinks")


def moved(device: Planner, launch: Launch) -> int:
    """Bytes of global memory that a launch reads and writes."""
    kinds = [p for p in launch.kernel.params if isinstance(p.type, (ptr, MapType))]
    counted = _of_request(device, launch.request) if launch.request else []
    own = _of_numbers(launch)
    total = 0
    for param, pointer in zip(kinds, launch.pointers, strict=True):
        if isinstance(pointer, TensorMap):
            total += pointer.nbytes
            continue
        nbytes = own.get(param.name)
        if nbytes is None:
            nbytes = next((n for start, end, n in counted if start <= pointer < end), None)
        if nbytes is None:
            nbytes = _rest(device, launch.pointers, pointer)
        total += nbytes * (param.read + param.written)
    return total


def _of_request(device: Planner, request: Request) -> list[tuple[int, int, int]]:
    """Of each operand and result: where it begins and ends, and how many of its bytes the call moves."""
    operands, results = request.operands, request.results
    name = request.call.op.table_op.name
    counts = {id(x): x.nbytes for x in (*operands, *results)}
    if name in LOOKUPS:
        table, index = operands[:2]
        counts[id(table)] = index.size * (table.nbytes // max(table.shape[0], 1))
    if name in ATTENTION:
        tokens = tokens_of(device, request)
        for cache in operands[1:3]:
            counts[id(cache)] = tokens * (cache.nbytes // max(cache.shape[0] * cache.shape[1], 1))
    for cache, slots, result in _written(request):
        for one in (cache, result):
            counts[id(one)] = slots.size * (cache.nbytes // max(cache.shape[0] * cache.shape[1], 1))
    return [(x.data.ptr, x.data.ptr + x.nbytes, counts[id(x)]) for x in (*operands, *results)]


def _written(request: Request) -> list[tuple[Any, Any, Any]]:
    """Of each cache that a call writes rows into: the operand, the slots, and the result."""
    op: Any = request.call.op
    if not isinstance(op, SharedOp):
        return [(request.operands[0], request.operands[2], request.results[0])] if op.name == SCATTER else []
    return [
        (request.operands[member.sources[0][1]], request.operands[member.sources[2][1]],
         request.results[op.kept.index((at, 0))])
        for at, member in enumerate(op.members) if member.op.name == SCATTER
    ]  # fmt: skip


def tokens_of(device: Planner, request: Request) -> int:
    """Tokens that attention over a cache reads: of all sequences, those that they have, or room for."""
    _, k, _, table, lengths = request.operands[:5]
    contents = device.contents(lengths)
    return int(np.sum(contents)) if contents is not None else table.size * k.shape[1]


def _of_numbers(launch: Launch) -> dict[str, int]:
    """Bytes behind parameters of kernels that work on memory between launches, from the kernel's whole numbers."""
    named, name = launch.named, launch.kernel.name
    elements = {p.name: p.type.element.bytes for p in launch.kernel.params if isinstance(p.type, ptr)}
    if product(launch):
        m, n, depth, count = named["m"], named["n"], named["depth"], launch.grid[2]
        splits = launch.grid[1] if "share" in named else 1
        sizes = {"a": m * depth * count, "b": depth * n * count, "out": m * n * count * splits}
        return {p: size * elements[p] for p, size in sizes.items() if p in elements}
    if name.startswith("cast_") and "count" in named:
        return {p: named["count"] * size for p, size in elements.items()}
    if name.startswith("dequantize_") and "units" in named:
        words = name.removeprefix("dequantize_").removeprefix("parts_")
        form = max((f for f in FORMATS if words.startswith(f"{f}_")), key=len, default="")
        if form:
            blocks = named["units"] // unit_shape(form).units
            copies = len(RIGHT) if "stride" in named else 1
            each = FORMATS[form].elements * copies
            return {"w": blocks * FORMATS[form].nbytes, "out": blocks * each * elements["out"]}
    return {}


def product(launch: Launch) -> bool:
    """Whether a launch multiplies two matrices that lie in memory as numbers."""
    return {"m", "n", "depth"} <= launch.named.keys()


def _rest(device: Planner, pointers: Sequence[Any], pointer: int) -> int:
    """Bytes from a pointer to the launch's next one in the same memory, or to its end."""
    memory = device.memory(pointer)
    end = memory.ptr + memory.nbytes
    return min([end, *(p for p in pointers if isinstance(p, int) and pointer < p < end)]) - pointer


# ------------------------------------------------------------------------------------- flops


def computed(device: Planner, launches: Sequence[Launch]) -> list[float]:
    """Flops of each of the launches of one call: of products by their sizes, else all at the one that moves most."""
    request = launches[0].request
    if any(product(one) for one in launches):
        return [
            2.0 * one.named["m"] * one.named["n"] * one.named["depth"] * one.grid[2] if product(one) else 0.0
            for one in launches
        ]
    whole = flops(device, request) if request is not None else 0.0
    busiest = max(range(len(launches)), key=lambda i: moved(device, launches[i]))
    return [whole if i == busiest else 0.0 for i in range(len(launches))]


def flops(device: Planner, request: Request) -> float:
    """Flops of a call, as its op declares them."""
    call = request.call
    op: Any = call.op
    shapes = [tuple(x.shape) for x in request.operands]
    if isinstance(op, SharedOp):
        total, made = 0.0, list[tuple[int, ...]]()
        for member in op.members:
            own = tuple(made[i] if where == "result" else shapes[i] for where, i in member.sources)
            made.append(member.op.result_shapes(own, dict(member.static))[0])
            if member.op.structured:
                total += _alone(member.op, own[: len(_head(member.op).operands)], dict(member.static))
            else:
                total += _by_rows(member.op.program(), own)
        return total
    if op.name in ATTENTION:
        _, t, hq, d = shapes[0]
        return 2.0 * t * hq * (d + request.results[0].shape[-1]) * tokens_of(device, request)
    if op.structured:
        return _alone(op, shapes[: len(_head(op).operands)], dict(call.static))
    return _by_rows(op.program(call.layout, **dict(call.static)), shapes, call.rank)


def _by_rows(program: Any, shapes: Sequence[tuple[int, ...]], rank: int = 2) -> float:
    """Of a row program; rank: 1 where all is one row."""
    elements, row = program.flops
    largest = max(shapes, key=prod, default=())
    rows = prod(largest[:-1]) if rank > 1 else 1
    return float(elements * prod(largest) + row * rows)


def _head(op: Any) -> Any:
    return op.head if isinstance(op, FusedOp) else op


def _alone(op: Any, shapes: Sequence[tuple[int, ...]], static: dict[str, Any]) -> float:
    """Of a structured op whose head has operands of these shapes, with what follows it."""
    head = _head(op)
    blocks = head.blocks(static)
    meant = tuple(s.meant(head.name, x, blocks) for s, x in zip(head.signature.inputs, shapes, strict=True))
    sizes, leading = head.signature.bind(head.name, meant)
    numbers = {name: value for name, value in static.items() if isinstance(value, int)}
    total = float(head.flops({**numbers, **sizes}, prod(leading)))
    if isinstance(op, FusedOp):
        result = head.result_shapes(tuple(shapes), static)[0]
        element, row = op.epilogue.program(op.kinds).flops
        total += element * prod(result) + row * prod(result[:-1])
    return total
