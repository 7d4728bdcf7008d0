# mypy: disable-error-code="valid-type"
"""Casts among float16, bfloat16, float32 and float64, for `cast` of the backend: 16-bit floats are widened and rounded.

Every number is rounded once, to nearest even, and values beyond the largest become Inf; a NaN stays one.  No GPU before
sm_90 rounds float64 to bfloat16 itself, so it goes through a float32 that is cut, with its last bit set where anything
was lost: that has 16 bits more than a bfloat16, and a second rounding of it is the only one.

Floor: each element is read once and written once.  A thread has V neighbours at a time, 16 bytes of the narrower type;
what is left behind the last whole V, and arrays that do not begin at multiples of 16 bytes, go one by one.
"""

from functools import cache, lru_cache
from typing import Any

import numpy as np
from ml_dtypes import bfloat16
from trueno.errors import KernelError

from trueno_cuda.catalogue.entry import CatalogueEntry, Constant, Sample, Want
from trueno_cuda.device.protocol import Device
from trueno_cuda.kernels.operands import FLOATS, REACH, SHAPES, VECTOR, ArrayLaunch, prepared, typed
from trueno_cuda.ptx import TARGETS, Builder, Pointer, Source, Type, Value, bf16, f16, f32, f64, ptr, u32
from trueno_cuda.ptx import Kernel as Built

THREADS = 256
UNROLL = 2
"""Vectors of a thread that are on their way at once."""
DTYPES = {"float16": np.float16, "bfloat16": bfloat16, "float32": np.float32, "float64": np.float64}
EXACT = 2.0**-1074
"""A bound that only the exact number meets, and a NaN for a NaN, whose bits do not matter."""


def _converted(k: Builder, value: Value, kind: Type) -> Value:
    """`value` as `kind`, rounded once."""
    source = value.type
    if source is bf16 and kind is f64:
        return value.to(f32).to(f64)
    if source is f16 and kind is bf16:
        return value.to(f32).to(bf16)
    if source is bf16 and kind is f16:
        return value.to(f32).to(f16)
    if source is f64 and kind is bf16:
        cut = value.to(f32, "rz")
        lost = cut.to(f64) != value  # a NaN is unlike itself, and with one bit more still a NaN
        return (cut.bits(u32) | k.select(lost, k.const(u32, 1), 0)).bits(f32).to(bf16)
    return value.to(kind)


def _cast(k: Builder, x: Pointer, out: Pointer, count: Value, *, V: int) -> None:
    """out[e] = x[e] for `count` elements, V at a time, and the rest one by one."""
    kind = out.element
    many = min(V, VECTOR // x.element.bytes), min(V, VECTOR // kind.bytes)
    groups = count // V
    first = k.ctaid * (THREADS * UNROLL) + k.tid
    loaded = []
    for turn in range(UNROLL):
        group = first + turn * THREADS
        live, at = group < groups, group * V
        loaded.append(
            (live, at, [v for i in range(0, V, many[0]) for v in _loaded(x, at + i, many[0], live)])
        )  # fmt: skip
    for live, at, values in loaded:
        converted = [_converted(k, v, kind) for v in values]
        for i in range(0, V, many[1]):
            out.store(at + i, converted[i : i + many[1]], where=live)
    if V > 1:
        rest = groups * V + first
        live = (first < V) & (rest < count)
        (value,) = _loaded(x, rest, 1, live)
        out.store(rest, [_converted(k, value, kind)], where=live)


def _loaded(x: Pointer, at: Value, count: int, where: Value) -> list[Value]:
    values = x.load(at, vec=count, where=where, cache="nc")
    return values if isinstance(values, list) else [values]


@cache
def source(given: str, wanted: str) -> Source:
    """The kernel from one type to another, by their names."""
    x, out = FLOATS[given], FLOATS[wanted]
    return typed(_cast, f"cast_{x}_{out}", THREADS, {"x": ptr(x), "out": ptr(out), "count": u32})


def launches(device: Device, count: int, given: str, wanted: str, *, wide: bool) -> list[ArrayLaunch]:
    """Launches that cast so many elements.  wide: whether both arrays begin at multiples of 16 bytes."""
    x, out = FLOATS[given], FLOATS[wanted]
    vec = VECTOR // min(x.bytes, out.bytes) if wide else 1
    planned = []
    for first in range(0, count, REACH):
        many = min(REACH, count - first)
        grid = -(-many // (THREADS * UNROLL * vec))
        launch = prepared(device, source(given, wanted), {"V": vec}, grid, (many,))
        planned.append(ArrayLaunch(launch, (first * x.bytes, first * out.bytes)))
    return planned


class Cast:
    """Casts on one device: `cast(x, out)`, between arrays of one shape, asynchronous as launches.

    KernelError for types that are not floats, and for a result that shares memory with what is read.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._plan = lru_cache(SHAPES)(self._make)

    def _make(self, count: int, given: str, wanted: str, wide: bool) -> list[ArrayLaunch]:
        return launches(self.device, count, given, wanted, wide=wide)

    def __call__(self, x: Any, out: Any) -> None:
        dtype, wanted = x.dtype.name, out.dtype.name
        if dtype not in FLOATS or wanted not in FLOATS or x.shape != out.shape:
            raise KernelError(
                f"cuda: {x.shape} {dtype} cannot be cast to {out.shape} {wanted}; floats of one shape can"
            )
        x = self.device.contiguous(x)
        if self.device.contiguous(out) is not out:
            raise KernelError("cuda: a cast writes arrays in C order; give one that lies so")
        if dtype == wanted:
            self.device.copy(x, out)
            return
        pointer, target = x.data.ptr, out.data.ptr
        if pointer < target + out.nbytes and target < pointer + x.nbytes:
            raise KernelError("cuda: a cast into the memory that it reads from; give it an array of its own")
        for launch, (at, to) in self._plan(x.size, dtype, wanted, not (pointer | target) % VECTOR) if x.size else ():
            launch([pointer + at, target + to])


# ------------------------------------------------------------------------------------- catalogue


def _build(arch: str, *, given: str, wanted: str, V: int) -> Built:
    if given == wanted:
        raise KernelError(f"from {given} to {wanted} is a copy; choose two types")
    if V * min(FLOATS[n].bytes for n in (given, wanted)) > VECTOR:
        raise KernelError(f"{V} elements of the narrower type are more than {VECTOR} bytes")
    return source(given, wanted).build(arch, V=V)


FORMS = {"float16": (11, -24, 2.0**16), "bfloat16": (8, -133, 2.0**128), "float32": (24, -149, 2.0**128)}
"""Binary digits, the exponent of the smallest number, and what the first number past the largest is rounded to."""


def nearest(x: np.ndarray[Any, Any], wanted: str) -> np.ndarray[Any, Any]:
    """What `x` is rounded to, as float64: by exact arithmetic on the exponent, because libraries may round twice."""
    if wanted == "float64":
        return np.asarray(x, np.float64)
    digits, least, most = FORMS[wanted]
    wide = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        last = np.maximum(np.frexp(wide)[1] - digits, least)
        rounded = np.ldexp(np.rint(np.ldexp(wide, -last)), last)
        return np.where(np.isfinite(wide), np.where(np.abs(rounded) >= most, np.copysign(np.inf, wide), rounded), wide)


def values(rng: np.random.Generator, count: int, given: str, wanted: str) -> np.ndarray[Any, Any]:
    """Of every size, halves between neighbours and what is just beside them, what overflows, zeros, Inf, NaN."""
    own = DTYPES[given]
    digits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[wanted]
    largest = 65504.0 if "float16" in (given, wanted) else 2.0**127
    with np.errstate(all="ignore"):
        usual = rng.standard_normal(count)
        spread = usual * np.exp2(rng.uniform(-150, 127, count))
        half = (1 + rng.integers(0, 2**6, count) * 2.0**-6) + 2.0**-digits
        beside = half * (1 + rng.choice([-1.0, 1.0], count) * np.exp2(-rng.integers(20, 50, count)))
        past = rng.uniform(0.5, 2.5, count) * largest
        special = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**-24, 2.0**-25, 65519.0, 65520.0], count)
        kinds = np.stack([spread, usual, half, beside, past, special])
        return np.asarray(kinds[rng.integers(0, len(kinds), count), np.arange(count)].astype(own))


def _sample(rng: np.random.Generator, *, given: str, wanted: str, V: int) -> Sample:
    """Some vectors and a rest."""
    count = THREADS * UNROLL * V + 3 * V + max(V - 1, 1)
    x = values(rng, count, given, wanted)
    grid = -(-count // (THREADS * UNROLL * V))
    operands = {"x": x, "out": np.zeros(count, DTYPES[wanted]), "count": count}
    return Sample((grid, 1, 1), operands, {"out": Want(nearest(x, wanted), EXACT)})


CATALOGUE = [
    CatalogueEntry(
        "cast",
        "moves",
        "float16, bfloat16, float32 and float64 into each other, rounded once",
        _build,
        _sample,
        (
            Constant("given", "float32", "type of what is read", tuple(FLOATS)),
            Constant("wanted", "bfloat16", "type of the result", tuple(FLOATS)),
            Constant("V", 8, "elements a thread has at a time", (1, 2, 4, 8)),
        ),
        arches=tuple(name for name, target in TARGETS.items() if target.number >= 80),
        variants=(
            {},
            {"given": "bfloat16", "wanted": "float32"},
            {"given": "float16", "wanted": "float32"},
            {"given": "float32", "wanted": "float16"},
            {"given": "float64", "wanted": "bfloat16"},
            {"given": "float64", "wanted": "float32", "V": 4},
            {"given": "bfloat16", "wanted": "float16", "V": 1},
        ),
    )
]
