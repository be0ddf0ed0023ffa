// Peak rates of a device, for benchmarks: products on tensor cores and in float32
// within registers, and memory reads. Nothing else uses these. The results have
// no meaning. They are written so that no compiler removes the work.
#include "device.cuh"

namespace {
constexpr int threads = 256;

// noise returns bits that look random, so that power draw and clock rate are
// as with real data.
LF_DEVICE uint32_t noise(uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

// pair returns two bf16 numbers from 0.5 to 1, or their negatives.
LF_DEVICE uint32_t pair(uint32_t x) { return (noise(x) & 0x807f807fu) | 0x3f003f00u; }
}  // namespace

// out[thread] = sum over what the thread holds of n products of bf16 with f32 sums.
//   layout: out f32[256·blocks]. grid: two blocks a multiprocessor keep all tensor
//   cores busy: 16 warps with 8 independent sums each; block: 256.
//   traffic: out once. operations: 262144 n a block.
//   for i in 0..n: for a in 0..2: for b in 0..4: D[a][b] += A[a]·B[b]   (16x16 times 16x8)
extern "C" __global__ void __launch_bounds__(threads) peak_mma_bf16(float* __restrict__ out, int n) {
  const uint32_t id = blockIdx.x * threads + threadIdx.x;
  uint32_t a[2][4], b[4][2];
  float d[2][4][4] = {};
#pragma unroll
  for (int i = 0; i < 8; i++) {
    a[i / 4][i % 4] = pair(16 * id + i);
    b[i / 2][i % 2] = pair(16 * id + 8 + i);
  }
  for (int i = 0; i < n; i++) {
#pragma unroll
    for (int j = 0; j < 8; j++) lf_mma_bf16_16816(d[j / 4][j % 4], a[j / 4], b[j % 4]);
  }
  float sum = 0;
#pragma unroll
  for (int j = 0; j < 32; j++) sum += d[j / 16][j / 4 % 4][j % 4];
  out[id] = sum;
}
LF_KERNEL(peak_mma_bf16);

// out[thread] = sum of 16 numbers after n multiplications and additions of each.
//   layout, grid, block and traffic as above. operations: 8192 n a block.
//   for i in 0..n: for j in 0..16: x[j] = x[j]*a + b
extern "C" __global__ void __launch_bounds__(threads) peak_fma_f32(float* __restrict__ out, int n) {
  const uint32_t id = blockIdx.x * threads + threadIdx.x;
  const float a = 0.5f + (noise(id) & 0xffff) * 0x1p-18f, b = 0.25f + (noise(~id) & 0xffff) * 0x1p-18f;
  float x[16];
#pragma unroll
  for (int j = 0; j < 16; j++) x[j] = (noise(16 * id + j) & 0xffff) * 0x1p-16f;
  for (int i = 0; i < n; i++) {
#pragma unroll
    for (int j = 0; j < 16; j++) x[j] = fmaf(x[j], a, b);
  }
  float sum = 0;
#pragma unroll
  for (int j = 0; j < 16; j++) sum += x[j];
  out[id] = sum;
}
LF_KERNEL(peak_fma_f32);

// out[thread] = the exclusive or of the words that the thread reads.
//   layout: x u128[n], 16-byte aligned; out u32[256·blocks]. grid: any; block: 256.
//   traffic: 16 n bytes, four loads under way at a time, and out.
//   for i in thread..n step threads: out[thread] ^= each word of x[i]
extern "C" __global__ void __launch_bounds__(threads) peak_read(unsigned* __restrict__ out, const uint4* __restrict__ x, long long n) {
  const long long id = (long long)blockIdx.x * threads + threadIdx.x, step = (long long)gridDim.x * threads;
  unsigned sum = 0;
  long long i = id;
  for (; i + 3 * step < n; i += 4 * step) {
    const uint4 a = x[i], b = x[i + step], c = x[i + 2 * step], d = x[i + 3 * step];
    sum ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
  }
  for (; i < n; i += step) sum ^= x[i].x ^ x[i].y ^ x[i].z ^ x[i].w;
  out[id] = sum;
}
LF_KERNEL(peak_read);

#ifdef LF_RACE
#include "../sim/test/race.h"
LF_RACE_CASE(peak) {
  std::vector<float> out(512);
  std::vector<uint32_t> words(512), x(4 * 3000, 7);
  lf_race_launch(peak_mma_bf16, {2}, {256}, 0, out.data(), 2);
  lf_race_launch(peak_fma_f32, {2}, {256}, 0, out.data(), 2);
  lf_race_launch(peak_read, {2}, {256}, 0, words.data(), reinterpret_cast<const uint4*>(x.data()), 3000ll);
}
#endif
