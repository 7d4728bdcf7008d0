// The same transpose in several layouts of shared memory, and other moves.
#define K extern "C" __global__ void

K transpose_naive(const float* x, float* y, int rows, int columns) {
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;
  if (r < rows && c < columns) y[c * rows + r] = x[r * columns + c];
}

template <int WIDTH>
__device__ __forceinline__ void tile(const float* x, float* y, int rows, int columns) {
  __shared__ float s[32][WIDTH];
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8)
    if (r + k < rows && c < columns) s[threadIdx.y + k][threadIdx.x] = x[(r + k) * columns + c];
  __syncthreads();
  c = blockIdx.y * 32 + threadIdx.x;
  r = blockIdx.x * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8)
    if (r + k < columns && c < rows) y[(r + k) * rows + c] = s[threadIdx.x][threadIdx.y + k];
}
K transpose_padded(const float* x, float* y, int rows, int columns) { tile<33>(x, y, rows, columns); }
// Right, but every read meets a 32-way bank conflict.
K transpose_conflicts(const float* x, float* y, int rows, int columns) { tile<32>(x, y, rows, columns); }

K transpose_swizzled(const float* x, float* y, int n) {
  __shared__ float s[32 * 32];
  int i = threadIdx.x, j = threadIdx.y;
  for (int k = j; k < 32; k += 8) s[k * 32 + (i ^ k)] = x[(blockIdx.y * 32 + k) * n + blockIdx.x * 32 + i];
  __syncthreads();
  for (int k = j; k < 32; k += 8) y[(blockIdx.x * 32 + k) * n + blockIdx.y * 32 + i] = s[i * 32 + (k ^ i)];
}

K reverse_block(int* x) {
  __shared__ int s[256];
  int t = threadIdx.x, base = blockIdx.x * 256;
  s[t] = x[base + t];
  __syncthreads();
  x[base + t] = s[255 - t];
}

K copy_vectors(const float4* x, float4* y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i];
}

struct Point { float x, y, z; };
K split_points(const Point* p, float* x, float* y, float* z, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { x[i] = p[i].x; y[i] = p[i].y; z[i] = p[i].z; }
}

K gather(const int* index, const float* x, float* y, int n, int most) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    int k = index[i];
    y[i] = k >= 0 && k < most ? x[k] : 0.0f;
  }
}
