"""Kernels of the ops on quantized matrices: what is read from blocks, and never held as floats.

`KERNELS[op](gpu, call)` makes the kernel of a call; `refusal(call)` says why there is none.
"""

from collections.abc import Callable
from typing import Any

from trueno.discovery.protocol import Call, Kernel, Reject
from trueno.errors import KernelError
from trueno.formats.table import FORMATS, Format

from trueno_wgpu.device import Buffer, Gpu, View
from trueno_wgpu.kernels import quant_rows
from trueno_wgpu.kernels.memory import bands, clashes, whole, zero
from trueno_wgpu.kernels.quant_activations import quantized
from trueno_wgpu.kernels.quant_dequantize import dequantize

Bound = Buffer | View


def padded(nbytes: int) -> int:
    return -(-nbytes // 4) * 4


def multiply(gpu: Gpu, op: str, f: Format, activations: str, w: Any, x: Any, out: Any, m: int) -> None:
    """out[m, n] = x[m, k] · w[n, k]ᵀ; m rows, of which matvec has one."""
    n, row_bytes = w.shape
    k, limits = f.row_elements(row_bytes), gpu.limits
    widest = 4 * max(n, k)
    step = m if m * widest <= limits.binding else limits.binding // widest // 64 * 64
    if step == 0:
        raise KernelError(f"{op}: 64 rows of {widest} bytes are more than the {limits.binding} that this adapter binds")
    for first in range(0, m, step):
        count = min(step, m - first)
        xs: Bound = whole(x.buffer, x.nbytes, limits)
        ys: Bound = whole(out.buffer, out.nbytes, limits)
        if count < m:
            xs, ys = View(x.buffer, first * 4 * k, count * 4 * k), View(out.buffer, first * 4 * n, count * 4 * n)
        given: tuple[Bound, ...] = (xs,)
        if activations != "f32":
            made = quantized(gpu, xs, count * k, f.activations)
            given = (made.codes, made.scales, made.sums)
        for row, rows in bands(op, "w", n, (row_bytes,), limits):
            ws: Bound = whole(w.buffer, padded(w.nbytes), limits)
            if rows < n:
                ws = View(w.buffer, row * row_bytes, padded(rows * row_bytes))
            quant_rows.run(gpu, op, f, activations, ws, given, ys, (rows, row, n, k, count))


def quant_matvec(gpu: Gpu, call: Call) -> Kernel:
    """w[n,b] bytes of static["format"], x[k] -> out[n]."""
    static = dict(call.static)
    f, activations = FORMATS[static["format"]], static["activations"]

    def kernel(w: Any, x: Any, out: Any) -> int:
        n, b = w.shape
        if b % f.nbytes or x.shape != (b // f.nbytes * f.elements,) or out.shape != (n,) or clashes(out, w, x):
            return -1
        if n == 0 or b == 0:
            return zero(out) if n else 0
        multiply(gpu, "quant_matvec", f, activations, w, x, out, 1)
        return 0

    return kernel


def quant_matmul(gpu: Gpu, call: Call) -> Kernel:
    """x[m,k], w[n,b] bytes of static["format"] -> out[m,n]."""
    static = dict(call.static)
    f, activations = FORMATS[static["format"]], static["activations"]

    def kernel(x: Any, w: Any, out: Any) -> int:
        (m, k), (n, b) = x.shape, w.shape
        if b % f.nbytes or k != b // f.nbytes * f.elements or out.shape != (m, n) or clashes(out, w, x):
            return -1
        if m * n * k == 0:
            return zero(out) if m * n else 0
        multiply(gpu, "quant_matmul", f, activations, w, x, out, m)
        return 0

    return kernel


KERNELS: dict[str, Callable[[Gpu, Call], Kernel]] = {
    "dequantize": dequantize,
    "quant_matvec": quant_matvec,
    "quant_matmul": quant_matmul,
}


def refusal(call: Call) -> Reject | None:
    """Why no kernel of this family takes a call of one of its ops."""
    if call.op.name not in KERNELS:
        return Reject("unsupported_op", f"no kernel for {call.op.name}: quantize on the host")
    if call.guarded:
        return Reject("unguarded", f"{call.op.name} has no guarded kernel")
    return None
