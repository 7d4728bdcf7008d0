"""Structured ops by NumPy.

`KERNELS` (`table`) makes the kernel of a key; `matrix` has those of plain arrays, `quantized` those of blocks,
`attention` those of transformers, `caches` those of their keys and values, `selection` those that rank numbers,
`layout` those that copy them.
"""

from trueno_scalar.kernels import attention, caches, layout, matrix, quantized, selection  # noqa: F401 - each adds its own
from trueno_scalar.kernels.table import KERNELS

__all__ = ["KERNELS"]
