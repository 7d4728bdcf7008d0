"""C = A B of any sizes, in float32: tiles in shared memory, sums in registers.  `python examples/cuda/gemm_kernel.py`

A product of n x n matrices computes 2 n³ flops on 12 n² bytes, so a kernel has to use each number that it reads many
times.  Here a block computes 64 x 64 elements of C.  It brings 64 x 16 of A and 16 x 64 of B into shared memory at a
time, and each of its 256 threads multiplies 4 numbers of A by 4 of B for 16 sums, which stay in its registers:

    memory to shared memory      each number of A and B is read n / 64 times, not n times
    shared memory to registers   8 numbers are read for 16 multiplications, not 32

Trueno's own matmul does the same with larger tiles, copies that run ahead, and tensor cores where the dtype has them.
"""
# mypy: disable-error-code="valid-type"

import numpy as np
import trueno
import trueno_cuda
from measure import BACKEND, GPU, check, describe, device, empty, measure, say_where
from trueno_cuda.ptx import f32, kernel, ptr, u32

EACH = 4  # a thread's rows and columns


@kernel(threads=(16, 16))
def gemm(k, a: ptr(f32), b: ptr(f32), c: ptr(f32), m: u32, n: u32, depth: u32, *, TILE: int = 64, STEP: int = 16):
    """c[m, n] = a[m, depth] · b[depth, n], a tile of TILE x TILE per block.   Floor: 2 m n depth flops."""
    top, left = k.ctaid_y * TILE, k.ctaid * TILE
    thread = k.tid_y * 16 + k.tid
    # A's tile is stored turned, so that a thread's four rows are neighbours, too; 4 more columns part the banks.
    a_tile, b_tile = k.shared(f32, STEP, TILE + 4), k.shared(f32, STEP, TILE)
    sums = [k.vars(f32, EACH, 0.0) for _ in range(EACH)]

    for start in k.range(0, depth, STEP):  # on the GPU; every other loop here is Python's, and is unrolled
        for part in range(0, TILE * STEP, k.threads):
            place = thread + part
            row, along = place // STEP, place % STEP
            inside = (top + row < m) & (start + along < depth)  # what is outside becomes 0, which adds nothing
            a_tile.store((along, row), a.load((top + row) * depth + start + along, where=inside))
            along, column = place // TILE, place % TILE
            inside = (start + along < depth) & (left + column < n)
            b_tile.store((along, column), b.load((start + along) * n + left + column, where=inside))
        k.sync()
        for along in range(STEP):
            rows = a_tile.load((along, k.tid_y * EACH), vec=EACH)
            columns = b_tile.load((along, k.tid * EACH), vec=EACH)
            for i in range(EACH):
                for j in range(EACH):
                    sums[i][j].fma(rows[i], columns[j])
        k.sync()  # no thread may overwrite a tile that another one still reads

    for i in range(EACH):
        for j in range(EACH):
            row, column = top + k.tid_y * EACH + i, left + k.tid * EACH + j
            c.store(row * n + column, sums[i][j], where=(row < m) & (column < n))


def main() -> None:
    say_where()
    m, n, depth = (4096, 4096, 4096) if GPU else (70, 45, 33)
    rng = np.random.default_rng()
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, depth), (depth, n)))
    there_a, there_b, c = trueno.to(a, BACKEND), trueno.to(b, BACKEND), empty(m, n)

    built = gemm.build(arch=device().arch)
    describe(built)
    launch = trueno_cuda.prepared(built, (-(-n // 64), -(-m // 64)), (m, n, depth), backend=BACKEND)
    measure(lambda: launch(there_a, there_b, c), flops=2 * m * n * depth)

    # The first rows, in float64.  Each of `depth` additions rounds a sum that is at most |a| · |b|.
    some = slice(0, 128)
    wide_a, wide_b = a[some].astype(np.float64), b.astype(np.float64)
    bound = (depth + 1) * 2.0**-24 * (np.abs(wide_a) @ np.abs(wide_b))
    check(f"{m} x {depth} times {depth} x {n}", trueno.numpy(c)[some], wide_a @ wide_b, bound)

    print("trueno.matmul, for comparison:")
    product = measure(lambda: trueno.matmul(there_a, there_b), flops=2 * m * n * depth)
    check("the same product", trueno.numpy(product)[some], wide_a @ wide_b, bound)


if __name__ == "__main__":
    main()
