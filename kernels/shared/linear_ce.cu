// Cross-entropy of the logits x Wᵀ, and its gradient for x, a few rows at a time:
// the logits of all rows never exist. This file has everything except the matrix
// products, which are in linear_ce_f32.cu and linear_ce_mma.cu.
//
//   rows:     the numbers of the rows that have a label, in their order
//   gather:   their x, from row first on
//   losses:   loss of each row of logits, which dloss·(softmax − onehot) replaces
//             where a gradient is wanted; dloss is one number, or one of each row
//   scatter:  dx[rows[first + i]] = the sum of parts of its gradient
//   clear:    dx = 0 in the rows without a label
//
// How many rows have a label is known on the device only (count): launches are for
// all rows, and blocks that have none end at once. Labels below 0 or outside the
// vocabulary count as no label; sum_losses_f32 of cross_entropy.cu reports the
// latter.
//
// Layout: x and dx [n, d], and gathered rows [per, d], f32 or bf16 by the bits of stored, in
//   the order of the pointers; labels and rows [n] (i32), logits [per, v], parts
//   [parts, per, d].
// Grid: rows one block of 1024 threads; the others a block for a row.
// Traffic: gather 8 bytes an element, 4 of bf16; losses 4 bytes a logit, with the gradient 8
//   (6 of bf16) and 4 more where rows are too long for the caches; scatter 4·(parts + 1), or
//   2 less.
// Registers: 11 to 37 on sm_80, 13 to 44 on sm_90a.
// Reference: for i { if label[i] >= 0 { rows[count++] = i } }
#include "cross_entropy.h"

// found has two parts by turns: the next one is filled before all have read this one.
LF_ENTRY_SHARED(1024, lce_rows, ((int, found, 2 * 32)), ((int, count), (int, rows), (float, loss), (const int, labels)),
                ((int, n), (int, v))) {
  int before = 0, turn = 0;
  for (int base = 0; base < n; base += 1024, turn ^= 1) {
    int i = base + (int)t.index, label = i < n ? labels[i] : -1;
    if (i < n) loss[i] = 0.0f;
    uint votes = lf_ballot(t, label >= 0 && label < v);
    if (t.lane == 0) found[32 * turn + t.warp] = lf_popcount(votes);
    lf_barrier();
    int mine = before;
    for (uint w = 0; w < 32; w++) {
      if (w < t.warp) mine += found[32 * turn + w];
      before += found[32 * turn + w];
    }
    if (votes >> t.lane & 1) rows[mine + lf_popcount(votes & ((1u << t.lane) - 1))] = i;
  }
  if (t.index == 0) *count = before;
}

template <int V>
LF_DEVICE void lf_copy_row(lf_thread t, lf_mixed types, LF_GLOBAL void* out, long to, LF_GLOBAL const void* x, long from, int d) {
  lf_pack<V> v;
  for (int j = (int)t.index * V; j < d; j += 256 * V) {
    lf_load(types, 1, x, from + j, v);
    lf_store(types, 0, out, to + j, v);
  }
}

LF_ENTRY(256, lce_gather, ((uchar, out), (const uchar, x), (const int, rows), (const int, count)), ((int, first), (int, d), (int, stored))) {
  lf_mixed types = {stored};
  int i = first + (int)t.group.x;
  if (i >= *count) return;
  long to = (long)t.group.x * d, from = (long)rows[i] * d;
  if ((d & 3) == 0 && LF_ALIGNED(out) && LF_ALIGNED(x))
    lf_copy_row<4>(t, types, out, to, x, from, d);
  else
    lf_copy_row<1>(t, types, out, to, x, from, d);
}

// If apart is not 0, loss and dloss have a number for each row; otherwise loss has one for each row with a label, in their
// order, and dloss is one number. dloss may be null. If grad is not null, the gradient goes there, in bf16.
LF_ENTRY_SHARED(1024, lce_losses, ((float2, part, 32)),
                ((float, loss), (float, logits), (const int, labels), (const int, rows), (const int, count), (const float, dloss),
                 (ushort, grad)),
                ((int, first), (int, v), (int, apart))) {
  int i = first + (int)t.group.x;
  if (i >= *count) return;
  LF_GLOBAL float* row = logits + (long)t.group.x * v;
  bool wide = (v & 3) == 0 && LF_ALIGNED(logits);
  int number = rows[i], label = labels[number];
  lf_softmax all = lf_logits(t, row, v, wide, part);
  if (t.index == 0) loss[apart ? number : i] = lf_loss(all, row[label]);
  if (!LF_HAS(dloss)) return;
  float scale = dloss[apart ? number : 0];
  lf_barrier_device(); // the logit of the label has been read
  if (LF_HAS(grad)) {
    lf_mixed types = {1};
    lf_logits_grad(t, types, grad, (long)t.group.x * v, row, v, label, all, scale, wide && LF_ALIGNED(grad));
  } else {
    lf_logits_grad(t, lf_all_f32(), row, 0, row, v, label, all, scale, wide);
  }
}

template <int V>
LF_DEVICE void lf_sum_parts(lf_thread t, lf_mixed types, LF_GLOBAL void* out, long at, LF_GLOBAL const float* parts, long step, int count, int d) {
  for (int j = (int)t.index * V; j < d; j += 256 * V) {
    lf_pack<V> sum, v;
    sum.load(parts + j);
    for (int s = 1; s < count; s++) {
      v.load(parts + s * step + j);
#pragma unroll
      for (int k = 0; k < V; k++) sum.v[k] += v.v[k];
    }
    lf_store(types, 0, out, at + j, sum);
  }
}

LF_ENTRY(256, lce_scatter, ((uchar, dx), (const float, partial), (const int, rows), (const int, count)),
         ((int, first), (int, d), (int, per), (int, parts), (int, stored))) {
  lf_mixed types = {stored};
  int i = first + (int)t.group.x;
  if (i >= *count) return;
  LF_GLOBAL const float* from = partial + (long)t.group.x * d;
  long to = (long)rows[i] * d;
  if ((d & 3) == 0 && LF_ALIGNED(dx) && LF_ALIGNED(partial))
    lf_sum_parts<4>(t, types, dx, to, from, (long)per * d, parts, d);
  else
    lf_sum_parts<1>(t, types, dx, to, from, (long)per * d, parts, d);
}

LF_ENTRY(256, lce_clear, ((uchar, dx), (const int, labels)), ((int, d), (int, v), (int, stored))) {
  lf_mixed types = {stored};
  int label = labels[t.group.x];
  if (label < 0 || label >= v) lf_clear_row(t, types, dx, (long)t.group.x * d, d, (d & 3) == 0 && LF_ALIGNED(dx));
}

#ifdef LF_RACE
LF_RACE_CASE(linear_ce) {
  auto labels = lf_race_noise<int>(1300);
  for (int i = 0; i < 1300; i += 1 + i % 7) labels[i] = -100;
  auto x = lf_race_noise<float>(1300 * 6), logits = lf_race_noise<float>(3 * 20), parts = lf_race_noise<float>(2 * 3 * 6), dloss = lf_race_noise<float>(1);
  std::vector<float> loss(1300), gathered(3 * 6), dx(1300 * 6);
  std::vector<int> rows(1300), count(1);
  lf_race_launch(lce_rows, {1}, {1024}, 0, count.data(), rows.data(), loss.data(), labels.data(), 1300, 20);
  lf_race_launch(lce_gather, {3}, {256}, 0, gathered.data(), x.data(), rows.data(), count.data(), 2, 6, 0);
  lf_race_launch(lce_losses, {3}, {256}, 0, loss.data(), logits.data(), labels.data(), rows.data(), count.data(), dloss.data(), nullptr, 2, 20, 0);
  lf_race_launch(lce_scatter, {3}, {256}, 0, dx.data(), parts.data(), rows.data(), count.data(), 2, 6, 3, 2, 0);
  lf_race_launch(lce_clear, {4}, {256}, 0, dx.data(), labels.data(), 6, 20, 0);
}
#endif
