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
// does so for each of the directions, whose arrays stand next… numbers apart. A
// block computes 64 by 64 numbers; blockIdx.z is part·directions + direction. With
// several parts each has depthOfPart of the depth, and c is [parts][directions]
// matrices for train_add.
template <class T, bool TA, bool TB>
__device__ __forceinline__ void gemm(const float *a, int lda, long long nextA, const float *b, int ldb, long long nextB, float *c, int ldc,
                                     long long nextC, const float *bias, long long nextBias, int M, int N, int depth, int accumulate,
                                     int directions, int depthOfPart) {
  enum { MT = 4 };
  SHARED(T, left, MT * 16 * LDA<T>);
  SHARED(T, right, DEPTH * LDB<T>);
  SHARED(float, sums, MT * 16 * LDS);
  const int direction = blockIdx.z % directions, first = blockIdx.z / directions * depthOfPart;
  a += direction * nextA + (long long)first * (TA ? lda : 1), b += direction * nextB + (long long)first * (TB ? 1 : ldb);
  c += blockIdx.z * nextC;
  const int row = blockIdx.y * (MT * 16), column = blockIdx.x * COLUMNS;
  multiply<MT, 1, TA, TB>(
      left, right, sums, min(depthOfPart, depth - first),
      [&](int r, int k) { return row + r >= M ? 0.f : TA ? a[(size_t)k * lda + row + r] : a[(size_t)(row + r) * lda + k]; },
      [&](int k, int n) { return column + n >= N ? 0.f : TB ? b[(size_t)(column + n) * ldb + k] : b[(size_t)k * ldb + column + n]; });
  for (int i = threadIdx.x; i < MT * 16 * COLUMNS; i += THREADS) {
    const int r = i / COLUMNS, n = i % COLUMNS;
    if (row + r >= M || column + n >= N) continue;
    float v = sums[r * LDS + n];
    if (bias) v += bias[direction * nextBias + column + n];
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

// rounded is x as a product of that precision takes it.
enum { FLOAT, HALF, BF16 };
__device__ __forceinline__ float rounded(float x, int precision) {
  if (precision == HALF) return __half2float(__float2half_rn(x));
#if HAS_BF16
  if (precision == BF16) return __bfloat162float(__float2bfloat16_rn(x));
#endif
  return x;
}

// round_all rounds the numbers of an array so.
template <int N> __device__ __forceinline__ void round_all(float (&v)[N], int precision) {
  if (precision == HALF)
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = rounded(v[i], HALF);
  if (precision == BF16)
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = rounded(v[i], BF16);
}

// dots is sum[i] = Σ_k w[k] · x[i][k], of rows [U] in shared memory that stand
// next numbers apart. The order is the same for every W.
template <int U, int W>
__device__ __forceinline__ void dots(float (&sum)[W], const float (&w)[U], const float *x, int next) {
  float part[W][4];
#pragma unroll
  for (int i = 0; i < W; i++) part[i][0] = part[i][1] = part[i][2] = part[i][3] = 0.f;
#pragma unroll
  for (int k = 0; k < U; k += 4) {
#pragma unroll
    for (int i = 0; i < W; i++) {
      float v[4];
      load4_shared(v, x + i * next + k);
#pragma unroll
      for (int j = 0; j < 4; j++) part[i][j] += w[k + j] * v[j];
    }
  }
#pragma unroll
  for (int i = 0; i < W; i++) sum[i] = (part[i][0] + part[i][1]) + (part[i][2] + part[i][3]);
}

// of is v of the thread of the same unit that has that gate.
__device__ __forceinline__ float of(float v, int gate) { return __shfl_sync(~0u, v, (threadIdx.x & 28) + gate); }

// resident_forward: lstm_forward of all steps of W windows in one direction
// (blockIdx.y), for H ≤ U. Thread 4u+q has gate q of unit u, and its column of the
// recurrent weights in registers.
template <int U, int W>
__device__ __forceinline__ void resident_forward(const float *weights, long long next, float *z, float *c, float *h, float *out,
                                                 const unsigned *mask, float keep, const int *lens, int steps, int B, int H, int precision) {
  SHARED(float, states, 2 * W * U);
  const int u = threadIdx.x / 4, q = threadIdx.x % 4, backward = blockIdx.y, window = blockIdx.x * W;
  const size_t rows = (size_t)steps * B;
  weights += backward * next, z += backward * rows * 4 * H, c += backward * rows * H;
  float w[U];
#pragma unroll
  for (int k = 0; k < U; k++) w[k] = k < H && u < H ? weights[(size_t)k * 4 * H + q * H + u] : 0.f;
  round_all(w, precision);
  for (int i = threadIdx.x; i < W * U; i += 4 * U) states[i] = 0.f;

  bool mine[W];
  int len[W];
  float cell[W], now[W], after[W];
#pragma unroll
  for (int i = 0; i < W; i++) {
    mine[i] = u < H && window + i < B;
    len[i] = window + i < B ? lens[window + i] : 0;
    cell[i] = 0.f;
  }
  auto fetch = [&](int t) { // z of step t, early enough that nobody waits for it
    const size_t row = t < steps ? at(t, steps, B, backward).row + window : 0;
#pragma unroll
    for (int i = 0; i < W; i++) after[i] = mine[i] && t < steps ? z[(row + i) * 4 * H + q * H + u] : 0.f;
  };
  fetch(0);
  __syncthreads();
  for (int t = 0; t < steps; t++) {
    const size_t row = at(t, steps, B, backward).row + window;
    const int step = backward ? steps - 1 - t : t;
    unsigned bits[W];
#pragma unroll
    for (int i = 0; i < W; i++) {
      now[i] = after[i];
      bits[i] = mine[i] ? bit(mask, (row + i) * 2 * H + backward * H + u) : 0;
    }
    fetch(t + 1);
    float sum[W];
    dots<U, W>(sum, w, states + t % 2 * (W * U), U);
    float *to = states + (t + 1) % 2 * (W * U);
#pragma unroll
    for (int i = 0; i < W; i++) {
      const float v = now[i] + sum[i], mineOf = q == 2 ? tanhf(v) : sigmoid(v);
      const float in = of(mineOf, 0), forget = of(mineOf, 1), candidate = of(mineOf, 2), gate = of(mineOf, 3);
      const bool padding = step >= len[i];
      cell[i] = padding ? 0.f : forget * cell[i] + in * candidate;
      const float state = padding ? 0.f : gate * tanhf(cell[i]);
      if (q == 0) to[i * U + u] = rounded(state, precision);
      if (!mine[i]) continue;
      const size_t r = row + i, j = r * 2 * H + backward * H + u;
      if (!padding) z[r * 4 * H + q * H + u] = mineOf;
      if (q == 0) c[r * H + u] = cell[i];
      if (q == 1) h[j] = state;
      if (q == 2) out[j] = bits[i] ? state * keep : 0.f;
    }
    __syncthreads(); // `to` is whole, and what was read may be overwritten
  }
}

// resident_backward: lstm_backward of all steps, as resident_forward. The thread
// has row u of the recurrent weights of gate q.
template <int U, int W>
__device__ __forceinline__ void resident_backward(const float *weights, long long next, float *z, const float *c, const float *dout,
                                                  const unsigned *mask, float keep, const int *lens, int steps, int B, int H, int precision) {
  enum { PAD = U + 4 }; // the gates' rows begin in different banks
  SHARED(float, slopes, 2 * W * 4 * PAD);
  const int u = threadIdx.x / 4, q = threadIdx.x % 4, backward = blockIdx.y, window = blockIdx.x * W;
  const size_t rows = (size_t)steps * B;
  weights += backward * next, z += backward * rows * 4 * H, c += backward * rows * H;
  float w[U];
#pragma unroll
  for (int k = 0; k < U; k++) w[k] = k < H && u < H ? weights[(size_t)u * 4 * H + q * H + k] : 0.f;
  round_all(w, precision);

  bool mine[W];
  int len[W];
  float dc[W], dh[W], cell[W]; // cell is c of the step
  struct {
    float z[W], before[W], dout[W];
    unsigned bits[W];
  } now, after;
#pragma unroll
  for (int i = 0; i < W; i++) {
    mine[i] = u < H && window + i < B;
    len[i] = window + i < B ? lens[window + i] : 0;
    dc[i] = dh[i] = 0.f;
    cell[i] = mine[i] ? c[(size_t)(at(steps - 1, steps, B, backward).row + window + i) * H + u] : 0.f;
  }
  auto fetch = [&](int t) { // what step t reads, early enough that nobody waits for it
    const At there = at(t > 0 ? t : 0, steps, B, backward);
#pragma unroll
    for (int i = 0; i < W; i++) {
      const size_t r = there.row + window + i, j = r * 2 * H + backward * H + u;
      const bool some = mine[i] && t >= 0;
      after.z[i] = some ? z[r * 4 * H + q * H + u] : 0.f;
      after.before[i] = some && t > 0 ? c[(size_t)(there.before + window + i) * H + u] : 0.f;
      after.dout[i] = some ? dout[j] : 0.f;
      after.bits[i] = some ? bit(mask, j) : 0;
    }
  };
  fetch(steps - 1);
  for (int t = steps - 1; t >= 0; t--) {
    const size_t row = at(t, steps, B, backward).row + window;
    const int step = backward ? steps - 1 - t : t;
    now = after;
    fetch(t - 1);
    float *to = slopes + t % 2 * (W * 4 * PAD);
#pragma unroll
    for (int i = 0; i < W; i++) {
      const float in = of(now.z[i], 0), forget = of(now.z[i], 1), candidate = of(now.z[i], 2), gate = of(now.z[i], 3);
      const float tanhC = tanhf(cell[i]), dstate = (now.bits[i] ? now.dout[i] * keep : 0.f) + dh[i];
      const float d = dc[i] + dstate * gate * (1.f - tanhC * tanhC);
      float slope = q == 0   ? d * candidate * in * (1.f - in)
                    : q == 1 ? d * now.before[i] * forget * (1.f - forget)
                    : q == 2 ? d * in * (1.f - candidate * candidate)
                             : dstate * tanhC * gate * (1.f - gate);
      dc[i] = d * forget;
      if (step >= len[i]) slope = dc[i] = 0.f; // padding
      cell[i] = now.before[i];
      to[(i * 4 + q) * PAD + u] = rounded(slope, precision);
      if (mine[i]) z[(row + i) * 4 * H + q * H + u] = slope;
    }
    __syncthreads(); // `to` is whole; the step after the next writes there again
    dots<U, W>(dh, w, to + q * PAD, 4 * PAD);
#pragma unroll
    for (int i = 0; i < W; i++) { // over the gates
      dh[i] += __shfl_xor_sync(~0u, dh[i], 1);
      dh[i] += __shfl_xor_sync(~0u, dh[i], 2);
    }
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
  const unsigned end = ends[r];
#pragma unroll 8
  for (unsigned u = r ? ends[r - 1] : 0; u < end; u++) sum += scales[u] * table[(size_t)ids[u] * D + d];
#pragma unroll 8
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
// Σ scale·dsum[row] over uses up to ends[k]. A block of 8 warps has a slot; each
// warp sums every eighth use.
extern "C" __global__ void train_rows(const unsigned *slots, const unsigned *ends, const unsigned *rows, const float *scales, const float *dsum,
                                      float *grad, int D) {
  SHARED(float, part, 8 * 32);
  const int k = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const unsigned first = k ? ends[k - 1] : 0, end = ends[k];
  float *to = grad + (size_t)slots[k] * D;
  for (int from = 0; from < D; from += 32) {
    const int d = from + lane;
    float sum = 0.f;
    if (d < D) {
#pragma unroll 4
      for (unsigned u = first + warp; u < end; u += 8) sum += scales[u] * dsum[(size_t)rows[u] * D + d];
    }
    part[threadIdx.x] = sum;
    __syncthreads();
    if (warp == 0 && d < D) {
      for (int w = 1; w < 8 && first + w < end; w++) sum += part[w * 32 + lane];
      to[d] += sum;
    }
    __syncthreads(); // part has been read
  }
}

// train_sums: sums[j] += Σ_r m[r·columns + j], a matrix and its sums for each
// blockIdx.y, next… numbers apart. A block of 1,024 threads has 32 columns.
extern "C" __global__ void __launch_bounds__(1024)
    train_sums(const float *m, long long next, int rows, int columns, float *sums, long long nextSums) {
  SHARED(float, part, 1024);
  const int j = blockIdx.x * 32 + threadIdx.x % 32;
  m += blockIdx.y * next, sums += blockIdx.y * nextSums;
  float sum = 0.f;
  if (j < columns) {
#pragma unroll 8
    for (int r = threadIdx.x / 32; r < rows; r += 32) sum += m[(size_t)r * columns + j];
  }
  part[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x >= 32 || j >= columns) return;
#pragma unroll 8
  for (int g = 1; g < 32; g++) sum += part[g * 32 + threadIdx.x];
  sums[j] += sum;
}

// train_add adds to c [directions][M, N], whose rows stand ldc and whose matrices
// nextC numbers apart, the parts that a product left: [parts][directions][M, N].
// blockIdx.y is the direction.
extern "C" __global__ void train_add(const float *part, int parts, float *c, int ldc, long long nextC, int M, int N) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= M * N) return;
  const size_t next = (size_t)gridDim.y * M * N;
  part += (size_t)blockIdx.y * M * N + i;
  float sum = 0.f;
#pragma unroll 8
  for (int p = 0; p < parts; p++) sum += part[p * next];
  c[blockIdx.y * nextC + (size_t)(i / N) * ldc + i % N] += sum;
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
                         long long nextC, const float *bias, long long nextBias, int M, int N, int depth, int accumulate,               \
                         int directions, int depthOfPart) {                                                                             \
    gemm<T, TA, TB>(a, lda, nextA, b, ldb, nextB, c, ldc, nextC, bias, nextBias, M, N, depth, accumulate, directions, depthOfPart);     \
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

// Those of an LSTM of at most U units, W windows a block.
#define RESIDENT(U, W)                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(4 * U)                                                                                   \
      train_forward_##U##_##W(const float *weights, long long next, float *z, float *c, float *h, float *out, const unsigned *mask,     \
                              float keep, const int *lens, int steps, int B, int H, int precision) {                                    \
    resident_forward<U, W>(weights, next, z, c, h, out, mask, keep, lens, steps, B, H, precision);                                      \
  }                                                                                                                                     \
  extern "C" __global__ void __launch_bounds__(4 * U)                                                                                   \
      train_backward_##U##_##W(const float *weights, long long next, float *z, const float *c, const float *dout, const unsigned *mask, \
                               float keep, const int *lens, int steps, int B, int H, int precision) {                                   \
    resident_backward<U, W>(weights, next, z, c, dout, mask, keep, lens, steps, B, H, precision);                                       \
  }
RESIDENT(32, 1)
RESIDENT(32, 4)
RESIDENT(96, 1)
RESIDENT(96, 4)
