// A sum of up to eight products for few rows, as decoding has them:
//
//   out = addend + bias + sum over p of alpha_p · A_p · B_pᵀ,  A_p [m, k], B_p [n, k]
//
// with m at most 1, 2, 4 or 8, in float32 with exactly decoded operands: one
// pass over the weights for any m.
//
// Layout: row major, as gemm_mma.metal; A may be f32, f16 or bf16, B all of these and
//   quantised. Rows of whole 16-byte words (of whole blocks, if quantised) and f32 A
//   go by wide loads, others element by element.
// Grid: x threadgroups of 128 threads for four rows of B, that is four columns of the
//   output. The four warps take turns along k; lanes add up by shuffles, warps in
//   their order. Lanes without work bring zeros.
// Traffic: B once, 16 bytes a load (4 of a quantised block, whose scales make rows of
//   odd words); A from the caches, m·k·4 bytes for four rows of B. With bf16 B and
//   m = 1 that is 2 bytes of A for each of B. From m = 4 on 4-bit weights have 2m
//   operations for half a byte.
// Reference: for i, j { s = 0; for p { t = 0; for l { t += A_p[i, l] B_p[j, l] }
//                       s += alpha_p t }; out[i, j] = addend[i, j] + bias[j] + s }
#include "products.h"

#define LF_ROWS 4
#define LF_LANES 128

// A thread's share of the products of four rows of B with M rows of A.
template <int M>
struct lf_sums {
  float v[LF_ROWS][M];

  // Adds the products of four elements w of each row of B with the elements of A at l.
  void add4(thread const float4* w, device const float* thread const* x, int l) {
    for (int i = 0; i < M; i++) {
      float4 a = *(device const float4*)(x[i] + l);
      for (int r = 0; r < LF_ROWS; r++) v[r][i] = fma(w[r].w, a.w, fma(w[r].z, a.z, fma(w[r].y, a.y, fma(w[r].x, a.x, v[r][i]))));
    }
  }
};

inline float4 lf_wide2(uint lo, uint hi, bool f16) {
  float2 u = f16 ? lf_halves(lo) : lf_unpack_bf16(lo), v = f16 ? lf_halves(hi) : lf_unpack_bf16(hi);
  return float4(u.x, u.y, v.x, v.y);
}

// The sums of one product over this thread's part of k; row[r] is the number of
// the row of B.
template <int M>
inline void lf_dots(lf_thread t, thread lf_sums<M>& sum, lf_product p, thread const long* row, int m) {
  int k = p.k, kind = LF_KIND(p.flags >> 8), lane = (int)t.index;
  if (LF_WAY(p.flags) != LF_WIDE || LF_KIND(p.flags) != LF_KIND_F32 || LF_WAY(p.flags >> 8) == LF_ANY) {
    for (int l = lane; l < k; l += LF_LANES) {
      float w[LF_ROWS];
      for (int r = 0; r < LF_ROWS; r++) w[r] = lf_element(kind, p.b, row[r] * k + l);
      for (int i = 0; i < M; i++) {
        float x = lf_element(LF_KIND(p.flags), p.a, (long)min(i, m - 1) * k + l);
        for (int r = 0; r < LF_ROWS; r++) sum.v[r][i] = fma(w[r], x, sum.v[r][i]);
      }
    }
    return;
  }
  device const float* x[M];
  for (int i = 0; i < M; i++) x[i] = (device const float*)p.a + (long)min(i, m - 1) * k;
  float4 w[LF_ROWS], v[LF_ROWS];
  switch (kind) {
    case LF_KIND_F32:
      for (int l = 4 * lane; l < k; l += 4 * LF_LANES) {
        for (int r = 0; r < LF_ROWS; r++) w[r] = *(device const float4*)((device const float*)p.b + row[r] * k + l);
        sum.add4(w, x, l);
      }
      return;
    case LF_KIND_F16:
    case LF_KIND_BF16:
      for (int l = 8 * lane; l < k; l += 8 * LF_LANES) {
        for (int r = 0; r < LF_ROWS; r++) {
          uint4 c = *(device const uint4*)(p.b + 2 * (row[r] * k + l));
          w[r] = lf_wide2(c.x, c.y, kind == LF_KIND_F16), v[r] = lf_wide2(c.z, c.w, kind == LF_KIND_F16);
        }
        sum.add4(w, x, l);
        sum.add4(v, x, l + 4);
      }
      return;
    case LF_KIND_Q8:
      for (int l = 4 * lane; l < k; l += 4 * LF_LANES) {
        for (int r = 0; r < LF_ROWS; r++) {
          long at = row[r] * k + l;
          device const uchar* block = p.b + (at >> 6) * 68;
          w[r] = lf_codes8(*(device const uint*)(block + (at & 63)), *(device const float*)(block + 64));
        }
        sum.add4(w, x, l);
      }
      return;
  }
  constant float* book = lf_book(kind);
  for (int u = lane; u < k / 8; u += LF_LANES) { // four bytes, eight codes, of a block
    int l = u / 8 * 64 + u % 8 * 4;
    for (int r = 0; r < LF_ROWS; r++) {
      device const uchar* block = p.b + ((row[r] * k + l) >> 6) * 36;
      uint codes = *(device const uint*)(block + u % 8 * 4);
      float scale = *(device const float*)(block + 32);
      w[r] = lf_codes4(codes, scale, book), v[r] = lf_codes4(codes >> 4, scale, book);
    }
    sum.add4(w, x, l);
    sum.add4(v, x, l + 32);
  }
}

// bound are the bits of the pointers that are not null: bias is number 1, addend 2.
template <int M>
inline void lf_gemv(lf_thread t, threadgroup float* shared, device float* out, device const float* bias, device const float* addend,
                    uint bound, int m, int n, int count, thread const lf_products& all) {
  long row[LF_ROWS];
  int j0 = (int)t.group.x * LF_ROWS;
  for (int r = 0; r < LF_ROWS; r++) row[r] = min(j0 + r, n - 1); // past the end, the last rows again
  lf_sums<M> total = {};
  for (int i = 0; i < count; i++) {
    lf_product p = lf_pick(all, i);
    lf_sums<M> sum = {};
    lf_dots<M>(t, sum, p, row, m);
    for (int r = 0; r < LF_ROWS; r++)
      for (int c = 0; c < M; c++) total.v[r][c] = fma(p.alpha, sum.v[r][c], total.v[r][c]);
  }
  for (int r = 0; r < LF_ROWS; r++)
    for (int c = 0; c < M; c++) {
      float s = lf_warp_sum(t, total.v[r][c]);
      if (t.lane == 0) shared[((int)t.warp * LF_ROWS + r) * M + c] = s;
    }
  lf_barrier();
  int r = (int)t.index / M, c = (int)t.index % M;
  if (r >= LF_ROWS || c >= m || j0 + r >= n) return;
  float s = 0.0f;
  for (int w = 0; w < LF_LANES / 32; w++) s += shared[(w * LF_ROWS + r) * M + c];
  if (bound >> 1 & 1) s += bias[j0 + r];
  long at = (long)c * n + j0 + r;
  if (bound >> 2 & 1) s += addend[at];
  out[at] = s;
}

struct gemv_args {
  LF_ARGS;
  int m, n, count;
  LF_PRODUCTS_ARGS;
};

#define LF_GEMV(M)                                                                                                  \
  LF_KERNEL(LF_LANES) gemv_##M(device float* out [[buffer(0)]], device const float* bias [[buffer(1)]],             \
                               device const float* addend [[buffer(2)]],                                            \
                               LF_PRODUCTS(3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18),                \
                               constant gemv_args& a [[buffer(19)]], LF_THREAD) {                                   \
    LF_BEGIN;                                                                                                       \
    threadgroup float shared[LF_LANES / 32 * LF_ROWS * M];                                                          \
    lf_products all = LF_PRODUCTS_OF(a);                                                                            \
    lf_gemv<M>(t, shared, out, bias, addend, a.bound, a.m, a.n, a.count, all);                               \
  }
LF_GEMV(1)
LF_GEMV(2)
LF_GEMV(4)
LF_GEMV(8)
