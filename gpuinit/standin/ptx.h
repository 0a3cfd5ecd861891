// A GPU's block of threads on the CPU, for kernels that ptx.py made of PTX: a
// block runs on an OS thread and each of its CUDA threads is a fiber.
//
// What it looks for, as compute-sanitizer does on a card, and ends the process
// over with one line that names the kernel and the line of the PTX:
//
//   memory    outside of an allocation or of the kernel's shared memory, or not
//             aligned to its size
//   races     two threads, one of which writes, at the same shared memory without
//             a barrier between them (bar.sync, or bar.warp.sync in a warp), or at
//             the same global memory in one launch
//   barriers  that not all threads reach; barriers and a warp's work that its lanes
//             do not all reach in the same place (.aligned)
//   copies    (cp.async) that nobody waited for; what they bring is not there sooner
//
// Shared memory begins as NaN. This header knows nothing of a GPU's speed, of how its
// tensor cores round sums, and of orders between lanes other than that fibers run
// from one barrier or warp's work to the next, in turns from the first and from
// the last. The races it finds do not depend on the order. It is stricter than a GPU
// with threads that write neighbouring bytes (or halves of global memory), with global
// memory that only bar.warp.sync orders, and with two uses of global memory that
// exactly 1024 barriers, or a multiple, lie between.
#pragma once
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "range.h"

#if !defined(__x86_64__)
#error "ptx.h switches fibers on x86-64 only"
#endif
extern "C" void ptx_switch(void **save, void *to);
asm(R"(
.pushsection .text
.weak ptx_switch
.type ptx_switch,@function
ptx_switch:
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

namespace { // a library's own, for programs open several
namespace ptx {

struct Thread;
struct Kernel {
  void (*run)(Thread &, void **params);
  unsigned shared, most; // bytes of shared memory, threads that a block may have
  const char *file;
  const char *name = nullptr;
};
inline std::map<std::string, Kernel> &kernels() {
  static std::map<std::string, Kernel> all;
  return all;
}
inline bool add(const char *name, Kernel k) {
  k.name = name;
  return kernels().emplace(name, k).second;
}

// Conversions and arithmetic

// as is a register's bits as another type, or an integer in another width.
template <class To, class From> inline To as(From v) {
  if constexpr (std::is_same_v<To, float> != std::is_same_v<From, float>) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &v, sizeof to);
    return to;
  } else {
    return (To)v;
  }
}
template <class T> inline T param(const void *p) {
  T v;
  memcpy(&v, p, sizeof v);
  return v;
}
// Shifts beyond the width shift everything out.
template <class T> inline T shl(T v, unsigned n) { return n >= 8 * sizeof v ? 0 : (T)(v << n); }
template <class T> inline T shr(T v, unsigned n) { return n < 8 * sizeof v ? (T)(v >> n) : v < 0 ? (T)-1 : 0; }
inline uint32_t bfi(uint32_t bits, uint32_t into, uint32_t at, uint32_t n) {
  at &= 255, n &= 255;
  uint32_t mask = shl(n > 31 ? ~0u : (1u << n) - 1, at);
  return into & ~mask | shl(bits, at) & mask;
}
inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t select) { // bytes of b:a, or their signs
  uint64_t from = (uint64_t)b << 32 | a;
  uint32_t to = 0;
  for (int i = 0; i < 4; i++, select >>= 4) {
    uint32_t byte = from >> (select & 7) * 8 & 255;
    to |= (select & 8 ? byte >> 7 ? 255 : 0 : byte) << 8 * i;
  }
  return to;
}
inline float fma_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float fma_rm(float a, float b, float c) { // towards minus infinity
  float r = fmaf(a, b, c);
  return (__float128)r > (__float128)a * b + c ? nextafterf(r, -INFINITY) : r;
}
inline float div_rn(float a, float b) { return a / b; }
inline float div_approx(float a, float b) { // 0 where 1/b is no normal number
  return fabsf(b) > 0x1p126f && fabsf(b) < INFINITY ? a * copysignf(0.f, b) : a / b;
}
// tanh_approx errs by up to 2⁻¹¹ of the value, the most that the ISA allows.
inline float tanh_approx(float v) { return v != v ? v : as<float>(as<uint32_t>(tanhf(v)) + (1u << 12) & ~((1u << 13) - 1)); }
inline float ftz(float v) { return fabsf(v) < 1.17549435e-38f ? copysignf(0.f, v) : v; }
inline uint16_t to_f16(float f) {
  return _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT);
}
inline float of_f16(uint16_t bits) {
  return _cvtsh_ss(bits);
}
inline uint16_t to_bf16(float f) { // to nearest, ties to even
  uint32_t b = as<uint32_t>(f);
  return f != f ? 0x7fff : (b + 0x7fff + (b >> 16 & 1)) >> 16;
}
inline float of_bf16(uint16_t bits) { return as<float>((uint32_t)bits << 16); }

// Where shared memory lies among generic addresses; global memory is where it is.
constexpr uint64_t window = 1ull << 60;
inline uint64_t generic(uint64_t address) { return address + window; }

// Threads

struct Dim3 {
  unsigned x, y, z;
};
enum State { RUN, AT_BARRIER, IN_WARP, DONE };

// Touch is who touched two bytes of shared memory last: a thread (several: -1),
// of a warp (several: -1), after how many barriers of the block and of its warp.
struct Touch {
  int16_t thread = -1, warp = -1;
  unsigned barriers = ~0u, warpBarriers = 0;
};
struct Cell {
  Touch written, read;
  bool copying = false; // a cp.async that nobody waited for
};
struct Warp {
  int size = 0, arrived = 0;
  unsigned barriers = 0;
  int line = 0; // of what the arrived do together
  void *arg[32];
};
struct Block;

struct Thread {
  Dim3 tid, ntid, ctaid, nctaid;
  Block *block;
  int index, lane;
  void *sp = nullptr; // a fiber's saved stack pointer; its registers lie on its stack
  State state = RUN;
  int at = 0; // the line of the barrier where it stands
  struct Copy {
    uint64_t to, from;
    int line;
  };
  std::vector<std::vector<Copy>> copies{{}}; // by group; the last is not committed yet

  [[noreturn]] void die(int line, const char *what) const;
  void pause(State s);
  void barrier(int line) {
    at = line;
    pause(AT_BARRIER);
  }
  void warp_barrier(int line, uint32_t mask);
  void together(int line, void *arg, void (*op)(void **arg));
  template <class A> void together(int line, A &arg, void (*op)(void **)) { together(line, (void *)&arg, op); }

  // Memory. An address must be a multiple of what is read or written at once.
  char *in_global(int line, uint64_t address, unsigned size, bool write);
  // `together` is for what a warp reads or writes together: any lane may be who does.
  char *in_shared(int line, uint64_t address, unsigned size, bool write, bool together = false);
  void touch(int line, Cell &c, bool write, bool together);
  template <class T, int N> std::array<T, N> load_global(int line, uint64_t address) { return load<T, N>(in_global(line, address, N * sizeof(T), false)); }
  template <class T, int N> std::array<T, N> load_shared(int line, uint64_t address) { return load<T, N>(in_shared(line, address, N * sizeof(T), false)); }
  template <class T, int N> void store_global(int line, uint64_t address, std::array<T, N> v) { memcpy(in_global(line, address, sizeof v, true), &v, sizeof v); }
  template <class T, int N> void store_shared(int line, uint64_t address, std::array<T, N> v) { memcpy(in_shared(line, address, sizeof v, true), &v, sizeof v); }
  template <class T, int N> static std::array<T, N> load(const char *p) {
    std::array<T, N> v;
    memcpy(&v, p, sizeof v);
    return v;
  }

  void copy16(int line, uint64_t to, uint64_t from) {
    char *p = in_shared(line, to, 16, true);
    in_global(line, from, 16, false);
    copies.back().push_back({to, from, line});
    copying(p, true);
  }
  void copying(const char *p, bool on);
  void copy_commit() { copies.emplace_back(); }
  // copy_wait: all groups of the thread's copies but the last n are done after it; not sooner.
  void copy_wait(unsigned n) {
    while (copies.size() > n + 1) {
      for (auto &c : copies.front()) {
        copying(in_shared(0, c.to, 0, false), false);
        memcpy(in_shared(c.line, c.to, 16, true), (const char *)c.from, 16);
      }
      copies.erase(copies.begin());
    }
  }

  // shuffle is v of lane `with`, or of lane ^ with.
  uint32_t shuffle(int line, bool butterfly, uint32_t v, uint32_t with, uint32_t bounds, uint32_t mask) {
    struct Arg {
      uint32_t in, out, from;
    } a{v, 0, (butterfly ? lane ^ with : with) & 31};
    if (mask != ~0u || bounds != 31) die(line, "a shuffle of part of a warp");
    together(line, a, [](void **arg) {
      for (int i = 0; i < 32; i++) ((Arg *)arg[i])->out = ((Arg *)arg[((Arg *)arg[i])->from])->in;
    });
    return a.out;
  }

  // ldmatrix: four 8x8 matrices of 16-bit numbers; lanes 8m to 8m+7 bring the rows of matrix m.
  std::array<uint32_t, 4> ldmatrix(int line, uint64_t row) {
    struct Arg {
      const char *row;
      std::array<uint32_t, 4> out;
    } a{in_shared(line, row, 16, false, true), {}};
    together(line, a, [](void **arg) {
      for (int l = 0; l < 32; l++)
        for (int m = 0; m < 4; m++) memcpy(&((Arg *)arg[l])->out[m], ((Arg *)arg[8 * m + l / 4])->row + l % 4 * 4, 4);
    });
    return a.out;
  }

  // mma.m16n8k16 by the ISA's figures: group g = lane/4, t = lane%4. a0..a7 are
  // the rows g for i in {0,1,4,5} and g+8 otherwise, columns 2t+i%2, +8 from i = 4
  // on; b0..b3 rows 2t+i%2, +8 from i = 2 on, column g; c0..c3 rows g, g, g+8, g+8,
  // columns 2t+i%2.
  std::array<float, 4> mma(int line, std::array<uint32_t, 4> a, std::array<uint32_t, 2> b, std::array<float, 4> c) {
    struct Arg {
      uint16_t a[8], b[4];
      std::array<float, 4> c;
    } me{{}, {}, c};
    memcpy(me.a, &a, 16);
    memcpy(me.b, &b, 8);
    together(line, me, [](void **arg) {
      float A[16][16], B[16][8], C[16][8];
      for (int l = 0; l < 32; l++) {
        auto &x = *(Arg *)arg[l];
        int g = l / 4, t = l % 4;
        for (int i = 0; i < 8; i++) A[i == 0 || i == 1 || i == 4 || i == 5 ? g : g + 8][2 * t + i % 2 + (i >= 4 ? 8 : 0)] = of_f16(x.a[i]);
        for (int i = 0; i < 4; i++) B[2 * t + i % 2 + (i >= 2 ? 8 : 0)][g] = of_f16(x.b[i]);
        for (int i = 0; i < 4; i++) C[i < 2 ? g : g + 8][2 * t + i % 2] = x.c[i];
      }
      for (int r = 0; r < 16; r++)
        for (int k = 0; k < 16; k++)
          for (int j = 0; j < 8; j++) C[r][j] += A[r][k] * B[k][j];
      for (int l = 0; l < 32; l++)
        for (int i = 0; i < 4; i++) ((Arg *)arg[l])->c[i] = C[i < 2 ? l / 4 : l / 4 + 8][2 * (l % 4) + i % 2];
    });
    return me.c;
  }

  // wmma.m16n16k16 of row-major matrices. Which lane holds what is for the machine
  // to choose: here lane l has row l/2, columns 8·(l%2) to +7. Where halves take
  // eight registers four are unused.
  std::array<uint32_t, 8> wmma_load(int line, uint64_t matrix, uint32_t ld) {
    check_wmma(line, matrix, ld, 2);
    uint64_t at = matrix + 2 * ((uint64_t)(lane / 2) * ld + lane % 2 * 8);
    std::array<uint32_t, 8> v;
    v.fill(0x7e007e00); // NaN
    memcpy(&v, at >= window && at < 2 * window ? in_shared(line, at - window, 16, false, true) : in_global(line, at, 16, false), 16);
    one_matrix(line, matrix, ld);
    return v;
  }
  void wmma_store(int line, uint64_t matrix, std::array<float, 8> v, uint32_t ld) {
    check_wmma(line, matrix, ld, 4);
    uint64_t at = matrix + 4 * ((uint64_t)(lane / 2) * ld + lane % 2 * 8);
    for (int i = 0; i < 2; i++) memcpy(in_shared(line, at + 16 * i, 16, true, true), &v[4 * i], 16);
    one_matrix(line, matrix, ld);
  }
  void check_wmma(int line, uint64_t matrix, uint32_t ld, int size) { // each row, by the ISA's "Address Alignment"
    if (matrix & 31 || ld * size & 31) die(line, "a matrix of wmma whose rows are not aligned to 32 bytes");
  }
  void one_matrix(int line, uint64_t matrix, uint32_t ld) { // all lanes, in no order
    struct Arg {
      Thread *thread;
      int line;
      uint64_t matrix;
      uint32_t ld;
    } a{this, line, matrix, ld};
    together(line, a, [](void **arg) {
      auto &first = *(Arg *)arg[0];
      for (int i = 1; i < 32; i++)
        if (auto &x = *(Arg *)arg[i]; x.matrix != first.matrix || x.ld != first.ld) x.thread->die(x.line, "lanes of a warp that name different matrices");
    });
  }
  template <float of(uint16_t)> std::array<float, 8> wmma(int line, std::array<uint32_t, 8> a, std::array<uint32_t, 8> b, std::array<float, 8> c) {
    struct Arg {
      uint16_t a[8], b[8];
      std::array<float, 8> c;
    } me{{}, {}, c};
    memcpy(me.a, &a, 16);
    memcpy(me.b, &b, 16);
    together(line, me, [](void **arg) {
      float B[16][16], C[16][16];
      auto at = [&](int i) -> Arg & { return *(Arg *)arg[i]; };
      for (int l = 0; l < 32; l++)
        for (int i = 0; i < 8; i++) B[l / 2][l % 2 * 8 + i] = of(at(l).b[i]), C[l / 2][l % 2 * 8 + i] = at(l).c[i];
      for (int r = 0; r < 16; r++)
        for (int k = 0; k < 16; k++) {
          float v = of(at(2 * r + k / 8).a[k % 8]);
          for (int j = 0; j < 16; j++) C[r][j] += v * B[k][j];
        }
      for (int l = 0; l < 32; l++)
        for (int i = 0; i < 8; i++) at(l).c[i] = C[l / 2][l % 2 * 8 + i];
    });
    return me.c;
  }
};

// Blocks

constexpr size_t stackBytes = 64 << 10, sharedBytes = 48 << 10;

struct Block {
  const Kernel *kernel;
  void **params;
  const Range *ranges;
  size_t count;
  uint32_t launch;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<char> stacks, shared;
  std::vector<Cell> cells;
  unsigned barriers, number;
  const Range *last[8] = {}; // where the lines of the PTX last found their memory
  void *scheduler = nullptr;
  Thread *current = nullptr;
};
thread_local Block *block = nullptr;

inline void Thread::die(int line, const char *what) const {
  fprintf(stderr, "ptx: %s in %s, %s:%d, thread %d of block %u,%u,%u\n", what, block->kernel->name, block->kernel->file, line, index, ctaid.x, ctaid.y, ctaid.z);
  abort();
}

inline void Thread::pause(State s) {
  state = s;
  ptx_switch(&sp, block->scheduler);
}

// together runs op once all lanes of the warp have come, on the arguments of all of
// them. They must come to the same instruction (.aligned).
inline void Thread::together(int line, void *arg, void (*op)(void **)) {
  Warp &w = block->warps[index / 32];
  if (w.size != 32) die(line, "a warp's work in a warp of fewer than 32 threads");
  if (w.arrived > 0 && w.line != line) die(line, "lanes of a warp that do different things together");
  w.line = line;
  w.arg[lane] = arg;
  if (++w.arrived < w.size) return pause(IN_WARP);
  op(w.arg);
  w.arrived = 0;
  for (int i = index - lane; i < index - lane + w.size; i++) block->threads[i].state = RUN;
}
inline void Thread::warp_barrier(int line, uint32_t mask) {
  if (mask != ~0u) die(line, "a barrier of part of a warp");
  together(line, *this, [](void **arg) {
    auto &first = *(Thread *)arg[0];
    first.block->warps[first.index / 32].barriers++;
  });
}

// touch ends the process where another thread touched the cell, one of them to
// write, and nothing tells which came first.
inline void Thread::touch(int line, Cell &c, bool write, bool together) {
  const int warp = index / 32;
  const unsigned barriers = block->barriers, warpBarriers = block->warps[warp].barriers;
  auto apart = [&](const Touch &t) { // in no order with this
    return t.barriers == barriers && (together || t.thread != index) && !(t.warp == warp && t.warpBarriers != warpBarriers);
  };
  if (c.copying) die(line, write ? "shared memory is written that a copy is on its way to" : "shared memory is read that a copy is on its way to");
  if (apart(c.written)) die(line, write ? "shared memory is written twice without a barrier between" : "shared memory is read that another thread writes without a barrier between");
  const Touch me{together ? (int16_t)-1 : (int16_t)index, (int16_t)warp, barriers, warpBarriers};
  if (write) {
    if (apart(c.read)) die(line, "shared memory is written that another thread reads without a barrier between");
    c.written = me;
    return;
  }
  Touch &r = c.read;
  if (r.barriers != barriers || r.thread == index && !together) {
    r = me;
  } else if (r.warp == warp) {
    if (r.warpBarriers == warpBarriers) r.thread = -1;
    else r = me;
  } else {
    r.thread = r.warp = -1;
  }
}

inline char *Thread::in_shared(int line, uint64_t address, unsigned size, bool write, bool together) {
  if (size && address % size) die(line, "shared memory at an address that is not aligned");
  if (address >= window || address + size > block->kernel->shared) die(line, "an address outside of the kernel's shared memory");
  for (uint64_t i = address / 2; i < (address + size + 1) / 2 && size; i++) touch(line, block->cells[i], write, together);
  return block->shared.data() + address;
}
inline void Thread::copying(const char *p, bool on) {
  for (int i = 0; i < 8; i++) block->cells[(p - block->shared.data()) / 2 + i].copying = on;
}

// in_global notes in the range's shadow who reads and writes each four bytes in
// this launch: launch, block, barriers, thread. Several readers are thread or
// block `several`.
inline char *Thread::in_global(int line, uint64_t address, unsigned size, bool write) {
  if (address % size) die(line, "global memory at an address that is not aligned");
  const Range *&last = block->last[line % 8];
  if (!last || address < last->begin || address > last->end - size) {
    const Range *r = std::upper_bound(block->ranges, block->ranges + block->count, address, [](uint64_t a, const Range &r) { return a < r.begin; });
    if (r == block->ranges || address > r[-1].end - size) die(line, write ? "a write outside of every allocation" : "a read outside of every allocation");
    last = r - 1;
  }
  constexpr uint64_t threadBits = 11, barrierBits = 10, blockBits = 20, several = (1 << threadBits) - 1, severalBlocks = (1 << blockBits) - 1;
  const uint64_t mine = (((uint64_t)block->launch << blockBits | block->number % severalBlocks) << barrierBits | block->barriers % (1 << barrierBits)) << threadBits | index;
  const uint64_t begin = (address - last->begin) / 4, end = (address - last->begin + size + 3) / 4;
  auto now = [&](uint64_t t) { return t >> (threadBits + barrierBits) >> blockBits == mine >> (threadBits + barrierBits) >> blockBits; };
  auto apart = [&](uint64_t t) { // in no order with this
    return now(t) && t != mine && (t >> (threadBits + barrierBits) != mine >> (threadBits + barrierBits) || (t >> threadBits == mine >> threadBits));
  };
  for (uint64_t i = begin; i < end; i++) {
    auto &written = last->shadow[2 * i], &read = last->shadow[2 * i + 1];
    // Noted before it is looked: of two blocks at one moment one sees the other.
    if (write) {
      if (apart(written.exchange(mine))) die(line, "global memory is written by two threads of a launch");
      if (apart(read.load())) die(line, "global memory is written that another thread of the launch reads");
      continue;
    }
    for (uint64_t r = read.load(), to; r != mine; ) {
      to = mine;
      if (apart(r)) to |= several;
      if (now(r) && r >> (threadBits + barrierBits) != mine >> (threadBits + barrierBits)) to |= severalBlocks << (threadBits + barrierBits);
      if (to == r || read.compare_exchange_weak(r, to)) break;
    }
    if (apart(written.load())) die(line, "global memory is read that another thread of the launch writes");
  }
  return (char *)address;
}

inline void entry() {
  Thread &t = *block->current;
  block->kernel->run(t, block->params);
  for (auto &group : t.copies)
    if (!group.empty()) t.die(group[0].line, "a copy that its thread never waited for");
  t.pause(DONE);
  abort();
}

inline void run_block(Block &b, Dim3 index, Dim3 dim, Dim3 grid) {
  int n = dim.x * dim.y * dim.z;
  b.barriers = 0;
  b.threads.assign(n, Thread());
  b.warps.assign((n + 31) / 32, Warp());
  if (b.stacks.size() < n * stackBytes) b.stacks.resize(n * stackBytes);
  b.shared.assign(b.kernel->shared + 64, char(0xff)); // NaN as float and as half
  b.cells.assign(b.kernel->shared / 2 + 1, Cell());
  block = &b;
  for (int i = 0; i < n; i++) {
    Thread &t = b.threads[i];
    t.tid = {i % dim.x, i / dim.x % dim.y, i / (dim.x * dim.y)};
    t.ntid = dim, t.ctaid = index, t.nctaid = grid;
    t.block = &b, t.index = i, t.lane = i % 32;
    void **sp = (void **)((uintptr_t)(b.stacks.data() + (i + 1) * stackBytes) & ~(uintptr_t)15);
    *--sp = nullptr;       // entry's return address: it never returns
    *--sp = (void *)entry; // where ptx_switch returns to
    for (int r = 0; r < 6; r++) *--sp = nullptr;
    t.sp = sp;
    b.warps[i / 32].size++;
  }
  for (bool forward = true;; forward = !forward) {
    bool ran = false;
    int done = 0, waiting = 0;
    for (int i = 0; i < n; i++) {
      b.current = &b.threads[forward ? i : n - 1 - i];
      if (b.current->state != RUN) continue;
      ptx_switch(&b.scheduler, b.current->sp);
      ran = true;
    }
    for (Thread &t : b.threads) done += t.state == DONE, waiting += t.state == AT_BARRIER;
    if (done == n) break;
    if (waiting == n) {
      for (Thread &t : b.threads)
        if (t.at != b.threads[t.index - t.lane].at) t.die(t.at, "a barrier that lanes of a warp reach in different places");
      b.barriers++;
      for (Thread &t : b.threads) t.state = RUN;
    } else if (!ran) {
      for (Thread &t : b.threads)
        if (t.state != DONE) t.die(t.state == AT_BARRIER ? t.at : b.warps[t.index / 32].line, "a barrier or a warp's work that not all threads reach");
    }
  }
  block = nullptr;
}

} // namespace ptx
} // namespace

// find_kernel is the kernel of that name, or null.
extern "C" void *find_kernel(const char *name) {
  auto k = ptx::kernels().find(name);
  return k == ptx::kernels().end() ? nullptr : &k->second;
}

// run_kernel runs it to its end; grid and block are x, y, z, params point to the
// arguments, and ranges are the memory of the card, by address.
extern "C" void run_kernel(void *kernel, const unsigned grid[3], const unsigned dim[3], void **params, const Range *ranges, size_t count) {
  using namespace ptx;
  static std::atomic<uint32_t> launches{0};
  static const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  auto *k = (const Kernel *)kernel;
  if (dim[0] * dim[1] * dim[2] > k->most || k->shared > sharedBytes) {
    fprintf(stderr, "ptx: %s is for at most %u threads in a block and 48 kB, not %u and %u bytes\n", k->name, k->most, dim[0] * dim[1] * dim[2], k->shared);
    abort();
  }
  const unsigned n = grid[0] * grid[1] * grid[2];
  const uint32_t launch = ++launches;
  std::atomic<unsigned> next{0};
  auto work = [&] {
    static thread_local Block b;
    b.kernel = k, b.params = params, b.ranges = ranges, b.count = count, b.launch = launch;
    memset(b.last, 0, sizeof b.last);
    for (unsigned i; (i = next++) < n;) {
      b.number = i;
      run_block(b, {i % grid[0], i / grid[0] % grid[1], i / (grid[0] * grid[1])}, {dim[0], dim[1], dim[2]}, {grid[0], grid[1], grid[2]});
    }
  };
  if (n < 4) return work();
  std::vector<std::thread> others;
  for (unsigned i = 1; i < std::min(cores, n); i++) others.emplace_back(work);
  work();
  for (auto &t : others) t.join();
}
