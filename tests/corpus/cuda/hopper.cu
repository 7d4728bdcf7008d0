// from sm_90a: bulk copies on an mbarrier, wgmma, clusters, fp8.
#include <cstdint>
#define K extern "C" __global__ void

static __device__ __forceinline__ void wait_parity(unsigned barrier, unsigned parity) {
  unsigned done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
}

K bulk_copy(const float* x, float* y, int tiles) {
  __shared__ __align__(128) float s[2][128];
  __shared__ __align__(8) unsigned long long barriers[2];
  int t = threadIdx.x;
  unsigned at = __cvta_generic_to_shared(barriers), to = __cvta_generic_to_shared(s);
  if (t == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at + 8) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (t == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 512;" ::"r"(at) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 512, [%2];" ::"r"(to),
                 "l"(x), "r"(at) : "memory");
  }
  for (int k = 0; k < tiles; k++) {
    int now = k & 1, next = 1 - now;
    if (t == 0 && k + 1 < tiles) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 512;" ::"r"(at + next * 8) : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 512, [%2];" ::"r"(
                       to + next * 512), "l"(x + (k + 1) * 128), "r"(at + next * 8) : "memory");
    }
    wait_parity(at + now * 8, k / 2 & 1);
    y[k * 128 + t] = s[now][127 - t];
    __syncthreads();
  }
}

// One copy in, and one out through a bulk group.
K bulk_in_and_out(const int* x, int* y) {
  __shared__ __align__(128) int s[64], r[64];
  __shared__ __align__(8) unsigned long long barrier;
  int t = threadIdx.x;
  unsigned at = __cvta_generic_to_shared(&barrier), to = __cvta_generic_to_shared(s), from = __cvta_generic_to_shared(r);
  if (t == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n fence.mbarrier_init.release.cluster;" ::"r"(at) : "memory");
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 256;" ::"r"(at) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(to),
                 "l"(x + blockIdx.x * 64), "r"(at) : "memory");
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
  }
  __syncthreads();
  wait_parity(at, 0);
  r[t] = s[63 - t] + 1;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (t == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(y + blockIdx.x * 64), "r"(from)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;\n cp.async.bulk.wait_group 0;" ::: "memory");
  }
}

// The producer warp fills, the others wait for the bytes and say when a buffer is free again.
K bulk_pipeline(const int* x, int* y, int tiles) {
  __shared__ __align__(128) int s[2][64];
  __shared__ __align__(8) unsigned long long full[2], empty[2];
  int t = threadIdx.x;
  unsigned f = __cvta_generic_to_shared(full), e = __cvta_generic_to_shared(empty), to = __cvta_generic_to_shared(s);
  if (t == 0) {
    for (int k = 0; k < 2; k++) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(f + 8 * k) : "memory");
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 64;" ::"r"(e + 8 * k) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (t >= 64) {
    if (t == 64)
      for (int k = 0; k < tiles; k++) {
        int b = k & 1;
        if (k >= 2) wait_parity(e + 8 * b, (k / 2 - 1) & 1);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(f + 8 * b) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(
                         to + b * 256), "l"(x + k * 64), "r"(f + 8 * b) : "memory");
      }
  } else {
    for (int k = 0; k < tiles; k++) {
      int b = k & 1;
      wait_parity(f + 8 * b, k / 2 & 1);
      int v = s[b][63 - t];
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(e + 8 * b) : "memory");
      y[k * 64 + t] = v;
    }
  }
}

#if __CUDA_ARCH__ < 1000
// d[64, 8] = a[64, 32] b[8, 32]^T in two steps, each a group of its own.
K wgmma_steps(const uint16_t* a, const uint16_t* b, float* d) {
  __shared__ __align__(128) uint16_t A[64 * 32], B[8 * 32];
  int t = threadIdx.x;
  for (int i = t; i < 64 * 32; i += 128) {
    int r = i / 32, k = i % 32;
    A[(r / 8 * 4 + k / 8) * 64 + r % 8 * 8 + k % 8] = a[i];
  }
  for (int i = t; i < 8 * 32; i += 128) {
    int r = i / 32, k = i % 32;
    B[k / 8 * 64 + r * 8 + k % 8] = b[i];
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  uint64_t p = __cvta_generic_to_shared(A), q = __cvta_generic_to_shared(B), rest = (uint64_t)(128 >> 4) << 16 | (uint64_t)(512 >> 4) << 32;
  uint64_t da = (p >> 4 & 0x3fff) | rest, db = (q >> 4 & 0x3fff) | rest;
  float f[4];
  asm volatile("{ .reg .pred p; .reg .b64 u, v; setp.ne.b32 p, 1, 0; add.s64 u, %4, 16; add.s64 v, %5, 16;\n"
               "mov.f32 %0, 0f00000000; mov.f32 %1, 0f00000000; mov.f32 %2, 0f00000000; mov.f32 %3, 0f00000000;\n"
               "wgmma.fence.sync.aligned;\n"
               "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, %4, %5, p, 1, 1, 0, 0;\n"
               "wgmma.commit_group.sync.aligned;\n"
               "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, u, v, p, 1, 1, 0, 0;\n"
               "wgmma.commit_group.sync.aligned;\n"
               "wgmma.wait_group.sync.aligned 0; }"
               : "=&f"(f[0]), "=&f"(f[1]), "=&f"(f[2]), "=&f"(f[3]) : "l"(da), "l"(db) : "memory");
  int r = t / 32 * 16 + t % 32 / 4, c = t % 4 * 2;
  d[r * 8 + c] = f[0]; d[r * 8 + c + 1] = f[1]; d[(r + 8) * 8 + c] = f[2]; d[(r + 8) * 8 + c + 1] = f[3];
}

// d[64, 8] = a[64, 16] b[8, 16]^T, both without swizzle in shared memory.
K wgmma_tile(const uint16_t* a, const uint16_t* b, float* d) {
  __shared__ __align__(128) uint16_t A[64 * 16], B[8 * 16];
  int t = threadIdx.x;
  for (int i = t; i < 64 * 16; i += 128) {  // core matrices of 8 by 8, those along k first
    int r = i / 16, k = i % 16;
    A[(r / 8 * 2 + k / 8) * 64 + r % 8 * 8 + k % 8] = a[i];
  }
  { int r = t / 16, k = t % 16; B[k / 8 * 64 + r % 8 * 8 + k % 8] = b[t]; }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  uint64_t p = __cvta_generic_to_shared(A), q = __cvta_generic_to_shared(B);
  uint64_t da = (p >> 4 & 0x3fff) | (uint64_t)(128 >> 4) << 16 | (uint64_t)(256 >> 4) << 32;
  uint64_t db = (q >> 4 & 0x3fff) | (uint64_t)(128 >> 4) << 16 | (uint64_t)(256 >> 4) << 32;
  float f[4] = {0, 0, 0, 0};
  // One statement: between two of them a compiler may move the accumulators, as -G does.
  asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0;\n"
               "wgmma.fence.sync.aligned;\n"
               "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, %4, %5, p, 1, 1, 0, 0;\n"
               "wgmma.commit_group.sync.aligned;\n"
               "wgmma.wait_group.sync.aligned 0; }"
               : "+f"(f[0]), "+f"(f[1]), "+f"(f[2]), "+f"(f[3]) : "l"(da), "l"(db) : "memory");
  int r = t / 32 * 16 + t % 32 / 4, c = t % 4 * 2;
  d[r * 8 + c] = f[0]; d[r * 8 + c + 1] = f[1]; d[(r + 8) * 8 + c] = f[2]; d[(r + 8) * 8 + c + 1] = f[3];
}
#endif

// Two blocks of a cluster read each other's shared memory.
extern "C" __global__ void __cluster_dims__(2, 1, 1) swap_in_cluster(const int* x, int* y) {
  __shared__ int s[64];
  int t = threadIdx.x;
  unsigned rank, other, at = __cvta_generic_to_shared(&s[t]);
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  s[t] = x[blockIdx.x * 64 + t];
  asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::: "memory");
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(at), "r"(rank ^ 1));
  int v;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(other) : "memory");
  asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::: "memory");
  y[blockIdx.x * 64 + t] = v;
}

K mma_fp8(const unsigned* a, const unsigned* b, float* c) {
  int t = threadIdx.x, g = t / 4, w = t % 4;
  float d[4] = {0, 0, 0, 0};
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[g * 8 + w]), "r"(a[(g + 8) * 8 + w]), "r"(a[g * 8 + w + 4]), "r"(a[(g + 8) * 8 + w + 4]),
                 "r"(b[g * 8 + w]), "r"(b[g * 8 + w + 4]));
  int k = w * 2;
  c[g * 8 + k] = d[0]; c[g * 8 + k + 1] = d[1]; c[(g + 8) * 8 + k] = d[2]; c[(g + 8) * 8 + k + 1] = d[3];
}

K to_fp8(const float2* x, uint16_t* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float2 v = x[i];
  uint16_t r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(v.y), "f"(v.x));
  y[i] = r;
}

// Waits for the grid before, and lets the next one start.
K dependent(const float* x, float* y, int n) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1;
  asm volatile("griddepcontrol.launch_dependents;");
}
