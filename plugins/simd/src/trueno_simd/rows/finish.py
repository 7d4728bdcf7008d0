"""Finishing a whole result at once, where the BLAS made the product."""

from trueno_simd.kernels.operands import reader
from trueno_simd.llvm.calls import address_of, call_finish, pack
from trueno_simd.llvm.jit import inner, outer
from trueno_simd.rows.schedule import row_spans
from trueno_simd.threads.pool import parallel_for

JOB = reader(5)
PIECE = 24_576  # elements that one thread finishes at a time


@outer
def band(args, i):
    """Some rows."""
    finish, more, rows, n, step = JOB(args)
    return call_finish(finish, more, i * step, min(step, rows - i * step), 0, n)


@inner
def over_all(finish, more, rows, n):
    """`finish` every block of `rows` rows of n."""
    if rows * n == 0:
        return 0
    pieces, step = row_spans(rows, n, PIECE)
    parallel_for(address_of(band), pack((finish, more, rows, n, step)), pieces)
    return 0
