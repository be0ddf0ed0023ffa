// Cross-entropy of the logits x Wᵀ, and its gradient for x, a few rows at a time:
// the logits of all rows never exist. This file has everything except the matrix
// products, which are in linear_ce_f32.cu and linear_ce_mma.cu.
//
//   rows:     the numbers of the rows that have a label, in their order
//   gather:   their x, from row first on
//   losses:   loss of each row of logits, which dloss·(softmax − onehot) replaces
//             where a gradient is wanted
//   scatter:  dx[rows[first + i]] = the sum of parts of its gradient
//   clear:    dx = 0 in the rows without a label
//
// How many rows have a label is known on the device only (count): launches are for
// all rows, and blocks that have none end at once. Labels below 0 or outside the
// vocabulary count as no label; sum_losses_f32 of cross_entropy.cu reports the
// latter.
//
// Layout: x and dx [n, d], labels and rows [n] (i32), logits [per, v], parts
//   [parts, per, d].
// Grid: rows one block of 1024 threads; the others a block for a row.
// Traffic: gather 8 bytes an element; losses 4 bytes a logit, with the gradient 8
//   and 4 more where rows are too long for the caches; scatter 4·(parts + 1).
// Registers: 12 to 34 on sm_80, 13 to 32 on sm_90a.
// Reference: for i { if label[i] >= 0 { rows[count++] = i } }
#include "cross_entropy.cuh"

extern "C" __global__ void __launch_bounds__(1024) lce_rows(int* count, int* rows, float* loss, const int* labels, int n, int v) {
  LF_SHARED(int, found, [2][32]); // by turns: the next one is filled before all have read this one
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, before = 0;
  for (int base = 0, turn = 0; base < n; base += 1024, turn ^= 1) {
    int i = base + threadIdx.x, label = i < n ? labels[i] : -1;
    if (i < n) loss[i] = 0.0f;
    unsigned votes = __ballot_sync(0xffffffffu, label >= 0 && label < v);
    if (lane == 0) found[turn][warp] = __popc(votes);
    __syncthreads();
    int mine = before;
    for (int w = 0; w < 32; w++) {
      if (w < warp) mine += found[turn][w];
      before += found[turn][w];
    }
    if (votes >> lane & 1) rows[mine + __popc(votes & ((1u << lane) - 1))] = i;
  }
  if (threadIdx.x == 0) *count = before;
}
LF_KERNEL(lce_rows);

template <int V>
LF_DEVICE void lf_copy_row(float* out, const float* x, int d) {
  lf_pack<V> v;
  for (int j = threadIdx.x * V; j < d; j += 256 * V) {
    v.load(x + j);
    v.store(out + j);
  }
}

extern "C" __global__ void __launch_bounds__(256) lce_gather(float* out, const float* x, const int* rows, const int* count, int first, int d) {
  int i = first + blockIdx.x;
  if (i >= *count) return;
  const float* from = x + (long long)rows[i] * d;
  float* to = out + (long long)blockIdx.x * d;
  if (lf_fours(d, to, from))
    lf_copy_row<4>(to, from, d);
  else
    lf_copy_row<1>(to, from, d);
}
LF_KERNEL(lce_gather);

// dloss may be null.
extern "C" __global__ void __launch_bounds__(1024)
    lce_losses(float* loss, float* logits, const int* labels, const int* rows, const int* count, int first, int v, const float* dloss) {
  LF_SHARED(lf_softmax, part, [32]);
  int i = first + blockIdx.x;
  if (i >= *count) return;
  float* row = logits + (long long)blockIdx.x * v;
  int label = labels[rows[i]];
  lf_softmax a = lf_logits(row, v, part);
  if (threadIdx.x == 0) loss[i] = lf_loss(a, row[label]);
  if (!dloss) return;
  __syncthreads(); // the logit of the label has been read
  lf_logits_grad(row, row, v, label, a, *dloss);
}
LF_KERNEL(lce_losses);

template <int V>
LF_DEVICE void lf_sum_parts(float* out, const float* parts, long long step, int count, int d) {
  for (int j = threadIdx.x * V; j < d; j += 256 * V) {
    lf_pack<V> sum, v;
    sum.load(parts + j);
    for (int s = 1; s < count; s++) {
      v.load(parts + s * step + j);
#pragma unroll
      for (int k = 0; k < V; k++) sum.v[k] += v.v[k];
    }
    sum.store(out + j);
  }
}

extern "C" __global__ void __launch_bounds__(256)
    lce_scatter(float* dx, const float* partial, const int* rows, const int* count, int first, int d, int per, int parts) {
  int i = first + blockIdx.x;
  if (i >= *count) return;
  const float* from = partial + (long long)blockIdx.x * d;
  float* to = dx + (long long)rows[i] * d;
  if (lf_fours(d, to, from))
    lf_sum_parts<4>(to, from, (long long)per * d, parts, d);
  else
    lf_sum_parts<1>(to, from, (long long)per * d, parts, d);
}
LF_KERNEL(lce_scatter);

extern "C" __global__ void __launch_bounds__(256) lce_clear(float* dx, const int* labels, int d, int v) {
  int label = labels[blockIdx.x];
  if (label < 0 || label >= v) lf_clear_row(dx + (long long)blockIdx.x * d, d);
}
LF_KERNEL(lce_clear);

#ifdef LF_RACE
#include "../sim/test/race.h"
LF_RACE_CASE(linear_ce) {
  auto labels = lf_race_noise<int>(1300);
  for (int i = 0; i < 1300; i += 1 + i % 7) labels[i] = -100;
  auto x = lf_race_noise<float>(1300 * 6), logits = lf_race_noise<float>(3 * 20), parts = lf_race_noise<float>(2 * 3 * 6), dloss = lf_race_noise<float>(1);
  std::vector<float> loss(1300), gathered(3 * 6), dx(1300 * 6);
  std::vector<int> rows(1300), count(1);
  lf_race_launch(lce_rows, {1}, {1024}, 0, count.data(), rows.data(), loss.data(), labels.data(), 1300, 20);
  lf_race_launch(lce_gather, {3}, {256}, 0, gathered.data(), x.data(), rows.data(), count.data(), 2, 6);
  lf_race_launch(lce_losses, {3}, {256}, 0, loss.data(), logits.data(), labels.data(), rows.data(), count.data(), 2, 20, dloss.data());
  lf_race_launch(lce_scatter, {3}, {256}, 0, dx.data(), parts.data(), rows.data(), count.data(), 2, 6, 3, 2);
  lf_race_launch(lce_clear, {4}, {256}, 0, dx.data(), labels.data(), 6, 20);
}
#endif
