"""y[m,n] = x[m,k] Wᵀ on AMX's int8 tiles, W quantized by ggml's formats, x as ggml's CPU code quantizes it.

W is decoded panel by panel, 32 rows by 256 elements, and all rows of x in a chunk pass over it (`stages`).  x is
quantized once.  Its blocks, which a vector kernel reads at 3 bytes per cycle, are read at up to 32 here, so k is cut
into slabs of which a chunk's part of x stays in the L2 cache; between slabs the sums are in y.
"""

from functools import cache
from hashlib import blake2b
from typing import Any

from numba import types
from trueno.backend import FORMATS, Kernel

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels import tile
from trueno_simd.kernels.operands import SCRATCH, reader, source, target, with_scratch
from trueno_simd.kernels.quant.activations import quantized
from trueno_simd.kernels.quant.amx import rows as packing
from trueno_simd.kernels.quant.amx import stages
from trueno_simd.kernels.quant.amx.decode import panel_decoder
from trueno_simd.kernels.quant.amx.records import COLUMNS, LINE, SUMS, Records
from trueno_simd.kernels.quant.regions import settled
from trueno_simd.kernels.quant.tile.layout import COLUMNS as ADDRESSES
from trueno_simd.kernels.quant.tile.layout import DEPTH, LANES
from trueno_simd.kernels.quant.tile.shares import AHEAD, PACKED, SHARES, cut, read_ahead, row_addresses
from trueno_simd.kernels.tile import VECTOR_BYTES, address
from trueno_simd.llvm.amx import HARDWARE, ROWS, Tiles
from trueno_simd.llvm.calls import acquire_gil, address_of, pack, release_gil
from trueno_simd.llvm.jit import outer, special
from trueno_simd.threads.pool import parallel_for

BLOCKS = 32  # of x, at most, that pass over one panel: their sums stay in L2
SLAB = 1 << 20  # bytes of x at most that are passed over again and again: they stay in L2
LEFT = -3  # the operands are fine, and not multiplied

# One form of the instructions, and what differs between formats.
reserve, configure, release = HARDWARE.reserve, HARDWARE.configure, HARDWARE.release
ELEMENTS = NBYTES = NEAR = A_BLOCK = W_BYTES = W_SCALES = X_BYTES = STAGE = 1
decode = pass_over = quantize_piece = multiply_piece = None

MULTIPLY_JOB = reader(15)


@outer
def get_sums(sums, out, height, width, pitch):
    for i in range(height):
        tile.copy(sums + i * LINE, out + i * pitch, width * 4)


@outer
def put_sums(sums, out, height, width, pitch):
    for i in range(height):
        tile.copy(out + i * pitch, sums + i * LINE, width * 4)


@outer
def _multiply_piece(args, index):
    """Some panels of W times some blocks of x."""
    (w, blocks, flags, out, area, m, n, k, count, share, across, part, area_bytes, slab,
     packers) = MULTIPLY_JOB(args)  # fmt: skip
    first = index // across * part
    here = min(part, count - first)
    height = min(here * ROWS, m - first * ROWS)
    table = area + index * area_bytes
    panel = table + COLUMNS * 8
    sums = panel + W_BYTES
    staged = sums + part * SUMS
    pitch = k // ELEMENTS * NBYTES
    right = min((index % across + 1) * share, n)
    flag = 0
    file = reserve()
    configure(file)
    for base in range(0, k, slab):
        end = min(base + slab, k)
        for column in range(index % across * share, right, COLUMNS):
            width = min(COLUMNS, right - column)
            result = out + (first * ROWS * n + column) * 4
            for i in range(0, COLUMNS, ADDRESSES):
                row_addresses(table + i * 8, w, pitch, column + i, n)
            tile.clear(sums, here * SUMS)
            if base > 0:
                get_sums(sums, result, height, width, n * 4)
            for p in range(base, end, DEPTH):
                if (p - base) % NEAR == 0:
                    read_ahead(table, width, p // ELEMENTS * NBYTES, min(NEAR, end - p) // ELEMENTS * NBYTES)
                depth = min(DEPTH, k - p)
                for b in range(depth // ELEMENTS):
                    for v in range(COLUMNS // LANES):
                        codes = panel + b * (ELEMENTS // 4) * LINE + v * VECTOR_BYTES
                        scales = panel + W_SCALES + b * LINE + v * VECTOR_BYTES
                        flag |= decode(table + v * LANES * 8, (p // ELEMENTS + b) * NBYTES, codes, scales)
                x = blocks + (p // DEPTH * count + first) * X_BYTES
                pass_over(file, panel, x, sums, here, depth, staged)
            put_sums(sums, result, height, width, n * 4)
    release(file)
    tile.put_word(flags, packers + index, flag)
    return 0


def _multiply(x, w, out, scratch):
    """0, -1 or LEFT, or the bytes of scratch that it needs."""
    m, k = x.shape
    n = w.shape[0]
    status = settled(w, out.shape[1], k, ELEMENTS, NBYTES, x, out) if out.shape[0] == m else -1
    if status:
        return min(status, 0)
    count = (m + ROWS - 1) // ROWS
    share, across, part, chunks = cut(count, BLOCKS, n, 2 * m * n * k)
    packers = min(count, min(max(m * k // PACKED, 1), SHARES))
    x_share = (count + packers - 1) // packers
    packers = (count + x_share - 1) // x_share
    slab = max(SLAB // (part * X_BYTES), 1) * DEPTH
    temporary = (k + k // A_BLOCK * 4 + k // 16 * 2 + 63) // 64 * 64
    area = COLUMNS * 8 + W_BYTES + part * SUMS + 2 * STAGE
    block_bytes = (k + DEPTH - 1) // DEPTH * count * X_BYTES
    flag_bytes = ((packers + chunks) * 8 + 63) // 64 * 64
    need = 64 + flag_bytes + block_bytes + max(area * chunks, temporary * packers)
    if need > scratch.size:
        return need
    flags = (address(scratch) + 63) // 64 * 64
    blocks = flags + flag_bytes
    areas = blocks + block_bytes
    state = release_gil()
    job = pack((address(x), blocks, areas, flags, m, k, count, x_share, temporary))
    parallel_for(address_of(quantize_piece), job, packers)
    flag = 0
    for i in range(packers):
        flag |= tile.get_word(flags, i)
    if flag == 0:
        job = pack((address(w), blocks, flags, address(out), areas, m, n, k, count, share, across, part, area, slab,
                    packers))  # fmt: skip
        parallel_for(address_of(multiply_piece), job, chunks)
        for i in range(chunks):
            flag |= tile.get_word(flags, packers + i)
    acquire_gil(state)
    return LEFT if flag else 0


def pieces(name: str, tiles: Tiles) -> tuple[str, dict[str, Any]]:
    """A word for the names of a format's functions over one form of the tiles, and all that these functions find."""
    f = FORMATS[name]
    records, layout = Records(f), Records(f).layout
    known: dict[str, Any] = {
        "ELEMENTS": f.elements, "NBYTES": f.nbytes, "A_BLOCK": FORMATS[f.activations].elements,
        "NEAR": max(AHEAD // COLUMNS // f.nbytes * f.elements // DEPTH, 1) * DEPTH, "GROUPS": layout.groups,
        "PARTS": records.parts, "MINS": records.mins, "FLAT_M": records.flat_m, "STAGE": records.stage,
        "W_BYTES": records.w_bytes, "W_SCALES": records.w_scales, "W_MINS": records.w_mins, "W_D": records.w_d,
        "X_BYTES": records.x_bytes, "X_MINS": records.x_mins, "X_D": records.x_d, "X_M": records.x_m,
        "quantize": quantized(f.activations), "decode": panel_decoder(records),
        "reserve": tiles.reserve, "configure": tiles.configure, "release": tiles.release,
    }  # fmt: skip
    # the table is not a source of this plugin: a kernel of another layout must not be taken from the store
    word = f"{tiles.name}_{name}_{blake2b(f'{f!r}'.encode(), digest_size=8).hexdigest()}"
    known["put_row"] = packing.row_writer(records, word, known)
    known["pass_over"] = stages.over(records, tiles, word, known)
    for title, function in (("quantize_piece", packing.quantize_piece), ("multiply_piece", _multiply_piece)):
        known[title] = outer(special(function, f"{title}_{word}", known))
    return word, known


@cache
def tiled(name: str, tiles: Tiles) -> Kernel:
    """The product with a format over one form of the tiles, kernel(x, w, out).

    It returns LEFT, `out` then being undefined, where a scale is infinite: sums of codes do not show what is NaN.
    """
    word, known = pieces(name, tiles)
    weights = types.Array(types.uint8, 2, "C", readonly=True)
    signature = types.intp(source(types.float32, 2), weights, target(types.float32, 2), SCRATCH)
    return with_scratch(kernel_entry(signature)(special(_multiply, f"quant_matmul_{word}", known)))
