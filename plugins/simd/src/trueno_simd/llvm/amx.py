"""AMX's tiles: eight registers of 16 rows of 64 bytes, and the product of two of them.

`HARDWARE` is the instructions themselves, LLVM's raw intrinsics with fixed tile numbers; `EMULATED` is functions
that keep the tiles in memory and give the same bits on every CPU, so that kernels over either are tested everywhere.
Both are called alike: `file` is what `reserve()` gave, and tile numbers are literals.

    configure(file), release(file)      begin and end a thread's use of the tiles
    zero(file, t), load(file, t, address, row), store(file, t, address, row)
    dot(file, c, a, b)                  c += a · b of bfloat16, a [16, 32], b [32, 16] in pairs of rows
    dot_bytes(file, c, a, b)            c += a · b of int8 in int32, a [16, 64], b [64, 16] in fours of rows

Intel's manual defines `dot` (TDPBF16PS): for each result, the products at even k are added by fused multiply-adds in
their order, so are those at odd k, then both sums, then c.  Subnormals are read and written as zeros, whatever MXCSR.
`dot_bytes` (TDPBSSD) is exact but for sums that wrap around.

Linux grants the tiles' state to a process that asks (`permitted`); the tiles hold nothing across a call of a function
that uses them, too, and a thread configures and releases them in each piece of work.
"""

import ctypes
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from trueno_simd.llvm import isa
from trueno_simd.llvm.jit import outer
from trueno_simd.llvm.vectors import Vector, bits, choose, filled, number_reader, reader, write

ROWS: Final = 16
ROW: Final = 64  # bytes
TILE: Final = ROWS * ROW
TILES: Final = 8

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
_I8, _I64 = ir.IntType(8), ir.IntType(64)


@dataclass(frozen=True, slots=True)
class Tiles:
    """One form of the instructions; the fields are functions for compiled code.

    name: for kernels compiled over this form.
    """

    name: str
    reserve: Any
    configure: Any
    release: Any
    zero: Any
    load: Any
    store: Any
    dot: Any
    dot_bytes: Any


@cache
def available(*more: str) -> bool:
    """Whether kernels of this process may use bfloat16 tiles: CPU, level, compiler and system agree.

    more: features that they need besides, as "amx-int8".
    """
    return isa.level() == "avx512" and isa.current().has("amx-tile", "amx-bf16", *more) and permitted()


@cache
def permitted() -> bool:
    """Whether the system grants the tiles' state, for this process and its children; asked once."""
    if not sys.platform.startswith("linux") or sys.maxsize < 1 << 32:
        return False
    try:
        return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0
    except (AttributeError, OSError):  # a C library without the function
        return False


# ---- the instructions


def _raw(builder: Any, name: str, arguments: list[Any]) -> None:
    """Call an instruction's function.  It has no attributes, so LLVM keeps the order of these calls and of memory."""
    kind = ir.FunctionType(ir.VoidType(), [a.type for a in arguments])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.{name}"), arguments)


def _number(kind: Any) -> Any:
    return ir.Constant(_I8, kind.literal_value)


def _on_tiles(name: str, count: int) -> Any:
    """An instruction on `count` tiles alone."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        _raw(builder, name, [_number(kind) for kind in signature.args[1:]])
        return context.get_dummy_value()

    def typed(*tiles: Any) -> Any:
        return (
            (types.void(types.intp, *tiles), code) if all(isinstance(t, types.IntegerLiteral) for t in tiles) else None
        )

    if count == 0:
        return intrinsic(lambda typing, file: typed())
    if count == 1:
        return intrinsic(lambda typing, file, t: typed(t))
    return intrinsic(lambda typing, file, c, a, b: typed(c, a, b))


def _moving(name: str) -> Any:
    """An instruction between a tile and memory."""

    @intrinsic
    def move(typing: Any, file: Any, t: Any, address: Any, row: Any) -> Any:
        if not isinstance(t, types.IntegerLiteral):
            return None

        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            pointer = builder.inttoptr(values[2], _I8.as_pointer())
            _raw(builder, name, [_number(signature.args[1]), pointer, values[3]])
            return context.get_dummy_value()

        return types.void(types.intp, t, types.intp, types.intp), code

    return move


@intrinsic
def _configure(typing: Any, file: Any) -> Any:
    """Every tile full: palette 1, 64 bytes and 16 rows each."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        layout = [1] + [0] * 15 + [ROW, 0] * TILES + [0] * 16 + [ROWS] * TILES + [0] * 8
        kind = ir.ArrayType(_I8, len(layout))
        place = cgutils.alloca_once(builder, kind)
        builder.store(ir.Constant(kind, layout), place)
        _raw(builder, "ldtilecfg", [builder.bitcast(place, _I8.as_pointer())])
        return context.get_dummy_value()

    return types.void(types.intp), code


@intrinsic
def _nowhere(typing: Any) -> Any:
    return types.intp(), lambda context, builder, signature, values: ir.Constant(_I64, 0)


HARDWARE: Final = Tiles(
    "amx", _nowhere, _configure, _on_tiles("tilerelease", 0), _on_tiles("tilezero", 1),
    _moving("tileloadd64"), _moving("tilestored64"), _on_tiles("tdpbf16ps", 3), _on_tiles("tdpbssd", 3),
)  # fmt: skip


# ---- the same in memory

_FLOATS, _WORDS = Vector(types.float32, ROW // 4), Vector(types.uint32, ROW // 4)
_row, _pairs, _pair = reader(_FLOATS), reader(_WORDS), number_reader(types.uint32)
_INTEGERS = Vector(types.int32, ROW // 4)
_integers, _integer, _every = reader(_INTEGERS), number_reader(types.int32), filled(_INTEGERS)
_all, _as_floats, _as_words = filled(_WORDS), bits(_FLOATS), bits(_WORDS)


@intrinsic
def _frame(typing: Any) -> Any:
    """Room for all tiles in the calling function's frame."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.ptrtoint(cgutils.alloca_once(builder, ir.ArrayType(_I8, TILES * TILE)), _I64)

    return types.intp(), code


@outer
def _nothing(file):
    return 0


@outer
def _zero(file, t):
    for i in range(0, TILE, ROW):
        write(file + t * TILE + i, _all(0))


@outer
def _load(file, t, address, row):
    for i in range(ROWS):
        write(file + t * TILE + i * ROW, _pairs(address + i * row))


@outer
def _store(file, t, address, row):
    for i in range(ROWS):
        write(address + i * row, _pairs(file + t * TILE + i * ROW))


@outer
def _normal(words):
    """The floats of these bits, a zero of the same sign for each subnormal."""
    return _as_floats(choose((words & 0x7FFFFFFF) < 0x00800000, words & 0x80000000, words))


@outer
def _dot(file, c, a, b):
    c, a, b = file + c * TILE, file + a * TILE, file + b * TILE
    for i in range(ROWS):
        even, odd = _as_floats(_all(0)), _as_floats(_all(0))
        for k in range(ROW // 4):
            left, right = _all(_pair(a + i * ROW + k * 4)), _pairs(b + k * ROW)
            even = _normal(_as_words(even + _normal(left << 16) * _normal(right << 16)))
            odd = _normal(_as_words(odd + _normal(left & 0xFFFF0000) * _normal(right & 0xFFFF0000)))
        total = _normal(_as_words(even + odd))
        result = _normal(_pairs(c + i * ROW)) + total
        write(c + i * ROW, _as_words(_normal(_as_words(result))))


@outer
def _dot_bytes(file, c, a, b):
    c, a, b = file + c * TILE, file + a * TILE, file + b * TILE
    for i in range(ROWS):
        total = _integers(c + i * ROW)
        for k in range(ROW // 4):
            left, right = _every(_integer(a + i * ROW + k * 4)), _integers(b + k * ROW)
            for shift in range(0, 32, 8):  # a byte comes to the upper bits, and down again with its sign
                total = total + (left << shift >> 24) * (right << shift >> 24)
        write(c + i * ROW, total)


EMULATED: Final = Tiles("emulated", _frame, _nothing, _nothing, _zero, _load, _store, _dot, _dot_bytes)
