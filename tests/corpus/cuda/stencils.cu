// Neighbours: halos in shared memory, planes in registers, steps in place.
#define K extern "C" __global__ void

K blur3(const float* x, float* y, int n) {
  __shared__ float s[130];
  int t = threadIdx.x, i = blockIdx.x * 128 + t;
  s[t + 1] = i < n ? x[i] : 0;
  if (t == 0) s[0] = i > 0 ? x[i - 1] : 0;
  if (t == 127) s[129] = i + 1 < n ? x[i + 1] : 0;
  __syncthreads();
  if (i < n) y[i] = (s[t] + s[t + 1] + s[t + 2]) / 3;
}

K laplace2d(const float* x, float* y, int rows, int columns) {
  __shared__ float s[10][34];
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;
  for (int j = threadIdx.y; j < 10; j += 8)
    for (int i = threadIdx.x; i < 34; i += 32) {
      int cc = (int)blockIdx.x * 32 + i - 1, rr = (int)blockIdx.y * 8 + j - 1;
      s[j][i] = rr >= 0 && rr < rows && cc >= 0 && cc < columns ? x[rr * columns + cc] : 0;
    }
  __syncthreads();
  if (r >= rows || c >= columns) return;
  int a = threadIdx.y + 1, b = threadIdx.x + 1;
  y[r * columns + c] = s[a - 1][b] + s[a + 1][b] + s[a][b - 1] + s[a][b + 1] - 4 * s[a][b];
}

// Steps of a rod within a block: every thread reads its neighbours, waits, writes, and waits again.
K heat_steps(float* x, int steps) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  for (int k = 0; k < steps; k++) {
    float left = t > 0 ? s[t - 1] : s[t], right = t < 63 ? s[t + 1] : s[t], v = s[t];
    __syncthreads();
    s[t] = v + 0.25f * (left - 2 * v + right);
    __syncthreads();
  }
  x[t] = s[t];
}

// Marches along z: the planes above and below stay in registers, the middle one in shared memory.
K cross3d(const float* x, float* y, int depth) {
  __shared__ float s[16][16];
  int i = threadIdx.x, j = threadIdx.y, at = j * 16 + i;
  float below = 0, here = x[at];
  for (int z = 0; z < depth; z++) {
    float above = z + 1 < depth ? x[at + 256] : 0;
    s[j][i] = here;
    __syncthreads();
    float sum = below + above + (i > 0 ? s[j][i - 1] : 0) + (i < 15 ? s[j][i + 1] : 0) + (j > 0 ? s[j - 1][i] : 0) +
                (j < 15 ? s[j + 1][i] : 0);
    y[at] = sum - 6 * here;
    __syncthreads();
    below = here;
    here = above;
    at += 256;
  }
}

// Whole blocks have nothing to do and leave before the barrier.
K blocks_that_leave(const float* x, float* y, int blocks) {
  __shared__ float s[64];
  if (blockIdx.x >= blocks) return;
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  s[t] = x[i];
  __syncthreads();
  y[i] = s[63 - t];
}

__constant__ float taps[9] = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.4f, 0.3f, 0.2f, 0.1f};
K fir(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float a = 0;
  for (int k = -4; k <= 4; k++)
    if (i + k >= 0 && i + k < n) a += taps[k + 4] * x[i + k];
  y[i] = a;
}
