// Sums, maxima and their places along one axis of [outer, n, inner].
//
//   sum:    out[o, i] = Σ_k x[o, k, i]
//   max:    out[o, i] = max_k x[o, k, i], NaN if there is one
//   argmax: out[o] = the first k with the largest x[o, k]
//
// Sums are compensated (Knuth's two-sum: every addition keeps its rounding
// error), so that they are as good as sums in double, which many GPUs are slow
// at. The order is fixed by the sizes alone.
//
// Grid, inner = 1: a warp for a row (…_warp) where rows are short, a block of 256
//   threads for a row (…_row) where they are long. Else (…_cols) a block of 32 by
//   8 threads for 32 columns, of which each takes every eighth row.
// Traffic: the operand once; bound by memory.
// Reference: for o, i { s = 0; for k { s += x[o, k, i] }; out[o, i] = s }
#include "device.h"

// A sum and the error that its rounding has left behind.
struct lf_sum {
  float s, e;
  LF_DEVICE void start() { s = 0.0f, e = 0.0f; }
  LF_DEVICE void add(float x) {
    float t = s + x, z = t - s;
    e += (s - (t - z)) + (x - z);
    s = t;
  }
  LF_DEVICE void join(float2 o) {
    add(o.x);
    e += o.y;
  }
  LF_DEVICE float2 state() const { return make_float2(s, e); }
  LF_DEVICE float2 lane(lf_thread t, uint mask) const {
    float o = lf_shuffle_xor(t, s, mask);
    return make_float2(o, lf_shuffle_xor(t, e, mask));
  }
  // Infinite sums have a NaN for an error.
  LF_DEVICE float value() const {
    float t = s + e;
    return t != t ? s : t;
  }
};

struct lf_top {
  float s;
  LF_DEVICE void start() { s = lf_from_bits(0xff800000u); }
  LF_DEVICE void add(float x) {
    if (x > s || x != x) s = s != s ? s : x;
  }
  LF_DEVICE void join(float2 o) { add(o.x); }
  LF_DEVICE float2 state() const { return make_float2(s, 0.0f); }
  LF_DEVICE float2 lane(lf_thread t, uint mask) const { return make_float2(lf_shuffle_xor(t, s, mask), 0.0f); }
  LF_DEVICE float value() const { return s; }
};

// The butterfly is the same sum in another order on every lane, so lane 0
// speaks for all.
template <class R>
LF_DEVICE R lf_join_warp(lf_thread t, R r) {
  for (uint m = 16; m; m >>= 1) {
    float2 o = r.lane(t, m);
    r.join(o);
  }
  return r;
}

template <class R>
LF_DEVICE void lf_reduce_warp(lf_thread t, LF_GLOBAL float* out, LF_GLOBAL const float* x, long rows, int n) {
  long row = (long)t.group.x * 8 + t.warp;
  R r;
  r.start();
  if (row < rows)
    for (int k = (int)t.lane; k < n; k += 32) r.add(x[row * n + k]);
  r = lf_join_warp(t, r);
  if (row < rows && t.lane == 0) out[row] = r.value();
}

template <class R>
LF_DEVICE void lf_reduce_row(lf_thread t, LF_GROUP float2* part, LF_GLOBAL float* out, LF_GLOBAL const float* x, long n) {
  LF_GLOBAL const float* row = x + t.group.x * n;
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

// outer is on y, which is short: blocks take several.
template <class R>
LF_DEVICE void lf_reduce_cols(lf_thread t, LF_GROUP float2* part, LF_GLOBAL float* out, LF_GLOBAL const float* x, long outer,
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

#define LF_REDUCE(name, R)                                                                                   \
  LF_ENTRY(256, reduce_##name##_warp_f32, ((float, out), (const float, x)), ((long, rows), (int, n))) {       \
    lf_reduce_warp<R>(t, out, x, rows, n);                                                                    \
  }                                                                                                           \
  LF_ENTRY_SHARED(256, reduce_##name##_row_f32, ((float2, part, 8)), ((float, out), (const float, x)), ((long, n))) { \
    lf_reduce_row<R>(t, part, out, x, n);                                                                     \
  }                                                                                                           \
  LF_ENTRY_SHARED(256, reduce_##name##_cols_f32, ((float2, part, 8 * 32)), ((float, out), (const float, x)),  \
                  ((long, outer), (long, n), (long, inner))) {                                                \
    lf_reduce_cols<R>(t, part, out, x, outer, n, inner);                                                      \
  }
LF_REDUCE(sum, lf_sum)
LF_REDUCE(max, lf_top)

// The larger one wins, the earlier one of equals. A NaN is never larger than
// another element; if it is first, no element is larger than it.
struct lf_best {
  float s;
  int k;
  LF_DEVICE void join(float t, int j) {
    if (t > s || (t == s && j < k) || (s != s && t == t)) s = t, k = j;
  }
};

LF_ENTRY(256, argmax_f32, ((int, out), (const float, x)), ((long, rows), (int, n))) {
  long row = (long)t.group.x * 8 + t.warp;
  LF_GLOBAL const float* v = x + row * n;
  lf_best b = {lf_from_bits(0x7fc00000u), 0};
  if (row < rows)
    for (int k = (int)t.lane; k < n; k += 32) b.join(v[k], k);
  for (uint m = 16; m; m >>= 1) {
    float s = lf_shuffle_xor(t, b.s, m);
    int k = lf_shuffle_xor(t, b.k, m);
    b.join(s, k);
  }
  if (row < rows && t.lane == 0) out[row] = n > 0 && v[0] != v[0] ? 0 : b.k;
}

#ifdef LF_RACE
LF_RACE_CASE(reduce) {
  auto x = lf_race_noise<float>(2 * 600), out = lf_race_noise<float>(40);
  lf_race_launch(reduce_sum_row_f32, {2}, {256}, 0, out.data(), x.data(), 600);
  lf_race_launch(reduce_max_cols_f32, {2, 2}, {256}, 0, out.data(), x.data(), 2, 15, 40);
}
#endif
