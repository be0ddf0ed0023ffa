// Softmax of rows: y = exp(x − max x) / Σ exp(x − max x).
//
// Layout: x and y [rows, n]; y may share the memory of x.
// Grid: rows of up to 1024 numbers are held in the registers of a warp (…_warp, 8
//   rows a block); longer ones are
//   read twice by a block (…_row): once for the maximum and the sum, which are kept
//   together and rescaled, and once, from cache, for the result.
// Traffic: 8 bytes an element; bound by memory.
// Registers: warp 64 on sm_80, 95 on sm_90a; row 23, 27.
// Reference: for i { m = max_j x[i,j]; s = Σ_j exp(x[i,j] − m);
//                    for j { y[i,j] = exp(x[i,j] − m)/s } }
// A row of −Inf alone gives NaN, as in PyTorch.
#include "row.h"

#define LF_SOFTMAX_WARPS 8

template <int V>
LF_DEVICE void lf_softmax_warp(lf_thread t, LF_GLOBAL float* out, LF_GLOBAL const float* x, int n) {
  lf_pack<V> v[LF_WARP_ROW / 32 / V];
  lf_softmax a;
  a.start();
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + t.lane) * V;
    if (j >= n) continue;
    v[k].load(x + j);
#pragma unroll
    for (int i = 0; i < V; i++) a.m = lf_fmax(a.m, v[k].v[i]);
  }
  a.m = lf_warp_max(t, a.m);
  float c = a.shift();
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + t.lane) * V;
    if (j >= n) continue;
#pragma unroll
    for (int i = 0; i < V; i++) a.s += v[k].v[i] = lf_exp(v[k].v[i] - c);
  }
  float f = 1.0f / lf_warp_sum(t, a.s);
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + t.lane) * V;
    if (j >= n) continue;
#pragma unroll
    for (int i = 0; i < V; i++) v[k].v[i] *= f;
    v[k].store(out + j);
  }
}

LF_ENTRY(32 * LF_SOFTMAX_WARPS, softmax_warp_f32, ((float, out), (const float, x)), ((long, rows), (int, n))) {
  long row = (long)t.group.x * LF_SOFTMAX_WARPS + t.warp;
  if (LF_WARPS_RETURN && row >= rows) return;
  long at = row * n;
  int mine = row < rows ? n : 0;
  if ((n & 3) == 0 && LF_ALIGNED(out) && LF_ALIGNED(x))
    lf_softmax_warp<4>(t, out + at, x + at, mine);
  else
    lf_softmax_warp<1>(t, out + at, x + at, mine);
}

template <int V>
LF_DEVICE void lf_softmax_block(lf_thread t, LF_GLOBAL float* out, LF_GLOBAL const float* x, int n, LF_GROUP float2* part) {
  lf_softmax a = lf_softmax_row<V>(t, x, n, part);
  float c = a.shift(), f = 1.0f / a.s;
  lf_pack<V> v;
  for (int j = t.index * V; j < n; j += t.size * V) {
    v.load(x + j);
#pragma unroll
    for (int i = 0; i < V; i++) v.v[i] = lf_exp(v.v[i] - c) * f;
    v.store(out + j);
  }
}

LF_ENTRY_SHARED(1024, softmax_row_f32, ((float2, part, 32)), ((float, out), (const float, x)), ((int, n))) {
  long at = (long)t.group.x * n;
  if ((n & 3) == 0 && LF_ALIGNED(out) && LF_ALIGNED(x))
    lf_softmax_block<4>(t, out + at, x + at, n, part);
  else
    lf_softmax_block<1>(t, out + at, x + at, n, part);
}

#ifdef LF_RACE
LF_RACE_CASE(softmax) {
  auto x = lf_race_noise<float>(2 * 1030);
  lf_race_launch(softmax_row_f32, {2}, {256}, 0, x.data(), x.data(), 1030);
  lf_race_launch(softmax_warp_f32, {2}, {256}, 0, x.data(), x.data(), 10, 206);
}
#endif
