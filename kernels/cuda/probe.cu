// Two small kernels that test a device, its driver and this image at startup:
// one that runs on any device, and one that needs tensor cores and
// asynchronous copies (sm_80 and later).
#include "device.cuh"

// y[i] += a*x[i], i < n.
//   layout: x, y f32[n]. grid: any; block: at most 256. traffic: 12 n bytes.
//   for i in 0..n: y[i] = y[i] + a*x[i]
extern "C" __global__ void __launch_bounds__(256) probe_axpy_f32(float a, const float* __restrict__ x, float* __restrict__ y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = fmaf(a, x[i], y[i]);
}
LF_KERNEL(probe_axpy_f32);

// C = A·Bᵀ with bf16 factors and f32 sums.
//   layout: A bf16[m,k], B bf16[n,k], C f32[m,n], rows contiguous, k a multiple of 8.
//   grid: (ceil(n/32), ceil(m/64)); block: 128, a warp for 16 rows and 32 columns.
//   dynamic shared: probe_gemm_shared bytes, two stages of 64+32 rows of 32 elements.
//   traffic: A n/32 times, B m/64 times, C once.
//   for i, j: C[i,j] = sum over l in 0..k of A[i,l]*B[j,l]
namespace {
constexpr int rows = 64, columns = 32, depth = 32;
constexpr int stride = depth + 8;  // rows 16 bytes apart modulo 128: ldmatrix without conflicts
constexpr int stage = (rows + columns) * stride;
constexpr int probe_gemm_shared = 2 * stage * 2;
}  // namespace

extern "C" __global__ void __launch_bounds__(128) probe_gemm_bf16(const lf_bf16* __restrict__ a, const lf_bf16* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
  static_assert(probe_gemm_shared == 15360, "what launches ask for");
  LF_DYN_SHARED(lf_bf16, shared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row0 = blockIdx.y * rows, column0 = blockIdx.x * columns;

  auto load = [&](int l0, int s) {
    for (int i = threadIdx.x; i < (rows + columns) * (depth / 8); i += 128) {
      int r = i / (depth / 8), l = l0 + i % (depth / 8) * 8;
      bool of_a = r < rows;
      int row = of_a ? row0 + r : column0 + r - rows;
      bool inside = row < (of_a ? m : n) && l < k;
      const lf_bf16* from = of_a ? a : b;
      lf_cp_async16(&shared[s * stage + r * stride + l - l0], from + (inside ? (size_t)row * k + l : 0), inside);
    }
    lf_cp_async_commit();
  };

  float sums[columns / 8][4] = {};
  load(0, 0);
  for (int l0 = 0, s = 0; l0 < k; l0 += depth, s ^= 1) {
    if (l0 + depth < k) {
      load(l0 + depth, s ^ 1);
      lf_cp_async_wait<1>();
    } else {
      lf_cp_async_wait<0>();
    }
    __syncthreads();
    const lf_bf16 *ta = &shared[s * stage], *tb = ta + rows * stride;
#pragma unroll
    for (int l = 0; l < depth; l += 16) {
      uint32_t fa[4];
      lf_ldmatrix_x4(fa, &ta[(warp * 16 + lane % 16) * stride + l + lane / 16 * 8]);
#pragma unroll
      for (int j = 0; j < columns / 8; j++) {
        uint32_t fb[2];
        lf_ldmatrix_x2(fb, &tb[(j * 8 + lane % 8) * stride + l + lane / 8 % 2 * 8]);
        lf_mma_bf16_16816(sums[j], fa, fb);
      }
    }
    __syncthreads();  // before the stage is loaded again
  }
#pragma unroll
  for (int j = 0; j < columns / 8; j++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int row = row0 + warp * 16 + lane / 4 + i / 2 * 8, column = column0 + j * 8 + lane % 4 * 2 + i % 2;
      if (row < m && column < n) c[(size_t)row * n + column] = sums[j][i];
    }
  }
}
LF_KERNEL(probe_gemm_bf16);

#ifdef LF_RACE
#include "../sim/test/race.h"
LF_RACE_CASE(probe_axpy_f32) {
  auto x = lf_race_noise<float>(1000), y = x;
  lf_race_launch(probe_axpy_f32, {3}, {128}, 0, 0.5f, x.data(), y.data(), 1000);
}
LF_RACE_CASE(probe_gemm_bf16) {
  auto a = lf_race_noise<lf_bf16>(70 * 72), b = lf_race_noise<lf_bf16>(40 * 72);
  std::vector<float> c(70 * 40);
  lf_race_launch(probe_gemm_bf16, {2, 2}, {128}, probe_gemm_shared, a.data(), b.data(), c.data(), 70, 40, 72);
}
#endif
