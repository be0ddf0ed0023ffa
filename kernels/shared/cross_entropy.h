// The cross-entropy of one row of logits, by the threads of a block. wide says
// that the row can be taken by four.
#pragma once

#include "softmax.h"

LF_DEVICE lf_softmax lf_logits(lf_thread t, LF_GLOBAL const float* x, int v, bool wide, LF_GROUP float2* part) {
  lf_all_f32 types;
  return wide ? lf_softmax_row<4>(t, types, 0, x, 0, v, part) : lf_softmax_row<1>(t, types, 0, x, 0, v, part);
}

// The difference of two large numbers comes first.
LF_DEVICE float lf_loss(lf_softmax a, float x) { return (a.shift() - x) + lf_log(a.s); }

template <int V, class S>
LF_DEVICE void lf_logits_grad_of(lf_thread t, S types, LF_GLOBAL void* dx, long at, LF_GLOBAL const float* x, int v, int label, lf_softmax a,
                                 float scale) {
  float c = a.shift(), f = 1.0f / a.s;
  lf_pack<V> p;
  for (int j = t.index * V; j < v; j += t.size * V) {
    p.load(x + j);
#pragma unroll
    for (int i = 0; i < V; i++) {
      p.v[i] = lf_exp(p.v[i] - c) * f;
      if (j + i == label) p.v[i] -= 1.0f;
      p.v[i] *= scale;
    }
    lf_store(types, 0, dx, at + j, p);
  }
}

template <int V, class S>
LF_DEVICE void lf_clear_row_of(lf_thread t, S types, LF_GLOBAL void* dx, long at, int v) {
  lf_pack<V> zero = {};
  for (int j = t.index * V; j < v; j += t.size * V) lf_store(types, 0, dx, at + j, zero);
}

// dx = scale · (softmax(x) − onehot(label)), from element at of dx on; if dx is f32, this may
// be x.
template <class S>
LF_DEVICE void lf_logits_grad(lf_thread t, S types, LF_GLOBAL void* dx, long at, LF_GLOBAL const float* x, int v, int label, lf_softmax a,
                              float scale, bool wide) {
  if (wide)
    lf_logits_grad_of<4>(t, types, dx, at, x, v, label, a, scale);
  else
    lf_logits_grad_of<1>(t, types, dx, at, x, v, label, a, scale);
}

template <class S>
LF_DEVICE void lf_clear_row(lf_thread t, S types, LF_GLOBAL void* dx, long at, int v, bool wide) {
  if (wide)
    lf_clear_row_of<4>(t, types, dx, at, v);
  else
    lf_clear_row_of<1>(t, types, dx, at, v);
}
