// RMSNorm (Zhang and Sennrich 2019, arXiv 1910.07467) and its gradient for x:
//
//   r  = 1/√(mean(x²) + eps)
//   y  = x · r · w
//   dx = r · (dy·w − x · r² · mean(dy·w·x))
//
// Layout: x, dy, y and dx [rows, d], w [d]; the output may share the memory of x or dy.
// Grid: rows of up to 1024 numbers are held in the registers of a warp (…_warp, 8
//   rows a threadgroup; a warp without a row takes part with no numbers); longer
//   ones are read twice by a threadgroup (…_row), from its cache the second time.
// Traffic: RMSNorm 8 bytes an element, its gradient 12, and w once for each
//   threadgroup, from cache; bound by memory.
// Reference: for i { r = 1/sqrt(Σ_j x[i,j]²/d + eps); for j { y[i,j] = x[i,j] r w[j] } }
#include "row.h"

#define LF_NORM_WARPS 8

// n numbers of the row are taken: d, or none.
template <int V>
inline void lf_rms_norm_warp(lf_thread t, device float* out, device const float* x, device const float* w, int n, int d, float eps) {
  lf_pack<V> v[LF_WARP_ROW / 32 / V], f;
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + t.lane) * V;
    if (j >= n) continue;
    v[k].load(x + j);
    for (int i = 0; i < V; i++) sum = fma(v[k].v[i], v[k].v[i], sum);
  }
  float r = 1.0f / sqrt(lf_warp_sum(t, sum) / (float)d + eps);
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + t.lane) * V;
    if (j >= n) continue;
    f.load(w + j);
    for (int i = 0; i < V; i++) v[k].v[i] *= r * f.v[i];
    v[k].store(out + j);
  }
}

struct rms_norm_warp_f32_args { LF_ARGS; long rows; int d; float eps; };

LF_KERNEL(32 * LF_NORM_WARPS)
rms_norm_warp_f32(device float* out [[buffer(0)]], device const float* x [[buffer(1)]], device const float* w [[buffer(2)]],
                  constant rms_norm_warp_f32_args& a [[buffer(3)]], LF_THREAD) {
  LF_BEGIN;
  long row = (long)t.group.x * LF_NORM_WARPS + t.warp, at = row * a.d;
  int n = row < a.rows ? a.d : 0;
  if (LF_FOURS(a, a.d, 7u))
    lf_rms_norm_warp<4>(t, out + at, x + at, w, n, a.d, a.eps);
  else
    lf_rms_norm_warp<1>(t, out + at, x + at, w, n, a.d, a.eps);
}

template <int V>
inline void lf_rms_norm_row(lf_thread t, device float* out, device const float* x, device const float* w, int d, float eps,
                            threadgroup float* part) {
  lf_pack<V> v, f;
  float sum = 0.0f;
  for (int j = t.index * V; j < d; j += t.size * V) {
    v.load(x + j);
    for (int i = 0; i < V; i++) sum = fma(v.v[i], v.v[i], sum);
  }
  float r = 1.0f / sqrt(lf_block_sum(t, sum, part) / (float)d + eps);
  for (int j = t.index * V; j < d; j += t.size * V) {
    v.load(x + j);
    f.load(w + j);
    for (int i = 0; i < V; i++) v.v[i] *= r * f.v[i];
    v.store(out + j);
  }
}

struct rms_norm_row_f32_args { LF_ARGS; int d; float eps; };

LF_KERNEL(1024)
rms_norm_row_f32(device float* out [[buffer(0)]], device const float* x [[buffer(1)]], device const float* w [[buffer(2)]],
                 constant rms_norm_row_f32_args& a [[buffer(3)]], LF_THREAD) {
  LF_BEGIN;
  threadgroup float part[32];
  long at = (long)t.group.x * a.d;
  if (LF_FOURS(a, a.d, 7u))
    lf_rms_norm_row<4>(t, out + at, x + at, w, a.d, a.eps, part);
  else
    lf_rms_norm_row<1>(t, out + at, x + at, w, a.d, a.eps, part);
}

// The two numbers of a row from its sums Σx² and Σ dy·w·x.
struct lf_norm_slope {
  float r, c;
  void set(float squares, float dot, int d, float eps) {
    r = 1.0f / sqrt(squares / (float)d + eps);
    c = dot / (float)d * r * r;
  }
  float of(float x, float u) const { return r * (u - x * c); }
};

template <int V>
inline void lf_rms_norm_grad_warp(lf_thread t, device float* dx, device const float* dy, device const float* x, device const float* w,
                                  int n, int d, float eps) {
  lf_pack<V> u[LF_WARP_ROW / 32 / V], v[LF_WARP_ROW / 32 / V], f;
  float squares = 0.0f, dots = 0.0f;
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + t.lane) * V;
    if (j >= n) continue;
    u[k].load(dy + j);
    v[k].load(x + j);
    f.load(w + j);
    for (int i = 0; i < V; i++) {
      u[k].v[i] *= f.v[i];
      squares = fma(v[k].v[i], v[k].v[i], squares);
      dots = fma(u[k].v[i], v[k].v[i], dots);
    }
  }
  squares = lf_warp_sum(t, squares);
  dots = lf_warp_sum(t, dots);
  lf_norm_slope s;
  s.set(squares, dots, d, eps);
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + t.lane) * V;
    if (j >= n) continue;
    for (int i = 0; i < V; i++) u[k].v[i] = s.of(v[k].v[i], u[k].v[i]);
    u[k].store(dx + j);
  }
}

struct rms_norm_grad_warp_f32_args { LF_ARGS; long rows; int d; float eps; };

LF_KERNEL(32 * LF_NORM_WARPS)
rms_norm_grad_warp_f32(device float* dx [[buffer(0)]], device const float* dy [[buffer(1)]], device const float* x [[buffer(2)]],
                       device const float* w [[buffer(3)]], constant rms_norm_grad_warp_f32_args& a [[buffer(4)]], LF_THREAD) {
  LF_BEGIN;
  long row = (long)t.group.x * LF_NORM_WARPS + t.warp, at = row * a.d;
  int n = row < a.rows ? a.d : 0;
  if (LF_FOURS(a, a.d, 15u))
    lf_rms_norm_grad_warp<4>(t, dx + at, dy + at, x + at, w, n, a.d, a.eps);
  else
    lf_rms_norm_grad_warp<1>(t, dx + at, dy + at, x + at, w, n, a.d, a.eps);
}

template <int V>
inline void lf_rms_norm_grad_row(lf_thread t, device float* dx, device const float* dy, device const float* x, device const float* w,
                                 int d, float eps, threadgroup float* part) {
  lf_pack<V> u, v, f;
  float squares = 0.0f, dots = 0.0f;
  for (int j = t.index * V; j < d; j += t.size * V) {
    u.load(dy + j);
    v.load(x + j);
    f.load(w + j);
    for (int i = 0; i < V; i++) {
      squares = fma(v.v[i], v.v[i], squares);
      dots = fma(u.v[i] * f.v[i], v.v[i], dots);
    }
  }
  squares = lf_block_sum(t, squares, part);
  dots = lf_block_sum(t, dots, part + 32);
  lf_norm_slope s;
  s.set(squares, dots, d, eps);
  for (int j = t.index * V; j < d; j += t.size * V) {
    u.load(dy + j);
    v.load(x + j);
    f.load(w + j);
    for (int i = 0; i < V; i++) u.v[i] = s.of(v.v[i], u.v[i] * f.v[i]);
    u.store(dx + j);
  }
}

struct rms_norm_grad_row_f32_args { LF_ARGS; int d; float eps; };

LF_KERNEL(1024)
rms_norm_grad_row_f32(device float* dx [[buffer(0)]], device const float* dy [[buffer(1)]], device const float* x [[buffer(2)]],
                      device const float* w [[buffer(3)]], constant rms_norm_grad_row_f32_args& a [[buffer(4)]], LF_THREAD) {
  LF_BEGIN;
  threadgroup float part[64];
  long at = (long)t.group.x * a.d;
  if (LF_FOURS(a, a.d, 15u))
    lf_rms_norm_grad_row<4>(t, dx + at, dy + at, x + at, w, a.d, a.eps, part);
  else
    lf_rms_norm_grad_row<1>(t, dx + at, dy + at, x + at, w, a.d, a.eps, part);
}
