"""Structured ops by NumPy.

`KERNELS` (`table`) makes the kernel of a key; `matrix` has those of plain arrays, `quantized` those of blocks.
"""

from trueno_scalar.kernels import matrix, quantized  # noqa: F401 - each adds its own
from trueno_scalar.kernels.table import KERNELS

__all__ = ["KERNELS"]
