# mypy: disable-error-code="valid-type"
"""topk: a search for the k-th token (`ranking`), then the tokens up to it, each put in the place of its rank.

A token's rank is the number of tokens before it among the k.  Up to `TOGETHER` of them the cluster that searched counts
these itself; of more a second kernel does, with all multiprocessors: k² comparisons, which for large k is far from what
a sort would take, and still less than a millisecond for 50 000.

Floor: the bytes of x, once.  The search reads them some three times more, from L1 or L2.
"""

from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np
from ml_dtypes import bfloat16
from trueno.backend import Call, Kernel

from trueno_cuda.catalogue.entry import GUARDED, CatalogueEntry, Constant, Result, Trial, Want, compare
from trueno_cuda.device.protocol import Device, Launch
from trueno_cuda.kernels.calls import checked, wide
from trueno_cuda.kernels.operands import (
    FLOATS,
    REACH,
    SHAPES,
    VECTOR,
    Shape,
    look,
    prepared,
    status_parameter,
    tell,
    typed,
)
from trueno_cuda.kernels.ranking import Row
from trueno_cuda.kernels.sample import CLUSTERS, FEW, MANY, shape_of, turns_of
from trueno_cuda.kernels.table import KERNELS, RATES
from trueno_cuda.ptx import TARGETS, Builder, Pointer, Source, Value, f64, ptr, u32, u64
from trueno_cuda.ptx import Kernel as Built

TOGETHER = 2048
"""Tokens that the kernel that finds them ranks as well."""
STAGED = 256
"""Tokens that a block compares with at a time; also its threads where it only ranks."""


def _topk(
    k: Builder, x: Pointer, values: Pointer, indices: Pointer, codes: Pointer, found: Pointer, n: Value, share: Value,
    count: Value, status: Pointer | None = None, *, V: int, T: int, B: int, TURNS: int, RANK: bool,
) -> None:  # fmt: skip
    """The `count` largest of a row, by B blocks: codes and places of all in scratch, in any order, and then by rank."""
    row, part = k.ctaid // B, k.ctaid % B
    n, share = k.multiple_of(n, V), k.multiple_of(share, V)
    begin = k.min(part * share, n)
    source = x + k.multiple_of(row.to(u64) * n.to(u64), V)
    tokens = Row(k, source, n, begin, k.min(begin + share, n), V, T, B, TURNS, weighted=False)
    code, place = tokens.first()
    with k.when(count == 1):
        tokens.bound.set(code)
        tokens.bound_place.set(place)
    with k.otherwise():
        always = k.compare("eq", count, count)
        tokens.search(lambda _: count.to(f64) - 1.0, always)
    own, numbers = k.shared(u32, 1), k.shared(u32, 1)
    with k.when(k.tid == 0):
        own.store(0, 0)
        numbers.store(0, 0)
    k.sync()
    for code, at in tokens.elements():
        own.reduce("add", 0, 1, where=tokens.kept(code, at))
    tokens.sync()
    before = k.var(u32, 0)
    if B > 1:
        for b in range(B - 1):
            before += k.select(part > b, k.in_block(own, b).load(0), 0)
    first = row.to(u64) * count.to(u64)
    for code, at in tokens.elements():
        with k.when(tokens.kept(code, at)):
            slot = before + numbers.atomic("add", 0, 1)
            room = slot < count  # the search keeps no more; a mistake there must not reach the next row
            (codes + first).store(slot, code, where=room)
            (found + first).store(slot, at, where=room)
    tokens.sync()
    if RANK:
        _ranked(k, source, values, indices, codes, found, first, n, count, part * T, T * B, status, T)


def _ranked(
    k: Any, x: Pointer, values: Pointer, indices: Pointer, codes: Pointer, found: Pointer, first: Value, n: Value,
    count: Value, begin: Value, step: Value | int, status: Pointer | None, threads: int,
) -> None:  # fmt: skip
    """Give tokens begin + tid, and every `step` further on, the places of their ranks among `count`."""
    bits = k.var(u32, 0)
    kind = codes.element
    staged, places = k.shared(kind, STAGED), k.shared(u32, STAGED)
    for start in k.range(begin, count, step):
        mine = start + k.tid
        live = mine < count
        code, place = (codes + first).load(mine, where=live), (found + first).load(mine, where=live)
        rank = k.var(u32, 0)
        for other in k.range(0, count, STAGED):
            k.sync()
            for at in range(0, STAGED, threads):
                here = k.tid + at
                inside = (other + here < count) & (here < STAGED)
                top = (1 << kind.bits) - 1
                loaded = (codes + first).load(other + here, where=inside, other=top)
                its_place = (found + first).load(other + here, where=inside, other=(1 << 32) - 1)
                if threads <= STAGED:
                    staged.store(here, loaded)
                    places.store(here, its_place)
                else:
                    staged.store(here, loaded, where=here < STAGED)
                    places.store(here, its_place, where=here < STAGED)
            k.sync()
            for i in k.range(k.min(k.sub(count, other), STAGED)):
                a, b = staged.load(i), places.load(i)
                rank += ((a < code) | ((a == code) & (b < place))).to(u32)
        known = live & (place < n)  # nor reads behind x where the search found too few
        value = x.load(place, where=known)
        to = first + rank.to(u64)
        values.store(to, value, where=known)
        indices.store(to, place.to(u64), where=known)
        if status is not None:
            look(k, bits, k.select(known, value, 0.0))
    if status is not None:
        tell(k, bits, status)


def _rank(
    k: Builder, x: Pointer, values: Pointer, indices: Pointer, codes: Pointer, found: Pointer, n: Value, share: Value,
    count: Value, status: Pointer | None = None,
) -> None:  # fmt: skip
    """As the end of `_topk`: a block for `STAGED` tokens; share: blocks of a row."""
    row, part = k.ctaid // share, k.ctaid % share
    first = row.to(u64) * count.to(u64)
    source = x + row.to(u64) * n.to(u64)
    _ranked(k, source, values, indices, codes, found, first, n, count, part * STAGED, share * STAGED, status, STAGED)


@cache
def source(dtype: str, guarded: bool, threads: int, blocks: int, rank: bool, only: bool = False) -> Source:
    """The kernel, whose constants are V and TURNS; only: the one that ranks what another found, without constants."""
    kind = FLOATS[dtype]
    code = u64 if kind is f64 else u32

    def topk_rows(k: Builder, *, V: int, TURNS: int, **given: Any) -> None:
        _topk(k, **given, V=V, T=threads, B=blocks, TURNS=TURNS, RANK=rank)

    def topk_ranks(k: Builder, **given: Any) -> None:
        _rank(k, **given)

    told = status_parameter(guarded and (rank or only))
    pointers = {"x": ptr(kind), "values": ptr(kind), "indices": ptr(u64), "codes": ptr(code), "found": ptr(u32)}
    name = f"topk{'_ranks' * only}_{kind}{'_guarded' * bool(told)}_t{threads}_b{blocks}{'' if rank else '_found'}"
    sizes = dict.fromkeys(("n", "share", "count"), u32)
    cluster = blocks if blocks > 1 else None
    return typed(topk_ranks if only else topk_rows, name, threads, {**pointers, **told, **sizes}, cluster=cluster)


def launches(
    device: Device, rows: int, n: int, count: int, dtype: str, aligned: bool, guarded: bool
) -> list[tuple[Launch, bool]]:
    """Launches on (x, values, indices, codes, found), and whether they take the status word."""
    vec = VECTOR // FLOATS[dtype].bytes
    if not aligned or n % vec:
        vec = 1
    threads, blocks = shape_of(device, rows, n)
    together = count <= TOGETHER
    share = -(-n // (blocks * vec)) * vec
    built = source(dtype, guarded, threads, blocks, together)
    constants = {"V": vec, "TURNS": turns_of(device, share, vec, threads, FLOATS[dtype].bytes)}
    planned = [(prepared(device, built, constants, rows * blocks, (n, share, count)), guarded and together)]
    if not together:
        per_row = max(min(-(-count // STAGED), REACH // rows), 1)
        built = source(dtype, guarded, STAGED, 1, True, only=True)
        planned.append((prepared(device, built, {}, rows * per_row, (n, per_row, count)), guarded))
    return planned


@KERNELS.add("topk", rates=RATES, dtypes=tuple(FLOATS))
def topk(device: Device, call: Call) -> Kernel:
    """x[...,n] -> values[...,k] indices[...,k]."""
    dtype, guarded = call.dtype.name, call.guarded
    code = np.dtype(np.uint64 if dtype == "float64" else np.uint32)

    def plan(x: Shape, values: Shape, indices: Shape, aligned: bool) -> list[tuple[Launch, bool]] | None:
        if not x or not values == indices == (*x[:-1], values[-1]) or values[-1] > x[-1] or x[-1] >= REACH:
            return None
        rows = prod(x[:-1])
        return launches(device, rows, x[-1], values[-1], dtype, aligned, guarded) if 0 not in values else []

    plans = lru_cache(SHAPES)(plan)

    def kernel(x: Any, values: Any, indices: Any) -> int:
        pointers = checked(device, (x,), (values, indices))
        planned = None if pointers is None else plans(x.shape, values.shape, indices.shape, wide(pointers[0]))
        if planned is None or pointers is None:
            return -1
        if planned:
            scratch = device.empty((values.size,), code), device.empty((values.size,), np.dtype(np.uint32))
            pointers += [a.data.ptr for a in scratch]
        for launch, told in planned:
            launch([*pointers, device.status()] if told else pointers)
        return 0

    return kernel


# ------------------------------------------------------------------------------------- catalogue


def _build(arch: str, *, dtype: str, guarded: bool, T: int, B: int, V: int, TURNS: int) -> Built:
    return source(dtype, guarded, T, B, True).build(arch, V=V, TURNS=TURNS)


def _trial(rng: np.random.Generator, *, dtype: str, guarded: bool, T: int, B: int, V: int, TURNS: int) -> Trial:
    """Two rows, where a fifth of the numbers are equal to others."""
    rows, n = 2, V * (T // 8 + 3) * B
    count, kind = min(37, n), np.dtype(bfloat16 if dtype == "bfloat16" else dtype)
    x = rng.standard_normal((rows, n)).astype(kind)
    x[:, rng.integers(0, n, n // 5)] = x[:, :1]
    order = np.argsort(-x.astype(np.float64), axis=-1, kind="stable")[:, :count]
    scratch = np.dtype(np.uint64 if dtype == "float64" else np.uint32)

    def run(device: Device) -> list[Result]:
        kernel = _build(device.arch, dtype=dtype, guarded=guarded, T=T, B=B, V=V, TURNS=TURNS)
        outs = [device.to_device(np.zeros((rows, count), t)) for t in (kind, np.int64, scratch, np.uint32)]
        outs += [device.to_device(np.zeros(1, np.uint32))] * guarded
        numbers = (n, -(-n // (B * V)) * V, count)
        launch = device.prepare(kernel, (rows * B, 1, 1), numbers)
        given = device.to_device(x)
        launch([a.data.ptr for a in (given, *outs)])
        wants = {"values": np.take_along_axis(x, order, -1), "indices": order}
        results = [compare(n, device.to_host(a), Want(w)) for (n, w), a in zip(wants.items(), outs, strict=False)]
        told = [compare("status", device.to_host(outs[-1]), Want(np.zeros(1, np.uint32)))] if guarded else []
        return results + told

    return Trial(run)


CATALOGUE = [
    CatalogueEntry(
        "topk",
        "selection",
        "the largest numbers of rows in order, and their places",
        _build,
        _trial,
        (
            Constant("dtype", "float32", "type of a number", tuple(FLOATS)),
            GUARDED,
            Constant("T", FEW, "threads of a block", (32, 64, 128, FEW, 512, MANY)),
            Constant("B", 1, "blocks that share a row, as a cluster", (1, *CLUSTERS[::-1])),
            Constant("V", 4, "numbers an access, up to 16 bytes", (1, 2, 4, 8)),
            Constant("TURNS", 1, "vectors that a thread keeps; 0: it reads them again in every pass"),
        ),
        arches=tuple(name for name, target in TARGETS.items() if target.number >= 90),
        variants=(
            {},
            {"T": 64, "B": 4, "TURNS": 0, "guarded": True},
            {"dtype": "float64", "V": 2, "T": 64},
            {"dtype": "float16", "V": 8, "T": 64},
        ),
    )
]
