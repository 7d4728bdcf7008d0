"""convolve2d: a small kernel over an image, one channel or many.

It computes cross-correlation, as the Rust library of the same name and PyTorch do: the kernel is not
flipped (`scipy.signal.convolve2d` flips it; there `k[::-1, ::-1]` gives our result).

    out[o, y, x] = sum over c, i, j of x[c, y + i, x + j] * kernel[o, c, i, j]        "valid": h-kh+1 by w-kw+1
    "same": the image counts as zero outside, out is h by w, the kernel's centre is (kh-1)//2, (kw-1)//2.

This is a matrix product whose B is never stored: its row for the tap (c, i, j) is the image's row y + i of
channel c from column j on, so the register tile runs over a table of the taps' offsets instead of a packed B.
"valid" copies nothing; "same" first copies the image into a frame of zeros.

Floor: 2 h w kh kw c_in c_out operations, or h w numbers in and out.  Measured with two threads on 1024x1024 float32:
3x3 331 us (57 GFLOP/s: the image comes and goes through L3), 7x7 716 us (142 GFLOP/s: unaligned loads, one for each
multiply-add, are the limit); 3 to 16 channels 3x3 366 GFLOP/s, 64 to 64 channels 391.
"""

from typing import Any

from numba import types
from trueno.backend import Call, Kernel, Rates

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.kernels import tile
from trueno_simd.kernels.operands import F32, F64, SCRATCH, number, overlaps, reader, source, target, with_scratch
from trueno_simd.kernels.table import KERNELS
from trueno_simd.kernels.tile import LONG, MIDDLE, VECTOR_BYTES, VECTORS, address, put_word, size_of
from trueno_simd.llvm import elsewhere
from trueno_simd.llvm.calls import acquire_gil, address_of, pack, release_gil
from trueno_simd.llvm.jit import inner, outer
from trueno_simd.threads.pool import parallel_for

FEW = MIDDLE // 2  # up to this many output channels each uses the one-row tile: the tall one would idle
CHUNK = 1 << 20  # operations that justify a separate chunk
UNHELD = 64  # chunks from which on the GIL is released


@outer
def rows_of(like, job, index):
    """Some rows of the result, all output channels."""
    x, x_row, weights, taps, offsets, out, channels, height, width, rows = job
    size = size_of(like)
    row, plane, weight_row = width * size, height * width * size, taps * size
    step = (LONG if channels <= FEW else VECTORS) * VECTOR_BYTES // size
    for y in range(index * rows, min((index + 1) * rows, height)):
        for left in range(0, width, step):
            image, place, columns = x + y * x_row + left * size, out + y * row + left * size, width - left
            if channels <= FEW:
                for o in range(channels):
                    w, c = weights + o * weight_row, place + o * plane
                    if columns >= step:
                        tile.taps_long(like, w, 0, size, image, offsets, c, 0, taps, 1, columns, 0)
                    else:
                        tile.taps_long_masked(like, w, 0, size, image, offsets, c, 0, taps, 1, columns, 0)
            else:
                for o in range(0, channels, MIDDLE):
                    w, c, valid = weights + o * weight_row, place + o * plane, min(channels - o, MIDDLE)
                    if columns >= step:
                        tile.taps_middle(like, w, weight_row, size, image, offsets, c, plane, taps, valid, columns, 0)
                    else:
                        tile.taps_middle_masked(
                            like, w, weight_row, size, image, offsets, c, plane, taps, valid, columns, 0
                        )


@outer
def frame(like, job, index):
    """Copy one channel into its frame of zeros."""
    x, framed, h, w, kh, kw = job
    size = size_of(like)
    top, left, row = (kh - 1) // 2, (kw - 1) // 2 * size, (w + kw - 1) * size
    place = framed + index * (h + kh - 1) * row
    tile.clear(place, top * row)
    for y in range(h):
        line = place + (top + y) * row
        tile.clear(line, left)
        tile.copy(line + left, x + (index * h + y) * w * size, w * size)
        tile.clear(line + left + w * size, row - left - w * size)
    tile.clear(place + (top + h) * row, (kh - 1 - top) * row)


ROWS_JOB, FRAME_JOB = reader(10), reader(6)


@outer
def rows32(args, index):
    rows_of(F32, ROWS_JOB(args), index)
    return 0


@outer
def rows64(args, index):
    rows_of(F64, ROWS_JOB(args), index)
    return 0


@outer
def frame32(args, index):
    frame(F32, FRAME_JOB(args), index)
    return 0


@outer
def frame64(args, index):
    frame(F64, FRAME_JOB(args), index)
    return 0


@inner
def correlate(like, rows_piece, frame_piece, x, weights, out, same, scratch):
    """Both modes, any number of channels; a single-channel call has 2-D operands."""
    h, w, kh, kw = x.shape[-2], x.shape[-1], weights.shape[-2], weights.shape[-1]
    c_in, c_out = 1, 1
    if x.ndim == 3:
        c_in, c_out = x.shape[0], weights.shape[0]
        if weights.shape[1] != c_in or out.shape[0] != c_out:
            return -1
    height, width = (h, w) if same else (h - kh + 1, w - kw + 1)
    if kh < 1 or kw < 1 or (not same and (h < kh or w < kw)) or out.shape[-2] != height or out.shape[-1] != width:
        return -1
    if overlaps(out, x) or overlaps(out, weights):
        return -1
    if out.size == 0:
        return 0
    if c_in == 0:
        tile.clear(address(out), out.nbytes)
        return 0
    size, taps = size_of(like), c_in * kh * kw
    framed_h, framed_w = (h + kh - 1, w + kw - 1) if same else (h, w)
    need = taps * 8 + (c_in * framed_h * framed_w * size if same else 0)
    if scratch.size < need:
        return need

    image, offsets, t = address(x), address(scratch), 0
    for c in range(c_in):
        for i in range(kh):
            for j in range(kw):
                put_word(offsets, t, ((c * framed_h + i) * framed_w + j) * size)
                t += 1
    rows = max(CHUNK // (2 * taps * width * c_out), 1)
    chunks = (height + rows - 1) // rows
    first, place, kernel = image, address(out), address(weights)
    state = release_gil() if chunks >= UNHELD else 0
    if same:
        first = offsets + taps * 8
        parallel_for(address_of(frame_piece), pack((image, first, h, w, kh, kw)), c_in)
    args = pack((first, framed_w * size, kernel, taps, offsets, place, c_out, height, width, rows))
    parallel_for(address_of(rows_piece), args, chunks)
    if chunks >= UNHELD:
        acquire_gil(state)
    return 0


def _valid32(x, kernel, out, scratch):
    return correlate(F32, rows32, frame32, x, kernel, out, False, scratch)


def _valid64(x, kernel, out, scratch):
    return correlate(F64, rows64, frame64, x, kernel, out, False, scratch)


def _same32(x, kernel, out, scratch):
    return correlate(F32, rows32, frame32, x, kernel, out, True, scratch)


def _same64(x, kernel, out, scratch):
    return correlate(F64, rows64, frame64, x, kernel, out, True, scratch)


_FUNCTIONS = {("valid", 4): _valid32, ("valid", 8): _valid64, ("same", 4): _same32, ("same", 8): _same64}


@KERNELS.add("convolve2d", rates=Rates(1e-6, 8e10, 4e10))
def convolve2d(device: None, call: Call) -> Kernel:
    """x[h,w] kernel[kh,kw] -> out[h',w'], or x[c_in,h,w] kernel[c_out,c_in,kh,kw] -> out[c_out,h',w'].

    The parameter `mode` is "valid" (if absent) or "same".
    """
    kind = number(call.dtype)
    function = _FUNCTIONS[dict(call.static).get("mode", "valid"), call.dtype.itemsize]
    kernels: dict[int, Any] = {}

    def chosen(x: Any) -> Any:
        compiled = kernels.get(x.ndim)
        if compiled is None and x.ndim in (2, 3):
            sizes = (2, 2, 2) if x.ndim == 2 else (3, 4, 3)
            signature = types.intp(source(kind, sizes[0]), source(kind, sizes[1]), target(kind, sizes[2]), SCRATCH)
            compiled = kernels[x.ndim] = with_scratch(elsewhere.run(lambda: kernel_entry(signature)(function)))
        return compiled

    def kernel(x: Any, weights: Any, out: Any) -> int:
        compiled = chosen(x)
        return -1 if compiled is None else compiled(x, weights, out)

    def resolve(x: Any, *others: Any) -> Any:
        compiled = chosen(x)
        return None if compiled is None else compiled.resolve(x, *others)

    kernel.resolve = resolve  # type: ignore[attr-defined]
    return kernel
