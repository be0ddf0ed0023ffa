// Cross-entropy of rows of logits, and its gradient:
//
//   loss = Σ_i log Σ_j exp(x[i,j]) − x[i,label[i]],  rows without a label (< 0) left out
//   dx   = dloss · (softmax(x) − onehot(label)),     zero in rows without a label
//
// Layout: x and dx [n, v], dx may share the memory of x; labels [n] (i32); dloss one
//   number in memory.
// Grid: a threadgroup for a row: once over it for its maximum and its sum, which are
//   kept together and rescaled, and for the gradient a second time. Then one
//   threadgroup for the sum of the losses, in an order of their own, in pairs of floats.
// Traffic: the loss 4 bytes a logit; its gradient 8, and 4 more where a row is too
//   long for the caches (the rows of all threadgroups under way). Rows without a label
//   are not read. Bound by memory.
// A label that the vocabulary does not have is reported by the sum and counts as
// none elsewhere.
// Reference: for i { if label[i] >= 0 { m = max_j x[i,j]; s = Σ_j exp(x[i,j] − m)
//                    loss += m − x[i,label[i]] + log(s)
//                    for j { dx[i,j] = dloss (exp(x[i,j] − m)/s − (j == label[i])) } } }
#include "cross_entropy.h"
#include "pair.h"
#include "report.h"

struct cross_entropy_f32_args { LF_ARGS; int v; };

LF_KERNEL(1024)
cross_entropy_f32(device float* loss [[buffer(0)]], device const float* x [[buffer(1)]], device const int* labels [[buffer(2)]],
                  constant cross_entropy_f32_args& a [[buffer(3)]], LF_THREAD) {
  LF_BEGIN;
  threadgroup float2 part[32];
  int label = labels[t.group.x]; // one for the threadgroup: all of its threads leave, or none
  if (label < 0 || label >= a.v) {
    if (t.index == 0) loss[t.group.x] = 0.0f;
    return;
  }
  device const float* row = x + (long)t.group.x * a.v;
  lf_softmax all = lf_logits(t, row, a.v, LF_FOURS(a, a.v, 2u), part);
  if (t.index == 0) loss[t.group.x] = lf_loss(all, row[label]);
}

struct cross_entropy_grad_f32_args { LF_ARGS; int v; };

LF_KERNEL(1024)
cross_entropy_grad_f32(device float* dx [[buffer(0)]], device const float* x [[buffer(1)]], device const int* labels [[buffer(2)]],
                       device const float* dloss [[buffer(3)]], constant cross_entropy_grad_f32_args& a [[buffer(4)]], LF_THREAD) {
  LF_BEGIN;
  threadgroup float2 part[32];
  int label = labels[t.group.x];
  long at = (long)t.group.x * a.v;
  if (label < 0 || label >= a.v)
    lf_clear_row(t, dx + at, a.v, LF_FOURS(a, a.v, 1u));
  else
    lf_logits_grad(t, dx + at, x + at, a.v, label, lf_logits(t, x + at, a.v, LF_FOURS(a, a.v, 2u), part), *dloss, LF_FOURS(a, a.v, 3u));
}

struct sum_losses_f32_args { LF_ARGS; int n, v, launch; };

// The sum of n losses, and the report of the first label that is too large. Without
// loss it is a check alone.
LF_KERNEL(256)
sum_losses_f32(device float* out [[buffer(0)]], device const float* loss [[buffer(1)]], device const int* labels [[buffer(2)]],
               device long* trap [[buffer(3)]], constant sum_losses_f32_args& a [[buffer(4)]], LF_THREAD) {
  LF_BEGIN;
  threadgroup float2 part[8];
  threadgroup int first[256];
  int bad = a.n;
  bool sums = LF_BOUND(a, 1);
  lf_pair sum = {0.0f, 0.0f};
  for (int i = t.index; i < a.n; i += 256) {
    if (sums) {
      lf_pair more = {loss[i], 0.0f};
      sum = lf_pair_add(sum, more);
    }
    if (labels[i] >= a.v) bad = min(bad, i);
  }
  sum = lf_block_sum(t, sum, part);
  if (sums && t.index == 0) *out = lf_pair_float(sum);
  first[t.index] = bad;
  for (uint m = 128; m; m >>= 1) {
    lf_barrier();
    if (t.index < m) first[t.index] = min(first[t.index], first[t.index + m]);
  }
  if (t.index == 0 && first[0] < a.n) lf_report(trap, a.launch, first[0], labels[first[0]]);
}
