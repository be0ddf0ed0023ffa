// The largest number and the sum of exponentials of a row, whose order depends only on the
// sizes.
#pragma once

#include "mixed.h"
#include "row.h"

// The largest number m of a row and Σ exp(x − m), over as much of it as was
// added (Milakov and Gimelshein 2018, arXiv 1805.02867).
struct lf_softmax {
  float m, s;
  LF_DEVICE void start() { m = lf_from_bits(0xff800000u), s = 0.0f; }

  // The number to subtract: 0 for a row of −Inf only, so that exp(x) = 0.
  LF_DEVICE float shift() const { return m == lf_from_bits(0xff800000u) ? 0.0f : m; }

  template <int V>
  LF_DEVICE void add(LF_PRIVATE const lf_pack<V>& x) {
    float top = x.v[0];
#pragma unroll
    for (int i = 1; i < V; i++) top = lf_fmax(top, x.v[i]);
    if (top > m) {
      s *= lf_exp(m - top);
      m = top;
    }
    float c = shift();
#pragma unroll
    for (int i = 0; i < V; i++) s += lf_exp(x.v[i] - c);
  }

  // The two in one; of (a, b) the same bits as of (b, a).
  LF_DEVICE void join(lf_softmax o) {
    lf_softmax r;
    r.m = lf_fmax(m, o.m);
    float c = r.shift();
    s = s * lf_exp(m - c) + o.s * lf_exp(o.m - c);
    m = r.m;
  }

  LF_DEVICE void join_warp(lf_thread t) {
#pragma unroll
    for (uint o = 16; o; o >>= 1) {
      lf_softmax other = {lf_shuffle_xor(t, m, o), lf_shuffle_xor(t, s, o)};
      join(other);
    }
  }

  // Over the block, for all threads; part as for lf_block_sum.
  LF_DEVICE void join_block(lf_thread t, LF_GROUP float2* part) {
    join_warp(t);
    if (t.lane == 0) part[t.warp] = make_float2(m, s);
    lf_barrier();
    start();
    if (t.lane < t.size / 32) m = part[t.lane].x, s = part[t.lane].y;
    join_warp(t);
  }
};

// All of a row by the threads of a block: n numbers of an operand from number at on.
template <int V, class S>
LF_DEVICE lf_softmax lf_softmax_row(lf_thread t, S types, int operand, LF_GLOBAL const void* x, long at, int n, LF_GROUP float2* part) {
  lf_softmax a;
  a.start();
  lf_pack<V> v;
  for (int j = t.index * V; j < n; j += t.size * V) {
    lf_load(types, operand, x, at + j, v);
    a.add(v);
  }
  a.join_block(t, part);
  return a;
}
