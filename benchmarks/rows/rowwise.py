"""Row ops: one long row of every size, many rows, some on narrow rows, and rows that lie across memory."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from trueno.ops import TABLE

from benchmarks.compare import LOOSE, Record, floor_of, ours, threads
from benchmarks.inputs import kind, values
from benchmarks.peers import torch
from benchmarks.rows import ROWS, Cell, Plan, families, text
from benchmarks.timing import OURS, Thunk, bind, compare

NARROW = ((16_384, 64), (32_768, 32), (262_144, 4))
ACROSS = ((1_024, 1_024), ROWS)
AXIS_0: dict[str, tuple[Any, str]] = {
    "sum": (np.add.reduce, "sum"), "max": (np.maximum.reduce, "amax"), "mean": (np.mean, "mean"),
    "argmax": (np.argmax, "argmax"), "variance": (np.var, ""), "softmax": (None, "softmax"),
}  # fmt: skip
"""Ops along `axis=0`: NumPy's function, and the name of PyTorch's."""


def cells(plan: Plan) -> Iterator[Cell]:
    yield from families.cells("rows", families.ops("normalization"), (*plan.lengths, ROWS), plan)
    yield from families.cells("rows", [TABLE["softmax"], TABLE["layer_norm"]], NARROW, plan)
    if not plan.quick:
        for shape in ACROSS:
            for name in AXIS_0:
                yield Cell("rows", f"{name}, axis=0", text(shape), partial(_across, name, shape, plan))


def _across(name: str, shape: tuple[int, ...], plan: Plan) -> list[Record]:
    op, (numpy, torchs) = TABLE[name], AXIS_0[name]
    x = values(kind(op), shape)
    out = np.empty(shape[1:] if op.reduces else shape, np.int64 if op.signature.outputs[0].index else np.float32)
    calls: dict[str, Thunk] = {OURS: ours(op, (x,), {"axis": 0}, out)}
    if numpy is not None:
        calls["numpy"] = bind(numpy, x, axis=0, out=out)
    if torch is not None and torchs:
        calls["torch"] = bind(getattr(torch, torchs), torch.from_numpy(x), 0, out=torch.from_numpy(out))
    record = Record("rows", f"{name}, axis=0", text(shape), family=op.family)
    expected = np.array(calls[OURS]())
    for peer, call in calls.items():
        call()
        if not np.allclose(out, expected, LOOSE, LOOSE):
            record.problem = f"disagrees with ours: {peer}"
    comparison = compare(calls, plan.budget)
    record.seconds, record.ratios, record.peer = comparison.seconds, comparison.ratios, comparison.peer
    record.value = comparison.ratio if comparison.ratios else None
    least = floor_of(op, (x,), out, threads())
    record.floor, record.limit = least.seconds, least.limit
    return [record]
