"""The last step of every encoder: codes and scales into a block's bytes, as the table's planes and pieces say.

Codes come as one byte each in the order of the elements, scales and mins as one int32 each, with the format's bias.
"""

from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from trueno.backend import FORMATS, Format, Plane
from trueno.errors import KernelError

from trueno_simd.kernels.operands import reader
from trueno_simd.llvm.jit import exact

STEP = 16
_I8, _I16, _I32, _I64 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64)
_BYTES = ir.VectorType(_I8, STEP)


def whole_vectors(f: Format) -> None:
    """Refuse a format in which sixteen neighbouring codes do not lie together: vectors would pass a block's end."""
    for plane in f.planes:
        if plane.run % STEP and (plane.run, plane.bits) != (1, 1):
            raise KernelError(
                f"{f.name}: vectors take planes whose run is a multiple of {STEP}, or single bits one by one, and "
                f"{plane.field} has {plane.bits} bits at a run of {plane.run}; other backends take the format"
            )


def room(nbytes: int) -> Any:
    """A function for compiled code: the address of `nbytes` bytes in the calling function's frame."""

    @intrinsic
    def reserve(_: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            with builder.goto_entry_block():
                slot = cgutils.alloca_once(builder, _I8, size=nbytes)
                slot.align = 64
            return builder.ptrtoint(slot, _I64)

        return types.intp(), emit

    return reserve


def _at(builder: Any, address: Any, offset: int, kind: Any) -> Any:
    return builder.inttoptr(builder.add(address, ir.Constant(_I64, offset)), kind.as_pointer())


def _every(value: int) -> Any:
    return ir.Constant(_BYTES, [value] * STEP)


def _plane(builder: Any, f: Format, plane: Plane, codes: Any, block: Any) -> None:
    """One plane's bytes, from the elements that share them."""
    start = f.fields[plane.field].offset

    def load(e: int) -> Any:
        return builder.load(_at(builder, codes, e, _BYTES), align=STEP)

    if plane.run == 1:
        for e in range(0, f.elements, STEP):
            bit = builder.and_(load(e), _every(1 << plane.to))
            mask = builder.bitcast(builder.icmp_unsigned("!=", bit, _every(0)), _I16)
            builder.store(mask, _at(builder, block, start + e // 8, _I16), align=1)
        return
    for chunk in range(0, f.elements, plane.run * plane.ways):
        for r in range(0, plane.run, STEP):
            packed = None
            for way in range(plane.ways):
                part, shift = load(chunk + way * plane.run + r), way * plane.bits
                if plane.bits < 8:
                    part = builder.and_(part, _every(((1 << plane.bits) - 1) << plane.to))
                if shift > plane.to:
                    part = builder.shl(part, _every(shift - plane.to))
                elif shift < plane.to:
                    part = builder.lshr(part, _every(plane.to - shift))
                packed = part if packed is None else builder.or_(packed, part)
            builder.store(packed, _at(builder, block, start + chunk // plane.ways + r, _BYTES), align=1)


def _pieces(builder: Any, f: Format, scales: Any, mins: Any, block: Any) -> None:
    """The bytes that hold scales and mins: of each, all its bits at once."""
    by_target: dict[int, Any] = {}
    for groups, numbers in ((f.scales, scales), (f.mins, mins)):
        for g, parts in enumerate(groups):
            value = builder.load(_at(builder, numbers, 4 * g, _I32), align=4)
            for p in parts:
                part = builder.lshr(value, _I32(p.to)) if p.to else value
                part = builder.shl(builder.and_(part, _I32((1 << p.bits) - 1)), _I32(p.shift))
                by_target[p.byte] = builder.or_(by_target[p.byte], part) if p.byte in by_target else part
    for byte, value in by_target.items():
        builder.store(builder.trunc(value, _I8), _at(builder, block, byte, _I8))


@intrinsic
def compact(_: Any) -> Any:
    """Tell LLVM that the function around this is not to be unrolled.

    Each function is optimized again in each that calls it, and each time its loops would grow fourfold.
    """

    def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        builder.function.attributes.add("optsize")
        return context.get_dummy_value()

    return types.void(), emit


_JOB = reader(6)


@exact
def job(args, index):
    """What a piece of a region encodes: x, imatrix, w, k, and blocks from the first to before the last."""
    x, imatrix, w, k, count, share = _JOB(args)
    return x, imatrix, w, k, index * share, min((index + 1) * share, count)


@cache
def codes_of(format: str) -> Any:
    """For compiled code: (codes, block), the planes of one block; `codes` lies on a multiple of 16."""
    f = FORMATS[format]
    whole_vectors(f)

    @intrinsic
    def put(_: Any, codes: Any, block: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            for plane in f.planes:
                _plane(builder, f, plane, *values)
            return context.get_dummy_value()

        return types.void(types.intp, types.intp), emit

    return put


@cache
def scales_of(format: str) -> Any:
    """For compiled code: (scales, mins, block), the whole-number scales and mins of one block."""
    f = FORMATS[format]

    @intrinsic
    def put(_: Any, scales: Any, mins: Any, block: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            _pieces(builder, f, *values)
            return context.get_dummy_value()

        return types.void(types.intp, types.intp, types.intp), emit

    return put
