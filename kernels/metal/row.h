// Shared code of row-wise kernels: 16-byte accesses if a row allows them, and
// the sums and maxima of a threadgroup, whose order depends only on the sizes.
#pragma once

#include "device.h"

// The longest row that a warp holds in its registers: 32 numbers a lane.
#define LF_WARP_ROW 1024

// V consecutive numbers in memory, aligned to 4·V bytes.
template <int V>
struct lf_pack;
template <>
struct lf_pack<1> {
  float v[1];
  void load(device const float* p) { v[0] = *p; }
  void store(device float* p) const { *p = v[0]; }
};
template <>
struct lf_pack<4> {
  float v[4];
  void load(device const float* p) {
    float4 x = *(device const float4*)p;
    v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
  }
  void store(device float* p) const { *(device float4*)p = float4(v[0], v[1], v[2], v[3]); }
};

// Whether rows of n numbers at the pointers of mask, bits of their places in the
// launch, can be taken by four.
#define LF_FOURS(a, n, mask) (((n) & 3) == 0 && LF_WIDE_ALL(a, mask))

// The sum of v over the threadgroup, for all threads. part has room for one number
// of each warp, and is not to be used again before a barrier.
inline float lf_block_sum(lf_thread t, float v, threadgroup float* part) {
  v = lf_warp_sum(t, v);
  if (t.lane == 0) part[t.warp] = v;
  lf_barrier();
  return lf_warp_sum(t, t.lane < t.size / 32 ? part[t.lane] : 0.0f);
}

// The largest number m of a row and Σ exp(x − m), over as much of it as was
// added (Milakov and Gimelshein 2018, arXiv 1805.02867).
struct lf_softmax {
  float m, s;
  void start() { m = as_type<float>(0xff800000u), s = 0.0f; }

  // The number to subtract: 0 for a row of −Inf only, so that exp(x) = 0.
  float shift() const { return m == as_type<float>(0xff800000u) ? 0.0f : m; }

  template <int V>
  void add(thread const lf_pack<V>& x) {
    float top = x.v[0];
    for (int i = 1; i < V; i++) top = fmax(top, x.v[i]);
    if (top > m) {
      s *= exp(m - top);
      m = top;
    }
    float c = shift();
    for (int i = 0; i < V; i++) s += exp(x.v[i] - c);
  }

  // The two in one; of (a, b) the same bits as of (b, a).
  void join(lf_softmax o) {
    lf_softmax r;
    r.m = fmax(m, o.m);
    float c = r.shift();
    s = s * exp(m - c) + o.s * exp(o.m - c);
    m = r.m;
  }

  void join_warp(lf_thread t) {
    for (uint o = 16; o; o >>= 1) {
      lf_softmax other = {lf_shuffle_xor(t, m, o), lf_shuffle_xor(t, s, o)};
      join(other);
    }
  }

  // Over the threadgroup, for all threads; part as for lf_block_sum.
  void join_block(lf_thread t, threadgroup float2* part) {
    join_warp(t);
    if (t.lane == 0) part[t.warp] = float2(m, s);
    lf_barrier();
    start();
    if (t.lane < t.size / 32) m = part[t.lane].x, s = part[t.lane].y;
    join_warp(t);
  }
};

// All of a row by the threads of a threadgroup.
template <int V>
inline lf_softmax lf_softmax_row(lf_thread t, device const float* x, int n, threadgroup float2* part) {
  lf_softmax a;
  a.start();
  lf_pack<V> v;
  for (int j = t.index * V; j < n; j += t.size * V) {
    v.load(x + j);
    a.add(v);
  }
  a.join_block(t, part);
  return a;
}
