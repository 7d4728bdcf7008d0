// Types: halves, bfloat16, doubles, bytes, wide integers; templates.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define K extern "C" __global__ void

K axpy_half2(const __half2* x, __half2* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __hfma2(__float2half2_rn(a), x[i], y[i]);
}

K scale_bf16(const __nv_bfloat16* x, __nv_bfloat16* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __float2bfloat16(__bfloat162float(x[i]) * a);
}

K widen_half(const __half* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __half2float(x[i]);
}

K hypot64(const double* x, const double* y, double* z, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = sqrt(x[i] * x[i] + y[i] * y[i]);
}

K multiply_complex(const float2* x, const float2* y, float2* z, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = make_float2(x[i].x * y[i].x - x[i].y * y[i].y, x[i].x * y[i].y + x[i].y * y[i].x);
}

K divide64(const long long* x, const long long* y, long long* z, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = x[i] / y[i] + x[i] % y[i];
}

K average_bytes(const uchar4* x, const uchar4* y, uchar4* z, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  uchar4 a = x[i], b = y[i];
  z[i] = make_uchar4((a.x + b.x + 1) / 2, (a.y + b.y + 1) / 2, (a.z + b.z + 1) / 2, (a.w + b.w + 1) / 2);
}

K clamp_shorts(const int* x, short* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = (short)max(-1000, min(1000, x[i]));
}

K exponentials(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = expf(x[i]) + sinf(x[i]) + rsqrtf(1 + x[i] * x[i]);
}

K unpack_nibbles(const unsigned char* x, const __half* scale, float* y, int blocks) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= blocks * 32) return;
  int b = i / 32, k = i % 32;
  unsigned char v = x[b * 16 + k % 16];
  y[i] = __half2float(scale[b]) * ((k < 16 ? v & 15 : v >> 4) - 8);
}

template <typename T>
__global__ void scale_all(T* x, T a, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] *= a;
}
template __global__ void scale_all<float>(float*, float, int);
template __global__ void scale_all<double>(double*, double, int);
template __global__ void scale_all<int>(int*, int, int);

template <int THREADS>
__global__ void sum_unrolled(const int* x, int* y) {
  __shared__ int s[THREADS];
  int t = threadIdx.x;
  s[t] = x[blockIdx.x * THREADS + t];
  __syncthreads();
#pragma unroll
  for (int half = THREADS / 2; half; half /= 2) {
    if (t < half) s[t] += s[t + half];
    __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = s[0];
}
template __global__ void sum_unrolled<64>(const int*, int*);
template __global__ void sum_unrolled<256>(const int*, int*);
