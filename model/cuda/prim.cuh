// What kernels.cu and train.cu need of the machine: copies into shared memory and the
// product of a tile. Each primitive has a body for GPUs from compute capability
// 8.0 on and one for 7.0 and 7.5.
#pragma once
#include <cuda_fp16.h>
#include <mma.h>
#define SHARED(type, name, n) __shared__ __align__(32) type name[n]

#if __CUDA_ARCH__ >= 800
// copy16 starts a copy of 16 bytes from global to shared memory.
__device__ __forceinline__ void copy16(void *to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void copy16_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// copy16_wait waits for all groups of the thread's copies but the last N.
template <int N> __device__ __forceinline__ void copy16_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

__device__ __forceinline__ void ldmatrix_x4(unsigned (&r)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"((unsigned)__cvta_generic_to_shared(row))
               : "memory");
}
// mma_f16_16x32x16 is c[q] += a · b[q] for four column tiles q of 8, by mma.sync.m16n8k16.
__device__ __forceinline__ void mma_f16_16x32x16(float (&c)[4][4], const unsigned (&a)[4], const unsigned (&b)[8]) {
#pragma unroll
  for (int q = 0; q < 4; q++)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[q][0]), "+f"(c[q][1]), "+f"(c[q][2]), "+f"(c[q][3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * q]), "r"(b[2 * q + 1]));
}
#else
__device__ __forceinline__ void copy16(void *to, const void *from) { *(uint4 *)to = *(const uint4 *)from; }
__device__ __forceinline__ void copy16_commit() {}
template <int N> __device__ __forceinline__ void copy16_wait() {}
#endif

// load4_shared reads four floats of shared memory. It is of assembly because NVRTC now and
// then splits such a load of its own making in a way that asks for a newer driver.
__device__ __forceinline__ void load4_shared(float (&to)[4], const float *p) {
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3]) : "r"((unsigned)__cvta_generic_to_shared(p)) : "memory");
}

// A tile is 16 rows by 8 units of 4 gates. In the end thread (g, t) of the warp,
// g = lane/4 and t = lane%4, holds in v[gate] the rows g, g, g+8, g+8 of units
// 2t, 2t+1, 2t, 2t+1: all gates of its units.
//
// Weights<T> are 16 rows of the tile's weights in registers, Sums<T> its sums.
// A block of 16 by 32 weights stands in memory in the order that the product
// reads it in; pack.go makes it.
template <class T> struct Weights;
template <class T> struct Sums;

// Floats: [16 rows][8 units][4 gates], in shared memory.
template <> struct Weights<float> {
  const float *at;
  __device__ __forceinline__ void load(const float *block) { at = block + (threadIdx.x & 3) * 8; }
};
template <> struct Sums<float> {
  float v[4][4];
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int q = 0; q < 4; q++) v[q][0] = v[q][1] = v[q][2] = v[q][3] = 0.f;
  }
  // add adds a · w; a is [16, 16] with ld numbers from row to row, in shared memory.
  __device__ __forceinline__ void add(const float *a, int ld, const Weights<float> &w) {
    a += (threadIdx.x & 31) / 4 * ld;
#pragma unroll 4
    for (int k = 0; k < 16; k++) {
      float even[4], odd[4];
      load4_shared(even, w.at + k * 32), load4_shared(odd, w.at + k * 32 + 4);
      const float low = a[k], high = a[8 * ld + k];
#pragma unroll
      for (int q = 0; q < 4; q++) {
        v[q][0] += low * even[q];
        v[q][1] += low * odd[q];
        v[q][2] += high * even[q];
        v[q][3] += high * odd[q];
      }
    }
  }
  __device__ __forceinline__ void finish(float *) {}
};

#if __CUDA_ARCH__ >= 800
// Halves: [2 pairs of gates][32 lanes][2 gates][rows 2t, 2t+1, 2t+8, 2t+9 of unit g].
template <> struct Weights<half> {
  unsigned b[8];
  __device__ __forceinline__ void load(const half *block) {
    const uint4 *p = (const uint4 *)block + (threadIdx.x & 31);
    const uint4 x = p[0], y = p[32];
    b[0] = x.x, b[1] = x.y, b[2] = x.z, b[3] = x.w;
    b[4] = y.x, b[5] = y.y, b[6] = y.z, b[7] = y.w;
  }
};
template <> struct Sums<half> {
  float v[4][4];
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int q = 0; q < 4; q++) v[q][0] = v[q][1] = v[q][2] = v[q][3] = 0.f;
  }
  __device__ __forceinline__ void add(const half *a, int ld, const Weights<half> &w) {
    const int lane = threadIdx.x & 31;
    unsigned x[4];
    ldmatrix_x4(x, a + (lane & 15) * ld + lane / 16 * 8);
    mma_f16_16x32x16(v, x, w.b);
  }
  __device__ __forceinline__ void finish(float *) {}
};
#else
// Halves: [16 rows][4 gates][8 units].
template <> struct Weights<half> {
  nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, half, nvcuda::wmma::row_major> b[2];
  __device__ __forceinline__ void load(const half *block) {
    nvcuda::wmma::load_matrix_sync(b[0], block, 32);
    nvcuda::wmma::load_matrix_sync(b[1], block + 16, 32);
  }
};
template <> struct Sums<half> {
  float v[4][4];
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> c[2];
  __device__ __forceinline__ void clear() {
    nvcuda::wmma::fill_fragment(c[0], 0.f);
    nvcuda::wmma::fill_fragment(c[1], 0.f);
  }
  __device__ __forceinline__ void add(const half *a, int ld, const Weights<half> &w) {
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, half, nvcuda::wmma::row_major> x;
    nvcuda::wmma::load_matrix_sync(x, a, ld);
    nvcuda::wmma::mma_sync(c[0], x, w.b[0], c[0]);
    nvcuda::wmma::mma_sync(c[1], x, w.b[1], c[1]);
  }
  // finish moves the sums through scratch, [16, 32] of the warp's own, into v:
  // which thread holds which of wmma's sums is nobody's business.
  __device__ __forceinline__ void finish(float *scratch) {
    __syncwarp(); // everyone has read what stood there
    nvcuda::wmma::store_matrix_sync(scratch, c[0], 32, nvcuda::wmma::mem_row_major);
    nvcuda::wmma::store_matrix_sync(scratch + 16, c[1], 32, nvcuda::wmma::mem_row_major);
    __syncwarp();
    const int g = (threadIdx.x & 31) / 4, t = threadIdx.x & 3;
#pragma unroll
    for (int q = 0; q < 4; q++)
#pragma unroll
      for (int i = 0; i < 4; i++) v[q][i] = scratch[(g + i / 2 * 8) * 32 + q * 8 + 2 * t + i % 2];
  }
};
#endif

// Numbers behind each row in shared memory, so that rows begin in different banks.
// wmma reads rows of halves from a multiple of 32 bytes on, ldmatrix of 16.
template <class T> struct Skew { enum { size = 16 / sizeof(T) }; };
#if __CUDA_ARCH__ < 800
template <> struct Skew<half> { enum { size = 16 }; };
#endif

// Floats a warp that finish needs.
template <class T> struct Scratch { enum { size = 0 }; };
#if __CUDA_ARCH__ < 800
template <> struct Scratch<half> { enum { size = 16 * 32 }; };
#endif

// Two neighbouring numbers, rounded to T.
__device__ __forceinline__ void store2(float *p, float x, float y) { *(float2 *)p = make_float2(x, y); }
__device__ __forceinline__ void store2(half *p, float x, float y) { *(half2 *)p = __floats2half2_rn(x, y); }

// Eight numbers to a multiple of 16 bytes.
__device__ __forceinline__ void store8(float *p, const float *v) {
  ((float4 *)p)[0] = make_float4(v[0], v[1], v[2], v[3]), ((float4 *)p)[1] = make_float4(v[4], v[5], v[6], v[7]);
}
__device__ __forceinline__ void store8(half *p, const float *v) {
  struct __align__(16) Eight {
    half2 v[4];
  } to;
#pragma unroll
  for (int i = 0; i < 4; i++) to.v[i] = __floats2half2_rn(v[2 * i], v[2 * i + 1]);
  *(Eight *)p = to;
}

// Eight numbers from a multiple of 16 bytes on.
__device__ __forceinline__ void load8(float (&to)[8], const float *p) {
  const float4 x = ((const float4 *)p)[0], y = ((const float4 *)p)[1];
  to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w, to[4] = y.x, to[5] = y.y, to[6] = y.z, to[7] = y.w;
}
__device__ __forceinline__ void load8(float (&to)[8], const half *p) {
  struct __align__(16) Eight {
    half v[8];
  };
  const Eight x = *(const Eight *)p;
#pragma unroll
  for (int i = 0; i < 8; i++) to[i] = __half2float(x.v[i]);
}
