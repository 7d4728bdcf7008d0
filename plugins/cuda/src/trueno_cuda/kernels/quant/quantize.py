"""quantize_rows: blocks of 32 whose scale comes from their extremes, byte for byte as the core's encoders write them.

A warp makes a block, a lane holds an element.  Formats with a search are refused: their sums run from the first element
to the last, so a lane would have to do a whole group, and other backends do that well.  An importance matrix changes
nothing in q8_0 and mxfp4, and so those are quantized under one, too.

Floor: 4 bytes an element read, the bytes of the blocks written.
"""

from collections.abc import Callable
from functools import cache
from itertools import groupby
from typing import Any

import numpy as np
from trueno.backend import FORMATS, Call, Format, Kernel, Reject

from trueno_cuda.device.protocol import ArrayLaunch, Device
from trueno_cuda.kernels.operands import Plan, Shape, called
from trueno_cuda.kernels.source import build
from trueno_cuda.kernels.table import KERNELS, RATES
from trueno_cuda.ptx import Kernel as Built
from trueno_cuda.ptx import Value, f16, f32, ptr, s32, u8, u16, u32, u64
from trueno_cuda.ptx.builder import ParamType

WARPS = 8
THREADS = 32 * WARPS
ELEMENTS = 32
Coded = tuple[Value, dict[str, Value]]
"""A lane's code, and fields of the block as their bits."""


def _half(number: Value) -> Any:
    return number.to(f16).bits(u16).to(u32)


def _whole(k: Any, number: Value) -> Any:
    """Toward zero, as C on x86-64 does: what is no s32 becomes the least of them."""
    return k.select(abs(number) < 2147483648.0, number, -2147483648.0).to(s32, "rz")


def _inverse(k: Any, d: Value) -> Any:
    return k.select(d != 0.0, k.const(f32, 1.0) / d, 0.0)


def _first(k: Any, x: Value, where: Value) -> Any:
    """x of the first lane where that holds, in every lane."""
    return k.shuffle(x, "idx", k.clz(k.brev(k.vote("ballot", where))) & 31)


def _absmax(k: Any, f: Format, x: Value) -> Coded:
    """q8_0."""
    d = k.warp_max(abs(x)) / 127.0
    scaled = x * _inverse(k, d)
    whole = k.trunc(scaled)
    away = k.select(abs(scaled - whole) >= 0.5, k.const(f32, 1.0), 0.0)
    return _whole(k, whole + k.copysign(away, scaled)).bits(u32) & 0xFF, {f.d: _half(d)}


def _byte(k: Any, number: Value) -> Any:
    """Toward zero, the low byte of the result, signed."""
    return k.bfe(_whole(k, number), 0, 8)


def _symmetric(k: Any, f: Format, x: Value) -> Coded:
    """q4_0, q5_0: the element of largest magnitude gets code 0, which stands for -bias."""
    largest = k.warp_max(abs(x))
    signed = k.select(largest > 0.0, _first(k, x, abs(x) == largest), 0.0)
    d = signed / float(-f.bias)
    code = k.min(_byte(k, x * _inverse(k, d) + (f.bias + 0.5)), 2 * f.bias - 1)
    return code.bits(u32), {f.d: _half(d)}


def _affine(k: Any, f: Format, x: Value) -> Coded:
    """q4_1, q5_1: codes run from the block's least element to its greatest."""
    top = (1 << f.code_bits) - 1
    least, most = k.warp_min(x), k.warp_max(x)
    least, most = _first(k, x, x == least), _first(k, x, x == most)  # with the sign of the first of zeros
    d = (most - least) / float(top)
    code = k.min(_byte(k, (x - least) * _inverse(k, d) + 0.5), top)
    return code.bits(u32), {f.d: _half(d), f.m: _half(least)}


@cache
def early() -> list[tuple[int, int]]:
    """(power, units): from that power of two on, a float32 so many units before it has its float32 logarithm."""
    found = []
    for power in range(-149, 129):
        bits = int(np.float32(2.0**power).view(np.uint32)) if power < 128 else 0x7F800000
        below = np.arange(max(1, bits - 64), bits + 1, dtype=np.uint32)
        logs = np.log2(below.view(np.float32).astype(np.float64)).astype(np.float32)
        found.append((power, bits - int(below[np.argmax(logs >= power)])))
    return [next(group) for _, group in groupby(found, lambda pair: pair[1])]


def _shared_exponent(k: Any, f: Format, x: Value) -> Coded:
    """mxfp4: the scale is two powers below that of the largest magnitude; codes are the nearest, the first of ties."""
    bits = k.warp_max(abs(x)).bits(u32)
    small = bits < 0x00800000
    normal = ((bits >> 23).bits(s32) - 127, bits & 0x7FFFFF)
    shifted = k.select(small, bits, 1).to(f32).bits(u32)  # a subnormal number, as a whole one
    power = k.select(small, (shifted >> 23).bits(s32) - (127 + 149), normal[0])
    following = power + 1
    units = k.const(s32, 0)
    for start, count in early():
        units = k.select(following >= start, k.const(s32, count), units)
    next_bits = k.select(
        following >= -126, ((following + 127) << 23), k.shl(k.const(s32, 1), (k.max(following + 149, 0) & 31).bits(u32))
    )
    power = power + k.select(bits.bits(s32) + units >= next_bits, k.const(s32, 1), 0)
    e = k.select(bits == 0, k.const(s32, 0), power + 125).bits(u32) & 0xFF
    unit = k.select(e < 2, k.shl(k.const(u32, 0x00200000), e & 1), (e - 1) << 23).bits(f32)
    code, best = k.const(u32, 0), abs(float(f.values[0]) * unit - x)
    for i, value in enumerate(f.values[1:], 1):
        error = abs(float(value) * unit - x)
        better = error < best
        code, best = k.select(better, k.const(u32, i), code), k.select(better, error, best)
    return code, {f.d: e}


ENCODERS: dict[str, Callable[[Any, Format, Value], Coded]] = {
    "absmax": _absmax, "symmetric": _symmetric, "affine": _affine, "shared_exponent": _shared_exponent,
}  # fmt: skip
WEIGHTED = ("absmax", "shared_exponent")
"""Those that an importance matrix does not change."""


@cache
def quantizing(arch: str, name: str, weighted: bool) -> Built:
    """out = the blocks of x, one after the other.  Grid: WARPS of them each."""
    f = FORMATS[name]

    def body(k: Any, p: Any) -> None:
        block, lane = k.ctaid * WARPS + k.warp, k.lane
        live = block < p.count
        first = block.to(u64)
        x = p.x.load(first * ELEMENTS + lane.to(u64), where=live)
        code, fields = ENCODERS[f.encoder](k, f, x)
        out = p.out + first * f.nbytes

        def put(at: int, value: Value, count: int) -> None:
            """A byte of each of the first lanes."""
            out.store(lane + at, value & 0xFF, where=live & (lane < count))

        for field, bits in fields.items():
            spec = f.fields[field]
            put(spec.offset, bits >> (lane & 3) * 8, spec.nbytes)
        for plane in f.planes:
            spec = f.fields[plane.field]
            if plane.run == 1:
                put(spec.offset, k.vote("ballot", (code >> plane.to & 1) != 0) >> (lane & 3) * 8, spec.nbytes)
            elif plane.ways == 1:
                put(spec.offset, code, spec.nbytes)
            else:
                assert (plane.ways, plane.run) == (2, 16)
                low = code & 15
                put(spec.offset, low | k.shuffle(low, "xor", 16) << 4, spec.nbytes)

    params: dict[str, ParamType] = {
        "x": ptr(f32),
        **({"imatrix": ptr(f32)} if weighted else {}),
        "out": ptr(u8),
        "count": u32,
    }
    return build(f"quantize_{name}{'_weighted' * weighted}", arch, params, body, THREADS)


def _refusal(call: Call) -> Reject | None:
    f = FORMATS[dict(call.static)["format"]]
    known = WEIGHTED if call.op.name == "quantize_rows_weighted" else tuple(ENCODERS)
    return None if f.encoder in known else Reject("unsupported_op", f"{f.name}: its search runs on other backends")


@KERNELS.add("quantize_rows", "quantize_rows_weighted", rates=RATES, dtypes=("float32",), guarded=False,
             refusal=_refusal)  # fmt: skip
def quantize_rows(device: Device, call: Call) -> Kernel:
    """x[m,k] -> out[m,b] bytes of static["format"]; with imatrix[k] behind x where it is weighted."""
    f, weighted = FORMATS[dict(call.static)["format"]], call.op.name == "quantize_rows_weighted"

    def plan(x: Shape, *more: Any) -> Plan:
        *between, out, _ = more
        if len(x) != 2 or x[1] % f.elements or out != (x[0], f.row_bytes(x[1])) or between != [x[1:]] * weighted:
            return None
        count = x[0] * x[1] // f.elements
        if not count or count >= 1 << 31:
            return [] if not count else None
        grid = -(-count // WARPS)
        return [ArrayLaunch(device.prepare(quantizing(device.arch, f.name, weighted), (grid, 1, 1), (count,)))]

    return called(device, plan, False, 1 + weighted)
