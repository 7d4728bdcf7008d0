# mypy: disable-error-code="valid-type"
"""kv_cache_scatter: rows of float32 into slots of a cache, in its own format.

A thread takes four neighbouring numbers of a row; in q8_0 eight lanes hold a block, whose scale they find by shuffles.
Where there are several rows, each block first looks for a later row with the same slot, which then counts instead.

    f16, bf16   rounded to nearest even
    q8_0        d = amax / 127 and code = x · (1 / d), halves away from zero: ggml's bytes; NaN and Inf make d a NaN

A slot outside of the cache is left out, as -1 is: the host checks slots where it can.  Into the cache itself only those
rows are written; into another array the cache is copied first.

Floor: 4 n h d bytes read and a row of the format each written, which for one token is the time of a launch.
"""

from functools import cache
from math import inf, prod
from typing import Any

import numpy as np
from ml_dtypes import bfloat16
from trueno.backend import Call, Kernel

from trueno_cuda.catalogue.entry import CatalogueEntry, Constant, Sample, Want
from trueno_cuda.device.protocol import Device, Launch
from trueno_cuda.kernels.caches.cells import CELLS, CODES, HALVES, PIECE, Q8, SCALE, Rows, half_bits, narrowed
from trueno_cuda.kernels.operands import VECTOR, build, prepared, typed
from trueno_cuda.kernels.product import overlaps
from trueno_cuda.kernels.table import KERNELS, RATES
from trueno_cuda.ptx import Builder, Pointer, Source, Value, f32, ptr, s32, u16, u32, u64
from trueno_cuda.ptx import Kernel as Built

THREADS = 128
LANES = Q8.elements // PIECE
"""Lanes that hold a block of q8_0."""
MOST_LAUNCHES = 64
NAN = 0x7E00


def _code(k: Builder, x: Value, factor: Value) -> Value:
    """x · factor to the nearest whole number, halves away from zero, as the bits of a byte."""
    y = x * factor
    whole = k.trunc(y)
    away = k.select(abs(y - whole) >= 0.5, k.copysign(k.const(f32, 1.0), y), 0.0)
    nearest: Value = (whole + away).to(s32, "rz").bits(u32) & 0xFF
    return nearest


def _block(k: Builder, numbers: list[Value], cache: Pointer, at: Value, lane: Value, where: Value) -> None:
    """Write this lane's four numbers of the block that begins at half `at`, and in its first lane the scale."""
    broken: Any = k.var(u32, 0)
    for x in numbers:
        broken |= k.select(abs(x) < inf, k.const(u32, 0), 1)  # a NaN is not less
    largest = k.warp_max(k.max(k.max(abs(numbers[0]), abs(numbers[1])), k.max(abs(numbers[2]), abs(numbers[3]))), LANES)
    bad: Any = k.warp_reduce(broken, "or_", LANES) != 0
    d = largest / 127.0
    inverse = 1.0 / d
    factor = k.select(abs(inverse) < inf, inverse, 0.0)  # of 0, and of scales whose inverse is beyond float32
    codes = [_code(k, k.select(bad, 0.0, x), factor) for x in numbers]
    scale = k.select(bad, k.const(u32, NAN), half_bits(k, d)).to(u16)
    cache.store(at + SCALE, scale, where=where & (lane == 0))
    first = at + (lane * (PIECE // 2) + CODES).to(u64)
    for i in range(2):
        cache.store(first + i, (codes[2 * i] | (codes[2 * i + 1] << 8)).to(u16), where=where)


def _scatter(
    k: Builder, x: Pointer, slots: Pointer, cache: Pointer, count: Value, n: Value, width: Value, parts: Value,
    *, F: str, V: int, MANY: bool,
) -> None:  # fmt: skip
    """cache[slots[i]] = x[i], of n rows of `width` numbers: `parts` blocks a row, V numbers an access."""
    row = k.ctaid // parts if MANY else k.const(u32, 0)
    slot = slots.load(row)
    live = slot < count  # as an unsigned number, which a negative one exceeds
    if MANY:
        later = k.var(u32, 0)
        for j in k.range(row + 1 + k.tid, n, THREADS):
            later |= k.select(slots.load(j) == slot, k.const(u32, 1), 0)
        live = live & (k.block_reduce(later.value, "or_") == 0)
    each = PIECE if F == "q8_0" else V
    at = ((k.ctaid % parts if MANY else k.ctaid) * THREADS + k.tid) * each
    live = live & (at < width)
    wide = k.multiple_of(width, each) if each > 1 else width
    source = x + row.to(u64) * wide.to(u64)
    numbers = source.load(at, vec=V, where=live) if V > 1 else [source.load(at + i, where=live) for i in range(each)]
    if F == "q8_0":
        first = (slot * (wide // Q8.elements).to(u64) + (at // Q8.elements).to(u64)) * HALVES
        return _block(k, numbers, cache, first, k.tid % LANES, live)
    target = cache + slot * wide.to(u64)
    values = narrowed(k, F, numbers)
    return target.store(at, values if V > 1 else values[0], where=live)


@cache
def source(form: str) -> Source:
    element = f32 if form == "f32" else u16
    sizes = {"count": u64, "n": u32, "width": u32, "parts": u32}
    operands = {"x": ptr(f32), "slots": ptr(u64), "cache": ptr(element), **sizes}
    return typed(_scatter, f"kv_cache_scatter_{form}", THREADS, operands)


def launch(device: Device, form: str, n: int, width: int, count: int, wide: bool) -> Launch:
    """A launch that writes n rows of `width` numbers.  wide: whether x and the cache are aligned to 16 bytes."""
    vec = PIECE if wide and width % PIECE == 0 else 1
    parts = -(-width // (THREADS * (PIECE if form == "q8_0" else vec)))
    constants = {"F": form, "V": vec, "MANY": n > 1}
    return prepared(device, source(form), constants, n * parts, (count, n, width, parts))


@KERNELS.add("kv_cache_scatter", rates=RATES, dtypes=("float32",))
def kv_cache_scatter(device: Device, call: Call) -> Kernel:
    """cache[pages,page,h,bytes] x[n,h,d] slots[n] -> out, which may be the cache; a slot outside is left out.

    A guarded kernel has nothing to report: the result is bytes.
    """
    form = dict(call.static)["format"]
    launches: dict[Any, Launch] = {}

    def kernel(cache: Any, x: Any, slots: Any, out: Any) -> int:
        if len(cache.shape) != 4 or len(x.shape) != 3 or out.shape != cache.shape or slots.shape != x.shape[:1]:
            return -1
        rows = Rows(form, x.shape[2])
        if x.shape[1] != cache.shape[2] or cache.shape[3] != rows.nbytes or device.contiguous(out) is not out:
            return -1
        x, slots = device.contiguous(x), device.contiguous(slots)
        to = out.data.ptr
        if overlaps(out, x) or overlaps(out, slots) or to % rows.element.bytes:
            return -1
        if to != cache.data.ptr:
            if overlaps(out, cache):
                return -1
            device.copy(cache, out)
        if not (x.size and out.size):
            return 0
        wide = (x.data.ptr | to) % VECTOR == 0
        key = x.shape, out.shape, wide
        ready = launches.get(key)
        if ready is None:
            if len(launches) >= MOST_LAUNCHES:
                launches.clear()
            n, h, d = x.shape
            ready = launches[key] = launch(device, form, n, h * d, prod(out.shape[:2]), wide)
        ready([x.data.ptr, slots.data.ptr, to])
        return 0

    return kernel


# ------------------------------------------------------------------------------------- catalogue


def _build(arch: str, *, form: str, V: int, MANY: bool) -> Built:
    return build(source(form), arch, (("F", form), ("V", V), ("MANY", MANY)))


def _sample(rng: np.random.Generator, *, form: str, V: int, MANY: bool) -> Sample:
    """Numbers that are small multiples of a power of two, so that every format's bytes are plain to write down."""
    h, d, count, n = 2, 64, 7, 5 if MANY else 1
    slots = np.array([3, -1, 6, 7, 3][:n])
    x = rng.integers(-127, 128, (n, h, d)).astype(np.float32)
    x[..., ::32] = 127
    if form == "q8_0":
        held = np.zeros((n, h, d // 32, 17), np.uint16)
        held[..., 0] = np.float16(1.0).view(np.uint16)
        held[..., 1:] = x.astype(np.int8).view(np.uint16).reshape(n, h, d // 32, 16)
    else:
        kept = x.astype({"f32": np.float32, "f16": np.float16, "bf16": bfloat16}[form])
        held = kept.view(np.uint16) if form != "f32" else kept
    rows = held.reshape(n, -1)
    there = rng.integers(0, 1 << 15, (count, rows.shape[1])).astype(rows.dtype)
    want = there.copy()
    for i, slot in enumerate(slots):
        if 0 <= slot < count:
            want[slot] = rows[i]
    parts = -(-h * d // (THREADS * (PIECE if form == "q8_0" else V)))
    operands: dict[str, Any] = {"x": x, "slots": slots.astype(np.uint64), "cache": there}
    operands |= {"count": count, "n": n, "width": h * d, "parts": parts}
    return Sample((n * parts, 1, 1), operands, {"cache": Want(want)})


CATALOGUE = [
    CatalogueEntry(
        "kv_cache_scatter",
        "caches",
        "rows of float32 into slots of a cache, in its format",
        _build,
        _sample,
        (
            Constant("form", "f16", "format of the cache", (*CELLS, "q8_0")),
            Constant("V", PIECE, "numbers an access", (1, PIECE)),
            Constant("MANY", False, "several rows, of which the last counts for a slot", (False, True)),
        ),
        variants=(
            {},
            {"form": "f32", "MANY": True},
            {"form": "bf16", "V": 1, "MANY": True},
            {"form": "q8_0"},
            {"form": "q8_0", "MANY": True},
        ),
    )
]
