"""quant_experts: the products of a step are shared out as one, and rows that name one expert are multiplied together.

Each token is quantized once, however many experts it names, and one parallel region spans the rows of all of them
(`quant.places`).  From `TOGETHER` rows of an expert on they are packed into the tiles of `quant.matmul`, which decode
its blocks once for all of them; one region packs, another multiplies, whatever the number of experts (`quant.grouped`).

Floor: the bytes of the experts that are named, once.  Measured on two cores of a Zen 5, 8 of 32 experts of 768x2048 in
q4_k, best of 300, over our own products one by one in the same run: one token 74 us of 117 (7.1 MB, 96 GB/s from L3), 8
tokens 630 of 1270, 64 tokens 2.2 ms of 3.2.
"""

from math import prod
from typing import Any

import numpy as np
from trueno.backend import FORMATS, Call, Kernel, Rates, Refused

from trueno_simd.kernels.quant import places
from trueno_simd.kernels.quant.grouped import grouped
from trueno_simd.kernels.quant.matmul import quant_matmul
from trueno_simd.kernels.table import BLOCKS, KERNELS, not_rounded
from trueno_simd.llvm import amx, elsewhere

TOGETHER = 4  # rows of one expert from which on they are multiplied together
TILED = 32  # rows of each expert, on average, from which on AMX's tiles may be faster

Array = np.ndarray[Any, Any]
ALL = np.empty(0, np.int64)


@KERNELS.add("quant_experts", rates=Rates(4e-6, 1.2e11, 4e10), dtypes=BLOCKS, refusal=not_rounded)
def quant_experts(device: None, call: Call) -> Kernel:
    """w[m,b] bytes, x[...,k] or x[...,1,k] float32, ids[...] -> out[...,outputs] float32."""
    static = dict(call.static)
    outputs, name, activations = static["outputs"], static["format"], static.get("activations", "q8")
    singly = places.kernel(name, activations)
    later: dict[str, Kernel] = {}

    def together(w: Array, x: Array, order: Array, starts: Array, which: Array, out: Array) -> int:
        """The products of some experts, each with the rows `order[start:end]` of the result."""
        fits = activations == "q8" and not (amx.available("amx-int8") and len(order) >= TILED * len(which))
        if fits:
            if "grouped" not in later:
                later["grouped"] = elsewhere.run(lambda: grouped(FORMATS[name].name))
            return later["grouped"](w, x, order, starts, which, out)
        if "one" not in later:
            later["one"] = elsewhere.run(lambda: quant_matmul(device, call))
        each = len(out) // len(x)
        for e, start, end in zip(which.tolist(), starts.tolist(), starts[1:].tolist(), strict=False):
            some = order[start:end]
            y = np.empty((len(some), outputs), np.float32)
            if status := later["one"](x[some // each], w[e * outputs : (e + 1) * outputs], y):
                return status
            out[some] = y
        return 0

    def kernel(w: Any, x: Any, ids: Any, out: Any) -> int:
        arrays = (w, x, ids, out)
        if out.shape != (*ids.shape, outputs) or x.ndim != out.ndim or ids.dtype != np.int64 or len(w) % outputs:
            return -1
        if x.shape[:-1] != ids.shape and x.shape[:-1] != (*ids.shape[:-1], 1):
            return -1
        if not all(a.flags.c_contiguous for a in arrays) or not out.flags.writeable:
            raise Refused("an operand is not contiguous")
        if not ids.size:
            return 0
        rows, which, results = (
            x.reshape(prod(x.shape[:-1]), x.shape[-1]),
            ids.reshape(-1),
            out.reshape(ids.size, outputs),
        )
        status = singly(w, rows, which, ALL, results, TOGETHER)
        if status != places.REPEATED:
            return status
        order = np.argsort(which, kind="stable")
        counts = np.bincount(which)
        experts = np.flatnonzero(counts)
        counts = counts[experts]
        many = counts >= TOGETHER
        of_many = np.repeat(many, counts)
        few, ends = order[~of_many], np.concatenate(([0], np.cumsum(counts[many])))
        if len(few) and (status := singly(w, rows, which, few, results, len(which))):
            return status
        return together(w, rows, order[of_many], ends, experts[many], results)

    return kernel
