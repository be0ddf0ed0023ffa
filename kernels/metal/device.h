// The one header that kernels include. It has what both tiers are written with: a
// kernel says once what its threads exchange, and LF_SIMD decides how.
//
//   LF_SIMD    1: simdgroups of 32 threads exchange numbers by themselves, and have
//              matrices of 8 by 8 (Apple7 and later). 0: by threadgroup memory.
//   LF_BFLOAT  1: there is the type bfloat (language 3.1, Apple6 and later). 0: its
//              bits are those of ushort.
//
// A kernel is
//
//   struct name_args { LF_ARGS; long rows; float eps; };
//
//   LF_KERNEL(256) name(device float* out [[buffer(0)]], device const float* x [[buffer(1)]],
//                       constant name_args& a [[buffer(2)]], LF_THREAD) {
//     LF_BEGIN;
//     …
//   }
//
// Pointers come first, in the order of the launch, as buffers 0, 1, …; then one struct
// with all numbers as its fields, in their order, with its names. Kernels are handed
// nothing else.
//
// All threads of a threadgroup must call collectives (lf_barrier, lf_warp_*, lf_shuffle*,
// lf_ballot) the same number of times: without simdgroups each is a barrier of the
// threadgroup. So no thread returns, and no warp leaves a loop, before the last of them;
// threads without work contribute zeros.
#pragma once

#include <metal_stdlib>
using namespace metal;

// A product followed by a sum is rounded twice, by every compiler. Compensated sums rely
// on it; code that needs one rounding calls fma. Metal's own compiler would contract
// them.
#pragma METAL fp contract(off)

#include "functions.h"
#include "params.h"

#ifndef LF_SIMD
#define LF_SIMD 1
#endif
#ifndef LF_BFLOAT
#define LF_BFLOAT 1
#endif

#define LF_KERNEL(threads) [[max_total_threads_per_threadgroup(threads)]] kernel void

// The first fields of the numbers of a launch: bit i of bound means that pointer i is
// not null (unbound pointers must not be read), bit i of wide that it is aligned to 16
// bytes. A long launch is dispatched in parts: groups is the size of its whole grid, first
// the position in it of the part's first threadgroup.
#define LF_ARGS uint bound, wide, first_x, first_y, first_z, groups_x, groups_y, groups_z
#define LF_BOUND(a, i) (((a).bound >> (i) & 1) != 0)
#define LF_WIDE_ALL(a, mask) (((a).wide & (mask)) == (mask))

// Whether rows of n numbers at the pointers of mask, bits of their places in the
// launch, can be taken by four.
#define LF_FOURS(a, n, mask) (((n) & 3) == 0 && LF_WIDE_ALL(a, mask))

#define LF_THREAD                                                                                  \
  uint3 lf_group_ [[threadgroup_position_in_grid]], uint lf_index_ [[thread_index_in_threadgroup]], \
      uint3 lf_size_ [[threads_per_threadgroup]]

// The position of a thread. room is what the plain tier exchanges by.
struct lf_thread {
  uint3 group, groups;  // position in the grid of threadgroups, and its size
  uint index, size;     // in the threadgroup, and of it: threadgroups have one axis
  uint lane, warp;      // in the simdgroup, and which one that is
  threadgroup uint* room;
};

// LF_BEGIN is for kernels whose numbers are called a, LF_BEGIN_OF for others.
#define LF_BEGIN LF_BEGIN_OF(a)
#define LF_POSITION(a, room)                                                                                                              \
  const lf_thread t = {lf_group_ + uint3(a.first_x, a.first_y, a.first_z), uint3(a.groups_x, a.groups_y, a.groups_z), lf_index_, lf_size_.x, \
                       lf_index_ % 32, lf_index_ / 32, room}
#if LF_SIMD
#define LF_BEGIN_OF(a) LF_POSITION(a, 0)
#else
#define LF_BEGIN_OF(a)             \
  threadgroup uint lf_room_[1024]; \
  LF_POSITION(a, lf_room_)
#endif

// What kernels/shared is written in: a kernel that calls its body, which follows the macro.
typedef char schar;
#define LF_GLOBAL device
#define LF_GROUP threadgroup
#define LF_PRIVATE thread
#define LF_CONSTANT constant
#define LF_DEVICE inline

#define LF_ENTRY_(MAP, shared, threads, name, pointers, numbers)                                             \
  struct name##_args { LF_ARGS; LF_MAP(LF_FIELD, LF_NOTHING, numbers) };                                     \
  LF_DEVICE void name##_body(lf_thread t LF_BODY_PARAMS(MAP, shared, pointers, numbers));                    \
  LF_KERNEL(threads) name(LF_MAP(LF_BUFFER, LF_COMMA, pointers),                                             \
                          constant name##_args& a [[buffer(LF_LENGTH(pointers))]], LF_THREAD) {              \
    LF_BEGIN;                                                                                                \
    MAP(LF_ARRAY, LF_NOTHING, shared)                                                                        \
    name##_body(t MAP(LF_PASS, LF_NOTHING, shared) LF_MAP(LF_PASS_POINTER, LF_NOTHING, pointers)             \
                    LF_MAP(LF_PASS_NUMBER, LF_NOTHING, numbers));                                            \
  }                                                                                                          \
  LF_DEVICE void name##_body(lf_thread t LF_BODY_PARAMS(MAP, shared, pointers, numbers))

#define LF_BODY_PARAMS(MAP, shared, pointers, numbers) \
  MAP(LF_NEXT_GROUP, LF_NOTHING, shared) LF_MAP(LF_NEXT_POINTER, LF_NOTHING, pointers) LF_MAP(LF_NEXT, LF_NOTHING, numbers)
#define LF_FIELD(i, item) LF_CALL(LF_FIELD_, LF_LIST item)
#define LF_FIELD_(T, name) T name;
#define LF_BUFFER(i, item) LF_CALL(LF_BUFFER_, i, LF_LIST item)
#define LF_BUFFER_(i, T, name) device T* name [[buffer(i)]]
#define LF_NEXT_GROUP(i, item) LF_CALL(LF_NEXT_GROUP_, LF_LIST item)
#define LF_NEXT_GROUP_(T, name, length) , threadgroup T* name
#define LF_NEXT_POINTER(i, item) LF_CALL(LF_NEXT_POINTER_, LF_LIST item)
#define LF_NEXT_POINTER_(T, name) , device T *name, bool name##_has, bool name##_wide
#define LF_NEXT(i, item) LF_CALL(LF_NEXT_, LF_LIST item)
#define LF_NEXT_(T, name) , T name
#define LF_ARRAY(i, item) LF_CALL(LF_ARRAY_, LF_LIST item)
#define LF_ARRAY_(T, name, length) threadgroup T name[length];
#define LF_PASS(i, item) LF_CALL(LF_PASS_, LF_LIST item)
#define LF_PASS_(T, name, length) , name
#define LF_PASS_POINTER(i, item) LF_CALL(LF_PASS_POINTER_, i, LF_LIST item)
#define LF_PASS_POINTER_(i, T, name) , name, LF_BOUND(a, i), LF_WIDE_ALL(a, 1u << i)
#define LF_PASS_NUMBER(i, item) LF_CALL(LF_PASS_NUMBER_, LF_LIST item)
#define LF_PASS_NUMBER_(T, name) , a.name

// Whether a warp without work may return while others exchange numbers.
#define LF_WARPS_RETURN false

#define LF_HAS(x) x##_has
#define LF_ALIGNED(x) x##_wide

// All threads of the threadgroup have come here, and see what the others have written
// to threadgroup memory.
inline void lf_barrier() { threadgroup_barrier(mem_flags::mem_threadgroup); }
// …and to device memory.
inline void lf_barrier_device() { threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup); }

// The 32 threads of a warp have.
inline void lf_warp_barrier() {
#if LF_SIMD
  simdgroup_barrier(mem_flags::mem_threadgroup);
#else
  threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
}

// The number passed by another lane of the warp; T has 4 bytes.
template <class T>
inline T lf_shuffle(lf_thread t, T v, uint lane) {
#if LF_SIMD
  return simd_shuffle(v, (ushort)lane);
#else
  threadgroup_barrier(mem_flags::mem_threadgroup); // what was exchanged before has been read
  t.room[t.index] = as_type<uint>(v);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint from = (t.index & ~31u) + lane;
  return as_type<T>(t.room[from < t.size ? from : t.index]);
#endif
}
template <class T>
inline T lf_shuffle_xor(lf_thread t, T v, uint mask) {
#if LF_SIMD
  return simd_shuffle_xor(v, (ushort)mask);
#else
  return lf_shuffle(t, v, t.lane ^ mask);
#endif
}

// A bit for each lane of the warp.
inline uint lf_ballot(lf_thread t, bool p) {
#if LF_SIMD
  return (uint)(ulong)simd_ballot(p);
#else
  threadgroup_barrier(mem_flags::mem_threadgroup);
  t.room[t.index] = p;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint votes = 0, from = t.index & ~31u;
  for (uint l = 0; l < 32 && from + l < t.size; l++) votes |= t.room[from + l] << l;
  return votes;
#endif
}

// One butterfly for all: every lane ends with the same bits, and so do both tiers.
inline float lf_warp_sum(lf_thread t, float v) {
#if LF_SIMD
  for (uint o = 16; o; o >>= 1) v += simd_shuffle_xor(v, (ushort)o);
  return v;
#else
  threadgroup_barrier(mem_flags::mem_threadgroup);
  t.room[t.index] = as_type<uint>(v);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float x[32];
  uint from = t.index & ~31u;
  for (uint l = 0; l < 32; l++) x[l] = from + l < t.size ? as_type<float>(t.room[from + l]) : 0.0f;
  for (uint o = 16; o; o >>= 1)
    for (uint l = 0; l < o; l++) x[l] += x[l + o];
  return x[0];
#endif
}
inline float lf_warp_max(lf_thread t, float v) {
#if LF_SIMD
  for (uint o = 16; o; o >>= 1) v = fmax(v, simd_shuffle_xor(v, (ushort)o));
  return v;
#else
  threadgroup_barrier(mem_flags::mem_threadgroup);
  t.room[t.index] = as_type<uint>(v);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint from = t.index & ~31u;
  for (uint l = 0; l < 32; l++)
    if (from + l < t.size) v = fmax(v, as_type<float>(t.room[from + l]));
  return v;
#endif
}
