// One step of AdamW (Loshchilov and Hutter 2017, arXiv 1711.05101) on parameters p
// and moments m and v with the gradient g:
//
//   g' = g·scale,  m += (1 − β₁)(g' − m),  v = β₂ v + (1 − β₂) g'²
//   p  = p·decay − step·m / (√v/root + eps)
//
// with rates = {decay = 1 − lr·weight decay, step = lr/(1 − β₁ᵗ), root = √(1 − β₂ᵗ)}
// and scale in memory, since they change from step to step. If scale is not
// finite, nothing changes.
#pragma once

#include "pack.h"

// The elements of a block.
#define LF_ADAMW 1024

struct lf_adamw {
  float beta1c, beta2, beta2c, eps, decay, step, root, scale;
  bool on;

  LF_DEVICE void start(LF_GLOBAL const float* rates, LF_GLOBAL const float* scale_at, float b1c, float b2, float b2c, float e) {
    beta1c = b1c, beta2 = b2, beta2c = b2c, eps = e;
    decay = rates[0], step = rates[1], root = rates[2], scale = *scale_at;
    on = (lf_bits(scale) & 0x7f800000u) != 0x7f800000u;
  }

  LF_DEVICE void update(LF_PRIVATE float& p, LF_PRIVATE float& m, LF_PRIVATE float& v, float g) const {
    g *= scale;
    m = m + beta1c * (g - m);
    v = beta2 * v + beta2c * g * g;
    p = p * decay - step * (m / (lf_sqrt(v) / root + eps));
  }

  // The elements of a block from base on, of n; a thread has four.
  template <int V>
  LF_DEVICE void run(lf_thread t, LF_GLOBAL float* p, LF_GLOBAL float* m, LF_GLOBAL float* v, LF_GLOBAL const float* p0, LF_GLOBAL const float* m0,
                     LF_GLOBAL const float* v0, LF_GLOBAL const float* g, long base, long n) const {
#pragma unroll
    for (int r = 0; r < 4 / V; r++) {
      long i = base + r * 256 * V + t.index * V;
      if (i >= n) return;
      lf_pack<V> a, b, c, d;
      a.load(p0 + i), b.load(m0 + i), c.load(v0 + i);
      if (on) {
        d.load(g + i);
#pragma unroll
        for (int k = 0; k < V; k++) update(a.v[k], b.v[k], c.v[k], d.v[k]);
      }
      a.store(p + i), b.store(m + i), c.store(v + i);
    }
  }
};
