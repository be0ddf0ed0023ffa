// Softmax of rows: y = exp(x − max x) / Σ exp(x − max x).
//
// Layout: x and y [rows, n]; y may share the memory of x. Kernels that end in _stored take y
//   and x in f32 or bf16, by bits 0 and 1 of stored.
// Grid: rows of up to 1024 numbers are held in the registers of a warp (…_warp, 8
//   rows a block); longer ones are
//   read twice by a block (…_row): once for the maximum and the sum, which are kept
//   together and rescaled, and once, from cache, for the result.
// Traffic: 8 bytes an element, or 4; bound by memory.
// Registers: warp 64 and 95 (stored) on sm_80, 95 and 96 on sm_90a; row 23 to 28.
// Reference: for i { m = max_j x[i,j]; s = Σ_j exp(x[i,j] − m);
//                    for j { y[i,j] = exp(x[i,j] − m)/s } }
// A row of −Inf alone gives NaN, as in PyTorch.
#include "softmax.h"

#define LF_SOFTMAX_WARPS 8

// n numbers of the row are taken: all, or none.
template <int V, class S>
LF_DEVICE void lf_softmax_warp(lf_thread t, LF_GLOBAL void* out, LF_GLOBAL const void* x, long at, int n, S types) {
  lf_pack<V> v[LF_WARP_ROW / 32 / V];
  lf_softmax a;
  a.start();
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + t.lane) * V;
    if (j >= n) continue;
    lf_load(types, 1, x, at + j, v[k]);
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
    lf_store(types, 0, out, at + j, v[k]);
  }
}

#define LF_SOFTMAX_WARP(types)                                    \
  long row = (long)t.group.x * LF_SOFTMAX_WARPS + t.warp;         \
  if (LF_WARPS_RETURN && row >= rows) return;                     \
  int mine = row < rows ? n : 0;                                  \
  if ((n & 3) == 0 && LF_ALIGNED(out) && LF_ALIGNED(x))           \
    lf_softmax_warp<4>(t, out, x, row * n, mine, types);          \
  else                                                            \
    lf_softmax_warp<1>(t, out, x, row * n, mine, types);
LF_ENTRY(32 * LF_SOFTMAX_WARPS, softmax_warp_f32, ((float, out), (const float, x)), ((long, rows), (int, n))) {
  lf_all_f32 types;
  LF_SOFTMAX_WARP(types)
}
LF_ENTRY(32 * LF_SOFTMAX_WARPS, softmax_warp_stored, ((uchar, out), (const uchar, x)), ((long, rows), (int, n), (int, stored))) {
  lf_mixed types = {stored};
  LF_SOFTMAX_WARP(types)
}

template <int V, class S>
LF_DEVICE void lf_softmax_block(lf_thread t, LF_GLOBAL void* out, LF_GLOBAL const void* x, int n, LF_GROUP float2* part, S types) {
  long at = (long)t.group.x * n;
  lf_softmax a = lf_softmax_row<V>(t, types, 1, x, at, n, part);
  float c = a.shift(), f = 1.0f / a.s;
  lf_pack<V> v;
  for (int j = t.index * V; j < n; j += t.size * V) {
    lf_load(types, 1, x, at + j, v);
#pragma unroll
    for (int i = 0; i < V; i++) v.v[i] = lf_exp(v.v[i] - c) * f;
    lf_store(types, 0, out, at + j, v);
  }
}

#define LF_SOFTMAX_ROW(types)                                     \
  if ((n & 3) == 0 && LF_ALIGNED(out) && LF_ALIGNED(x))           \
    lf_softmax_block<4>(t, out, x, n, part, types);               \
  else                                                            \
    lf_softmax_block<1>(t, out, x, n, part, types);
LF_ENTRY_SHARED(1024, softmax_row_f32, ((float2, part, 32)), ((float, out), (const float, x)), ((int, n))) {
  lf_all_f32 types;
  LF_SOFTMAX_ROW(types)
}
LF_ENTRY_SHARED(1024, softmax_row_stored, ((float2, part, 32)), ((uchar, out), (const uchar, x)), ((int, n), (int, stored))) {
  lf_mixed types = {stored};
  LF_SOFTMAX_ROW(types)
}

#ifdef LF_RACE
LF_RACE_CASE(softmax) {
  auto x = lf_race_noise<float>(2 * 1030);
  lf_race_launch(softmax_row_f32, {2}, {256}, 0, x.data(), x.data(), 1030);
  lf_race_launch(softmax_warp_f32, {2}, {256}, 0, x.data(), x.data(), 10, 206);
  lf_race_launch(softmax_row_stored, {2}, {256}, 0, (uchar*)x.data(), (uchar*)x.data(), 1030, 3);
  lf_race_launch(softmax_warp_stored, {2}, {256}, 0, (uchar*)x.data(), (uchar*)x.data(), 10, 206, 3);
}
#endif
