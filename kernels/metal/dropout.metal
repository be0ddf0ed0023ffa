// Dropout: y = x·scale where the random word of the element is at least
// threshold, else 0. The mask is a function of (seed, stream, step, element): the
// gradient is the same kernel on dy, and no mask is ever stored.
//
// Layout: x and y of n elements, y may share the memory of x; key = {seed low, seed
//   high, step} in memory, since it changes from step to step.
// Grid: 256 threads, four elements each: the words of one Philox block.
// Traffic: 8 bytes an element; twenty multiplications for four elements, so bound
//   by memory.
// Reference: for i { y[i] = Philox(key, stream, i/4)[i%4] >= threshold ? x[i]·scale : 0 }
#include "philox.h"
#include "row.h"

struct dropout_f32_args { LF_ARGS; long n; uint stream, threshold; float scale; };

LF_KERNEL(256)
dropout_f32(device float* out [[buffer(0)]], device const float* x [[buffer(1)]], device const uint* key [[buffer(2)]],
            constant dropout_f32_args& a [[buffer(3)]], LF_THREAD) {
  LF_BEGIN;
  long block = (long)t.group.x * 256 + t.index, i = 4 * block;
  if (i >= a.n) return;
  uint4 w = lf_philox(key, a.stream, block);
  bool keep[4] = {w.x >= a.threshold, w.y >= a.threshold, w.z >= a.threshold, w.w >= a.threshold};
  if (i + 4 <= a.n && LF_WIDE_ALL(a, 3u)) {
    lf_pack<4> v;
    v.load(x + i);
    for (int k = 0; k < 4; k++) v.v[k] = keep[k] ? v.v[k] * a.scale : 0.0f;
    v.store(out + i);
    return;
  }
  for (int k = 0; k < 4; k++)
    if (i + k < a.n) out[i + k] = keep[k] ? x[i + k] * a.scale : 0.0f;
}
