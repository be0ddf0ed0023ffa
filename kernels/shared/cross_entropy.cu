// Cross-entropy of rows of logits, and its gradient:
//
//   loss = Σ_i log Σ_j exp(x[i,j]) − x[i,label[i]],  rows without a label (< 0) left out
//   dx   = dloss · (softmax(x) − onehot(label)),     zero in rows without a label
//
// Layout: x and dx [n, v], dx may share the memory of x; labels [n] (i32); dloss one
//   number in memory.
// Grid: a block for a row: once over it for its maximum and its sum, which are
//   kept together and rescaled, and for the gradient a second time. Then one block
//   for the sum of the losses, in an order of their own, in double or pairs of floats.
// Traffic: the loss 4 bytes a logit; its gradient 8, and 4 more where a row is too
//   long for the caches (the rows of all blocks under way). Rows without a label
//   are not read. Bound by memory.
// A label that the vocabulary does not have is reported by the sum and counts as
// none elsewhere.
// Registers: 26 to 32 on sm_80 and sm_90a.
// Reference: for i { if label[i] >= 0 { m = max_j x[i,j]; s = Σ_j exp(x[i,j] − m)
//                    loss += m − x[i,label[i]] + log(s)
//                    for j { dx[i,j] = dloss (exp(x[i,j] − m)/s − (j == label[i])) } } }
#include "cross_entropy.h"
#include "report.h"
#include "total.h"

LF_ENTRY_SHARED(1024, cross_entropy_f32, ((float2, part, 32)), ((float, loss), (const float, x), (const int, labels)),
                ((int, v))) {
  int label = labels[t.group.x]; // one for the block: all of its threads leave, or none
  if (label < 0 || label >= v) {
    if (t.index == 0) loss[t.group.x] = 0.0f;
    return;
  }
  LF_GLOBAL const float* row = x + (long)t.group.x * v;
  lf_softmax all = lf_logits(t, row, v, (v & 3) == 0 && LF_ALIGNED(x), part);
  if (t.index == 0) loss[t.group.x] = lf_loss(all, row[label]);
}

LF_ENTRY_SHARED(1024, cross_entropy_grad_f32, ((float2, part, 32)), ((float, dx), (const float, x), (const int, labels), (const float, dloss)),
                ((int, v))) {
  int label = labels[t.group.x];
  long at = (long)t.group.x * v;
  if (label < 0 || label >= v)
    lf_clear_row(t, lf_all_f32(), dx, at, v, (v & 3) == 0 && LF_ALIGNED(dx));
  else
    lf_logits_grad(t, lf_all_f32(), dx, at, x + at, v, label, lf_logits(t, x + at, v, (v & 3) == 0 && LF_ALIGNED(x), part), *dloss,
                   (v & 3) == 0 && LF_ALIGNED(dx) && LF_ALIGNED(x));
}

// The sum of n losses, and the report of the first label that is too large. Without
// loss it is a check alone.
LF_ENTRY_SHARED(256, sum_losses_f32, ((lf_total_raw, part, 8), (int, first, 256)), ((float, out), (const float, loss), (const int, labels), (long, trap)),
                ((int, n), (int, v), (int, launch))) {
  int bad = n;
  bool sums = LF_HAS(loss);
  lf_total sum = lf_total_of(0.0f);
  for (int i = t.index; i < n; i += 256) {
    if (sums) sum = lf_total_add(sum, lf_total_of(loss[i]));
    if (labels[i] >= v) bad = min(bad, i);
  }
  sum = lf_block_sum(t, sum, part);
  if (sums && t.index == 0) *out = lf_total_float(sum);
  first[t.index] = bad;
  for (uint m = 128; m; m >>= 1) {
    lf_barrier();
    if (t.index < m) first[t.index] = min(first[t.index], first[t.index + m]);
  }
  if (t.index == 0 && first[0] < n) lf_report(trap, launch, first[0], labels[first[0]]);
}

#ifdef LF_RACE
LF_RACE_CASE(cross_entropy) {
  auto x = lf_race_noise<float>(4 * 70), dloss = lf_race_noise<float>(1);
  auto labels = lf_race_noise<int>(4);
  labels[1] = -100, labels[2] = 70;
  std::vector<float> loss(4), out(1);
  std::vector<long> trap(8);
  lf_race_launch(cross_entropy_f32, {4}, {256}, 0, loss.data(), x.data(), labels.data(), 70);
  lf_race_launch(cross_entropy_grad_f32, {4}, {256}, 0, x.data(), x.data(), labels.data(), dloss.data(), 70);
  lf_race_launch(sum_losses_f32, {1}, {256}, 0, out.data(), loss.data(), labels.data(), trap.data(), 4, 70, 0);
}
#endif
