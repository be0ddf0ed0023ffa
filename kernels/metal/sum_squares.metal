// The sum of the squares of n numbers, for the norm of all gradients.
//
// Layout: x [n] and out, one number; partial [threadgroups] (pairs of floats) where
//   there are several. What a threadgroup and a thread add up depends on n alone.
// Grid: 256 threads for 16384 numbers. A thread adds 4 by 16 squares in float; from
//   there on all sums are pairs of floats, in the order of a butterfly and then of the
//   threadgroups, which a second launch of one threadgroup (sum_partials_f32) adds up.
//   Up to 16384 numbers need one launch only.
// Traffic: 4 bytes a number; bound by memory.
// Reference: s = 0; for i { s += x[i]·x[i] }
#include "pair.h"
#include "row.h"

#define LF_SQUARES 16384

template <int V>
inline lf_pair lf_squares(lf_thread t, device const float* x, long n) {
  lf_pack<V> v, s = {};
  long i = (long)t.group.x * LF_SQUARES + t.index * V;
  for (int k = 0; k < LF_SQUARES / 256 / V && i < n; k++, i += 256 * V) {
    v.load(x + i);
    for (int j = 0; j < V; j++) s.v[j] = fma(v.v[j], v.v[j], s.v[j]);
  }
  lf_pair sum = {s.v[0], 0.0f};
  for (int j = 1; j < V; j++) {
    lf_pair more = {s.v[j], 0.0f};
    sum = lf_pair_add(sum, more);
  }
  return sum;
}

struct sum_squares_f32_args { LF_ARGS; long n; };

// One threadgroup writes out, several write partial.
LF_KERNEL(256)
sum_squares_f32(device float* out [[buffer(0)]], device float2* partial [[buffer(1)]], device const float* x [[buffer(2)]],
                constant sum_squares_f32_args& a [[buffer(3)]], LF_THREAD) {
  LF_BEGIN;
  threadgroup float2 part[8];
  lf_pair sum = lf_block_sum(t, LF_FOURS(a, a.n, 4u) ? lf_squares<4>(t, x, a.n) : lf_squares<1>(t, x, a.n), part);
  if (t.index) return;
  if (t.groups.x == 1)
    *out = lf_pair_float(sum);
  else
    partial[t.group.x] = float2(sum.hi, sum.lo);
}

struct sum_partials_f32_args { LF_ARGS; int n; };

LF_KERNEL(256)
sum_partials_f32(device float* out [[buffer(0)]], device const float2* partial [[buffer(1)]], constant sum_partials_f32_args& a [[buffer(2)]],
                 LF_THREAD) {
  LF_BEGIN;
  threadgroup float2 part[8];
  lf_pair sum = {0.0f, 0.0f};
  for (int i = t.index; i < a.n; i += 256) {
    lf_pair more = {partial[i].x, partial[i].y};
    sum = lf_pair_add(sum, more);
  }
  sum = lf_block_sum(t, sum, part);
  if (t.index == 0) *out = lf_pair_float(sum);
}
