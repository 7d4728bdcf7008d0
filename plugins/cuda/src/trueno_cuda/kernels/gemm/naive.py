"""One sum per thread: for products so small that nothing else pays, and for those without any terms."""

from functools import cache
from typing import Any

from trueno_cuda.kernels.gemm import form
from trueno_cuda.kernels.source import build
from trueno_cuda.kernels.store import Finish, Store
from trueno_cuda.ptx import Kernel, Type, u64

ROWS, COLUMNS = 8, 32
"""Of a block's sums: a warp reads 32 neighbours of B at once, and all of it the same element of A."""


@cache
def naive(arch: str, element: Type, store: Store) -> Kernel:
    """C = A B of any sizes, m x n sums by as many threads.

    Floor: m n k / 32 sectors of A and B each through L1; about 2 % of the arithmetic (an estimate).
    """

    def body(k: Any, p: Any) -> None:
        part = form.part(k, p, ROWS, COLUMNS)
        place = form.place(k, p, store, part.row, part.column)
        row, column = part.row + k.tid // COLUMNS, part.column + k.tid % COLUMNS
        live = (row < p.m) & (column < p.n)
        finish, sum_ = Finish(k, p, store), k.var(element, 0.0)
        along = k.min(row, p.m - 1).to(u64) * p.depth.to(u64)
        a, b = part.a + along, part.b + k.min(column, p.n - 1)
        wide = p.n.to(u64)
        for i in k.range(part.begin, part.end):
            sum_.fma(a.load(i), b.load(i.to(u64) * wide))
        at = place.base + row.to(u64) * p.pitch.to(u64) + column.to(u64)
        p.out.store(at, finish([sum_], at, place.lead + row.to(u64), column, live), where=live)
        finish.end()

    name = f"gemm_naive_{element}{store.word}"
    return build(name, arch, form.params(element, element, store), body, ROWS * COLUMNS)
