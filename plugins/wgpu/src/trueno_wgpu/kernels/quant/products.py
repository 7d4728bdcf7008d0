"""Kernels of the ops on quantized matrices: what is read from blocks, and never held as floats.

The table has them as `declared` puts them there.
"""

from typing import Any

from trueno.backend import FORMATS, Call, Format, FusedOp, Kernel
from trueno.errors import KernelError

from trueno_wgpu.device.gpu import Buffer, Gpu, View
from trueno_wgpu.kernels.epilogue import numbers, spliced
from trueno_wgpu.kernels.memory import bands, clashes, whole, zero
from trueno_wgpu.kernels.quant import dequantize  # noqa: F401 - it declares its kernel
from trueno_wgpu.kernels.quant.activations import quantized
from trueno_wgpu.kernels.quant.columns import MOST as MOST_ROWS
from trueno_wgpu.kernels.quant.columns import run as run_columns
from trueno_wgpu.kernels.quant.declared import declared
from trueno_wgpu.kernels.quant.rows import PLAINLY, Ending
from trueno_wgpu.kernels.quant.rows import run as run_rows
from trueno_wgpu.kernels.quant.tile import Sizes
from trueno_wgpu.kernels.quant.tile import run as run_tile
from trueno_wgpu.kernels.store import PLAIN, Store

Bound = Buffer | View


def padded(nbytes: int) -> int:
    return -(-nbytes // 4) * 4


FEW = 16
"""Rows of x up to which they are taken eight at a time: a tile has 64."""


def _banded(op: str, w: Any, gpu: Gpu) -> list[tuple[int, int, Bound]]:
    """The rows of w, as many at a time as fit into a binding: (first row, rows, what is bound)."""
    n, row_bytes = w.shape
    parts = bands(op, "w", n, (row_bytes,), gpu.limits)
    if len(parts) == 1:
        return [(0, n, whole(w.buffer, padded(w.nbytes), gpu.limits))]
    return [(first, rows, View(w.buffer, first * row_bytes, padded(rows * row_bytes))) for first, rows in parts]


def _in_turns(op: str, gpu: Gpu, x: Any, out: Any, m: int, k: int, n: int) -> list[tuple[int, Bound, Bound]]:
    """The rows of x and of the result, as many at a time as fit into a binding."""
    parts = bands(op, "the result or x", m, (4 * k, 4 * n), gpu.limits)
    if len(parts) == 1:
        return [(m, whole(x.buffer, 4 * m * k, gpu.limits), whole(out.buffer, 4 * m * n, gpu.limits))]
    return [
        (rows, View(x.buffer, first * 4 * k, rows * 4 * k), View(out.buffer, first * 4 * n, rows * 4 * n))
        for first, rows in parts
    ]


def multiply(
    gpu: Gpu, op: str, f: Format, activations: str, w: Any, x: Any, out: Any, m: int, ending: Ending = PLAINLY
) -> None:
    """out[m, n] = x[m, k] · w[n, k]ᵀ; one row where x is a vector.  ending: for a vector."""
    n, row_bytes = w.shape
    k = f.row_elements(row_bytes)
    for count, xs, ys in _in_turns(op, gpu, x, out, m, k, n):
        inputs: tuple[Bound, ...] = (xs,)
        if activations != "f32":
            activation = quantized(gpu, xs, count * k, f.activations)
            inputs = (activation.codes, activation.scales, activation.sums)
        for first, rows, ws in _banded(op, w, gpu):
            if count <= FEW:
                run_rows(gpu, op, f, activations, ws, inputs, ys, (rows, first, n, k, count), ending)
            else:
                sizes = Sizes(count, rows, n, k, row_bytes, first, 0, k)
                run_tile(gpu, f, activations, ws, inputs, ys, sizes)


def multiply_colmajor(gpu: Gpu, op: str, f: Format, w: Any, x: Any, out: Any, m: int) -> None:
    """out[m, n] = x[m, k] · w[k, n]; one row where x is a vector."""
    k, row_bytes = w.shape
    n = f.row_elements(row_bytes)
    for count, xs, ys in _in_turns(op, gpu, x, out, m, k, n):
        parts = _banded(op, w, gpu)
        if count <= MOST_ROWS:
            run_columns(gpu, f, parts, xs, ys, (count, n, k, row_bytes))
            continue
        for first, rows, ws in parts:
            sizes = Sizes(count, n, n, k, row_bytes, first, first, first + rows)
            run_tile(gpu, f, "colmajor", ws, (xs,), ys, sizes)


@declared("quant_matvec")
def quant_matvec(gpu: Gpu, call: Call) -> Kernel:
    """w[n,b] bytes of static["format"], x[k] -> out[n], with what follows it if the call says so."""
    static, op = dict(call.static), call.op
    f, activations = FORMATS[static["format"]], static["activations"]
    kinds = op.kinds[1:] if isinstance(op, FusedOp) else ""
    store = Store(epilogue=spliced(op)) if isinstance(op, FusedOp) else PLAIN

    def kernel(w: Any, x: Any, *more: Any) -> int:
        *rest, out = more
        others, params = rest[: len(kinds)], rest[len(kinds) :]
        if len(w.shape) != 2:
            return -1
        n, b = w.shape
        if b % f.nbytes or x.shape != (b // f.nbytes * f.elements,) or out.shape != (n,) or clashes(out, w, x, *others):
            return -1
        shapes = {"e": (n,), "w": (n,), "r": (), "u": ()}
        if any(y.shape != shapes[kind] for y, kind in zip(others, kinds, strict=True)):
            return -1
        if n == 0 or b == 0:
            if n and store.epilogue:
                raise KernelError(f"{op.name}: k is 0; call quant_matvec and what follows it apart")
            return zero(out) if n else 0
        ending = PLAINLY
        if store.epilogue:
            beside = tuple(whole(y.buffer, y.nbytes, gpu.limits) for y in others)
            ending = Ending(store, beside, numbers(tuple(params)))
        multiply(gpu, "quant_matvec", f, activations, w, x, out, 1, ending)
        return 0

    return kernel


@declared("quant_matmul")
def quant_matmul(gpu: Gpu, call: Call) -> Kernel:
    """x[m,k], w[n,b] bytes of static["format"] -> out[m,n]."""
    static = dict(call.static)
    f, activations = FORMATS[static["format"]], static["activations"]

    def kernel(x: Any, w: Any, out: Any) -> int:
        if len(x.shape) != 2 or len(w.shape) != 2:
            return -1
        (m, k), (n, b) = x.shape, w.shape
        if b % f.nbytes or k != b // f.nbytes * f.elements or out.shape != (m, n) or clashes(out, w, x):
            return -1
        if m * n * k == 0:
            return zero(out) if m * n else 0
        multiply(gpu, "quant_matmul", f, activations, w, x, out, m)
        return 0

    return kernel


@declared("quant_matvec_colmajor")
def quant_matvec_colmajor(gpu: Gpu, call: Call) -> Kernel:
    """w[k,b] bytes of static["format"], x[k] -> out[n], the blocks of w along n."""
    f = FORMATS[dict(call.static)["format"]]

    def kernel(w: Any, x: Any, out: Any) -> int:
        if len(w.shape) != 2:
            return -1
        k, b = w.shape
        if b % f.nbytes or x.shape != (k,) or out.shape != (b // f.nbytes * f.elements,) or clashes(out, w, x):
            return -1
        if k == 0 or b == 0:
            return zero(out) if b else 0
        multiply_colmajor(gpu, "quant_matvec_colmajor", f, w, x, out, 1)
        return 0

    return kernel


@declared("quant_matmul_colmajor")
def quant_matmul_colmajor(gpu: Gpu, call: Call) -> Kernel:
    """x[m,k], w[k,b] bytes of static["format"] -> out[m,n], the blocks of w along n."""
    f = FORMATS[dict(call.static)["format"]]

    def kernel(x: Any, w: Any, out: Any) -> int:
        if len(x.shape) != 2 or len(w.shape) != 2:
            return -1
        (m, k), (rows, b) = x.shape, w.shape
        n = b // f.nbytes * f.elements
        if b % f.nbytes or k != rows or out.shape != (m, n) or clashes(out, w, x):
            return -1
        if m * n * k == 0:
            return zero(out) if m * n else 0
        multiply_colmajor(gpu, "quant_matmul_colmajor", f, w, x, out, m)
        return 0

    return kernel
