"""Which tile, which split, which lanes: every variant of wgpu's products, timed on one GPU.

    python -m benchmarks.wgpu_matmul                           # the GPU that wgpu chooses
    python -m benchmarks.wgpu_matmul --adapter software --sizes 256 --repeat 2
    python -m benchmarks.wgpu_matmul --unchecked               # without naga's bounds checks: how much do they cost?

A figure is the best of some batches, each of which is one submission of many dispatches and one wait, so that neither
counts.  Each variant is checked first, in float64, at places drawn at random.  The figures are what `choose` in
`trueno_wgpu.kernels.matmul` and the lanes in `trueno_wgpu.kernels.gemv` are set by.
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from trueno.text import duration
from trueno_wgpu.device.array import Array
from trueno_wgpu.device.gpu import Gpu
from trueno_wgpu.kernels import gemv, matmul
from trueno_wgpu.kernels.dispatches import Dispatch, run
from trueno_wgpu.kernels.gemv import Lanes
from trueno_wgpu.kernels.tile import NAIVE, Tile

TILES = (
    NAIVE,
    matmul.SMALL,
    matmul.MIDDLE,
    Tile(64, 64, 32, 4, 4, unroll=32),
    Tile(64, 64, 16, 8, 8, unroll=16),
    Tile(128, 64, 16, 8, 4, unroll=16),
    Tile(128, 64, 16, 8, 8, unroll=16),
    Tile(64, 128, 16, 8, 8, unroll=16),
    matmul.LARGE,
    Tile(128, 128, 16, 8, 8, unroll=4),
    Tile(128, 128, 16, 8, 8, unroll=8),
    Tile(128, 128, 16, 8, 8, unroll=16, ahead=False),
    Tile(128, 128, 16, 8, 8, unroll=16, group=1),
    Tile(128, 128, 16, 8, 8, unroll=16, group=16),
    Tile(128, 128, 8, 8, 8, unroll=8),
    Tile(128, 128, 8, 8, 8, unroll=8, slices=2),
    Tile(128, 128, 16, 8, 8, unroll=16, slices=2),  # 32 KiB
    Tile(128, 128, 32, 8, 8, unroll=16),  # 32 KiB
    Tile(256, 128, 8, 16, 8, unroll=8),
    Tile(128, 256, 8, 8, 16, unroll=8),
)
LANES = [Lanes(across, rows, ahead) for across in (32, 64, 128, 256) for rows in (1, 2, 4) for ahead in (2, 4, 8)]
COLUMN_LANES = [Lanes(across, 1, ahead) for across in (16, 32, 64) for ahead in (4, 8, 16)]
SPLITS = (1, 2, 4, 8)
SMALL_WORK = 1 << 36
"""Multiply-adds up to which splits are tried: beyond, the grid is large enough."""


def timed(gpu: Gpu, call: Callable[[], Any], repeat: int, batches: int = 5) -> float:
    """Seconds of one of `repeat` calls in a submission."""
    best = float("inf")
    for _ in range(batches):
        gpu.wait()
        start = perf_counter()
        with gpu.batch():
            for _ in range(repeat):
                call()
        gpu.wait()
        best = min(best, perf_counter() - start)
    return best / repeat


def unchecked(gpu: Gpu) -> None:
    """Make modules without naga's checks.  wgpu-py does not wrap the function, but its library has it."""
    from wgpu.backends.wgpu_native import GPUShaderModule
    from wgpu.backends.wgpu_native._ffi import ffi, lib

    def create(*, code: str, label: str = "", **_: Any) -> Any:
        text = code.encode()
        data = ffi.new("char[]", text)
        source = ffi.new("WGPUShaderSourceWGSL *")
        source.chain.sType = lib.WGPUSType_ShaderSourceWGSL
        source.code.data, source.code.length = data, len(text)
        descriptor = ffi.new("WGPUShaderModuleDescriptor *")
        descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", source)
        handle = lib.wgpuDeviceCreateShaderModuleTrusted(gpu.device._internal, descriptor, 0)
        return GPUShaderModule(label, handle, gpu.device)

    gpu.device.create_shader_module = create


class Case:
    """Two operands on the device and a result, with what the result must be."""

    def __init__(self, gpu: Gpu, a: Any, b: Any, shape: tuple[int, ...]) -> None:
        self.gpu, self.a, self.b = gpu, a, b
        self.operands = Array.of(gpu, a), Array.of(gpu, b)
        self.out = Array.empty(gpu, shape, np.float32)

    def time(self, dispatches: Sequence[Dispatch], repeat: int) -> float:
        self.out.write(np.full(self.out.shape, np.nan, np.float32))
        self.go(dispatches)
        self.check()
        return timed(self.gpu, partial(self.go, dispatches), repeat)

    def go(self, dispatches: Sequence[Dispatch]) -> None:
        run(self.gpu, dispatches, self.operands, self.out)

    def check(self) -> None:
        rng, got = np.random.default_rng(0), self.out.numpy()
        a, b = np.atleast_2d(self.a), self.b.reshape(len(self.b), -1)
        got = got.reshape(len(a), b.shape[1])
        i, j = rng.integers(0, len(a), 64), rng.integers(0, b.shape[1], 64)
        x, y = a[i].astype(np.float64), b[:, j].T.astype(np.float64)
        error = np.abs(got[i, j] - (x * y).sum(1))
        bound = (a.shape[1] + 4) * 2.0**-24 * np.abs(x * y).sum(1)
        if not (error <= bound).all() or not np.isfinite(got).all():
            raise AssertionError(f"wrong by {error.max():.3g}")


def line(what: str, seconds: float | str, rate: str = "") -> None:
    figure = seconds if isinstance(seconds, str) else f"{duration(seconds):>10}  {rate}"
    print(f"  {what:52} {figure}", flush=True)


def tried(what: str, time: Callable[[], float], rate: Callable[[float], str]) -> None:
    try:
        seconds = time()
    except Exception as error:
        line(what, f"{type(error).__name__}: {str(error).splitlines()[0][:100]}")
    else:
        line(what, seconds, rate(seconds))


def products(gpu: Gpu, m: int, n: int, k: int, repeat: int, only: str, turned: bool = False) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    case = Case(gpu, a, b, (m, n))
    if turned:
        case.operands = case.operands[0], Array.of(gpu, np.ascontiguousarray(b.T))
    chosen = matmul.choose(m, n, k, 1, gpu.limits)
    print(f"{m}x{n}x{k}{' turned' if turned else ''}; chosen: {chosen[0]}, {chosen[1]} splits", flush=True)
    for tile in TILES:
        if tile.workgroup_bytes > gpu.limits.workgroup or only not in str(tile):
            continue
        if tile is NAIVE and m * n * k > 1 << 31:
            continue
        for splits in SPLITS if m * n * k < SMALL_WORK else (1,):
            if k // splits < 2 * tile.depth:
                continue
            dispatches = matmul.product_dispatches(
                "bench", m, n, k, gpu.limits, turned=turned, tile=tile, splits=splits
            )
            tried(
                f"{tile}, {splits} splits",
                partial(case.time, dispatches, repeat),
                lambda s: f"{2 * m * n * k / s / 1e12:7.2f} TFLOP/s",
            )


def vectors(gpu: Gpu, m: int, k: int, repeat: int) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((m, k), np.float32)

    def rate(s: float) -> str:
        return f"{a.nbytes / s / 1e9:8.1f} GB/s"

    x = rng.standard_normal(k, np.float32)
    case = Case(gpu, a, x, (m,))
    print(f"matvec {m}x{k}; set: {gemv.ROWS}", flush=True)
    for lanes in LANES:
        if lanes.across * 4 <= k:
            dispatches = gemv.row_dispatches("bench", m, k, gpu.limits, lanes=lanes)
            tried(f"{lanes}", partial(case.time, dispatches, repeat), rate)
    z = rng.standard_normal(m, np.float32)
    case = Case(gpu, z, a, (k,))
    print(f"vecmat {m}x{k}; set: {gemv.COLUMNS}", flush=True)
    for lanes in COLUMN_LANES:
        for splits in (0, 8, 16, 32, 64):
            dispatches = gemv.column_dispatches("bench", 1, k, m, gpu.limits, lanes=lanes, splits=splits)
            tried(f"{lanes}, {splits or 'own'} splits", partial(case.time, dispatches, repeat), rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adapter", default="", help="as TRUENO_WGPU_ADAPTER")
    parser.add_argument("--sizes", default="1024,2048,4096", help="of square matrices")
    parser.add_argument("--shapes", default="", help="more products, as 16x4096x4096 (m, n, k)")
    parser.add_argument("--repeat", type=int, default=20, help="calls in a submission")
    parser.add_argument("--only", default="", help="part of a tile's name")
    parser.add_argument("--unchecked", action="store_true", help="without naga's checks")
    parser.add_argument("--turned", action="store_true", help="the second matrix given as [n, k]")
    parser.add_argument("--skip-vectors", action="store_true")
    arguments = parser.parse_args()
    gpu = Gpu(arguments.adapter)
    print(f"{gpu.name}; {gpu.limits}")
    if arguments.unchecked:
        unchecked(gpu)
    sizes = [int(s) for s in arguments.sizes.split(",") if s]
    shapes = [tuple(map(int, s.split("x"))) for s in arguments.shapes.split(",") if s]
    for m, n, k in [*((s, s, s) for s in sizes), *shapes]:
        products(gpu, m, n, k, arguments.repeat, arguments.only, arguments.turned)
    for size in sizes if not arguments.skip_vectors else ():
        vectors(gpu, size, size, arguments.repeat)


if __name__ == "__main__":
    main()
