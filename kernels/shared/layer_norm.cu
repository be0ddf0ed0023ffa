// LayerNorm (Ba et al. 2016, arXiv 1607.06450) and its gradient for x:
//
//   m  = mean(x), c = x − m, r = 1/√(mean(c²) + eps)
//   y  = c · r · w + b
//   dx = r · (u − mean(u) − c · r² · mean(u·c)), u = dy·w
//
// Layout: x, dy, y and dx [rows, d], w and b [d] or absent; the output may share the
//   memory of x or dy. Kernels that end in _stored take x, dy and the output in f32 or
//   bf16, by the bits of stored: the output's is the lowest.
// Grid: rows of up to 1024 numbers are held in the registers of a warp (…_warp, 8
//   rows a block); longer ones are read three times by a block (…_row), from its cache
//   after the first. Squares are summed when the mean is known.
// Traffic: LayerNorm 8 bytes an element, its gradient 12, or 4 and 6, and w and b once for each
//   block, from cache; bound by memory.
// Registers: warp 64 and 111 (gradient) on sm_80, 101 and 115 on sm_90a, stored 77 and 117; row 25 to 31.
// Reference: for i { m = Σ_j x[i,j]/d; r = 1/sqrt(Σ_j (x[i,j]−m)²/d + eps);
//            for j { y[i,j] = (x[i,j]−m) r w[j] + b[j] } }
#include "mixed.h"
#include "row.h"

#define LF_NORM_WARPS 8

// The weight and the bias, where there are such.
struct lf_affine {
  LF_GLOBAL const float *w, *b;
  bool has_w, has_b;

  // u·w, from column j on.
  template <int V>
  LF_DEVICE void scale(LF_PRIVATE lf_pack<V>& u, int j) const {
    if (!has_w) return;
    lf_pack<V> f;
    f.load(w + j);
#pragma unroll
    for (int i = 0; i < V; i++) u.v[i] *= f.v[i];
  }

  // u + b.
  template <int V>
  LF_DEVICE void shift(LF_PRIVATE lf_pack<V>& u, int j) const {
    if (!has_b) return;
    lf_pack<V> f;
    f.load(b + j);
#pragma unroll
    for (int i = 0; i < V; i++) u.v[i] += f.v[i];
  }
};

LF_DEVICE float lf_inverse_deviation(float squares, int d, float eps) { return 1.0f / lf_sqrt(squares / (float)d + eps); }

// n numbers of the row are taken: d, or none.
template <int V, class S>
LF_DEVICE void lf_layer_norm_warp(lf_thread t, LF_GLOBAL void* out, LF_GLOBAL const void* x, lf_affine p, long at, int n, int d, float eps, S types) {
  lf_pack<V> v[LF_WARP_ROW / 32 / V];
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + t.lane) * V;
    if (j >= n) continue;
    lf_load(types, 1, x, at + j, v[k]);
#pragma unroll
    for (int i = 0; i < V; i++) sum += v[k].v[i];
  }
  float mean = lf_warp_sum(t, sum) / (float)d;
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    if ((int)(k * 32 + t.lane) * V >= n) continue;
#pragma unroll
    for (int i = 0; i < V; i++) {
      v[k].v[i] -= mean;
      squares = lf_fma(v[k].v[i], v[k].v[i], squares);
    }
  }
  float r = lf_inverse_deviation(lf_warp_sum(t, squares), d, eps);
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + t.lane) * V;
    if (j >= n) continue;
#pragma unroll
    for (int i = 0; i < V; i++) v[k].v[i] *= r;
    p.scale(v[k], j);
    p.shift(v[k], j);
    lf_store(types, 0, out, at + j, v[k]);
  }
}

#define LF_LAYER_NORM_WARP(types)                                                                                         \
  long row = (long)t.group.x * LF_NORM_WARPS + t.warp;                                                                    \
  if (LF_WARPS_RETURN && row >= rows) return;                                                                             \
  int n = row < rows ? d : 0;                                                                                             \
  lf_affine p = {w, b, LF_HAS(w), LF_HAS(b)};                                                                             \
  if ((d & 3) == 0 && LF_ALIGNED(out) && LF_ALIGNED(x) && (!LF_HAS(w) || LF_ALIGNED(w)) && (!LF_HAS(b) || LF_ALIGNED(b))) \
    lf_layer_norm_warp<4>(t, out, x, p, row * d, n, d, eps, types);                                                       \
  else                                                                                                                    \
    lf_layer_norm_warp<1>(t, out, x, p, row * d, n, d, eps, types);

LF_ENTRY(32 * LF_NORM_WARPS, layer_norm_warp_f32, ((float, out), (const float, x), (const float, w), (const float, b)),
         ((long, rows), (int, d), (float, eps))) {
  lf_all_f32 types;
  LF_LAYER_NORM_WARP(types)
}
LF_ENTRY(32 * LF_NORM_WARPS, layer_norm_warp_stored, ((uchar, out), (const uchar, x), (const float, w), (const float, b)),
         ((long, rows), (int, d), (float, eps), (int, stored))) {
  lf_mixed types = {stored};
  LF_LAYER_NORM_WARP(types)
}

template <int V, class S>
LF_DEVICE void lf_layer_norm_row(lf_thread t, LF_GLOBAL void* out, LF_GLOBAL const void* x, lf_affine p, int d, float eps, LF_GROUP float* part, S types) {
  long at = (long)t.group.x * d;
  lf_pack<V> v;
  float sum = 0.0f, squares = 0.0f;
  for (int j = t.index * V; j < d; j += t.size * V) {
    lf_load(types, 1, x, at + j, v);
#pragma unroll
    for (int i = 0; i < V; i++) sum += v.v[i];
  }
  float mean = lf_block_sum(t, sum, part) / (float)d;
  for (int j = t.index * V; j < d; j += t.size * V) {
    lf_load(types, 1, x, at + j, v);
#pragma unroll
    for (int i = 0; i < V; i++) squares = lf_fma(v.v[i] - mean, v.v[i] - mean, squares);
  }
  float r = lf_inverse_deviation(lf_block_sum(t, squares, part + 32), d, eps);
  for (int j = t.index * V; j < d; j += t.size * V) {
    lf_load(types, 1, x, at + j, v);
#pragma unroll
    for (int i = 0; i < V; i++) v.v[i] = (v.v[i] - mean) * r;
    p.scale(v, j);
    p.shift(v, j);
    lf_store(types, 0, out, at + j, v);
  }
}

#define LF_LAYER_NORM_ROW(types)                                                                                          \
  lf_affine p = {w, b, LF_HAS(w), LF_HAS(b)};                                                                             \
  if ((d & 3) == 0 && LF_ALIGNED(out) && LF_ALIGNED(x) && (!LF_HAS(w) || LF_ALIGNED(w)) && (!LF_HAS(b) || LF_ALIGNED(b))) \
    lf_layer_norm_row<4>(t, out, x, p, d, eps, part, types);                                                              \
  else                                                                                                                    \
    lf_layer_norm_row<1>(t, out, x, p, d, eps, part, types);

LF_ENTRY_SHARED(1024, layer_norm_row_f32, ((float, part, 64)), ((float, out), (const float, x), (const float, w), (const float, b)),
                ((int, d), (float, eps))) {
  lf_all_f32 types;
  LF_LAYER_NORM_ROW(types)
}
LF_ENTRY_SHARED(1024, layer_norm_row_stored, ((float, part, 64)), ((uchar, out), (const uchar, x), (const float, w), (const float, b)),
                ((int, d), (float, eps), (int, stored))) {
  lf_mixed types = {stored};
  LF_LAYER_NORM_ROW(types)
}

// The numbers of a row of the gradient from its sums Σc², Σu and Σ u·c.
struct lf_layer_norm_slope {
  float r, shift, slope;
  LF_DEVICE void set(float squares, float sum, float cross, int d, float eps) {
    r = lf_inverse_deviation(squares, d, eps);
    shift = sum / (float)d;
    slope = cross / (float)d * r * r;
  }
  LF_DEVICE float of(float c, float u) const { return r * (u - shift - c * slope); }
};

template <int V, class S>
LF_DEVICE void lf_layer_norm_grad_warp(lf_thread t, LF_GLOBAL void* dx, LF_GLOBAL const void* dy, LF_GLOBAL const void* x, lf_affine p, long at, int n,
                                       int d, float eps, S types) {
  lf_pack<V> u[LF_WARP_ROW / 32 / V], v[LF_WARP_ROW / 32 / V];
  float sum_x = 0.0f, sum = 0.0f, squares = 0.0f, cross = 0.0f;
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + t.lane) * V;
    if (j >= n) continue;
    lf_load(types, 1, dy, at + j, u[k]);
    lf_load(types, 2, x, at + j, v[k]);
    p.scale(u[k], j);
#pragma unroll
    for (int i = 0; i < V; i++) sum += u[k].v[i], sum_x += v[k].v[i];
  }
  float mean = lf_warp_sum(t, sum_x) / (float)d;
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    if ((int)(k * 32 + t.lane) * V >= n) continue;
#pragma unroll
    for (int i = 0; i < V; i++) {
      float c = v[k].v[i] -= mean;
      squares = lf_fma(c, c, squares);
      cross = lf_fma(u[k].v[i], c, cross);
    }
  }
  sum = lf_warp_sum(t, sum);
  squares = lf_warp_sum(t, squares);
  cross = lf_warp_sum(t, cross);
  lf_layer_norm_slope s;
  s.set(squares, sum, cross, d, eps);
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + t.lane) * V;
    if (j >= n) continue;
#pragma unroll
    for (int i = 0; i < V; i++) u[k].v[i] = s.of(v[k].v[i], u[k].v[i]);
    lf_store(types, 0, dx, at + j, u[k]);
  }
}

#define LF_LAYER_NORM_GRAD_WARP(types)                                                                    \
  long row = (long)t.group.x * LF_NORM_WARPS + t.warp;                                                    \
  if (LF_WARPS_RETURN && row >= rows) return;                                                             \
  int n = row < rows ? d : 0;                                                                             \
  lf_affine p = {w, w, LF_HAS(w), false};                                                                 \
  if ((d & 3) == 0 && LF_ALIGNED(dx) && LF_ALIGNED(dy) && LF_ALIGNED(x) && (!LF_HAS(w) || LF_ALIGNED(w))) \
    lf_layer_norm_grad_warp<4>(t, dx, dy, x, p, row * d, n, d, eps, types);                               \
  else                                                                                                    \
    lf_layer_norm_grad_warp<1>(t, dx, dy, x, p, row * d, n, d, eps, types);

LF_ENTRY(32 * LF_NORM_WARPS, layer_norm_grad_warp_f32, ((float, dx), (const float, dy), (const float, x), (const float, w)),
         ((long, rows), (int, d), (float, eps))) {
  lf_all_f32 types;
  LF_LAYER_NORM_GRAD_WARP(types)
}
LF_ENTRY(32 * LF_NORM_WARPS, layer_norm_grad_warp_stored, ((uchar, dx), (const uchar, dy), (const uchar, x), (const float, w)),
         ((long, rows), (int, d), (float, eps), (int, stored))) {
  lf_mixed types = {stored};
  LF_LAYER_NORM_GRAD_WARP(types)
}

template <int V, class S>
LF_DEVICE void lf_layer_norm_grad_row(lf_thread t, LF_GLOBAL void* dx, LF_GLOBAL const void* dy, LF_GLOBAL const void* x, lf_affine p, int d, float eps,
                                      LF_GROUP float* part, S types) {
  long at = (long)t.group.x * d;
  lf_pack<V> u, v;
  float sum_x = 0.0f, sum = 0.0f, squares = 0.0f, cross = 0.0f;
  for (int j = t.index * V; j < d; j += t.size * V) {
    lf_load(types, 2, x, at + j, v);
#pragma unroll
    for (int i = 0; i < V; i++) sum_x += v.v[i];
  }
  float mean = lf_block_sum(t, sum_x, part) / (float)d;
  for (int j = t.index * V; j < d; j += t.size * V) {
    lf_load(types, 1, dy, at + j, u);
    lf_load(types, 2, x, at + j, v);
    p.scale(u, j);
#pragma unroll
    for (int i = 0; i < V; i++) {
      float c = v.v[i] - mean;
      squares = lf_fma(c, c, squares);
      sum += u.v[i];
      cross = lf_fma(u.v[i], c, cross);
    }
  }
  squares = lf_block_sum(t, squares, part + 32);
  sum = lf_block_sum(t, sum, part + 64);
  cross = lf_block_sum(t, cross, part + 96);
  lf_layer_norm_slope s;
  s.set(squares, sum, cross, d, eps);
  for (int j = t.index * V; j < d; j += t.size * V) {
    lf_load(types, 1, dy, at + j, u);
    lf_load(types, 2, x, at + j, v);
    p.scale(u, j);
#pragma unroll
    for (int i = 0; i < V; i++) u.v[i] = s.of(v.v[i] - mean, u.v[i]);
    lf_store(types, 0, dx, at + j, u);
  }
}

#define LF_LAYER_NORM_GRAD_ROW(types)                                                                     \
  lf_affine p = {w, w, LF_HAS(w), false};                                                                 \
  if ((d & 3) == 0 && LF_ALIGNED(dx) && LF_ALIGNED(dy) && LF_ALIGNED(x) && (!LF_HAS(w) || LF_ALIGNED(w))) \
    lf_layer_norm_grad_row<4>(t, dx, dy, x, p, d, eps, part, types);                                      \
  else                                                                                                    \
    lf_layer_norm_grad_row<1>(t, dx, dy, x, p, d, eps, part, types);

LF_ENTRY_SHARED(1024, layer_norm_grad_row_f32, ((float, part, 128)), ((float, dx), (const float, dy), (const float, x), (const float, w)),
                ((int, d), (float, eps))) {
  lf_all_f32 types;
  LF_LAYER_NORM_GRAD_ROW(types)
}
LF_ENTRY_SHARED(1024, layer_norm_grad_row_stored, ((float, part, 128)), ((uchar, dx), (const uchar, dy), (const uchar, x), (const float, w)),
                ((int, d), (float, eps), (int, stored))) {
  lf_mixed types = {stored};
  LF_LAYER_NORM_GRAD_ROW(types)
}

#ifdef LF_RACE
LF_RACE_CASE(layer_norm) {
  auto x = lf_race_noise<float>(9 * 132), w = lf_race_noise<float>(132), b = w, dy = x;
  lf_race_launch(layer_norm_grad_warp_f32, {2}, {256}, 0, dy.data(), dy.data(), x.data(), w.data(), 9, 132, 1e-6f);
  lf_race_launch(layer_norm_warp_f32, {2}, {256}, 0, x.data(), x.data(), w.data(), b.data(), 9, 132, 1e-6f);
  lf_race_launch(layer_norm_grad_warp_stored, {2}, {256}, 0, (uchar*)dy.data(), (uchar*)dy.data(), (uchar*)x.data(), w.data(), 9, 132, 1e-6f, 7);
}
LF_RACE_CASE(layer_norm_row) {
  auto x = lf_race_noise<float>(2 * 1030), w = lf_race_noise<float>(1030), dy = x;
  lf_race_launch(layer_norm_grad_row_f32, {2}, {256}, 0, dy.data(), dy.data(), x.data(), nullptr, 1030, 1e-6f);
  lf_race_launch(layer_norm_row_f32, {2}, {256}, 0, x.data(), x.data(), w.data(), nullptr, 1030, 1e-6f);
  lf_race_launch(layer_norm_row_stored, {2}, {256}, 0, (uchar*)x.data(), (uchar*)x.data(), w.data(), nullptr, 1030, 1e-6f, 3);
}
#endif
