// One step of AdamW with moments of 8 bits (adamw8.h) on a tensor whose results may lie
// elsewhere.
//
// Layout: p [n], codes m and v [n] (u8), scales ms and vs [n/256, rounded up], from p0, m0, v0, ms0 and
//   vs0, which may be the same memory; g [n], maps [2, 256], rates [3], scale [1].
// Grid: a warp for 256 elements, 256 threads for 2048; lane l has elements l + 32·j.
// Traffic: 16 bytes an element; bound by memory, and close to that by the search of codes.
// Registers: 40 on sm_80 and sm_90a, 61 on sm_100.
// Reference: for each 256 elements { the lines of adamw8.h }
#include "adamw8.h"

LF_ENTRY_SHARED(256, adamw8_f32, ((float, books, LF_BOOKS)),
                ((const float, rates), (const float, scale), (const float, maps), (float, p), (uchar, m), (uchar, v), (float, ms), (float, vs),
                 (const float, p0), (const uchar, m0), (const uchar, v0), (const float, ms0), (const float, vs0), (const float, g)),
                ((float, beta1), (float, beta1c), (float, beta2), (float, beta2c), (float, eps), (long, n))) {
  lf_adamw8 a;
  a.start(rates, scale, beta1, beta1c, beta2, beta2c, eps);
  const long block = (long)t.group.x * (LF_ADAMW8 / LF_MOMENTS) + t.warp, base = block * LF_MOMENTS;
  const int left = lf_moments_left(block, n);
  if (!a.on) { // for all threads
    for (int i = t.lane; i < left; i += 32) p[base + i] = p0[base + i], m[base + i] = m0[base + i], v[base + i] = v0[base + i];
    if (t.lane == 0 && left > 0) ms[block] = ms0[block], vs[block] = vs0[block];
    return;
  }
  lf_load_books(t, books, maps);
  a.run(t, books, p, m, v, ms, vs, p0, m0, v0, ms0, vs0, g, block, left);
}

#ifdef LF_RACE
LF_RACE_CASE(adamw8) {
  auto p = lf_race_noise<float>(2100), g = p, maps = lf_race_noise<float>(512), rates = lf_race_noise<float>(4), ms = lf_race_noise<float>(9), vs = ms;
  std::vector<unsigned char> m(2100), v(2100);
  lf_race_launch(adamw8_f32, {2}, {256}, 0, rates.data(), rates.data() + 3, maps.data(), p.data(), m.data(), v.data(), ms.data(), vs.data(), p.data(),
                 m.data(), v.data(), ms.data(), vs.data(), g.data(), 0.9f, 0.1f, 0.999f, 0.001f, 1e-8f, 2100);
}
#endif
