"""quant_matvec_colmajor y[n] = Σ over i of x[i] · W[i], W[k,n] with its blocks along n: float32 activations.

The matrix is read once, a few rows side by side, and their values, times a number each, are added to y, of which a
thread has a share of whole blocks: small enough to stay in its L1 cache.

Floor: the matrix's bytes over the memory's bandwidth; in fact decoding limits it, some 4 instructions for 16 values.
"""

from trueno.backend import FORMATS, Call, Kernel, Rates

from trueno_simd.kernels.quant import printed
from trueno_simd.kernels.table import BLOCKS, KERNELS

SHARE = 1024  # columns of a chunk at least, and its multiple: rows are then read in long enough pieces
SHARES = 8  # chunks at most

COLUMNS = '''"""quant_matvec_colmajor: the columns of <format> blocks, times activations in float32."""

from numba import types

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.llvm.jit import outer
from trueno_simd.kernels.operands import reader, source, target
from trueno_simd.kernels.quant.matvec_colmajor import SHARE, SHARES
from trueno_simd.kernels.quant.vector.floats import ROWS, float_columns
from trueno_simd.kernels.quant.regions import settled, share_out
from trueno_simd.kernels.tile import address, clear
from trueno_simd.llvm.calls import address_of, pack

JOB = reader(7)
some, one = float_columns("<format>", ROWS), float_columns("<format>", 1)


@outer
def columns(args, index):
    w, w_row, x, k, y, n, share = JOB(args)
    first = index * share
    count = min(share, n - first)
    w += first // <elements> * <nbytes>
    y += 4 * first
    clear(y, 4 * count)
    whole = k - k % ROWS
    for i in range(0, whole, ROWS):
        some(w + i * w_row, w_row, x + 4 * i, y, count)
    for i in range(whole, k):
        one(w + i * w_row, w_row, x + 4 * i, y, count)
    return 0


@kernel_entry(types.intp(source(types.uint8, 2), source(types.float32, 1), target(types.float32, 1)))
def kernel(w, x, out):
    status = settled(w, x.size, out.size, <elements>, <nbytes>, x, out)
    if status:
        return min(status, 0)
    k, w_row = w.shape
    n = out.size
    share = ((n + SHARES - 1) // SHARES + SHARE - 1) // SHARE * SHARE
    args = pack((address(w), w_row, address(x), k, address(out), n, share))
    share_out(address_of(columns), args, (n + share - 1) // share)
    return 0
'''


@KERNELS.add("quant_matvec_colmajor", rates=Rates(1e-6, 4e10, 4e10), dtypes=BLOCKS)
def quant_matvec_colmajor(device: None, call: Call) -> Kernel:
    """w[k,b] bytes of the format, x[k] float32 -> out[n] float32."""
    name = FORMATS[dict(call.static)["format"]].name
    return printed.compiled("quant_matvec_colmajor", COLUMNS, name)
