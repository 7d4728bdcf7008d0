"""Blocks to float32, or to bfloat16 for tensor cores: whole matrices, and rows that indices name.

A thread decodes a unit of a block (see `blocks`): 16 to 64 elements, whose scales it reads once.  float32 is ggml's to
the bit: a value times its scale fits into 24 bits, so the one rounding is that of the addition, fused or not.

Floor: the bytes of the blocks that are named, read, and 4 or 2 bytes an element, written.
"""

from collections.abc import Sequence
from functools import cache
from math import nan, prod
from typing import Any

import numpy as np
from ml_dtypes import bfloat16
from trueno.backend import COLUMN, FORMATS, Call, Format, Reject, decode, encode, unit_shape
from trueno.backend import Kernel as Called

from trueno_cuda.catalogue.entry import GUARDED, CatalogueEntry, Constant, Sample, Want
from trueno_cuda.device.protocol import ArrayLaunch, Device
from trueno_cuda.kernels.operands import Plan, Shape, called
from trueno_cuda.kernels.quant.blocks import Blocks, access_of
from trueno_cuda.kernels.source import build
from trueno_cuda.kernels.store import Finish, Store
from trueno_cuda.kernels.table import KERNELS, RATES
from trueno_cuda.ptx import TARGETS, Kernel, Type, Value, bf16, bf16x2, f32, ptr, u8, u32, u64

THREADS = 256
WARPS = THREADS // 32
MOST = 1 << 30
"""Elements that one launch writes: indices stay well inside of u32, and more take several launches."""


def refusal(call: Call) -> Reject | None:
    """Files' own order of rows is read alone: on a GPU there is nothing to gain from another."""
    name = dict(call.static)["format"]
    if name in FORMATS:
        return None
    return Reject("unsupported_op", f"{name}: rows are read as files hold them; q.plain() puts them back")


def decoded(k: Any, w: Blocks, raws: Any, head: Any, e: Any, way: int) -> list[Value]:
    """The sixteen numbers of a column, in float32."""
    g = w.group(e, way)
    scale, added = w.factor(head, g), w.offset(head, g)
    values = [v for word in w.codes(raws, e, way) for v in w.floats(word)]
    return [v * scale if added is None else k.fma(v, scale, added) for v in values]


class Writer:
    """Stores of what each lane decoded of its unit: `put` for a column at a time, of which whole warps take part.

    A lane has 16 neighbours, and a store of 16 bytes a lane would fill a part of each sector; so lanes exchange them in
    shared memory, until neighbours have what lies side by side.  Pieces of 16 bytes lie there in an order in which
    neither side meets the same bank twice.  wide: out begins at a multiple of 16 bytes; else each lane stores its own.
    at: of the first element of this lane's unit; live: whether it has one.
    """

    def __init__(self, k: Any, out: Any, wide: bool, at: Value, live: Value) -> None:
        self.k, self.out, self.wide, self.at, self.live = k, out, wide, at, live
        self.bf16 = out.element is bf16
        if wide:
            self.pieces = COLUMN * out.element.bytes // 16
            self.room = k.shared(u32, WARPS * 32 * self.pieces * 4, per="warp")
            owners = [k.lane // self.pieces + turn * (32 // self.pieces) for turn in range(self.pieces)]
            self.owned = [k.multiple_of(k.shuffle(at, "idx", o), COLUMN) for o in owners]
            alive = k.vote("ballot", live)
            self.alive = [(alive >> o & 1) != 0 for o in owners]

    def _place(self, piece: Any) -> Any:
        """Of a piece, in words."""
        return self.k.multiple_of((piece ^ (piece >> 3 & self.pieces - 1)) * 4, 4)

    def put(self, numbers: Sequence[Value], *offsets: Any) -> None:
        """Store sixteen numbers so many elements behind `at`: in each of some places."""
        k, out, each = self.k, self.out, 16 // self.out.element.bytes
        if not self.wide:
            for offset in offsets:
                for i, y in enumerate(numbers):
                    out.store(self.at + offset + i, y.to(bf16) if self.bf16 else y, where=self.live)
            return
        words = (
            [k.pack(bf16x2, *numbers[i : i + 2]).bits(u32) for i in range(0, COLUMN, 2)]
            if self.bf16
            else [y.bits(u32) for y in numbers]
        )
        room, lane = self.room, k.lane
        base = k.warp * (32 * self.pieces * 4)
        for i in range(self.pieces):
            room.store(base + self._place(lane * self.pieces + i), words[4 * i : 4 * i + 4])
        k.sync_warp()
        inside = lane % self.pieces * each
        for turn in range(self.pieces):
            mine = room.load(base + self._place(lane + 32 * turn), vec=4)
            for offset in offsets:
                (out + (self.owned[turn] + offset + inside)).cast(u32).store(0, mine, where=self.alive[turn])
        k.sync_warp()


def in_parts(k: Any, number: Value) -> list[Value]:
    """A float32 as the sum of three that bfloat16 holds: the highest 8 of its 24 bits, the next and the last."""
    parts = []
    for _ in range(2):
        part = (number.bits(u32) & 0xFFFF0000).bits(f32)
        parts.append(part)
        number = number - part
    return [*parts, number]


@cache
def decoding(
    arch: str, name: str, result: Type, access: int, wide: bool, chosen: bool, store: Store, slots: tuple[int, ...] = ()
) -> Kernel:
    """out[r, :] = the numbers of row r of w, or, where `chosen`, of row i[r]; NaN for a row that w does not have.

    access: see `blocks`.  wide: out begins at a multiple of 16 bytes.  slots: for each of them, out has the part of the
    numbers with that index (see `in_parts`), `stride` elements further on, in rows that are `pitch` elements apart, of
    the first `across` of `all` blocks of a row.  Grid: THREADS units each.
    """
    f, s = FORMATS[name], unit_shape(name)

    def body(k: Any, p: Any) -> None:
        finish = Finish(k, p, store)
        w = Blocks(k, f, p.w, access)
        pitch, stride = (k.multiple_of(n, 32) for n in (p.pitch, p.stride)) if slots else (0, 0)
        number = k.ctaid * THREADS + k.tid
        live = number < p.units
        number = k.min(number, p.units - 1)
        unit, block = number % s.units, number // s.units
        inside, place, line = None, block, w.line(k.const(u64, 0))
        e = w.first(unit)
        at = block * f.elements + e
        if slots:
            row, within = block // p.across, block % p.across
            place, at = row * p.all + within, row * pitch + within * f.elements + e
        if chosen:
            row, place = block // p.across, block % p.across
            index = p.i.load(row)
            inside = index < p.v  # as an unsigned number, which a negative one exceeds
            line = w.line(k.select(inside, index, 0) * (p.across.to(u64) * f.nbytes))
        here, writer = line.block(place), Writer(k, p.out, wide, at, live)
        raws, head = w.raws(here, e), w.head(here)
        for way in range(s.ways):
            numbers = decoded(k, w, raws, head, e, way)
            if inside is not None:
                numbers = [k.select(inside, y, nan) for y in numbers]
            if not slots:
                writer.put(finish(numbers, at, block, at, live), way * s.run)
                continue
            for part, some in enumerate(zip(*(in_parts(k, y) for y in numbers), strict=True)):
                writer.put(some, *(stride * slot + way * s.run for slot, own in enumerate(slots) if own == part))
        finish.end()

    word = "quant_lookup" if chosen else "dequantize_parts" if slots else "dequantize"
    words = f"{word}_{name}_{result}_a{access}{'_w' * wide}{store.word}"
    params = {
        "w": ptr(u8), **({"i": ptr(u64)} if chosen else {}), "out": ptr(result), **store.pointers(result),
        "units": u32, **({"across": u32, "v": u64} if chosen else {}),
        **({"across": u32, "all": u32, "pitch": u32, "stride": u32} if slots else {}),
    }  # fmt: skip
    return build(words, arch, params, body, THREADS)


def launches(
    device: Device, f: Format, rows: int, k: int, result: Type, wide: bool, *, v: int | None = None,
    guarded: bool = False,
) -> list[ArrayLaunch]:  # fmt: skip
    """Launches that decode `rows` rows of k elements: all of them, or those that indices name among `v` of them.

    Pointers: the blocks, the indices if there are any, the result.  wide: all of them are multiples of 16 bytes.
    """
    across, row_bytes = k // f.elements, f.row_bytes(k)
    if not rows * across:
        return []
    access = access_of(f, 0, (rows if v is None else v) * row_bytes) if wide else 1
    kernel = decoding(device.arch, f.name, result, access, wide, v is not None, Store(guarded))
    step, made = max(MOST // k // 16 * 16, 1), []  # so that every part begins at a multiple of 16 bytes
    for first in range(0, rows, step):
        units, to = min(step, rows - first) * across * unit_shape(f.name).units, first * k * result.bytes
        numbers = (units,) if v is None else (units, across, v)
        offsets = (first * row_bytes, to) if v is None else (0, first * 8, to)
        launch = device.prepare(kernel, (-(-units // THREADS), 1, 1), numbers)
        made.append(ArrayLaunch(launch, offsets if first else ()))
    return made


def parted(
    device: Device, f: Format, rows: int, k: int, whole: int, wide: bool, slots: tuple[int, ...], pitch: int,
    stride: int,
) -> ArrayLaunch:  # fmt: skip
    """The launch that decodes k elements of rows of `whole` to parts in bfloat16, MOST in all at most.

    Pointers: blocks, result.  wide: the blocks begin at a multiple of 16 bytes; the result does in any case.
    """
    access = access_of(f, 0, rows * f.row_bytes(whole)) if wide else 1
    kernel = decoding(device.arch, f.name, bf16, access, True, False, Store(), slots)
    across = k // f.elements
    units = rows * across * unit_shape(f.name).units
    return ArrayLaunch(
        device.prepare(kernel, (-(-units // THREADS), 1, 1), (units, across, whole // f.elements, pitch, stride))
    )


@KERNELS.add("dequantize", rates=RATES, dtypes=("float32",), refusal=refusal)
def dequantize(device: Device, call: Call) -> Called:
    """w[m,b] bytes of static["format"] -> out[m,k]."""
    f, guarded = FORMATS[dict(call.static)["format"]], call.guarded

    def plan(w: Shape, out: Shape, wide: bool) -> Plan:
        if len(w) != 2 or w[1] % f.nbytes or out != (w[0], f.row_elements(w[1])):
            return None
        return launches(device, f, *out, f32, wide, guarded=guarded)

    return called(device, plan, guarded, 1)


@KERNELS.add("quant_embedding_lookup", rates=RATES, dtypes=("float32",), refusal=refusal)
def quant_embedding_lookup(device: Device, call: Call) -> Called:
    """w[v,b] bytes of static["format"], i[...] -> out[...,d]; NaN for an index outside, which reads nothing of w."""
    f, guarded = FORMATS[dict(call.static)["format"]], call.guarded

    def plan(w: Shape, i: Shape, out: Shape, wide: bool) -> Plan:
        if len(w) != 2 or w[1] % f.nbytes or out != (*i, f.row_elements(w[1])) or (w[0] == 0 and 0 not in out):
            return None
        return launches(device, f, prod(i), out[-1], f32, wide, v=w[0], guarded=guarded)

    return called(device, plan, guarded, 2)


# ------------------------------------------------------------------------------------- catalogue

RESULTS = {"float32": f32, "bfloat16": bf16}


def _build(arch: str, *, format: str, result: str = "float32", aligned: bool, guarded: bool, chosen: bool) -> Kernel:
    access = (16 if FORMATS[format].nbytes % 4 == 0 else 4) if aligned else 1
    return decoding(arch, format, RESULTS[result], access, aligned, chosen, Store(guarded))


def _build_dequantize(arch: str, **constants: Any) -> Kernel:
    return _build(arch, chosen=False, **constants)


def _build_lookup(arch: str, **constants: Any) -> Kernel:
    return _build(arch, chosen=True, **constants)


def _sample(rng: np.random.Generator, format: str, result: str, guarded: bool, i: Any) -> Sample:
    """Some rows of a few blocks; a number beyond the range of a scale where the kernel is to report it."""
    f = FORMATS[format]
    rows, k = 8, 3 * f.elements
    w = encode(f, (rng.standard_normal((rows, k)) * 0.1).astype(np.float32))
    if guarded and not f.e8m0:
        spec = f.fields[f.d]
        w[-1, spec.offset : spec.offset + 2] = np.array([np.nan], "<f2").view(np.uint8)
    value = decode(f, w)
    operands: dict[str, Any] = {"w": w.reshape(-1)}
    if i is not None:
        value = np.where((i < rows)[:, None], value[i % rows], np.float32(np.nan))
        value = value.astype(np.float32)
        operands["i"] = i.astype(np.uint64)
    wanted = value if result == "float32" else value.astype(bfloat16)
    operands["out"] = np.zeros(wanted.shape, wanted.dtype)
    wants = {"out": Want(wanted.astype(np.float64), 2.0**-149)}
    if guarded:
        operands["status"] = np.zeros(1, np.uint32)
        wants["status"] = Want(np.array([int(np.isnan(value).any())], np.uint32))
    units = len(value) * 3 * unit_shape(format).units
    operands |= {"units": units} if i is None else {"units": units, "across": 3, "v": rows}
    return Sample((-(-units // THREADS), 1, 1), operands, wants)


def _sample_dequantize(
    rng: np.random.Generator, *, format: str, result: str, aligned: bool, guarded: bool
) -> Sample:  # fmt: skip
    return _sample(rng, format, result, guarded, None)


def _sample_lookup(rng: np.random.Generator, *, format: str, aligned: bool, guarded: bool) -> Sample:
    i = rng.integers(0, 8, 11)
    i[3], i[5] = 8, 7  # the one outside, the other with a scale of NaN
    return _sample(rng, format, "float32", guarded, i)


MATRICES = tuple(name for name, f in FORMATS.items() if f.weights)
FORMAT = Constant("format", "q4_k", "of the blocks", MATRICES)
ALIGNED = Constant("aligned", True, "the arrays begin at multiples of 16 bytes", (True, False))
CATALOGUE = [
    CatalogueEntry(
        "dequantize", "blocks", "blocks to float32 as in ggml, or rounded to bfloat16",
        _build_dequantize, _sample_dequantize,
        (FORMAT, Constant("result", "float32", "type of the numbers", tuple(RESULTS)), ALIGNED, GUARDED),
        tuple(arch for arch in TARGETS if arch != "sm_75"),
        ({}, *({"format": name} for name in MATRICES if name != "q4_k"), {"result": "bfloat16"},
         {"format": "q6_k", "result": "bfloat16"}, {"format": "q6_k", "aligned": False}, {"guarded": True}),
    ),
    CatalogueEntry(
        "quant_embedding_lookup", "blocks", "rows of blocks by index, decoded; NaN for an index outside",
        _build_lookup, _sample_lookup, (FORMAT, ALIGNED, GUARDED),
        variants=({}, {"format": "q6_k"}, {"format": "q5_0", "aligned": False, "guarded": True}),
    ),
]  # fmt: skip
