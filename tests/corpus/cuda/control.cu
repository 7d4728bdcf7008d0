// Branches, calls and memory of all kinds: what compilers write around the arithmetic.
#include <cstdio>
#define K extern "C" __global__ void

K empty() {}

K operate(const int* op, const int* x, const int* y, int* z, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int a = x[i], b = y[i], r;
  switch (op[i]) {
    case 0: r = a + b; break;
    case 1: r = a - b; break;
    case 2: r = a * b; break;
    case 3: r = a & b; break;
    case 4: r = a | b; break;
    case 5: r = a ^ b; break;
    case 6: r = min(a, b); break;
    case 7: r = max(a, b); break;
    case 8: r = a << (b & 31); break;
    case 9: r = __popc(a) + b; break;
    default: r = -1;
  }
  z[i] = r;
}

__device__ __noinline__ int gcd(int a, int b) {
  while (b) {
    int t = a % b;
    a = b;
    b = t;
  }
  return a;
}
K greatest(const int* x, const int* y, int* z) { z[threadIdx.x] = gcd(x[threadIdx.x], y[threadIdx.x]); }

// The function does not know in which memory its array is.
__device__ __noinline__ float total(const float* p, int n) {
  float s = 0;
  for (int i = 0; i < n; i++) s += p[i];
  return s;
}
K either_memory(const float* x, float* y, int n) {
  __shared__ float s[32];
  int t = threadIdx.x;
  s[t] = x[t] * 2;
  __syncthreads();
  const float* p = t % 2 ? s : x;
  y[t] = total(p, n);
}

K print_first(const int* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && x[i] < 0) printf("x[%d] is %d\n", i, x[i]);
}

K collatz(const int* x, int* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  long long v = x[i];
  int steps = 0;
  while (v != 1) {
    v = v % 2 ? 3 * v + 1 : v / 2;
    steps++;
  }
  y[i] = steps;
}

K trap_on_zero(const int* x, int* y) {
  int v = x[threadIdx.x];
  if (v == 0) __trap();
  y[threadIdx.x] = 1000 / v;
}

// An array of which the place depends on data stays in local memory.
K count_digits(const int* x, int* y) {
  int counts[10] = {};
  int v = x[threadIdx.x];
  do {
    counts[v % 10]++;
    v /= 10;
  } while (v);
  int most = 0;
  for (int k = 1; k < 10; k++)
    if (counts[k] > counts[most]) most = k;
  y[threadIdx.x] = most;
}

struct Plane { float a[3]; float d; int on; };
K distances(Plane p, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = p.on ? p.a[0] * x[3 * i] + p.a[1] * x[3 * i + 1] + p.a[2] * x[3 * i + 2] + p.d : 0.0f;
}

__constant__ int table[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
K look_up(const int* x, int* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = table[x[i] & 15];
}

__device__ int bias[4] = {10, 20, 30, 40};
K add_bias(const int* x, int* y) { y[threadIdx.x] = x[threadIdx.x] + bias[threadIdx.x % 4]; }

K primes(int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int prime = i > 1;
  for (int d = 2; d * d <= i; d++) {
    if (i % d) continue;
    prime = 0;
    break;
  }
  out[i] = prime;
}

K lower_bound(const int* sorted, int length, const int* x, int* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int low = 0, high = length;
  while (low < high) {
    int middle = (low + high) / 2;
    if (sorted[middle] < x[i]) low = middle + 1; else high = middle;
  }
  y[i] = low;
}

K mandelbrot(int* out, int width, int most) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y;
  if (c >= width) return;
  float a = 0, b = 0, x = -2.0f + 3.0f * c / width, y = -1.0f + 2.0f * r / gridDim.y;
  int k = 0;
  for (; k < most; k++) {
    float aa = a * a, bb = b * b;
    if (aa + bb > 4) break;
    b = 2 * a * b + y;
    a = aa - bb + x;
  }
  out[r * width + c] = k;
}

// A pointer that comes out of memory: rows of different lengths.
K sum_of_rows(const int* starts, const float* values, float* y, int rows) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float s = 0;
  for (int i = starts[r]; i < starts[r + 1]; i++) s += values[i];
  y[r] = s;
}

// A table of pointers.
K sum_of_arrays(const float* const* arrays, float* y, int count, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float s = 0;
  for (int k = 0; k < count; k++) s += arrays[k][i];
  y[i] = s;
}
