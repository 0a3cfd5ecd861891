// A training step of the network of model/train: forward, backward, AdamW.
// train_cuda.go launches it; scripts/ptx makes the PTX beside it.
//
// T steps, B windows, N = T·B rows, time-major: row t·B+b is step t of window b;
// those behind a window's end are padding. D embedding_size, L layout_size, H
// hidden_size, K columns of all heads. Parameters, activations and gradients are
// floats. Products round their operands to float, half or bfloat16 as they load
// them and sum in float, so that the master weights are the only ones.
//
// Every sum has one order, so that a step has one result.
#include "prim.cuh"

#if __CUDA_ARCH__ >= 800
#include <cuda_bf16.h>
#define HAS_BF16 1
#endif

namespace training {

#if HAS_BF16
typedef __nv_bfloat16 bf16;
#endif

enum {
  THREADS = 128,
  COLUMNS = 64, // of a block's product
  DEPTH = 32,   // of a round of it
};

// Numbers from row to row of a block's a, b and sums in shared memory: rows begin
// in different banks, and where wmma reads them at multiples of 32 bytes.
template <class T> constexpr int LDA = DEPTH + (sizeof(T) == 2 ? 16 : 8);
template <class T> constexpr int LDB = COLUMNS + (sizeof(T) == 2 ? 16 : 8);
constexpr int LDS = LDB<float>;

template <class T> __device__ __forceinline__ T round_to(float x);
template <> __device__ __forceinline__ float round_to<float>(float x) { return x; }
template <> __device__ __forceinline__ half round_to<half>(float x) { return __float2half_rn(x); }
#if HAS_BF16
template <> __device__ __forceinline__ bf16 round_to<bf16>(float x) { return __float2bfloat16_rn(x); }
#endif

__device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }
__device__ __forceinline__ int bit(const unsigned *words, size_t i) { return words[i / 32] >> i % 32 & 1; }

// Product is 16·MT rows by 64 columns of a·b, on tensor cores: warp w has the
// columns 16w … 16w+15. With G = 4 each warp has an a of its own.
template <class T, int MT, int G> struct Product {
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> sums[MT];
  __device__ __forceinline__ void clear() {
    for (int m = 0; m < MT; m++) nvcuda::wmma::fill_fragment(sums[m], 0.f);
  }
  // add adds a [G·MT·16, DEPTH] · b [DEPTH, COLUMNS], both in shared memory.
  __device__ __forceinline__ void add(const T *a, const T *b) {
    using namespace nvcuda::wmma;
    const int warp = threadIdx.x / 32;
    if (G > 1) a += warp * (MT * 16 * LDA<T>);
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) {
      fragment<matrix_b, 16, 16, 16, T, row_major> right;
      load_matrix_sync(right, b + k * LDB<T> + warp * 16, LDB<T>);
#pragma unroll
      for (int m = 0; m < MT; m++) {
        fragment<matrix_a, 16, 16, 16, T, row_major> left;
        load_matrix_sync(left, a + m * 16 * LDA<T> + k, LDA<T>);
        mma_sync(sums[m], left, right, sums[m]);
      }
    }
  }
  // store writes the sums to [MT·16, LDS] of shared memory.
  __device__ __forceinline__ void store(float *to) {
#pragma unroll
    for (int m = 0; m < MT; m++)
      nvcuda::wmma::store_matrix_sync(to + m * 16 * LDS + threadIdx.x / 32 * 16, sums[m], LDS, nvcuda::wmma::mem_row_major);
  }
};

// In floats thread i has 2·MT rows from i/16·2·MT on, and 4 columns from i%16·4 on.
template <int MT, int G> struct Product<float, MT, G> {
  float sums[2 * MT][4];
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int r = 0; r < 2 * MT; r++) sums[r][0] = sums[r][1] = sums[r][2] = sums[r][3] = 0.f;
  }
  __device__ __forceinline__ void add(const float *a, const float *b) {
    const int column = threadIdx.x % 16 * 4;
    a += threadIdx.x / 16 * 2 * MT * LDA<float>;
    if (G > 1) a += column / 16 * (MT * 16 * LDA<float>);
#pragma unroll 4
    for (int k = 0; k < DEPTH; k++) {
      const float4 w = *(const float4 *)(b + k * LDB<float> + column);
#pragma unroll
      for (int r = 0; r < 2 * MT; r++) {
        const float x = a[r * LDA<float> + k];
        sums[r][0] += x * w.x, sums[r][1] += x * w.y, sums[r][2] += x * w.z, sums[r][3] += x * w.w;
      }
    }
  }
  __device__ __forceinline__ void store(float *to) {
    to += threadIdx.x / 16 * 2 * MT * LDS + threadIdx.x % 16 * 4;
#pragma unroll
    for (int r = 0; r < 2 * MT; r++) *(float4 *)(to + r * LDS) = make_float4(sums[r][0], sums[r][1], sums[r][2], sums[r][3]);
  }
};

// multiply adds the product of G·MT·16 rows left(r, k) and of right(k, column),
// k < depth, and leaves the sums in `to`. Neighbouring threads load neighbouring
// k of left and columns of right, or the other way round (ByRow, ByDepth), as
// they stand in memory. All threads of the block come here.
template <int MT, int G, bool ByRow, bool ByDepth, class T, class Left, class Right>
__device__ __forceinline__ void multiply(T *a, T *b, float *to, int depth, Left left, Right right) {
  enum { ROWS = G * MT * 16 };
  Product<T, MT, G> product;
  product.clear();
  for (int from = 0; from < depth; from += DEPTH) {
    for (int i = threadIdx.x; i < ROWS * DEPTH; i += THREADS) {
      const int r = ByRow ? i % ROWS : i / DEPTH, k = ByRow ? i / ROWS : i % DEPTH;
      a[r * LDA<T> + k] = round_to<T>(from + k < depth ? left(r, from + k) : 0.f);
    }
    for (int i = threadIdx.x; i < DEPTH * COLUMNS; i += THREADS) {
      const int k = ByDepth ? i % DEPTH : i / COLUMNS, column = ByDepth ? i / DEPTH : i % COLUMNS;
      b[k * LDB<T> + column] = round_to<T>(from + k < depth ? right(from + k, column) : 0.f);
    }
    __syncthreads();
    product.add(a, b);
    __syncthreads(); // a and b have been read
  }
  product.store(to);
  __syncthreads();
}

// gemm: c [M, N] (+)= op(a) [M, depth] · op(b) [depth, N] + bias [N], where op
// transposes with TA, TB; lda, ldb and ldc are the numbers from row to row. It
// does so once for each blockIdx.z, whose arrays stand next… numbers apart. A
// block computes 64 by 64 numbers.
template <class T, bool TA, bool TB>
__device__ __forceinline__ void gemm(const float *a, int lda, long long nextA, const float *b, int ldb, long long nextB, float *c, int ldc,
                                     long long nextC, const float *bias, long long nextBias, int M, int N, int depth, int accumulate) {
  enum { MT = 4 };
  SHARED(T, left, MT * 16 * LDA<T>);
  SHARED(T, right, DEPTH * LDB<T>);
  SHARED(float, sums, MT * 16 * LDS);
  a += blockIdx.z * nextA, b += blockIdx.z * nextB, c += blockIdx.z * nextC;
  const int row = blockIdx.y * (MT * 16), column = blockIdx.x * COLUMNS;
  multiply<MT, 1, TA, TB>(
      left, right, sums, depth,
      [&](int r, int k) { return row + r >= M ? 0.f : TA ? a[(size_t)k * lda + row + r] : a[(size_t)(row + r) * lda + k]; },
      [&](int k, int n) { return column + n >= N ? 0.f : TB ? b[(size_t)(column + n) * ldb + k] : b[(size_t)k * ldb + column + n]; });
  for (int i = threadIdx.x; i < MT * 16 * COLUMNS; i += THREADS) {
    const int r = i / COLUMNS, n = i % COLUMNS;
    if (row + r >= M || column + n >= N) continue;
    float v = sums[r * LDS + n];
    if (bias) v += bias[blockIdx.z * nextBias + column + n];
    float *to = c + (size_t)(row + r) * ldc + column + n;
    *to = accumulate ? *to + v : v;
  }
}

// At is where a step of a direction stands: the row of its window 0, and that of
// the step that the direction read before it (−1: none).
struct At {
  int row, before;
};
__device__ __forceinline__ At at(int t, int steps, int B, int backward) {
  const int s = backward ? steps - 1 - t : t;
  return {s * B, t == 0 ? -1 : (backward ? s + 1 : s - 1) * B};
}

// lstm_forward: step t of both directions (blockIdx.z) of a layer. z [2, N, 4H]
// holds the pre-activations i, f, g, o of the inputs and is overwritten with the
// activations, c [2, N, H] gets the cells, h [N, 2H] the states and out [N, 2H]
// those that dropout leaves. weights [H, 4H] of the backward direction stand
// `next` numbers behind those of the forward one. Padding has state zero. A
// block computes 16 windows of 16 units.
template <class T>
__device__ __forceinline__ void lstm_forward(const float *weights, long long next, float *z, float *c, float *h, float *out,
                                             const unsigned *mask, float keep, const int *lens, int t, int steps, int B, int H) {
  SHARED(T, left, 16 * LDA<T>);
  SHARED(T, right, DEPTH * LDB<T>);
  SHARED(float, sums, 16 * LDS);
  const int backward = blockIdx.z, unit = blockIdx.x * 16, window = blockIdx.y * 16;
  const At now = at(t, steps, B, backward);
  const size_t rows = (size_t)steps * B;
  weights += backward * next, z += backward * rows * 4 * H, c += backward * rows * H;
  if (t > 0)
    multiply<1, 1, false, false>(
        left, right, sums, H,
        [&](int r, int k) { return window + r < B ? h[(size_t)(now.before + window + r) * 2 * H + backward * H + k] : 0.f; },
        [&](int k, int n) { return unit + n % 16 < H ? weights[(size_t)k * 4 * H + n / 16 * H + unit + n % 16] : 0.f; });
  for (int i = threadIdx.x; i < 256; i += THREADS) {
    const int b = window + i / 16, u = unit + i % 16;
    if (b >= B || u >= H) continue;
    const size_t row = now.row + b, state = row * 2 * H + backward * H + u;
    if ((int)(now.row / B) >= lens[b]) {
      c[row * H + u] = h[state] = out[state] = 0.f;
      continue;
    }
    float v[4];
    for (int q = 0; q < 4; q++) {
      v[q] = z[row * 4 * H + q * H + u];
      if (t > 0) v[q] += sums[i / 16 * LDS + q * 16 + i % 16];
    }
    const float in = sigmoid(v[0]), forget = sigmoid(v[1]), cell = tanhf(v[2]), gate = sigmoid(v[3]);
    const float before = t > 0 ? c[(size_t)(now.before + b) * H + u] : 0.f;
    const float after = forget * before + in * cell, s = gate * tanhf(after);
    float *to = z + row * 4 * H + u;
    to[0] = in, to[H] = forget, to[2 * H] = cell, to[3 * H] = gate;
    c[row * H + u] = after, h[state] = s, out[state] = bit(mask, state) ? s * keep : 0.f;
  }
}

// lstm_backward: step t of lstm_forward, back. dout [N, 2H] is the gradient of
// out, z the activations, which become the gradient of the pre-activations; dc
// [2, B, H] is that of the cells of step t+1 with respect to those of step t.
// The steps come from the last to the first.
template <class T>
__device__ __forceinline__ void lstm_backward(const float *weights, long long next, float *z, const float *c, const float *dout,
                                              const unsigned *mask, float keep, const int *lens, float *dc, int t, int steps, int B, int H) {
  SHARED(T, left, 4 * 16 * LDA<T>);
  SHARED(T, right, DEPTH * LDB<T>);
  SHARED(float, sums, 16 * LDS);
  const int backward = blockIdx.z, unit = blockIdx.x * 16, window = blockIdx.y * 16;
  const At now = at(t, steps, B, backward);
  const size_t rows = (size_t)steps * B;
  weights += backward * next, z += backward * rows * 4 * H, c += backward * rows * H, dc += (size_t)backward * B * H;
  const bool last = t == steps - 1;
  if (!last) { // dh is the sum over the gates of dz(t+1) · weightsᵀ; each gate has 16 columns
    const size_t after = at(t + 1, steps, B, backward).row;
    multiply<1, 4, false, true>(
        left, right, sums, H,
        [&](int r, int k) { return window + r % 16 < B ? z[(after + window + r % 16) * 4 * H + r / 16 * H + k] : 0.f; },
        [&](int k, int n) { return unit + n % 16 < H ? weights[(size_t)(unit + n % 16) * 4 * H + n / 16 * H + k] : 0.f; });
  }
  for (int i = threadIdx.x; i < 256; i += THREADS) {
    const int b = window + i / 16, u = unit + i % 16;
    if (b >= B || u >= H) continue;
    const size_t row = now.row + b, state = row * 2 * H + backward * H + u;
    float *to = z + row * 4 * H + u;
    float *cells = dc + (size_t)b * H + u;
    if ((int)(now.row / B) >= lens[b]) { // stands at the end: dc is 0 or read no more
      to[0] = to[H] = to[2 * H] = to[3 * H] = 0.f;
      if (last) *cells = 0.f;
      continue;
    }
    float dh = bit(mask, state) ? dout[state] * keep : 0.f;
    if (!last) {
      const float *s = sums + i / 16 * LDS + i % 16;
      dh += s[0] + s[16] + s[32] + s[48];
    }
    const float in = to[0], forget = to[H], cell = to[2 * H], gate = to[3 * H], tanhC = tanhf(c[row * H + u]);
    const float before = t > 0 ? c[(size_t)(now.before + b) * H + u] : 0.f;
    const float d = (last ? 0.f : *cells) + dh * gate * (1.f - tanhC * tanhC);
    to[0] = d * cell * in * (1.f - in);
    to[H] = d * before * forget * (1.f - forget);
    to[2 * H] = d * in * (1.f - cell * cell);
    to[3 * H] = dh * tanhC * gate * (1.f - gate);
    *cells = d * forget;
  }
}

// total is the sum of v over the block's 256 threads, in every thread.
__device__ __forceinline__ float total(float v, float *scratch) {
  scratch[threadIdx.x] = v;
  for (int n = 128; n; n /= 2) {
    __syncthreads();
    if ((int)threadIdx.x < n) scratch[threadIdx.x] += scratch[threadIdx.x + n];
  }
  __syncthreads();
  v = scratch[0];
  __syncthreads();
  return v;
}

} // namespace training

using namespace training;

// train_lines: y = tanh(Σ scale·table[id] + layout·weights + bias) and what
// dropout leaves of it, x, both [N, D]. ends[r] is the end of the ids of row r.
// A thread computes one number.
extern "C" __global__ void train_lines(const unsigned *ends, const unsigned *ids, const float *scales, const float *layout, const float *table,
                                       const float *weights, const float *bias, const unsigned *mask, float keep, const int *lens, float *y,
                                       float *x, int B, int N, int D, int L) {
  const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  const int r = i / D, d = i % D;
  if (r >= N) return;
  if (r / B >= lens[r % B]) {
    y[i] = x[i] = 0.f;
    return;
  }
  float sum = bias[d];
  for (unsigned u = r ? ends[r - 1] : 0; u < ends[r]; u++) sum += scales[u] * table[(size_t)ids[u] * D + d];
  for (int j = 0; j < L; j++) sum += layout[(size_t)r * L + j] * weights[j * D + d];
  y[i] = tanhf(sum);
  x[i] = bit(mask, i) ? y[i] * keep : 0.f;
}

// train_lines_backward: dx, the gradient of x, becomes that of what tanh was taken of.
extern "C" __global__ void train_lines_backward(float *dx, const float *y, const unsigned *mask, float keep, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) dx[i] = bit(mask, i) ? dx[i] * keep * (1.f - y[i] * y[i]) : 0.f;
}

// train_rows: the gradient of the table, grad [slots, D]: slot slots[k] gets
// Σ scale·dsum[row] over uses up to ends[k]. A thread computes one number.
extern "C" __global__ void train_rows(const unsigned *slots, const unsigned *ends, const unsigned *rows, const float *scales, const float *dsum,
                                      float *grad, int count, int D) {
  const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  const int k = i / D, d = i % D;
  if (k >= count) return;
  float sum = 0.f;
  for (unsigned u = k ? ends[k - 1] : 0; u < ends[k]; u++) sum += scales[u] * dsum[(size_t)rows[u] * D + d];
  grad[(size_t)slots[k] * D + d] += sum;
}

// train_sums: sums[j] += Σ_r m[r·columns + j], a matrix and its sums for each
// blockIdx.y, next… numbers apart. A block of 256 threads has 32 columns.
extern "C" __global__ void train_sums(const float *m, long long next, int rows, int columns, float *sums, long long nextSums) {
  SHARED(float, part, 256);
  const int j = blockIdx.x * 32 + threadIdx.x % 32;
  m += blockIdx.y * next, sums += blockIdx.y * nextSums;
  float sum = 0.f;
  if (j < columns)
    for (int r = threadIdx.x / 32; r < rows; r += 8) sum += m[(size_t)r * columns + j];
  part[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x >= 32 || j >= columns) return;
  for (int g = 1; g < 8; g++) sum += part[g * 32 + threadIdx.x];
  sums[j] += sum;
}

// train_loss: loss[r] = Σ over the heads of weight · cross-entropy of the row's
// target, or focal loss where focal[column] says so (Lin et al. 2017); dlogits
// its gradient times scale. The heads are the columns [0, first) and [first, K);
// target is a column of its head, weight 0 where there is none. right[r] is 1
// where the first head's largest logit is its target's. A thread has a row.
extern "C" __global__ void train_loss(const float *logits, const int *target, const float *weight, const int *focal, float scale, float *dlogits,
                                      float *loss, float *right, int N, int heads, int first, int K) {
  const int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= N) return;
  const float *in = logits + (size_t)r * K;
  float *out = dlogits + (size_t)r * K;
  float sum = 0.f, correct = 0.f;
  for (int j = 0; j < heads; j++) {
    const int from = j ? first : 0, to = j ? K : first, y = from + target[r * heads + j];
    const float w = weight[r * heads + j];
    if (w == 0.f) {
      for (int k = from; k < to; k++) out[k] = 0.f;
      continue;
    }
    float most = in[from], exps = 0.f;
    for (int k = from + 1; k < to; k++) most = fmaxf(most, in[k]);
    for (int k = from; k < to; k++) exps += expf(in[k] - most);
    const float logp = in[y] - most - logf(exps), p = expf(logp), q = 1.f - p;
    const float slope = focal[y] ? q * q - 2.f * p * q * logp : 1.f;
    sum -= w * logp * (focal[y] ? q * q : 1.f);
    if (j == 0 && in[y] == most) correct = 1.f;
    for (int k = from; k < to; k++) out[k] = scale * w * slope * (expf(in[k] - most) / exps - (k == y ? 1.f : 0.f));
  }
  loss[r] = sum, right[r] = correct;
}

// Stats are what the host reads after a step.
struct Stats {
  float loss, right;
  float norm;   // of the gradient
  float factor; // by which the gradient is multiplied: clipping, and 1/scale
  int skip;     // the gradient is not finite
};

// train_total adds a batch's loss and right rows to stats. One block of 256.
extern "C" __global__ void train_total(const float *loss, const float *right, int N, Stats *stats) {
  SHARED(float, scratch, 256);
  float l = 0.f, c = 0.f;
  for (int r = threadIdx.x; r < N; r += 256) l += loss[r], c += right[r];
  l = total(l, scratch);
  c = total(c, scratch);
  if (threadIdx.x == 0) stats->loss += l, stats->right += c;
}

// train_squares: squares[blockIdx.x] = Σ x², the block's share of n numbers. Blocks of 256.
extern "C" __global__ void train_squares(const float *x, long long n, float *squares) {
  SHARED(float, scratch, 256);
  float sum = 0.f;
  for (long long i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) sum += x[i] * x[i];
  sum = total(sum, scratch);
  if (threadIdx.x == 0) squares[blockIdx.x] = sum;
}

// train_norm: the norm of the gradient from its n squares, and what follows of
// it. One block of 256.
extern "C" __global__ void train_norm(const float *squares, int n, float scale, float clip, Stats *stats) {
  SHARED(float, scratch, 256);
  float sum = 0.f;
  for (int i = threadIdx.x; i < n; i += 256) sum += squares[i];
  sum = total(sum, scratch);
  if (threadIdx.x != 0) return;
  const float norm = sqrtf(sum) / scale;
  stats->norm = norm;
  stats->skip = !(sum <= 3.402823466e38f);
  stats->factor = (norm > clip ? clip / norm : 1.f) / scale;
}

// Adam are the numbers of an update (optimizer.go).
struct Adam {
  float step, correction, decay, epsilon;
};
__device__ __forceinline__ void adam(float *w, float *m, float *v, float g, Adam a) {
  *m = 0.9f * *m + 0.1f * g;
  *v = 0.999f * *v + 0.001f * g * g;
  *w -= a.step * *m / (sqrtf(*v * a.correction) + a.epsilon) + a.decay * *w;
}

// train_adamw moves the n dense weights; decayed says which of them decay.
extern "C" __global__ void train_adamw(float *w, float *m, float *v, const float *grad, const unsigned char *decayed, long long n,
                                       const Stats *stats, float step, float correction, float decay, float epsilon) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i >= n || stats->skip) return;
  adam(w + i, m + i, v + i, grad[i] * stats->factor, {step, correction, decayed[i] ? decay : 0.f, epsilon});
}

// train_adamw_rows moves the rows ids of the table, whose gradient is grad [count, D].
extern "C" __global__ void train_adamw_rows(float *w, float *m, float *v, const float *grad, const unsigned *ids, int count, int D,
                                            const Stats *stats, float step, float correction, float epsilon) {
  const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  const int k = i / D;
  if (k >= count || stats->skip) return;
  const size_t to = (size_t)ids[k] * D + i % D;
  adam(w + to, m + to, v + to, grad[i] * stats->factor, {step, correction, 0.f, epsilon});
}

// The kernels that have a product, by the names that train_cuda.go knows.
#define GEMM(name, TA, TB, T)                                                                                                           \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                                                 \
      train_##name##_##T(const float *a, int lda, long long nextA, const float *b, int ldb, long long nextB, float *c, int ldc,         \
                         long long nextC, const float *bias, long long nextBias, int M, int N, int depth, int accumulate) {             \
    gemm<T, TA, TB>(a, lda, nextA, b, ldb, nextB, c, ldc, nextC, bias, nextBias, M, N, depth, accumulate);                              \
  }
#define PRODUCTS(T)                                                                                                                     \
  GEMM(nn, false, false, T)                                                                                                             \
  GEMM(nt, false, true, T)                                                                                                              \
  GEMM(tn, true, false, T)                                                                                                              \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                                                 \
      train_forward_##T(const float *weights, long long next, float *z, float *c, float *h, float *out, const unsigned *mask,           \
                        float keep, const int *lens, int t, int steps, int B, int H) {                                                  \
    lstm_forward<T>(weights, next, z, c, h, out, mask, keep, lens, t, steps, B, H);                                                     \
  }                                                                                                                                     \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                                                 \
      train_backward_##T(const float *weights, long long next, float *z, const float *c, const float *dout, const unsigned *mask,       \
                         float keep, const int *lens, float *dc, int t, int steps, int B, int H) {                                      \
    lstm_backward<T>(weights, next, z, c, dout, mask, keep, lens, dc, t, steps, B, H);                                                  \
  }
PRODUCTS(float)
PRODUCTS(half)
#if HAS_BF16
PRODUCTS(bf16)
#endif
