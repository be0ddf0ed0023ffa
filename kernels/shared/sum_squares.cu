// The sum of the squares of n numbers, for the norm of all gradients.
//
// Layout: x [n] and out, one number; partial [blocks] (f64, or pairs of floats)
//   where there are several blocks. What a block and a thread add up depends on n alone.
// Grid: 256 threads for 16384 numbers. A thread adds 4 by 16 squares in float32;
//   from there on all sums are double, or pairs of floats, in the order of a butterfly and then of the
//   blocks, which a second launch of one block (sum_partials_f32) adds up. Up to
//   16384 numbers need one launch only.
// Traffic: 4 bytes a number; bound by memory. One addition in double for 64
//   numbers, so that devices that are slow at them do not wait for it.
// Registers: 20 and 28 on sm_80, 24 and 30 on sm_90a.
// Reference: s = 0; for i { s += x[i]·x[i] }
#include "squares.h"

// One block writes out, several write partial.
LF_ENTRY_SHARED(256, sum_squares_f32, ((lf_total_raw, part, 8)), ((float, out), (lf_total_raw, partial), (const float, x)), ((long, n))) {
  lf_total sum = lf_block_sum(t, (n & 3) == 0 && LF_ALIGNED(x) ? lf_squares<4>(t, x, n, t.group.x) : lf_squares<1>(t, x, n, t.group.x), part);
  if (t.index) return;
  if (t.groups.x == 1)
    *out = lf_total_float(sum);
  else
    partial[t.group.x] = lf_total_put(sum);
}

LF_ENTRY_SHARED(256, sum_partials_f32, ((lf_total_raw, part, 8)), ((float, out), (const lf_total_raw, partial)), ((int, n))) {
  lf_total sum = lf_total_of(0.0f);
  for (int i = t.index; i < n; i += 256) sum = lf_total_add(sum, lf_total_get(partial[i]));
  sum = lf_block_sum(t, sum, part);
  if (t.index == 0) *out = lf_total_float(sum);
}

#ifdef LF_RACE
LF_RACE_CASE(sum_squares) {
  auto x = lf_race_noise<float>(40000);
  std::vector<double> partial(3);
  std::vector<float> out(1);
  lf_race_launch(sum_squares_f32, {3}, {256}, 0, out.data(), partial.data(), x.data(), 40000);
  lf_race_launch(sum_partials_f32, {1}, {256}, 0, out.data(), partial.data(), 3);
}
#endif
