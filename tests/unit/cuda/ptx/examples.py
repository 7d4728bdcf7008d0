"""Five kernels that use most of the language; their texts are kept in tests/golden/cuda."""

from trueno_cuda.ptx import TARGETS, bf16, f32, kernel, ptr, u32


@kernel(max_threads=1024)
def vector_add(k, a: ptr(f32), b: ptr(f32), out: ptr(f32), n: u32, *, V: int = 4):
    """out[i] = a[i] + b[i].   V elements a thread and turn, in a grid-stride loop; `n` a multiple of V."""
    start = (k.ctaid * k.ntid + k.tid) * V
    step = k.nctaid * k.ntid * V
    for i in k.range(start, n, step):
        x = a.load(i, vec=V, cache="nc no_allocate")
        y = b.load(i, vec=V, cache="nc no_allocate")
        out.store(i, [p + q for p, q in zip(x, y, strict=True)])


@kernel(threads=256)
def rms_norm(k, x: ptr(f32), w: ptr(f32), y: ptr(f32), eps: f32, *, N: int, V: int = 4):
    """y[r, :] = x[r, :] · rsqrt(mean(x[r, :]²) + eps) · w.   One block a row; x is read once, kept in registers."""
    row, tid = k.ctaid, k.tid
    squares, held = k.var(f32, 0.0), []
    for j in range(0, N, k.threads * V):
        col = tid * V + j
        xs = x.load(row * N + col, vec=V, where=col < N)
        for e in xs:
            squares.fma(e, e)
        held.append((col, xs))
    scale = k.rsqrt(k.fma(k.block_sum(squares), 1.0 / N, eps))
    for col, xs in held:
        ws = w.load(col, vec=V, where=col < N)
        y.store(row * N + col, [e * scale * g for e, g in zip(xs, ws, strict=True)], where=col < N)


@kernel(threads=(16, 16))
def sgemm(k, a: ptr(f32), b: ptr(f32), c: ptr(f32), m: u32, n: u32, depth: u32, *, TILE: int = 64, BK: int = 16):
    """c[m, n] = a[m, depth] @ b[depth, n].   A tile a block, a square of it a thread, any sizes."""
    tx, ty = k.tid, k.tid_y
    side = TILE // 16
    thread, row0, col0 = ty * 16 + tx, k.ctaid_y * TILE, k.ctaid * TILE
    a_tile, b_tile = k.shared(f32, BK, TILE + 4), k.shared(f32, BK, TILE)
    acc = [k.vars(f32, side) for _ in range(side)]

    for k0 in k.range(0, depth, BK):
        for first in range(0, TILE * BK, 256):
            e = thread + first
            i, q = e // BK, e % BK
            inside = (row0 + i < m) & (k0 + q < depth)
            a_tile.store((q, i), a.load((row0 + i) * depth + k0 + q, where=inside))
            q, j = e // TILE, e % TILE
            inside = (k0 + q < depth) & (col0 + j < n)
            b_tile.store((q, j), b.load((k0 + q) * n + col0 + j, where=inside))
        k.sync()

        for q in range(BK):
            left = a_tile.load((q, ty * side), vec=side)
            right = b_tile.load((q, tx * side), vec=side)
            for i in range(side):
                for j in range(side):
                    acc[i][j].fma(left[i], right[j])
        k.sync()

    for i in range(side):
        for j in range(side):
            row, col = row0 + ty * side + i, col0 + tx * side + j
            c.store(row * n + col, acc[i][j], where=(row < m) & (col < n))


@kernel(threads=128)
def mma_gemm(k, a: ptr(bf16), b: ptr(bf16), c: ptr(f32), n: u32, depth: u32, *, BK: int = 32, STAGES: int = 3):
    """c[m, n] = a[m, depth] @ b[n, depth].T   64 x 64 a block, 16 rows a warp; depth a multiple of BK, n of 64.

    cp.async keeps STAGES - 1 tiles on their way.
    """
    tid, warp, lane = k.tid, k.warp, k.lane
    row0, col0 = k.ctaid_y * 64, k.ctaid * 64
    depth, n = k.multiple_of(depth, 32), k.multiple_of(n, 64)
    a_ring = k.shared(bf16, 64, BK + 8, stages=STAGES)  # 8 more: no two rows of ldmatrix share a bank
    b_ring = k.shared(bf16, 64, BK + 8, stages=STAGES)
    acc = [k.vars(f32, 4) for _ in range(8)]

    def fetch(stage, k0):
        for ring, source, first in ((a_ring, a, row0), (b_ring, b, col0)):
            for e in range(0, 64 * BK // 8, k.threads):
                row, col = (tid + e) // (BK // 8), (tid + e) % (BK // 8) * 8
                k.copy_async(ring[stage], (row, col), source, (first + row) * depth + k0 + col, 8)

    for s in range(STAGES - 1):
        fetch(s, s * BK)
        k.async_commit()

    stage = k.var(u32, 0)
    for k0 in k.range(0, depth, BK):
        k.async_wait(STAGES - 2)
        k.sync()
        now = stage.value
        for q in range(0, BK, 16):
            left = k.ldmatrix(a_ring[now], (warp * 16 + lane % 16, lane // 16 * 8 + q))
            for j in range(0, 8, 2):
                right = k.ldmatrix(b_ring[now], (lane // 16 * 8 + lane % 8 + j * 8, lane // 8 % 2 * 8 + q))
                k.mma("m16n8k16", acc[j], left, right[:2])
                k.mma("m16n8k16", acc[j + 1], left, right[2:])
        ahead = k0 + BK * (STAGES - 1)
        with k.when(ahead < depth):
            fetch((now + (STAGES - 1)) % STAGES, ahead)
        k.async_commit()  # an empty group too, so that async_wait counts turns
        stage.set((now + 1) % STAGES)
    k.async_wait(0)

    for j in range(8):
        row, col = row0 + warp * 16 + lane // 4, col0 + j * 8 + lane % 4 * 2
        c.store(row * n + col, acc[j][:2])
        c.store((row + 8) * n + col, acc[j][2:])


@kernel(threads=128)
def wgmma_gemm(k, a: ptr(bf16), b: ptr(bf16), c: ptr(f32), tiles: u32, *, N: int = 128, STAGES: int = 2):
    """c[m, n] = a @ b.T, of matrices that lie in memory as swizzled tiles of 64 or N rows and 64 columns.

    One thread copies tiles in bulk; the four warps wait for an mbarrier and multiply with wgmma.
    """
    row0, first = k.ctaid_y * 64, k.tid == 0
    a_ring = k.shared(bf16, 64, 64, stages=STAGES, align=1024)
    b_ring = k.shared(bf16, N, 64, stages=STAGES, align=1024)
    full = k.mbarrier(STAGES)
    acc = k.vars(f32, N // 2)

    with k.when(first):
        for s in range(STAGES):
            full.init(1, s)
        k.fence("mbarrier_init")
    k.sync()

    def fetch(stage, tile):
        full.arrive_expecting((64 + N) * 64 * bf16.bytes, stage)
        k.copy_bulk(a_ring[stage], 0, a, (k.ctaid_y * tiles + tile) * (64 * 64), 64 * 64, full, stage)
        k.copy_bulk(b_ring[stage], 0, b, (k.ctaid * tiles + tile) * (N * 64), N * 64, full, stage)

    for s in range(STAGES - 1):
        with k.when(first & (tiles > s)):
            fetch(s, s)

    for t in k.range(tiles):
        ahead = t + (STAGES - 1)
        with k.when(first & (ahead < tiles)):
            fetch(ahead % STAGES, ahead)
        stage = t % STAGES
        full.wait(t // STAGES & 1, stage)
        left = k.matrix(a_ring[stage], stride=8 * 64)
        right = k.matrix(b_ring[stage], stride=8 * 64)
        k.wgmma_fence()
        for q in range(0, 64, 16):
            k.wgmma(f"m64n{N}k16", acc, k.deeper(left, q, bf16), k.deeper(right, q, bf16), bf16)
        k.wgmma_commit()
        k.wgmma_wait(0)
        k.sync()

    row, n = row0 + k.warp * 16 + k.lane // 4, k.nctaid * N
    for j in range(N // 8):
        col = k.ctaid * N + j * 8 + k.lane % 4 * 2
        c.store(row * n + col, acc[4 * j : 4 * j + 2])
        c.store((row + 8) * n + col, acc[4 * j + 2 : 4 * j + 4])


ARCHES = {
    "vector_add": tuple(TARGETS),
    "rms_norm": tuple(TARGETS),
    "sgemm": tuple(TARGETS),
    "mma_gemm": tuple(t for t in TARGETS if t != "sm_75"),
    "wgmma_gemm": ("sm_90a",),
}
"""What each example claims to run on."""
EXAMPLES = {s.name: s for s in (vector_add, rms_norm, sgemm, mma_gemm, wgmma_gemm)}
CONSTANTS = {"rms_norm": {"N": 2048}, "wgmma_gemm": {"N": 64}}
