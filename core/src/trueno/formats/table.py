"""The table of block formats: ggml's layouts as data, from which everything else is derived.

A block holds `elements` numbers in `nbytes` bytes.  Element e has a *code* of a few bits, gathered from *planes* of the
block; the code determines the value; and its group of elements has a scale, and in some formats an offset:

    y[e] = (d · scale[e // group]) · value(code[e]) + offset,    offset = m  or  −(dmin · min[e // group])

Each product fits into the 24 bits of a float32, so any order of multiplication gives the same bits; the one rounding is
that of the final addition.  NumPy's decoder (`decode.py`), and the printers and kernels of plugins, read this table;
no layout is written down twice.  Source: ggml-common.h and ggml-quants.c of llama.cpp (MIT), as facts.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from trueno.errors import ParameterError, ShapeError, suggestion


@dataclass(frozen=True, slots=True)
class Field:
    """Bytes of a block: `count` items of the NumPy dtype `dtype`, from `offset` on."""

    offset: int
    dtype: str
    count: int = 1

    @property
    def nbytes(self) -> int:
        return self.count * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class Plane:
    """`bits` of every element's code, packed in one field; they go to bit `to` of the code.

    A byte holds `ways` = 8 / bits of them, for elements `run` apart: element e = (c · ways + w) · run + r
    has bits w · bits … of byte c · run + r.  So `run` neighbouring elements are in neighbouring bytes, at one shift.
    """

    field: str
    bits: int
    run: int
    to: int = 0

    @property
    def ways(self) -> int:
        return 8 // self.bits


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bits of a group's scale or min: `bits` of the block's byte `byte` from `shift` on go to bit `to`."""

    byte: int
    shift: int
    bits: int
    to: int = 0


Pieces = tuple[tuple[Piece, ...], ...]
"""The pieces of each group's scale, or min."""


class Search(NamedTuple):
    """The inverse scales (nmax + first + step · i) / (max − min), i = 0 … last, that an encoder tries for a group.

    absolute: the best has the least absolute error, each element weighted by its magnitude; else the least squared one.
    """

    first: float
    step: float
    last: int
    absolute: bool = False


WEIGHTED = Search(-0.9, 0.05, 36)
"""With an importance matrix all formats are searched alike."""


@dataclass(frozen=True)
class Format:
    """One block format.

    type_id: ggml's number, -1 where it has none.  fields: name to `Field`.  d: the field of the block's scale, float16,
    float32, or (`e8m0`) a power of two, 2^(d − 128).  values: what codes stand for; else value = code − bias, or code
    as int8 if `signed`.
    scales, mins: pieces of each group's; without scales the group is the block.  A scale is its bits − scale_bias, or
    int8.  m: the field of the offset (dmin, where there are mins).
    activations: the format to which ggml quantizes the operand that multiplies the matrix.  fallback: the format that
    llama.cpp uses for rows that are not a multiple of a block.  weights: whether matrices are stored in it.
    plain: for a format with rows interleaved, the format of the rows; otherwise "".  Fields, planes, pieces: of a row.

    How ggml encodes: encoder names the algorithm (`encoders.ENCODERS`; plugins have their own under the same names).
    search, weighted_search: the candidates for a scale and a min, without and with an importance matrix.
    mean_squares: how often the mean of squares counts beside an element's square, under an importance matrix.
    capped: whether a group's scale or min that is too wide for its bits is cut, without and with an importance matrix;
    otherwise its upper bits run into the number that shares its byte.
    """

    name: str
    type_id: int
    elements: int
    nbytes: int
    fields: dict[str, Field]
    planes: tuple[Plane, ...]
    activations: str = ""
    values: tuple[int, ...] = ()
    bias: int = 0
    signed: bool = False
    d: str = "d"
    e8m0: bool = False
    m: str = ""
    group: int = 0
    scales: Pieces = ()
    scale_bias: int = 0
    scale_signed: bool = False
    mins: Pieces = ()
    fallback: str = ""
    weights: bool = True
    plain: str = ""
    encoder: str = ""
    search: Search | None = None
    weighted_search: Search = WEIGHTED
    mean_squares: int = 2
    capped: tuple[bool, bool] = (False, False)

    @property
    def groups(self) -> int:
        """Groups per block."""
        return self.elements // self.group if self.group else 1

    @property
    def bits(self) -> float:
        """Bits per element, scales included."""
        return 8 * self.nbytes / self.elements

    @cached_property
    def code_bits(self) -> int:
        return max(p.to + p.bits for p in self.planes)

    @property
    def cells(self) -> bool:
        """Whether an element is one float, of its own bytes: a dtype, and no block."""
        return not self.planes

    def row_bytes(self, k: int) -> int:
        """Bytes of a row of k elements; ShapeError if k is not a multiple of a block."""
        if k % self.elements:
            raise ShapeError(
                f"{self.name}: a row of {k} elements is not a whole number of blocks of {self.elements}"
                + (
                    f"; {self.fallback}, whose blocks are smaller, would fit"
                    if self._fits(k)
                    else "; nothing is padded"
                )
            )
        return k // self.elements * self.nbytes

    def _fits(self, k: int) -> bool:
        return bool(self.fallback) and k % FORMATS[self.fallback].elements == 0

    def row_elements(self, nbytes: int) -> int:
        """Elements of a row of `nbytes` bytes; ShapeError if that is not a whole number of blocks."""
        if nbytes % self.nbytes:
            raise ShapeError(
                f"{self.name}: a row of {nbytes} bytes is not a whole number of blocks of {self.nbytes} bytes"
            )
        return nbytes // self.nbytes * self.elements


FORMATS: dict[str, Format] = {}
"""Every format by its name in lower case."""


def format_of(name: str, who: str = "format", *, weights: bool = False, cache: bool = False) -> Format:
    """The format called `name`, upper or lower case, interleaved ones too; else ParameterError with a suggestion.

    weights: accept only formats in which matrices are stored.  cache: also floats (`CELLS`), as caches hold them.
    """
    match = None
    if isinstance(name, str):
        match = (
            FORMATS.get(name.lower()) or INTERLEAVED.get(name.lower()) or (CELLS.get(name.lower()) if cache else None)
        )
    if match is None or (weights and not match.weights):
        known = [n for n, f in FORMATS.items() if f.weights or not weights]
        near = suggestion(name.lower(), (*known, *INTERLEAVED)) if isinstance(name, str) and match is None else ""
        what = "holds activations, not matrices" if match else "is not a block format"
        raise ParameterError(f"{who}: {name!r} {what}{near}; known: {', '.join(known)}")
    return match


def _fields(*items: tuple[str, str, int]) -> dict[str, Field]:
    """Fields one after another: (name, dtype, count)."""
    fields, offset = {}, 0
    for name, dtype, count in items:
        fields[name] = Field(offset, dtype, count)
        offset += fields[name].nbytes
    return fields


def _add(
    name: str, type_id: int, elements: int, nbytes: int, fields: dict[str, Field], *planes: Plane, **more: Any
) -> None:
    entry = Format(name, type_id, elements, nbytes, fields, planes, **more)
    assert max(f.offset + f.nbytes for f in fields.values()) == nbytes
    FORMATS[name] = entry


NIBBLES = Plane("qs", 4, run=16)
FIFTH = Plane("qh", 1, run=1, to=4)
E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)  # doubled
IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)

_add("q4_0", 2, 32, 18, _fields(("d", "<f2", 1), ("qs", "u1", 16)), NIBBLES, bias=8, activations="q8_0",
     encoder="symmetric")  # fmt: skip
_add("q4_1", 3, 32, 20, _fields(("d", "<f2", 1), ("m", "<f2", 1), ("qs", "u1", 16)), NIBBLES, m="m",
     activations="q8_1", encoder="affine")  # fmt: skip
_add("q5_0", 6, 32, 22, _fields(("d", "<f2", 1), ("qh", "u1", 4), ("qs", "u1", 16)), NIBBLES, FIFTH, bias=16,
     activations="q8_0", encoder="symmetric")  # fmt: skip
_add("q5_1", 7, 32, 24, _fields(("d", "<f2", 1), ("m", "<f2", 1), ("qh", "u1", 4), ("qs", "u1", 16)), NIBBLES, FIFTH,
     m="m", activations="q8_1", encoder="affine")  # fmt: skip
_add("q8_0", 8, 32, 34, _fields(("d", "<f2", 1), ("qs", "i1", 32)), Plane("qs", 8, run=32), signed=True,
     activations="q8_0", encoder="absmax")  # fmt: skip
_add("q8_1", 9, 32, 36, _fields(("d", "<f2", 1), ("s", "<f2", 1), ("qs", "i1", 32)), Plane("qs", 8, run=32),
     signed=True, weights=False, encoder="absmax")  # fmt: skip

_add("q2_k", 10, 256, 84, _fields(("scales", "u1", 16), ("qs", "u1", 64), ("d", "<f2", 1), ("dmin", "<f2", 1)),
     Plane("qs", 2, run=32), m="dmin", group=16, scales=tuple((Piece(i, 0, 4),) for i in range(16)),
     mins=tuple((Piece(i, 4, 4),) for i in range(16)), activations="q8_k", fallback="q4_0",
     encoder="scale_and_min", search=Search(-0.5, 0.1, 15, absolute=True), mean_squares=1)  # fmt: skip
_add("q3_k", 11, 256, 110, _fields(("hmask", "u1", 32), ("qs", "u1", 64), ("scales", "u1", 12), ("d", "<f2", 1)),
     Plane("qs", 2, run=32), Plane("hmask", 1, run=32, to=2), bias=4, group=16, scale_bias=32,
     scales=tuple((Piece(96 + i % 8, 4 * (i // 8), 4), Piece(104 + i % 4, 2 * (i // 4), 2, 4)) for i in range(16)),
     activations="q8_k", fallback="q4_0", encoder="descent")  # fmt: skip

_SIX_BIT = tuple(  # the 12 bytes that hold eight scales and eight mins, for formats that have them at byte 4
    tuple(
        (Piece(base + j, 0, 6),) if j < 4 else (Piece(12 + j - 4, nibble, 4), Piece(base + j - 4, 6, 2, 4))
        for j in range(8)
    )
    for base, nibble in ((4, 0), (8, 4))
)
_add("q4_k", 12, 256, 144, _fields(("d", "<f2", 1), ("dmin", "<f2", 1), ("scales", "u1", 12), ("qs", "u1", 128)),
     Plane("qs", 4, run=32), m="dmin", group=32, scales=_SIX_BIT[0], mins=_SIX_BIT[1],
     activations="q8_k", fallback="q5_0",
     encoder="scale_and_min", search=Search(-1.0, 0.1, 20), capped=(True, False))  # fmt: skip
_add("q5_k", 13, 256, 176,
     _fields(("d", "<f2", 1), ("dmin", "<f2", 1), ("scales", "u1", 12), ("qh", "u1", 32), ("qs", "u1", 128)),
     Plane("qs", 4, run=32), Plane("qh", 1, run=32, to=4), m="dmin", group=32, scales=_SIX_BIT[0], mins=_SIX_BIT[1],
     activations="q8_k", fallback="q5_1",
     encoder="scale_and_min", search=Search(-0.5, 0.1, 15), capped=(True, True))  # fmt: skip
_add("q6_k", 14, 256, 210, _fields(("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2", 1)),
     Plane("ql", 4, run=64), Plane("qh", 2, run=32, to=4), bias=32, group=16, scale_signed=True,
     scales=tuple((Piece(192 + i, 0, 8),) for i in range(16)), activations="q8_k", fallback="q8_0",
     encoder="signed_scale")  # fmt: skip
_add("q8_k", 15, 256, 292, _fields(("d", "<f4", 1), ("qs", "i1", 256), ("bsums", "<i2", 16)), Plane("qs", 8, run=256),
     signed=True, weights=False, encoder="signed_absmax")  # fmt: skip

_add("iq4_nl", 20, 32, 18, _fields(("d", "<f2", 1), ("qs", "u1", 16)), NIBBLES, values=IQ4, activations="q8_0",
     encoder="codebook")  # fmt: skip
_add("iq4_xs", 23, 256, 136,
     _fields(("d", "<f2", 1), ("scales_h", "<u2", 1), ("scales_l", "u1", 4), ("qs", "u1", 128)),
     Plane("qs", 4, run=16), values=IQ4, group=32, scale_bias=32,
     scales=tuple((Piece(4 + i // 2, 4 * (i % 2), 4), Piece(2 + i // 4, 2 * (i % 4), 2, 4)) for i in range(8)),
     activations="q8_k", fallback="iq4_nl", encoder="grouped_codebook")  # fmt: skip
_add("mxfp4", 39, 32, 17, _fields(("d", "u1", 1), ("qs", "u1", 16)), NIBBLES, values=E2M1, e8m0=True,
     activations="q8_0", encoder="shared_exponent")  # fmt: skip

CELLS: dict[str, Format] = {
    name: Format(name, type_id, 1, nbytes, _fields(("d", dtype, 1)), ())
    for name, type_id, nbytes, dtype in (("f32", 0, 4, "<f4"), ("f16", 1, 2, "<f2"), ("bf16", 30, 2, "<u2"))
}
"""Floats as formats of one element, for caches; they are not in FORMATS, for a matrix of floats is an array."""
CACHES = (*CELLS, "q8_0")
"""The formats of caches of keys and values."""


def cache_row_bytes(name: str, n: int) -> int:
    """Bytes of a row of n numbers in the format of caches called `name`; -1 for a part of a block."""
    f = CELLS.get(name) or FORMATS[name]
    return n // f.elements * f.nbytes if n % f.elements == 0 else -1


WEIGHTS = tuple(name for name, f in FORMATS.items() if f.weights)
"""Formats of matrices, in ggml's order of numbers."""
ACTIVATIONS = tuple(name for name in FORMATS if any(f.activations == name for f in FORMATS.values()))
"""Formats to which the other operand of a product is quantized."""

ROWS = 16
"""The rows of a group: as many as a vector of 512 bits has 32-bit numbers."""
INTERLEAVED: dict[str, Format] = {
    f"{name}_r{ROWS}": replace(FORMATS[name], name=f"{name}_r{ROWS}", type_id=-1, plain=name) for name in WEIGHTS
}
"""Every format of matrices with ROWS rows interleaved, by its name (`trueno.formats.interleave`).

They are not in FORMATS: files cannot hold them, and no caller iterates over them.
"""
