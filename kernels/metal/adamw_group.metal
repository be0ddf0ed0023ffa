// One step of AdamW (shared/adamw.h) on several tensors, in place.
//
// Layout: up to 7 tensors of their own sizes in one launch, which with the
//   numbers are all 31 buffers that a kernel has: a model has hundreds of adapters,
//   each too small to fill a device. Those that are missing have no elements. It is for
//   devices that cannot read the addresses of all tensors from a table (shared/tensors.cu).
// Grid: 256 threads for 1024 elements, four of each thread, as 16 bytes where the
//   tensor lies on 16 bytes.
// Traffic: 28 bytes an element; bound by memory.
// Reference: for i { the lines of adamw.h on element i }
#include "adamw.h"

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
