"""The positions of a matrix's elements in the registers of a warp, for mma.sync, ldmatrix and wgmma.

A register of 32 bits holds `e` elements side by side (one of f64).  With group = lane / 4 and within = lane % 4:
A's register r, element i is row group + 8 (r % 2), column within·e + i + 4e (r / 2); B's is row (k) within·e + i +
4e·r, column group; C's are pairs of neighbours in a row, register pairs 8 rows apart.  (PTX ISA, "Matrix
Fragments".)
"""

import numpy as np

from trueno_cuda.ptx.syntax.types import Array

LANE = np.arange(32)
GROUP, WITHIN = LANE >> 2, LANE & 3


def a_places(m: int, k: int, e: int) -> tuple[Array, Array]:
    """Rows and columns [32, registers, e] of A."""
    tall = 2 if m == 16 else 1
    count = m * k // (32 * e)
    r, i = np.arange(count)[None, :, None], np.arange(e)[None, None, :]
    group, within = GROUP[:, None, None], WITHIN[:, None, None]
    rows = group + 8 * (r % tall) + 0 * i
    return rows, within * e + i + 4 * e * (r // tall)


def b_places(k: int, e: int) -> tuple[Array, Array]:
    """Rows (k) and columns (n) [32, registers, e] of B."""
    count = k * 8 // (32 * e)
    r, i = np.arange(count)[None, :, None], np.arange(e)[None, None, :]
    rows = WITHIN[:, None, None] * e + i + 4 * e * r
    return rows, GROUP[:, None, None] + 0 * rows


def c_places(m: int, n: int = 8) -> tuple[Array, Array]:
    """Rows and columns [32, elements] of C and D: of each 8 columns, first the upper 8 rows, then the lower."""
    tall = 2 if m == 16 else 1
    j = np.arange(n // 8)[:, None, None]
    h, i = np.arange(tall)[None, :, None], np.arange(2)[None, None, :]
    rows = (GROUP[:, None, None, None] + 8 * h + 0 * (i + j)).reshape(32, -1)
    columns = (8 * j + 2 * WITHIN[:, None, None, None] + i + 0 * h).reshape(32, -1)
    return rows, columns
