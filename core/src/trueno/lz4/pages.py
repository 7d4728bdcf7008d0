"""Compressed pages that stay where their array is: on the host, or on a device."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from trueno.dispatch.function import function
from trueno.dispatch.transfer import device_of, numpy, to, unwrap
from trueno.errors import DtypeError, LZ4Error, ShapeError
from trueno.lz4.incoming import on

PIECE = 4096
"""Bytes of which the memory of compact pages is a multiple, on a device."""


@dataclass(frozen=True)
class Pages:
    """Pages as `compress_pages` returns them.

    packed: the blocks, one behind the other; offsets and sizes: where each begins, and its bytes, negative for a raw
    page; all three live on one device.  page: bytes of each page.
    """

    packed: Any
    offsets: Any
    sizes: Any
    page: int

    def __len__(self) -> int:
        """The number of pages."""
        return int(self.sizes.shape[0])

    @property
    def length(self) -> int:
        """Bytes of all pages, decompressed."""
        return len(self) * self.page

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all blocks; of pages on a device, their sizes are copied to the host once."""
        return int(np.abs(numpy(self.sizes)).sum())

    def compact(self) -> "Pages":
        """The same pages in memory of just their size; on a device a copy, for which their sizes are known on the host.

        `compress_pages` does not wait for a device, so `packed` has room there for pages that do not become smaller.
        """
        there = device_of(self.packed)
        if there is None or self.packed.shape[0] - self.nbytes < PIECE:
            return self
        starts = np.arange(0, self.nbytes, PIECE, dtype=np.int64)
        sizes = -np.minimum(self.nbytes - starts, PIECE)  # raw pages: decompressing copies them
        pieces, _ = function("lz4_decompress")(self.packed, to(starts, there.name), to(sizes, there.name), page=PIECE)
        return Pages(pieces.reshape((len(starts) * PIECE,)), self.offsets, self.sizes, self.page)

    @property
    def ratio(self) -> float:
        """How many times smaller the blocks are than the pages; 1 for no pages."""
        return self.length / self.nbytes if self.nbytes else 1.0

    def __repr__(self) -> str:
        return f"<{len(self)} pages of {self.page} bytes, {self.nbytes} compressed>"


def compress_pages(x: Any, *, level: int = 1, backend: str | None = None) -> Pages:
    """The blocks of the pages x[n, page], on the device of x.

    x: a NumPy array, or one of a device (`trueno.to`), of uint8; a NumPy array of another dtype counts as the bytes of
    its rows.  level: as in `trueno.lz4_compress`.  backend: where to compute host arrays.  DtypeError, ShapeError.
    On a device `packed` has room for all of x: see `Pages.compact`.
    """
    x = unwrap(x)
    if device_of(x) is None:
        x = _rows(x)
    if len(x.shape) != 2:
        raise ShapeError(f"lz4.compress_pages: x has shape {tuple(x.shape)}; give pages [n, page]")
    with on(backend):
        blocks, sizes = function("lz4_compress")(x, level=level)
        packed, offsets = function("lz4_pack")(blocks, sizes)
    pages = Pages(packed, offsets, sizes, int(x.shape[1]))
    if isinstance(packed, np.ndarray):  # without the room that is left over
        return Pages(packed[: pages.nbytes].copy(), offsets, sizes, pages.page)
    return pages


def decompress_pages(pages: Pages, *, backend: str | None = None) -> Any:
    """The pages [n, page] of compressed ones, uint8, on their device; LZ4Error naming one that is malformed."""
    if not isinstance(pages, Pages):
        raise DtypeError(f"lz4.decompress_pages: pages is {type(pages).__name__}; give the result of compress_pages")
    with on(backend):
        y, lengths = function("lz4_decompress")(pages.packed, pages.offsets, pages.sizes, page=pages.page)
    found = numpy(lengths)
    wrong = np.flatnonzero(found != pages.page)
    if len(wrong):
        i, length = int(wrong[0]), int(found[wrong[0]])
        problem = f"is malformed at byte {-1 - length} of its block" if length < 0 else f"has {length} bytes"
        raise LZ4Error(f"lz4.decompress_pages: page {i} {problem}, and pages have {pages.page}")
    return y


def _rows(x: Any) -> Any:
    """An array's rows as bytes; DtypeError for what is not an array of numbers."""
    if not isinstance(x, np.ndarray) or isinstance(x, np.ma.MaskedArray) or x.dtype.hasobject:
        what = x.dtype if type(x) is np.ndarray else type(x).__name__
        raise DtypeError(f"lz4.compress_pages: x is {what}; give a NumPy array of numbers, or an array of a device")
    if x.ndim != 2 or x.dtype == np.uint8:
        return x
    return np.ascontiguousarray(x).view(np.uint8)
