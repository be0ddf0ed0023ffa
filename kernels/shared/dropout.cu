// Dropout: y = x·scale where the random word of the element is at least
// threshold, else 0. The mask is a function of (seed, stream, step, element): the
// gradient is the same kernel on dy, and no mask is ever stored.
//
// Layout: x and y of n elements, y may share the memory of x; key = {seed low, seed
//   high, step} in memory, since it changes from step to step.
// Grid: 256 threads, four elements each: the words of one Philox block.
// Traffic: 8 bytes an element; twenty multiplications for four elements, so bound
//   by memory.
// Registers: 24 on sm_80, 22 on sm_90a.
// Reference: for i { y[i] = Philox(key, stream, i/4)[i%4] >= threshold ? x[i]·scale : 0 }
#include "pack.h"
#include "philox.h"

LF_ENTRY(256, dropout_f32, ((float, out), (const float, x), (const uint, key)),
         ((long, n), (uint, stream), (uint, threshold), (float, scale))) {
  long block = (long)t.group.x * 256 + t.index, i = 4 * block;
  if (i >= n) return;
  uint4 w = lf_philox(key, stream, block);
  bool keep[4] = {w.x >= threshold, w.y >= threshold, w.z >= threshold, w.w >= threshold};
  if (i + 4 <= n && LF_ALIGNED(out) && LF_ALIGNED(x)) {
    lf_pack<4> v;
    v.load(x + i);
#pragma unroll
    for (int k = 0; k < 4; k++) v.v[k] = keep[k] ? v.v[k] * scale : 0.0f;
    v.store(out + i);
    return;
  }
#pragma unroll
  for (int k = 0; k < 4; k++)
    if (i + k < n) out[i + k] = keep[k] ? x[i + k] * scale : 0.0f;
}

#ifdef LF_RACE
LF_RACE_CASE(dropout) {
  auto x = lf_race_noise<float>(1030);
  auto key = lf_race_noise<unsigned>(3);
  lf_race_launch(dropout_f32, {2}, {256}, 0, x.data(), x.data(), key.data(), 1030, 3u, 1u << 30, 1.5f);
}
#endif
