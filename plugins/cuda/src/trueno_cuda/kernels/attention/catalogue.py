"""The catalogue's entries of attention: the kernel by fma, and that of tensor cores with what splits float32 for it."""

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from trueno_cuda.catalogue.entry import ALL, GUARDED, CatalogueEntry, Constant, Result, Trial, Want, compare
from trueno_cuda.device.protocol import Device
from trueno_cuda.kernels.attention import simt, wgmma
from trueno_cuda.kernels.attention.fragments import Parts
from trueno_cuda.kernels.attention.mma import Tile
from trueno_cuda.kernels.attention.plan import Choice, Plan, plan, sizes_of
from trueno_cuda.kernels.attention.prefill import run
from trueno_cuda.kernels.gemm.catalogue import Planned
from trueno_cuda.kernels.operands import FLOATS
from trueno_cuda.ptx import Kernel

Array = np.ndarray[Any, Any]
UNITS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-52}
"""What rounding moves a result by, of its size; of float64 twice that, as NumPy rounds, too."""
SHAPE = {"t": 21, "s": 38, "hq": 4, "hk": 2, "d": 20, "e": 18}
OFFSETS = [1, 8, 8, 20], [0, 9, 9, 37]
WINDOW, CAP, HIDDEN = 13, 3.0, 0.2


def _operands(rng: np.random.Generator, dtype: str, extra: str) -> list[Array]:
    kind = bfloat16 if dtype == "bfloat16" else dtype
    t, s, hq, hk, d, e = SHAPE.values()
    arrays = [rng.standard_normal(shape).astype(kind) for shape in ((t, hq, d), (s, hk, d), (s, hk, e))]
    if extra == "sinks":
        arrays.append(rng.standard_normal(hq).astype(kind))
    if extra == "mask":
        mask = np.where(rng.random((hq, 1, s)) < HIDDEN, -inf, rng.standard_normal((hq, 1, s)))
        arrays.append(mask.astype(kind))
    if extra == "ragged":
        arrays += [np.array(x, np.int64) for x in OFFSETS]
    return [*arrays, np.zeros((t, hq, e), kind)]


def _planned(device: Device, choice: Choice, dtype: str, extra: str, capped: bool, guarded: bool) -> Plan:
    q, k, v, *more, out = (x.shape for x in _operands(np.random.default_rng(0), dtype, extra))
    sizes = sizes_of(extra, q, k, v, more, out)
    assert sizes is not None
    window = WINDOW if extra != "mask" else 0
    return plan(device, sizes, FLOATS[dtype], extra, True, window, capped=capped, guarded=guarded, choice=choice)


def _build(arch: str, choice: Choice, **constants: Any) -> tuple[Kernel, ...]:
    device = Planned(arch)
    _planned(device, choice, **constants)
    return tuple(device.kernels.values())


def _formula(q: Array, k: Array, v: Array, extra: str, more: Sequence[Array], capped: bool) -> Array:
    """In float64, with the weights of all keys at once."""
    if extra == "ragged":
        y = np.zeros((*q.shape[:2], v.shape[-1]))
        for i in range(len(OFFSETS[0]) - 1):
            a, b = (slice(*offsets[i : i + 2]) for offsets in OFFSETS)
            y[a] = _formula(q[a], k[b], v[b], "", (), capped)
        return y
    group, t, s = q.shape[1] // k.shape[1], len(q), len(k)
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(q.shape[-1])
    if capped:
        scores = CAP * np.tanh(scores / CAP)
    behind = s - t + np.arange(t)[:, None] - np.arange(s)
    seen = (behind >= 0) & ((behind < WINDOW) | (extra == "mask"))
    scores = np.where(seen, scores + (more[0] if extra == "mask" else 0), -inf)
    top = np.maximum(scores.max(-1, initial=-1e300), more[0][:, None] if extra == "sinks" else -inf)[..., None]
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    if extra == "sinks":
        total = total + np.exp(more[0][:, None, None] - top)
    weights = np.divide(weights, total, where=total > 0, out=np.zeros_like(weights))
    mixed: Array = np.einsum("hts,she->the", weights, v)
    return mixed


def _trial(rng: np.random.Generator, choice: Choice, *, dtype: str, extra: str, capped: bool, guarded: bool) -> Trial:
    *given, out = _operands(rng, dtype, extra)
    q, k, v, *more = (x if x.dtype == np.int64 else x.astype(np.float64) for x in given)
    value, size = (_formula(q, k, x, extra, more, capped) for x in (v, np.abs(v)))
    unit = UNITS["float64" if dtype == "float64" else "float32"]
    terms = 2 * SHAPE["s"] + 4 * SHAPE["d"] + 100
    bound = terms * unit * size + (0 if dtype in ("float32", "float64") else 1.01 * UNITS[dtype]) * np.abs(value)

    def launched(device: Device) -> list[Result]:
        planned = _planned(device, choice, dtype, extra, capped, guarded)
        arrays = [device.to_device(x) for x in (*given, out)]
        word = [device.to_device(np.zeros(1, np.uint32))] * guarded
        pointers = [x.data.ptr for x in (*arrays, *word)]
        run(device, planned, pointers, out.dtype.itemsize, SHAPE["d"], 0.0, CAP if capped else 0.0)
        results = [compare("out", device.to_host(arrays[-1]), Want(value, np.maximum(bound, 1e-30)))]
        if guarded:
            results.append(compare("status", device.to_host(word[0]), Want(np.zeros(1, np.uint32))))
        return results

    return Trial(launched)


def _simt(rows: int) -> Choice:
    return Choice(simt.Tile(rows, 1))


def _mma(dtype: str, parts: int) -> Choice:
    own = Parts(3, parts, parts) if dtype == "float32" else Parts(1, parts, 1)
    return Choice(Tile(4, 1, 16, 32, 32), own)


def _wgmma(dtype: str, parts: int, keys: int) -> Choice:
    own = Parts(3, parts, parts) if dtype == "float32" else Parts(1, parts, 1)
    return Choice(wgmma.Tile(2, keys, 2, 64, 64), own)


def _build_wgmma(arch: str, *, parts: int, keys: int, **constants: Any) -> tuple[Kernel, ...]:
    return _build(arch, _wgmma(constants["dtype"], parts, keys), **constants)


def _sample_wgmma(rng: np.random.Generator, *, parts: int, keys: int, **constants: Any) -> Trial:
    return _trial(rng, _wgmma(constants["dtype"], parts, keys), **constants)


def _build_simt(arch: str, *, rows: int, **constants: Any) -> tuple[Kernel, ...]:
    return _build(arch, _simt(rows), **constants)


def _sample_simt(rng: np.random.Generator, *, rows: int, **constants: Any) -> Trial:
    return _trial(rng, _simt(rows), **constants)


def _build_mma(arch: str, *, parts: int, **constants: Any) -> tuple[Kernel, ...]:
    return _build(arch, _mma(constants["dtype"], parts), **constants)


def _sample_mma(rng: np.random.Generator, *, parts: int, **constants: Any) -> Trial:
    return _trial(rng, _mma(constants["dtype"], parts), **constants)


EXTRA = Constant("extra", "", "what else it takes", ("", "sinks", "mask", "ragged"))
CAPPED = Constant("capped", False, "cap scores", (False, True))

CATALOGUE = [
    CatalogueEntry(
        "attention_simt",
        "attention",
        "attention over whole prompts by fma, of any size",
        _build_simt,
        _sample_simt,
        (
            Constant("dtype", "float32", "type of an element", tuple(FLOATS)),
            EXTRA, CAPPED, GUARDED,
            Constant("rows", 16, "rows of a block", (16, 64)),
        ),
        arches=ALL[1:],
        variants=(
            {},
            {"dtype": "bfloat16", "extra": "mask"},
            {"extra": "sinks", "guarded": True},
            {"dtype": "float64", "rows": 64},
        ),
    ),
    CatalogueEntry(
        "attention_mma",
        "attention",
        "attention over whole prompts by tensor cores; float32 in parts of bfloat16",
        _build_mma,
        _sample_mma,
        (
            Constant("dtype", "bfloat16", "type of an element", ("float16", "bfloat16", "float32")),
            EXTRA, CAPPED, GUARDED,
            Constant("parts", 3, "16-bit parts of weights, and of values of float32", (1, 2, 3)),
        ),
        arches=ALL[1:],
        variants=(
            {},
            {"dtype": "float32", "extra": "ragged", "guarded": True},
            {"dtype": "float16", "extra": "mask", "capped": True, "parts": 2},
            {"extra": "sinks"},
        ),
    ),
    CatalogueEntry(
        "attention_wgmma",
        "attention",
        "attention over whole prompts by wgmma; float32 in parts of bfloat16",
        _build_wgmma,
        _sample_wgmma,
        (
            Constant("dtype", "bfloat16", "type of an element", ("float16", "bfloat16", "float32")),
            Constant("extra", "", "what else it takes", ("", "sinks", "mask")), CAPPED, GUARDED,
            Constant("parts", 2, "16-bit parts of weights, and of values of float32", (1, 2, 3)),
            Constant("keys", 16, "keys at a time", (16, 32, 64)),
        ),
        arches=("sm_90a",),
        variants=({}, {"dtype": "float32", "extra": "mask", "guarded": True}),
    ),
]  # fmt: skip
