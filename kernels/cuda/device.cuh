// The one header that kernels include. Under nvcc: thin wrappers around PTX,
// and CUDA's own types by names that both worlds have. As plain C++: the same
// names from the simulator (kernels/sim/device). Only this file contains
// inline assembly. The conformance program compares each wrapper with its
// simulated version.
//
// A kernel is
//
//   extern "C" __global__ void __launch_bounds__(N) name(pointers and numbers) { … }
//   LF_KERNEL(name);
//
// LF_SHARED(T, name, [rows][columns]) declares shared memory of a fixed size,
// LF_DYN_SHARED(T, name) a T* to the dynamic shared memory of the launch, aligned to 128 bytes.
#pragma once

#ifndef __CUDACC__
#include "../sim/device/device.h"
#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

typedef __nv_bfloat16 lf_bf16;
typedef __half lf_f16;

#define LF_KERNEL(name) static_assert(true, "")
#define LF_SHARED(T, name, dims) __shared__ __align__(16) T name dims
#define LF_DYN_SHARED(T, name)                                             \
  extern __shared__ __align__(128) unsigned char lf_dynamic_shared_[];     \
  T* const name = reinterpret_cast<T*>(lf_dynamic_shared_)

#define LF_DEVICE __device__ __forceinline__

LF_DEVICE uint32_t lf_shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

// Pairs as the tensor cores take them: the first element in the low half.
LF_DEVICE uint32_t lf_pack_bf16(float lo, float hi) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
LF_DEVICE float2 lf_unpack_bf16(uint32_t p) { return make_float2(__uint_as_float(p << 16), __uint_as_float(p & 0xffff0000u)); }
LF_DEVICE uint32_t lf_pack_f16(float lo, float hi) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
LF_DEVICE float2 lf_unpack_f16(uint32_t p) {
  float2 r;
  asm("{.reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(r.x), "=f"(r.y) : "r"(p));
  return r;
}

// 2^x with an error of two units in the last place, 0 for results below the normal numbers.
LF_DEVICE float lf_exp2(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// Named barriers: id from 1 to 15, n a multiple of 32.
LF_DEVICE void lf_bar_sync(unsigned id, unsigned n) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory"); }
LF_DEVICE void lf_bar_arrive(unsigned id, unsigned n) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory"); }

// Asynchronous copies into shared memory. If valid is false, it stores zeros;
// global is then not read but must still be a valid address.
LF_DEVICE void lf_cp_async16_n(void* shared, const void* global, int n) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(lf_shared_address(shared)), "l"(global), "r"(n) : "memory");
}
LF_DEVICE void lf_cp_async16(void* shared, const void* global, bool valid = true) { lf_cp_async16_n(shared, global, valid ? 16 : 0); }
LF_DEVICE void lf_cp_async8(void* shared, const void* global, bool valid = true) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(lf_shared_address(shared)), "l"(global), "r"(valid ? 8 : 0) : "memory");
}
LF_DEVICE void lf_cp_async4(void* shared, const void* global, bool valid = true) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(lf_shared_address(shared)), "l"(global), "r"(valid ? 4 : 0) : "memory");
}
LF_DEVICE void lf_cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All but the last N groups have landed, for the calling thread: a barrier
// makes them visible to the others.
template <int N>
LF_DEVICE void lf_cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
LF_DEVICE void lf_cp_async_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// ldmatrix: lane l gives the address of row l%8 of matrix l/8 (16 bytes, on 16
// bytes) and gets the pair at row l/4, columns 2(l%4) and 2(l%4)+1 of each; of
// the transposed matrices with _trans.
LF_DEVICE void lf_ldmatrix_x1(uint32_t& r, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(lf_shared_address(row)) : "memory");
}
LF_DEVICE void lf_ldmatrix_x2(uint32_t (&r)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(lf_shared_address(row)) : "memory");
}
LF_DEVICE void lf_ldmatrix_x4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(lf_shared_address(row)) : "memory");
}
LF_DEVICE void lf_ldmatrix_x1_trans(uint32_t& r, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(lf_shared_address(row)) : "memory");
}
LF_DEVICE void lf_ldmatrix_x2_trans(uint32_t (&r)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(lf_shared_address(row)) : "memory");
}
LF_DEVICE void lf_ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(lf_shared_address(row)) : "memory");
}

// d += a b, 16x16 times 16x8, sums in f32. Lane l, g = l/4, t = 2(l%4), holds
// pairs a[0] = A[g][t], a[1] = A[g+8][t], a[2] = A[g][t+8], a[3] = A[g+8][t+8],
// b[0] = B[t][g], b[1] = B[t+8][g] (pairs along k), and
// d[0], d[1] = D[g][t], D[g][t+1]; d[2], d[3] = D[g+8][t], D[g+8][t+1].
LF_DEVICE void lf_mma_bf16_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
LF_DEVICE void lf_mma_f16_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// One butterfly for all: every lane ends with the same bits.
LF_DEVICE float lf_warp_sum(float v) {
#pragma unroll
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  return v;
}
LF_DEVICE float lf_warp_max(float v) {
#pragma unroll
  for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
  return v;
}

#endif

// One name for both element types, for templates over them.
#ifndef LF_DEVICE
#define LF_DEVICE __device__ __forceinline__
#endif
LF_DEVICE float lf_float(float x) { return x; }
LF_DEVICE float lf_float(lf_bf16 x) { return __bfloat162float(x); }
LF_DEVICE float lf_float(lf_f16 x) { return __half2float(x); }
template <class T>
struct lf_type;
template <>
struct lf_type<float> {
  static LF_DEVICE float from(float x) { return x; }
};
template <>
struct lf_type<lf_bf16> {
  static LF_DEVICE lf_bf16 from(float x) { return __float2bfloat16(x); }
  static LF_DEVICE uint32_t pack(float lo, float hi) { return lf_pack_bf16(lo, hi); }
  static LF_DEVICE void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { lf_mma_bf16_16816(d, a, b); }
};
template <>
struct lf_type<lf_f16> {
  static LF_DEVICE lf_f16 from(float x) { return __float2half(x); }
  static LF_DEVICE uint32_t pack(float lo, float hi) { return lf_pack_f16(lo, hi); }
  static LF_DEVICE void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { lf_mma_f16_16816(d, a, b); }
};
