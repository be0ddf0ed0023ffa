// Cross-entropy of the logits x Wᵀ, and its gradient for x, a few rows at a time:
// the logits of all rows never exist. This file has everything except the matrix
// products, which are in linear_ce_f32.metal and linear_ce_mma.metal.
//
//   rows:     the numbers of the rows that have a label, in their order
//   gather:   their x, from row first on
//   losses:   loss of each row of logits, which dloss·(softmax − onehot) replaces
//             where a gradient is wanted
//   scatter:  dx[rows[first + i]] = the sum of parts of its gradient
//   clear:    dx = 0 in the rows without a label
//
// How many rows have a label is known on the device only (count): launches are for
// all rows, and threadgroups that have none end at once, all threads of one or none.
// Labels below 0 or outside the vocabulary count as no label; sum_losses_f32
// of cross_entropy.metal reports the latter.
//
// Layout: x and dx [n, d], labels and rows [n] (i32), logits [per, v], parts
//   [parts, per, d].
// Grid: rows one threadgroup of 1024 threads; the others one for a row.
// Traffic: gather 8 bytes an element; losses 4 bytes a logit, with the gradient 8
//   and 4 more where rows are too long for the caches; scatter 4·(parts + 1).
// Reference: for i { if label[i] >= 0 { rows[count++] = i } }
#include "cross_entropy.h"

struct lce_rows_args { LF_ARGS; int n, v; };

LF_KERNEL(1024) lce_rows(device int* count [[buffer(0)]], device int* rows [[buffer(1)]], device float* loss [[buffer(2)]],
                         device const int* labels [[buffer(3)]], constant lce_rows_args& a [[buffer(4)]], LF_THREAD) {
  LF_BEGIN;
  threadgroup int found[2][32]; // by turns: the next one is filled before all have read this one
  int before = 0, turn = 0;
  for (int base = 0; base < a.n; base += 1024, turn ^= 1) {
    int i = base + (int)t.index, label = i < a.n ? labels[i] : -1;
    if (i < a.n) loss[i] = 0.0f;
    uint votes = lf_ballot(t, label >= 0 && label < a.v);
    if (t.lane == 0) found[turn][t.warp] = (int)popcount(votes);
    lf_barrier();
    int mine = before;
    for (uint w = 0; w < 32; w++) {
      if (w < t.warp) mine += found[turn][w];
      before += found[turn][w];
    }
    if (votes >> t.lane & 1) rows[mine + (int)popcount(votes & ((1u << t.lane) - 1))] = i;
  }
  if (t.index == 0) *count = before;
}

template <int V>
inline void lf_copy_row(lf_thread t, device float* out, device const float* x, int d) {
  lf_pack<V> v;
  for (int j = (int)t.index * V; j < d; j += 256 * V) {
    v.load(x + j);
    v.store(out + j);
  }
}

struct lce_gather_args { LF_ARGS; int first, d; };

LF_KERNEL(256) lce_gather(device float* out [[buffer(0)]], device const float* x [[buffer(1)]], device const int* rows [[buffer(2)]],
                          device const int* count [[buffer(3)]], constant lce_gather_args& a [[buffer(4)]], LF_THREAD) {
  LF_BEGIN;
  int i = a.first + (int)t.group.x;
  if (i >= *count) return;
  device const float* from = x + (long)rows[i] * a.d;
  device float* to = out + (long)t.group.x * a.d;
  if (LF_FOURS(a, a.d, 3u))
    lf_copy_row<4>(t, to, from, a.d);
  else
    lf_copy_row<1>(t, to, from, a.d);
}

struct lce_losses_args { LF_ARGS; int first, v; };

// dloss may be null.
LF_KERNEL(1024) lce_losses(device float* loss [[buffer(0)]], device float* logits [[buffer(1)]], device const int* labels [[buffer(2)]],
                           device const int* rows [[buffer(3)]], device const int* count [[buffer(4)]], device const float* dloss [[buffer(5)]],
                           constant lce_losses_args& a [[buffer(6)]], LF_THREAD) {
  LF_BEGIN;
  threadgroup float2 part[32];
  int i = a.first + (int)t.group.x;
  if (i >= *count) return;
  device float* row = logits + (long)t.group.x * a.v;
  bool wide = LF_FOURS(a, a.v, 2u);
  int label = labels[rows[i]];
  lf_softmax all = lf_logits(t, row, a.v, wide, part);
  if (t.index == 0) loss[i] = lf_loss(all, row[label]);
  if (!LF_BOUND(a, 5)) return;
  lf_barrier_device(); // the logit of the label has been read
  lf_logits_grad(t, row, row, a.v, label, all, *dloss, wide);
}

template <int V>
inline void lf_sum_parts(lf_thread t, device float* out, device const float* parts, long step, int count, int d) {
  for (int j = (int)t.index * V; j < d; j += 256 * V) {
    lf_pack<V> sum, v;
    sum.load(parts + j);
    for (int s = 1; s < count; s++) {
      v.load(parts + s * step + j);
      for (int k = 0; k < V; k++) sum.v[k] += v.v[k];
    }
    sum.store(out + j);
  }
}

struct lce_scatter_args { LF_ARGS; int first, d, per, parts; };

LF_KERNEL(256) lce_scatter(device float* dx [[buffer(0)]], device const float* partial [[buffer(1)]], device const int* rows [[buffer(2)]],
                           device const int* count [[buffer(3)]], constant lce_scatter_args& a [[buffer(4)]], LF_THREAD) {
  LF_BEGIN;
  int i = a.first + (int)t.group.x;
  if (i >= *count) return;
  device const float* from = partial + (long)t.group.x * a.d;
  device float* to = dx + (long)rows[i] * a.d;
  if (LF_FOURS(a, a.d, 3u))
    lf_sum_parts<4>(t, to, from, (long)a.per * a.d, a.parts, a.d);
  else
    lf_sum_parts<1>(t, to, from, (long)a.per * a.d, a.parts, a.d);
}

struct lce_clear_args { LF_ARGS; int d, v; };

LF_KERNEL(256) lce_clear(device float* dx [[buffer(0)]], device const int* labels [[buffer(1)]], constant lce_clear_args& a [[buffer(2)]],
                         LF_THREAD) {
  LF_BEGIN;
  int label = labels[t.group.x];
  if (label < 0 || label >= a.v) lf_clear_row(t, dx + (long)t.group.x * a.d, a.d, LF_FOURS(a, a.d, 1u));
}
