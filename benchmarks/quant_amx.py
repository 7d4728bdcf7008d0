"""quant_matmul on AMX's int8 tiles against the vector kernel, turn by turn, on a machine that has AMX.

    python -m benchmarks.quant_amx                                  # every format, 16 to 512 rows, 1 and 2 threads
    python -m benchmarks.quant_amx --formats q4_k --rows 512 --shape 4096x4096 --threads 1
    python -m benchmarks.quant_amx --emulated --rows 32 --shape 512x1024    # anywhere: does it run, is it right?

A format's first line is of its parts, on one thread and from the caches: to decode a panel of 32 rows of W by 256
elements, and to pass over it with a block of 16 rows of x, whose cycles `trueno_simd.kernels.quant.amx.stages` counts;
each beside the vector kernel's time for the same work.  The others are of whole products: the least time of the tiles
with its rate, and the vector kernel's time over the tiles', by the least times and by the lower quartiles: above 1 the
tiles are faster.  The last one says what a call chooses: from how many rows of x on the tiles multiply.
"""

import argparse
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from numba import njit
from trueno.formats import FORMATS, WEIGHTS
from trueno_simd.kernels.quant import matmul
from trueno_simd.kernels.quant.amx import choice, product
from trueno_simd.kernels.quant.amx.records import COLUMNS, DEPTH, LINE, Records
from trueno_simd.kernels.quant.tile.decode import panel_decoder
from trueno_simd.kernels.quant.tile.layout import COLUMNS as WIDTH
from trueno_simd.kernels.quant.tile.layout import LANES, TALL, layout_of
from trueno_simd.kernels.quant.tile.micro_kernel import micro_kernel
from trueno_simd.kernels.tile import VECTOR_BYTES, VECTORS, address
from trueno_simd.llvm import amx, isa
from trueno_simd.llvm.jit import FLAGS

from benchmarks.rows.quant import CLOSE, blocks, counted

BLOCKS = 16  # of x in one pass over a panel: they stay in L2


def turns(calls: list[Callable[[], Any]], seconds: float) -> list[np.ndarray[Any, Any]]:
    """The times of calls that alternate, another one first in each round."""
    times: list[list[float]] = [[] for _ in calls]
    end, first = perf_counter() + seconds, 0
    while perf_counter() < end or len(times[0]) < 5:
        for i in range(len(calls)):
            call = (first + i) % len(calls)
            start = perf_counter()
            calls[call]()
            times[call].append(perf_counter() - start)
        first += 1
    return [np.array(each) for each in times]


def race(name: str, m: int, n: int, k: int, tiles: amx.Tiles, threads: int, seconds: float) -> str:
    """Both kernels on the same operands, in words."""
    x, w = np.random.default_rng(1).standard_normal((m, k), np.float32), blocks(name, n, k)
    results = [np.empty((m, n), np.float32) for _ in range(2)]
    kernels = matmul._kernel(name, "q8"), product.tiled(name, tiles)
    calls = [lambda i=i: kernels[i](x, w, results[i]) for i in range(2)]  # type: ignore[misc]
    with counted(threads):
        if any(call() for call in calls):
            raise AssertionError(f"{name}: a kernel did not multiply")
        difference = float(np.abs(results[0] - results[1]).max() / np.abs(results[0]).max())
        if not difference <= CLOSE or (difference and not FORMATS[name].scales):
            raise AssertionError(f"{name}: the results differ by {difference:.2g} of the largest")
        usual, tiled = turns(calls, seconds)
    least, quartile = usual.min() / tiled.min(), np.quantile(usual, 0.25) / np.quantile(tiled, 0.25)
    rate = 2 * m * n * k / tiled.min() / 1e12
    return f"{tiled.min() * 1e6:10.1f} us {rate:6.2f} Tops/s   {least:5.2f}x least {quartile:5.2f}x lower quartile"


def parts(name: str, tiles: amx.Tiles) -> str:
    """What decoding a panel and passing over it take, in words."""
    f, records, layout = FORMATS[name], Records(FORMATS[name]), layout_of(FORMATS[name])
    _, known = product.pieces(name, tiles)
    reserve, configure, release = tiles.reserve, tiles.configure, tiles.release
    decode, pass_over = known["decode"], known["pass_over"]
    usual_decode, usual_pass = panel_decoder(layout), micro_kernel(layout, TALL)
    elements, nbytes, groups, w_scales = f.elements, f.nbytes, layout.groups, records.w_scales
    w_bytes, x_bytes, w_group = records.w_bytes, records.x_bytes, layout.w_group
    usual_bytes, tall_bytes = layout.w_bytes, layout.x_row(DEPTH) * TALL

    @njit(**FLAGS)  # type: ignore[untyped-decorator]
    def decoding(rows, room, count):  # type: ignore[no-untyped-def]
        for _ in range(count):
            for b in range(DEPTH // elements):
                for v in range(COLUMNS // LANES):
                    place = b * (elements // 4) * LINE + v * VECTOR_BYTES
                    scales = w_scales + b * LINE + v * VECTOR_BYTES
                    decode(address(rows) + v * LANES * 8, b * nbytes, address(room) + place, address(room) + scales)

    @njit(**FLAGS)  # type: ignore[untyped-decorator]
    def usual_decoding(rows, room, count):  # type: ignore[no-untyped-def]
        for _ in range(count):
            for b in range(DEPTH // elements):
                for v in range(COLUMNS // LANES):
                    to = address(room) + v // VECTORS * usual_bytes + b * w_group + v % VECTORS * VECTOR_BYTES
                    usual_decode(address(rows) + v * LANES * 8, b * nbytes, to)

    @njit(**FLAGS)  # type: ignore[untyped-decorator]
    def passing(rows, room, count):  # type: ignore[no-untyped-def]
        panel = address(room)
        x = panel + w_bytes
        sums = x + BLOCKS * x_bytes
        file = reserve()
        configure(file)
        for _ in range(count):
            pass_over(file, panel, x, sums, BLOCKS, DEPTH, sums + BLOCKS * 16 * LINE)
        release(file)

    @njit(**FLAGS)  # type: ignore[untyped-decorator]
    def usual_passing(rows, room, count):  # type: ignore[no-untyped-def]
        panel = address(room)
        x = panel + usual_bytes
        sums = x + BLOCKS * 16 // TALL * tall_bytes
        for _ in range(count):
            for t in range(BLOCKS * 16 // TALL):
                usual_pass(panel, x + t * tall_bytes, sums + t * TALL * WIDTH * 4, groups)

    room = np.zeros((1 << 20) + 64, np.uint8)
    room = room[-room.ctypes.data % 64 :]
    w = blocks(name, COLUMNS, DEPTH)
    rows = w.ctypes.data + np.arange(COLUMNS) * w.strides[0]
    work = {  # functions, and how many of each make one unit of work
        "decode": (decoding, usual_decoding, 1.0, 1.0),
        "pass": (passing, usual_passing, BLOCKS, BLOCKS * 16 // TALL * TALL * WIDTH / (16 * COLUMNS)),
    }
    words = []
    for title, (ours, usual, count, usual_count) in work.items():
        calls = [lambda c=c: c(rows, room, 20) for c in (ours, usual)]  # type: ignore[misc]
        for call in calls:
            call()
        ours_s, usual_s = (each.min() / 20 for each in turns(calls, 0.3))
        words.append(f"{title} {ours_s / count * 1e9:6.1f} ns, vectors {usual_s / usual_count * 1e9:6.1f} ns")
    return "; ".join(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", default=",".join(WEIGHTS))
    parser.add_argument("--rows", default="16,32,64,128,512", help="of x")
    parser.add_argument("--shape", default="4096x4096", help="of W: n x k")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=0.5, help="of one race")
    parser.add_argument("--emulated", action="store_true", help="without AMX: slow, and the same bits")
    arguments = parser.parse_args()
    there = amx.available("amx-int8")
    print(f"{isa.current().cpu}, {isa.level()}; AMX with int8: {'yes' if there else 'no'}")
    if not there and not arguments.emulated:
        raise SystemExit("quant_amx: this process has no int8 tiles of AMX; --emulated runs without them")
    tiles = amx.EMULATED if arguments.emulated else amx.HARDWARE
    n, k = map(int, arguments.shape.split("x"))
    for name in arguments.formats.split(","):
        print(f"{name}: {parts(name, tiles)}", flush=True)
        for threads in map(int, arguments.threads.split(",")):
            for m in map(int, arguments.rows.split(",")):
                words = race(name, m, n, k, tiles, threads, arguments.seconds)
                print(f"  {m:5} x {n} x {k}, {threads} threads {words}", flush=True)
        if there:
            least = choice.least_rows(name, matmul._kernel(name, "q8"))
            print(f"  chosen: {'never' if least == choice.NEVER else f'from {least} rows on'}", flush=True)


if __name__ == "__main__":
    main()
