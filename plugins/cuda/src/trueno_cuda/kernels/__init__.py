"""The structured kernels, written by hand: what is not a row program.

`KERNELS[op](device, call)` makes the kernel of an op for float32 or float64.  It answers 0, or -1 having done nothing:
shapes that do not agree, or a result that overlaps an operand.  Guarded kernels leave their bits in `device.status()`.
"""

from collections.abc import Callable

from trueno.backend import Call, FusedOp, Kernel, Reject

from trueno_cuda.device import Device
from trueno_cuda.kernels import convolve2d, embedding, epilogue, gemm, gemv, outer, transpose

Factory = Callable[[Device, Call], Kernel]

PRODUCTS: dict[str, Factory] = {
    "matmul": gemm.matmul,
    "batched_matmul": gemm.batched_matmul,
    "matvec": gemv.matvec,
    "vecmat": gemv.vecmat,
}
MOVES: dict[str, Factory] = {
    "transpose": transpose.transpose,
    "outer": outer.outer,
    "convolve2d": convolve2d.convolve2d,
    "embedding_lookup": embedding.embedding_lookup,
}
KERNELS: dict[str, Factory] = {**PRODUCTS, **MOVES}


def kernel(device: Device, call: Call) -> Kernel:
    """The kernel of a structured call, with what follows it where the op has an epilogue."""
    return KERNELS[call.op.table_op.name](device, call)


def refusal(call: Call) -> Reject | None:
    """Why there is no kernel for a structured call; None if there is one."""
    if isinstance(call.op, FusedOp):
        return epilogue.refusal(call)
    if call.op.name not in KERNELS:
        return Reject("unsupported_op", f"no kernel for {call.op.name}")
    return None


__all__ = ["KERNELS", "PRODUCTS", "Factory", "kernel", "refusal"]
