// Prefix sums, and what is made of them.
#define K extern "C" __global__ void

// Two buffers: a step reads one and writes the other, so that one barrier per step is enough.
K scan_two_buffers(const int* x, int* y) {
  __shared__ int s[2][128];
  int t = threadIdx.x, from = 0;
  s[0][t] = x[blockIdx.x * 128 + t];
  __syncthreads();
  for (int o = 1; o < 128; o *= 2) {
    int v = s[from][t];
    if (t >= o) v += s[from][t - o];
    s[1 - from][t] = v;
    from = 1 - from;
    __syncthreads();
  }
  y[blockIdx.x * 128 + t] = s[from][t];
}

// Up and down a tree in place; exclusive.
K scan_tree(const int* x, int* y) {
  __shared__ int s[256];
  int t = threadIdx.x, base = blockIdx.x * 256;
  s[2 * t] = x[base + 2 * t];
  s[2 * t + 1] = x[base + 2 * t + 1];
  int o = 1;
  for (int d = 128; d > 0; d /= 2) {
    __syncthreads();
    if (t < d) s[o * (2 * t + 2) - 1] += s[o * (2 * t + 1) - 1];
    o *= 2;
  }
  if (t == 0) s[255] = 0;
  for (int d = 1; d < 256; d *= 2) {
    o /= 2;
    __syncthreads();
    if (t < d) {
      int a = o * (2 * t + 1) - 1, b = o * (2 * t + 2) - 1, v = s[a];
      s[a] = s[b];
      s[b] += v;
    }
  }
  __syncthreads();
  y[base + 2 * t] = s[2 * t];
  y[base + 2 * t + 1] = s[2 * t + 1];
}

K scan_warps(const int* x, int* y) {
  __shared__ int totals[8];
  int t = threadIdx.x, lane = t & 31, warp = t >> 5, v = x[blockIdx.x * 256 + t];
  for (int o = 1; o < 32; o *= 2) {
    int u = __shfl_up_sync(0xffffffffu, v, o);
    if (lane >= o) v += u;
  }
  if (lane == 31) totals[warp] = v;
  __syncthreads();
  int before = 0;
  for (int w = 0; w < warp; w++) before += totals[w];
  y[blockIdx.x * 256 + t] = v + before;
}

// Keeps the positive numbers in order: a ballot per warp, and a count of the warps before.
K compact_positive(const int* x, int* y, int* kept) {
  __shared__ int counts[4];
  int t = threadIdx.x, lane = t & 31, warp = t >> 5, v = x[t];
  unsigned votes = __ballot_sync(~0u, v > 0);
  if (lane == 0) counts[warp] = __popc(votes);
  __syncthreads();
  int at = __popc(votes & ((1u << lane) - 1));
  for (int w = 0; w < warp; w++) at += counts[w];
  if (v > 0) y[at] = v;
  if (t == 0) *kept = counts[0] + counts[1] + counts[2] + counts[3];
}

K suffix_max(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  float v = x[t];
  for (int o = 1; o < 64; o *= 2) {
    s[t] = v;
    __syncthreads();
    if (t + o < 64) v = fmaxf(v, s[t + o]);
    __syncthreads();
  }
  y[t] = v;
}
