// Dropout: y = x·scale where the random word of the element is at least
// threshold, else 0. The mask is a function of (seed, stream, step, element): the
// gradient is the same kernel on dy, and no mask is ever stored.
//
// Layout: x and y of n elements, y may share the memory of x; key = {seed low, seed
//   high, step} in memory, since it changes from step to step.
// Grid: 256 threads, four elements each: the words of one Philox block.
//   dropout_stored takes x and y of f32 or bf16, by the bits of stored, y first.
// Traffic: 8 bytes an element, or 4; twenty multiplications for four elements, so bound
//   by memory.
// Registers: 20 to 26 on sm_80 and sm_90a.
// Reference: for i { y[i] = Philox(key, stream, i/4)[i%4] >= threshold ? x[i]·scale : 0 }
#include "mixed.h"
#include "philox.h"

template <class S>
LF_DEVICE void lf_dropout(lf_thread t, LF_GLOBAL void* out, LF_GLOBAL const void* x, LF_GLOBAL const uint* key, bool aligned, long n, uint stream,
                          uint threshold, float scale, S types) {
  long block = (long)t.group.x * 256 + t.index, i = 4 * block;
  if (i >= n) return;
  uint4 w = lf_philox(key, stream, block);
  bool keep[4] = {w.x >= threshold, w.y >= threshold, w.z >= threshold, w.w >= threshold};
  if (i + 4 <= n && aligned) {
    lf_pack<4> v;
    lf_load(types, 1, x, i, v);
#pragma unroll
    for (int k = 0; k < 4; k++) v.v[k] = keep[k] ? v.v[k] * scale : 0.0f;
    lf_store(types, 0, out, i, v);
    return;
  }
#pragma unroll
  for (int k = 0; k < 4; k++) {
    if (i + k >= n) continue;
    lf_pack<1> v;
    lf_load(types, 1, x, i + k, v);
    v.v[0] = keep[k] ? v.v[0] * scale : 0.0f;
    lf_store(types, 0, out, i + k, v);
  }
}

LF_ENTRY(256, dropout_f32, ((float, out), (const float, x), (const uint, key)),
         ((long, n), (uint, stream), (uint, threshold), (float, scale))) {
  lf_all_f32 types;
  lf_dropout(t, out, x, key, LF_ALIGNED(out) && LF_ALIGNED(x), n, stream, threshold, scale, types);
}
LF_ENTRY(256, dropout_stored, ((uchar, out), (const uchar, x), (const uint, key)),
         ((long, n), (uint, stream), (uint, threshold), (float, scale), (int, stored))) {
  lf_mixed types = {stored};
  lf_dropout(t, out, x, key, LF_ALIGNED(out) && LF_ALIGNED(x), n, stream, threshold, scale, types);
}

#ifdef LF_RACE
LF_RACE_CASE(dropout) {
  auto x = lf_race_noise<float>(1030);
  auto key = lf_race_noise<unsigned>(3);
  lf_race_launch(dropout_f32, {2}, {256}, 0, x.data(), x.data(), key.data(), 1030, 3u, 1u << 30, 1.5f);
  lf_race_launch(dropout_stored, {2}, {256}, 0, x.data(), x.data(), key.data(), 1030, 3u, 1u << 30, 1.5f, 3);
}
#endif
