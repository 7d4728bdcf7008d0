"""Matrix ops against NumPy's and PyTorch's.

matmul, convolve2d and transpose have targets; the rest are here to be seen.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
from trueno.ops import TABLE
from trueno.ops.op import Op

from benchmarks.compare import Record, measure
from benchmarks.inputs import arena, values, variants
from benchmarks.rows import Cell, Plan

UNIFORM = ("uniform", 0.1, 1.1)
Shape = tuple[int, ...]

MATMUL = (64, 128, 256, 512, 1024, 2048)
FILTERS = (3, 7)
IMAGE = 1024
TRANSPOSED = 2048
LOOKUP = "2048 rows of 32000×512"
SEEN: tuple[tuple[str, tuple[Shape, ...]], ...] = (
    ("matvec", ((2048, 2048), (2048,))),
    ("vecmat", ((2048,), (2048, 2048))),
    ("batched_matmul", ((8, 12, 128, 64), (8, 12, 64, 128))),
    ("outer", ((2048,), (2048,))),
)


def cells(plan: Plan) -> Iterator[Cell]:
    sizes = [n for n in MATMUL if not (plan.quick and n > 512)]
    listed: list[tuple[str, str, tuple[Shape, ...]]] = [
        *(("matmul", f"{n}²", ((n, n), (n, n))) for n in sizes),
        *(("convolve2d", f"{k}×{k} on {IMAGE}²", ((IMAGE, IMAGE), (k, k))) for k in FILTERS),
        ("transpose", f"{TRANSPOSED}²", ((TRANSPOSED, TRANSPOSED),)),
        *((name, " ".join("×".join(map(str, s)) for s in shapes), shapes) for name, shapes in SEEN),
    ]
    for name, label, shapes in listed:
        yield Cell("structured", name, label, partial(_one, TABLE[name], label, shapes, plan))
    yield Cell("structured", "embedding_lookup", LOOKUP, partial(_lookup, TABLE["embedding_lookup"], plan))


def _one(op: Op, label: str, shapes: tuple[Shape, ...], plan: Plan) -> list[Record]:
    memory = arena(shapes[0])
    operands = tuple(values(UNIFORM, shape, i) for i, shape in enumerate(shapes))
    return [measure("structured", op, label, operands, variants(op)[0], memory, plan.budget)]


def _lookup(op: Op, plan: Plan) -> list[Record]:
    memory = arena((32_000, 512))
    table = values(UNIFORM, memory.shape)
    indices = np.random.default_rng(0).integers(0, len(table), 2048)
    return [measure("structured", op, LOOKUP, (table, indices), {}, memory, plan.budget)]
