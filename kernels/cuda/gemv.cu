// Up to three sums of products of the same A, for few rows, as decoding has them:
//
//   out_s = addend_s + bias_s + sum over p of s of alpha_p · A_p · B_pᵀ,  A_p [m, k_p], B_p [n_s, k_p]
//
// with m at most 1, 2, 4 or 8, in float32 with exactly decoded operands: one
// pass over the weights for any m. Sums are q, k and v, or gate and up, each with its
// adapter as a further product; a sum has the same bits in any company. If act is not
// negative, there are two sums, and act(out_0)·out_1 is written instead of them; the sums
// are rounded as they would be stored, out_0 by bit 4 of stored.
//
// Layout: row major, as gemm_mma.cu; A may be f32, f16 or bf16, B all of these and
//   quantised, or 8-bit floats, whose rows may have scales; in gemv_blocks_*, blocks of rows and columns
//   do (operand.cuh). Rows of whole 16-byte words (of whole blocks, if quantised) and f32 or bf16
//   A go by wide loads, others element by element. Byte s of ends is the number of
//   products up to the end of sum s. Bits of stored, two for each sum: out is bf16, addend
//   is; f32 otherwise.
// Grid: x blocks of 256 threads for R rows of B, that is R columns of an output: the
//   first blocks for the first sum. With act, a block has R rows of both. The eight warps
//   take turns along k; lanes add up by shuffles, warps in their order. Up to four
//   rows R is 2, with two loads of 16 bytes of each under way (16 KB of a block), else 4.
//   On an H100 that was the fastest way for the sizes of Llama 8B.
// Traffic: B once, 16 bytes a load (8 of 8-bit floats, so that loads of A are neighbours, 4
//   of a quantised block, whose scales make rows of odd words); A from the first-level cache, m·k·4 bytes for R rows of B. From m = 4
//   on 4-bit weights are bound by arithmetic: 2m operations for half a byte.
// Registers: at most 64, 80, 151 and 237 for 1, 2, 4 and 8 rows, none spilled.
// Reference: for s, i, j { t = 0; for p of s { t = 0; for l { t += A_p[i, l] B_p[j, l] }
//                       s += alpha_p t }; out[i, j] = addend[i, j] + bias[j] + s }
#include "act.h"
#include "mixed.h"
#include "products.cuh"

#define LF_SUMS 3
#define LF_LANES 256

LF_DEVICE float4 lf_load4(const float* p) { return *(const float4*)p; }
LF_DEVICE float4 lf_load4(const lf_bf16* p) {
  uint2 w = *(const uint2*)p;
  float2 u = lf_unpack_bf16(w.x), v = lf_unpack_bf16(w.y);
  return make_float4(u.x, u.y, v.x, v.y);
}

// sum[r][i] += the products of four elements of row r of B and of row i of A at x.
template <int R, int M, class A>
LF_DEVICE void lf_add4(float (&sum)[R][M], const float4 (&w)[R], const A* const (&x)[M], int l) {
#pragma unroll
  for (int i = 0; i < M; i++) {
    float4 a = lf_load4(x[i] + l);
#pragma unroll
    for (int r = 0; r < R; r++)
      sum[r][i] = fmaf(w[r].w, a.w, fmaf(w[r].z, a.z, fmaf(w[r].y, a.y, fmaf(w[r].x, a.x, sum[r][i]))));
  }
}

// The sums of a product with B in 8-bit floats, divided by LF_F8_UNIT, whose blocks have scales, if scale is not null.
// All rows are in one block.
template <int R, int M, class A>
LF_DEVICE void lf_block_dots(float (&sum)[R][M], const lf_product& p, const int (&row)[R], const A* const (&x)[M], const float* scale) {
  int k = p.k, columns = LF_BLOCK_COLUMNS(p.flags >> 8);
  if (scale) scale += lf_scale_at(p.flags >> 8, row[0], 0, k);
#pragma unroll(M == 2 ? 2 : 1)
  for (int l = 8 * threadIdx.x; l < k; l += 8 * LF_LANES) {
    uint2 c[R];
    float4 w[R], v[R];
    float part[R][M] = {}, s = scale ? scale[l >> columns] : 1.0f;
#pragma unroll
    for (int r = 0; r < R; r++) c[r] = *(const uint2*)(p.b + (long long)row[r] * k + l);
#pragma unroll
    for (int r = 0; r < R; r++) w[r] = lf_codes_f8(c[r].x), v[r] = lf_codes_f8(c[r].y);
    lf_add4(part, w, x, l);
    lf_add4(part, v, x, l + 4);
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int i = 0; i < M; i++) sum[r][i] = fmaf(part[r][i], s, sum[r][i]);
  }
}

LF_DEVICE float4 lf_wide2(unsigned lo, unsigned hi, bool f16) {
  float2 u = f16 ? lf_unpack_f16(lo) : lf_unpack_bf16(lo), v = f16 ? lf_unpack_f16(hi) : lf_unpack_bf16(hi);
  return make_float4(u.x, u.y, v.x, v.y);
}

// The sums of one product over this thread's part of k by wide loads, for A of type A;
// row[r] is the number of the row of B. scale has those of the blocks of B, if it has blocks.
template <bool BLOCKS, class A, int R, int M>
LF_DEVICE void lf_wide_dots(float (&sum)[R][M], const lf_product& p, const int (&row)[R], int m, const float* books, const float* scale) {
  constexpr int U = M > 4 || (M == 1 && sizeof(A) == 2) ? 1 : 2; // steps along k whose loads are under way at once
  int k = p.k, kind = LF_KIND(p.flags >> 8), lane = threadIdx.x;
  const A* x[M];
#pragma unroll
  for (int i = 0; i < M; i++) x[i] = (const A*)p.a + (long long)min(i, m - 1) * k;
  float4 w[R], v[R];
  switch (kind) {
    case LF_KIND_F32:
#pragma unroll U
      for (int l = 4 * lane; l < k; l += 4 * LF_LANES) {
#pragma unroll
        for (int r = 0; r < R; r++) w[r] = *(const float4*)((const float*)p.b + (long long)row[r] * k + l);
        lf_add4(sum, w, x, l);
      }
      return;
    case LF_KIND_F16:
    case LF_KIND_BF16:
#pragma unroll U
      for (int l = 8 * lane; l < k; l += 8 * LF_LANES) {
        uint4 c[R];
#pragma unroll
        for (int r = 0; r < R; r++) c[r] = *(const uint4*)(p.b + 2 * ((long long)row[r] * k + l));
#pragma unroll
        for (int r = 0; r < R; r++)
          w[r] = lf_wide2(c[r].x, c[r].y, kind == LF_KIND_F16), v[r] = lf_wide2(c[r].z, c[r].w, kind == LF_KIND_F16);
        lf_add4(sum, w, x, l);
        lf_add4(sum, v, x, l + 4);
      }
      return;
    case LF_KIND_Q8:
#pragma unroll U
      for (int l = 4 * lane; l < k; l += 4 * LF_LANES) {
#pragma unroll
        for (int r = 0; r < R; r++) {
          long long at = (long long)row[r] * k + l;
          const unsigned char* block = p.b + (at >> 6) * 68;
          w[r] = lf_codes8(*(const unsigned*)(block + (at & 63)), *(const float*)(block + 64));
        }
        lf_add4(sum, w, x, l);
      }
      return;
    case LF_KIND_F8:
      if (BLOCKS) lf_block_dots(sum, p, row, x, scale);
#pragma unroll(M == 2 ? 2 : 1)
      for (int l = 8 * lane; l < k && !BLOCKS; l += 8 * LF_LANES) {
        uint2 c[R];
#pragma unroll
        for (int r = 0; r < R; r++) c[r] = *(const uint2*)(p.b + (long long)row[r] * k + l);
#pragma unroll
        for (int r = 0; r < R; r++) w[r] = lf_codes_f8(c[r].x), v[r] = lf_codes_f8(c[r].y);
        lf_add4(sum, w, x, l);
        lf_add4(sum, v, x, l + 4);
      }
      return;
  }
  const float* book = lf_book(kind, books);
#pragma unroll 1
  for (int u = lane; u < k / 8; u += LF_LANES) { // four bytes, eight codes, of a block
    int l = u / 8 * 64 + u % 8 * 4;
#pragma unroll
    for (int r = 0; r < R; r++) {
      const unsigned char* block = p.b + (((long long)row[r] * k + l) >> 6) * 36;
      unsigned codes = *(const unsigned*)(block + u % 8 * 4);
      float scale = *(const float*)(block + 32);
      w[r] = lf_codes4(codes, scale, book), v[r] = lf_codes4(codes >> 4, scale, book);
    }
    lf_add4(sum, w, x, l);
    lf_add4(sum, v, x, l + 32);
  }
}

// The same, element by element.
template <bool BLOCKS, int R, int M>
LF_DEVICE void lf_any_dots(float (&sum)[R][M], const lf_product& p, const int (&row)[R], int m, const float* books, const float* scale) {
#pragma unroll 1
  for (int l = threadIdx.x; l < p.k; l += LF_LANES) {
    float w[R], s = BLOCKS && scale ? scale[lf_scale_at(p.flags >> 8, row[0], l, p.k)] : 1.0f;
#pragma unroll
    for (int r = 0; r < R; r++) w[r] = lf_element(LF_KIND(p.flags >> 8), p.b, (long long)row[r] * p.k + l, books);
#pragma unroll
    for (int i = 0; i < M; i++) {
      float a = lf_element(LF_KIND(p.flags), p.a, (long long)min(i, m - 1) * p.k + l, books);
      if (BLOCKS) a *= s;
#pragma unroll
      for (int r = 0; r < R; r++) sum[r][i] = fmaf(w[r], a, sum[r][i]);
    }
  }
}

// The sums of product p of all over this thread's part of k.
template <bool BLOCKS, int R, int M>
LF_DEVICE void lf_dots(float (&sum)[R][M], const lf_products& all, const lf_product& p, const int (&row)[R], int m, const float* books) {
  int way = LF_WAY(p.flags), kind = LF_KIND(p.flags);
  bool wide = LF_WAY(p.flags >> 8) != LF_ANY && (way == LF_COPY || (way == LF_WIDE && kind == LF_KIND_F32));
  const float* blocks = BLOCKS ? lf_scales_of(all, p.flags) : nullptr;
  if (wide && way == LF_COPY) lf_wide_dots<BLOCKS, lf_bf16>(sum, p, row, m, books, blocks);
  else if (wide) lf_wide_dots<BLOCKS, float>(sum, p, row, m, books, blocks);
  else lf_any_dots<BLOCKS>(sum, p, row, m, books, blocks);
  if (LF_KIND(p.flags >> 8) != LF_KIND_F8) return;
  const float* scale = BLOCKS ? nullptr : lf_scales_of(all, p.flags);
#pragma unroll
  for (int r = 0; r < R; r++) {
    float s = (scale ? scale[row[r]] : 1.0f) * (wide ? LF_F8_UNIT : 1.0f);
#pragma unroll
    for (int i = 0; i < M; i++) sum[r][i] *= s;
  }
}

// One of the sums: its output, and its products from first to end.
struct lf_sum {
  void* out;
  const float* bias;
  const void* addend;
  int n, first, end;
};

LF_DEVICE lf_sum lf_pick_sum(const lf_sum (&s)[LF_SUMS], int i) { return i == 0 ? s[0] : i == 1 ? s[1] : s[2]; }

// Element r, c of a sum from those of the warps.
template <int M, int R>
LF_DEVICE float lf_finish(const float* shared, const lf_sum& of, lf_mixed types, int r, int c, int j) {
  float s = 0.0f;
#pragma unroll
  for (int w = 0; w < LF_LANES / 32; w++) s += shared[(w * R + r) * M + c];
  if (of.bias) s += of.bias[j];
  if (of.addend) s += lf_load(types, 1, of.addend, (long long)c * of.n + j);
  return s;
}

// BLOCKS: blocks of B have scales, not rows.
template <bool BLOCKS, int M, int R>
LF_DEVICE void lf_gemv(float* books, float (*shared)[LF_LANES / 32 * R * M], int m, int act, int stored, const lf_sum (&sums)[LF_SUMS],
                       const lf_products& all) {
  lf_open_books(books);
  __syncthreads();
  // The sum of the block, and the block's number among those of the sum.
  int b = blockIdx.x, b0 = (sums[0].n + R - 1) / R, b1 = (sums[1].n + R - 1) / R, number = act >= 0 || b < b0 ? 0 : b < b0 + b1 ? 1 : 2;
  int j0 = (number == 0 ? b : number == 1 ? b - b0 : b - b0 - b1) * R, n = lf_pick_sum(sums, number).n;
  int row[R];
#pragma unroll
  for (int r = 0; r < R; r++) row[r] = min(j0 + r, n - 1); // past the end, the last rows again
#pragma unroll 1
  for (int part = 0; part <= (act >= 0); part++) {
    float total[R][M] = {};
    int end = lf_pick_sum(sums, number + part).end;
#pragma unroll 1
    for (int i = lf_pick_sum(sums, number + part).first; i < end; i++) {
      lf_product p = lf_pick(all, i);
      float sum[R][M] = {};
      lf_dots<BLOCKS>(sum, all, p, row, m, books);
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < M; c++) total[r][c] = fmaf(p.alpha, sum[r][c], total[r][c]);
    }
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int c = 0; c < M; c++) {
        float s = lf_warp_sum(total[r][c]);
        if (threadIdx.x % 32 == 0) shared[part][(threadIdx.x / 32 * R + r) * M + c] = s;
      }
  }
  __syncthreads();
  int r = threadIdx.x / M, c = threadIdx.x % M, j = j0 + r;
  if (r >= R || c >= m || j >= n) return;
  lf_sum to = lf_pick_sum(sums, number);
  lf_mixed types = {stored >> 2 * number}, second = {stored >> 2};
  float y = lf_finish<M, R>(shared[0], to, types, r, c, j);
  if (act >= 0) y = lf_act(act, lf_rounded(lf_mixed{stored}, 4, y)) * lf_rounded(second, 0, lf_finish<M, R>(shared[1], sums[1], second, r, c, j));
  lf_store(types, 0, to.out, (long long)c * n + j, y);
}

#define LF_GEMV(name, BLOCKS, M, R, resident)                                                                          \
  extern "C" __global__ void __launch_bounds__(LF_LANES, resident)                                                     \
      name##_##M(void* out0, const float* bias0, const void* addend0, void* out1, const float* bias1,                    \
               const void* addend1, void* out2, const float* bias2, const void* addend2, int m, int n0, int n1,        \
               int n2, int ends, int act, int stored, LF_PRODUCT_LIST, LF_SCALES) {                                    \
    LF_SHARED(float, books, [LF_BOOKS]);                                                                               \
    LF_SHARED(float, shared, [2][LF_LANES / 32 * R * M]);                                                              \
    lf_products all = LF_PRODUCTS_FROM(0, 0);                                                                          \
    all.scale0 = scale0, all.scale1 = scale1, all.scale2 = scale2;                                                     \
    lf_sum sums[LF_SUMS] = {{out0, bias0, addend0, n0, 0, ends & 255},                                                 \
                            {out1, bias1, addend1, n1, ends & 255, ends >> 8 & 255},                                   \
                            {out2, bias2, addend2, n2, ends >> 8 & 255, ends >> 16}};                                  \
    lf_gemv<BLOCKS, M, R>(books, shared, m, act, stored, sums, all);                                                           \
  }                                                                                                                    \
  LF_KERNEL(name##_##M)
LF_GEMV(gemv, false, 1, 2, 4);
LF_GEMV(gemv, false, 2, 2, 3);
LF_GEMV(gemv, false, 4, 2, 1);
LF_GEMV(gemv, false, 8, 4, 1);
LF_GEMV(gemv_blocks, true, 1, 2, 4);
LF_GEMV(gemv_blocks, true, 2, 2, 3);
LF_GEMV(gemv_blocks, true, 4, 2, 1);
LF_GEMV(gemv_blocks, true, 8, 4, 1);

#ifdef LF_RACE
#include "../sim/test/race.h"
#define LF_NO_PRODUCT nullptr, nullptr, 0, 0u, 0.0f

LF_RACE_CASE(gemv) {
  auto x = lf_race_noise<float>(2 * 640);
  auto w = lf_race_noise<lf_bf16>(7 * 640);
  auto c = lf_race_noise<float>(2 * 7);
  unsigned wide = LF_WIDE | 1 << 5, copied = LF_COPY | LF_KIND_BF16 << 2 | 1 << 5;
  auto y = lf_race_noise<float>(2 * 3);
  lf_race_launch(gemv_2, {6}, {LF_LANES}, 0, c.data(), nullptr, c.data(), y.data(), x.data(), nullptr, nullptr, nullptr, nullptr, 2, 7, 3, 0,
                 2 | 3 << 8 | 3 << 16, -1, 0, (const unsigned char*)x.data(), (const unsigned char*)w.data(), 640, wide | copied << 8, 1.0f,
                 (const unsigned char*)x.data(), (const unsigned char*)x.data(), 19, (unsigned)(1 << 5 | 1 << 13), 0.5f,
                 (const unsigned char*)x.data(), (const unsigned char*)w.data(), 640, wide | copied << 8, 1.0f, LF_NO_PRODUCT, LF_NO_PRODUCT, LF_NO_PRODUCT, LF_NO_PRODUCT,
                 LF_NO_PRODUCT, nullptr, nullptr, nullptr);
}

// Blocks of 4 rows and 128 columns.
LF_RACE_CASE(gemv_blocks) {
  auto x = lf_race_noise<float>(4 * 640), scale = lf_race_noise<float>(2 * 5);
  auto w = lf_race_noise<unsigned char>(7 * 640);
  std::vector<float> c(4 * 7);
  unsigned wide = LF_WIDE | 1 << 5, blocks = LF_WIDE | LF_KIND_F8 << 2 | 1 << 5 | 1 << 6 | 2 << 8 | (7 ^ 31) << 13;
  auto run = [&](auto kernel, int m) {
    lf_race_launch(kernel, {4}, {LF_LANES}, 0, c.data(), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, m, 7, 0, 0,
                   1 | 1 << 8 | 1 << 16, -1, 0, (const unsigned char*)x.data(), (const unsigned char*)w.data(), 640, wide | blocks << 8, 1.0f, LF_NO_PRODUCT,
                   LF_NO_PRODUCT, LF_NO_PRODUCT, LF_NO_PRODUCT, LF_NO_PRODUCT, LF_NO_PRODUCT, LF_NO_PRODUCT, scale.data(), nullptr, nullptr);
  };
  run(gemv_blocks_1, 1), run(gemv_blocks_2, 2), run(gemv_blocks_4, 4);
}
#endif
