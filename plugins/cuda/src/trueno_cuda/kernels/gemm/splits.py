"""Adds the splits of a sum, in order, so that results do not depend on which came first."""

from functools import cache
from typing import Any

from trueno_cuda.kernels.source import build
from trueno_cuda.kernels.store import Finish, Store
from trueno_cuda.ptx import Kernel, Type, ptr, u32, u64

THREADS = 256


@cache
def adding(arch: str, element: Type, vectors: bool, store: Store) -> Kernel:
    """out[z, i, j] = sum over s of parts[z, s, i, j], of m x n elements, fewer than 2^32.  Grid: elements, 1, products.

    vectors: n and out are multiples of 16 bytes.  Floor: splits + 1 elements of memory for each; bound by bandwidth.
    """
    width = 16 // element.bytes if vectors else 1

    def body(k: Any, p: Any) -> None:
        finish, product = Finish(k, p, store), k.ctaid_z.to(u64)
        each = k.multiple_of(p.m * p.n, width)
        i = (k.ctaid * THREADS + k.tid) * width
        live = i < each
        wide = each.to(u64)
        parts = p.parts + k.multiple_of(product * p.splits.to(u64) * wide + i.to(u64), width)
        sums = [k.var(v) for v in parts.load(0, vec=width, where=live)]
        for s in k.range(1, p.splits):
            more = parts.load(k.multiple_of(s.to(u64) * wide, width), vec=width, where=live)
            for sum_, part in zip(sums, more, strict=True):
                sum_ += part
        at = k.multiple_of(product * wide, width) + i.to(u64)
        row, column = product * p.m.to(u64) + (i // p.n).to(u64), i % p.n
        p.out.store(at, finish(sums, at, row, column, live), where=live)
        finish.end()

    params = {
        "parts": ptr(element), "out": ptr(element), **store.pointers(element),
        "m": u32, "n": u32, "splits": u32, **store.floats(element),
    }  # fmt: skip
    return build(f"gemm_splits_{element}{'_v' if vectors else ''}{store.word}", arch, params, body, THREADS)
