// One kernel for each group of names that device.cuh has in two versions: PTX
// and CUDA's own under nvcc, the simulated versions of kernels/sim elsewhere. The program
// next to this file runs both on the same words and compares the results.
//
// All are launched with one block of 64 threads, in 4096 words of input, out
// 4096 words of output.
#include "../../cuda/device.cuh"

#define CONFORMANCE(name) extern "C" __global__ void __launch_bounds__(64) name(const uint32_t* __restrict__ in, uint32_t* __restrict__ out)

static __device__ __forceinline__ float f32(uint32_t u) { return __uint_as_float(u); }
static __device__ __forceinline__ uint32_t word(float f) { return __float_as_uint(f); }
static __device__ __forceinline__ uint32_t word(int i) { return (uint32_t)i; }
static __device__ __forceinline__ uint32_t word(unsigned u) { return u; }

// put writes a lane's results consecutively, 64 words apart.
struct Put {
  uint32_t* at;
  template <class T>
  __device__ __forceinline__ void operator()(T v) {
    *at = word(v);
    at += 64;
  }
};

CONFORMANCE(conform_ldmatrix) {
  LF_SHARED(uint32_t, t, [32][4]);  // 32 rows of 16 bytes
  if (threadIdx.x >= 32) return;
  for (int i = 0; i < 4; i++) t[threadIdx.x][i] = in[threadIdx.x * 4 + i];
  __syncwarp();
  const void* row = t[(threadIdx.x * 7) % 32];
  uint32_t r1, r2[2], r4[4];
  Put put{out + threadIdx.x};
  lf_ldmatrix_x1(r1, row), put(r1);
  lf_ldmatrix_x1_trans(r1, row), put(r1);
  lf_ldmatrix_x2(r2, row), put(r2[0]), put(r2[1]);
  lf_ldmatrix_x2_trans(r2, row), put(r2[0]), put(r2[1]);
  lf_ldmatrix_x4(r4, row), put(r4[0]), put(r4[1]), put(r4[2]), put(r4[3]);
  lf_ldmatrix_x4_trans(r4, row), put(r4[0]), put(r4[1]), put(r4[2]), put(r4[3]);
}
LF_KERNEL(conform_ldmatrix);

template <class T>
static __device__ __forceinline__ void mma(const uint32_t* in, uint32_t* out) {
  Put put{out + threadIdx.x};
  for (int n = 0; n < 8; n++) {
    const uint32_t* p = in + n * 512 + threadIdx.x * 6;
    uint32_t a[4] = {p[0], p[1], p[2], p[3]}, b[2] = {p[4], p[5]};
    float d[4] = {1.f, 2.f, 3.f, (float)threadIdx.x};
    lf_type<T>::mma(d, a, b);
    for (int i = 0; i < 4; i++) put(d[i]);
  }
}
CONFORMANCE(conform_mma_bf16) { mma<lf_bf16>(in, out); }
LF_KERNEL(conform_mma_bf16);
CONFORMANCE(conform_mma_f16) { mma<lf_f16>(in, out); }
LF_KERNEL(conform_mma_f16);

CONFORMANCE(conform_cp_async) {
  LF_SHARED(uint32_t, t, [5][64][4]);
  int i = threadIdx.x;
  lf_cp_async16(t[0][i], in + i * 4, i % 3 != 0);
  lf_cp_async_commit();
  lf_cp_async8(t[1][i], in + 256 + i * 4, i % 3 != 1);
  lf_cp_async8(&t[1][i][2], in + 256 + i * 4 + 2);
  lf_cp_async_commit();
  for (int k = 0; k < 4; k++) lf_cp_async4(&t[2][i][k], in + 512 + i * 4 + k, (i + k) % 2 != 0);
  lf_cp_async16_n(t[3][i], in + 768 + i * 4, i % 17);
  lf_cp_async_commit();
  lf_cp_async_wait<1>();
  __syncthreads();
  Put put{out + i};
  for (int k = 0; k < 4; k++) put(t[0][63 - i][k]), put(t[1][63 - i][k]);
  lf_cp_async16(t[4][i], in + 1024 + i * 4);
  lf_cp_async_wait_all();
  __syncthreads();
  for (int k = 0; k < 4; k++) put(t[2][63 - i][k]), put(t[3][63 - i][k]), put(t[4][63 - i][k]);
}
LF_KERNEL(conform_cp_async);

CONFORMANCE(conform_pack_bf16) {
  Put put{out + threadIdx.x};
  for (int k = 0; k < 16; k++) {
    float lo = f32(in[k * 128 + threadIdx.x]), hi = f32(in[k * 128 + 64 + threadIdx.x]);
    put(lf_pack_bf16(lo, hi));
    uint32_t pair;
    lf_bf16 halves[2] = {__float2bfloat16(lo), lf_type<lf_bf16>::from(hi)};
    memcpy(&pair, halves, 4);
    put(pair);
  }
}
LF_KERNEL(conform_pack_bf16);

CONFORMANCE(conform_pack_f16) {
  Put put{out + threadIdx.x};
  for (int k = 0; k < 16; k++) {
    float lo = f32(in[k * 128 + threadIdx.x]), hi = f32(in[k * 128 + 64 + threadIdx.x]);
    put(lf_pack_f16(lo, hi));
    uint32_t pair;
    lf_f16 halves[2] = {__float2half(lo), lf_type<lf_f16>::from(hi)};
    memcpy(&pair, halves, 4);
    put(pair);
  }
}
LF_KERNEL(conform_pack_f16);

CONFORMANCE(conform_unpack) {
  Put put{out + threadIdx.x};
  for (int k = 0; k < 8; k++) {
    uint32_t u = in[k * 64 + threadIdx.x];
    float2 b = lf_unpack_bf16(u), h = lf_unpack_f16(u);
    put(b.x), put(b.y), put(h.x), put(h.y);
    lf_bf16 hb[2];
    lf_f16 hh[2];
    memcpy(hb, &u, 4);
    memcpy(hh, &u, 4);
    put(lf_float(hb[0])), put(lf_float(hb[1])), put(lf_float(hh[0])), put(lf_float(hh[1]));
  }
}
LF_KERNEL(conform_unpack);

CONFORMANCE(conform_warp) {
  const unsigned all = 0xffffffffu;
  uint32_t v = in[threadIdx.x];
  int lane = threadIdx.x % 32, some = (int)(v >> 8 & 31);
  Put put{out + threadIdx.x};
  put(__shfl_sync(all, v, some)), put(__shfl_sync(all, v, some, 8));
  put(__shfl_up_sync(all, v, 5)), put(__shfl_up_sync(all, v, 3, 16));
  put(__shfl_down_sync(all, v, 7)), put(__shfl_down_sync(all, v, 3, 4));
  put(__shfl_xor_sync(all, v, 21)), put(__shfl_xor_sync(all, v, 12, 8));
  put(__ballot_sync(all, (int)(v & 1))), put(__any_sync(all, v % 61 == 0)), put(__all_sync(all, v % 61 != 0));
  put(__match_any_sync(all, v & 3));
  put(lane < 20 ? __ballot_sync(0x000fffffu, (int)(v & 2)) : 7u);
  put(__syncthreads_count((int)(v & 1))), put(__syncthreads_or(v % 61 == 0)), put(__syncthreads_and(v % 61 != 0));
}
LF_KERNEL(conform_warp);

CONFORMANCE(conform_named_barriers) {
  LF_SHARED(uint32_t, slot, [32]);
  int lane = threadIdx.x % 32;
  for (int i = 0; i < 8; i++) {
    if (threadIdx.x < 32) {
      if (i) lf_bar_sync(2, 64);
      slot[lane] = in[i * 32 + lane];
      lf_bar_arrive(1, 64);
    } else {
      lf_bar_sync(1, 64);
      out[i * 32 + lane] = slot[31 - lane];
      if (i < 7) lf_bar_arrive(2, 64);
    }
  }
}
LF_KERNEL(conform_named_barriers);

CONFORMANCE(conform_reductions) {
  Put put{out + threadIdx.x};
  for (int k = 0; k < 8; k++) {
    float x = f32(in[k * 64 + threadIdx.x]);
    put(lf_warp_sum(x)), put(lf_warp_max(x));
  }
}
LF_KERNEL(conform_reductions);

CONFORMANCE(conform_integers) {
  Put put{out + threadIdx.x};
  for (int k = 0; k < 4; k++) {
    uint32_t u = in[k * 128 + threadIdx.x], v = in[k * 128 + 64 + threadIdx.x];
    uint64_t w = (uint64_t)u << 32 | v;
    put(__popc(u)), put(__popcll(w)), put(__clz((int)(u >> (v & 31)))), put(__clzll((long long)(w >> (v & 63))));
    put(__ffs((int)(u & v & u >> 3))), put(__brev(u)), put(__umulhi(u, v)), put(__mulhi((int)u, (int)v));
    put((uint32_t)__umul64hi(w, ~w)), put(__byte_perm(u, v, v)), put(__funnelshift_l(u, v, v >> 3)), put(__funnelshift_r(u, v, v >> 3));
    put(min((int)u, (int)v)), put(max(u, v));
  }
}
LF_KERNEL(conform_integers);

CONFORMANCE(conform_to_integers) {
  Put put{out + threadIdx.x};
  for (int k = 0; k < 8; k++) {
    float x = f32(in[k * 64 + threadIdx.x]);
    put(__float2int_rn(x)), put(__float2int_rz(x)), put(__float2int_rd(x)), put(__float2int_ru(x));
    put(word(__int2float_rn((int)in[k * 64 + threadIdx.x]))), put(word(__uint2float_rn(in[k * 64 + threadIdx.x])));
  }
}
LF_KERNEL(conform_to_integers);

// These round once, so that both must give the same bits.
CONFORMANCE(conform_rounded) {
  Put put{out + threadIdx.x};
  for (int k = 0; k < 8; k++) {
    float x = f32(in[k * 64 + threadIdx.x]), y = f32(in[512 + k * 64 + threadIdx.x]), z = f32(in[1024 + k * 64 + threadIdx.x]);
    put(__fadd_rn(x, y)), put(__fmul_rn(x, y)), put(fmaf(x, y, z)), put(__fdiv_rn(x, y)), put(__fsqrt_rn(fabsf(x))), put(__saturatef(x)), put(fminf(x, y)), put(fmaxf(x, y));
  }
}
LF_KERNEL(conform_rounded);

CONFORMANCE(conform_functions) {
  Put put{out + threadIdx.x};
  for (int k = 0; k < 4; k++) {
    float x = f32(in[k * 64 + threadIdx.x]), p = fabsf(x) + 0.01f;
    put(expf(x)), put(__expf(x)), put(exp2f(x)), put(lf_exp2(x)), put(logf(p)), put(__logf(p)), put(rsqrtf(p)), put(tanhf(x)), put(erff(x));
    put(sinf(x)), put(cosf(x)), put(__sinf(x)), put(__cosf(x)), put(__fdividef(x, p)), put(log1pf(p)), put(powf(p, x)), put(sqrtf(p));
  }
}
LF_KERNEL(conform_functions);
