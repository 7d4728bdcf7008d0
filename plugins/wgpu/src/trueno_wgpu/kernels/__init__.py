"""The structured kernels, written by hand: what is not a row program.

`KERNELS[op](gpu, call)` makes the kernel of an op for float32.  It answers 0, or -1 having done nothing: shapes that do
not agree, or a result in an operand's buffer.  Guarded kernels leave their bits in `gpu.status`.
"""

from collections.abc import Callable

from trueno.backend import Call, FusedOp, Kernel, Reject

from trueno_wgpu.device import Gpu
from trueno_wgpu.kernels import convolve2d, embedding, epilogue, gemv, matmul, outer, quant, transpose

Factory = Callable[[Gpu, Call], Kernel]

PRODUCTS: dict[str, Factory] = {
    "matmul": matmul.matmul,
    "batched_matmul": matmul.batched_matmul,
    "matvec": gemv.matvec,
    "vecmat": gemv.vecmat,
    "convolve2d": convolve2d.convolve2d,
    "outer": outer.outer,
}
MOVES: dict[str, Factory] = {"transpose": transpose.transpose, "embedding_lookup": embedding.embedding_lookup}
KERNELS: dict[str, Factory] = {**PRODUCTS, **MOVES, **quant.KERNELS}


def kernel(gpu: Gpu, call: Call) -> Kernel:
    """The kernel of a structured call, with what follows it where the op has an epilogue."""
    return KERNELS[call.op.table_op.name](gpu, call)


def refusal(call: Call) -> Reject | None:
    """Why there is no kernel for a structured call; None if there is one."""
    if isinstance(call.op, FusedOp):
        return epilogue.refusal(call)
    if call.op.name not in KERNELS:
        return Reject("unsupported_op", f"no kernel for {call.op.name}")
    return quant.refusal(call) if call.op.quantized else None


__all__ = ["KERNELS", "Factory", "kernel", "refusal"]
