"""The entries of attention_decode's kernels, two of them with the join behind, against float64."""

from collections.abc import Callable, Sequence
from math import tanh
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from trueno_cuda.catalogue.entry import GUARDED, CatalogueEntry, Constant, Result, Trial, Want, compare
from trueno_cuda.device.protocol import Device, Launch
from trueno_cuda.kernels.caches import decode, join, meet, mma, warp
from trueno_cuda.kernels.caches.attend import (
    FILLING,
    LARGE,
    RESIDENT,
    Plan,
    Sizes,
    Tuning,
    by_meeting,
    by_products,
    by_sums,
    resident,
    run,
    scales,
)
from trueno_cuda.kernels.caches.cells import CELLS, CODES, HALVES, Q8, SCALE, Rows
from trueno_cuda.kernels.operands import build, powers
from trueno_cuda.ptx import TARGETS
from trueno_cuda.ptx import Kernel as Built

LENGTHS = 70, 41
CAP = 3.0
U = 2.0**-24
MMA = tuple(arch for arch in TARGETS if arch != "sm_75")
"""Products of 16 numbers are of sm_80 and newer."""
MEET = tuple(arch for arch, target in TARGETS.items() if target.clusters)

Array = np.ndarray[Any, Any]
Share = Callable[[Device, Sizes], tuple[Launch, int]]
"""A launch, and its number of shares for `join`; 0 where none is left to join."""


def _stored(rng: np.random.Generator, rows: Rows, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Random rows in a format, as bytes, and the numbers that they are."""
    if rows.form != "q8_0":
        x = rng.standard_normal((*shape, rows.n)).astype({"f16": np.float16, "bf16": bfloat16}.get(rows.form, "f4"))
        return x.view(np.uint8), x.astype(np.float64)
    codes = rng.integers(-127, 128, (*shape, rows.n // Q8.elements, Q8.elements)).astype(np.int8)
    halves = np.empty((*codes.shape[:-1], HALVES), np.uint16)
    halves[..., SCALE] = np.float16(2.0**-6).view(np.uint16)
    halves[..., CODES:] = codes.view(np.uint16)
    numbers = (codes * 2.0**-6).reshape(*shape, rows.n)
    return halves.view(np.uint8).reshape(*shape, rows.nbytes), numbers


def _want(
    q: Array, keys: Array, values: Array, capped: bool, sinks: Array | None = None
) -> tuple[Array, Array]:  # fmt: skip
    """Attention of the last queries of one sequence in float64, and what it may be off by."""
    (t, hq, d), (s, hk, e) = q.shape, values.shape
    value, bound = np.zeros((t, hq, e)), np.zeros((t, hq, e))
    for i, h in np.ndindex(t, hq):
        seen = slice(0, s - t + i + 1)
        k, v = keys[seen, h * hk // hq], values[seen, h * hk // hq]
        scores = k @ q[i, h] * d**-0.5
        if capped:
            scores = CAP * np.array([tanh(x / CAP) for x in scores])
        sink = -np.inf if sinks is None else float(sinks[h])
        weights = np.exp(scores - scores.max())
        weights /= weights.sum() + np.exp(sink - scores.max())
        most = (np.abs(k) @ np.abs(q[i, h])).max() * d**-0.5
        value[i, h] = weights @ v
        bound[i, h] = (np.expm1(2 * (d + 80) * U * most) + (s + 16) * U) * (weights @ np.abs(v))
    return value, bound


def _trial(
    rng: np.random.Generator, share: Share, form: str, d: int, e: int, t: int, group: int, capped: bool, whole: bool,
    sinks: bool = False, guarded: bool = False,
) -> Trial:  # fmt: skip
    b, hk, page, blocks = len(LENGTHS), 2, LENGTHS[0] if whole else 24, 1 if whole else 3
    sizes = Sizes(b, t, hk * group, hk, b * blocks, page, blocks, Rows(form, d), Rows(form, e), 0, capped)
    q = rng.standard_normal((b, t, hk * group, d)).astype(np.float32)
    (k, keys), (v, values) = (_stored(rng, rows, (b * blocks, page, hk)) for rows in (sizes.keys, sizes.values))
    table, lengths = rng.permutation(b * blocks).reshape(b, blocks), np.array(LENGTHS)
    more = [rng.uniform(-2, 2, hk * group).astype(np.float32)] if sinks else []
    wants = []
    for i, length in enumerate(LENGTHS):
        at = table[i, np.arange(length) // page], np.arange(length) % page
        wants.append(_want(q[i].astype(np.float64), keys[at], values[at], capped, *more))

    def launched(device: Device) -> Sequence[Result]:
        first, count = share(device, sizes)
        rows = b * t * hk * group
        last = join.launch(device, rows, e, count, hk * group, sinks, guarded) if count else None
        there = [device.to_device(np.ascontiguousarray(x)) for x in (q, k, v, table, lengths, *more)]
        out = device.to_device(np.full((b, t, hk * group, e), np.nan, np.float32))
        pointers = [x.data.ptr for x in there]
        run(device, Plan(first, last, count, rows, e), pointers, scales(0.0, CAP * capped, d), out.data.ptr, guarded)
        want = Want(*(np.stack(x) for x in zip(*wants, strict=True)))
        told = [compare("status", np.array(device.take_status()), Want(np.array(0)))] if guarded else []
        return [compare("out", device.to_host(out), want), *told]

    return Trial(launched)


def _of_sums(arch: str, *, form: str, d: int, e: int, R: int, capped: bool, one: bool, whole: bool) -> Built:
    constants = {"F": form, "D": d, "E": e, "R": R, "V": True, "CAP": capped, "ONE": one, "WHOLE": whole}
    return build(decode.source(form), arch, tuple(constants.items()))


def _sums(
    rng: np.random.Generator, *, form: str, d: int, e: int, R: int, capped: bool, one: bool, whole: bool
) -> Trial:
    def share(device: Device, sizes: Sizes) -> tuple[Launch, int]:
        return by_sums(device, sizes, True)

    return _trial(rng, share, form, d, e, 1 if one else 2, R if one else max(R // 2, 1), capped, whole)


def _of_products(
    arch: str, *, form: str, d: int, e: int, tiles: int, along: bool, capped: bool, one: bool, whole: bool
) -> Built:  # fmt: skip
    constants = {"F": form, "D": d, "E": e, "TILES": tiles, "ALONG": along, "CAP": capped, "ONE": one, "WHOLE": whole}
    return build(mma.source(form, RESIDENT.get((form, tiles), FILLING)), arch, tuple(constants.items()))


def _products(
    rng: np.random.Generator, *, form: str, d: int, e: int, tiles: int, along: bool, capped: bool, one: bool,
    whole: bool,
) -> Trial:  # fmt: skip
    rows = warp.rows_of(tiles, along)
    return _trial(rng, by_products, form, d, e, 1 if one else rows // 4, 7 if one else 4, capped, whole)


def _of_meeting(
    arch: str, *, form: str, d: int, e: int, tiles: int, capped: bool, one: bool, whole: bool, blocks: int, warps: int,
    sinks: bool, guarded: bool,
) -> Built:  # fmt: skip
    constants = {"F": form, "D": d, "E": e, "TILES": tiles, "CAP": capped, "ONE": one, "WHOLE": whole,
                 "BLOCKS": blocks, "WARPS": warps}  # fmt: skip
    filling = resident(RESIDENT.get((form, tiles), FILLING), warps)
    return build(meet.source(form, filling, blocks, warps, sinks, guarded), arch, tuple(constants.items()))


def _meeting(
    rng: np.random.Generator, *, form: str, d: int, e: int, tiles: int, capped: bool, one: bool, whole: bool,
    blocks: int, warps: int, sinks: bool, guarded: bool,
) -> Trial:  # fmt: skip
    def share(device: Device, sizes: Sizes) -> tuple[Launch, int]:
        return by_meeting(device, sizes, Tuning(blocks, warps), sinks, guarded), 0

    group = warp.rows_of(tiles, True) // (1 if one else 2)
    return _trial(rng, share, form, d, e, 1 if one else 2, group, capped, whole, sinks, guarded)


COMMON = (
    Constant("d", 64, "numbers of a key"),
    Constant("e", 64, "numbers of a value"),
    Constant("capped", False, "whether scores are capped", (False, True)),
    Constant("one", True, "one query of each sequence", (False, True)),
    Constant("whole", False, "one page of each sequence", (False, True)),
)
BY_PRODUCTS = (
    Constant("form", "f16", "format of the cache", tuple(warp.PACKS)),
    Constant("tiles", 1, "tiles of eight rows of queries of a warp", (1, 2)),
)
CATALOGUE = [
    CatalogueEntry(
        "attention_decode",
        "caches",
        "attention over caches of every format, by fused multiply-adds",
        _of_sums,
        _sums,
        (
            Constant("form", "q8_0", "format of the cache", (*CELLS, "q8_0")),
            Constant("R", 8, "rows of queries of a block", powers(1, decode.MOST_ROWS)),
            *COMMON,
        ),
        variants=({}, {"form": "f32", "d": 36, "e": 8, "R": 4, "one": False, "capped": True}, {"form": "bf16", "R": 1}),
    ),
    CatalogueEntry(
        "attention_decode_mma",
        "caches",
        "attention over caches of 16 bits or q8_0, by matrix products of a warp",
        _of_products,
        _products,
        (
            *BY_PRODUCTS,
            Constant("along", True, "whether warps take turns along the keys", (False, True)),
            *COMMON,
        ),
        MMA,
        variants=(
            {},
            {"form": "bf16", "tiles": 2, "one": False, "whole": True},
            {"form": "q8_0"},
            {"form": "q8_0", "along": False, "tiles": 2, "one": False},
            {"d": 32, "e": 96, "along": False, "one": False, "capped": True},
            {"along": False, "tiles": 2, "one": False},
        ),
    ),
    CatalogueEntry(
        "attention_decode_meet",
        "caches",
        "attention over caches of 16 bits or q8_0 in one launch: the blocks of a cluster join their shares",
        _of_meeting,
        _meeting,
        (
            *BY_PRODUCTS,
            Constant("blocks", 8, "of a cluster", tuple(range(1, LARGE + 1))),
            Constant("warps", 4, "of a block", (4, 8, 12)),
            Constant("sinks", False, "a weight more for each head", (False, True)),
            GUARDED,
            *COMMON,
        ),
        MEET,
        variants=(
            {},
            {"blocks": 1, "form": "q8_0", "guarded": True},
            {"blocks": 3, "form": "bf16", "e": 96, "tiles": 2, "one": False, "whole": True, "sinks": True},
            {"blocks": 16, "warps": 8, "d": 32, "e": 32, "sinks": True, "guarded": True},
            {"blocks": 8, "warps": 8, "form": "q8_0", "one": False, "capped": True},
            {"blocks": 16, "warps": 12, "d": 128, "e": 128},
        ),
    ),
]
