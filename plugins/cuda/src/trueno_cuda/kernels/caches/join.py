# mypy: disable-error-code="valid-type"
"""The last kernel of attention_decode: shares of the keys become results.

A share of a row is a maximum m, a sum of weights l = Σ 2^(score − m), and its sums of weighted values.  Few rows are
spread over many blocks: one takes 32 columns of a row, eight lanes a share.  Of many rows a warp takes one, and its
shares in turn.  Every warp reads the stats of all shares of its row.  A sink is one more weight.  A row that has no
weight at all is 0.  What lies in memory for an empty share is read, as the stats are not known yet, and left out.

Floor: 4 e bytes of each share of a row read; they lie in L2, and latency decides.
"""

from functools import cache
from math import e as EULER
from math import inf, log2
from typing import Any

import numpy as np

from trueno_cuda.catalogue.entry import GUARDED, CatalogueEntry, Constant, Sample, Want
from trueno_cuda.device.protocol import Device, Launch
from trueno_cuda.kernels.caches.shares import across, finite
from trueno_cuda.kernels.operands import build, look, powers, status_parameter, tell, typed
from trueno_cuda.ptx import Builder, Pointer, Source, Value, f32, ptr, u32, u64
from trueno_cuda.ptx import Kernel as Built

THREADS = 128
WARPS = THREADS // 32
SPREAD = 32
"""Columns of a block where rows are few; else all, 128 at a time."""
TEAMS = THREADS * 4 // SPREAD
"""Shares that such a block takes at once."""
MANY = 4
"""Rows for each multiprocessor from which on they are many."""
MOST_PARTS = 64
LOG2_E = log2(EULER)


def _join(
    k: Builder, parts: Pointer, stats: Pointer, out: Pointer, rows: Value, count: Value, hq: Value,
    sinks: Pointer | None = None, status: Pointer | None = None, *, E: int, TURNS: int, FEW: bool,
) -> None:  # fmt: skip
    """out[row] = Σ over parts of 2^(m − M) sums / Σ of 2^(m − M) l.  TURNS: parts that a team may have.  FEW: rows."""
    teams, lanes = (TEAMS, SPREAD // 4) if FEW else (1, 32)
    number = k.ctaid if FEW else k.ctaid * WARPS + k.warp
    row, exists = (number, None) if FEW else (k.min(number, rows - 1), number < rows)
    tops, totals = [], []
    for i in range(-(-TURNS * teams // 32)):
        part = k.lane + 32 * i
        top, total = stats.load((k.mul_wide(part, rows) + row.to(u64)) * 2, vec=2, where=part < count)
        tops.append(k.select(part < count, top, -inf))
        totals.append(total)
    team = k.tid // lanes if FEW else k.const(u32, 0)
    column = k.ctaid_y * (4 * lanes) + k.lane % lanes * 4
    sums, read = k.vars(f32, 4, 0.0), []
    for j in range(TURNS):
        part = team + teams * j
        source = parts + (k.mul_wide(part, rows) + row.to(u64)) * E
        if E % 4:
            read.append([source.load(column + i, where=(part < count) & (column + i < E)) for i in range(4)])
        else:
            read.append(source.load(column, vec=4, where=(part < count) & (column < E)))
    largest = tops[0]
    for top in tops[1:]:
        largest = k.max(largest, top)
    largest = k.warp_max(largest)
    sink = sinks.load(row % hq) * LOG2_E if sinks is not None else None
    if sink is not None:
        largest = k.select(largest == -inf, largest, k.max(largest, sink))  # no key seen: 0, whatever the sink
    reference = finite(k, largest)
    weights = [k.exp2(top - reference, ftz=True) for top in tops]
    terms = [k.select(total == 0.0, 0.0, total * w) for total, w in zip(totals, weights, strict=True)]
    sum_ = terms[0]
    for term in terms[1:]:
        sum_ = sum_ + term
    whole = k.warp_sum(sum_)
    some = whole != 0.0
    if sink is not None:
        whole = whole + k.exp2(sink - reference, ftz=True)
    for j, values in enumerate(read):
        at = team + (teams * j) % 32
        weight, total = (k.shuffle(x[teams * j // 32], "idx", at) for x in (weights, totals))
        for s, value in zip(sums, values, strict=True):
            s.fma(weight, k.select(total > 0.0, value, 0.0))
    bits = k.var(u32, 0)

    def stored(total: Value, at: Value, live: Value) -> None:
        result = k.select(some, total / whole, 0.0)  # a NaN differs from 0, and stays
        out.store(row.to(u64) * E + at.to(u64), result, where=live)
        if status is not None:
            look(k, bits, k.select(live, result, 0.0))

    if FEW:
        held = k.shared(f32, WARPS, SPREAD)
        held_sums = [across(k, s.value, "add", (8, 16)) for s in sums]
        with k.when(k.lane < lanes):
            held.store((k.warp, k.lane * 4), held_sums)
        k.sync()
        at = k.tid % SPREAD
        total = held.load((0, at))
        for w in range(1, WARPS):
            total = total + held.load((w, at))
        at = k.ctaid_y * SPREAD + at
        stored(total, at, (k.tid < SPREAD) & (at < E))
    else:
        for i in range(4):
            stored(sums[i].value, column + i, exists & (column + i < E))
    if status is not None:
        tell(k, bits, status)


@cache
def source(sinks: bool, guarded: bool) -> Source:
    more = {"sinks": ptr(f32)} if sinks else {}
    operands = {"parts": ptr(f32), "stats": ptr(f32), **more, "out": ptr(f32), **status_parameter(guarded)}
    name = f"attention_join{'_sinks' * sinks}{'_guarded' * guarded}"
    return typed(_join, name, THREADS, {**operands, "rows": u32, "count": u32, "hq": u32})


def turns(count: int, few: bool) -> int:
    """How many parts a team has, of few choices, since each is a build."""
    return next(n for n in powers(1, MOST_PARTS) if n * (TEAMS if few else 1) >= count)


def launch(device: Device, rows: int, e: int, count: int, hq: int, sinks: bool, guarded: bool) -> Launch:
    """A launch that joins so many parts of each row; none at all give 0."""
    few = rows < MANY * device.sms
    kernel = build(source(sinks, guarded), device.arch, (("E", e), ("TURNS", turns(count, few)), ("FEW", few)))
    return device.prepare(kernel, _grid(rows, e, few), (rows, count, hq))


def _grid(rows: int, e: int, few: bool) -> tuple[int, int, int]:
    return (rows, -(-e // SPREAD), 1) if few else (-(-rows // WARPS), -(-e // 128), 1)


# ------------------------------------------------------------------------------------- catalogue


def _build(arch: str, *, E: int, TURNS: int, FEW: bool, sinks: bool, guarded: bool) -> Built:
    return build(source(sinks, guarded), arch, (("E", E), ("TURNS", TURNS), ("FEW", FEW)))


def _sample(rng: np.random.Generator, *, E: int, TURNS: int, FEW: bool, sinks: bool, guarded: bool) -> Sample:
    rows, count, hq = 6, max(TURNS * (TEAMS if FEW else 1) - 1, 1), 3
    parts = rng.standard_normal((count, rows, E)).astype(np.float32)
    stats = np.stack([rng.uniform(-3, 3, (count, rows)), rng.uniform(1, 9, (count, rows))], -1).astype(np.float32)
    parts[0, 1], stats[0, 1] = np.nan, (-np.inf, 0.0)  # an empty share
    parts[:, 2], stats[:, 2] = np.nan, (-np.inf, 0.0)  # a row without keys
    wide = stats.astype(np.float64)
    weights = np.exp2(wide[..., 0])
    total = (weights * wide[..., 1]).sum(0)
    sums = (np.where(np.isnan(parts), 0, parts) * weights[..., None]).sum(0)
    size = (np.abs(np.where(np.isnan(parts), 0, parts)) * weights[..., None]).sum(0)
    operands: dict[str, Any] = {"parts": parts, "stats": stats, "out": np.full((rows, E), np.nan, np.float32)}
    if sinks:
        operands["sinks"] = rng.uniform(-2, 2, hq).astype(np.float32)
        total = total + np.exp(operands["sinks"].astype(np.float64))[np.arange(rows) % hq]
    wants = {}
    if guarded:
        operands["status"], wants["status"] = np.zeros(1, np.uint32), Want(np.ones(1, np.uint32))
        stats[0, 0] = 0.0, np.nan  # a length beyond the table
        total[0] = np.nan
    seen = np.arange(rows) != 2
    some = np.where(total == 0, 1, total)[:, None]
    value, bound = (np.where(seen[:, None], x / some, 0) for x in (sums, size * (count + 16) * 2.0**-23))
    operands |= {"rows": rows, "count": count, "hq": hq}
    return Sample(_grid(rows, E, FEW), operands, {"out": Want(value, bound + 1e-30), **wants})


CATALOGUE = [
    CatalogueEntry(
        "attention_join",
        "caches",
        "shares of the keys become results, by their maxima and sums of weights",
        _build,
        _sample,
        (
            Constant("E", 128, "numbers of a value"),
            Constant("TURNS", 2, "parts that a team of lanes may have", powers(1, MOST_PARTS)),
            Constant("FEW", True, "few rows: a block takes 32 columns of one, else a warp a row", (False, True)),
            Constant("sinks", False, "a weight more for each head", (False, True)),
            GUARDED,
        ),
        variants=(
            {},
            {"E": 5, "TURNS": 1, "guarded": True},
            {"E": 132, "TURNS": 4, "sinks": True},
            {"E": 132, "TURNS": 4, "FEW": False, "sinks": True, "guarded": True},
            {"E": 7, "TURNS": 1, "FEW": False},
        ),
    )
]
