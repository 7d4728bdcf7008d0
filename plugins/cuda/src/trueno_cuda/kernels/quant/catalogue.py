"""The catalogue's entries of what reads or writes whole matrices of blocks: products of many rows, of blocks along the
other axis, with experts, and quantizing.  Each sample is a call of the op with its launches.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from trueno.backend import FORMATS, decode, encode, rounded_activations, rounded_weights

from trueno_cuda.catalogue.entry import GUARDED, CatalogueEntry, Constant, Result, Trial, Want, compare
from trueno_cuda.device.protocol import Device
from trueno_cuda.kernels.gemm.catalogue import TENSOR_UNIT, Planned
from trueno_cuda.kernels.quant.columns import runner
from trueno_cuda.kernels.quant.experts import Experts
from trueno_cuda.kernels.quant.many import Many
from trueno_cuda.kernels.quant.quantize import ENCODERS, WARPS, quantizing
from trueno_cuda.kernels.quant.task import Norm
from trueno_cuda.kernels.quant.tiling import Tiled, Tuning, alone
from trueno_cuda.ptx import TARGETS, Kernel

Array = np.ndarray[Any, Any]
MATRICES = tuple(name for name, f in FORMATS.items() if f.weights)
SIMPLE = tuple(name for name in MATRICES if FORMATS[name].encoder in ENCODERS)
FORMAT = Constant("format", "q4_k", "of the blocks", MATRICES)
ACTIVATIONS = Constant("activations", "bf16", "how a product sees x", ("bf16", "f32", "q8"))
AMPERE = tuple(arch for arch in TARGETS if arch != "sm_75")


def _built(arch: str, plan: Callable[[Device], Any]) -> tuple[Kernel, ...]:
    device: Any = Planned(arch)
    plan(device)
    return tuple(device.kernels.values())


def _numbers(rng: np.random.Generator, format: str, rows: int, k: int) -> Array:
    return encode(FORMATS[format], (rng.standard_normal((rows, k)) * 0.1).astype(np.float32))


def _tried(device: Device, operands: list[Array], want: Want, guarded: bool, run: Callable[..., Any]) -> list[Result]:
    """`run(*addresses of operands and result, *status)` on a device, and how its result compares."""
    there = [device.to_device(x) for x in operands]
    out = device.to_device(np.full(want.value.shape, np.nan, np.float32))
    run(*(x.data.ptr for x in (*there, out)), *((device.status(),) if guarded else ()))
    results = [compare("out", device.to_host(out), want)]
    if guarded:
        status = np.array([device.take_status()], np.uint32)
        results.append(compare("status", status, Want(np.array([2], np.uint32))))
    return results


def _want(x: Array, w: Array) -> Want:
    """x · wᵀ, both as the product sees them."""
    wide, numbers = x.astype(np.float64), w.astype(np.float64)
    with np.errstate(invalid="ignore"):
        value, size = wide @ numbers.T, np.abs(wide) @ np.abs(numbers).T
    return Want(value, (x.shape[-1] + 4) * TENSOR_UNIT * size)


# ------------------------------------------------------------------------------------- many rows

M, N = 20, 44


def _many(device: Device, format: str, activations: str, guarded: bool) -> Many:
    f = FORMATS[format]
    return Many(device, f, activations, M, N, f.elements * (256 // f.elements), True, guarded=guarded)


def _build_many(arch: str, **constants: Any) -> tuple[Kernel, ...]:
    return _built(arch, lambda device: _many(device, **constants))


def _sample_many(rng: np.random.Generator, *, format: str, activations: str, guarded: bool) -> Trial:
    f = FORMATS[format]
    w, x = _numbers(rng, format, N, 256), rng.standard_normal((M, 256)).astype(np.float32)
    if guarded:
        x[:, 7] *= 1e35
        x = np.where(np.abs(x) > 1e34, np.copysign(np.float32(3e38), x), x)
        w = encode(f, np.full((N, 256), 100, np.float32))
    seen, numbers = rounded_activations(x, f, activations), rounded_weights(w, f, activations)
    want = _want(seen, numbers)
    if guarded:
        want = Want(np.where(np.abs(want.value) > 3e38, np.copysign(np.inf, want.value), want.value), want.bound)

    def run(device: Device) -> list[Result]:
        many = _many(device, format, activations, guarded)
        memory = device.scratch(many.nbytes)

        def launch(w: int, x: int, out: int, *status: int) -> None:
            many.run(memory.data.ptr, w, x, out, status=status)

        return _tried(device, [w, x], want, guarded, launch)

    return Trial(run)


def _tiles(device: Device, *, format: str, high: int, turns: int, stages: int, bulk: bool, norm: bool) -> Tiled:
    tuning, before = Tuning(high, turns, 1, stages, bulk), Norm(1, 0) if norm else None
    return alone(device, FORMATS[format], M, N, 512, stages > 0, tuning=tuning, norm=before)


def _build_tiles(arch: str, **constants: Any) -> tuple[Kernel, ...]:
    return _built(arch, lambda device: _tiles(device, **constants))


def _sample_tiles(rng: np.random.Generator, *, format: str, norm: bool, **constants: Any) -> Trial:
    """With a norm, of numbers that are alike but for their signs: 8 bits then hold what it makes of them."""
    f = FORMATS[format]
    w, x = _numbers(rng, format, N, 512), rng.standard_normal((M, 512)).astype(np.float32)
    seen, weight = rounded_activations(x, f, "q8"), np.full(512, -2, np.float32)
    if norm:
        x = rng.choice(np.float32([-3, 3]), x.shape)
        seen = x.astype(np.float64) * -2 / np.sqrt(9.25)
    want = _want(seen, decode(f, w))
    if norm:
        want = Want(want.value, 4 * want.bound)  # the norm, and scales that are rounded

    def run(device: Device) -> list[Result]:
        tiled = _tiles(device, format=format, norm=norm, **constants)
        memory = device.scratch(tiled.nbytes)

        def launch(w: int, x: int, weight: int, out: int) -> None:
            tiled.run(memory.data.ptr, x, [w, weight], [out], (0.25,) if norm else ())

        return _tried(device, [w, x, weight], want, False, launch)

    return Trial(run)


# ------------------------------------------------------------------------------------- blocks along the other axis


def _build_columns(arch: str, *, format: str, rows: int) -> tuple[Kernel, ...]:
    f = FORMATS[format]
    return _built(arch, lambda device: runner(device, f, rows, 2 * f.elements, 80, True, False))


def _sample_columns(rng: np.random.Generator, *, format: str, rows: int) -> Trial:
    f = FORMATS[format]
    w, x = _numbers(rng, format, 80, 2 * f.elements), rng.standard_normal((rows, 80)).astype(np.float32)
    want = _want(x, np.ascontiguousarray(decode(f, w).T))

    def run(device: Device) -> list[Result]:
        return _tried(device, [w, x], want, False, runner(device, f, rows, 2 * f.elements, 80, True, False))

    return Trial(run)


# ------------------------------------------------------------------------------------- experts

EXPERTS, OUTPUTS = 5, 21


def _experts(device: Device, format: str, activations: str) -> Experts:
    f, k = FORMATS[format], 256
    shapes = (EXPERTS * OUTPUTS, f.row_bytes(k)), (3, 1, k), (3, 2), (3, 2, OUTPUTS)
    return Experts(device, f, activations, shapes, True, False)


def _build_experts(arch: str, **constants: Any) -> tuple[Kernel, ...]:
    return _built(arch, lambda device: _experts(device, **constants))


def _sample_experts(rng: np.random.Generator, *, format: str, activations: str) -> Trial:
    f, k = FORMATS[format], 256
    w, x = _numbers(rng, format, EXPERTS * OUTPUTS, k), rng.standard_normal((3, 1, k)).astype(np.float32)
    ids = rng.integers(0, EXPERTS, (3, 2))
    seen = np.broadcast_to(rounded_activations(x, f, activations), (3, 2, k))
    numbers = rounded_weights(w, f, activations).reshape(EXPERTS, OUTPUTS, k)[ids]
    wants = [_want(a[None], b) for a, b in zip(seen.reshape(6, k), numbers.reshape(6, OUTPUTS, k), strict=True)]
    shape = 3, 2, OUTPUTS
    want = Want(*(np.concatenate(v).reshape(shape) for v in ([a.value for a in wants], [a.bound for a in wants])))
    ids[2, 1] = EXPERTS  # outside
    want.value[2, 1] = np.nan

    def run(device: Device) -> list[Result]:
        planned = _experts(device, format, activations)
        return _tried(device, [w, x, ids], want, False, lambda *pointers: planned.run(pointers))

    return Trial(run)


# ------------------------------------------------------------------------------------- quantizing


def _build_quantize(arch: str, *, format: str) -> Kernel:
    return quantizing(arch, format, False)


def _sample_quantize(rng: np.random.Generator, *, format: str) -> Trial:
    f = FORMATS[format]
    x = (rng.standard_normal((9, 96)) * np.exp2(rng.integers(-20, 20, (9, 1)))).astype(np.float32)
    x[3] = 0
    want = encode(f, x)

    def run(device: Device) -> list[Result]:
        there, out = device.to_device(x), device.to_device(np.full(want.shape, 0xAB, np.uint8))
        count = x.size // f.elements
        launch = device.prepare(quantizing(device.arch, format, False), (-(-count // WARPS), 1, 1), (count,))
        launch((there.data.ptr, out.data.ptr))
        return [compare("out", device.to_host(out), Want(want))]

    return Trial(run)


CATALOGUE = [
    CatalogueEntry(
        "quant_many", "blocks", "x wᵀ of many rows: blocks decoded to bfloat16 for tensor cores",
        _build_many, _sample_many, (FORMAT, ACTIVATIONS, GUARDED), AMPERE,
        ({}, {"format": "q6_k", "activations": "q8"}, {"format": "q4_0", "activations": "q8"},
         {"format": "q5_1", "activations": "f32", "guarded": True}),
    ),
    CatalogueEntry(
        "quant_tiles", "blocks", "x wᵀ of 3 rows and more with 8-bit activations, by int8 tensor cores",
        _build_tiles, _sample_tiles,
        (FORMAT, Constant("high", 1, "tiles of a block at once", (1, 2, 3)),
         Constant("turns", 2, "warps that share a tile", (1, 2, 3, 4)),
         Constant("stages", 3, "spans of a warp in shared memory", (0, 2, 3, 4)),
         Constant("bulk", False, "whether they come by bulk copies, from sm_90 on", (False, True)),
         Constant("norm", False, "whether x is normalized first", (False, True))), AMPERE,
        ({}, {"format": "q6_k", "stages": 2}, {"format": "q5_1", "turns": 1}, {"format": "iq4_xs", "stages": 0},
         {"format": "q2_k", "high": 2, "turns": 1}, {"bulk": True}, {"format": "q6_k", "bulk": True, "norm": True}),
    ),
    CatalogueEntry(
        "quant_columns", "blocks", "x w, whose blocks lie along the result's axis",
        _build_columns, _sample_columns, (FORMAT, Constant("rows", 1, "of x")), AMPERE,
        ({}, {"format": "q5_0", "rows": 3}, {"format": "q6_k", "rows": 9}),
    ),
    CatalogueEntry(
        "quant_experts", "blocks", "rows of x with the experts that indices name; NaN for one outside",
        _build_experts, _sample_experts, (FORMAT, ACTIVATIONS), AMPERE,
        ({}, {"format": "iq4_xs", "activations": "q8"}, {"format": "mxfp4", "activations": "f32"}),
    ),
    CatalogueEntry(
        "quantize_rows", "blocks", "float32 to blocks whose scale is that of their extremes",
        _build_quantize, _sample_quantize, (Constant("format", "q4_0", "of the blocks", SIMPLE),),
        variants=({}, *({"format": name} for name in SIMPLE if name != "q4_0")),
    ),
]  # fmt: skip
