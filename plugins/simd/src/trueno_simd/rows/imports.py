"""What a printed module imports: the functions and constants that its code may use."""

IMPORTS = """\
from numpy import inf, {dtype} as T

from numba import boolean, float64, int64, types

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.llvm.bits import absolute, ceil, copysign, floor, fma, narrow, rint, select, trunc
from trueno_simd.llvm.calls import acquire_gil, address_of, pack, release_gil, unpack
from trueno_simd.llvm.jit import {outer}
from trueno_simd.llvm.memory import apart, apart_or_same, load, pointer, stack, store
from trueno_simd.llvm.squares import square
from trueno_simd.rows.folds import (
    both, either, greatest, invert, join, joined, least, maximum, minimum, radd, rmul, smallest,
)
from trueno_simd.rows.schedule import FAR, PIECES, TILE, finiteness, row_spans, spans
from trueno_simd.rows.{dtype} import (
{functions},
)
from trueno_simd.rows.work import PIECE_NS
from trueno_simd.threads.pool import parallel_for

INF = T(inf)
BLOCK = {block}
RUN = {run}
PIECE = {piece}
SHORT_ROW = {short}
"""
