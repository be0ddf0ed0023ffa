// The cross-entropy of one row of logits, by the threads of a block.
#pragma once

#include "row.cuh"

LF_DEVICE lf_softmax lf_logits(const float* x, int v, lf_softmax* part) {
  return lf_fours(v, x) ? lf_softmax_row<4>(x, v, part) : lf_softmax_row<1>(x, v, part);
}

// The difference of two large numbers comes first.
LF_DEVICE float lf_loss(const lf_softmax& a, float x) { return (a.shift() - x) + logf(a.s); }

template <int V>
LF_DEVICE void lf_logits_grad_of(float* dx, const float* x, int v, int label, const lf_softmax& a, float scale) {
  float c = a.shift(), f = 1.0f / a.s;
  lf_pack<V> p;
  for (int j = threadIdx.x * V; j < v; j += blockDim.x * V) {
    p.load(x + j);
#pragma unroll
    for (int i = 0; i < V; i++) {
      p.v[i] = expf(p.v[i] - c) * f;
      if (j + i == label) p.v[i] -= 1.0f;
      p.v[i] *= scale;
    }
    p.store(dx + j);
  }
}

template <int V>
LF_DEVICE void lf_clear_row_of(float* dx, int v) {
  lf_pack<V> zero = {};
  for (int j = threadIdx.x * V; j < v; j += blockDim.x * V) zero.store(dx + j);
}

// dx = scale · (softmax(x) − onehot(label)); dx may be x.
LF_DEVICE void lf_logits_grad(float* dx, const float* x, int v, int label, const lf_softmax& a, float scale) {
  if (lf_fours(v, dx, x))
    lf_logits_grad_of<4>(dx, x, v, label, a, scale);
  else
    lf_logits_grad_of<1>(dx, x, v, label, a, scale);
}

LF_DEVICE void lf_clear_row(float* dx, int v) {
  if (lf_fours(v, dx))
    lf_clear_row_of<4>(dx, v);
  else
    lf_clear_row_of<1>(dx, v);
}
