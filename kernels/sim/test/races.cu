// Kernels that race, and their like that do not.
#include "../../cuda/device.cuh"

template <bool Barrier>
__global__ void through_shared(const float* x, float* y) {
  LF_SHARED(float, t, [64]);
  t[threadIdx.x] = x[threadIdx.x];
  if (Barrier) __syncthreads();
  y[threadIdx.x] = t[63 - threadIdx.x];
}

template <bool Barrier>
__global__ void through_a_warp(const float* x, float* y) {
  LF_SHARED(float, t, [32]);
  t[threadIdx.x] = x[threadIdx.x];
  if (Barrier) __syncwarp();
  y[threadIdx.x] = t[threadIdx.x ^ 1];
}

// A stage is filled again while slower warps may still read it.
template <bool Barrier>
__global__ void stages(const float* x, float* y, int n) {
  LF_SHARED(float, t, [64]);
  float s = 0;
  for (int i = 0; i < n; i++) {
    lf_cp_async4(&t[threadIdx.x], x + i * 64 + threadIdx.x);
    lf_cp_async_commit();
    lf_cp_async_wait<0>();
    __syncthreads();
    s += t[63 - threadIdx.x];
    if (Barrier) __syncthreads();
  }
  y[threadIdx.x] = s;
}

template <bool Barrier>
__global__ void into_fragments(const lf_bf16* x, uint32_t* y) {
  LF_SHARED(lf_bf16, t, [8 * 8]);
  t[threadIdx.x] = x[threadIdx.x];
  t[threadIdx.x + 32] = x[threadIdx.x + 32];
  if (Barrier) __syncwarp();
  uint32_t r;
  lf_ldmatrix_x1(r, &t[threadIdx.x % 8 * 8]);
  y[threadIdx.x] = r;
}

// All blocks add to one place.
__global__ void one_sum(const float* x, float* y) {
  float s = lf_warp_sum(x[blockIdx.x * 32 + threadIdx.x]);
  if (threadIdx.x == 0) y[0] += s;
}

__global__ void own_sums(const float* x, float* y) {
  float s = lf_warp_sum(x[blockIdx.x * 32 + threadIdx.x]);
  if (threadIdx.x == 0) y[blockIdx.x] = s;
}

#ifdef LF_RACE
#include "race.h"

template <class K>
static void launch(K kernel, unsigned grid, unsigned block) {
  auto x = lf_race_noise<float>(grid * block);
  std::vector<float> y(grid * block);
  lf_race_launch(kernel, {grid}, {block}, 0, x.data(), y.data());
}

static void launch_fragments(void (*kernel)(const lf_bf16*, uint32_t*)) {
  auto x = lf_race_noise<lf_bf16>(64);
  std::vector<uint32_t> y(32);
  lf_race_launch(kernel, {1}, {32}, 0, x.data(), y.data());
}

static void launch_stages(void (*kernel)(const float*, float*, int)) {
  auto x = lf_race_noise<float>(4 * 64);
  std::vector<float> y(64);
  lf_race_launch(kernel, {1}, {64}, 0, x.data(), y.data(), 4);
}

LF_RACE_CASE(planted_shared) { launch(through_shared<false>, 1, 64); }
LF_RACE_CASE(right_shared) { launch(through_shared<true>, 1, 64); }
LF_RACE_CASE(planted_warp) { launch(through_a_warp<false>, 1, 32); }
LF_RACE_CASE(right_warp) { launch(through_a_warp<true>, 1, 32); }
LF_RACE_CASE(planted_fragments) { launch_fragments(into_fragments<false>); }
LF_RACE_CASE(right_fragments) { launch_fragments(into_fragments<true>); }
LF_RACE_CASE(planted_stages) { launch_stages(stages<false>); }
LF_RACE_CASE(right_stages) { launch_stages(stages<true>); }
LF_RACE_CASE(planted_blocks) { launch(one_sum, 8, 32); }
LF_RACE_CASE(right_blocks) { launch(own_sums, 8, 32); }
#endif
