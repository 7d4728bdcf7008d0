"""Structured ops by NumPy.

`KERNELS` (`table`) makes the kernel of a key; `matrix` has those of plain arrays, `quantized` those of blocks,
`attention` those of transformers, `caches` those of their keys and values, `selection` those that rank numbers,
`layout` those that copy them, `compression` those on bytes.
"""

from trueno_scalar.kernels import (  # noqa: F401 - each adds its own
    attention,
    caches,
    compression,
    layout,
    matrix,
    quantized,
    selection,
)
from trueno_scalar.kernels.table import KERNELS

__all__ = ["KERNELS"]
