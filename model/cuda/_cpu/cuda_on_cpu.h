// CUDA C on the CPU, for tests: enough of the language that kernels.cu compiles
// as C++. A block runs on an OS thread and each of its CUDA threads is a fiber.
//
// It finds wrong indices, wrong fragment layouts, barriers that are missing or
// that not every thread reaches, reads of shared memory that nobody wrote (it
// begins as NaN) and copies that nobody waited for. It does not find every
// race, and it knows nothing of a GPU's rounding and speed.
//
// Fibers run from barrier to barrier one after the other, in turns from the
// first and from the last, so that a missing barrier shows whichever side of it
// comes first.
#pragma once
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

namespace emu {

struct Dim3 {
  unsigned x, y, z;
};

[[noreturn]] inline void die(const char *what) {
  fprintf(stderr, "cuda_on_cpu: %s\n", what);
  abort();
}

// A fiber's saved stack pointer; its registers lie on its stack.
#if !defined(__x86_64__)
#error "cuda_on_cpu.h switches fibers on x86-64 only"
#endif
extern "C" void emu_switch(void **save, void *to);
asm(R"(
.pushsection .text
.weak emu_switch
.type emu_switch,@function
emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.popsection
)");

enum State { RUN, AT_BARRIER, IN_WARP, DONE };

struct Fiber {
  void *sp = nullptr;
  State state = RUN;
  Dim3 thread;
  size_t shared = 0;                         // bytes of shared memory it has named so far
  using Copies = std::vector<std::pair<void *, const void *>>;
  std::vector<Copies> copies{Copies()}; // cp.async of 16 bytes, by group; the last is not committed yet
};

struct Warp {
  int size = 0, arrived = 0;
  const void *op = nullptr; // what the arrived do together
  void *arg[32];
};

constexpr size_t stackBytes = 64 << 10, sharedBytes = 48 << 10;

struct Block {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::vector<char> stacks, shared;
  void *scheduler = nullptr;
  int current = 0;
  Dim3 index, dim, grid;
  const std::function<void()> *body = nullptr;
};

inline thread_local Block *block = nullptr;

inline Fiber &self() { return block->fibers[block->current]; }
inline int lane() { return block->current & 31; }

inline void pause(State s) {
  Fiber &f = self();
  f.state = s;
  emu_switch(&f.sp, block->scheduler);
}

inline void entry() {
  (*block->body)();
  for (auto &group : self().copies)
    if (!group.empty()) die("a thread ended with copies that it never waited for");
  pause(DONE);
  die("a fiber ran on after its end");
}

// together runs op once all lanes of the warp have come, on the arguments of all of them.
inline void together(void *arg, void (*op)(void **arg, int lanes)) {
  Warp &w = block->warps[block->current / 32];
  if (w.arrived > 0 && w.op != (const void *)op) die("lanes of a warp do different things together");
  w.op = (const void *)op;
  w.arg[lane()] = arg;
  if (++w.arrived < w.size) return pause(IN_WARP);
  op(w.arg, w.size);
  w.arrived = 0;
  int first = block->current & ~31;
  for (int i = first; i < first + w.size; i++) block->fibers[i].state = RUN;
}

inline void run_block(Block &b) {
  int n = b.dim.x * b.dim.y * b.dim.z;
  b.fibers.assign(n, Fiber());
  b.warps.assign((n + 31) / 32, Warp());
  if (b.stacks.size() < n * stackBytes) b.stacks.resize(n * stackBytes);
  b.shared.assign(sharedBytes + 64, char(0xff)); // NaN as float and as half
  block = &b;
  for (int i = 0; i < n; i++) {
    Fiber &f = b.fibers[i];
    f.thread = {i % b.dim.x, i / b.dim.x % b.dim.y, i / (b.dim.x * b.dim.y)};
    uintptr_t top = (uintptr_t)(b.stacks.data() + (i + 1) * stackBytes) & ~(uintptr_t)15;
    void **sp = (void **)top;
    *--sp = nullptr;         // entry's return address: it never returns
    *--sp = (void *)entry;   // where emu_switch returns to
    for (int r = 0; r < 6; r++) *--sp = nullptr;
    f.sp = sp;
    b.warps[i / 32].size++;
  }
  for (bool forward = true;; forward = !forward) {
    bool ran = false;
    int done = 0, waiting = 0;
    for (int i = 0; i < n; i++) {
      b.current = forward ? i : n - 1 - i;
      if (b.fibers[b.current].state != RUN) continue;
      emu_switch(&b.scheduler, b.fibers[b.current].sp);
      ran = true;
    }
    for (Fiber &f : b.fibers) done += f.state == DONE, waiting += f.state == AT_BARRIER;
    if (done == n) break;
    if (waiting == n) {
      for (Fiber &f : b.fibers) f.state = RUN;
    } else if (!ran) {
      die("threads wait for threads that do not come: a barrier or a warp's work that not all of them reach");
    }
  }
  block = nullptr;
}

inline void launch(Dim3 grid, Dim3 dim, const std::function<void()> &body) {
  unsigned n = grid.x * grid.y * grid.z;
  if (n == 0 || dim.x * dim.y * dim.z == 0 || dim.x * dim.y * dim.z > 1024) die("a launch of no or too many threads");
  if (grid.y > 65535 || grid.z > 65535) die("a grid of more than 65,535 rows");
  static const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  std::atomic<unsigned> next{0};
  auto work = [&] {
    static thread_local Block b;
    for (unsigned i; (i = next++) < n;) {
      b.index = {i % grid.x, i / grid.x % grid.y, i / (grid.x * grid.y)};
      b.dim = dim, b.grid = grid, b.body = &body;
      run_block(b);
    }
  };
  if (n < 4) return work();
  std::vector<std::thread> others;
  for (unsigned i = 1; i < std::min(cores, n); i++) others.emplace_back(work);
  work();
  for (auto &t : others) t.join();
}

// shared is the memory that every thread of the block gets at this point of the kernel.
inline void *shared(size_t bytes) {
  Fiber &f = self();
  size_t at = f.shared;
  f.shared += (bytes + 15) & ~(size_t)15;
  if (f.shared > sharedBytes) die("more than 48 kB of shared memory");
  return (char *)(((uintptr_t)block->shared.data() + 63) & ~(uintptr_t)63) + at;
}

// Kernels by name; params are pointers to the arguments, as cuLaunchKernel takes them.
using Kernel = std::function<void(void **params, Dim3 grid, Dim3 dim)>;
inline std::map<std::string, Kernel> &kernels() {
  static std::map<std::string, Kernel> all;
  return all;
}

template <class... A, size_t... I>
Kernel by_params(void (*k)(A...), std::index_sequence<I...>) {
  return [k](void **params, Dim3 grid, Dim3 dim) {
    auto args = std::make_tuple(*(std::remove_const_t<A> *)params[I]...);
    launch(grid, dim, [&] { std::apply(k, args); });
  };
}

template <class... A> int add(const char *name, void (*k)(A...)) {
  kernels()[name] = by_params(k, std::index_sequence_for<A...>{});
  return 0;
}

} // namespace emu

#define threadIdx (emu::self().thread)
#define blockIdx (emu::block->index)
#define blockDim (emu::block->dim)
#define gridDim (emu::block->grid)

struct half {
  _Float16 v;
};
struct half2 {
  half x, y;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(4) char4 {
  signed char x, y, z, w;
};
struct int3 {
  int x, y, z;
};

inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline half __float2half_rn(float f) { return {(_Float16)f}; }
inline half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
inline float __expf(float x) { return expf(x); }
inline float __fdividef(float x, float y) { return x / y; }
using std::max;
using std::min;

inline void __syncthreads() { emu::pause(emu::AT_BARRIER); }
inline void __syncwarp() {
  emu::together(nullptr, [](void **, int) {});
}
inline float __shfl_xor_sync(unsigned mask, float v, int with) {
  struct Arg {
    float in, out;
    int with;
  } a{v, 0, with};
  if (mask != ~0u) emu::die("a shuffle of part of a warp");
  emu::together(&a, [](void **arg, int n) {
    if (n != 32) emu::die("a shuffle in a warp of fewer than 32 threads");
    for (int i = 0; i < n; i++) ((Arg *)arg[i])->out = ((Arg *)arg[i ^ ((Arg *)arg[i])->with])->in;
  });
  return a.out;
}

inline void copy16(void *to, const void *from) {
  if (((uintptr_t)to | (uintptr_t)from) & 15) emu::die("a copy of 16 bytes that is not aligned");
  emu::self().copies.back().push_back({to, from});
}
inline void copy16_commit() { emu::self().copies.emplace_back(); }
// All groups of copies but the last N are done after it; not sooner.
template <int N> void copy16_wait() {
  auto &groups = emu::self().copies;
  while (groups.size() > N + 1) {
    for (auto &c : groups.front()) memcpy(c.first, c.second, 16);
    groups.erase(groups.begin());
  }
}

// A table, because processors without F16C convert a half in a hundred steps.
inline float emu_half(half h) {
  static const std::vector<float> all = [] {
    std::vector<float> t(1 << 16);
    for (int i = 0; i < 1 << 16; i++) {
      uint16_t bits = i;
      half h;
      memcpy(&h, &bits, 2);
      t[i] = (float)h.v;
    }
    return t;
  }();
  uint16_t bits;
  memcpy(&bits, &h, 2);
  return all[bits];
}

inline float __half2float(half h) { return emu_half(h); }

struct __nv_bfloat16 {
  uint16_t bits;
};
inline __nv_bfloat16 __float2bfloat16_rn(float f) {
  uint32_t b;
  memcpy(&b, &f, 4);
  if (f != f) return {0x7fff};
  return {(uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16)}; // to nearest, ties to even
}
inline float emu_float(half h) { return emu_half(h); }
inline float emu_float(__nv_bfloat16 v) {
  uint32_t b = (uint32_t)v.bits << 16;
  float f;
  memcpy(&f, &b, 4);
  return f;
}

// Four 8x8 matrices of 16-bit numbers: lanes 8m to 8m+7 bring the rows of matrix m.
inline void ldmatrix_x4(unsigned (&r)[4], const void *row) {
  struct Arg {
    unsigned *out;
    const char *row;
  } a{r, (const char *)row};
  if ((uintptr_t)row & 15) emu::die("ldmatrix of a row that is not aligned");
  emu::together(&a, [](void **arg, int n) {
    if (n != 32) emu::die("ldmatrix in part of a warp");
    for (int l = 0; l < 32; l++)
      for (int m = 0; m < 4; m++) memcpy(&((Arg *)arg[l])->out[m], ((Arg *)arg[8 * m + l / 4])->row + l % 4 * 4, 4);
  });
}

// mma.sync.m16n8k16 of four column tiles at once, by the fragment layout of the PTX ISA.
inline void mma_f16_16x32x16(float (&c)[4][4], const unsigned (&a)[4], const unsigned (&b)[8]) {
  struct Arg {
    float (*c)[4];
    const half *a, *b; // two in each word
  } me{c, (const half *)a, (const half *)b};
  emu::together(&me, [](void **arg, int n) {
    if (n != 32) emu::die("mma in part of a warp");
    float A[16][16], B[16][32], C[16][32];
    for (int l = 0; l < 32; l++) {
      Arg *x = (Arg *)arg[l];
      int g = l / 4, t = l % 4;
      for (int i = 0; i < 4; i++)
        for (int e = 0; e < 2; e++) A[g + i % 2 * 8][2 * t + e + i / 2 * 8] = emu_half(x->a[2 * i + e]);
      for (int q = 0; q < 4; q++) {
        for (int i = 0; i < 2; i++)
          for (int e = 0; e < 2; e++) B[2 * t + e + i * 8][q * 8 + g] = emu_half(x->b[4 * q + 2 * i + e]);
        for (int i = 0; i < 4; i++) C[g + i / 2 * 8][q * 8 + 2 * t + i % 2] = x->c[q][i];
      }
    }
    for (int r = 0; r < 16; r++)
      for (int k = 0; k < 16; k++)
        for (int j = 0; j < 32; j++) C[r][j] += A[r][k] * B[k][j];
    for (int l = 0; l < 32; l++)
      for (int q = 0; q < 4; q++)
        for (int i = 0; i < 4; i++) ((Arg *)arg[l])->c[q][i] = C[l / 4 + i / 2 * 8][q * 8 + l % 4 * 2 + i % 2];
  });
}

// wmma of 16x16x16 halves or bfloat16 with float sums. Which lane holds what is not the GPU's
// order, which no kernel may rely on.
namespace nvcuda {
namespace wmma {
struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
enum layout_t { mem_row_major };
template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment {
  static_assert(M == 16 && N == 16 && K == 16, "16x16x16 only");
  using type = T;
  T x[8];
};
template <class F, class V> void fill_fragment(F &f, V v) {
  for (auto &e : f.x) e = v;
}
template <class F, class T> void load_matrix_sync(F &f, const T *p, unsigned ld) {
  if ((uintptr_t)p & 31 || ld * sizeof(T) % 16) emu::die("wmma load of a matrix that is not aligned");
  for (int i = 0; i < 8; i++) f.x[i] = p[emu::lane() / 2 * ld + emu::lane() % 2 * 8 + i];
  __syncwarp();
}
template <class F, class T> void store_matrix_sync(T *p, const F &f, unsigned ld, layout_t) {
  if ((uintptr_t)p & 31 || ld * sizeof(T) % 16) emu::die("wmma store of a matrix that is not aligned");
  for (int i = 0; i < 8; i++) p[emu::lane() / 2 * ld + emu::lane() % 2 * 8 + i] = f.x[i];
  __syncwarp();
}
template <class Sum, class Left, class Right> void mma_sync(Sum &d, const Left &a, const Right &b, const Sum &c) {
  struct Arg {
    float *d;
    const typename Left::type *a;
    const typename Right::type *b;
    const float *c;
  } me{d.x, a.x, b.x, c.x};
  emu::together(&me, [](void **arg, int n) {
    if (n != 32) emu::die("wmma in part of a warp");
    float B[16][16], out[16][16];
    auto at = [&](int i) { return (Arg *)arg[i]; };
    for (int l = 0; l < 32; l++)
      for (int i = 0; i < 8; i++) B[l / 2][l % 2 * 8 + i] = emu_float(at(l)->b[i]), out[l / 2][l % 2 * 8 + i] = at(l)->c[i];
    for (int r = 0; r < 16; r++)
      for (int k = 0; k < 16; k++) {
        float v = emu_float(at(2 * r + k / 8)->a[k % 8]);
        for (int j = 0; j < 16; j++) out[r][j] += v * B[k][j];
      }
    for (int l = 0; l < 32; l++)
      for (int i = 0; i < 8; i++) at(l)->d[i] = out[l / 2][l % 2 * 8 + i];
  });
}
} // namespace wmma
} // namespace nvcuda

#define SHARED(type, name, n) type *name = (type *)emu::shared((n) * sizeof(type))
