// Exchange within a warp: by shuffles, votes, and shared memory with __syncwarp.
#define K extern "C" __global__ void

// Each warp has a part of shared memory to itself, so that it needs no barrier of the block.
K exchange_warp(const int* x, int* y) {
  __shared__ int s[128];
  int t = threadIdx.x, lane = t & 31, base = t - lane;
  s[t] = x[blockIdx.x * 128 + t];
  __syncwarp();
  int v = s[base + (31 - lane)];
  __syncwarp();
  s[t] = v + 1;
  __syncwarp();
  y[blockIdx.x * 128 + t] = s[base + ((lane + 1) & 31)];
}

K reduce_warp_shared(const int* x, int* y) {
  __shared__ volatile int s[64];
  int t = threadIdx.x, lane = t & 31;
  s[t] = x[blockIdx.x * 64 + t];
  __syncwarp();
  for (int o = 16; o; o /= 2) {
    if (lane < o) s[t] = s[t] + s[t + o];
    __syncwarp();
  }
  if (lane == 0) y[(blockIdx.x * 64 + t) / 32] = s[t];
}

K butterfly(const float* x, float* y) {
  float v = x[blockIdx.x * 32 + threadIdx.x];
  for (int o = 1; o < 32; o *= 2) v += __shfl_xor_sync(0xffffffffu, v, o);
  y[blockIdx.x * 32 + threadIdx.x] = v;
}

K broadcast_lane(const int* x, int* y, int lane) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = __shfl_sync(0xffffffffu, x[i], lane);
}

K rotate_lanes(const int* x, int* y) {
  int i = blockIdx.x * 32 + threadIdx.x;
  y[i] = __shfl_sync(0xffffffffu, x[i], (threadIdx.x + 5) % 32);
}

K half_warps(const int* x, int* y) {
  int v = x[threadIdx.x];
  for (int o = 8; o; o /= 2) v += __shfl_down_sync(0xffffffffu, v, o, 16);
  if (threadIdx.x % 16 == 0) y[threadIdx.x / 16] = v;
}

K pack_votes(const float* x, unsigned* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned votes = __ballot_sync(~0u, i < n && x[i] > 0);
  if (threadIdx.x % 32 == 0 && i < n) y[i / 32] = votes;
}

K match_groups(const int* x, unsigned* y) {
  y[threadIdx.x] = __match_any_sync(0xffffffffu, x[threadIdx.x]);
}

K sort_warp(int* x) {
  int lane = threadIdx.x, v = x[blockIdx.x * 32 + lane];
  for (int k = 2; k <= 32; k *= 2)
    for (int j = k / 2; j; j /= 2) {
      int o = __shfl_xor_sync(~0u, v, j);
      bool up = (lane & k) == 0, low = (lane & j) == 0;
      v = up == low ? min(v, o) : max(v, o);
    }
  x[blockIdx.x * 32 + lane] = v;
}

// The tail of an array: the mask names those lanes that take the branch.
K sum_of_tail(const int* x, int* out, int n) {
  int lane = threadIdx.x;
  unsigned mask = __ballot_sync(~0u, lane < n);
  if (lane < n) {
    int v = x[lane], s = 0;
    for (int k = 0; k < n; k++) s += __shfl_sync(mask, v, k);
    out[lane] = s;
  }
}

// Half of each warp sums among itself.
K lower_half(const int* x, int* y) {
  int lane = threadIdx.x % 32;
  if (lane < 16) {
    int v = x[threadIdx.x];
    for (int o = 8; o; o /= 2) v += __shfl_xor_sync(0x0000ffffu, v, o);
    y[threadIdx.x] = v;
  }
}

K all_equal(const int* x, int* y) {
  int v = x[blockIdx.x * 32 + threadIdx.x], first = __shfl_sync(~0u, v, 0);
  int same = __all_sync(~0u, v == first), one = __any_sync(~0u, v == 7);
  if (threadIdx.x == 0) y[blockIdx.x] = same | one << 1;
}

// One lane adds for all lanes with the flag, and each finds its place.
K reserve(const int* x, int* y, int* count, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
  bool keep = i < n && x[i] % 3 == 0;
  unsigned votes = __ballot_sync(~0u, keep);
  int base = 0;
  if (lane == 0 && votes) base = atomicAdd(count, __popc(votes));
  base = __shfl_sync(~0u, base, 0);
  if (keep) y[base + __popc(votes & ((1u << lane) - 1))] = x[i];
}
