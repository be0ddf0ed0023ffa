// Consecutive numbers that a thread takes at once, by 16 bytes where it can.
#pragma once

#include "device.h"

// The elements of this thread, V at a time, of elementwise kernels: 256 threads of a block
// take 1024 of n elements.
#define LF_GROUPS(V, at, n)                                                                 \
  for (long at = (long)t.group.x * 1024 + t.index * V, at##_end = at + 1024 - t.index * V; \
       at < at##_end && at < n; at += 256 * V)

// V consecutive numbers in memory, aligned to 4·V bytes.
template <int V>
struct lf_pack;
template <>
struct lf_pack<1> {
  float v[1];
  LF_DEVICE void load(LF_GLOBAL const float* p) { v[0] = *p; }
  LF_DEVICE void store(LF_GLOBAL float* p) const { *p = v[0]; }
};
template <>
struct lf_pack<4> {
  float v[4];
  LF_DEVICE void load(LF_GLOBAL const float* p) {
    float4 x = *(LF_GLOBAL const float4*)p;
    v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
  }
  LF_DEVICE void store(LF_GLOBAL float* p) const { *(LF_GLOBAL float4*)p = make_float4(v[0], v[1], v[2], v[3]); }
};
