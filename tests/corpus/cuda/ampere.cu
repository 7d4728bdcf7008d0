// from sm_80: tensor cores, asynchronous copies, reductions of a warp in one instruction.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#define K extern "C" __global__ void

// c[16, 8] = a[16, 16] b[8, 16]^T through ldmatrix.
K mma_half(const __half* a, const __half* b, float* c) {
  __shared__ __align__(16) __half A[256], B[128];
  int t = threadIdx.x;
  for (int i = t; i < 256; i += 32) A[i] = a[i];
  for (int i = t; i < 128; i += 32) B[i] = b[i];
  __syncthreads();
  unsigned p = __cvta_generic_to_shared(A + (t % 16) * 16 + t / 16 * 8);
  unsigned q = __cvta_generic_to_shared(B + t % 8 * 16 + t / 8 % 2 * 8);
  unsigned f[4], g[2];
  float d[4] = {0, 0, 0, 0};
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3]) : "r"(p) : "memory");
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(g[0]), "=r"(g[1]) : "r"(q) : "memory");
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(f[0]), "r"(f[1]), "r"(f[2]), "r"(f[3]), "r"(g[0]), "r"(g[1]));
  int r = t / 4, k = t % 4 * 2;
  c[r * 8 + k] = d[0]; c[r * 8 + k + 1] = d[1]; c[(r + 8) * 8 + k] = d[2]; c[(r + 8) * 8 + k + 1] = d[3];
}

// Fragments straight from memory.
K mma_bf16(const unsigned* a, const unsigned* b, float* c) {
  int t = threadIdx.x, g = t / 4, w = t % 4;
  float d[4] = {0, 0, 0, 0};
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[g * 8 + w]), "r"(a[(g + 8) * 8 + w]), "r"(a[g * 8 + w + 4]), "r"(a[(g + 8) * 8 + w + 4]),
                 "r"(b[g * 8 + w]), "r"(b[g * 8 + w + 4]));
  int k = w * 2;
  c[g * 8 + k] = d[0]; c[g * 8 + k + 1] = d[1]; c[(g + 8) * 8 + k] = d[2]; c[(g + 8) * 8 + k + 1] = d[3];
}

K mma_bytes(const int* a, const int* b, int* c) {
  int t = threadIdx.x, g = t / 4, w = t % 4, d[4] = {0, 0, 0, 0};
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[g * 8 + w]), "r"(a[(g + 8) * 8 + w]), "r"(a[g * 8 + w + 4]), "r"(a[(g + 8) * 8 + w + 4]),
                 "r"(b[g * 8 + w]), "r"(b[g * 8 + w + 4]));
  int k = w * 2;
  c[g * 8 + k] = d[0]; c[g * 8 + k + 1] = d[1]; c[(g + 8) * 8 + k] = d[2]; c[(g + 8) * 8 + k + 1] = d[3];
}

// Two buffers: the next tile is on its way while this one is read.
K copy_two_buffers(const float4* x, float4* y, int tiles) {
  __shared__ float4 s[2][64];
  int t = threadIdx.x;
  unsigned p = __cvta_generic_to_shared(&s[0][t]);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n cp.async.commit_group;" ::"r"(p), "l"(x + t) : "memory");
  for (int k = 0; k < tiles; k++) {
    if (k + 1 < tiles)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(p + (k + 1) % 2 * 1024), "l"(x + (k + 1) * 64 + t)
                   : "memory");
    asm volatile("cp.async.commit_group;\n cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    float4 v = s[k % 2][63 - t];
    y[k * 64 + t] = make_float4(v.w, v.z, v.y, v.x);
    __syncthreads();
  }
}

K copy_once(const float* x, float* y) {
  __shared__ float s[128];
  int t = threadIdx.x;
  __pipeline_memcpy_async(&s[t], &x[blockIdx.x * 128 + t], 4);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  y[blockIdx.x * 128 + t] = s[127 - t];
}

// Each thread reads what it copied itself: it waits, and needs no barrier.
K copy_own(const float2* x, float2* y, int n) {
  __shared__ float2 s[64];
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  if (i < n) __pipeline_memcpy_async(&s[t], &x[i], 8);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  if (i < n) y[i] = make_float2(s[t].y, s[t].x);
}

// Three stages of tiles of a product.
K matmul_stages(const float* a, const float* b, float* c, int n) {
  __shared__ float A[3][8][8], B[3][8][8];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 8 + y, col = blockIdx.x * 8 + x, tiles = n / 8;
  float s = 0;
  for (int k = 0; k < 2; k++) {
    if (k < tiles) {
      __pipeline_memcpy_async(&A[k][y][x], &a[row * n + k * 8 + x], 4);
      __pipeline_memcpy_async(&B[k][y][x], &b[(k * 8 + y) * n + col], 4);
    }
    __pipeline_commit();
  }
  for (int k = 0; k < tiles; k++) {
    __pipeline_wait_prior(1);
    __syncthreads();
    int next = k + 2;
    if (next < tiles) {
      __pipeline_memcpy_async(&A[next % 3][y][x], &a[row * n + next * 8 + x], 4);
      __pipeline_memcpy_async(&B[next % 3][y][x], &b[(next * 8 + y) * n + col], 4);
    }
    __pipeline_commit();
    for (int i = 0; i < 8; i++) s += A[k % 3][y][i] * B[k % 3][i][x];
  }
  c[row * n + col] = s;
}

K sum_redux(const int* x, int* y) {
  int s = __reduce_add_sync(0xffffffffu, x[blockIdx.x * 32 + threadIdx.x]);
  if (threadIdx.x == 0) y[blockIdx.x] = s;
}

// An mbarrier of the block instead of bar.sync.
K arrive_and_wait(const int* x, int* y) {
  __shared__ __align__(8) unsigned long long barrier;
  __shared__ int s[64];
  int t = threadIdx.x;
  unsigned at = __cvta_generic_to_shared(&barrier), done = 0;
  unsigned long long state;
  if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(at) : "memory");
  __syncthreads();
  s[t] = x[t];
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(at) : "memory");
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(at), "l"(state) : "memory");
  y[t] = s[63 - t];
}
