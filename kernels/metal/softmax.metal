// Softmax of rows: y = exp(x − max x) / Σ exp(x − max x).
//
// Layout: x and y [rows, n]; y may share the memory of x.
// Grid: rows of up to 1024 numbers are held in the registers of a warp (…_warp, 8
//   rows a threadgroup; a warp without a row takes part with no numbers); longer
//   ones are read twice by a threadgroup (…_row): once for the maximum and the sum,
//   which are kept together and rescaled, and once, from cache, for the result.
// Traffic: 8 bytes an element; bound by memory.
// Reference: for i { m = max_j x[i,j]; s = Σ_j exp(x[i,j] − m);
//                    for j { y[i,j] = exp(x[i,j] − m)/s } }
// A row of −Inf alone gives NaN, as in PyTorch.
#include "row.h"

#define LF_SOFTMAX_WARPS 8

template <int V>
inline void lf_softmax_warp(lf_thread t, device float* out, device const float* x, int n) {
  lf_pack<V> v[LF_WARP_ROW / 32 / V];
  lf_softmax a;
  a.start();
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + t.lane) * V;
    if (j >= n) continue;
    v[k].load(x + j);
    for (int i = 0; i < V; i++) a.m = fmax(a.m, v[k].v[i]);
  }
  a.m = lf_warp_max(t, a.m);
  float c = a.shift();
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + t.lane) * V;
    if (j >= n) continue;
    for (int i = 0; i < V; i++) a.s += v[k].v[i] = exp(v[k].v[i] - c);
  }
  float f = 1.0f / lf_warp_sum(t, a.s);
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + t.lane) * V;
    if (j >= n) continue;
    for (int i = 0; i < V; i++) v[k].v[i] *= f;
    v[k].store(out + j);
  }
}

struct softmax_warp_f32_args { LF_ARGS; long rows; int n; };

LF_KERNEL(32 * LF_SOFTMAX_WARPS)
softmax_warp_f32(device float* out [[buffer(0)]], device const float* x [[buffer(1)]], constant softmax_warp_f32_args& a [[buffer(2)]],
                 LF_THREAD) {
  LF_BEGIN;
  long row = (long)t.group.x * LF_SOFTMAX_WARPS + t.warp, at = row * a.n;
  int n = row < a.rows ? a.n : 0;
  if (LF_FOURS(a, a.n, 3u))
    lf_softmax_warp<4>(t, out + at, x + at, n);
  else
    lf_softmax_warp<1>(t, out + at, x + at, n);
}

template <int V>
inline void lf_softmax_block(lf_thread t, device float* out, device const float* x, int n, threadgroup float2* part) {
  lf_softmax a = lf_softmax_row<V>(t, x, n, part);
  float c = a.shift(), f = 1.0f / a.s;
  lf_pack<V> v;
  for (int j = t.index * V; j < n; j += t.size * V) {
    v.load(x + j);
    for (int i = 0; i < V; i++) v.v[i] = exp(v.v[i] - c) * f;
    v.store(out + j);
  }
}

struct softmax_row_f32_args { LF_ARGS; int n; };

LF_KERNEL(1024)
softmax_row_f32(device float* out [[buffer(0)]], device const float* x [[buffer(1)]], constant softmax_row_f32_args& a [[buffer(2)]],
                LF_THREAD) {
  LF_BEGIN;
  threadgroup float2 part[32];
  long at = (long)t.group.x * a.n;
  if (LF_FOURS(a, a.n, 3u))
    lf_softmax_block<4>(t, out + at, x + at, a.n, part);
  else
    lf_softmax_block<1>(t, out + at, x + at, a.n, part);
}
