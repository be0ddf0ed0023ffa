// Kernels that are right: each uses one part of the device language.
#include "../../cuda/device.cuh"

// out[b] = sum of 32*warps numbers, by shuffles and shared memory.
extern "C" __global__ void __launch_bounds__(256) test_block_sum(const float* x, float* out) {
  LF_SHARED(float, part, [8]);
  float v = lf_warp_sum(x[blockIdx.x * blockDim.x + threadIdx.x]);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x == 0) {
    float s = 0;
    for (unsigned w = 0; w < blockDim.x / 32; w++) s += part[w];
    out[blockIdx.x] = s;
  }
}
LF_KERNEL(test_block_sum);

// Eight results of each warp primitive a lane.
extern "C" __global__ void __launch_bounds__(64) test_warp(int* out) {
  const unsigned all = 0xffffffffu;
  int lane = threadIdx.x % 32, *o = out + threadIdx.x * 12;
  o[0] = __shfl_sync(all, lane * 10, 5);
  o[1] = __shfl_up_sync(all, lane, 3);
  o[2] = __shfl_down_sync(all, lane, 3);
  o[3] = __shfl_xor_sync(all, lane, 9);
  o[4] = __shfl_sync(all, lane, 3, 8);
  o[5] = (int)__ballot_sync(all, lane % 3 == 0);
  o[6] = __any_sync(all, lane == 31) + 2 * __all_sync(all, lane < 31);
  o[7] = (int)__match_any_sync(all, lane / 4);
  o[8] = __syncthreads_count(lane < 4) * 100 + __syncthreads_or(threadIdx.x == 40) * 10 + __syncthreads_and(threadIdx.x < 64);
  o[9] = __popc(0xf0f0u) + __clz(1) + __ffs(8);
  o[10] = (int)__byte_perm(0x03020100u, 0x07060504u, 0x7531u);
  o[11] = (int)__umulhi(0x80000000u, 6u);
}
LF_KERNEL(test_warp);

// Half of the warp shuffles, the other half votes.
extern "C" __global__ void __launch_bounds__(32) test_halves(int* out) {
  int lane = threadIdx.x, v;
  if (lane < 16) {
    v = __shfl_xor_sync(0x0000ffffu, lane, 1);
  } else {
    v = (int)__ballot_sync(0xffff0000u, lane % 2);
  }
  __syncwarp();
  out[lane] = v;
}
LF_KERNEL(test_halves);

// A producer warp hands numbers to a consumer warp, by two named barriers.
extern "C" __global__ void __launch_bounds__(64) test_named_barriers(float* out, int n) {
  LF_SHARED(float, slot, [32]);
  int lane = threadIdx.x % 32;
  for (int i = 0; i < n; i++) {
    if (threadIdx.x < 32) {
      if (i) lf_bar_sync(2, 64);
      slot[lane] = (float)(i * 100 + lane);
      lf_bar_arrive(1, 64);
    } else {
      lf_bar_sync(1, 64);
      out[i * 32 + lane] = slot[31 - lane];
      if (i + 1 < n) lf_bar_arrive(2, 64);
    }
  }
}
LF_KERNEL(test_named_barriers);

// One 16x8x16 product; b is k by n, so that its fragments come by .trans.
extern "C" __global__ void __launch_bounds__(32) test_mma_f16(const lf_f16* a, const lf_f16* b, float* c) {
  LF_SHARED(lf_f16, ta, [16][16]);
  LF_SHARED(lf_f16, tb, [16][8]);
  int lane = threadIdx.x;
  lf_cp_async16(&ta[lane / 2][lane % 2 * 8], a + lane * 8);
  lf_cp_async8(&tb[lane / 2][lane % 2 * 4], b + lane * 4);
  lf_cp_async_wait_all();
  __syncwarp();
  uint32_t fa[4], fb[2], fc;
  lf_ldmatrix_x4(fa, &ta[lane % 16][lane / 16 * 8]);
  lf_ldmatrix_x2_trans(fb, &tb[lane % 16][0]);
  lf_ldmatrix_x1_trans(fc, &tb[8 + lane % 8][0]);
  float d[4] = {};
  lf_mma_f16_16816(d, fa, fb);
  for (int i = 0; i < 4; i++) c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = fc == fb[1] ? d[i] : -1.f;
}
LF_KERNEL(test_mma_f16);

// Copies n bytes of every 16, followed by zeros.
extern "C" __global__ void __launch_bounds__(32) test_zero_fill(const unsigned char* x, unsigned char* y, int n) {
  LF_DYN_SHARED(unsigned char, t);
  lf_cp_async16_n(t + threadIdx.x * 16, x + threadIdx.x * 16, n);
  lf_cp_async_commit();
  lf_cp_async_wait<0>();
  for (int i = 0; i < 16; i++) y[threadIdx.x * 16 + i] = t[threadIdx.x * 16 + i];
}
LF_KERNEL(test_zero_fill);

// Every pattern of 16 bits through the conversions of both half types, there
// and back: out[i] counts the ways that changed it.
extern "C" __global__ void __launch_bounds__(256) test_halves_round_trip(unsigned* out) {
  unsigned i = blockIdx.x * 256 + threadIdx.x;
  float2 b = lf_unpack_bf16(i | i << 16), h = lf_unpack_f16(i | i << 16);
  unsigned bad = 0;
  bool nan_b = (i & 0x7f80) == 0x7f80 && (i & 0x7f), nan_h = (i & 0x7c00) == 0x7c00 && (i & 0x3ff);
  bad += nan_b ? b.x == b.x : lf_pack_bf16(b.x, b.y) != (i | i << 16);
  bad += nan_h ? h.x == h.x : lf_pack_f16(h.x, h.y) != (i | i << 16);
  out[i] = bad;
}
LF_KERNEL(test_halves_round_trip);

extern "C" __global__ void __launch_bounds__(256) test_scale(const float* x, float* y, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * by;
}
LF_KERNEL(test_scale);

extern "C" __global__ void __launch_bounds__(256) test_big_shared(float* out, int n) {
  LF_DYN_SHARED(float, t);
  for (int i = threadIdx.x; i < n; i += blockDim.x) t[i] = (float)i;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = t[n - 1 - i];
}
LF_KERNEL(test_big_shared);
