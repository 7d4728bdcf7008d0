# mypy: disable-error-code="valid-type"
"""attention_decode by matrix products of a warp (mma.sync): 16-bit caches whose heads are multiples of 32,
and q8_0 with multiples of 64.

A warp takes 16 keys at a time, for tiles of eight rows of queries.  Nothing of the cache goes through shared memory:

    scores     a = 16 keys, b = queries.  A sum over d may take d in any order, so a lane reads 16 bytes of a key, and
               they are its part of two products.
    weights    2^(score − the largest so far), four of each lane; shuffles give each lane those of its own four keys
    values     a = values by columns, b = weights.  Columns may be in any order as well: a lane reads 16 bytes of its
               four keys, and joins halves of two keys to a register.

`warp` has this, and `blocks` what is different for q8_0.

A product of 16-bit numbers is exact, and queries and weights are split into parts that are: two of float16, scaled by
powers of two to where it is dense, or three of bfloat16.  Sums are float32 throughout, so a result is as good as one
of float32 arithmetic.  The next keys and
values are on their way while these are multiplied, and so are the table's entries for those behind them.

Warps take turns along the keys, or, where there are many queries, the same keys for different rows.

Floor: the keys and values of each sequence read once, 4.28 TB/s on an H200; below 4096 keys latency decides.
"""

from functools import cache
from types import SimpleNamespace
from typing import Any

from trueno_cuda.kernels.caches.blocks import Blocks
from trueno_cuda.kernels.caches.cells import Rows
from trueno_cuda.kernels.caches.shares import Share, operands
from trueno_cuda.kernels.caches.warp import MOST, PACKS, THREADS, Warp, rows_of, step_of
from trueno_cuda.kernels.operands import typed
from trueno_cuda.ptx import Builder, Source


def takes(keys: Rows, values: Rows) -> bool:
    """Whether there is a kernel for rows like these, if caches are aligned to 16 bytes."""
    least = 64 if keys.form == "q8_0" else 32
    return keys.form in PACKS and all(r.n % least == 0 and 0 < r.n <= MOST for r in (keys, values))


def _mma(
    k: Builder, *, F: str, D: int, E: int, TILES: int, ALONG: bool, CAP: bool, ONE: bool, WHOLE: bool, **given: Any
) -> None:  # fmt: skip
    """The parts and stats of one share.  TILES: of rows of a warp.  ALONG: whether warps take turns along the keys."""
    p = SimpleNamespace(**given)
    share = Share(k, p, k.ctaid_y, rows_of(TILES, ALONG), step_of(ALONG), ONE, WHOLE)
    with k.when(share.low >= share.high):
        share.empty()
    with k.otherwise():
        work = Blocks if F == "q8_0" else Warp
        work(k, p, share, F, D, E, TILES, ALONG, CAP).run()


@cache
def source(form: str, blocks: int) -> Source:
    """blocks: that a multiprocessor must hold, which bounds registers."""
    rows = Rows(form, 32)
    return typed(_mma, f"attention_decode_mma_{form}", THREADS, operands(rows, rows), blocks)
