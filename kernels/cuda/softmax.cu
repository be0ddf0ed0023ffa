// Softmax of rows: y = exp(x − max x) / Σ exp(x − max x).
//
// Layout: x and y [rows, n]; y may share the memory of x.
// Grid: rows of up to 1024 numbers are held in the registers of a warp (…_warp, 8
//   rows a block); longer ones are read twice by a block (…_row): once for the
//   maximum and the sum, which are kept together and rescaled, and once, from
//   cache, for the result.
// Traffic: 8 bytes an element; bound by memory.
// Registers: warp 64 on sm_80, 95 on sm_90a; row 23, 27.
// Reference: for i { m = max_j x[i,j]; s = Σ_j exp(x[i,j] − m);
//                    for j { y[i,j] = exp(x[i,j] − m)/s } }
// A row of −Inf alone gives NaN, as in PyTorch.
#include "row.cuh"

#define LF_SOFTMAX_WARPS 8

template <int V>
LF_DEVICE void lf_softmax_warp(float* out, const float* x, int n) {
  lf_pack<V> v[LF_WARP_ROW / 32 / V];
  lf_softmax a;
  a.start();
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + threadIdx.x % 32) * V;
    if (j >= n) continue;
    v[k].load(x + j);
#pragma unroll
    for (int i = 0; i < V; i++) a.m = fmaxf(a.m, v[k].v[i]);
  }
  a.m = lf_warp_max(a.m);
  float c = a.shift();
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + threadIdx.x % 32) * V;
    if (j >= n) continue;
#pragma unroll
    for (int i = 0; i < V; i++) a.s += v[k].v[i] = expf(v[k].v[i] - c);
  }
  float f = 1.0f / lf_warp_sum(a.s);
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + threadIdx.x % 32) * V;
    if (j >= n) continue;
#pragma unroll
    for (int i = 0; i < V; i++) v[k].v[i] *= f;
    v[k].store(out + j);
  }
}

extern "C" __global__ void __launch_bounds__(32 * LF_SOFTMAX_WARPS) softmax_warp_f32(float* out, const float* x, long long rows, int n) {
  long long row = (long long)blockIdx.x * LF_SOFTMAX_WARPS + threadIdx.x / 32;
  if (row >= rows) return;
  if (lf_fours(n, out, x))
    lf_softmax_warp<4>(out + row * n, x + row * n, n);
  else
    lf_softmax_warp<1>(out + row * n, x + row * n, n);
}
LF_KERNEL(softmax_warp_f32);

template <int V>
LF_DEVICE void lf_softmax_block(float* out, const float* x, int n, lf_softmax* part) {
  lf_softmax a = lf_softmax_row<V>(x, n, part);
  float c = a.shift(), f = 1.0f / a.s;
  lf_pack<V> v;
  for (int j = threadIdx.x * V; j < n; j += blockDim.x * V) {
    v.load(x + j);
#pragma unroll
    for (int i = 0; i < V; i++) v.v[i] = expf(v.v[i] - c) * f;
    v.store(out + j);
  }
}

extern "C" __global__ void __launch_bounds__(1024) softmax_row_f32(float* out, const float* x, int n) {
  LF_SHARED(lf_softmax, part, [32]);
  long long at = (long long)blockIdx.x * n;
  if (lf_fours(n, out, x))
    lf_softmax_block<4>(out + at, x + at, n, part);
  else
    lf_softmax_block<1>(out + at, x + at, n, part);
}
LF_KERNEL(softmax_row_f32);

#ifdef LF_RACE
#include "../sim/test/race.h"
LF_RACE_CASE(softmax) {
  auto x = lf_race_noise<float>(2 * 1030);
  lf_race_launch(softmax_row_f32, {2}, {256}, 0, x.data(), x.data(), 1030);
  lf_race_launch(softmax_warp_f32, {2}, {256}, 0, x.data(), x.data(), 10, 206);
}
#endif
