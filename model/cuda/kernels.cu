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

// addRow adds to sum s times the 16 numbers of row. A byte becomes the lowest bits
// of a float of 2²³ and more, from which that is subtracted: no conversion is as fast.
__device__ __forceinline__ void addRow(float (&sum)[16], float s, uint4 row) {
  const unsigned words[4] = {row.x ^ 0x80808080, row.y ^ 0x80808080, row.z ^ 0x80808080, row.w ^ 0x80808080}; // 128 more
#pragma unroll
  for (int i = 0; i < 16; i++) sum[i] += s * (__uint_as_float(__byte_perm(words[i / 4], 0x4b000000, 0x7440 + i % 4)) - (8388608.f + 128.f));
}

// lines: x[l] = tanh(Σ_g scale[l][g] · Σ_id tableScale[id]·table[id] + clip((layout[l] − mean)·invStd, ±6)·layoutWeights + bias).
// ends[l][g] is the end in ids of group g of line l. x is [lines, E], table
// [rows, E], layoutWeights [layouts, 4, E/16, 4] and bias [4, E/16, 4]: of 16
// columns the first four, then the next. A thread computes 16 columns of two lines,
// which share the weights.
template <class T>
__device__ __forceinline__ void lines(const unsigned *ids, const unsigned *ends, const float *scale, const float *layout, int count,
                                      const uint4 *table, const float *tableScale, const float *mean, const float *invStd,
                                      const float4 *layoutWeights, const float4 *bias, T *x, int layouts, int E) {
  const int parts = E / 16;
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const int first = i / parts * 2, part = i % parts;
  if (first >= count) return;
  const int line[2] = {first, min(first + 1, count - 1)};
  float sum[2][16];
#pragma unroll
  for (int q = 0; q < 4; q++) {
    const float4 b = bias[q * parts + part];
#pragma unroll
    for (int r = 0; r < 2; r++) sum[r][4 * q] = b.x, sum[r][4 * q + 1] = b.y, sum[r][4 * q + 2] = b.z, sum[r][4 * q + 3] = b.w;
  }
  for (int j = 0; j < layouts; j++) {
    float v[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      v[r] = (layout[(size_t)line[r] * layouts + j] - mean[j]) * invStd[j];
      v[r] = v[r] > 6.f ? 6.f : v[r] < -6.f ? -6.f : v[r];
    }
#pragma unroll
    for (int q = 0; q < 4; q++) {
      const float4 w = layoutWeights[(j * 4 + q) * parts + part];
#pragma unroll
      for (int r = 0; r < 2; r++) sum[r][4 * q] += v[r] * w.x, sum[r][4 * q + 1] += v[r] * w.y, sum[r][4 * q + 2] += v[r] * w.z, sum[r][4 * q + 3] += v[r] * w.w;
    }
  }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int l = line[r];
    unsigned id = l ? ends[l * 4 - 1] : 0;
    for (int g = 0; g < 4; g++) {
      const unsigned end = ends[l * 4 + g];
      const float of = scale[l * 4 + g];
#pragma unroll 4
      for (; id < end; id++) addRow(sum[r], of * tableScale[ids[id]], table[(size_t)ids[id] * parts + part]);
    }
    if (first + r < count) {
#pragma unroll
      for (int i = 0; i < 16; i++) sum[r][i] = tangent(sum[r][i]);
      store8(x + (size_t)l * E + part * 16, sum[r]);
      store8(x + (size_t)l * E + part * 16 + 8, sum[r] + 8);
    }
  }
}

// product adds to a warp's sums[m] the product of MT tiles of rows of `from` and of
// its tile of columns. The block's warps stand DOWN by ACROSS: the rows are those
// of all warps across, the columns those of all warps down. Row r of the block is row
// row(r) of `from`, which has ld numbers a row, or zeros where that is negative.
// weights are kTiles·PARTS blocks a tile of columns, of which there are `tiles`: the
// weights are the sum of PARTS parts. Both factors come through shared memory, the
// next chunk while one is multiplied. All threads of the block come here; `live` is
// how many of the tiles of rows there are.
template <class T, int MT, int DOWN, int ACROSS, int PARTS = 1> struct Shape {
  enum {
    rows = DOWN * MT * TILE,
    threads = DOWN * ACROSS * 32,
    chunk = 64 / sizeof(T), // numbers of a row in shared memory at a time
    pad = chunk + Skew<T>::size,
    blocks = chunk / TILE * PARTS, // of a tile of columns
    weights = rows * pad,          // where they begin
    size = weights + ACROSS * blocks * BLOCK,
    stage = 2 * size,
  };
  static_assert(stage * sizeof(T) >= DOWN * ACROSS * Scratch<T>::size * 4, "scratch is where the chunks were");
};

template <class T, int MT, int DOWN, int ACROSS, int PARTS = 1, class Row>
__device__ __forceinline__ void product(Sums<T> (&sums)[MT], T *stage, Row row, const T *from, int ld, const T *weights, int kTiles, int tiles, int live) {
  using S = Shape<T, MT, DOWN, ACROSS, PARTS>;
  constexpr int vec = 16 / sizeof(T), vecs = S::chunk / vec, blockVecs = S::blocks * BLOCK / vec;
  const int warp = threadIdx.x / 32, down = warp / ACROSS * MT, across = warp % ACROSS;
  const int chunks = (kTiles * TILE + S::chunk - 1) / S::chunk;
  auto fetch = [&](int chunk) {
    T *to = stage + chunk % 2 * S::size;
#pragma unroll
    for (int i = threadIdx.x; i < S::rows * vecs; i += S::threads) {
      const int r = i / vecs, v = i % vecs * vec, k = chunk * S::chunk + v;
      if (r >= live * TILE || k >= kTiles * TILE) continue;
      const int at = row(r);
      if (at >= 0)
        copy16(to + r * S::pad + v, from + (size_t)at * ld + k);
      else
        *(uint4 *)(to + r * S::pad + v) = uint4{0, 0, 0, 0};
    }
    to += S::weights;
#pragma unroll
    for (int i = threadIdx.x; i < ACROSS * blockVecs; i += S::threads) {
      const int tile = min(i / blockVecs, tiles - 1), at = chunk * S::blocks * BLOCK + i % blockVecs * vec;
      if (at < kTiles * PARTS * BLOCK) copy16(to + i * vec, weights + (size_t)tile * kTiles * PARTS * BLOCK + at);
    }
    copy16_commit();
  };
  __syncthreads(); // row may read what others wrote, and nobody reads the stage any more
  fetch(0);
  for (int chunk = 0; chunk < chunks; chunk++) {
    if (chunk + 1 < chunks)
      fetch(chunk + 1);
    else
      copy16_commit();
    copy16_wait<1>();
    __syncthreads();
    const T *a = stage + chunk % 2 * S::size, *b = a + S::weights + across * S::blocks * BLOCK;
    const int blocks = min((int)S::blocks, kTiles * PARTS - chunk * S::blocks);
#pragma unroll
    for (int k = 0; k < S::blocks; k++) {
      if (k >= blocks) break;
      Weights<T> w;
      w.load(b + k * BLOCK);
#pragma unroll
      for (int m = 0; m < MT; m++)
        if (down + m < live) sums[m].add(a + (down + m) * TILE * S::pad + k / PARTS * TILE, S::pad, w);
    }
    __syncthreads();
  }
}

// project: z = a·weights + bias. a is [rows, kTiles·16], z is [rows, tiles, 4 pairs
// of units, 4 gates, 2 units]: the tiles of the forward direction, then those of the
// backward one. bias is [tiles, 4, 4, 2]. A block computes 128 rows of 4 tiles; the
// blocks of the same rows follow each other, which then come from the cache.
enum { projectMT = 4, projectDown = 2, projectAcross = 4 };

template <class T>
__device__ __forceinline__ void project(const T *a, int rows, int kTiles, const T *weights, const float *bias, T *z, int tiles) {
  using S = Shape<T, projectMT, projectDown, projectAcross>;
  SHARED(T, stage, S::stage);
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, g = lane / 4, t = lane & 3;
  const int across = (tiles + projectAcross - 1) / projectAcross;
  const int first = blockIdx.x / across * S::rows, firstTile = blockIdx.x % across * projectAcross;
  const int tile = firstTile + warp % projectAcross, down = warp / projectAcross * projectMT;
  const int live = min((int)(S::rows / TILE), (rows - first + TILE - 1) / TILE);
  Sums<T> sums[projectMT];
#pragma unroll
  for (int m = 0; m < projectMT; m++) sums[m].clear();
  product<T, projectMT, projectDown, projectAcross>(
      sums, stage, [&](int r) { return first + r < rows ? first + r : -1; }, a, kTiles * TILE, weights + (size_t)firstTile * kTiles * BLOCK, kTiles, tiles - firstTile, live);
  if (tile >= tiles) return;
  float b[8];
  load8(b, bias + tile * COLS + t * 8);
#pragma unroll
  for (int m = 0; m < projectMT; m++) {
    if (down + m >= live) break;
    sums[m].finish((float *)stage + warp * Scratch<T>::size);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = first + (down + m) * TILE + g + half * 8;
      if (row >= rows) continue;
      float v[8];
#pragma unroll
      for (int q = 0; q < 4; q++) v[2 * q] = sums[m].v[q][2 * half] + b[2 * q], v[2 * q + 1] = sums[m].v[q][2 * half + 1] + b[2 * q + 1];
      store8(z + ((size_t)row * tiles + tile) * COLS + t * 8, v);
    }
  }
}

// Gate<T> has the activations of a gate: those of halves cost one instruction each
// where the device has it, and are as exact as halves are.
template <class T> struct Gate {
  static __device__ __forceinline__ float sigmoid(float x) { return ::sigmoid(x); }
  static __device__ __forceinline__ float tangent(float x) { return ::tangent(x); }
};
#if __CUDA_ARCH__ >= 800
template <> struct Gate<half> {
  static __device__ __forceinline__ float sigmoid(float x) { return 0.5f * tangent(0.5f * x) + 0.5f; }
  static __device__ __forceinline__ float tangent(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
};
#endif

// gates is one step of two neighbouring units of a row: c and h from the sums
// of h·RecurrentWeights and z, which is [4 gates, 2 units].
template <class T>
__device__ __forceinline__ void gates(const float (&v)[4][4], int half, const float (&z)[8], float (&c)[2], float (&h)[2]) {
  using G = Gate<T>;
#pragma unroll
  for (int e = 0; e < 2; e++) {
    const int i = 2 * half + e;
    const float in = G::sigmoid(v[0][i] + z[e]), forget = G::sigmoid(v[1][i] + z[2 + e]);
    const float cell = G::tangent(v[2][i] + z[4 + e]), out = G::sigmoid(v[3][i] + z[6 + e]);
    c[e] = fmaf(forget, c[e], in * cell); // in no kernel the other way round
    h[e] = out * G::tangent(c[e]);
  }
}

// line is the t-th line that the direction reads of a window.
__device__ __forceinline__ int line(int len, int t, int backward) { return backward ? len - 1 - t : t; }

// step: step t of both directions (blockIdx.z) of the first `active` windows,
// those that have one. z is [rows, 2, U/8, 4, 4, 2]; its rows are those of x in the
// first layer (byLine) and of states in others. states is [steps, 2, U], c
// [2, windows, U]. A block computes 32 windows of 4 tiles, or 128 (steps) where that
// leaves enough blocks for the device: the weights are then read less often.
enum { stepMT = 2, stepDown = 1, stepsMT = 4, stepsDown = 2, stepAcross = 4 };

template <class T, int MT, int DOWN>
__device__ __forceinline__ void step(const T *weights, const T *z, int byLine, const Window *windows, T *states, float *c, int t, int active, int count, int U) {
  using S = Shape<T, MT, DOWN, stepAcross>;
  SHARED(T, stage, S::stage);
  SHARED(int, at, S::rows);
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, g = lane / 4, u = (lane & 3) * 2;
  const int tiles = U / UNITS, kTiles = U / TILE, backward = blockIdx.z;
  const int first = blockIdx.y * S::rows, firstTile = blockIdx.x * stepAcross;
  const int mine = firstTile + warp % stepAcross, down = warp / stepAcross * MT;
  const int live = min((int)(S::rows / TILE), (active - first + TILE - 1) / TILE);
  Sums<T> sums[MT];
#pragma unroll
  for (int m = 0; m < MT; m++) sums[m].clear();
  if (t > 0) {
    for (int i = threadIdx.x; i < S::rows; i += S::threads) {
      at[i] = -1;
      if (first + i < active) at[i] = windows[first + i].out + line(windows[first + i].len, t - 1, backward);
    }
    product<T, MT, DOWN, stepAcross>(
        sums, stage, [&](int r) { return at[r]; }, states + backward * U, 2 * U, weights + (size_t)(backward * tiles + firstTile) * kTiles * BLOCK, kTiles, tiles - firstTile, live);
  }
  if (mine >= tiles) return;
#pragma unroll
  for (int m = 0; m < MT; m++) {
    if (down + m >= live) break;
    sums[m].finish((float *)stage + warp * Scratch<T>::size);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int i = first + (down + m) * TILE + g + half * 8;
      if (i >= active) continue;
      const Window w = windows[i];
      const int l = line(w.len, t, backward);
      float zs[8];
      load8(zs, z + ((size_t)((byLine ? w.first : w.out) + l) * 2 * tiles + backward * tiles + mine) * COLS + u * 4);
      float2 *cell = (float2 *)(c + ((size_t)backward * count + i) * U + mine * UNITS + u);
      float cs[2] = {0.f, 0.f}, hs[2];
      if (t > 0) cs[0] = cell->x, cs[1] = cell->y;
      gates<T>(sums[m].v, half, zs, cs, hs);
      *cell = make_float2(cs[0], cs[1]);
      store2(states + ((size_t)(w.out + l) * 2 + backward) * U + mine * UNITS + u, hs[0], hs[1]);
    }
  }
}

// resident: all steps of 16·MT windows in one direction (blockIdx.y), with the
// recurrent weights in registers: a warp holds its tile's KT = U/16 blocks, and
// there are U/8 warps. Arguments are those of step. With MT = 2 a warp has work
// while it waits for the other tile, with 1 there are more blocks for the device.
template <int KT, int MT>
__device__ __forceinline__ void resident(const half *weights, const half *z, int byLine, const Window *windows, half *states, int count) {
  constexpr int U = KT * TILE, tiles = U / UNITS, PAD = U + Skew<half>::size, rows = MT * TILE;
  SHARED(half, h, 2 * rows * PAD);
  SHARED(float, scratch, tiles * Scratch<half>::size + 8);
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, g = lane / 4, u = warp * UNITS + (lane & 3) * 2;
  const int backward = blockIdx.y, first = blockIdx.x * rows;
  Weights<half> w[KT];
#pragma unroll
  for (int k = 0; k < KT; k++) w[k].load(weights + (size_t)((backward * tiles + warp) * KT + k) * BLOCK);
  for (int i = threadIdx.x; i < rows * PAD; i += blockDim.x) h[i] = __float2half_rn(0.f);

  // The rows g, g+8, …: which rows of z and of states are theirs at a step, and how long they are.
  z += (size_t)(backward * tiles + warp) * COLS + (lane & 3) * 8;
  states += backward * U + u;
  int from[2 * MT], to[2 * MT], len[2 * MT];
  const int longest = windows[first].len, go = backward ? -1 : 1;
#pragma unroll
  for (int r = 0; r < 2 * MT; r++) {
    const int i = first + g + r * 8;
    const Window window = windows[min(i, count - 1)];
    len[r] = i < count ? window.len : 0;
    to[r] = window.out + line(window.len, 0, backward);
    from[r] = (byLine ? window.first : window.out) + line(window.len, 0, backward);
  }
  float c[2 * MT][2] = {};
  uint4 now[2 * MT], next[2 * MT] = {}; // eight halves
  auto fetch = [&](int t) {             // z of step t, early enough that nobody waits for it
#pragma unroll
    for (int r = 0; r < 2 * MT; r++)
      if (t < len[r]) next[r] = *(const uint4 *)(z + (size_t)(from[r] + go * t) * (2 * tiles * COLS));
  };
  fetch(0);
  __syncthreads();
  for (int t = 0; t < longest; t++) {
#pragma unroll
    for (int r = 0; r < 2 * MT; r++) now[r] = next[r];
    fetch(t + 1);
    const half *before = h + t % 2 * (rows * PAD);
    half *after = h + (t + 1) % 2 * (rows * PAD);
#pragma unroll
    for (int m = 0; m < MT; m++) {
      Sums<half> sums;
      sums.clear();
#pragma unroll
      for (int k = 0; k < KT; k++) sums.add(before + m * TILE * PAD + k * TILE, PAD, w[k]);
      sums.finish(scratch + warp * Scratch<half>::size);
#pragma unroll
      for (int half_ = 0; half_ < 2; half_++) {
        const int r = 2 * m + half_;
        float zs[8], hs[2];
        load8(zs, (const half *)&now[r]);
        gates<half>(sums.v, half_, zs, c[r], hs);
        store2(after + (g + r * 8) * PAD + u, hs[0], hs[1]);
        if (t < len[r]) store2(states + (size_t)(to[r] + go * t) * (2 * U), hs[0], hs[1]);
      }
    }
    __syncthreads(); // after is whole, and before may be overwritten
  }
}

// output: probs[window.out+l] = softmax([states; x]·weights + bias), one softmax
// over the first `classes` of the K columns and one over the rest. blockIdx.x is the
// window; a warp computes 16 of its lines, 32 columns at a time. Weights in halves are
// two parts, a half and what it is short of the weight: no digit of them is lost. The
// rest begins at a multiple of 8 columns, so that the lanes add it up in one order,
// whatever stands before it.
enum { outputDown = 4 };
template <class T> struct Parts { enum { size = 1 }; };
template <> struct Parts<half> { enum { size = 2 }; };

template <class T>
__device__ __forceinline__ void output(const T *states, const T *x, const Window *windows, const T *weights, const float *bias, float *probs, int U, int E, int K, int classes) {
  constexpr int PARTS = Parts<T>::size;
  using S = Shape<T, 1, outputDown, 1, PARTS>;
  SHARED(T, stage, S::stage);
  const Window w = windows[blockIdx.x];
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, g = lane / 4, t = lane & 3;
  const int first = blockIdx.y * S::rows;
  if (first >= w.len) return;
  const int live = min((int)(S::rows / TILE), (w.len - first + TILE - 1) / TILE);
  const int gap = K > classes ? (UNITS - classes % UNITS) % UNITS : 0;
  const int kTiles = (2 * U + E) / TILE, tiles = (K + gap + COLS - 1) / COLS;
  // number is which of the K numbers a column has, or K.
  auto number = [=](int column) { return column < classes ? column : column < classes + gap ? K : min(column - gap, K); };
  float *p = probs + (size_t)(w.out + first + warp * TILE) * K;
  const int mine = w.len - first - warp * TILE; // lines of the warp's, and more

  Sums<T> sums[1];
  auto &v = sums[0].v;
  // Where there is more than one tile of columns its numbers wait in probs.
  // each calls f with all numbers of the thread: which of its two lines, column, number.
  auto each = [&](auto f) {
    for (int tile = 0; tile < tiles; tile++)
#pragma unroll
      for (int q = 0; q < 4; q++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int l = g + i / 2 * 8, k = number(tile * COLS + q * UNITS + 2 * t + i % 2);
          if (k >= K || l >= mine) continue;
          if (tiles > 1) v[q][i] = p[l * K + k];
          f(i / 2, k, v[q][i]);
          if (tiles > 1) p[l * K + k] = v[q][i];
        }
  };
  for (int tile = 0; tile < tiles; tile++) {
    sums[0].clear();
    const T *of = weights + (size_t)tile * kTiles * PARTS * BLOCK;
    auto from = [&](int begin) { return [=](int r) { return first + r < w.len ? begin + first + r : -1; }; };
    product<T, 1, outputDown, 1, PARTS>(sums, stage, from(w.out), states, 2 * U, of, 2 * U / TILE, 1, live);
    product<T, 1, outputDown, 1, PARTS>(sums, stage, from(w.first), x, E, of + 2 * U / TILE * PARTS * BLOCK, E / TILE, 1, live);
    if (warp >= live) continue;
    sums[0].finish((float *)stage + warp * Scratch<T>::size);
#pragma unroll
    for (int q = 0; q < 4; q++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int l = g + i / 2 * 8, k = number(tile * COLS + q * UNITS + 2 * t + i % 2);
        if (k >= K || l >= mine) continue;
        v[q][i] += bias[k];
        if (tiles > 1) p[l * K + k] = v[q][i];
      }
  }
  if (warp >= live) return;
  // The four lanes of a line have its columns.
  float most[2][2], sum[2][2] = {{0.f, 0.f}, {0.f, 0.f}}; // of a line, of a head
#pragma unroll
  for (int r = 0; r < 2; r++) most[r][0] = most[r][1] = -3.402823466e38f;
  each([&](int r, int k, float &v) {
    if (k < classes) most[r][0] = fmaxf(most[r][0], v);
    else most[r][1] = fmaxf(most[r][1], v);
  });
  auto across = [&](float (&of)[2][2], auto f) {
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int o = 1; o < 4; o *= 2) of[i / 2][i % 2] = f(of[i / 2][i % 2], __shfl_xor_sync(~0u, of[i / 2][i % 2], o));
  };
  across(most, [](float a, float b) { return fmaxf(a, b); });
  each([&](int r, int k, float &v) {
    v = __expf(v - (k < classes ? most[r][0] : most[r][1]));
    if (k < classes) sum[r][0] += v;
    else sum[r][1] += v;
  });
  across(sum, [](float a, float b) { return a + b; });
#pragma unroll
  for (int r = 0; r < 2; r++) sum[r][0] = 1.f / sum[r][0], sum[r][1] = 1.f / sum[r][1];
  each([&](int r, int k, float &v) { p[(g + r * 8) * K + k] = v *= k < classes ? sum[r][0] : sum[r][1]; });
}

// The kernels by the names that card.go knows.
#define KERNELS(T)                                                                                                                         \
  extern "C" __global__ void lines_##T(const unsigned *ids, const unsigned *ends, const float *scale, const float *layout, int count,      \
                                       const uint4 *table, const float *tableScale, const float *mean, const float *invStd,                \
                                       const float4 *layoutWeights, const float4 *bias, T *x, int layouts, int E) {                        \
    lines<T>(ids, ends, scale, layout, count, table, tableScale, mean, invStd, layoutWeights, bias, x, layouts, E);                        \
  }                                                                                                                                        \
  extern "C" __global__ void __launch_bounds__(projectDown *projectAcross * 32, 2)                                                         \
      project_##T(const T *a, int rows, int kTiles, const T *weights, const float *bias, T *z, int tiles) {                                \
    project<T>(a, rows, kTiles, weights, bias, z, tiles);                                                                                  \
  }                                                                                                                                        \
  extern "C" __global__ void __launch_bounds__(stepDown *stepAcross * 32)                                                                  \
      step_##T(const T *weights, const T *z, int byLine, const Window *windows, T *states, float *c, int t, int active, int count, int U) { \
    step<T, stepMT, stepDown>(weights, z, byLine, windows, states, c, t, active, count, U);                                                \
  }                                                                                                                                        \
  extern "C" __global__ void __launch_bounds__(stepsDown *stepAcross * 32, 2)                                                              \
      steps_##T(const T *weights, const T *z, int byLine, const Window *windows, T *states, float *c, int t, int active, int count, int U) { \
    step<T, stepsMT, stepsDown>(weights, z, byLine, windows, states, c, t, active, count, U);                                              \
  }                                                                                                                                        \
  extern "C" __global__ void __launch_bounds__(outputDown * 32)                                                                            \
      output_##T(const T *states, const T *x, const Window *windows, const T *weights, const float *bias, float *probs, int U,             \
                 int E, int K, int classes) {                                                                                              \
    output<T>(states, x, windows, weights, bias, probs, U, E, K, classes);                                                                 \
  }
KERNELS(half)
KERNELS(float)

#define RESIDENT(KT, MT)                                                                                                          \
  extern "C" __global__ void __launch_bounds__(KT * 64)                                                                           \
      resident_##KT##_##MT(const half *weights, const half *z, int byLine, const Window *windows, half *states, int count) {      \
    resident<KT, MT>(weights, z, byLine, windows, states, count);                                                                 \
  }
RESIDENT(1, 1)
RESIDENT(2, 1)
RESIDENT(3, 1)
RESIDENT(4, 1)
RESIDENT(5, 1)
RESIDENT(6, 1)
#if __CUDA_ARCH__ >= 800
RESIDENT(7, 1)
RESIDENT(8, 1)
RESIDENT(1, 2)
RESIDENT(2, 2)
RESIDENT(3, 2)
RESIDENT(4, 2)
RESIDENT(5, 2)
RESIDENT(6, 2)
RESIDENT(7, 2)
RESIDENT(8, 2)
#endif
