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
#include "device.cuh"

// A sum and the error that its rounding has left behind.
struct lf_sum {
  float s, e;
  LF_DEVICE void start() { s = 0.0f, e = 0.0f; }
  LF_DEVICE void add(float x) {
    float t = s + x, z = t - s;
    e += (s - (t - z)) + (x - z);
    s = t;
  }
  LF_DEVICE void join(lf_sum o) {
    add(o.s);
    e += o.e;
  }
  LF_DEVICE lf_sum lane(int mask) const {
    lf_sum o = {__shfl_xor_sync(0xffffffffu, s, mask), __shfl_xor_sync(0xffffffffu, e, mask)};
    return o;
  }
  // Infinite sums have a NaN for an error.
  LF_DEVICE float value() const {
    float t = s + e;
    return t != t ? s : t;
  }
};

struct lf_top {
  float s;
  LF_DEVICE void start() { s = __uint_as_float(0xff800000u); }
  LF_DEVICE void add(float x) {
    if (x > s || x != x) s = s != s ? s : x;
  }
  LF_DEVICE void join(lf_top o) { add(o.s); }
  LF_DEVICE lf_top lane(int mask) const {
    lf_top o = {__shfl_xor_sync(0xffffffffu, s, mask)};
    return o;
  }
  LF_DEVICE float value() const { return s; }
};

// The butterfly is the same sum in another order on every lane, so lane 0
// speaks for all.
template <class R>
LF_DEVICE R lf_join_warp(R r) {
  for (int m = 16; m; m >>= 1) {
    R o = r.lane(m);
    r.join(o);
  }
  return r;
}

template <class R>
LF_DEVICE void lf_reduce_warp(float* out, const float* x, long long rows, int n) {
  long long row = (long long)blockIdx.x * 8 + threadIdx.x / 32;
  R r;
  r.start();
  if (row < rows)
    for (int k = threadIdx.x % 32; k < n; k += 32) r.add(x[row * n + k]);
  r = lf_join_warp(r);
  if (row < rows && threadIdx.x % 32 == 0) out[row] = r.value();
}

template <class R>
LF_DEVICE void lf_reduce_row(R* part, float* out, const float* x, long long n) {
  const float* row = x + blockIdx.x * n;
  R r;
  r.start();
  for (long long k = threadIdx.x; k < n; k += 256) r.add(row[k]);
  r = lf_join_warp(r);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = r;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < 8; w++) r.join(part[w]);
    out[blockIdx.x] = r.value();
  }
}

// outer is on y, which is short: blocks take several.
template <class R>
LF_DEVICE void lf_reduce_cols(R (*part)[32], float* out, const float* x, long long outer, long long n, long long inner) {
  int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
  long long i = (long long)blockIdx.x * 32 + tx;
  for (long long o = blockIdx.y; o < outer; o += gridDim.y) {
    R r;
    r.start();
    if (i < inner)
      for (long long k = ty; k < n; k += 8) r.add(x[(o * n + k) * inner + i]);
    part[ty][tx] = r;
    __syncthreads();
    if (ty == 0 && i < inner) {
      for (int w = 1; w < 8; w++) r.join(part[w][tx]);
      out[o * inner + i] = r.value();
    }
    __syncthreads();
  }
}

#define LF_REDUCE(name, R)                                                                                               \
  extern "C" __global__ void __launch_bounds__(256) reduce_##name##_warp_f32(float* out, const float* x, long long rows, int n) { \
    lf_reduce_warp<R>(out, x, rows, n);                                                                                  \
  }                                                                                                                      \
  LF_KERNEL(reduce_##name##_warp_f32);                                                                                   \
  extern "C" __global__ void __launch_bounds__(256) reduce_##name##_row_f32(float* out, const float* x, long long n) {   \
    LF_SHARED(R, part, [8]);                                                                                             \
    lf_reduce_row<R>(part, out, x, n);                                                                                   \
  }                                                                                                                      \
  LF_KERNEL(reduce_##name##_row_f32);                                                                                    \
  extern "C" __global__ void __launch_bounds__(256)                                                                      \
      reduce_##name##_cols_f32(float* out, const float* x, long long outer, long long n, long long inner) {              \
    LF_SHARED(R, part, [8][32]);                                                                                         \
    lf_reduce_cols<R>(part, out, x, outer, n, inner);                                                                    \
  }                                                                                                                      \
  LF_KERNEL(reduce_##name##_cols_f32);
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

extern "C" __global__ void __launch_bounds__(256) argmax_f32(int* out, const float* x, long long rows, int n) {
  long long row = (long long)blockIdx.x * 8 + threadIdx.x / 32;
  const float* v = x + row * n;
  lf_best b = {__uint_as_float(0x7fc00000u), 0};
  if (row < rows)
    for (int k = threadIdx.x % 32; k < n; k += 32) b.join(v[k], k);
  for (int m = 16; m; m >>= 1) {
    float s = __shfl_xor_sync(0xffffffffu, b.s, m);
    int k = __shfl_xor_sync(0xffffffffu, b.k, m);
    b.join(s, k);
  }
  if (row < rows && threadIdx.x % 32 == 0) out[row] = n > 0 && v[0] != v[0] ? 0 : b.k;
}
LF_KERNEL(argmax_f32);

#ifdef LF_RACE
#include "../sim/test/race.h"
LF_RACE_CASE(reduce) {
  auto x = lf_race_noise<float>(2 * 600), out = lf_race_noise<float>(40);
  lf_race_launch(reduce_sum_row_f32, {2}, {256}, 0, out.data(), x.data(), 600);
  lf_race_launch(reduce_max_cols_f32, {2, 2}, {256}, 0, out.data(), x.data(), 2, 15, 40);
}
#endif
