// One step of AdamW (Loshchilov and Hutter 2017, arXiv 1711.05101) on parameters p
// and moments m and v with the gradient g, in place:
//
//   g' = g·scale,  m += (1 − β₁)(g' − m),  v = β₂ v + (1 − β₂) g'²
//   p  = p·decay − step·m / (√v/root + eps)
//
// with rates = {decay = 1 − lr·weight decay, step = lr/(1 − β₁ᵗ), root = √(1 − β₂ᵗ)}
// and scale in memory, since they change from step to step. If scale is not
// finite, nothing changes.
//
// Layout: up to 10 tensors of their own sizes in one launch (adamw_f32): a model has
//   hundreds of adapters, each too small to fill a device. Those
//   that are missing have no elements. adamw_apart_f32 is for one tensor whose
//   results lie elsewhere.
// Grid: 256 threads for 1024 elements, four of each thread, as 16 bytes where the
//   tensor lies on 16 bytes.
// Traffic: 28 bytes an element; bound by memory.
// Registers: 40 and 37 on sm_80, 37 on sm_90a.
// Reference: for i { the five lines above on element i }
#include "row.cuh"

struct lf_adamw {
  float beta1c, beta2, beta2c, eps, decay, step, root, scale;
  bool on;
  LF_DEVICE lf_adamw(const float* rates, const float* scale_at, float beta1c, float beta2, float beta2c, float eps)
      : beta1c(beta1c), beta2(beta2), beta2c(beta2c), eps(eps), decay(rates[0]), step(rates[1]), root(rates[2]), scale(*scale_at) {
    on = (__float_as_uint(scale) & 0x7f800000u) != 0x7f800000u;
  }

  LF_DEVICE void update(float& p, float& m, float& v, float g) const {
    g *= scale;
    m = m + beta1c * (g - m);
    v = beta2 * v + beta2c * g * g;
    p = p * decay - step * (m / (sqrtf(v) / root + eps));
  }

  // Elements at and after i, of n; i is that of this thread.
  template <int V>
  LF_DEVICE void run(float* p, float* m, float* v, const float* p0, const float* m0, const float* v0, const float* g,
                     long long base, long long n) const {
#pragma unroll
    for (int r = 0; r < 4 / V; r++) {
      long long i = base + r * 256 * V + threadIdx.x * V;
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

#define LF_TENSOR(k) float *p##k, float *m##k, float *v##k, const float *g##k, long long n##k
// Tensor k begins where the blocks of the one before end.
#define LF_TAKE(k, before)                          \
  next += (int)((n##before + 1023) / 1024);         \
  if ((int)blockIdx.x >= next) p = p##k, m = m##k, v = v##k, g = g##k, n = n##k, from = next;

extern "C" __global__ void __launch_bounds__(256)
    adamw_f32(const float* rates, const float* scale, float beta1c, float beta2, float beta2c, float eps,
              LF_TENSOR(0), LF_TENSOR(1), LF_TENSOR(2), LF_TENSOR(3), LF_TENSOR(4),
              LF_TENSOR(5), LF_TENSOR(6), LF_TENSOR(7), LF_TENSOR(8), LF_TENSOR(9)) {
  lf_adamw a(rates, scale, beta1c, beta2, beta2c, eps);
  if (!a.on) return;
  float *p = p0, *m = m0, *v = v0;
  const float* g = g0;
  long long n = n0;
  int from = 0, next = 0;
  LF_TAKE(1, 0)
  LF_TAKE(2, 1)
  LF_TAKE(3, 2)
  LF_TAKE(4, 3)
  LF_TAKE(5, 4)
  LF_TAKE(6, 5)
  LF_TAKE(7, 6)
  LF_TAKE(8, 7)
  LF_TAKE(9, 8)
  long long base = ((long long)blockIdx.x - from) * 1024;
  if (lf_fours(n, p, m, v, g))
    a.run<4>(p, m, v, p, m, v, g, base, n);
  else
    a.run<1>(p, m, v, p, m, v, g, base, n);
}
LF_KERNEL(adamw_f32);

extern "C" __global__ void __launch_bounds__(256)
    adamw_apart_f32(const float* rates, const float* scale, float beta1c, float beta2, float beta2c, float eps, float* p, float* m,
                    float* v, const float* p0, const float* m0, const float* v0, const float* g, long long n) {
  lf_adamw a(rates, scale, beta1c, beta2, beta2c, eps);
  a.run<1>(p, m, v, p0, m0, v0, g, (long long)blockIdx.x * 1024, n);
}
LF_KERNEL(adamw_apart_f32);

#ifdef LF_RACE
#include "../sim/test/race.h"
LF_RACE_CASE(adamw) {
  auto p = lf_race_noise<float>(1500), m = p, v = p, g = p, q = p, n = p, w = p, rates = lf_race_noise<float>(4);
  for (float& f : v) f *= f;
  w = v;
  lf_race_launch(adamw_f32, {3}, {256}, 0, rates.data(), rates.data() + 3, 0.1f, 0.999f, 0.001f, 1e-8f, p.data(), m.data(), v.data(), g.data(),
                 1500, q.data(), n.data(), w.data(), g.data(), 700, nullptr, nullptr, nullptr, nullptr, 0, nullptr, nullptr, nullptr, nullptr, 0, nullptr, nullptr, nullptr, nullptr, 0, nullptr, nullptr, nullptr, nullptr, 0, nullptr, nullptr, nullptr, nullptr, 0, nullptr, nullptr, nullptr, nullptr, 0, nullptr, nullptr, nullptr, nullptr, 0, nullptr, nullptr, nullptr, nullptr, 0);
}
#endif
