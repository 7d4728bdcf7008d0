"""From how many rows of x on a product with a quantized matrix goes to AMX's tiles: measured on the machine."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from trueno.backend import FORMATS, Kernel

from trueno_simd.kernels.amx.choice import Operands, faster
from trueno_simd.kernels.quant.amx.product import LEFT, tiled
from trueno_simd.llvm import elsewhere
from trueno_simd.llvm.amx import HARDWARE, Tiles

ROWS = (
    32,
    128,
)  # of x, that are measured; fewer than the first are not tried: they fill no tiles, and W is decoded longer
LEAST = 1 << 25  # m n k from which on a product is worth a measurement, which takes seconds once
COLUMNS, DEPTH = 512, 1024  # of the matrix that is measured
NEVER = 1 << 62


def operands(name: str, rows: int) -> Operands:
    """Vectors, a matrix of the format, and room for their product."""
    f, rng = FORMATS[name], np.random.default_rng(0)
    ends = (112, 128) if f.e8m0 else (0, 64)  # of bytes by which no scale is infinite or NaN, and no result subnormal
    w = rng.integers(*ends, (COLUMNS, f.row_bytes(DEPTH)), np.uint8)
    return rng.standard_normal((rows, DEPTH), np.float32), w, np.empty((rows, COLUMNS), np.float32)


@cache
def least_rows(name: str, usual: Kernel) -> int:
    """The rows of x from which on tiles are faster than `usual`, the kernel of a format; NEVER where they are not."""
    return next((rows for rows in ROWS if faster(f"quant_matmul {name} {rows}", lambda: usual,
                 lambda: tiled(name, HARDWARE), partial(operands, name, rows))), NEVER)  # fmt: skip


def with_tiles(
    name: str, usual: Kernel, tiles: Tiles = HARDWARE, least: Callable[[str, Kernel], int] = least_rows
) -> Kernel:
    """The kernel of a format, quant_matmul(x, w, out), with tiles for large products; `usual` computes the others."""

    decided: list[tuple[int, Kernel]] = []

    def decide() -> tuple[int, Kernel]:
        rows = least(name, usual)
        return rows, usual if rows == NEVER else tiled(name, tiles)

    def large(x: Any, w: Any) -> bool:
        return x.ndim == w.ndim == 2 and len(x) >= ROWS[0] and x.size * len(w) >= LEAST

    def resolve(x: Any, w: Any, out: Any) -> Any:
        """A small product is machine code in a sequence, as it is where there are no tiles; Python runs a large one."""
        return None if large(x, w) else usual.resolve(x, w, out)  # type: ignore[attr-defined]

    def kernel(x: Any, w: Any, out: Any) -> int | None:
        if large(x, w):
            if not decided:
                decided.append(elsewhere.run(decide))
            rows, product = decided[0]
            status = product(x, w, out) if len(x) >= rows else LEFT
            if status != LEFT:
                return status
        return usual(x, w, out)

    kernel.resolve = resolve  # type: ignore[attr-defined]
    return kernel
