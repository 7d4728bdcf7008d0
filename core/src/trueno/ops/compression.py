"""Compression of bytes by LZ4: structured ops, whose bodies are in `trueno.formats.lz4` and need the package `lz4`.

x[n,p] are n pages of p bytes.  A page becomes a block of LZ4's block format without any header, or is stored raw:
sizes[i] > 0 counts the bytes of a block, sizes[i] < 0 those of a raw page, and sizes[i] = 0 is nothing.
`trueno.lz4` makes frames and files of these ops.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from trueno.errors import ParameterError, ShapeError
from trueno.formats.lz4 import compressed, decompressed, joined
from trueno.ops.op import op

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
MOST = 1 << 16
"""The bytes of the largest page: an offset of the format has 16 bits."""


@op("x[n,p]:bytes -> blocks[n,p]:bytes sizes[n]:index", structured=True, flops="0", choices={"level": (1, 2)},
    extents=(f"1 <= p <= {MOST}",))  # fmt: skip
def lz4_compress(x, *, level: int = 1):
    """blocks[i, :|sizes[i]|] = the LZ4 block of x[i], or x[i] itself where its block would not be smaller.

    level: 1 is greedy, with one probe of a hash table; 2 matches lazily, for smaller blocks in more time.  Which
    matches a block has is free, so another backend may write other bytes; one backend always writes the same.
    Shapes: pages of 1 to 65 536 bytes, uint8; a size per page.
    Edges: bytes behind a block are 0; the rules for the end of a block hold: the last five bytes are literals, and no
    match starts in the last twelve, so a page of 12 bytes or less is always raw.
    Source: lz4_Block_format.md of the LZ4 project, 1.6.x.
    """
    return compressed(x, level)


@op("packed[m]:bytes offsets[n]:index sizes[n]:index -> y[n,page]:bytes lengths[n]:index", structured=True, flops="0",
    rules=f"1 <= page <= {MOST}")  # fmt: skip
def lz4_decompress(packed, offsets, sizes, *, page: int = 4096):
    """y[i, :lengths[i]] = what packed[offsets[i] : offsets[i] + |sizes[i]|] decodes to; bytes behind it are 0.

    A malformed block has length −1 − k, where k is the index in the block of the first byte (the token) of the first
    wrong sequence, and all of y[i] is 0; a slice that is not inside `packed`, and a raw page longer than `page`, have
    k = 0.  A sequence with a match is right if its literals end at least 8 bytes before the end of the block and 12
    before `page`, the offset is 1 to the bytes decoded so far, the bytes of its lengths leave 4 bytes of the block, and
    the match ends at least 5 bytes before `page`; one without is the last: its literals end the block, within `page`.
    Shapes: slices may overlap, leave gaps and be in any order; pages have 1 to 65 536 bytes.
    Edges: a size of 0 gives length 0, whatever its offset; nothing outside of a slice is read, whatever its bytes are.
    Source: LZ4_decompress_safe of lz4.c, which applies these rules; where its shortcuts skip one, it may also accept a
    block that no encoder writes, and it accepts an offset of 0.
    """
    return decompressed(packed, offsets, sizes, page)


def _joined(blocks: Shape, sizes: Shape) -> tuple[Shape, ...]:
    """Result shapes of lz4_pack."""
    if len(blocks) != 2 or len(sizes) != 1 or blocks[0] != sizes[0]:
        raise ShapeError(f"lz4_pack: blocks has shape {blocks} and sizes {sizes}; give blocks[n,p] and sizes[n]")
    if not 1 <= blocks[1] <= MOST:
        raise ShapeError(f"lz4_pack: p is {blocks[1]}, but 1 <= p <= {MOST} must hold")
    return (blocks[0] * blocks[1],), sizes


def _within(blocks: Array, sizes: Array) -> None:
    """Raise ParameterError naming the first size that a row of blocks has no room for."""
    p = blocks.shape[-1]
    wrong = (sizes < -p) | (sizes > p)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ParameterError(f"lz4_pack: sizes[{i}] is {sizes[i]}; blocks has rows of {p} bytes: give -{p} to {p}")


@op("blocks[n,p]:bytes sizes[n]:index -> packed[m]:bytes offsets[n]:index", structured=True, flops="0", shapes=_joined,
    check=_within)  # fmt: skip
def lz4_pack(blocks, sizes):
    """packed = the first |sizes[i]| bytes of each row of blocks, one after the other; offsets[i] = Σ_{j<i} |sizes[j]|.

    Shapes: the results of lz4_compress; packed has room for all of blocks, m = n · p, and is 0 behind the last byte.
    Edges: a size beyond ±p is a ParameterError that names it; a device clamps it to ±p.
    """
    _within(blocks, sizes)
    return joined(blocks, sizes)
