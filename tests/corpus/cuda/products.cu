// Products of matrices and vectors without tensor cores.
#define K extern "C" __global__ void

K matmul_tiled(const float* a, const float* b, float* c, int n) {
  __shared__ float A[16][16], B[16][17];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
  float s = 0;
  for (int t = 0; t < n; t += 16) {
    A[y][x] = a[row * n + t + x];
    B[y][x] = b[(t + y) * n + col];
    __syncthreads();
    for (int k = 0; k < 16; k++) s += A[y][k] * B[k][x];
    __syncthreads();
  }
  c[row * n + col] = s;
}

// Sides that are not a multiple of the tile: zeros fill the tiles, and no thread leaves before the barriers.
K matmul_ragged(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float A[8][8], B[8][8];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 8 + y, col = blockIdx.x * 8 + x;
  float s = 0;
  for (int t = 0; t < k; t += 8) {
    A[y][x] = row < m && t + x < k ? a[row * k + t + x] : 0;
    B[y][x] = t + y < k && col < n ? b[(t + y) * n + col] : 0;
    __syncthreads();
    for (int i = 0; i < 8; i++) s = fmaf(A[y][i], B[i][x], s);
    __syncthreads();
  }
  if (row < m && col < n) c[row * n + col] = s;
}

// 32 by 32 of c per block of 64 threads, 4 by 4 each; tiles in float4.
K matmul_registers(const float4* a, const float4* b, float4* c, int n) {
  __shared__ float4 A[32][2], B[8][8];
  int t = threadIdx.x, tx = t % 8, ty = t / 8, q = n / 4;
  float s[4][4] = {};
  for (int k = 0; k < n; k += 8) {
    A[t / 2][t % 2] = a[(blockIdx.y * 32 + t / 2) * q + k / 4 + t % 2];
    B[t / 8][t % 8] = b[(k + t / 8) * q + blockIdx.x * 8 + t % 8];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; i++) {
      float4 v = B[i][tx];
#pragma unroll
      for (int r = 0; r < 4; r++) {
        float u = reinterpret_cast<float*>(&A[ty * 4 + r][0])[i];
        s[r][0] += u * v.x; s[r][1] += u * v.y; s[r][2] += u * v.z; s[r][3] += u * v.w;
      }
    }
    __syncthreads();
  }
  for (int r = 0; r < 4; r++)
    c[(blockIdx.y * 32 + ty * 4 + r) * q + blockIdx.x * 8 + tx] = make_float4(s[r][0], s[r][1], s[r][2], s[r][3]);
}

// While one tile is multiplied the next is stored: one barrier per step.
K matmul_two_tiles(const float* a, const float* b, float* c, int n) {
  __shared__ float A[2][8][8], B[2][8][8];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 8 + y, col = blockIdx.x * 8 + x, now = 0;
  float s = 0;
  A[0][y][x] = a[row * n + x];
  B[0][y][x] = b[y * n + col];
  __syncthreads();
  for (int t = 8; t <= n; t += 8) {
    if (t < n) {
      A[1 - now][y][x] = a[row * n + t + x];
      B[1 - now][y][x] = b[(t + y) * n + col];
    }
    for (int k = 0; k < 8; k++) s += A[now][y][k] * B[now][k][x];
    __syncthreads();
    now = 1 - now;
  }
  c[row * n + col] = s;
}

K gemv_warp(const float4* a, const float4* x, float* y, int rows, int quads) {
  int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float s = 0;
  for (int i = lane; i < quads; i += 32) {
    float4 u = a[row * quads + i], v = x[i];
    s += u.x * v.x + u.y * v.y + u.z * v.z + u.w * v.w;
  }
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
  if (lane == 0) y[row] = s;
}

K outer(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ z, int m, int n) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
  if (r < m && c < n) z[r * n + c] = x[r] * y[c];
}

// Four bytes per product, a row per warp.
K dot_bytes(const int* a, const int* x, int* y, int words) {
  int lane = threadIdx.x, s = 0;
  for (int i = lane; i < words; i += 32) s = __dp4a(a[blockIdx.x * words + i], x[i], s);
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
  if (lane == 0) y[blockIdx.x] = s;
}

// Rows of softmax in dynamic shared memory.
K softmax_rows(const float* x, float* y, int n) {
  extern __shared__ float row[];
  int t = threadIdx.x;
  float m = -3.4e38f, s = 0;
  __shared__ float parts[32];
  for (int i = t; i < n; i += blockDim.x) { row[i] = x[blockIdx.x * n + i]; m = fmaxf(m, row[i]); }
  for (int o = 16; o; o /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
  if (t % 32 == 0) parts[t / 32] = m;
  __syncthreads();
  for (int w = 0; w < blockDim.x / 32; w++) m = fmaxf(m, parts[w]);
  __syncthreads();
  for (int i = t; i < n; i += blockDim.x) { row[i] = __expf(row[i] - m); s += row[i]; }
  for (int o = 16; o; o /= 2) s += __shfl_xor_sync(~0u, s, o);
  if (t % 32 == 0) parts[t / 32] = s;
  __syncthreads();
  s = 0;
  for (int w = 0; w < blockDim.x / 32; w++) s += parts[w];
  for (int i = t; i < n; i += blockDim.x) y[blockIdx.x * n + i] = row[i] / s;
}
