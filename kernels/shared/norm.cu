// RMSNorm (Zhang and Sennrich 2019, arXiv 1910.07467) and its gradient for x:
//
//   r  = 1/√(mean(x²) + eps)
//   y  = x · r · w
//   dx = r · (dy·w − x · r² · mean(dy·w·x)) + addend
//
// Layout: x, dy, y, dx and addend [rows, d], w [d] in f32, f16 or bf16: kind 0, 1 or 2; the
//   output may share the memory of x, dy or addend, and addend may be absent. Kernels that
//   end in _stored take x, dy, addend and the output in f32 or bf16, by the bits of stored:
//   the output's is the lowest, and the fifth tells to round the result before the addend
//   is added.
// Grid: rows of up to 1024 numbers are held in the registers of a warp (…_warp, 8
//   rows a block); longer ones are
//   read twice by a block (…_row), from its cache the second time.
// Traffic: RMSNorm 8 bytes an element, its gradient 12, 16 with an addend, or half of that,
//   and w once for each block,
//   from cache; bound by memory.
// Registers: warp 64 and 104 (gradient) on sm_80, 80 and 104 on sm_90a, stored 55 and 94; row 26 to 32.
// Reference: for i { r = 1/sqrt(Σ_j x[i,j]²/d + eps); for j { y[i,j] = x[i,j] r w[j] } }
#include "mixed.h"
#include "row.h"

#define LF_NORM_WARPS 8

// The weights from j on.
template <int V>
LF_DEVICE lf_pack<V> lf_norm_weights(LF_GLOBAL const uchar* w, int kind, int j) {
  lf_pack<V> f;
  if (kind == 0) {
    f.load((LF_GLOBAL const float*)w + j);
    return f;
  }
#pragma unroll
  for (int i = 0; i < V; i++) {
    ushort u = ((LF_GLOBAL const ushort*)w)[j + i];
    f.v[i] = kind == 1 ? lf_as_f16::get(u) : lf_as_bf16::get(u);
  }
  return f;
}

// n numbers of the row are taken: d, or none.
template <int V, class S>
LF_DEVICE void lf_rms_norm_warp(lf_thread t, LF_GLOBAL void* out, LF_GLOBAL const void* x, LF_GLOBAL const uchar* w, int kind, long at, int n, int d,
                                float eps, S types) {
  lf_pack<V> v[LF_WARP_ROW / 32 / V];
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + t.lane) * V;
    if (j >= n) continue;
    lf_load(types, 1, x, at + j, v[k]);
#pragma unroll
    for (int i = 0; i < V; i++) sum = lf_fma(v[k].v[i], v[k].v[i], sum);
  }
  float r = 1.0f / lf_sqrt(lf_warp_sum(t, sum) / (float)d + eps);
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + t.lane) * V;
    if (j >= n) continue;
    lf_pack<V> f = lf_norm_weights<V>(w, kind, j);
#pragma unroll
    for (int i = 0; i < V; i++) v[k].v[i] *= r * f.v[i];
    lf_store(types, 0, out, at + j, v[k]);
  }
}

LF_ENTRY(32 * LF_NORM_WARPS, rms_norm_warp_f32, ((float, out), (const float, x), (const uchar, w)),
         ((long, rows), (int, d), (float, eps), (int, kind))) {
  lf_all_f32 types;
  long row = (long)t.group.x * LF_NORM_WARPS + t.warp;
  if (LF_WARPS_RETURN && row >= rows) return;
  int n = row < rows ? d : 0;
  if ((d & 3) == 0 && LF_ALIGNED(out) && LF_ALIGNED(x) && (kind != 0 || LF_ALIGNED(w)))
    lf_rms_norm_warp<4>(t, out, x, w, kind, row * d, n, d, eps, types);
  else
    lf_rms_norm_warp<1>(t, out, x, w, kind, row * d, n, d, eps, types);
}
LF_ENTRY(32 * LF_NORM_WARPS, rms_norm_warp_stored, ((uchar, out), (const uchar, x), (const uchar, w)),
         ((long, rows), (int, d), (float, eps), (int, kind), (int, stored))) {
  lf_mixed types = {stored};
  long row = (long)t.group.x * LF_NORM_WARPS + t.warp;
  if (LF_WARPS_RETURN && row >= rows) return;
  int n = row < rows ? d : 0;
  if ((d & 3) == 0 && LF_ALIGNED(out) && LF_ALIGNED(x) && (kind != 0 || LF_ALIGNED(w)))
    lf_rms_norm_warp<4>(t, out, x, w, kind, row * d, n, d, eps, types);
  else
    lf_rms_norm_warp<1>(t, out, x, w, kind, row * d, n, d, eps, types);
}

template <int V, class S>
LF_DEVICE void lf_rms_norm_row(lf_thread t, LF_GLOBAL void* out, LF_GLOBAL const void* x, LF_GLOBAL const uchar* w, int kind, int d, float eps,
                            LF_GROUP float* part, S types) {
  long at = (long)t.group.x * d;
  lf_pack<V> v;
  float sum = 0.0f;
  for (int j = t.index * V; j < d; j += t.size * V) {
    lf_load(types, 1, x, at + j, v);
#pragma unroll
    for (int i = 0; i < V; i++) sum = lf_fma(v.v[i], v.v[i], sum);
  }
  float r = 1.0f / lf_sqrt(lf_block_sum(t, sum, part) / (float)d + eps);
  for (int j = t.index * V; j < d; j += t.size * V) {
    lf_load(types, 1, x, at + j, v);
    lf_pack<V> f = lf_norm_weights<V>(w, kind, j);
#pragma unroll
    for (int i = 0; i < V; i++) v.v[i] *= r * f.v[i];
    lf_store(types, 0, out, at + j, v);
  }
}

LF_ENTRY_SHARED(1024, rms_norm_row_f32, ((float, part, 32)), ((float, out), (const float, x), (const uchar, w)),
                ((int, d), (float, eps), (int, kind))) {
  lf_all_f32 types;
  if ((d & 3) == 0 && LF_ALIGNED(out) && LF_ALIGNED(x) && (kind != 0 || LF_ALIGNED(w)))
    lf_rms_norm_row<4>(t, out, x, w, kind, d, eps, part, types);
  else
    lf_rms_norm_row<1>(t, out, x, w, kind, d, eps, part, types);
}
LF_ENTRY_SHARED(1024, rms_norm_row_stored, ((float, part, 32)), ((uchar, out), (const uchar, x), (const uchar, w)),
                ((int, d), (float, eps), (int, kind), (int, stored))) {
  lf_mixed types = {stored};
  if ((d & 3) == 0 && LF_ALIGNED(out) && LF_ALIGNED(x) && (kind != 0 || LF_ALIGNED(w)))
    lf_rms_norm_row<4>(t, out, x, w, kind, d, eps, part, types);
  else
    lf_rms_norm_row<1>(t, out, x, w, kind, d, eps, part, types);
}

// The two numbers of a row from its sums Σx² and Σ dy·w·x.
struct lf_norm_slope {
  float r, c;
  LF_DEVICE void set(float squares, float dot, int d, float eps) {
    r = 1.0f / lf_sqrt(squares / (float)d + eps);
    c = dot / (float)d * r * r;
  }
  LF_DEVICE float of(float x, float u) const { return r * (u - x * c); }
};

// Adds V numbers of the addend to v, if there is one.
template <int V, class S>
LF_DEVICE void lf_norm_add(S types, LF_GLOBAL const void* addend, bool adds, long at, LF_PRIVATE lf_pack<V>& v) {
  if (!adds) return;
  lf_pack<V> a;
  lf_load(types, 3, addend, at, a);
#pragma unroll
  for (int i = 0; i < V; i++) v.v[i] = lf_rounded(types, 4, v.v[i]) + a.v[i];
}

template <int V, class S>
LF_DEVICE void lf_rms_norm_grad_warp(lf_thread t, LF_GLOBAL void* dx, LF_GLOBAL const void* dy, LF_GLOBAL const void* x, LF_GLOBAL const uchar* w,
                                  int kind, LF_GLOBAL const void* addend, bool adds, long at, int n, int d, float eps, S types) {
  lf_pack<V> u[LF_WARP_ROW / 32 / V], v[LF_WARP_ROW / 32 / V], f;
  float squares = 0.0f, dots = 0.0f;
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + t.lane) * V;
    if (j >= n) continue;
    lf_load(types, 1, dy, at + j, u[k]);
    lf_load(types, 2, x, at + j, v[k]);
    f = lf_norm_weights<V>(w, kind, j);
#pragma unroll
    for (int i = 0; i < V; i++) {
      u[k].v[i] *= f.v[i];
      squares = lf_fma(v[k].v[i], v[k].v[i], squares);
      dots = lf_fma(u[k].v[i], v[k].v[i], dots);
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
#pragma unroll
    for (int i = 0; i < V; i++) u[k].v[i] = s.of(v[k].v[i], u[k].v[i]);
    lf_norm_add(types, addend, adds, at + j, u[k]);
    lf_store(types, 0, dx, at + j, u[k]);
  }
}

LF_ENTRY(32 * LF_NORM_WARPS, rms_norm_grad_warp_f32, ((float, dx), (const float, dy), (const float, x), (const uchar, w), (const float, addend)),
         ((long, rows), (int, d), (float, eps), (int, kind))) {
  lf_all_f32 types;
  long row = (long)t.group.x * LF_NORM_WARPS + t.warp;
  if (LF_WARPS_RETURN && row >= rows) return;
  int n = row < rows ? d : 0;
  if ((d & 3) == 0 && LF_ALIGNED(dx) && LF_ALIGNED(dy) && LF_ALIGNED(x) && (kind != 0 || LF_ALIGNED(w)) && (!LF_HAS(addend) || LF_ALIGNED(addend)))
    lf_rms_norm_grad_warp<4>(t, dx, dy, x, w, kind, addend, LF_HAS(addend), row * d, n, d, eps, types);
  else
    lf_rms_norm_grad_warp<1>(t, dx, dy, x, w, kind, addend, LF_HAS(addend), row * d, n, d, eps, types);
}
LF_ENTRY(32 * LF_NORM_WARPS, rms_norm_grad_warp_stored, ((uchar, dx), (const uchar, dy), (const uchar, x), (const uchar, w), (const uchar, addend)),
         ((long, rows), (int, d), (float, eps), (int, kind), (int, stored))) {
  lf_mixed types = {stored};
  long row = (long)t.group.x * LF_NORM_WARPS + t.warp;
  if (LF_WARPS_RETURN && row >= rows) return;
  int n = row < rows ? d : 0;
  if ((d & 3) == 0 && LF_ALIGNED(dx) && LF_ALIGNED(dy) && LF_ALIGNED(x) && (kind != 0 || LF_ALIGNED(w)) && (!LF_HAS(addend) || LF_ALIGNED(addend)))
    lf_rms_norm_grad_warp<4>(t, dx, dy, x, w, kind, addend, LF_HAS(addend), row * d, n, d, eps, types);
  else
    lf_rms_norm_grad_warp<1>(t, dx, dy, x, w, kind, addend, LF_HAS(addend), row * d, n, d, eps, types);
}

template <int V, class S>
LF_DEVICE void lf_rms_norm_grad_row(lf_thread t, LF_GLOBAL void* dx, LF_GLOBAL const void* dy, LF_GLOBAL const void* x, LF_GLOBAL const uchar* w,
                                 int kind, LF_GLOBAL const void* addend, bool adds, int d, float eps, LF_GROUP float* part, S types) {
  long at = (long)t.group.x * d;
  lf_pack<V> u, v, f;
  float squares = 0.0f, dots = 0.0f;
  for (int j = t.index * V; j < d; j += t.size * V) {
    lf_load(types, 1, dy, at + j, u);
    lf_load(types, 2, x, at + j, v);
    f = lf_norm_weights<V>(w, kind, j);
#pragma unroll
    for (int i = 0; i < V; i++) {
      squares = lf_fma(v.v[i], v.v[i], squares);
      dots = lf_fma(u.v[i] * f.v[i], v.v[i], dots);
    }
  }
  squares = lf_block_sum(t, squares, part);
  dots = lf_block_sum(t, dots, part + 32);
  lf_norm_slope s;
  s.set(squares, dots, d, eps);
  for (int j = t.index * V; j < d; j += t.size * V) {
    lf_load(types, 1, dy, at + j, u);
    lf_load(types, 2, x, at + j, v);
    f = lf_norm_weights<V>(w, kind, j);
#pragma unroll
    for (int i = 0; i < V; i++) u.v[i] = s.of(v.v[i], u.v[i] * f.v[i]);
    lf_norm_add(types, addend, adds, at + j, u);
    lf_store(types, 0, dx, at + j, u);
  }
}

LF_ENTRY_SHARED(1024, rms_norm_grad_row_f32, ((float, part, 64)), ((float, dx), (const float, dy), (const float, x), (const uchar, w), (const float, addend)),
                ((int, d), (float, eps), (int, kind))) {
  lf_all_f32 types;
  if ((d & 3) == 0 && LF_ALIGNED(dx) && LF_ALIGNED(dy) && LF_ALIGNED(x) && (kind != 0 || LF_ALIGNED(w)) && (!LF_HAS(addend) || LF_ALIGNED(addend)))
    lf_rms_norm_grad_row<4>(t, dx, dy, x, w, kind, addend, LF_HAS(addend), d, eps, part, types);
  else
    lf_rms_norm_grad_row<1>(t, dx, dy, x, w, kind, addend, LF_HAS(addend), d, eps, part, types);
}
LF_ENTRY_SHARED(1024, rms_norm_grad_row_stored, ((float, part, 64)), ((uchar, dx), (const uchar, dy), (const uchar, x), (const uchar, w), (const uchar, addend)),
                ((int, d), (float, eps), (int, kind), (int, stored))) {
  lf_mixed types = {stored};
  if ((d & 3) == 0 && LF_ALIGNED(dx) && LF_ALIGNED(dy) && LF_ALIGNED(x) && (kind != 0 || LF_ALIGNED(w)) && (!LF_HAS(addend) || LF_ALIGNED(addend)))
    lf_rms_norm_grad_row<4>(t, dx, dy, x, w, kind, addend, LF_HAS(addend), d, eps, part, types);
  else
    lf_rms_norm_grad_row<1>(t, dx, dy, x, w, kind, addend, LF_HAS(addend), d, eps, part, types);
}

#ifdef LF_RACE
LF_RACE_CASE(rms_norm) {
  auto x = lf_race_noise<float>(9 * 132), w = lf_race_noise<float>(132), dy = x;
  lf_race_launch(rms_norm_grad_warp_f32, {2}, {256}, 0, dy.data(), dy.data(), x.data(), (const unsigned char*)w.data(), nullptr, 9, 132, 1e-6f, 0);
  lf_race_launch(rms_norm_warp_f32, {2}, {256}, 0, x.data(), x.data(), (const unsigned char*)w.data(), 9, 132, 1e-6f, 0);
  lf_race_launch(rms_norm_grad_warp_stored, {2}, {256}, 0, dy.data(), dy.data(), x.data(), (const unsigned char*)w.data(), dy.data(), 9, 132, 1e-6f, 2, 15);
}
LF_RACE_CASE(rms_norm_row) {
  auto x = lf_race_noise<float>(2 * 1030), w = lf_race_noise<float>(1030), dy = x, sum = x;
  lf_race_launch(rms_norm_grad_row_f32, {2}, {256}, 0, sum.data(), dy.data(), x.data(), (const unsigned char*)w.data(), sum.data(), 1030, 1e-6f, 0);
  lf_race_launch(rms_norm_row_f32, {2}, {256}, 0, x.data(), x.data(), (const unsigned char*)w.data(), 1030, 1e-6f, 2);
  lf_race_launch(rms_norm_row_stored, {2}, {256}, 0, x.data(), x.data(), (const unsigned char*)w.data(), 1030, 1e-6f, 2, 3);
}
#endif
