"""Foreign PTX: what nvcc makes of small CUDA kernels gives NumPy's results, without a finding."""

# ruff: noqa: E501 - kernels are easier to read with several instructions in a line

import shutil
import subprocess

import numpy as np
import pytest
from trueno_cuda.ptx.emulate import Module, load

SOURCE = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define K extern "C" __global__ void
K vector_add(const float* x, const float* y, float* z, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) z[i] = x[i] + y[i];
}
K vector_add4(const float4* x, const float4* y, float4* z, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float4 a = x[i], b = y[i]; z[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }
}
K block_sum(const float* x, float* out, int n) {
  __shared__ float s[256]; int t = threadIdx.x; float a = 0;
  for (int i = blockIdx.x * 256 + t; i < n; i += gridDim.x * 256) a += x[i];
  s[t] = a; __syncthreads();
  for (int o = 128; o > 0; o >>= 1) { if (t < o) s[t] += s[t + o]; __syncthreads(); }
  if (t == 0) out[blockIdx.x] = s[0];
}
K matmul(const float* a, const float* b, float* c, int n) {
  __shared__ float A[16][16], B[16][17]; int x = threadIdx.x, y = threadIdx.y;
  int row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x; float s = 0;
  for (int t = 0; t < n; t += 16) {
    A[y][x] = a[row * n + t + x]; B[y][x] = b[(t + y) * n + col]; __syncthreads();
    for (int k = 0; k < 16; k++) s += A[y][k] * B[k][x];
    __syncthreads();
  }
  c[row * n + col] = s;
}
K softmax(const float* x, float* y, int n) {
  extern __shared__ float buffer[]; int t = threadIdx.x; const float* r = x + blockIdx.x * n;
  float m = -INFINITY; for (int i = t; i < n; i += blockDim.x) m = fmaxf(m, r[i]);
  buffer[t] = m; __syncthreads();
  for (int o = blockDim.x / 2; o; o /= 2) { if (t < o) buffer[t] = fmaxf(buffer[t], buffer[t + o]); __syncthreads(); }
  m = buffer[0]; __syncthreads();
  float s = 0; for (int i = t; i < n; i += blockDim.x) s += expf(r[i] - m);
  for (int o = 16; o; o /= 2) s += __shfl_xor_sync(~0u, s, o);
  if (t % 32 == 0) buffer[t / 32] = s;
  __syncthreads();
  s = 0; for (int w = 0; w < blockDim.x / 32; w++) s += buffer[w];
  for (int i = t; i < n; i += blockDim.x) y[blockIdx.x * n + i] = expf(r[i] - m) / s;
}
K histogram(const unsigned char* x, int* h, int n) {
  __shared__ int c[256]; c[threadIdx.x] = 0; __syncthreads();
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += 256 * gridDim.x) atomicAdd(&c[x[i]], 1);
  __syncthreads(); atomicAdd(&h[threadIdx.x], c[threadIdx.x]);
}
K scan(const int* x, int* y) {
  int t = threadIdx.x, v = x[blockIdx.x * 32 + t];
  for (int o = 1; o < 32; o *= 2) { int u = __shfl_up_sync(~0u, v, o); if (t >= o) v += u; }
  y[blockIdx.x * 32 + t] = v;
}
K collatz(const int* x, int* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  long long v = x[i]; int steps = 0; while (v != 1) { v = v % 2 ? 3 * v + 1 : v / 2; steps++; } y[i] = steps;
}
K halves(const __half2* x, const __nv_bfloat16* b, float* y, int n) {
  int i = threadIdx.x; if (i < n) { __half2 v = __hfma2(x[i], x[i], __float2half2_rn(0.5f)); float2 f = __half22float2(v);
  y[i] = f.x * 2 + f.y + __bfloat162float(b[i]); }
}
K mathematics(const float* x, const double* d, float* y, double* e) {
  int i = threadIdx.x; y[i] = sinf(x[i]) + tanhf(x[i]) + powf(fabsf(x[i]), 1.3f) + log1pf(fabsf(x[i])) + erff(x[i]);
  e[i] = exp(d[i]) / (1 + sqrt(fabs(d[i])));
}
__device__ __noinline__ int gcd(int a, int b) { while (b) { int t = a % b; a = b; b = t; } return a; }
K greatest(const int* x, const int* y, int* z) { int i = threadIdx.x; z[i] = gcd(x[i], y[i]); }
K mma_tile(const __half* a, const __half* b, float* c) {  // c[16, 8] = a[16, 16] b[8, 16]^T through ldmatrix
  __shared__ __align__(16) __half A[16 * 16], B[8 * 16]; int t = threadIdx.x;
  for (int i = t; i < 256; i += 32) A[i] = a[i];
  for (int i = t; i < 128; i += 32) B[i] = b[i];
  __syncthreads();
  unsigned p = __cvta_generic_to_shared(A + (t % 16) * 16 + t / 16 * 8), q = __cvta_generic_to_shared(B + t % 8 * 16 + t / 8 % 2 * 8);
  unsigned f[4], g[2]; float d[4] = {0, 0, 0, 0};
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3]) : "r"(p));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(g[0]), "=r"(g[1]) : "r"(q));
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(f[0]), "r"(f[1]), "r"(f[2]), "r"(f[3]), "r"(g[0]), "r"(g[1]));
  int r = t / 4, k = t % 4 * 2; c[r * 8 + k] = d[0]; c[r * 8 + k + 1] = d[1]; c[(r + 8) * 8 + k] = d[2]; c[(r + 8) * 8 + k + 1] = d[3];
}
K mma_tile_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c) {  // fragments straight from memory
  int t = threadIdx.x, g = t / 4, w = t % 4; const unsigned *A = (const unsigned*)a, *B = (const unsigned*)b; float d[4] = {0, 0, 0, 0};
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(A[g * 8 + w]), "r"(A[(g + 8) * 8 + w]), "r"(A[g * 8 + w + 4]),
      "r"(A[(g + 8) * 8 + w + 4]), "r"(B[g * 8 + w]), "r"(B[g * 8 + w + 4]));
  int k = w * 2; c[g * 8 + k] = d[0]; c[g * 8 + k + 1] = d[1]; c[(g + 8) * 8 + k] = d[2]; c[(g + 8) * 8 + k + 1] = d[3];
}
K pipeline(const float4* x, float4* y, int tiles) {  // cp.async, two stages
  __shared__ float4 s[2][64]; int t = threadIdx.x; unsigned p = __cvta_generic_to_shared(&s[0][t]);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\ncp.async.commit_group;" :: "r"(p), "l"(x + t));
  for (int k = 0; k < tiles; k++) {
    if (k + 1 < tiles) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(p + (k + 1) % 2 * 1024), "l"(x + (k + 1) * 64 + t));
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 1;" ::: "memory"); __syncthreads();
    float4 v = s[k % 2][63 - t]; y[k * 64 + t] = make_float4(v.w, v.z, v.y, v.x); __syncthreads();
  }
}
"""

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")


@pytest.fixture(scope="module", params=["sm_80", "sm_90"])
def module(request, tmp_path_factory) -> Module:
    folder = tmp_path_factory.mktemp("nvcc")
    source, target = folder / "kernels.cu", folder / "kernels.ptx"
    source.write_text(SOURCE)
    command = ["nvcc", "-ptx", f"-arch={request.param}", "-o", str(target), str(source)]
    made = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    return load(target.read_text())


def clean(report):
    assert not report.findings and report.completed, report
    return report


@pytest.mark.parametrize("n", [1, 31, 1000, 40_000])
def test_vector_add(module, rng, n):
    x, y = rng.standard_normal((2, n)).astype(np.float32)
    z = np.zeros(n, np.float32)
    report = clean(module.launch("vector_add", -(-n // 256), 256, [x, y, z, n]))
    np.testing.assert_array_equal(z, x + y)
    assert report.bytes == {"global read": 8 * n, "global written": 4 * n} and report.flops == {"f32": n}


def test_vector_add4(module, rng):
    x, y = rng.standard_normal((2, 4096)).astype(np.float32)
    z = np.zeros_like(x)
    report = clean(module.launch("vector_add4", 4, 256, [x, y, z, 1024]))
    np.testing.assert_array_equal(z, x + y)
    assert all(c.sectors_per_request == 16 and c.efficiency == 1 for c in report.coalescing.values())


def test_block_sum(module, rng):
    x, out = rng.standard_normal(5000).astype(np.float32), np.zeros(4, np.float32)
    clean(module.launch("block_sum", 4, 256, [x, out, 5000], global_races=True))
    np.testing.assert_allclose(out.sum(), x.sum(dtype=np.float64), rtol=1e-4, atol=1e-4)


def test_tiled_matmul(module, rng):
    a, b = rng.standard_normal((2, 64, 64)).astype(np.float32)
    c = np.zeros_like(a)
    report = clean(module.launch("matmul", (4, 4), (16, 16), [a, b, c, 64]))
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, atol=1e-4)
    assert report.flops["f32"] == 2 * 64**3


@pytest.mark.parametrize("n, block", [(100, 32), (1000, 128)])
def test_softmax(module, rng, n, block):
    x = rng.standard_normal((9, n)).astype(np.float32) * 4
    y = np.zeros_like(x)
    clean(module.launch("softmax", 9, block, [x, y, n], shared=4 * block))
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=3e-6, atol=1e-8)


def test_histogram(module, rng):
    x, h = rng.integers(0, 256, 10_000).astype(np.uint8), np.zeros(256, np.int32)
    clean(module.launch("histogram", 3, 256, [x, h, 10_000], global_races=True))
    np.testing.assert_array_equal(h, np.bincount(x, minlength=256))


def test_warp_scan(module, rng):
    x = rng.integers(-100, 100, (40, 32)).astype(np.int32)
    y = np.zeros_like(x)
    clean(module.launch("scan", 40, 32, [x, y]))
    np.testing.assert_array_equal(y, np.cumsum(x, axis=1))


def test_divergent_loops(module, rng):
    x, y = rng.integers(1, 3000, 200).astype(np.int32), np.zeros(200, np.int32)
    clean(module.launch("collatz", 2, 128, [x, y, 200]))

    def steps(v: int) -> int:
        n = 0
        while v != 1:
            v, n = (3 * v + 1 if v % 2 else v // 2), n + 1
        return n

    np.testing.assert_array_equal(y, [steps(v) for v in x.tolist()])


def test_halves(module, rng):
    x = rng.standard_normal((64, 2)).astype(np.float16)
    b = (rng.standard_normal(64).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    y = np.zeros(64, np.float32)
    clean(module.launch("halves", 1, 64, [x, b, y, 64]))
    v = (x.astype(np.float64) ** 2 + 0.5).astype(np.float16).astype(np.float32)
    np.testing.assert_allclose(y, v[:, 0] * 2 + v[:, 1] + (b.astype(np.uint32) << 16).view(np.float32), rtol=1e-6)


def test_mathematics(module, rng):
    special = pytest.importorskip("scipy.special", reason="scipy has erf")
    x, d = rng.uniform(-5, 5, 128).astype(np.float32), rng.uniform(-5, 5, 128)
    y, e = np.zeros(128, np.float32), np.zeros(128)
    clean(module.launch("mathematics", 1, 128, [x, d, y, e]))
    w = x.astype(np.float64)
    want = np.sin(w) + np.tanh(w) + np.abs(w) ** 1.3 + np.log1p(np.abs(w)) + special.erf(w)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(e, np.exp(d) / (1 + np.sqrt(np.abs(d))), rtol=1e-14)


def test_a_called_function(module, rng):
    x, y = rng.integers(1, 10_000, (2, 96)).astype(np.int32)
    z = np.zeros(96, np.int32)
    clean(module.launch("greatest", 1, 96, [x, y, z]))
    np.testing.assert_array_equal(z, np.gcd(x, y))


def test_mma_through_ldmatrix(module, rng):
    a, b = rng.standard_normal((16, 16)).astype(np.float16), rng.standard_normal((8, 16)).astype(np.float16)
    c = np.zeros((16, 8), np.float32)
    report = clean(module.launch("mma_tile", 1, 32, [a, b, c]))
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.T.astype(np.float64), rtol=1e-6, atol=1e-6)
    assert report.flops["f16 mma"] == 2 * 16 * 8 * 16


def test_mma_of_bf16(module, rng):
    a, b = (
        (rng.standard_normal(s).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for s in ((16, 16), (8, 16))
    )
    c = np.zeros((16, 8), np.float32)
    clean(module.launch("mma_tile_bf16", 1, 32, [a, b, c]))
    x, y = ((m.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for m in (a, b))
    np.testing.assert_allclose(c, x @ y.T, rtol=1e-6, atol=1e-6)


def test_pipeline_of_asynchronous_copies(module, rng):
    x = rng.standard_normal((5, 64, 4)).astype(np.float32)
    y = np.zeros_like(x)
    clean(module.launch("pipeline", 1, 64, [x, y, 5]))
    np.testing.assert_array_equal(y, x[:, ::-1, ::-1])
