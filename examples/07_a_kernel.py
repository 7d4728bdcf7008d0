"""A kernel of one's own: h = x + r and its rms norm, fused.  On a GPU it is timed, elsewhere emulated."""
# mypy: disable-error-code="valid-type"

import numpy as np
import trueno
import trueno_cuda
from trueno_cuda.ptx import f32, kernel, ptr


@kernel(threads="T")
def add_norm(
    k, x: ptr(f32), r: ptr(f32), w: ptr(f32), h: ptr(f32), y: ptr(f32), eps: f32, *, N: int, T: int = 256, V: int = 4
):
    """h = x + r;  y = h · rsqrt(mean(h²) + eps) · w.   A row a block; x and r are read once, h is kept in registers."""
    first = k.ctaid * N
    squares, held = k.var(f32, 0.0), []
    for start in range(0, N, T * V):
        col = k.tid * V + start
        live = col < N
        xs, rs = (p.load(first + col, vec=V, where=live, cache="nc no_allocate") for p in (x, r))
        sums = [p + q for p, q in zip(xs, rs, strict=True)]
        for s in sums:
            squares.fma(s, s)
        held.append((col, live, sums))
    scale = k.rsqrt(k.fma(k.block_sum(squares), 1.0 / N, eps))
    for col, live, sums in held:
        h.store(first + col, sums, where=live)
        ws = w.load(col, vec=V, where=live)
        y.store(first + col, [s * scale * g for s, g in zip(sums, ws, strict=True)], where=live)


def main() -> None:
    gpu = trueno.backends()["cuda"].available
    backend, rows, n = ("cuda", 32768, 4096) if gpu else ("cuda_emulated", 4, 1024)
    rng = np.random.default_rng()
    x, r, w = (rng.standard_normal(s).astype(np.float32) for s in ((rows, n), (rows, n), (n,)))
    there = [trueno.to(v, backend) for v in (x, r, w, np.empty_like(x), np.empty_like(x))]
    launch = trueno_cuda.prepared(add_norm.build(N=n), rows, backend=backend)
    launch(*there, 1e-6)

    sums = x[:4].astype(np.float64) + r[:4]
    wanted = sums / np.sqrt((sums**2).mean(-1, keepdims=True) + 1e-6) * w
    np.testing.assert_allclose(trueno.numpy(there[4])[:4], wanted, rtol=1e-5, atol=1e-5)
    print(f"{rows} rows of {n} on {backend}: right")
    if gpu:
        clock(launch, there)


def clock(launch, there) -> None:
    """Bytes a second of the kernel, and of a copy that moves as many."""
    from cupy.cuda import Event, get_elapsed_time

    backend = trueno.backends()["cuda"].load()
    nbytes = 4 * there[0].nbytes
    source, target = (backend.empty((nbytes // 2,), np.dtype(np.uint8)) for _ in range(2))
    for name, call in (("copy", lambda: backend.copy(source, target)), ("add_norm", lambda: launch(*there, 1e-6))):
        best = float("inf")
        for _ in range(20):
            start, end = Event(), Event()
            start.record()
            call()
            end.record()
            end.synchronize()
            best = min(best, get_elapsed_time(start, end) * 1e-3)
        print(f"{name}: {best * 1e6:.0f} us, {nbytes / best / 1e12:.2f} TB/s")


if __name__ == "__main__":  # the benchmarks time the kernel as well
    main()
