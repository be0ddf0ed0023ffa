// RMSNorm (Zhang and Sennrich 2019, arXiv 1910.07467) and its gradient for x:
//
//   r  = 1/√(mean(x²) + eps)
//   y  = x · r · w
//   dx = r · (dy·w − x · r² · mean(dy·w·x))
//
// Layout: x, dy, y and dx [rows, d], w [d]; the output may share the memory of x or dy.
// Grid: rows of up to 1024 numbers are held in the registers of a warp (…_warp, 8
//   rows a block); longer ones are read twice by a block (…_row), from its cache
//   the second time.
// Traffic: RMSNorm 8 bytes an element, its gradient 12, and w once for each block,
//   from cache; bound by memory.
// Registers: warp 48 and 100 (gradient) on sm_80, 57 and 122 on sm_90a; row 22 and 27, 25 and 32.
// Reference: for i { r = 1/sqrt(Σ_j x[i,j]²/d + eps); for j { y[i,j] = x[i,j] r w[j] } }
#include "row.cuh"

#define LF_NORM_WARPS 8

template <int V>
LF_DEVICE void lf_rms_norm_warp(float* out, const float* x, const float* w, int d, float eps) {
  lf_pack<V> v[LF_WARP_ROW / 32 / V], f;
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + threadIdx.x % 32) * V;
    if (j >= d) continue;
    v[k].load(x + j);
#pragma unroll
    for (int i = 0; i < V; i++) sum = fmaf(v[k].v[i], v[k].v[i], sum);
  }
  float r = 1.0f / sqrtf(lf_warp_sum(sum) / (float)d + eps);
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + threadIdx.x % 32) * V;
    if (j >= d) continue;
    f.load(w + j);
#pragma unroll
    for (int i = 0; i < V; i++) v[k].v[i] *= r * f.v[i];
    v[k].store(out + j);
  }
}

extern "C" __global__ void __launch_bounds__(32 * LF_NORM_WARPS)
    rms_norm_warp_f32(float* out, const float* x, const float* w, long long rows, int d, float eps) {
  long long row = (long long)blockIdx.x * LF_NORM_WARPS + threadIdx.x / 32;
  if (row >= rows) return;
  if (lf_fours(d, out, x, w))
    lf_rms_norm_warp<4>(out + row * d, x + row * d, w, d, eps);
  else
    lf_rms_norm_warp<1>(out + row * d, x + row * d, w, d, eps);
}
LF_KERNEL(rms_norm_warp_f32);

template <int V>
LF_DEVICE void lf_rms_norm_row(float* out, const float* x, const float* w, int d, float eps, float* part) {
  lf_pack<V> v, f;
  float sum = 0.0f;
  for (int j = threadIdx.x * V; j < d; j += blockDim.x * V) {
    v.load(x + j);
#pragma unroll
    for (int i = 0; i < V; i++) sum = fmaf(v.v[i], v.v[i], sum);
  }
  float r = 1.0f / sqrtf(lf_block_sum(sum, part) / (float)d + eps);
  for (int j = threadIdx.x * V; j < d; j += blockDim.x * V) {
    v.load(x + j);
    f.load(w + j);
#pragma unroll
    for (int i = 0; i < V; i++) v.v[i] *= r * f.v[i];
    v.store(out + j);
  }
}

extern "C" __global__ void __launch_bounds__(1024) rms_norm_row_f32(float* out, const float* x, const float* w, int d, float eps) {
  LF_SHARED(float, part, [32]);
  long long at = (long long)blockIdx.x * d;
  if (lf_fours(d, out, x, w))
    lf_rms_norm_row<4>(out + at, x + at, w, d, eps, part);
  else
    lf_rms_norm_row<1>(out + at, x + at, w, d, eps, part);
}
LF_KERNEL(rms_norm_row_f32);

// The two numbers of a row from its sums Σx² and Σ dy·w·x.
struct lf_norm_slope {
  float r, c;
  LF_DEVICE lf_norm_slope(float squares, float dot, int d, float eps) {
    r = 1.0f / sqrtf(squares / (float)d + eps);
    c = dot / (float)d * r * r;
  }
  LF_DEVICE float of(float x, float u) const { return r * (u - x * c); }
};

template <int V>
LF_DEVICE void lf_rms_norm_grad_warp(float* dx, const float* dy, const float* x, const float* w, int d, float eps) {
  lf_pack<V> u[LF_WARP_ROW / 32 / V], v[LF_WARP_ROW / 32 / V], f;
  float squares = 0.0f, dot = 0.0f;
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + threadIdx.x % 32) * V;
    if (j >= d) continue;
    u[k].load(dy + j);
    v[k].load(x + j);
    f.load(w + j);
#pragma unroll
    for (int i = 0; i < V; i++) {
      u[k].v[i] *= f.v[i];
      squares = fmaf(v[k].v[i], v[k].v[i], squares);
      dot = fmaf(u[k].v[i], v[k].v[i], dot);
    }
  }
  squares = lf_warp_sum(squares);
  lf_norm_slope s(squares, lf_warp_sum(dot), d, eps);
#pragma unroll
  for (int k = 0; k < LF_WARP_ROW / 32 / V; k++) {
    int j = (k * 32 + threadIdx.x % 32) * V;
    if (j >= d) continue;
#pragma unroll
    for (int i = 0; i < V; i++) u[k].v[i] = s.of(v[k].v[i], u[k].v[i]);
    u[k].store(dx + j);
  }
}

extern "C" __global__ void __launch_bounds__(32 * LF_NORM_WARPS)
    rms_norm_grad_warp_f32(float* dx, const float* dy, const float* x, const float* w, long long rows, int d, float eps) {
  long long row = (long long)blockIdx.x * LF_NORM_WARPS + threadIdx.x / 32;
  if (row >= rows) return;
  if (lf_fours(d, dx, dy, x, w))
    lf_rms_norm_grad_warp<4>(dx + row * d, dy + row * d, x + row * d, w, d, eps);
  else
    lf_rms_norm_grad_warp<1>(dx + row * d, dy + row * d, x + row * d, w, d, eps);
}
LF_KERNEL(rms_norm_grad_warp_f32);

template <int V>
LF_DEVICE void lf_rms_norm_grad_row(float* dx, const float* dy, const float* x, const float* w, int d, float eps, float (*part)[32]) {
  lf_pack<V> u, v, f;
  float squares = 0.0f, dot = 0.0f;
  for (int j = threadIdx.x * V; j < d; j += blockDim.x * V) {
    u.load(dy + j);
    v.load(x + j);
    f.load(w + j);
#pragma unroll
    for (int i = 0; i < V; i++) {
      squares = fmaf(v.v[i], v.v[i], squares);
      dot = fmaf(u.v[i] * f.v[i], v.v[i], dot);
    }
  }
  squares = lf_block_sum(squares, part[0]);
  lf_norm_slope s(squares, lf_block_sum(dot, part[1]), d, eps);
  for (int j = threadIdx.x * V; j < d; j += blockDim.x * V) {
    u.load(dy + j);
    v.load(x + j);
    f.load(w + j);
#pragma unroll
    for (int i = 0; i < V; i++) u.v[i] = s.of(v.v[i], u.v[i] * f.v[i]);
    u.store(dx + j);
  }
}

extern "C" __global__ void __launch_bounds__(1024)
    rms_norm_grad_row_f32(float* dx, const float* dy, const float* x, const float* w, int d, float eps) {
  LF_SHARED(float, part, [2][32]);
  long long at = (long long)blockIdx.x * d;
  if (lf_fours(d, dx, dy, x, w))
    lf_rms_norm_grad_row<4>(dx + at, dy + at, x + at, w, d, eps, part);
  else
    lf_rms_norm_grad_row<1>(dx + at, dy + at, x + at, w, d, eps, part);
}
LF_KERNEL(rms_norm_grad_row_f32);

#ifdef LF_RACE
#include "../sim/test/race.h"
LF_RACE_CASE(rms_norm) {
  auto x = lf_race_noise<float>(9 * 132), w = lf_race_noise<float>(132), dy = x;
  lf_race_launch(rms_norm_grad_warp_f32, {2}, {256}, 0, dy.data(), dy.data(), x.data(), w.data(), 9, 132, 1e-6f);
  lf_race_launch(rms_norm_warp_f32, {2}, {256}, 0, x.data(), x.data(), w.data(), 9, 132, 1e-6f);
}
LF_RACE_CASE(rms_norm_row) {
  auto x = lf_race_noise<float>(2 * 1030), w = lf_race_noise<float>(1030), dy = x;
  lf_race_launch(rms_norm_grad_row_f32, {2}, {256}, 0, dy.data(), dy.data(), x.data(), w.data(), 1030, 1e-6f);
  lf_race_launch(rms_norm_row_f32, {2}, {256}, 0, x.data(), x.data(), w.data(), 1030, 1e-6f);
}
#endif
