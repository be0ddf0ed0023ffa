// What device.h of kernels/metal defines, for CUDA: the language of the kernels that are
// written once, in kernels/shared. Barriers and shuffles of all threads of a warp, the
// address spaces of pointers, and functions of float.
#pragma once

#include "device.cuh"
#include "params.h"

typedef unsigned int uint;
typedef unsigned char uchar;
typedef signed char schar;
typedef unsigned short ushort;
typedef unsigned long ulong;
static_assert(sizeof(long) == 8, "a long has 64 bits, as in Metal");

#define LF_GLOBAL
#define LF_GROUP
#define LF_PRIVATE
#define LF_CONSTANT __constant__

struct lf_thread {
  uint3 group, groups; // position in the grid of blocks, and its size
  uint index, size;    // in the block, and of it
  uint lane, warp;     // in the warp, and which one that is
};
LF_DEVICE lf_thread lf_here() {
  lf_thread t = {{blockIdx.x, blockIdx.y, blockIdx.z}, {gridDim.x, gridDim.y, gridDim.z}, threadIdx.x, blockDim.x, threadIdx.x % 32, threadIdx.x / 32};
  return t;
}

// The blocks that a multiprocessor has to hold of each kernel of a file. With 0, ptxas chooses a
// number and may spill registers for it.
#ifndef LF_BLOCKS
#define LF_BLOCKS 0
#endif

// A kernel that calls its body, which follows the macro.
#define LF_ENTRY_(MAP, shared, threads, name, pointers, numbers)                                              \
  LF_DEVICE void name##_body(lf_thread t LF_BODY_PARAMS(MAP, shared, pointers, numbers));                     \
  extern "C" __global__ void __launch_bounds__(threads, LF_BLOCKS)                                            \
      name(LF_MAP(LF_POINTER, LF_COMMA, pointers) LF_MAP(LF_NEXT, LF_NOTHING, numbers)) {                     \
    MAP(LF_ARRAY, LF_NOTHING, shared)                                                                         \
    name##_body(lf_here() MAP(LF_PASS, LF_NOTHING, shared) LF_MAP(LF_PASS, LF_NOTHING, pointers)              \
                    LF_MAP(LF_PASS, LF_NOTHING, numbers));                                                    \
  }                                                                                                           \
  LF_KERNEL(name);                                                                                            \
  LF_DEVICE void name##_body(lf_thread t LF_BODY_PARAMS(MAP, shared, pointers, numbers))

#define LF_BODY_PARAMS(MAP, shared, pointers, numbers) \
  MAP(LF_NEXT_POINTER, LF_NOTHING, shared) LF_MAP(LF_NEXT_POINTER, LF_NOTHING, pointers) LF_MAP(LF_NEXT, LF_NOTHING, numbers)
#define LF_POINTER(i, item) LF_CALL(LF_POINTER_, LF_LIST item)
#define LF_POINTER_(T, name) T* name
#define LF_NEXT_POINTER(i, item) LF_CALL(LF_NEXT_POINTER_, LF_LIST item, 0)
#define LF_NEXT_POINTER_(T, name, ...) , T* name
#define LF_NEXT(i, item) LF_CALL(LF_NEXT_, LF_LIST item)
#define LF_NEXT_(T, name) , T name
#define LF_ARRAY(i, item) LF_CALL(LF_ARRAY_, LF_LIST item)
#define LF_ARRAY_(T, name, length) LF_SHARED(T, name, [length]);
#define LF_PASS(i, item) LF_CALL(LF_PASS_, LF_LIST item, 0)
#define LF_PASS_(T, name, ...) , name

#define LF_HAS(x) ((x) != 0)
#define LF_ALIGNED(x) (((ulong)(x) & 15) == 0)

// Whether a warp without work may return while others exchange numbers.
#define LF_WARPS_RETURN true

// Macros, by which the simulator knows where a barrier or a shuffle is.
#define lf_barrier() __syncthreads()
#define lf_barrier_device() __syncthreads()
#define lf_shuffle_xor(t, v, mask) __shfl_xor_sync(0xffffffffu, v, mask)
#define lf_ballot(t, p) __ballot_sync(0xffffffffu, p)
#ifdef __CUDACC__
LF_DEVICE float lf_warp_sum(lf_thread, float v) { return lf_warp_sum(v); }
LF_DEVICE float lf_warp_max(lf_thread, float v) { return lf_warp_max(v); }
#else
LF_DEVICE float lf_warp_sum(lf_thread, float v, lfsim::Site site = lfsim::Site::here()) { return lf_warp_sum(v, site); }
LF_DEVICE float lf_warp_max(lf_thread, float v, lfsim::Site site = lfsim::Site::here()) { return lf_warp_max(v, site); }
#endif

LF_DEVICE uint lf_bits(float x) { return __float_as_uint(x); }
LF_DEVICE float lf_from_bits(uint x) { return __uint_as_float(x); }
LF_DEVICE uint lf_mulhi(uint a, uint b) { return __umulhi(a, b); }
LF_DEVICE int lf_clz(uint x) { return __clz((int)x); }
LF_DEVICE int lf_popcount(uint x) { return __popc(x); }
LF_DEVICE float lf_fmax(float x, float y) { return fmaxf(x, y); }
LF_DEVICE float lf_rint(float x) { return rintf(x); }
LF_DEVICE float lf_abs(float x) { return fabsf(x); }
LF_DEVICE float lf_fma(float x, float y, float z) { return fmaf(x, y, z); }
LF_DEVICE float lf_exp(float x) { return expf(x); }
LF_DEVICE float lf_log(float x) { return logf(x); }
LF_DEVICE float lf_sqrt(float x) { return sqrtf(x); }
LF_DEVICE float lf_sin(float x) { return sinf(x); }
LF_DEVICE float lf_cos(float x) { return cosf(x); }
LF_DEVICE float lf_tanh(float x) { return tanhf(x); }
LF_DEVICE float lf_erf(float x) { return erff(x); }
LF_DEVICE float lf_erfc(float x) { return erfcf(x); }

#ifdef LF_RACE
#include "../sim/test/race.h"
#endif
