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
// Layout: up to 7 tensors of their own sizes in one launch (adamw_f32), which with the
//   numbers are all 31 buffers that a kernel has: a model has hundreds of adapters,
//   each too small to fill a device. Those that are missing have no elements.
//   adamw_apart_f32 is for one tensor whose results lie elsewhere.
// Grid: 256 threads for 1024 elements, four of each thread, as 16 bytes where the
//   tensor lies on 16 bytes.
// Traffic: 28 bytes an element; bound by memory.
// Reference: for i { the five lines above on element i }
#include "row.h"

struct lf_adamw {
  float beta1c, beta2, beta2c, eps, decay, step, root, scale;
  bool on;

  void start(device const float* rates, device const float* scale_at, float b1c, float b2, float b2c, float e) {
    beta1c = b1c, beta2 = b2, beta2c = b2c, eps = e;
    decay = rates[0], step = rates[1], root = rates[2], scale = *scale_at;
    on = (as_type<uint>(scale) & 0x7f800000u) != 0x7f800000u;
  }

  void update(thread float& p, thread float& m, thread float& v, float g) const {
    g *= scale;
    m = m + beta1c * (g - m);
    v = beta2 * v + beta2c * g * g;
    p = p * decay - step * (m / (sqrt(v) / root + eps));
  }

  // Elements at and after base, of n, by all threads.
  template <int V>
  void run(lf_thread t, device float* p, device float* m, device float* v, device const float* p0, device const float* m0,
           device const float* v0, device const float* g, long base, long n) const {
    for (int r = 0; r < 4 / V; r++) {
      long i = base + r * 256 * V + t.index * V;
      if (i >= n) return;
      lf_pack<V> a, b, c, d;
      a.load(p0 + i), b.load(m0 + i), c.load(v0 + i);
      if (on) {
        d.load(g + i);
        for (int k = 0; k < V; k++) update(a.v[k], b.v[k], c.v[k], d.v[k]);
      }
      a.store(p + i), b.store(m + i), c.store(v + i);
    }
  }
};

#define LF_TENSOR(k, p_at, m_at, v_at, g_at)                                      \
  device float *p##k [[buffer(p_at)]], device float *m##k [[buffer(m_at)]],       \
      device float *v##k [[buffer(v_at)]], device const float *g##k [[buffer(g_at)]]
// Tensor k begins where the threadgroups of the one before end.
#define LF_TAKE(k, before)                \
  next += (int)((a.n##before + 1023) / 1024); \
  if ((int)t.group.x >= next) p = p##k, m = m##k, v = v##k, g = g##k, n = a.n##k, from = next, wide = a.wide >> (2 + 4 * k);

struct adamw_f32_args { LF_ARGS; float beta1c, beta2, beta2c, eps; long n0, n1, n2, n3, n4, n5, n6; };

LF_KERNEL(256)
adamw_f32(device const float* rates [[buffer(0)]], device const float* scale [[buffer(1)]],
          LF_TENSOR(0, 2, 3, 4, 5), LF_TENSOR(1, 6, 7, 8, 9), LF_TENSOR(2, 10, 11, 12, 13), LF_TENSOR(3, 14, 15, 16, 17),
          LF_TENSOR(4, 18, 19, 20, 21), LF_TENSOR(5, 22, 23, 24, 25), LF_TENSOR(6, 26, 27, 28, 29),
          constant adamw_f32_args& a [[buffer(30)]], LF_THREAD) {
  LF_BEGIN;
  lf_adamw w;
  w.start(rates, scale, a.beta1c, a.beta2, a.beta2c, a.eps);
  if (!w.on) return;
  device float *p = p0, *m = m0, *v = v0;
  device const float* g = g0;
  long n = a.n0;
  uint wide = a.wide >> 2;
  int from = 0, next = 0;
  LF_TAKE(1, 0)
  LF_TAKE(2, 1)
  LF_TAKE(3, 2)
  LF_TAKE(4, 3)
  LF_TAKE(5, 4)
  LF_TAKE(6, 5)
  long base = (long)((int)t.group.x - from) * 1024;
  if ((n & 3) == 0 && (wide & 15u) == 15u)
    w.run<4>(t, p, m, v, p, m, v, g, base, n);
  else
    w.run<1>(t, p, m, v, p, m, v, g, base, n);
}

struct adamw_apart_f32_args { LF_ARGS; float beta1c, beta2, beta2c, eps; long n; };

LF_KERNEL(256)
adamw_apart_f32(device const float* rates [[buffer(0)]], device const float* scale [[buffer(1)]], device float* p [[buffer(2)]],
                device float* m [[buffer(3)]], device float* v [[buffer(4)]], device const float* p0 [[buffer(5)]],
                device const float* m0 [[buffer(6)]], device const float* v0 [[buffer(7)]], device const float* g [[buffer(8)]],
                constant adamw_apart_f32_args& a [[buffer(9)]], LF_THREAD) {
  LF_BEGIN;
  lf_adamw w;
  w.start(rates, scale, a.beta1c, a.beta2, a.beta2c, a.eps);
  w.run<1>(t, p, m, v, p0, m0, v0, g, (long)t.group.x * 1024, a.n);
}
