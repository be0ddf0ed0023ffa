// A sum of up to eight products for few rows, as decoding has them:
//
//   out = addend + bias + sum over p of alpha_p · A_p · B_pᵀ,  A_p [m, k], B_p [n, k]
//
// with m at most 1, 2, 4 or 8, in float32 with exactly decoded operands: one
// pass over the weights for any m.
//
// Layout: row major, as gemm_mma.cu; A may be f32, f16 or bf16, B all of these and
//   quantised. Rows of whole 16-byte words (of whole blocks, if quantised) and f32 A
//   go by wide loads, others element by element.
// Grid: x blocks of 128 threads for four rows of B, that is four columns of the
//   output. The four warps take turns along k; lanes add up by shuffles, warps in
//   their order.
// Traffic: B once, 16 bytes a load (4 of a quantised block, whose scales make rows of
//   odd words); A from the first-level cache, m·k·4 bytes for four rows of B. With
//   bf16 B and m = 1 that is 2 bytes of A for each of B: bound by memory. From m = 4
//   on 4-bit weights are bound by arithmetic: 2m operations for half a byte.
// Registers: at most 80, 94, 127 and 192 for 1, 2, 4 and 8 rows, none spilled.
// Reference: for i, j { s = 0; for p { t = 0; for l { t += A_p[i, l] B_p[j, l] }
//                       s += alpha_p t }; out[i, j] = addend[i, j] + bias[j] + s }
#include "products.cuh"

#define LF_ROWS 4
#define LF_LANES 128

// sum[r][i] += the products of four elements of row r of B and of row i of A at x.
template <int M>
LF_DEVICE void lf_add4(float (&sum)[LF_ROWS][M], const float4 (&w)[LF_ROWS], const float* const (&x)[M], int l) {
#pragma unroll
  for (int i = 0; i < M; i++) {
    float4 a = *(const float4*)(x[i] + l);
#pragma unroll
    for (int r = 0; r < LF_ROWS; r++)
      sum[r][i] = fmaf(w[r].w, a.w, fmaf(w[r].z, a.z, fmaf(w[r].y, a.y, fmaf(w[r].x, a.x, sum[r][i]))));
  }
}

LF_DEVICE float4 lf_wide2(unsigned lo, unsigned hi, bool f16) {
  float2 u = f16 ? lf_unpack_f16(lo) : lf_unpack_bf16(lo), v = f16 ? lf_unpack_f16(hi) : lf_unpack_bf16(hi);
  return make_float4(u.x, u.y, v.x, v.y);
}

// The sums of one product over this thread's part of k; row[r] is the number of
// the row of B.
template <int M>
LF_DEVICE void lf_dots(float (&sum)[LF_ROWS][M], const lf_product& p, const long long (&row)[LF_ROWS], int m, const float* books) {
  int k = p.k, kind = LF_KIND(p.flags >> 8), lane = threadIdx.x;
  if (LF_WAY(p.flags) != LF_WIDE || LF_KIND(p.flags) != LF_KIND_F32 || LF_WAY(p.flags >> 8) == LF_ANY) {
#pragma unroll 1
    for (int l = lane; l < k; l += LF_LANES) {
      float w[LF_ROWS];
#pragma unroll
      for (int r = 0; r < LF_ROWS; r++) w[r] = lf_element(kind, p.b, row[r] * k + l, books);
#pragma unroll
      for (int i = 0; i < M; i++) {
        float a = lf_element(LF_KIND(p.flags), p.a, (long long)min(i, m - 1) * k + l, books);
#pragma unroll
        for (int r = 0; r < LF_ROWS; r++) sum[r][i] = fmaf(w[r], a, sum[r][i]);
      }
    }
    return;
  }
  const float* x[M];
#pragma unroll
  for (int i = 0; i < M; i++) x[i] = (const float*)p.a + (long long)min(i, m - 1) * k;
  float4 w[LF_ROWS], v[LF_ROWS];
  switch (kind) {
    case LF_KIND_F32:
#pragma unroll 1
      for (int l = 4 * lane; l < k; l += 4 * LF_LANES) {
#pragma unroll
        for (int r = 0; r < LF_ROWS; r++) w[r] = *(const float4*)((const float*)p.b + row[r] * k + l);
        lf_add4(sum, w, x, l);
      }
      return;
    case LF_KIND_F16:
    case LF_KIND_BF16:
#pragma unroll 1
      for (int l = 8 * lane; l < k; l += 8 * LF_LANES) {
        uint4 c[LF_ROWS];
#pragma unroll
        for (int r = 0; r < LF_ROWS; r++) c[r] = *(const uint4*)(p.b + 2 * (row[r] * k + l));
#pragma unroll
        for (int r = 0; r < LF_ROWS; r++)
          w[r] = lf_wide2(c[r].x, c[r].y, kind == LF_KIND_F16), v[r] = lf_wide2(c[r].z, c[r].w, kind == LF_KIND_F16);
        lf_add4(sum, w, x, l);
        lf_add4(sum, v, x, l + 4);
      }
      return;
    case LF_KIND_Q8:
#pragma unroll 2
      for (int l = 4 * lane; l < k; l += 4 * LF_LANES) {
#pragma unroll
        for (int r = 0; r < LF_ROWS; r++) {
          long long at = row[r] * k + l;
          const unsigned char* block = p.b + (at >> 6) * 68;
          w[r] = lf_codes8(*(const unsigned*)(block + (at & 63)), *(const float*)(block + 64));
        }
        lf_add4(sum, w, x, l);
      }
      return;
  }
  const float* book = lf_book(kind, books);
#pragma unroll 1
  for (int u = lane; u < k / 8; u += LF_LANES) { // four bytes, eight codes, of a block
    int l = u / 8 * 64 + u % 8 * 4;
#pragma unroll
    for (int r = 0; r < LF_ROWS; r++) {
      const unsigned char* block = p.b + ((row[r] * k + l) >> 6) * 36;
      unsigned codes = *(const unsigned*)(block + u % 8 * 4);
      float scale = *(const float*)(block + 32);
      w[r] = lf_codes4(codes, scale, book), v[r] = lf_codes4(codes >> 4, scale, book);
    }
    lf_add4(sum, w, x, l);
    lf_add4(sum, v, x, l + 32);
  }
}

template <int M>
LF_DEVICE void lf_gemv(float* books, float* shared, float* out, const float* bias, const float* addend, int m, int n, int count,
                       const lf_products& all) {
  lf_open_books(books);
  __syncthreads();
  long long row[LF_ROWS];
  int j0 = blockIdx.x * LF_ROWS;
#pragma unroll
  for (int r = 0; r < LF_ROWS; r++) row[r] = min(j0 + r, n - 1); // past the end, the last rows again
  float total[LF_ROWS][M] = {};
  for (int i = 0; i < count; i++) {
    lf_product p = lf_pick(all, i);
    float sum[LF_ROWS][M] = {};
    lf_dots(sum, p, row, m, books);
#pragma unroll
    for (int r = 0; r < LF_ROWS; r++)
#pragma unroll
      for (int c = 0; c < M; c++) total[r][c] = fmaf(p.alpha, sum[r][c], total[r][c]);
  }
  int warp = threadIdx.x / 32;
#pragma unroll
  for (int r = 0; r < LF_ROWS; r++)
#pragma unroll
    for (int c = 0; c < M; c++) {
      float s = lf_warp_sum(total[r][c]);
      if (threadIdx.x % 32 == 0) shared[(warp * LF_ROWS + r) * M + c] = s;
    }
  __syncthreads();
  int r = threadIdx.x / M, c = threadIdx.x % M;
  if (r >= LF_ROWS || c >= m || j0 + r >= n) return;
  float s = 0.0f;
#pragma unroll
  for (int w = 0; w < LF_LANES / 32; w++) s += shared[(w * LF_ROWS + r) * M + c];
  if (bias) s += bias[j0 + r];
  long long at = (long long)c * n + j0 + r;
  if (addend) s += addend[at];
  out[at] = s;
}

#define LF_GEMV(M, resident)                                                                                                 \
  extern "C" __global__ void __launch_bounds__(LF_LANES, resident)                                                       \
      gemv_##M(float* out, const float* bias, const float* addend, int m, int n, int count, LF_PRODUCTS) {           \
    LF_SHARED(float, books, [LF_BOOKS]);                                                                             \
    LF_SHARED(float, shared, [LF_LANES / 32 * LF_ROWS * M]);                                                         \
    lf_products all = LF_PRODUCTS_OF;                                                                                \
    lf_gemv<M>(books, shared, out, bias, addend, m, n, count, all);                                                  \
  }                                                                                                                  \
  LF_KERNEL(gemv_##M)
LF_GEMV(1, 6);
LF_GEMV(2, 5);
LF_GEMV(4, 4);
LF_GEMV(8, 2);

#ifdef LF_RACE
#include "../sim/test/race.h"
#define LF_NONE nullptr, nullptr, 0, 0u, 0.0f

LF_RACE_CASE(gemv) {
  auto x = lf_race_noise<float>(2 * 640);
  auto w = lf_race_noise<lf_bf16>(7 * 640);
  auto c = lf_race_noise<float>(2 * 7);
  unsigned wide = LF_WIDE | 1 << 5, copied = LF_COPY | LF_KIND_BF16 << 2 | 1 << 5;
  lf_race_launch(gemv_2, {2}, {LF_LANES}, 0, c.data(), nullptr, c.data(), 2, 7, 2, 0, 0, (const unsigned char*)x.data(),
                 (const unsigned char*)w.data(), 640, wide | copied << 8, 1.0f, (const unsigned char*)x.data(), (const unsigned char*)x.data(), 19,
                 (unsigned)(1 << 5 | 1 << 13), 0.5f, LF_NONE, LF_NONE, LF_NONE, LF_NONE, LF_NONE, LF_NONE);
}
#endif
