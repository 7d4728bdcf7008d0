"""What surrounds the work of every product of blocks: a call is checked, and does not hold up other Python threads."""

from trueno_simd.kernels.operands import overlaps
from trueno_simd.kernels.tile import address, clear
from trueno_simd.llvm.calls import acquire_gil, release_gil
from trueno_simd.llvm.jit import inner, outer
from trueno_simd.threads.pool import parallel_for

UNHELD = 4  # chunks from which on other Python threads may run meanwhile: some 20 us, 100 times what it costs


@inner
def settled(w, rows, width, elements, nbytes, x, out):
    """Whether a call ends before it has begun.

    -1 where w is not `rows` rows of `width` elements, with `elements` of them in a block of `nbytes`, or where `out`
    shares memory; 1 where nothing is summed, and so `out` is zero; else 0.
    """
    if width % elements or w.shape[0] != rows or w.shape[1] != width // elements * nbytes:
        return -1
    if overlaps(out, w) or overlaps(out, x):
        return -1
    if w.size == 0 or x.size == 0:
        clear(address(out), out.nbytes)
        return 1
    return 0


@outer
def share_out(function, args, chunks):
    """`parallel_for`, without Python's lock where that takes long."""
    if chunks < UNHELD:
        return parallel_for(function, args, chunks)
    state = release_gil()
    bits = parallel_for(function, args, chunks)
    acquire_gil(state)
    return bits
