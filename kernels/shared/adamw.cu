// One step of AdamW (adamw.h) on a tensor whose results may lie elsewhere.
//
// Layout: p, m and v [n] from p0, m0 and v0 [n], which may be the same memory; rates [3], scale [1].
// Grid: 256 threads for 1024 elements.
// Traffic: 28 bytes an element; bound by memory.
// Registers: 40 on sm_80, 37 on sm_90a.
// Reference: for i { the lines of adamw.h on element i }
#include "adamw.h"

LF_ENTRY(256, adamw_apart_f32,
         ((const float, rates), (const float, scale), (float, p), (float, m), (float, v), (const float, p0), (const float, m0), (const float, v0),
          (const float, g)),
         ((float, beta1c), (float, beta2), (float, beta2c), (float, eps), (long, n))) {
  lf_adamw a;
  a.start(rates, scale, beta1c, beta2, beta2c, eps);
  a.run<1>(t, p, m, v, p0, m0, v0, g, (long)t.group.x * LF_ADAMW, n);
}

#ifdef LF_RACE
LF_RACE_CASE(adamw) {
  auto p = lf_race_noise<float>(1500), m = p, v = p, g = p, rates = lf_race_noise<float>(4);
  for (float& f : v) f *= f;
  lf_race_launch(adamw_apart_f32, {2}, {256}, 0, rates.data(), rates.data() + 3, p.data(), m.data(), v.data(), p.data(), m.data(), v.data(),
                 g.data(), 0.1f, 0.999f, 0.001f, 1e-8f, 1500);
}
#endif
