// The sum of the squares of n numbers, for the norm of all gradients.
//
// Layout: x [n] and out, one number; partial [blocks] (f64) where there are several
//   blocks. What a block and a thread add up depends on n alone.
// Grid: 256 threads for 16384 numbers. A thread adds 4 by 16 squares in float32;
//   from there on all sums are double, in the order of a butterfly and then of the
//   blocks, which a second launch of one block (sum_partials_f32) adds up. Up to
//   16384 numbers need one launch only.
// Traffic: 4 bytes a number; bound by memory. One addition in double for 64
//   numbers, so that devices that are slow at them do not wait for it.
// Registers: 20 and 28 on sm_80, 24 and 30 on sm_90a.
// Reference: s = 0; for i { s += x[i]·x[i] }
#include "row.cuh"

#define LF_SQUARES 16384

template <int V>
LF_DEVICE double lf_squares(const float* x, long long n) {
  float s[V] = {};
  long long i = (long long)blockIdx.x * LF_SQUARES + threadIdx.x * V;
#pragma unroll 4
  for (int k = 0; k < LF_SQUARES / 256 / V; k++, i += 256 * V) {
    if (i >= n) break;
    lf_pack<V> v;
    v.load(x + i);
#pragma unroll
    for (int j = 0; j < V; j++) s[j] = fmaf(v.v[j], v.v[j], s[j]);
  }
  double sum = 0.0;
#pragma unroll
  for (int j = 0; j < V; j++) sum += (double)s[j];
  return sum;
}

// One block writes out, several write partial.
extern "C" __global__ void __launch_bounds__(256) sum_squares_f32(float* out, double* partial, const float* x, long long n) {
  LF_SHARED(double, part, [8]);
  double sum = lf_block_sum(lf_fours(n, x) ? lf_squares<4>(x, n) : lf_squares<1>(x, n), part);
  if (threadIdx.x) return;
  if (gridDim.x == 1)
    *out = (float)sum;
  else
    partial[blockIdx.x] = sum;
}
LF_KERNEL(sum_squares_f32);

extern "C" __global__ void __launch_bounds__(256) sum_partials_f32(float* out, const double* partial, int n) {
  LF_SHARED(double, part, [8]);
  double sum = 0.0;
  for (int i = threadIdx.x; i < n; i += 256) sum += partial[i];
  sum = lf_block_sum(sum, part);
  if (threadIdx.x == 0) *out = (float)sum;
}
LF_KERNEL(sum_partials_f32);

#ifdef LF_RACE
#include "../sim/test/race.h"
LF_RACE_CASE(sum_squares) {
  auto x = lf_race_noise<float>(40000);
  std::vector<double> partial(3);
  std::vector<float> out(1);
  lf_race_launch(sum_squares_f32, {3}, {256}, 0, out.data(), partial.data(), x.data(), 40000);
  lf_race_launch(sum_partials_f32, {1}, {256}, 0, out.data(), partial.data(), 3);
}
#endif
