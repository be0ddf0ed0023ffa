// Cross-entropy of rows of logits, and its gradient:
//
//   loss = Σ_i log Σ_j exp(x[i,j]) − x[i,label[i]],  rows without a label (< 0) left out
//   dx   = dloss · (softmax(x) − onehot(label)),     zero in rows without a label
//
// Layout: x and dx [n, v], dx may share the memory of x; labels [n] (i32); dloss one
//   number in memory.
// Grid: a block for a row: once over it for its maximum and its sum, which are
//   kept together and rescaled, and for the gradient a second time. Then one block
//   for the sum of the losses, in an order of their own, in double.
// Traffic: the loss 4 bytes a logit; its gradient 8, and 4 more where a row is too
//   long for the caches (the rows of all blocks under way). Rows without a label
//   are not read. Bound by memory.
// A label that the vocabulary does not have is reported by the sum and counts as
// none elsewhere.
// Registers: 26 to 32 on sm_80 and sm_90a.
// Reference: for i { if label[i] >= 0 { m = max_j x[i,j]; s = Σ_j exp(x[i,j] − m)
//                    loss += m − x[i,label[i]] + log(s)
//                    for j { dx[i,j] = dloss (exp(x[i,j] − m)/s − (j == label[i])) } } }
#include "cross_entropy.cuh"
#include "report.cuh"

extern "C" __global__ void __launch_bounds__(1024) cross_entropy_f32(float* loss, const float* x, const int* labels, int v) {
  LF_SHARED(lf_softmax, part, [32]);
  int label = labels[blockIdx.x];
  if (label < 0 || label >= v) {
    if (threadIdx.x == 0) loss[blockIdx.x] = 0.0f;
    return;
  }
  const float* row = x + (long long)blockIdx.x * v;
  lf_softmax a = lf_logits(row, v, part);
  if (threadIdx.x == 0) loss[blockIdx.x] = lf_loss(a, row[label]);
}
LF_KERNEL(cross_entropy_f32);

extern "C" __global__ void __launch_bounds__(1024)
    cross_entropy_grad_f32(float* dx, const float* x, const int* labels, const float* dloss, int v) {
  LF_SHARED(lf_softmax, part, [32]);
  int label = labels[blockIdx.x];
  long long at = (long long)blockIdx.x * v;
  if (label < 0 || label >= v)
    lf_clear_row(dx + at, v);
  else
    lf_logits_grad(dx + at, x + at, v, label, lf_logits(x + at, v, part), *dloss);
}
LF_KERNEL(cross_entropy_grad_f32);

// The sum of n losses, and the report of the first label that is too large. loss
// may be null, for a check alone.
extern "C" __global__ void __launch_bounds__(256)
    sum_losses_f32(float* out, const float* loss, const int* labels, int n, int v, long long* trap, int launch) {
  LF_SHARED(double, part, [32]);
  LF_SHARED(int, first, [256]);
  int t = threadIdx.x, bad = n;
  double sum = 0.0;
  for (int i = t; i < n; i += 256) {
    if (loss) sum += (double)loss[i];
    if (labels[i] >= v) bad = min(bad, i);
  }
  sum = lf_block_sum(sum, part);
  if (loss && t == 0) *out = (float)sum;
  first[t] = bad;
  for (int m = 128; m; m >>= 1) {
    __syncthreads();
    if (t < m) first[t] = min(first[t], first[t + m]);
  }
  if (t == 0 && first[0] < n) lf_report(trap, launch, first[0], labels[first[0]]);
}
LF_KERNEL(sum_losses_f32);

#ifdef LF_RACE
#include "../sim/test/race.h"
LF_RACE_CASE(cross_entropy) {
  auto x = lf_race_noise<float>(4 * 70), dloss = lf_race_noise<float>(1);
  auto labels = lf_race_noise<int>(4);
  labels[1] = -100, labels[2] = 70;
  std::vector<float> loss(4), out(1);
  std::vector<long long> trap(8);
  lf_race_launch(cross_entropy_f32, {4}, {256}, 0, loss.data(), x.data(), labels.data(), 70);
  lf_race_launch(cross_entropy_grad_f32, {4}, {256}, 0, x.data(), x.data(), labels.data(), dloss.data(), 70);
  lf_race_launch(sum_losses_f32, {1}, {256}, 0, out.data(), loss.data(), labels.data(), 4, 70, trap.data(), 0);
}
#endif
