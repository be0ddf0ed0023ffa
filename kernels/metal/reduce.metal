// Sums, maxima and their places along one axis of [outer, n, inner].
//
//   sum:    out[o, i] = Σ_k x[o, k, i]
//   max:    out[o, i] = max_k x[o, k, i], NaN if there is one
//   argmax: out[o] = the first k with the largest x[o, k]
//
// Sums are compensated (Knuth's two-sum: every addition keeps its rounding
// error), so that they are as good as sums in double, which these devices do not
// have. The order is fixed by the sizes alone.
//
// Grid, inner = 1: a warp for a row (…_warp) where rows are short, a threadgroup of
//   256 threads for a row (…_row) where they are long. Else (…_cols) a threadgroup of
//   32 by 8 threads for 32 columns, of which each takes every eighth row.
// Traffic: the operand once; bound by memory.
// Reference: for o, i { s = 0; for k { s += x[o, k, i] }; out[o, i] = s }
#include "device.h"

// A sum and the error that its rounding has left behind.
struct lf_sum {
  float s, e;
  void start() { s = 0.0f, e = 0.0f; }
  void add(float x) {
    float t = s + x, z = t - s;
    e += (s - (t - z)) + (x - z);
    s = t;
  }
  void join(float2 o) {
    add(o.x);
    e += o.y;
  }
  float2 state() const { return float2(s, e); }
  float2 lane(lf_thread t, uint mask) const {
    float o = lf_shuffle_xor(t, s, mask);
    return float2(o, lf_shuffle_xor(t, e, mask));
  }
  // Infinite sums have a NaN for an error.
  float value() const {
    float t = s + e;
    return t != t ? s : t;
  }
};

struct lf_top {
  float s;
  void start() { s = as_type<float>(0xff800000u); }
  void add(float x) {
    if (x > s || x != x) s = s != s ? s : x;
  }
  void join(float2 o) { add(o.x); }
  float2 state() const { return float2(s, 0.0f); }
  float2 lane(lf_thread t, uint mask) const { return float2(lf_shuffle_xor(t, s, mask), 0.0f); }
  float value() const { return s; }
};

// The butterfly is the same sum in another order on every lane, so lane 0
// speaks for all.
template <class R>
inline R lf_join_warp(lf_thread t, R r) {
  for (uint m = 16; m; m >>= 1) {
    float2 o = r.lane(t, m);
    r.join(o);
  }
  return r;
}

template <class R>
inline void lf_reduce_warp(lf_thread t, device float* out, device const float* x, long rows, int n) {
  long row = (long)t.group.x * 8 + t.warp;
  R r;
  r.start();
  if (row < rows)
    for (int k = (int)t.lane; k < n; k += 32) r.add(x[row * n + k]);
  r = lf_join_warp(t, r);
  if (row < rows && t.lane == 0) out[row] = r.value();
}

template <class R>
inline void lf_reduce_row(lf_thread t, threadgroup float2* part, device float* out, device const float* x, long n) {
  device const float* row = x + t.group.x * n;
  R r;
  r.start();
  for (long k = t.index; k < n; k += 256) r.add(row[k]);
  r = lf_join_warp(t, r);
  if (t.lane == 0) part[t.warp] = r.state();
  lf_barrier();
  if (t.index == 0) {
    for (int w = 1; w < 8; w++) r.join(part[w]);
    out[t.group.x] = r.value();
  }
}

// outer is on y, which is short: threadgroups take several.
template <class R>
inline void lf_reduce_cols(lf_thread t, threadgroup float2* part, device float* out, device const float* x, long outer,
                           long n, long inner) {
  long i = (long)t.group.x * 32 + t.lane;
  for (long o = t.group.y; o < outer; o += t.groups.y) {
    R r;
    r.start();
    if (i < inner)
      for (long k = t.warp; k < n; k += 8) r.add(x[(o * n + k) * inner + i]);
    part[t.index] = r.state();
    lf_barrier();
    if (t.warp == 0 && i < inner) {
      for (int w = 1; w < 8; w++) r.join(part[32 * w + t.lane]);
      out[o * inner + i] = r.value();
    }
    lf_barrier();
  }
}

struct reduce_warp_args {
  LF_ARGS;
  long rows;
  int n;
};
struct reduce_row_args {
  LF_ARGS;
  long n;
};
struct reduce_cols_args {
  LF_ARGS;
  long outer, n, inner;
};
#define LF_REDUCE(name, R)                                                                                      \
  LF_KERNEL(256) reduce_##name##_warp_f32(device float* out [[buffer(0)]], device const float* x [[buffer(1)]], \
                                          constant reduce_warp_args& a [[buffer(2)]], LF_THREAD) {              \
    LF_BEGIN;                                                                                                   \
    lf_reduce_warp<R>(t, out, x, a.rows, a.n);                                                                  \
  }                                                                                                             \
  LF_KERNEL(256) reduce_##name##_row_f32(device float* out [[buffer(0)]], device const float* x [[buffer(1)]],  \
                                         constant reduce_row_args& a [[buffer(2)]], LF_THREAD) {                \
    LF_BEGIN;                                                                                                   \
    threadgroup float2 part[8];                                                                                 \
    lf_reduce_row<R>(t, part, out, x, a.n);                                                                     \
  }                                                                                                             \
  LF_KERNEL(256) reduce_##name##_cols_f32(device float* out [[buffer(0)]], device const float* x [[buffer(1)]], \
                                          constant reduce_cols_args& a [[buffer(2)]], LF_THREAD) {              \
    LF_BEGIN;                                                                                                   \
    threadgroup float2 part[8 * 32];                                                                            \
    lf_reduce_cols<R>(t, part, out, x, a.outer, a.n, a.inner);                                                  \
  }
LF_REDUCE(sum, lf_sum)
LF_REDUCE(max, lf_top)

// The larger one wins, the earlier one of equals. A NaN is never larger than
// another element; if it is first, no element is larger than it.
struct lf_best {
  float s;
  int k;
  void join(float t, int j) {
    if (t > s || (t == s && j < k) || (s != s && t == t)) s = t, k = j;
  }
};

struct argmax_args {
  LF_ARGS;
  long rows;
  int n;
};
LF_KERNEL(256) argmax_f32(device int* out [[buffer(0)]], device const float* x [[buffer(1)]],
                          constant argmax_args& a [[buffer(2)]], LF_THREAD) {
  LF_BEGIN;
  long row = (long)t.group.x * 8 + t.warp;
  device const float* v = x + row * a.n;
  lf_best b = {as_type<float>(0x7fc00000u), 0};
  if (row < a.rows)
    for (int k = (int)t.lane; k < a.n; k += 32) b.join(v[k], k);
  for (uint m = 16; m; m >>= 1) {
    float s = lf_shuffle_xor(t, b.s, m);
    int k = lf_shuffle_xor(t, b.k, m);
    b.join(s, k);
  }
  if (row < a.rows && t.lane == 0) out[row] = a.n > 0 && v[0] != v[0] ? 0 : b.k;
}
