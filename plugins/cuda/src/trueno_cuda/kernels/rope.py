# mypy: disable-error-code="valid-type"
"""rope: a thread computes cosines and sines of V pairs of a token once, and turns these pairs in H of its heads.

Angles are exact, whatever the position (`turning`).  The table of turns comes from the core (`trueno.backend.rotation`)
and is kept on the device for each set of parameters, so no kernel knows a scaling.  The op checks positions where it
can; on the device a negative one gives NaN.

Floor: every byte of x read once and written once.  A step of one token is 14 KB and costs a launch, so there V and H
are 1, and many threads wait at once; of many tokens V is 16 bytes and H is 4, so that the angles cost a quarter.
"""

from collections.abc import Sequence
from functools import cache, lru_cache, partial
from math import prod
from typing import Any

import numpy as np
from ml_dtypes import bfloat16
from trueno.backend import Call, Kernel, SharedOp, cosines, rotation, stacks
from trueno.errors import KernelError

from trueno_cuda.catalogue.entry import GUARDED, CatalogueEntry, Constant, Parity, Sample, Want
from trueno_cuda.device.protocol import ArrayLaunch, Device
from trueno_cuda.device.repeated import quick
from trueno_cuda.kernels.caches.bring import Brought
from trueno_cuda.kernels.calls import checked, wide
from trueno_cuda.kernels.operands import (
    FLOATS,
    REACH,
    SHAPES,
    VECTOR,
    Plan,
    Shape,
    look,
    power,
    powers,
    prepared,
    status_parameter,
    tell,
    typed,
)
from trueno_cuda.kernels.stacked import AXES, parameters, parts, places, stack
from trueno_cuda.kernels.table import KERNELS, RATES
from trueno_cuda.kernels.turning import SMALL, Turns, angle_waves, turned
from trueno_cuda.ptx import TARGETS, Builder, Pointer, Source, Value, f32, f64, ptr, u32, u64
from trueno_cuda.ptx import Kernel as Built

THREADS = 256
HEADS = 4
"""Heads that a thread turns where there are many tokens."""


def _rope(
    k: Builder, x: Pointer, positions: Pointer, out: Pointer, turns: Pointer, count: Value, groups: Value, heads: Value,
    d: Value, pairs: Value, magnitude: Value, status: Pointer | None = None, *, axes: int, V: int, C: int, H: int,
    INTERLEAVED: bool, REST: bool, along_y: bool = False, **lead: Value,
) -> None:  # fmt: skip
    """C threads turn H heads of a token, V pairs each; d and pairs are multiples of V.

    along_y: the batched form, whose tokens lie along the grid's y.
    """
    kind, wide_kind = x.element, magnitude.type
    item, lane = k.ctaid * (THREADS // C) + k.tid // C, k.tid % C
    live = item < (groups if along_y else count)
    token, first = (k.ctaid_y, item * H) if along_y else (item // groups, item % groups * H)
    before, at = places(k, token, lead, axes, "x", "positions")
    position = positions.load(at, where=live)
    d, pairs = k.multiple_of(d, V), k.multiple_of(pairs, V)
    heads_before = token.to(u64) * heads.to(u64) + first.to(u64)
    source = x + (k.multiple_of(before, V) + k.mul_wide(first, d))
    target = out + heads_before * d.to(u64)
    bits = k.var(u32, 0)
    inside = [live & (first + h < heads) for h in range(H)]

    for pair in k.range(lane * V, pairs, C * V):
        one, other = (pair * 2, pair * 2 + V) if INTERLEAVED else (pair, pair + pairs)
        loaded = []
        for h, here in enumerate(inside):
            base = source + k.mul_wide(d, h)
            loaded.append([p for c in (one, other) for p in base.load(c, vec=V, where=here)])
        each = min(V, 2)  # numbers of 64 bits an access
        own = [t for e in range(0, V, each) for t in turns.load(pair + e, vec=each, cache="ca")]
        waves = [angle_waves(k, position, t, magnitude) for t in own]
        for h, (here, values) in enumerate(zip(inside, loaded, strict=True)):
            numbers = [p.to(wide_kind) for p in values]
            results = [v.to(kind) for v in turned(k, waves, numbers, INTERLEAVED)]
            base = target + k.mul_wide(d, h)
            base.store(one, results[:V], where=here)
            base.store(other, results[V:], where=here)
            if status is not None:
                for value in results:
                    look(k, bits, k.select(here, value, 0.0))
    if REST:
        for column in k.range(pairs * 2 + lane * V, d, C * V):
            for h, here in enumerate(inside):
                step = k.mul_wide(d, h)
                values = (source + step).load(column, vec=V, where=here)
                (target + step).store(column, values, where=here)
                if status is not None:
                    for value in values:
                        look(k, bits, k.select(here, value, 0.0))
    if status is not None:
        tell(k, bits, status)


@cache
def source(dtype: str, axes: int, guarded: bool, along_y: bool = False) -> Source:
    """The kernel; its constants are V, C, H, INTERLEAVED and REST."""
    kind = FLOATS[dtype]

    def rope_heads(k: Builder, *, V: int, C: int, H: int, INTERLEAVED: bool, REST: bool, **given: Any) -> None:
        _rope(k, **given, axes=axes, V=V, C=C, H=H, INTERLEAVED=INTERLEAVED, REST=REST, along_y=along_y)

    pointers = {"x": ptr(kind), "positions": ptr(u64), "out": ptr(kind), "turns": ptr(u64), **status_parameter(guarded)}
    sizes = dict.fromkeys(("count", "groups", "heads", "d", "pairs"), u32) | parameters(axes, "x", "positions")
    magnitude = {"magnitude": f64 if kind is f64 else f32}
    name = f"rope_{'batched_' if along_y else ''}{kind}{'_guarded' if guarded else ''}"
    return typed(rope_heads, name, THREADS, {**pointers, **sizes, **magnitude})


def launches(
    device: Device, x: Shape, positions: Shape, out: Shape, pairs: int, dtype: str, *,
    interleaved: bool, aligned: bool, guarded: bool,
) -> list[ArrayLaunch] | None:  # fmt: skip
    """Launches on (x, positions, out); None for shapes that do not agree.  aligned: x and out, to 16 bytes."""
    heads, d = x[-2:]
    whole = stack(out[:-2], (x[:-2], positions), (heads * d, 1))
    if whole is None:
        return None
    if d >= REACH:
        raise KernelError(f"rope on cuda: a head of {d} numbers; {REACH - 1} is the most")
    itemsize = FLOATS[dtype].bytes
    vec, together = VECTOR // itemsize if aligned else 1, HEADS
    if whole.count * heads * pairs <= SMALL * device.sms:
        vec = together = 1
    while pairs % vec or d % vec:
        vec //= 2
    together = min(together, heads)
    groups = -(-heads // together)
    rest = 2 * pairs < d
    along = min(power(max(pairs, d - 2 * pairs) // vec or 1), THREADS)
    constants = {"V": vec, "C": along, "H": together, "INTERLEAVED": interleaved, "REST": rest}
    planned = []
    for part in parts(whole, REACH // groups):
        count = part.count * groups
        grid = -(-count // (THREADS // along))
        numbers = (count, groups, heads, d, pairs, *part.numbers())
        launch = prepared(device, source(dtype, len(part.lead), guarded), constants, grid, numbers)
        offsets = (part.starts[0] * itemsize, part.starts[1] * 8, part.first * heads * d * itemsize)
        planned.append(ArrayLaunch(launch, offsets))
    return planned


@KERNELS.add("rope", rates=RATES, dtypes=tuple(FLOATS))
def rope(device: Device, call: Call) -> Kernel:
    """x[...,h,d] positions[...] -> out[...,h,d]; a negative position gives NaN."""
    if isinstance(call.op, SharedOp):
        return Brought(device, call, partial(KERNELS.kernel, device=device))
    static, dtype, guarded = dict(call.static), call.dtype.name, call.guarded
    dims, scaling, interleaved = static["dims"], static["scaling"], static["style"] == "interleaved"
    table = Turns(device, scaling)

    def plan(x: Shape, positions: Shape, out: Shape, aligned: bool) -> Plan:
        turned = (dims or x[-1]) if len(x) >= 2 else 1
        if turned % 2 or turned > x[-1] or out[-2:] != x[-2:] or len(out) != max(len(x), len(positions) + 2):
            return None
        if not prod(out):
            return []
        return launches(
            device, x, positions, out, turned // 2, dtype, interleaved=interleaved, aligned=aligned, guarded=guarded
        )

    plans = lru_cache(SHAPES)(plan)

    def kernel(x: Any, positions: Any, theta: float, factor: float, context: float, slow: float, fast: float,
               magnitude: float, out: Any) -> int:  # fmt: skip
        pointers = checked(device, (x, positions), (out,))
        if pointers is None:
            return -1
        planned = plans(x.shape, positions.shape, out.shape, wide(pointers[0], pointers[2]))
        if planned is None:
            return -1
        if not planned:
            return 0
        turns, by = table((dims or x.shape[-1]) // 2, theta, factor, context, slow, fast, magnitude)
        after = [turns.data.ptr, *([device.status()] if guarded else [])]
        for launch, offsets in planned:
            launch([p + o for p, o in zip(pointers, offsets, strict=True)] + after, (by,))
        return 0

    def seen(arrays: Sequence[Any]) -> Any:
        """The launch that a call on these arrays is, where it is one."""
        x, positions, out = arrays
        planned = plans(x.shape, positions.shape, out.shape, wide(x.data.ptr, out.data.ptr))
        if planned is None or len(planned) != 1 or any(planned[0].offsets):
            return None
        launch, pairs = planned[0].launch, (dims or x.shape[-1]) // 2

        def again(pointers: Sequence[int], floats: Sequence[float]) -> None:
            turns, by = table(pairs, *floats)
            launch((*pointers, turns.data.ptr), (by,))

        return again

    return kernel if guarded or not device.alone else quick(kernel, seen, 2, 6, 1)


# ------------------------------------------------------------------------------------- catalogue


def _build(arch: str, *, dtype: str, guarded: bool, axes: int, tokens: str, **constants: Any) -> Built:
    return source(dtype, axes, guarded, tokens == "y").build(arch, **constants)


def _sample(
    rng: np.random.Generator, *, dtype: str, guarded: bool, axes: int, V: int, C: int, H: int, INTERLEAVED: bool,
    REST: bool, tokens: str,
) -> Sample:  # fmt: skip
    """Two tokens along every axis; x is broadcast along the first of several."""
    lead, heads, pairs = (2,) * axes, H + 1, (C + 1) * V
    d = 2 * pairs + V * REST
    kind = np.dtype(bfloat16 if dtype == "bfloat16" else dtype)
    x = rng.standard_normal((*lead[axes > 1 :], heads, d)).astype(kind)
    positions = rng.integers(0, 1 << 20, lead)
    turns, magnitude = rotation(pairs, 10000.0, "yarn", 4.0, 4096.0)
    value, size = _turned(x, positions, turns, magnitude, INTERLEAVED)
    digits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[dtype]
    bound = 8 * 2.0 ** -(24 if kind.itemsize == 2 else digits) * size + 2.0**-1000
    if kind.itemsize == 2:
        bound += np.abs(value) * 2.0**-digits * (1 + 2.0**-10) + 2.0**-25
    groups = -(-heads // H)
    count = 2**axes * groups
    operands: dict[str, Any] = {"x": x, "positions": positions, "out": np.zeros((*lead, heads, d), kind)}
    operands |= {"turns": turns, "count": count, "groups": groups, "heads": heads, "d": d, "pairs": pairs}
    operands["magnitude"] = magnitude
    steps = (stacks.leading(x.shape[:-2], lead, heads * d) or ()), (stacks.leading(lead, lead, 1) or ())
    operands |= dict(zip(parameters(axes, "x", "positions"), (*lead[1:], *steps[0], *steps[1]), strict=True))
    wants = {"out": Want(value, bound)}
    if guarded:
        operands["status"] = np.zeros(1, np.uint32)
        wants["status"] = Want(np.zeros(1, np.uint32))
    blocks = (-(-groups // (THREADS // C)), 2**axes) if tokens == "y" else (-(-count // (THREADS // C)), 1)
    return Sample((*blocks, 1), operands, wants)


def _both(device: Device, rng: np.random.Generator, batched: Built, single: Built) -> tuple[Any, Any]:
    """Five tokens of nine heads by one launch, and by one launch each."""
    tokens, heads, d = 5, 9, 136
    x, turns = rng.standard_normal((tokens, heads, d)).astype(np.float32), rotation(d // 2, 10000.0, "none")[0]
    positions, (groups, each) = rng.integers(0, 1 << 20, tokens), (-(-heads // HEADS), THREADS // 16)
    given, at, table = device.to_device(x), device.to_device(positions), device.to_device(turns)

    def launched(kernel: Built, some: range, y: int) -> Any:
        out = device.empty((len(some), heads, d), x.dtype)
        numbers = (len(some) * groups, groups, heads, d, d // 2, heads * d, 1)
        launch = device.prepare(kernel, (-(-groups // each), y, 1), numbers)
        starts = given.data.ptr + some[0] * heads * d * 4, at.data.ptr + some[0] * 8
        launch((*starts, out.data.ptr, table.data.ptr), (1.0,))
        return device.to_host(out)

    alone = [launched(single, range(i, i + 1), 1) for i in range(tokens)]
    return launched(batched, range(tokens), tokens), np.concatenate(alone)


def _turned(x: Any, positions: Any, turns: Any, magnitude: float, interleaved: bool) -> tuple[Any, Any]:
    """What x becomes, in float64, and the sizes of what is added up."""
    pairs = len(turns)
    x = np.broadcast_to(x, (*positions.shape, *x.shape[-2:])).astype(np.float64)
    cosine, sine = (w[..., None, :] for w in cosines(positions, turns, magnitude))
    one, other = slice(pairs), slice(pairs, 2 * pairs)
    if interleaved:
        one, other = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    a, b, value, size = x[..., one], x[..., other], x.copy(), np.zeros_like(x)
    value[..., one], value[..., other] = a * cosine - b * sine, b * cosine + a * sine
    size[..., one], size[..., other] = np.abs(a * cosine) + np.abs(b * sine), np.abs(b * cosine) + np.abs(a * sine)
    return value, size


CATALOGUE = [
    CatalogueEntry(
        "rope",
        "attention",
        "rotary position embedding of heads, by exact angles",
        _build,
        _sample,
        (
            Constant("dtype", "float32", "type of an element", tuple(FLOATS)),
            GUARDED,
            Constant("axes", 1, "leading axes", tuple(range(1, AXES + 1))),
            Constant("V", 4, "pairs of a thread", (1, 2, 4, 8)),
            Constant("C", 16, "threads that turn the same heads of a token", powers(1, THREADS)),
            Constant("H", HEADS, "heads of a thread", (1, 2, 3, 4)),
            Constant("INTERLEAVED", False, "pairs are neighbours", (False, True)),
            Constant("REST", False, "heads have numbers that do not turn", (False, True)),
            Constant("tokens", "x", "axis of the grid along which tokens lie", ("x", "y")),
        ),
        arches=tuple(name for name, target in TARGETS.items() if target.number >= 80),
        variants=(
            {},
            {"V": 1, "H": 1, "C": 64},
            {"INTERLEAVED": True, "REST": True, "guarded": True},
            {"dtype": "float64", "V": 2, "axes": 2, "C": 4},
            {"dtype": "bfloat16", "V": 8, "C": 4, "INTERLEAVED": True},
            {"dtype": "float16", "V": 2, "H": 2, "REST": True, "axes": 4},
            {"tokens": "y", "axes": 2},
        ),
        parity=Parity("grid_y", {"tokens": "y"}, _both),
    )
]
