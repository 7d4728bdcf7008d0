"""Interleaved rows of blocks: the same bytes in another order, so that the lanes of a vector are rows.

Each ROWS rows become one run of blocks.  In the block of such a group the fields follow each other as in the format,
each ROWS times as long, and a field is stored row by row in units of a few bytes: unit 0 of every row, then unit 1 of
every row.  Codes have units of four bytes, which is what one instruction multiplies and adds in a lane; scales and
offsets of a block are integers of two bytes or so, and everything else has units of one byte.  Rows that do not fill
a group stay plain, at the end.

A product then needs no sum across lanes and no shuffles of scales, and loads the other operand only once for
ROWS rows.  Nothing is lost: `plain` gives the file's bytes back.  Because the place of a byte depends on the number of
rows, a matrix is interleaved as a whole, and a part of it is meaningful only if it starts at a group.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from trueno.formats.table import ROWS, Format

Bytes = npt.NDArray[np.uint8]


def units(f: Format) -> Iterator[tuple[int, int, int]]:
    """The fields of a block: where each begins, its bytes, and how many of them go together."""
    codes = {plane.field for plane in f.planes}
    for name, spec in f.fields.items():
        whole = np.dtype(spec.dtype).itemsize if name in (f.d, f.m) else 1
        yield spec.offset, spec.nbytes, 4 if name in codes else whole


def order(f: Format) -> npt.NDArray[np.intp]:
    """For each byte of a group's block, its source in ROWS blocks, one per row: row · nbytes + byte."""
    at = np.arange(ROWS * f.nbytes).reshape(ROWS, f.nbytes)
    parts = [at[:, o : o + n].reshape(ROWS, -1, u).swapaxes(0, 1).ravel() for o, n, u in sorted(units(f))]
    return np.concatenate(parts)


def interleaved(w: Bytes, f: Format) -> Bytes:
    """Plain rows w[n, row_bytes] with each ROWS of them interleaved; f: their format, or its interleaved one.

    ShapeError if a row is not a whole number of blocks.
    """
    return _moved(w, f, back=False)


def plain(w: Bytes, f: Format) -> Bytes:
    """The inverse of `interleaved`."""
    return _moved(w, f, back=True)


def _moved(w: Bytes, f: Format, *, back: bool) -> Bytes:
    """Copy field by field: in units of a few bytes it is several times faster than by an index of every byte."""
    n, b = w.shape
    blocks, groups = f.row_elements(b) // f.elements, n // ROWS
    w, out = np.ascontiguousarray(w), np.empty((n, b), np.uint8)
    whole = groups * ROWS
    out[whole:] = w[whole:]
    rows = (out if back else w)[:whole].reshape(groups, ROWS, blocks, f.nbytes)
    runs = (w if back else out)[:whole].reshape(groups, blocks, ROWS * f.nbytes)
    for o, size, unit in units(f):
        one = rows[..., o : o + size].view(f"u{unit}").transpose(0, 2, 3, 1)
        all_ = runs[..., ROWS * o : ROWS * (o + size)].view(f"u{unit}").reshape(one.shape)
        if back:
            one[...] = all_
        else:
            all_[...] = one
    return out
