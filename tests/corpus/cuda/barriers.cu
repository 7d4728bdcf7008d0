// Barriers with names and counts, in uniform branches and loops; dynamic shared memory.
#define K extern "C" __global__ void

// Two halves of the block each have a barrier, of 64 threads.
K two_halves(const int* x, int* y) {
  __shared__ int s[128];
  int t = threadIdx.x, half = t / 64, base = half * 64;
  s[t] = x[t];
  asm volatile("bar.sync %0, 64;" ::"r"(half + 1) : "memory");
  y[t] = s[base + 63 - (t - base)];
}

// The first two warps produce and arrive, the others wait and consume.
K produce_and_consume(const int* x, int* y) {
  __shared__ int s[64];
  int t = threadIdx.x;
  if (t < 64) {
    s[t] = x[t] * 3;
    __threadfence_block();
    asm volatile("bar.arrive 1, 128;" ::: "memory");
  } else {
    asm volatile("bar.sync 1, 128;" ::: "memory");
    y[t - 64] = s[127 - t];
  }
}

// As above, tile by tile: one barrier says full, the other says empty.
K produce_tiles(const int* x, int* y, int tiles) {
  __shared__ int s[32];
  int t = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    for (int k = 0; k < tiles; k++) {
      if (k > 0) asm volatile("bar.sync 2, 64;" ::: "memory");
      s[t] = x[k * 32 + t] + k;
      asm volatile("bar.arrive 1, 64;" ::: "memory");
    }
  } else {
    for (int k = 0; k < tiles; k++) {
      asm volatile("bar.sync 1, 64;" ::: "memory");
      y[k * 32 + t] = s[31 - t];
      if (k + 1 < tiles) asm volatile("bar.arrive 2, 64;" ::: "memory");
    }
  }
}

K dynamic_reverse(const float* x, float* y) {
  extern __shared__ float s[];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = x[i];
  __syncthreads();
  y[i] = s[blockDim.x - 1 - t];
}

// Two arrays in one dynamic one.
K dynamic_two(const int* x, const double* d, int* y, double* e, int n) {
  extern __shared__ double raw[];
  int t = threadIdx.x;
  double* first = raw;
  int* second = (int*)(raw + n);
  if (t < n) { first[t] = d[t]; second[t] = x[t]; }
  __syncthreads();
  if (t < n) { e[t] = first[n - 1 - t]; y[t] = second[(t + 1) % n]; }
}

// The number of rounds is the same for all threads.
K rounds(const int* x, int* y, int count) {
  __shared__ int s[96];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  for (int k = 0; k < count; k++) {
    int v = s[(t + 1) % 96];
    __syncthreads();
    s[t] = v;
    __syncthreads();
  }
  y[t] = s[t];
}

// The branch depends on the block alone.
K even_blocks(const int* x, int* y) {
  __shared__ int s[64];
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  if (blockIdx.x % 2 == 0) {
    s[t] = x[i];
    __syncthreads();
    y[i] = s[t ^ 1];
  } else {
    y[i] = x[i];
  }
}

// A flag in shared memory decides for all threads whether there is another round.
K until_settled(int* x, int* rounds_taken) {
  __shared__ int s[64], moved;
  int t = threadIdx.x, k = 0, again = 1;
  s[t] = x[t];
  while (again) {
    if (t == 0) moved = 0;
    __syncthreads();
    for (int odd = 0; odd < 2; odd++) {
      int a = 2 * t + odd;
      if (a + 1 < 64 && s[a] > s[a + 1]) {
        int v = s[a];
        s[a] = s[a + 1];
        s[a + 1] = v;
        atomicOr(&moved, 1);
      }
      __syncthreads();
    }
    again = moved;
    __syncthreads();
    k++;
  }
  x[t] = s[t];
  if (t == 0) *rounds_taken = k;
}

// A warp leaves, and the others use a barrier that does not count it.
K one_warp_leaves(const int* x, int* y) {
  __shared__ int s[96];
  int t = threadIdx.x;
  if (t >= 96) return;
  s[t] = x[t];
  asm volatile("bar.sync 3, 96;" ::: "memory");
  y[t] = s[95 - t];
}

// Bounds guard the accesses and not the barrier.
K guarded_tail(const float* x, float* y, int n) {
  __shared__ float s[128];
  int t = threadIdx.x, i = blockIdx.x * 128 + t;
  s[t] = i < n ? x[i] : 0;
  __syncthreads();
  if (i >= n) return;
  y[i] = s[t] + s[(t + 1) & 127];
}

// Odd-even sort of 128 numbers, two barriers per pair of phases.
K sort_odd_even(int* x) {
  __shared__ int s[128];
  int t = threadIdx.x;
  s[2 * t] = x[2 * t];
  s[2 * t + 1] = x[2 * t + 1];
  __syncthreads();
  for (int k = 0; k < 64; k++) {
    int a = s[2 * t], b = s[2 * t + 1];
    s[2 * t] = min(a, b);
    s[2 * t + 1] = max(a, b);
    __syncthreads();
    if (t < 63) {
      a = s[2 * t + 1];
      b = s[2 * t + 2];
      s[2 * t + 1] = min(a, b);
      s[2 * t + 2] = max(a, b);
    }
    __syncthreads();
  }
  x[2 * t] = s[2 * t];
  x[2 * t + 1] = s[2 * t + 1];
}
