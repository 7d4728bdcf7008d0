// Sums, maxima and counts of a block, a grid and a row.
#define K extern "C" __global__ void

K sum_tree(const float* x, float* out, int n) {
  __shared__ float part[256];
  int t = threadIdx.x;
  float a = 0;
  for (int i = blockIdx.x * 256 + t; i < n; i += gridDim.x * 256) a += x[i];
  part[t] = a;
  __syncthreads();
  for (int half = 128; half > 0; half >>= 1) {
    if (t < half) part[t] += part[t + half];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = part[0];
}

// The stride doubles, so that the branch diverges within every warp; the barrier stands outside of it.
K sum_interleaved(const int* x, int* out) {
  __shared__ int part[128];
  int t = threadIdx.x;
  part[t] = x[blockIdx.x * 128 + t];
  __syncthreads();
  for (int step = 1; step < 128; step *= 2) {
    if (t % (2 * step) == 0) part[t] += part[t + step];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = part[0];
}

K sum_shuffle(const float* x, float* out, int n) {
  __shared__ float warps[32];
  int t = threadIdx.x, lane = t % 32, warp = t / 32;
  float a = 0;
  for (int i = t; i < n; i += blockDim.x) a += x[i];
  for (int o = 16; o > 0; o /= 2) a += __shfl_down_sync(0xffffffffu, a, o);
  if (lane == 0) warps[warp] = a;
  __syncthreads();
  if (warp == 0) {
    a = lane < blockDim.x / 32 ? warps[lane] : 0.0f;
    for (int o = 16; o > 0; o /= 2) a += __shfl_down_sync(0xffffffffu, a, o);
    if (lane == 0) out[0] = a;
  }
}

// A warp per row: the whole warp leaves together, and there is no barrier of the block.
K max_of_rows(const float* x, float* out, int rows, int columns) {
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float m = -3.4e38f;
  for (int c = lane; c < columns; c += 32) m = fmaxf(m, x[row * columns + c]);
  for (int o = 16; o > 0; o /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
  if (lane == 0) out[row] = m;
}

K argmin_block(const int* x, int* value, int* place, int n) {
  __shared__ int least[64], where[64];
  int t = threadIdx.x, best = 0x7fffffff, at = -1;
  for (int i = t; i < n; i += 64)
    if (x[i] < best) { best = x[i]; at = i; }
  least[t] = best;
  where[t] = at;
  __syncthreads();
  for (int half = 32; half; half /= 2) {
    if (t < half) {
      int o = least[t + half], p = where[t + half];
      if (o < least[t] || (o == least[t] && p < where[t])) { least[t] = o; where[t] = p; }
    }
    __syncthreads();
  }
  if (t == 0) { *value = least[0]; *place = where[0]; }
}

K dot_atomic(const float* x, const float* y, float* out, int n) {
  float a = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) a = fmaf(x[i], y[i], a);
  for (int o = 16; o > 0; o /= 2) a += __shfl_xor_sync(~0u, a, o);
  if (threadIdx.x % 32 == 0) atomicAdd(out, a);
}

// The block that arrives last adds the parts of all.
__device__ unsigned arrived;
K sum_last_block(const int* x, int* parts, int* out, int n) {
  __shared__ int s[128];
  __shared__ bool last;
  int t = threadIdx.x, a = 0;
  for (int i = blockIdx.x * 128 + t; i < n; i += gridDim.x * 128) a += x[i];
  s[t] = a;
  __syncthreads();
  for (int half = 64; half; half /= 2) {
    if (t < half) s[t] += s[t + half];
    __syncthreads();
  }
  if (t == 0) {
    parts[blockIdx.x] = s[0];
    __threadfence();
    last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && t == 0) {
    __threadfence();
    int sum = 0;
    for (int b = 0; b < gridDim.x; b++) sum += ((volatile int*)parts)[b];
    *out = sum;
  }
}

K any_negative(const int* x, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int any = __syncthreads_or(i < n && x[i] < 0);
  if (threadIdx.x == 0) out[blockIdx.x] = any != 0;
}

K count_odd(const int* x, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int count = __syncthreads_count(i < n && (x[i] & 1));
  if (threadIdx.x == 0) out[blockIdx.x] = count;
}

// Mean and variance in one pass, by Welford, joined by shuffles.
K moments(const float* x, float* mean, float* variance, int n) {
  float m = 0, v = 0, count = 0;
  for (int i = threadIdx.x; i < n; i += 32) {
    count += 1;
    float d = x[i] - m;
    m += d / count;
    v += d * (x[i] - m);
  }
  for (int o = 16; o; o /= 2) {
    float om = __shfl_xor_sync(~0u, m, o), ov = __shfl_xor_sync(~0u, v, o), oc = __shfl_xor_sync(~0u, count, o);
    float all = count + oc;
    if (all > 0) {
      float d = om - m;
      v += ov + d * d * count * oc / all;
      m = (count * m + oc * om) / all;
      count = all;
    }
  }
  if (threadIdx.x == 0) { *mean = m; *variance = v / n; }
}
