// What gpucheck has a GPU compute: plain sums that the CPU does as well.

// check_sum: *out = Σ x[i], i < n, in that order.
extern "C" __global__ void check_sum(const float *x, int n, float *out) {
  if (blockIdx.x || threadIdx.x) return;
  float sum = 0;
  for (int i = 0; i < n; i++) sum += x[i];
  *out = sum;
}

// check_product: c = a·b, a is [M, K], b is [K, N]; a thread computes one
// number of c, a block one row.
extern "C" __global__ void check_product(const float *a, const float *b, float *c, int K, int N) {
  const int m = blockIdx.x, n = threadIdx.x;
  if (n >= N) return;
  float sum = 0;
  for (int k = 0; k < K; k++) sum += a[m * K + k] * b[k * N + n];
  c[m * N + n] = sum;
}
