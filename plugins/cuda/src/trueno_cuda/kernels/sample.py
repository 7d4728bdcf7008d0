# mypy: disable-error-code="valid-type"
"""sample: up to three searches in a row of logits, by the blocks of a cluster, without sorting it.

    top_k       the token at which the number of tokens reaches k
    top_p       of those up to it, the token at which their weights at temperature 1 reach p of all
    the token   of those up to it and within min_p, where their weights at the temperature exceed r of all

`ranking` has the search.  A weight is e^(-gap / temperature) in float64, and its sums are integers with as many bits
as n of them leave in 64, so a token does not depend on the order of additions.  A temperature of 0 is the first pass
alone, which finds the largest logit.

Floor: the bytes of the logits, once.  Each search looks at them some three or four times more, in shared memory; an
exponential in float64 for each logit that is kept so far, in the first pass of the last two searches.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from math import inf, log, prod
from typing import Any

import numpy as np
from ml_dtypes import bfloat16
from trueno.backend import TABLE, Call, Kernel

from trueno_cuda.catalogue.entry import CatalogueEntry, Constant, Sample, Want
from trueno_cuda.device.protocol import ArrayLaunch, Device
from trueno_cuda.device.repeated import quick
from trueno_cuda.kernels.calls import checked, wide
from trueno_cuda.kernels.codes import number
from trueno_cuda.kernels.operands import FLOATS, REACH, SHAPES, VECTOR, Plan, Shape, prepared, typed
from trueno_cuda.kernels.ranking import Row
from trueno_cuda.kernels.stacked import AXES, parameters, parts, places, stack
from trueno_cuda.kernels.table import KERNELS, RATES
from trueno_cuda.ptx import TARGETS, Builder, Pointer, Source, Value, f64, ptr, u32, u64
from trueno_cuda.ptx import Kernel as Built
from trueno_cuda.rows.elementary64 import LOG2_E

FEW, MANY = 256, 1024
"""Threads of a block for short rows, and for others."""
SHORT = 4096
"""Logits up to which a row is short, and has one block."""
CLUSTERS = (8, 4, 2)
"""Blocks that may share a row, where clusters exist."""
DIGITS = 52
"""Bits behind the point of a weight's integer, at most."""
BELOW_ONE = 1 - 2.0**-53


def _sample(
    k: Builder, x: Pointer, r: Pointer, out: Pointer, n: Value, share: Value, top_k: Value, rate: Value, top_p: Value,
    far: Value, scale: Value, *, axes: int, V: int, T: int, B: int, TURNS: int, **lead: Value,
) -> None:  # fmt: skip
    """B blocks of T threads draw a token of one row; share: elements of a block, like n a multiple of V.

    rate: log2(e) / temperature, or 0.  far: the gap that min_p allows.  scale: a weight of 1, a power of two.
    """
    row, part = k.ctaid // B, k.ctaid % B
    before, at = places(k, row, lead, axes, "x", "r")
    n, share = k.multiple_of(n, V), k.multiple_of(share, V)
    begin = k.min(part * share, n)
    source = x + k.multiple_of(before, V)
    logits = Row(k, source, n, begin, k.min(begin + share, n), V, T, B, TURNS, weighted=True)
    code, place = logits.first()
    drawn = k.var(u32, place)
    with k.when((rate > 0.0) & (code != 0)):  # 0 is a NaN's
        given = k.min(k.max(number(k, r.load(at)).to(f64), 0.0), BELOW_ONE)
        for turn in k.range(3):
            by_count, by_share, last = turn == 0, turn == 1, turn == 2
            needed = last | (by_count & (top_k > 0)) | (by_share & (top_p < 1.0))
            with k.when(needed):
                logits.limit(k.select(last, far, inf))
                fraction = k.select(by_share, top_p, given)

                def level(total: Any, by_count: Value = by_count, fraction: Value = fraction) -> Any:
                    return k.select(by_count, top_k.to(f64) - 1.0, total * fraction)

                logits.search(level, ~by_share, ~by_count, k.select(by_share, LOG2_E, rate), scale)
        drawn.set(logits.bound_place)
    if B > 1:
        k.sync_cluster()  # no block ends while another one reads its shared memory
    with k.when((k.tid == 0) & (part == 0)):
        out.store(row, drawn.to(u64))


@cache
def source(dtype: str, axes: int, threads: int, blocks: int) -> Source:
    """The kernel; its constants are V and TURNS."""
    kind = FLOATS[dtype]

    def sample_rows(k: Builder, *, V: int, TURNS: int, **given: Any) -> None:
        _sample(k, **given, axes=axes, V=V, T=threads, B=blocks, TURNS=TURNS)

    pointers = {"x": ptr(kind), "r": ptr(kind), "out": ptr(u64)}
    sizes = dict.fromkeys(("n", "share", "top_k"), u32) | parameters(axes, "x", "r")
    floats = dict.fromkeys(("rate", "top_p", "far", "scale"), f64)
    name = f"sample_{kind}_t{threads}_b{blocks}"
    return typed(sample_rows, name, threads, {**pointers, **sizes, **floats}, cluster=blocks if blocks > 1 else None)


def shape_of(device: Device, rows: int, n: int) -> tuple[int, int]:
    """Threads of a block, and blocks that share a row."""
    if n <= SHORT:
        return FEW, 1
    number = TARGETS[device.arch].number
    blocks = next((b for b in CLUSTERS if b * rows <= device.sms), 1) if number >= 90 else 1
    return MANY, blocks


def turns_of(device: Device, share: int, vec: int, threads: int, itemsize: int) -> int:
    """Vectors that a thread keeps of its block's share, or 0 where shared memory has no room for them."""
    turns = -(-share // (threads * vec))
    return turns if turns * threads * vec * max(itemsize, 4) + 32 * threads <= device.shared else 0


def launches(
    device: Device, x: Shape, r: Shape, out: Shape, top_k: int, dtype: str, aligned: bool
) -> list[ArrayLaunch] | None:
    """Launches on (logits, r, token); None for shapes that do not agree.  aligned: logits, to 16 bytes."""
    if not x or not x[-1] or x[-1] >= REACH:
        return None
    n, itemsize = x[-1], FLOATS[dtype].bytes
    whole = stack(out, (x[:-1], r), (n, 1))
    if whole is None:
        return None
    vec = VECTOR // itemsize
    if not aligned or n % vec:
        vec = 1
    planned = []
    for part in parts(whole, REACH // CLUSTERS[0]):
        threads, blocks = shape_of(device, part.count, n)
        share = -(-n // (blocks * vec)) * vec
        numbers = (n, share, top_k if top_k < n else 0, *part.numbers())
        built = source(dtype, len(part.lead), threads, blocks)
        constants = {"V": vec, "TURNS": turns_of(device, share, vec, threads, itemsize)}
        launch = prepared(device, built, constants, part.count * blocks, numbers)
        planned.append(ArrayLaunch(launch, (part.starts[0] * itemsize, part.starts[1] * itemsize, part.first * 8)))
    return planned


def numbers_of(n: int, temperature: float, top_p: float, min_p: float) -> tuple[float, ...]:
    """The floats of a launch."""
    rate = min(LOG2_E / temperature, 1e300) if temperature > 0 else 0.0
    far = -log(min_p) if min_p > 0 else inf
    return rate, top_p, far, 2.0 ** min(DIGITS, 63 - n.bit_length())


@KERNELS.add("sample", rates=RATES, dtypes=tuple(FLOATS))
def sample(device: Device, call: Call) -> Kernel:
    """logits[...,n] r[...] -> token[...].  A guarded kernel has nothing to report: the result is a position."""
    top_k, dtype = dict(call.static)["top_k"], call.dtype.name

    def plan(x: Shape, r: Shape, out: Shape, aligned: bool) -> Plan:
        return [] if not prod(out) and x[-1:] != (0,) else launches(device, x, r, out, top_k, dtype, aligned)

    plans = lru_cache(SHAPES)(plan)

    def kernel(x: Any, r: Any, temperature: float, top_p: float, min_p: float, token: Any) -> int:
        pointers = checked(device, (x, r), (token,))
        planned = None if pointers is None else plans(x.shape, r.shape, token.shape, wide(pointers[0]))
        if planned is None or pointers is None:
            return -1
        floats = numbers_of(x.shape[-1], temperature, top_p, min_p) if planned else ()
        for launch, offsets in planned:
            launch([p + o for p, o in zip(pointers, offsets, strict=True)], floats)
        return 0

    def seen(arrays: Sequence[Any]) -> Any:
        """The launch that a call on these arrays is, where it is one."""
        x, r, token = arrays
        planned = plans(x.shape, r.shape, token.shape, wide(x.data.ptr))
        if planned is None or len(planned) != 1 or any(planned[0].offsets):
            return None
        launch, n = planned[0].launch, x.shape[-1]
        return lambda pointers, floats: launch(pointers, numbers_of(n, *floats))

    return kernel if not device.alone else quick(kernel, seen, 2, 3, 1)


# ------------------------------------------------------------------------------------- catalogue


def _build(arch: str, *, dtype: str, axes: int, T: int, B: int, V: int, TURNS: int) -> Built:
    return source(dtype, axes, T, B).build(arch, V=V, TURNS=TURNS)


def _example(rng: np.random.Generator, *, dtype: str, axes: int, T: int, B: int, V: int, TURNS: int) -> Sample:
    """Two rows along every axis, with all filters; r is far from every sum, so that one token alone is right."""
    rows, n, top_k = 2**axes, V * (T // 8 + 3) * B, 40
    kind = bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x = (rng.standard_normal((rows, n)) * 3).astype(kind)
    filters = {"temperature": 0.7, "top_p": 0.95, "min_p": 0.01}
    tokens, r = np.empty(rows, np.int64), np.empty(rows, kind)
    for i, row in enumerate(x.astype(np.float64)):
        order = np.argsort(-row, kind="stable")[:top_k]
        plain = np.exp(row[order] - row[order[0]])
        kept = np.searchsorted(np.cumsum(plain), filters["top_p"] * plain.sum()) + 1
        kept = min(kept, np.count_nonzero(plain >= filters["min_p"]))
        sums = np.cumsum(np.exp((row[order[:kept]] - row[order[0]]) / filters["temperature"]))
        chosen = int(rng.integers(0, min(kept, 3)))
        middle = (sums[chosen] + (sums[chosen - 1] if chosen else 0.0)) / 2 / sums[-1]
        tokens[i], r[i] = order[chosen], middle
        body = TABLE["sample"].body(row, np.asarray(r[i], np.float64), top_k=top_k, **filters)
        assert int(body) == tokens[i] or dtype in ("float16", "bfloat16")
        tokens[i] = int(body)
    operands: dict[str, Any] = {"x": x, "r": r, "out": np.zeros(rows, np.int64), "n": n}
    operands |= {"share": -(-n // (B * V)) * V, "top_k": top_k}
    steps = [2 ** (axes - 1 - i) for i in range(axes)]
    numbers = (*[2] * (axes - 1), *(n * s for s in steps), *steps)
    operands |= dict(zip(parameters(axes, "x", "r"), numbers, strict=True))
    floats = numbers_of(n, filters["temperature"], filters["top_p"], filters["min_p"])
    operands |= dict(zip(("rate", "top_p", "far", "scale"), floats, strict=True))
    return Sample((rows * B, 1, 1), operands, {"out": Want(tokens)})


CATALOGUE = [
    CatalogueEntry(
        "sample",
        "selection",
        "a token drawn from logits, with top_k, top_p and min_p, without sorting them",
        _build,
        _example,
        (
            Constant("dtype", "float32", "type of a logit", tuple(FLOATS)),
            Constant("axes", 1, "leading axes", tuple(range(1, AXES + 1))),
            Constant("T", FEW, "threads of a block", (32, 64, 128, FEW, 512, MANY)),
            Constant("B", 1, "blocks that share a row, as a cluster", (1, *CLUSTERS[::-1])),
            Constant("V", 4, "logits an access, up to 16 bytes", (1, 2, 4, 8)),
            Constant("TURNS", 1, "vectors that a thread keeps; 0: it reads them again in every pass"),
        ),
        arches=tuple(name for name, target in TARGETS.items() if target.number >= 90),
        variants=(
            {},
            {"T": 64, "B": 4, "TURNS": 2},
            {"T": 64, "B": 2, "TURNS": 0},
            {"dtype": "float64", "V": 2, "T": 64},
            {"dtype": "bfloat16", "V": 8, "T": 64},
        ),
    )
]
