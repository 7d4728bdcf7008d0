// Histograms, locks and flags.
#define K extern "C" __global__ void

K histogram_shared(const unsigned char* x, int* h, int n) {
  __shared__ int c[256];
  c[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += 256 * gridDim.x) atomicAdd(&c[x[i]], 1);
  __syncthreads();
  atomicAdd(&h[threadIdx.x], c[threadIdx.x]);
}

K histogram_global(const unsigned char* x, int* h, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&h[x[i]], 1);
}

// A histogram of 16 bins per warp, summed at the end.
K histogram_warps(const int* x, int* h, int n) {
  __shared__ int c[4][16];
  int t = threadIdx.x, warp = t / 32;
  if (t < 64) c[t / 16][t % 16] = 0;
  __syncthreads();
  for (int i = t; i < n; i += 128) atomicAdd(&c[warp][x[i] & 15], 1);
  __syncthreads();
  if (t < 16) h[t] = c[0][t] + c[1][t] + c[2][t] + c[3][t];
}

K max_by_cas(const float* x, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int old = *(volatile int*)out;
  while (__int_as_float(old) < x[i]) {
    int seen = atomicCAS(out, old, __float_as_int(x[i]));
    if (seen == old) break;
    old = seen;
  }
}

K tickets(int* places, int* next) {
  int ticket = atomicAdd(next, 1);
  places[blockIdx.x * blockDim.x + threadIdx.x] = ticket;
}

K set_bits(const int* x, unsigned* bits, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicOr(&bits[x[i] / 32], 1u << (x[i] % 32));
}

// One thread per block takes a lock; it gives up after many tries.
K locked_add(int* lock, int* counter, int* failed) {
  if (threadIdx.x == 0) {
    bool got = false;
    for (int tries = 0; tries < 100000 && !got; tries++) got = atomicCAS(lock, 0, 1) == 0;
    if (got) {
      __threadfence();
      *(volatile int*)counter = *(volatile int*)counter + 1;
      __threadfence();
      atomicExch(lock, 0);
    } else {
      atomicAdd(failed, 1);
    }
  }
}

// The first block publishes, the others wait for the flag, within a bound.
K wait_for_flag(int* data, int* flag, int* out) {
  if (blockIdx.x == 0) {
    if (threadIdx.x == 0) {
      data[0] = 42;
      __threadfence();
      *(volatile int*)flag = 1;
      out[0] = 42;
    }
    return;
  }
  if (threadIdx.x == 0) {
    int tries = 0;
    while (*(volatile int*)flag == 0 && tries < 1000000) tries++;
    __threadfence();
    out[blockIdx.x] = *(volatile int*)data;
  }
}

K add_doubles(const double* x, double* out, int n) {
  __shared__ double s;
  if (threadIdx.x == 0) s = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&s, x[i]);
  __syncthreads();
  if (threadIdx.x == 0) *out = s;
}

K min_max(const int* x, int* low, int* high, int n) {
  __shared__ int a, b;
  if (threadIdx.x == 0) { a = 0x7fffffff; b = -0x7fffffff; }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) { atomicMin(&a, x[i]); atomicMax(&b, x[i]); }
  __syncthreads();
  if (threadIdx.x == 0) { *low = a; *high = b; }
}
