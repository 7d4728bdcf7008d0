"""quant_experts: the rows of x that name one expert are multiplied together, by the kernels of plain matrices.

A decoded token names a few experts once each, and each is a product with one vector; many tokens share experts, and
from `TOGETHER` rows on a product with a matrix reads the expert's blocks once for all of them.

Floor: the bytes of the experts that are named, once.
"""

from typing import Any

import numpy as np
from trueno.backend import Call, Kernel, Rates, Refused

from trueno_simd.kernels.quant.matmul import quant_matmul
from trueno_simd.kernels.quant.matvec import quant_matvec
from trueno_simd.kernels.table import BLOCKS, KERNELS
from trueno_simd.llvm import elsewhere

TOGETHER = 4  # rows of one expert from which on they are gathered


@KERNELS.add("quant_experts", rates=Rates(4e-6, 1.2e11, 4e10), dtypes=BLOCKS)
def quant_experts(device: None, call: Call) -> Kernel:
    """w[m,b] bytes, x[...,k] float32, ids[...] -> out[...,outputs] float32, the leading axes equal."""
    outputs = dict(call.static)["outputs"]
    vector = quant_matvec(device, call)
    matrices: list[Kernel] = []

    def together(w: Any, x: Any, out: Any) -> int:
        if not matrices:
            matrices.append(elsewhere.run(lambda: quant_matmul(device, call)))
        status: int = matrices[0](x, w, out)
        return status

    def kernel(w: Any, x: Any, ids: Any, out: Any) -> int:
        arrays = (w, x, ids, out)
        if not x.shape[:-1] == ids.shape == out.shape[:-1] or out.shape[-1] != outputs or ids.dtype != np.int64:
            return -1
        if not all(a.flags.c_contiguous for a in arrays) or not out.flags.writeable:
            raise Refused("an operand is not contiguous")
        if any(np.may_share_memory(out, a) for a in arrays[:3]) or len(w) % outputs:
            return -1
        rows, which, results = x.reshape(ids.size, x.shape[-1]), ids.reshape(-1), out.reshape(ids.size, outputs)
        if len(which) <= TOGETHER:
            named = which.tolist()
            if named and (min(named) < 0 or (max(named) + 1) * outputs > len(w)):
                return -1
            for e, row, y in zip(named, rows, results, strict=True):
                if status := vector(w[e * outputs : (e + 1) * outputs], row, y):
                    return status
            return 0
        if which.min() < 0 or (which.max() + 1) * outputs > len(w):
            return -1
        order = np.argsort(which, kind="stable")
        experts, starts = np.unique(which[order], return_index=True)
        for e, some in zip(experts.tolist(), np.split(order, starts[1:]), strict=True):
            blocks = w[e * outputs : (e + 1) * outputs]
            if len(some) < TOGETHER:
                for i in some.tolist():
                    if status := vector(blocks, rows[i], results[i]):
                        return status
                continue
            y = np.empty((len(some), outputs), np.float32)
            if status := together(blocks, rows[some], y):
                return status
            results[some] = y
        return 0

    return kernel
