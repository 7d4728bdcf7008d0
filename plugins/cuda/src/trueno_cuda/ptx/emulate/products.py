"""wgmma in flight: products of a warp group that land in its registers when it waits for them.

The operands in shared memory are read when the product lands, so a buffer that is reused before the wait gives
wrong sums, as on the hardware.
"""

from dataclasses import dataclass

import numpy as np

from trueno_cuda.ptx.emulate.tensor_map import swizzle
from trueno_cuda.ptx.syntax.tree import Instruction
from trueno_cuda.ptx.syntax.types import Array, Type

SWIZZLE_BYTES = {0: 0, 1: 128, 2: 64, 3: 32}


@dataclass
class Shape:
    """What a wgmma computes: [64, n] += [64, k] · [k, n], and the registers of D."""

    n: int
    k: int
    d_type: Type
    a_type: Type
    b_type: Type
    registers: list[int]
    negate_a: bool
    negate_b: bool
    transpose_a: bool
    transpose_b: bool
    limit: bool


@dataclass
class Product:
    """One wgmma of some warp groups (their numbers in the chunk).  number: the group of products it belongs to.

    a: elements [groups, 64, k] from registers, or descriptors [groups]; b: descriptors.  scale: whether D is added.
    """

    ins: Instruction
    groups: Array
    number: Array
    a: Array
    a_in_registers: bool
    b: Array
    scale: Array
    spec: Shape

    @property
    def registers(self) -> list[int]:
        return self.spec.registers


def operand_bytes(descriptor: Array, rows: int, k_bytes: int, element: int, transposed: bool) -> Array:
    """Byte addresses in shared memory [groups, rows, k elements] of a matrix that a descriptor tells.

    rows: along M or N.  transposed: that axis is the contiguous one.  The layouts are those of the PTX ISA's "Shared
    Memory Matrix Layout": atoms of 8 rows, as wide as the swizzle, its leading and stride offsets between them.
    """
    start = (descriptor & 0x3FFF) << 4
    leading = (descriptor >> 16 & 0x3FFF) << 4
    stride = (descriptor >> 32 & 0x3FFF) << 4
    modes = descriptor >> 62 & 3
    out = np.empty((len(descriptor), rows, k_bytes // element), np.int64)
    r = np.arange(rows)[:, None]
    k = np.arange(k_bytes // element)[None, :]
    for mode in np.unique(modes).tolist():
        width = SWIZZLE_BYTES[mode]
        hit = modes == mode
        lead, step = leading[hit][:, None, None], stride[hit][:, None, None]
        if not transposed:
            byte = k * element
            if width:
                offset = (r % 8) * width + byte + (r // 8) * step
            else:
                offset = (r % 8) * 16 + byte % 16 + (byte // 16) * lead + (r // 8) * step
        else:
            byte = r * element
            if width:
                offset = byte % width + (k % 8) * width + (byte // width) * lead + (k // 8) * step
            else:
                offset = byte % 16 + (k % 8) * 16 + (byte // 16) * step + (k // 8) * lead
        out[hit] = swizzle(start[hit][:, None, None] + offset, width)
    return out
