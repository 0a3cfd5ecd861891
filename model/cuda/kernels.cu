// The forward pass of model.Weights. pack.go lays the weights out for it,
// card.go launches it; scripts/ptx makes the PTX beside it.
//
// D embedding_size, H hidden_size, K classes, E and U are D and H rounded up to
// a multiple of 16; what was added is zero. T is half (tensor cores, float sums)
// or float. Nothing is summed in an order that depends on what shares a batch.
#include "prim.cuh"

enum {
  TILE = 16,           // rows of a tile, and of a block of weights
  UNITS = 8,           // units of a tile
  COLS = 4 * UNITS,    // its columns: 4 gates each
  BLOCK = TILE * COLS, // numbers of a block of weights
};

// A window as the kernels see it: its first row of x, its first row of states
// and of probabilities, its lines. They are sorted from the longest.
struct Window {
  int first, out, len;
};

__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.f, 1.f + __expf(-x)); }
__device__ __forceinline__ float tangent(float x) { return 1.f - __fdividef(2.f, 1.f + __expf(2.f * x)); }

// lines: x[l] = tanh(Σ_g scale[l][g] · Σ_id tableScale[id]·table[id] + clip((layout[l] − mean)·invStd, ±6)·layoutWeights + bias).
// ends[l][g] is the end in ids of group g of line l. x is [lines, E], table
// [rows, D4·4], layoutWeights [layouts, D4·4], D4 = ⌈D/4⌉. A thread computes four
// columns of a line.
template <class T>
__device__ __forceinline__ void lines(const unsigned *ids, const unsigned *ends, const float *scale, const float *layout, int count,
                                      const char4 *table, const float *tableScale, const float *mean, const float *invStd,
                                      const float4 *layoutWeights, const float4 *bias, T *x, int D4, int layouts, int E) {
  const int quads = E / 4;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const int l = i / quads, quad = i % quads;
  if (l >= count) return;
  T *to = x + (size_t)l * E + quad * 4;
  if (quad >= D4) {
    store2(to, 0.f, 0.f);
    store2(to + 2, 0.f, 0.f);
    return;
  }
  float4 sum = bias[quad];
  for (int j = 0; j < layouts; j++) {
    float v = (layout[(size_t)l * layouts + j] - mean[j]) * invStd[j];
    v = v > 6.f ? 6.f : v < -6.f ? -6.f : v;
    const float4 w = layoutWeights[j * D4 + quad];
    sum.x += v * w.x, sum.y += v * w.y, sum.z += v * w.z, sum.w += v * w.w;
  }
  unsigned id = l ? ends[l * 4 - 1] : 0;
  for (int g = 0; g < 4; g++) {
    const unsigned end = ends[l * 4 + g];
    float4 of = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 4
    for (; id < end; id++) {
      const float s = tableScale[ids[id]];
      const char4 row = table[(size_t)ids[id] * D4 + quad];
      of.x += s * row.x, of.y += s * row.y, of.z += s * row.z, of.w += s * row.w;
    }
    const float s = scale[l * 4 + g];
    sum.x += s * of.x, sum.y += s * of.y, sum.z += s * of.z, sum.w += s * of.w;
  }
  store2(to, tangent(sum.x), tangent(sum.y));
  store2(to + 2, tangent(sum.z), tangent(sum.w));
}

// product adds to sums[m] the product of rows 16m … 16m+15 of a with the warp's
// weights: a's row r is row at[r] of `from`, which has ld numbers a row, or
// nothing (at[r] < 0). weights are kTiles blocks. All threads of the block come
// here; `live` is how many of the MT tiles there are.
enum { CHUNK = 64 }; // numbers of a row in shared memory at a time
template <class T> struct Padded { enum { size = CHUNK + Skew<T>::size }; };

template <class T, int MT>
__device__ __forceinline__ void product(Sums<T> (&sums)[MT], T *stage, const int *at, const T *from, int ld, const T *weights, int kTiles, int live) {
  constexpr int vec = 16 / sizeof(T), vecs = CHUNK / vec, PAD = Padded<T>::size;
  const int chunks = (kTiles * TILE + CHUNK - 1) / CHUNK;
  auto fetch = [&](int chunk) {
    T *to = stage + chunk % 2 * (MT * TILE * PAD);
    for (int i = threadIdx.x; i < live * TILE * vecs; i += blockDim.x) {
      const int r = i / vecs, v = i % vecs * vec, k = chunk * CHUNK + v;
      if (at[r] >= 0 && k < kTiles * TILE)
        copy16(to + r * PAD + v, from + (size_t)at[r] * ld + k);
      else
        *(uint4 *)(to + r * PAD + v) = uint4{0, 0, 0, 0};
    }
    copy16_commit();
  };
  fetch(0);
  for (int chunk = 0; chunk < chunks; chunk++) {
    if (chunk + 1 < chunks)
      fetch(chunk + 1);
    else
      copy16_commit();
    copy16_wait<1>();
    __syncthreads();
    const T *a = stage + chunk % 2 * (MT * TILE * PAD);
    const int tiles = min((int)CHUNK / TILE, kTiles - chunk * (CHUNK / TILE));
    constexpr int unroll = sizeof(T) == 2 ? CHUNK / TILE : 1; // a block of floats is a loop of its own
#pragma unroll unroll
    for (int k = 0; k < CHUNK / TILE; k++) {
      if (k >= tiles) break;
      Weights<T> w;
      w.load(weights + (size_t)(chunk * (CHUNK / TILE) + k) * BLOCK);
#pragma unroll
      for (int m = 0; m < MT; m++)
        if (m < live) sums[m].add(a + m * TILE * PAD + k * TILE, PAD, w);
    }
    __syncthreads();
  }
}

// project: z = a·weights + bias. a is [rows, kTiles·16], z is [rows, tiles, 4
// gates, 8 units]: the tiles of the forward direction, then those of the
// backward one. A block of 8 warps computes 64 rows of 8 tiles.
enum { projectTiles = 4, projectWarps = 8 };

template <class T>
__device__ __forceinline__ void project(const T *a, int rows, int kTiles, const T *weights, const float *bias, float *z, int tiles) {
  SHARED(T, stage, 2 * projectTiles * TILE * Padded<T>::size);
  SHARED(int, at, projectTiles * TILE);
  SHARED(float, scratch, projectWarps * Scratch<T>::size + 8);
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, g = lane / 4, t = lane & 3;
  const int first = blockIdx.x * (projectTiles * TILE);
  const int mine = blockIdx.y * projectWarps + warp, tile = min(mine, tiles - 1);
  const int live = min((int)projectTiles, (rows - first + TILE - 1) / TILE);
  for (int i = threadIdx.x; i < projectTiles * TILE; i += blockDim.x) at[i] = first + i < rows ? first + i : -1;
  __syncthreads();
  Sums<T> sums[projectTiles];
#pragma unroll
  for (int m = 0; m < projectTiles; m++) sums[m].clear();
  product<T, projectTiles>(sums, stage, at, a, kTiles * TILE, weights + (size_t)tile * kTiles * BLOCK, kTiles, live);
#pragma unroll
  for (int m = 0; m < projectTiles; m++) {
    if (m >= live) break;
    sums[m].finish(scratch + warp * Scratch<T>::size);
    if (mine >= tiles) continue;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = first + m * TILE + g + half * 8;
      if (row >= rows) continue;
      float *to = z + ((size_t)row * tiles + tile) * COLS + 2 * t;
      const float *b = bias + tile * COLS + 2 * t;
#pragma unroll
      for (int q = 0; q < 4; q++)
        store2(to + q * UNITS, sums[m].v[q][2 * half] + b[q * UNITS], sums[m].v[q][2 * half + 1] + b[q * UNITS + 1]);
    }
  }
}

// gates is one step of two neighbouring units of a row: c and h from the sums
// of h·RecurrentWeights and z. z points to the units' gate i.
__device__ __forceinline__ void gates(const float (&v)[4][4], int half, const float2 (&z)[4], float (&c)[2], float (&h)[2]) {
#pragma unroll
  for (int e = 0; e < 2; e++) {
    const int i = 2 * half + e;
    const float in = sigmoid(v[0][i] + (e ? z[0].y : z[0].x)), forget = sigmoid(v[1][i] + (e ? z[1].y : z[1].x));
    const float cell = tangent(v[2][i] + (e ? z[2].y : z[2].x)), out = sigmoid(v[3][i] + (e ? z[3].y : z[3].x));
    c[e] = forget * c[e] + in * cell;
    h[e] = out * tangent(c[e]);
  }
}

// line is the t-th line that the direction reads of a window.
__device__ __forceinline__ int line(int len, int t, int backward) { return backward ? len - 1 - t : t; }

// step: step t of both directions (blockIdx.z) of the first `active` windows,
// those that have one. z is [rows, 2, U/8, 4, 8]; its rows are those of x in the
// first layer (byLine) and of states in others. states is [steps, 2, U], c
// [2, windows, U]. A block of 4 warps computes 32 windows of 4 tiles.
enum { stepTiles = 2, stepWarps = 4 };

template <class T>
__device__ __forceinline__ void step(const T *weights, const float *z, int byLine, const Window *windows, T *states, float *c, int t, int active, int count, int U) {
  SHARED(T, stage, 2 * stepTiles * TILE * Padded<T>::size);
  SHARED(int, at, stepTiles * TILE);
  SHARED(float, scratch, stepWarps * Scratch<T>::size + 8);
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, g = lane / 4, u = (lane & 3) * 2;
  const int tiles = U / UNITS, kTiles = U / TILE, backward = blockIdx.z;
  const int first = blockIdx.y * (stepTiles * TILE);
  const int mine = blockIdx.x * stepWarps + warp, tile = min(mine, tiles - 1);
  const int live = min((int)stepTiles, (active - first + TILE - 1) / TILE);
  Sums<T> sums[stepTiles];
#pragma unroll
  for (int m = 0; m < stepTiles; m++) sums[m].clear();
  if (t > 0) {
    for (int i = threadIdx.x; i < stepTiles * TILE; i += blockDim.x) {
      at[i] = -1;
      if (first + i < active) at[i] = windows[first + i].out + line(windows[first + i].len, t - 1, backward);
    }
    __syncthreads();
    product<T, stepTiles>(sums, stage, at, states + backward * U, 2 * U, weights + (size_t)(backward * tiles + tile) * kTiles * BLOCK, kTiles, live);
  }
#pragma unroll
  for (int m = 0; m < stepTiles; m++) {
    if (m >= live) break;
    sums[m].finish(scratch + warp * Scratch<T>::size);
    if (mine >= tiles) continue;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int i = first + m * TILE + g + half * 8;
      if (i >= active) continue;
      const Window w = windows[i];
      const int l = line(w.len, t, backward);
      const float *from = z + ((size_t)((byLine ? w.first : w.out) + l) * 2 * tiles + backward * tiles + tile) * COLS + u;
      float2 zs[4];
#pragma unroll
      for (int q = 0; q < 4; q++) zs[q] = *(const float2 *)(from + q * UNITS);
      float2 *cell = (float2 *)(c + ((size_t)backward * count + i) * U + tile * UNITS + u);
      float cs[2] = {0.f, 0.f}, hs[2];
      if (t > 0) cs[0] = cell->x, cs[1] = cell->y;
      gates(sums[m].v, half, zs, cs, hs);
      *cell = make_float2(cs[0], cs[1]);
      store2(states + ((size_t)(w.out + l) * 2 + backward) * U + tile * UNITS + u, hs[0], hs[1]);
    }
  }
}

// resident: all steps of 16 windows in one direction (blockIdx.y), with the
// recurrent weights in registers: a warp holds its tile's KT = U/16 blocks, and
// there are U/8 warps. Arguments are those of step.
template <int KT>
__device__ __forceinline__ void resident(const half *weights, const float *z, int byLine, const Window *windows, half *states, int count) {
  constexpr int U = KT * TILE, tiles = U / UNITS, PAD = U + Skew<half>::size;
  SHARED(half, h, 2 * TILE * PAD);
  SHARED(float, scratch, tiles * Scratch<half>::size + 8);
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, g = lane / 4, u = warp * UNITS + (lane & 3) * 2;
  const int backward = blockIdx.y, first = blockIdx.x * TILE;
  Weights<half> w[KT];
#pragma unroll
  for (int k = 0; k < KT; k++) w[k].load(weights + (size_t)((backward * tiles + warp) * KT + k) * BLOCK);
  for (int i = threadIdx.x; i < TILE * PAD; i += blockDim.x) h[i] = __float2half_rn(0.f);

  // The rows g and g+8: where their z and their states stand, and how long they are.
  const float *from[2];
  half *to[2];
  int len[2];
  const int longest = windows[first].len, go = backward ? -1 : 1;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int i = first + g + r * 8;
    const Window window = windows[min(i, count - 1)];
    len[r] = i < count ? window.len : 0;
    const int l = line(window.len, 0, backward);
    from[r] = z + ((size_t)((byLine ? window.first : window.out) + l) * 2 * tiles + backward * tiles + warp) * COLS + (lane & 3) * 2;
    to[r] = states + ((size_t)(window.out + l) * 2 + backward) * U + u;
  }
  float c[2][2] = {{0.f, 0.f}, {0.f, 0.f}};
  float2 now[2][4], next[2][4];
  auto fetch = [&](int t) { // z of step t, early enough that nobody waits for it
#pragma unroll
    for (int r = 0; r < 2; r++) {
      if (t < len[r]) {
#pragma unroll
        for (int q = 0; q < 4; q++) next[r][q] = *(const float2 *)(from[r] + q * UNITS);
      }
      from[r] += go * (2 * tiles * COLS);
    }
  };
#pragma unroll
  for (int r = 0; r < 2; r++)
#pragma unroll
    for (int q = 0; q < 4; q++) next[r][q] = make_float2(0.f, 0.f);
  fetch(0);
  __syncthreads();
  for (int t = 0; t < longest; t++) {
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
      for (int q = 0; q < 4; q++) now[r][q] = next[r][q];
    fetch(t + 1);
    const half *before = h + t % 2 * (TILE * PAD);
    half *after = h + (t + 1) % 2 * (TILE * PAD);
    Sums<half> sums;
    sums.clear();
#pragma unroll
    for (int k = 0; k < KT; k++) sums.add(before + k * TILE, PAD, w[k]);
    sums.finish(scratch + warp * Scratch<half>::size);
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float hs[2];
      gates(sums.v, r, now[r], c[r], hs);
      store2(after + (g + r * 8) * PAD + u, hs[0], hs[1]);
      if (t < len[r]) store2(to[r], hs[0], hs[1]);
      to[r] += go * (2 * U);
    }
    __syncthreads(); // after is whole, and before may be overwritten
  }
}

// output: probs[window.out+l] = softmax([states; x]·weights + bias), one softmax
// over the first `classes` of the K columns and one over the rest. weights is
// [2U+E, K]. A lane computes a column of four lines, which share its weights;
// blockIdx.x is the window.
enum { outputWarps = 4, outputLines = 32, together = 4 };

// dots adds to sum[i] the product of row i, of n numbers, and a column.
template <class T>
__device__ __forceinline__ void dots(float (&sum)[together], const T *const (&row)[together], int n, const float *column, int K) {
  for (int j = 0; j < n; j += 8) {
    float a[together][8];
#pragma unroll
    for (int i = 0; i < together; i++) load8(a[i], row[i] + j);
#pragma unroll
    for (int e = 0; e < 8; e++) {
      const float w = column[(j + e) * K];
#pragma unroll
      for (int i = 0; i < together; i++) sum[i] += a[i][e] * w;
    }
  }
}

template <class T>
__device__ __forceinline__ void output(const T *states, const T *x, const Window *windows, const float *weights, const float *bias, float *probs, int U, int E, int K, int classes) {
  const Window w = windows[blockIdx.x];
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  const int end = min(w.len, (int)(blockIdx.y + 1) * outputLines);
  for (int first = blockIdx.y * outputLines + warp * together; first < end; first += outputWarps * together) {
    const T *s[together], *v[together];
#pragma unroll
    for (int i = 0; i < together; i++) {
      const int l = min(first + i, end - 1);
      s[i] = states + (size_t)(w.out + l) * 2 * U, v[i] = x + (size_t)(w.first + l) * E;
    }
    float *p = probs + (size_t)(w.out + first) * K;
    const int count = min((int)together, end - first);
    for (int k = lane; k < K; k += 32) {
      float sum[together];
#pragma unroll
      for (int i = 0; i < together; i++) sum[i] = bias[k];
      dots(sum, s, 2 * U, weights + k, K);
      dots(sum, v, E, weights + 2 * U * K + k, K);
#pragma unroll
      for (int i = 0; i < together; i++)
        if (i < count) p[i * K + k] = sum[i];
    }
    for (int i = 0; i < count; i++, p += K) {
      for (int from = 0, to = classes; from < K; from = to, to = K) { // a head
        float most = -3.402823466e38f, sum = 0.f;
        for (int k = lane; k < to; k += 32)
          if (k >= from) most = fmaxf(most, p[k]);
        for (int o = 16; o; o /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
        for (int k = lane; k < to; k += 32)
          if (k >= from) sum += p[k] = __expf(p[k] - most);
        for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
        for (int k = lane; k < to; k += 32)
          if (k >= from) p[k] /= sum;
      }
    }
  }
}

// The kernels by the names that card.go knows.
#define KERNELS(T)                                                                                                                     \
  extern "C" __global__ void lines_##T(const unsigned *ids, const unsigned *ends, const float *scale, const float *layout, int count,  \
                                       const char4 *table, const float *tableScale, const float *mean, const float *invStd,            \
                                       const float4 *layoutWeights, const float4 *bias, T *x, int D4, int layouts, int E) {            \
    lines<T>(ids, ends, scale, layout, count, table, tableScale, mean, invStd, layoutWeights, bias, x, D4, layouts, E);                \
  }                                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(projectWarps * 32)                                                                      \
      project_##T(const T *a, int rows, int kTiles, const T *weights, const float *bias, float *z, int tiles) {                        \
    project<T>(a, rows, kTiles, weights, bias, z, tiles);                                                                              \
  }                                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(stepWarps * 32)                                                                         \
      step_##T(const T *weights, const float *z, int byLine, const Window *windows, T *states, float *c, int t, int active, int count, \
               int U) {                                                                                                                \
    step<T>(weights, z, byLine, windows, states, c, t, active, count, U);                                                              \
  }                                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(outputWarps * 32)                                                                       \
      output_##T(const T *states, const T *x, const Window *windows, const float *weights, const float *bias, float *probs, int U,     \
                 int E, int K, int classes) {                                                                                          \
    output<T>(states, x, windows, weights, bias, probs, U, E, K, classes);                                                             \
  }
KERNELS(half)
KERNELS(float)

#define RESIDENT(KT)                                                                                                              \
  extern "C" __global__ void __launch_bounds__(KT * 64)                                                                           \
      resident_##KT(const half *weights, const float *z, int byLine, const Window *windows, half *states, int count) {            \
    resident<KT>(weights, z, byLine, windows, states, count);                                                                     \
  }
RESIDENT(1)
RESIDENT(2)
RESIDENT(3)
RESIDENT(4)
RESIDENT(5)
RESIDENT(6)
#if __CUDA_ARCH__ >= 800
RESIDENT(7)
RESIDENT(8)
#endif
