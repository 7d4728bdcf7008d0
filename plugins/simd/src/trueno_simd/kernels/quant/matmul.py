"""quant_matmul: y[m,n] = x[m,k] Wᵀ, W quantized by ggml's formats, rows of W along k.

With activations "q8" x is quantized as ggml's CPU code does, once, and the products are of integers (`tile`); with
"f32" a panel of W is decoded to float32 and goes through the register tiles of matmul.  Either way W is decoded
panel by panel (32 rows by 256 elements with AVX-512), which stays in the L1 cache while all rows of x pass over it.

Floor: 2 m n k operations at the peak of the product instruction (860 GFLOP/s a core where this was measured, Zen 5
with AVX-512 VNNI, which scales of groups bring down to 740); for few rows of x, decoding, or reading W.  One thread
reaches 657 at 4096x4096, m = 512, q4_k, and 643 with q6_k; 540 and 475 at m = 32, 371 and 277 at m = 8 (on a busy
machine; 444 and 331 have been seen).  Against llama.cpp's better path, one thread each, turn by turn: q4_k 2.4 times
as fast at m = 8, 1.7 at 32, 1.6 at 512; q6_k 3.3, 2.3, 1.9; other formats 1.2 to 3.7 at m = 8, 1.9 to 5.9 at 512.
Held to AVX2, with llama.cpp unrestricted, q4_k reaches 1.5 times its speed at m = 8 and 0.65 at m = 512.  Float32
activations: 140 to 190 of matmul's 258 GFLOP/s.

Where the CPU has AMX, and it is faster there (`amx.choice`), large products are made on its tiles (`amx.product`).
"""

from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from typing import Any

from numba import types
from trueno.backend import FORMATS, INTERLEAVED, Call, Kernel, Rates

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels import tile
from trueno_simd.kernels.operands import F32, SCRATCH, reader, source, target, with_scratch
from trueno_simd.kernels.quant import groups
from trueno_simd.kernels.quant.activations import quantized
from trueno_simd.kernels.quant.matvec import quant_matvec
from trueno_simd.kernels.quant.regions import settled
from trueno_simd.kernels.quant.tile.activations import group_packer, group_values, tail_packer
from trueno_simd.kernels.quant.tile.decode import panel_decoder, value_decoder
from trueno_simd.kernels.quant.tile.floats import multiply, rows_in_slabs, slab_bytes
from trueno_simd.kernels.quant.tile.layout import COLUMNS, DEPTH, LANES, ROW, TALL, UNIT, Layout, layout_of
from trueno_simd.kernels.quant.tile.micro_kernel import micro_kernel
from trueno_simd.kernels.quant.tile.shares import (
    AHEAD,
    FLOAT_ROWS,
    PACKED,
    SHARES,
    TILES,
    cut,
    put,
    read_ahead,
    row_addresses,
    tile_at,
    tiles_of,
)  # fmt: skip
from trueno_simd.kernels.table import BLOCKS, KERNELS, not_rounded
from trueno_simd.kernels.tile import VECTOR_BYTES, VECTORS, address
from trueno_simd.llvm import amx
from trueno_simd.llvm.calls import acquire_gil, address_of, pack, release_gil
from trueno_simd.llvm.jit import inner, outer, special
from trueno_simd.threads.pool import parallel_for

# What differs between formats: `_kernel` gives the functions below that use these a copy of their own.
ELEMENTS = NBYTES = GROUP = NEAR = W_GROUP = W_BYTES = X_GROUP = X_TAIL = A_BLOCK = 1
decode = values = quantize = put_group = put_tail = x_values = tall_kernel = middle_kernel = low_kernel = None


@inner
def tile_offset(p, groups, first, rows):
    """Where the tile of element p that begins with row `first` lies: all tiles of one panel side by side."""
    return (p // GROUP * X_GROUP + p // DEPTH * X_TAIL) * rows + (groups * X_GROUP + X_TAIL) * first


@inner
def row_bytes(k):
    """Scratch in which a row of x is quantized."""
    return (k + k // A_BLOCK * 4 + k // 16 * 2 + 63) // 64 * 64


@inner
def chunk_bytes(rows):
    """Scratch of a chunk that multiplies so many rows of x."""
    return (COLUMNS * 8 + W_BYTES + DEPTH * ROW + TALL * DEPTH * 4 + rows * ROW + 127) // 64 * 64


@outer
def quantize_piece(args, index):
    """Some tiles of x: each row quantized, then put in its place; rows beyond the last are zero.

    places: 0, or a table of places, of which each row of x has `each`: the rows are those of its m places.
    """
    x, tiles, area, flags, m, k, share, area_bytes, places, each = QUANTIZE_JOB(args)
    tall, lower, low = tiles_of(m)
    codes = area + index * area_bytes
    d = codes + k
    sums = d + k // A_BLOCK * 4
    for t in range(index * share, min((index + 1) * share, tall + lower)):
        first, rows = tile_at(t, tall, low)
        flag = 0
        for r in range(rows):
            if first + r < m:
                row = tile.get_word(places, first + r) // each if places else first + r
                quantize(x + row * k * 4, k, codes, d, sums)
            else:
                tile.clear(codes, area_bytes)
            for p in range(0, k, DEPTH):
                groups = min(DEPTH, k - p) // GROUP
                to = tiles + tile_offset(p, groups, first, tall * TALL + lower * low) + r * 4
                for e in range(p, p + groups * GROUP, GROUP):
                    flag |= put_group(codes + e, sums + e // 8, d + e // A_BLOCK * 4, to, rows)
                    to += X_GROUP * rows
                if X_TAIL:
                    put_tail(sums + p // 8, d + p // A_BLOCK * 4, to, rows)
        tile.put_word(flags, t, flag)
    return 0


@outer
def multiply_piece(args, index):
    """Some panels of W times some tiles of x.  places: 0, or a table of the rows of `out` to which results go."""
    w, tiles, flags, out, area, m, n, k, share, across, tile_share, area_bytes, places = MULTIPLY_JOB(args)
    tall, lower, low = tiles_of(m)
    first_tile = index // across * tile_share
    last_tile = min(first_tile + tile_share, tall + lower)
    begin = tile_at(first_tile, tall, low)[0]
    end, rest = tile_at(last_tile - 1, tall, low)
    end += rest
    rows = area + index * area_bytes
    panel = rows + COLUMNS * 8
    floats = panel + W_BYTES
    x_floats = floats + DEPTH * ROW
    sums = x_floats + TALL * DEPTH * 4
    pitch = k // ELEMENTS * NBYTES
    for column in range(index % across * share, min((index % across + 1) * share, n), COLUMNS):
        row_addresses(rows, w, pitch, column, n)
        tile.clear(sums, (end - begin) * ROW)
        for p in range(0, k, DEPTH):
            if p % NEAR == 0:
                read_ahead(
                    rows, min(COLUMNS, n - column), p // ELEMENTS * NBYTES, min(NEAR, k - p) // ELEMENTS * NBYTES
                )
            depth = min(DEPTH, k - p)
            groups = depth // GROUP
            flag, decoded = 0, 0
            for b in range(depth // ELEMENTS):
                for v in range(VECTORS):
                    flag |= decode(rows + v * LANES * 8, (p // ELEMENTS + b) * NBYTES,
                                   panel + b * W_GROUP + v * VECTOR_BYTES)  # fmt: skip
            for t in range(first_tile, last_tile):
                first, height = tile_at(t, tall, low)
                x = tiles + tile_offset(p, groups, first, tall * TALL + lower * low)
                to = sums + (first - begin) * ROW
                if flag or tile.get_word(flags, t):  # integers do not tell what is infinite and what NaN
                    if decoded == 0:
                        decoded = 1
                        for g in range(groups):
                            values(panel, g, floats)
                    for r in range(height):
                        for g in range(groups):
                            x_values(x, g, height, r, x_floats)
                    for i in range(0, height, tile.LOW):
                        tile.low(F32, x_floats + i * DEPTH * 4, DEPTH * 4, 4, floats, ROW, to + i * ROW, ROW,
                                 depth, min(tile.LOW, height - i), COLUMNS, 1)  # fmt: skip
                elif height == TALL:
                    tall_kernel(panel, x, to, groups)
                elif height == 2 * UNIT:
                    middle_kernel(panel, x, to, groups)
                else:
                    low_kernel(panel, x, to, groups)
        put(out, sums, begin, min(end, m) - begin, column, n, places)
    return 0


@outer
def float_piece(args, index):
    """Some panels of W times some rows of x, in float32."""
    w, x, x_row, x_slab, out, area, m, n, k, share, across, row_share, area_bytes = FLOAT_JOB(args)
    first = index // across * row_share
    rows = area + index * area_bytes
    panel = rows + COLUMNS * 8
    floats = panel + W_BYTES
    sums = floats + DEPTH * ROW
    height = min(row_share, m - first)
    pitch = k // ELEMENTS * NBYTES
    for column in range(index % across * share, min((index % across + 1) * share, n), COLUMNS):
        row_addresses(rows, w, pitch, column, n)
        for p in range(0, k, DEPTH):
            if p % NEAR == 0:
                read_ahead(
                    rows, min(COLUMNS, n - column), p // ELEMENTS * NBYTES, min(NEAR, k - p) // ELEMENTS * NBYTES
                )
            depth = min(DEPTH, k - p)
            for b in range(depth // ELEMENTS):
                for v in range(VECTORS):
                    decode(rows + v * LANES * 8, (p // ELEMENTS + b) * NBYTES, panel + b * W_GROUP + v * VECTOR_BYTES)
            for g in range(depth // GROUP):
                values(panel, g, floats)
            multiply(x + first * x_row + p // DEPTH * x_slab, x_row, floats, ROW, sums, ROW, height, depth, p)
        put(out, sums, first, height, column, n, 0)
    return 0


QUANTIZE_JOB, MULTIPLY_JOB, FLOAT_JOB = reader(10), reader(13), reader(13)


def _quantized(x, w, out, scratch):
    m, k = x.shape
    n = w.shape[0]
    status = settled(w, out.shape[1], k, ELEMENTS, NBYTES, x, out) if out.shape[0] == m else -1
    if status:
        return min(status, 0)
    tall, lower, low = tiles_of(m)
    count = tall + lower
    share, across, part, chunks = cut(count, TILES, n, 2 * m * n * k)
    rows = (tall * TALL + lower * low + 15) // 16 * 16
    packers = min(count, min(max(m * k // PACKED, 1), SHARES))
    x_share = (count + packers - 1) // packers
    packers = (count + x_share - 1) // x_share
    temporary = row_bytes(k)
    area = chunk_bytes(min(part * TALL, rows))
    tile_bytes = rows * (k // GROUP * X_GROUP + k // DEPTH * X_TAIL)
    flag_bytes = (count * 8 + 63) // 64 * 64
    need = 64 + flag_bytes + (tile_bytes + 63) // 64 * 64 + max(area * chunks, temporary * packers)
    if need > scratch.size:
        return need
    flags = (address(scratch) + 63) // 64 * 64
    tiles = flags + flag_bytes
    areas = tiles + (tile_bytes + 63) // 64 * 64
    state = release_gil()
    job = pack((address(x), tiles, areas, flags, m, k, x_share, temporary, 0, 0))
    parallel_for(address_of(quantize_piece), job, packers)
    job = pack((address(w), tiles, flags, address(out), areas, m, n, k, share, across, part, area, 0))
    parallel_for(address_of(multiply_piece), job, chunks)
    acquire_gil(state)
    return 0


def _floats(x, w, out, scratch):
    m, k = x.shape
    n = w.shape[0]
    status = settled(w, out.shape[1], k, ELEMENTS, NBYTES, x, out) if out.shape[0] == m else -1
    if status:
        return min(status, 0)
    share, across, part, chunks = cut(m, FLOAT_ROWS, n, 2 * m * n * k)
    area = (COLUMNS * 8 + W_BYTES + DEPTH * ROW + part * ROW + 127) // 64 * 64
    slabs = slab_bytes(m, k)
    need = 64 + slabs + area * chunks
    if need > scratch.size:
        return need
    start = (address(scratch) + 63) // 64 * 64
    state = release_gil()
    at, x_row, x_slab = rows_in_slabs(address(x), start, m, k)
    job = pack((address(w), at, x_row, x_slab, address(out), start + slabs, m, n, k, share, across, part, area))
    parallel_for(address_of(float_piece), job, chunks)
    acquire_gil(state)
    return 0


@cache
def pieces(name: str, floats: bool = False) -> tuple[dict[str, Any], str]:
    """The parts of a format's kernels, by name, and a word for what they depend on."""
    f = FORMATS[name]
    layout = Layout(f, "values") if floats else layout_of(f)
    namespace: dict[str, Any] = {
        "NEAR": AHEAD // COLUMNS // f.nbytes * f.elements // DEPTH * DEPTH,
        "ELEMENTS": f.elements, "NBYTES": f.nbytes, "GROUP": layout.group, "W_GROUP": layout.w_group,
        "W_BYTES": layout.w_bytes, "X_GROUP": layout.x_group, "X_TAIL": layout.x_tail,
        "decode": panel_decoder(layout), "values": value_decoder(layout),
    }  # fmt: skip
    # the table is not a source of this plugin: a kernel of another layout must not be taken from the store
    activations = "f32" if floats else "q8"
    word = f"{name}_{activations}_{blake2b(f'{f!r}{layout!r}'.encode(), digest_size=8).hexdigest()}"
    if floats:
        add(namespace, word, float_piece)
    else:
        namespace |= {
            "quantize": quantized(f.activations), "put_group": group_packer(layout), "put_tail": tail_packer(layout),
            "x_values": group_values(layout), "A_BLOCK": FORMATS[f.activations].elements,
            "tall_kernel": micro_kernel(layout, TALL), "middle_kernel": micro_kernel(layout, 2 * UNIT),
            "low_kernel": micro_kernel(layout, UNIT),
        }  # fmt: skip
        for function in (tile_offset, row_bytes, chunk_bytes):
            add(namespace, word, function, inner)
        add(namespace, word, quantize_piece)
        add(namespace, word, multiply_piece)
    return namespace, word


def add(namespace: dict[str, Any], word: str, function: Any, compiled: Any = outer) -> None:
    """Give a format's parts a function that uses them."""
    part = function.py_func.__name__
    namespace[part] = compiled(special(function, f"{part}_quant_matmul_{word}", namespace))


@cache
def _kernel(name: str, activations: str) -> Callable[..., int]:
    floats = {"q8": False, "f32": True}[activations]
    namespace, word = pieces(name, floats)
    function = special(_floats if floats else _quantized, f"quant_matmul_{word}", namespace)
    weights = types.Array(types.uint8, 2, "C", readonly=True)
    signature = types.intp(source(types.float32, 2), weights, target(types.float32, 2), SCRATCH)
    return with_scratch(kernel_entry(signature)(function))


@KERNELS.add("quant_matmul", rates=Rates(2e-6, 3e11, 4e10), dtypes=BLOCKS, refusal=not_rounded)
def quant_matmul(device: None, call: Call) -> Kernel:
    """x[m,k] float32, w[n,bytes] of the format -> out[m,n]; the parameter `activations` is "q8" or "f32"."""
    static = dict(call.static)
    name, activations = static["format"], static.get("activations", "q8")
    laid = INTERLEAVED.get(name)
    plain = laid.plain if laid else name
    kernel: Kernel = _kernel(plain, activations)
    if activations == "q8" and amx.available("amx-int8"):
        from trueno_simd.kernels.quant.amx.choice import with_tiles  # start-up, where there is no AMX

        kernel = with_tiles(plain, kernel)
    if laid:
        return groups.matmul(laid, kernel, quant_matvec(device, call) if activations == "q8" else None)
    return kernel
