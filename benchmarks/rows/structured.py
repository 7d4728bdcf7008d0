"""Matrix ops against NumPy's and PyTorch's.

matmul, convolve2d, transpose and attention have targets; the rest are here to be seen.
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
ATTENTION = (("512 tokens, 14 heads on 2, 64", (14, 2), 512), ("4096 tokens, 14 heads, 64", (14, 14), 4096))
HEAD = 64
ROPE = "512 tokens, 14 heads, 64"
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
    for label, heads, tokens in ATTENTION:
        if not (plan.quick and tokens > 512):
            run = partial(_attention, TABLE["attention"], label, heads, tokens, plan)
            yield Cell("structured", "attention", label, run)
    yield Cell("structured", "rope", ROPE, partial(_rope, TABLE["rope"], plan))
    yield Cell("structured", "embedding_lookup", LOOKUP, partial(_lookup, TABLE["embedding_lookup"], plan))


def _one(op: Op, label: str, shapes: tuple[Shape, ...], plan: Plan) -> list[Record]:
    memory = arena(shapes[0])
    operands = tuple(values(UNIFORM, shape, i) for i, shape in enumerate(shapes))
    return [measure("structured", op, label, operands, variants(op)[0], memory, plan.budget)]


def _attention(op: Op, label: str, heads: tuple[int, int], tokens: int, plan: Plan) -> list[Record]:
    shapes = [(tokens, h, HEAD) for h in (heads[0], heads[1], heads[1])]
    operands = tuple(values(("normal", 0.0, 1.0), shape, i) for i, shape in enumerate(shapes))
    return [measure("structured", op, label, operands, {"causal": True}, arena(shapes[0]), plan.budget)]


def _rope(op: Op, plan: Plan) -> list[Record]:
    memory = arena((512, 14, HEAD))
    x, positions = values(("normal", 0.0, 1.0), memory.shape), np.arange(512)
    return [measure("structured", op, ROPE, (x, positions), {}, memory, plan.budget)]


def _lookup(op: Op, plan: Plan) -> list[Record]:
    memory = arena((32_000, 512))
    table = values(UNIFORM, memory.shape)
    indices = np.random.default_rng(0).integers(0, len(table), 2048)
    return [measure("structured", op, LOOKUP, (table, indices), {}, memory, plan.budget)]
