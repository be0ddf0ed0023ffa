// Sums of squares of LF_SQUARES numbers, for sum_squares.
#pragma once

#include "row.h"
#include "total.h"

#define LF_SQUARES 16384

// The sum of the numbers of a block that a thread squares.
template <int V>
LF_DEVICE lf_total lf_squares(lf_thread t, LF_GLOBAL const float* x, long n, long block) {
  lf_pack<V> v, s = {};
  long i = block * LF_SQUARES + t.index * V;
#pragma unroll 4
  for (int k = 0; k < LF_SQUARES / 256 / V && i < n; k++, i += 256 * V) {
    v.load(x + i);
#pragma unroll
    for (int j = 0; j < V; j++) s.v[j] = lf_fma(v.v[j], v.v[j], s.v[j]);
  }
  lf_total sum = lf_total_of(s.v[0]);
#pragma unroll
  for (int j = 1; j < V; j++) sum = lf_total_add(sum, lf_total_of(s.v[j]));
  return sum;
}
