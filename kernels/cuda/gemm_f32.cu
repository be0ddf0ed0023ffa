// A product in float32: out = addend + bias + alpha · op(A) · op(B), every
// product of two elements rounded once into a float32 sum (FMA), 16-bit and
// quantized operands are decoded exactly.
//
// Layout: row major. A is [m, k], or [k, m] where ta, f32, f16 or bf16 (kind 0, 1,
//   2); B is [k, n], or [n, k] where tb; its type is in the kernel's name, and
//   quantised elements are those of the matrix as it lies in memory. B in 8-bit floats may
//   have scales of its rows or blocks in memory; flags has their blocks (operand.cuh). bias [n] and
//   addend [m, n] may be null, and the addend may be out. Batches have strides.
// Grid: 256 threads for a tile of 64 by 64 of out, each for 4 by 4 of it: x runs
//   over tiles of rows, y over tiles of columns, z over matrices of a batch. For
//   outputs of few tiles there is gemm_f32_parts_*, where x goes on over the parts of
//   the k axis, each of which leaves alpha times its sums in partial [batch, parts,
//   m, n]; gemm_sum of gemm_mma.cu adds them up in their order, with bias and addend.
// Traffic: A is read n/64 times, B m/64 times, mostly from L2; 16 of k at a time
//   are in shared memory, where B has already been widened.
// Registers: 54 to 95, on sm_100 111 to 128, none spilled.
// Reference: for i, j { s = 0; for l { s += A[i, l] B[l, j] }
//                       out[i, j] = addend[i, j] + bias[j] + alpha s }
#include "operand.cuh"
#include "parts.cuh"

#define LF_M 64
#define LF_N 64
#define LF_K 16

LF_DEVICE float lf_factor(const void* a, int kind, long long i) {
  if (kind == 0) return ((const float*)a)[i];
  if (kind == 1) return lf_as_f16::get(((const unsigned short*)a)[i]);
  return lf_as_bf16::get(((const unsigned short*)a)[i]);
}

// How element i of B is read; book is what start has made of shared memory.
struct lf_b_f32 {
  static LF_DEVICE void start(float*) {}
  static LF_DEVICE float get(const void* b, long long i, const float*) { return ((const float*)b)[i]; }
};
struct lf_b_f16 {
  static LF_DEVICE void start(float*) {}
  static LF_DEVICE float get(const void* b, long long i, const float*) { return lf_as_f16::get(((const unsigned short*)b)[i]); }
};
struct lf_b_bf16 {
  static LF_DEVICE void start(float*) {}
  static LF_DEVICE float get(const void* b, long long i, const float*) { return lf_as_bf16::get(((const unsigned short*)b)[i]); }
};
struct lf_b_q8 {
  static LF_DEVICE void start(float*) {}
  static LF_DEVICE float get(const void* b, long long i, const float*) { return lf_q8((const unsigned char*)b, i); }
};
struct lf_b_nf4 {
  static LF_DEVICE void start(float* book) {
    if (threadIdx.x < 16) book[threadIdx.x] = lf_nf4(threadIdx.x);
  }
  static LF_DEVICE float get(const void* b, long long i, const float* book) { return lf_q4((const unsigned char*)b, i, book); }
};
struct lf_b_fp4 {
  static LF_DEVICE void start(float* book) {
    if (threadIdx.x < 16) book[threadIdx.x] = lf_fp4(threadIdx.x);
  }
  static LF_DEVICE float get(const void* b, long long i, const float* book) { return lf_q4((const unsigned char*)b, i, book); }
};

struct lf_b_f8_e4m3 {
  static LF_DEVICE void start(float*) {}
  static LF_DEVICE float get(const void* b, long long i, const float*) { return lf_as_f8_e4m3::get(((const unsigned char*)b)[i]); }
};

// The position of element e of a tile of LF_K by LF_M (or LF_N): neighbouring
// threads access neighbouring addresses.
LF_DEVICE void lf_tile_place(int e, int along_k, int* k, int* i) {
  if (along_k)
    *k = e % LF_K, *i = e / LF_K;
  else
    *i = e % LF_M, *k = e / LF_M;
}

// PARTS: out is partial, and blocks have a part of the k axis of one matrix. scale has those of
// the rows or blocks of B in memory, or is null.
template <class B, bool PARTS>
LF_DEVICE void lf_gemm(float (*sa)[LF_M + 4], float (*sb)[LF_N + 4], float* book, float* out, const void* a, const void* b,
                       const float* bias, const float* addend, int m, int n, int k, int kind, int ta, int tb,
                       long long step_a, long long step_b, int batch, int parts, float alpha, const float* scale, int flags) {
  B::start(book);
  int tiles = PARTS ? (m + LF_M - 1) / LF_M : 1, part = PARTS ? blockIdx.x / tiles : 0;
  int m0 = (blockIdx.x - part * tiles) * LF_M, n0 = blockIdx.y * LF_N;
  int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  int from = PARTS ? lf_part(k, LF_K, part, parts) * LF_K : 0, to = PARTS ? min(k, lf_part(k, LF_K, part + 1, parts) * LF_K) : k;
  for (long long z = blockIdx.z; z < batch; z += gridDim.z) {
    float sum[4][4] = {};
    for (int k0 = from; k0 < to; k0 += LF_K) {
      __syncthreads(); // the previous tile has been read, and the codebook is loaded
#pragma unroll
      for (int q = 0; q < LF_K * LF_M / 256; q++) {
        int e = threadIdx.x + 256 * q, l, i;
        lf_tile_place(e, !ta, &l, &i);
        long long row = m0 + i, col = k0 + l;
        sa[l][i] = row < m && col < k ? lf_factor(a, kind, z * step_a + (ta ? col * m + row : row * k + col)) : 0.0f;
        lf_tile_place(e, tb, &l, &i);
        row = k0 + l, col = n0 + i;
        float y = row < k && col < n ? B::get(b, z * step_b + (tb ? col * k + row : row * n + col), book) : 0.0f;
        if (scale && row < k && col < n) y *= scale[tb ? lf_scale_at(flags, (int)col, (int)row, k) : lf_scale_at(flags, (int)row, (int)col, n)];
        sb[l][i] = y;
      }
      __syncthreads();
#pragma unroll
      for (int l = 0; l < LF_K; l++) {
        float x[4], y[4];
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = sa[l][4 * ty + i], y[i] = sb[l][4 * tx + i];
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
          for (int j = 0; j < 4; j++) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        long long row = m0 + 4 * ty + i, col = n0 + 4 * tx + j;
        if (row >= m || col >= n) continue;
        long long at = ((PARTS ? z * parts + part : z) * m + row) * n + col;
        float v = alpha * sum[i][j];
        if (bias) v += bias[col];
        if (addend) v += addend[at];
        out[at] = v;
      }
  }
}

// LAST are further parameters, SCALE their values.
#define LF_GEMM(type, SCALE, LAST)                                                                                           \
  extern "C" __global__ void __launch_bounds__(256)                                                                          \
      gemm_f32_##type(float* out, const void* a, const void* b, const float* bias, const float* addend, int m, int n, int k, \
                      int kind, int ta, int tb, long long step_a, long long step_b, int batch, float alpha LAST) {           \
    LF_SHARED(float, sa, [LF_K][LF_M + 4]);                                                                                  \
    LF_SHARED(float, sb, [LF_K][LF_N + 4]);                                                                                  \
    LF_SHARED(float, book, [16]);                                                                                            \
    lf_gemm<lf_b_##type, false>(sa, sb, book, out, a, b, bias, addend, m, n, k, kind, ta, tb, step_a, step_b, batch, 1,      \
                                alpha, SCALE);                                                                               \
  }                                                                                                                          \
  LF_KERNEL(gemm_f32_##type);                                                                                                \
  extern "C" __global__ void __launch_bounds__(256)                                                                          \
      gemm_f32_parts_##type(float* partial, const void* a, const void* b, int m, int n, int k, int kind, int ta, int tb,     \
                            long long step_a, long long step_b, int batch, int parts, float alpha LAST) {                    \
    LF_SHARED(float, sa, [LF_K][LF_M + 4]);                                                                                  \
    LF_SHARED(float, sb, [LF_K][LF_N + 4]);                                                                                  \
    LF_SHARED(float, book, [16]);                                                                                            \
    lf_gemm<lf_b_##type, true>(sa, sb, book, partial, a, b, 0, 0, m, n, k, kind, ta, tb, step_a, step_b, batch, parts,       \
                               alpha, SCALE);                                                                                \
  }                                                                                                                          \
  LF_KERNEL(gemm_f32_parts_##type);
#define LF_NOTHING_MORE
#define LF_UNSCALED nullptr, 0
#define LF_SCALED_BY scale, flags
#define LF_SCALES_OF_B , const float *scale, int flags
LF_GEMM(f32, LF_UNSCALED, LF_NOTHING_MORE)
LF_GEMM(f16, LF_UNSCALED, LF_NOTHING_MORE)
LF_GEMM(bf16, LF_UNSCALED, LF_NOTHING_MORE)
LF_GEMM(q8, LF_UNSCALED, LF_NOTHING_MORE)
LF_GEMM(nf4, LF_UNSCALED, LF_NOTHING_MORE)
LF_GEMM(fp4, LF_UNSCALED, LF_NOTHING_MORE)
LF_GEMM(f8_e4m3, LF_SCALED_BY, LF_SCALES_OF_B)

#ifdef LF_RACE
#include "../sim/test/race.h"
LF_RACE_CASE(gemm_f32) {
  auto a = lf_race_noise<float>(2 * 65 * 20), b = lf_race_noise<float>(2 * 20 * 9), c = lf_race_noise<float>(2 * 65 * 9);
  lf_race_launch(gemm_f32_f32, {2, 1, 1}, {256}, 0, c.data(), a.data(), b.data(), nullptr, c.data(), 65, 9, 20, 0, 0, 0, 65 * 20, 20 * 9, 2, 0.5f);
}
LF_RACE_CASE(gemm_f32_parts) {
  auto a = lf_race_noise<float>(65 * 40), b = lf_race_noise<float>(40 * 9);
  std::vector<float> partial(2 * 65 * 9);
  lf_race_launch(gemm_f32_parts_f32, {4, 1, 1}, {256}, 0, partial.data(), a.data(), b.data(), 65, 9, 40, 0, 0, 0, 0, 0, 1, 2, 0.5f);
}
LF_RACE_CASE(gemm_f32_f8_e4m3) {
  auto a = lf_race_noise<float>(3 * 40), scale = lf_race_noise<float>(5), c = lf_race_noise<float>(3 * 5);
  auto b = lf_race_noise<unsigned char>(5 * 40);
  lf_race_launch(gemm_f32_f8_e4m3, {1, 1, 1}, {256}, 0, c.data(), a.data(), b.data(), nullptr, nullptr, 3, 5, 40, 0, 0, 1, 0, 0, 1, 1.0f, scale.data(), 0);
}
LF_RACE_CASE(gemm_f32_nf4) {
  auto a = lf_race_noise<float>(3 * 64), c = lf_race_noise<float>(3 * 5);
  auto b = lf_race_noise<unsigned char>(5 * 36);
  lf_race_launch(gemm_f32_nf4, {1, 1, 1}, {256}, 0, c.data(), a.data(), b.data(), nullptr, nullptr, 3, 5, 64, 0, 0, 1, 0, 0, 1, 1.0f);
}
#endif
