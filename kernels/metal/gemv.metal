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
// Layout: row major, as gemm_mma.metal; A may be f32, f16 or bf16, B all of these and
//   quantised, or 8-bit floats, whose rows may have scales; in gemv_blocks_*, blocks of rows and columns
//   do (operand.h). Rows of whole 16-byte words (of whole blocks, if quantised) and f32 or bf16
//   A go by wide loads, others element by element. Byte s of ends is the number of
//   products up to the end of sum s. Bits of stored, two for each sum: out is bf16, addend
//   is; f32 otherwise.
// Grid: x threadgroups of 256 threads for R rows of B, that is R columns of an output: the
//   first ones for the first sum. With act, one has R rows of both. The eight warps take
//   turns along k; lanes add up by shuffles, warps in their order. Lanes without work bring
//   zeros. R is 2 for up to four rows, else 4.
// Traffic: B once, 16 bytes a load (4 of a quantised block, whose scales make rows of
//   odd words); A from the caches, m·k·4 bytes for R rows of B. From m = 4 on 4-bit weights are bound by arithmetic: 2m operations for half a byte.
// Reference: for s, i, j { t = 0; for p of s { t = 0; for l { t += A_p[i, l] B_p[j, l] }
//                       s += alpha_p t }; out[i, j] = addend[i, j] + bias[j] + s }
#include "act.h"
#include "mixed.h"
#include "products.h"

#define LF_SUMS 3
#define LF_LANES 256

inline float4 lf_load4(device const float* p) { return *(device const float4*)p; }
inline float4 lf_load4(device const ushort* p) {
  uint2 w = *(device const uint2*)p;
  float2 u = lf_unpack_bf16(w.x), v = lf_unpack_bf16(w.y);
  return float4(u.x, u.y, v.x, v.y);
}

// A thread's share of the products of R rows of B with M rows of A.
template <int R, int M>
struct lf_sums {
  float v[R][M];

  // Adds the products of four elements w of each row of B with the elements of A at l.
  template <class A>
  void add4(thread const float4* w, device const A* thread const* x, int l) {
    for (int i = 0; i < M; i++) {
      float4 a = lf_load4(x[i] + l);
      for (int r = 0; r < R; r++) v[r][i] = fma(w[r].w, a.w, fma(w[r].z, a.z, fma(w[r].y, a.y, fma(w[r].x, a.x, v[r][i]))));
    }
  }

  // Adds others, times a scale.
  void add(thread const lf_sums<R, M>& o, float scale) {
    for (int r = 0; r < R; r++)
      for (int i = 0; i < M; i++) v[r][i] = fma(o.v[r][i], scale, v[r][i]);
  }
};

inline float4 lf_wide2(uint lo, uint hi, bool f16) {
  float2 u = f16 ? lf_halves(lo) : lf_unpack_bf16(lo), v = f16 ? lf_halves(hi) : lf_unpack_bf16(hi);
  return float4(u.x, u.y, v.x, v.y);
}

// The sums of one product over this thread's part of k by wide loads, for A of type A;
// row[r] is the number of the row of B. BLOCKS: B in 8-bit floats has scales of blocks, and
// the rows are in one.
template <bool BLOCKS, class A, int R, int M>
inline void lf_wide_dots(lf_thread t, thread lf_sums<R, M>& sum, lf_product p, thread const long* row, int m, device const float* scale) {
  int k = p.k, kind = LF_KIND(p.flags >> 8), lane = (int)t.index;
  device const A* x[M];
  for (int i = 0; i < M; i++) x[i] = (device const A*)p.a + (long)min(i, m - 1) * k;
  float4 w[R], v[R];
  switch (kind) {
    case LF_KIND_F32:
      for (int l = 4 * lane; l < k; l += 4 * LF_LANES) {
        for (int r = 0; r < R; r++) w[r] = *(device const float4*)((device const float*)p.b + row[r] * k + l);
        sum.add4(w, x, l);
      }
      return;
    case LF_KIND_F16:
    case LF_KIND_BF16:
      for (int l = 8 * lane; l < k; l += 8 * LF_LANES) {
        for (int r = 0; r < R; r++) {
          uint4 c = *(device const uint4*)(p.b + 2 * (row[r] * k + l));
          w[r] = lf_wide2(c.x, c.y, kind == LF_KIND_F16), v[r] = lf_wide2(c.z, c.w, kind == LF_KIND_F16);
        }
        sum.add4(w, x, l);
        sum.add4(v, x, l + 4);
      }
      return;
    case LF_KIND_Q8:
      for (int l = 4 * lane; l < k; l += 4 * LF_LANES) {
        for (int r = 0; r < R; r++) {
          long at = row[r] * k + l;
          device const uchar* block = p.b + (at >> 6) * 68;
          w[r] = lf_codes8(*(device const uint*)(block + (at & 63)), *(device const float*)(block + 64));
        }
        sum.add4(w, x, l);
      }
      return;
    case LF_KIND_F8:
      for (int l = 4 * lane; l < k; l += 4 * LF_LANES) {
        for (int r = 0; r < R; r++) w[r] = lf_codes_f8(*(device const uint*)(p.b + row[r] * k + l));
        if (BLOCKS) {
          lf_sums<R, M> part = {};
          part.add4(w, x, l);
          sum.add(part, LF_SCALED(p.flags) ? scale[lf_scale_at(p.flags >> 8, (int)row[0], l, k)] : 1.0f);
        } else {
          sum.add4(w, x, l);
        }
      }
      return;
  }
  constant float* book = lf_book(kind);
  for (int u = lane; u < k / 8; u += LF_LANES) { // four bytes, eight codes, of a block
    int l = u / 8 * 64 + u % 8 * 4;
    for (int r = 0; r < R; r++) {
      device const uchar* block = p.b + ((row[r] * k + l) >> 6) * 36;
      uint codes = *(device const uint*)(block + u % 8 * 4);
      float scale = *(device const float*)(block + 32);
      w[r] = lf_codes4(codes, scale, book), v[r] = lf_codes4(codes >> 4, scale, book);
    }
    sum.add4(w, x, l);
    sum.add4(v, x, l + 32);
  }
}

// The sums of one product over this thread's part of k.
template <bool BLOCKS, int R, int M>
inline void lf_dots(lf_thread t, thread lf_sums<R, M>& sum, lf_product p, thread const long* row, int m, device const float* scale) {
  int k = p.k, way = LF_WAY(p.flags), kind = LF_KIND(p.flags);
  if (LF_WAY(p.flags >> 8) != LF_ANY && (way == LF_COPY || (way == LF_WIDE && kind == LF_KIND_F32))) {
    if (way == LF_COPY) lf_wide_dots<BLOCKS, ushort, R, M>(t, sum, p, row, m, scale);
    else lf_wide_dots<BLOCKS, float, R, M>(t, sum, p, row, m, scale);
    return;
  }
  for (int l = (int)t.index; l < k; l += LF_LANES) {
    float w[R], s = BLOCKS && LF_SCALED(p.flags) ? scale[lf_scale_at(p.flags >> 8, (int)row[0], l, k)] : 1.0f;
    for (int r = 0; r < R; r++) w[r] = lf_element(LF_KIND(p.flags >> 8), p.b, row[r] * k + l);
    for (int i = 0; i < M; i++) {
      float x = lf_element(kind, p.a, (long)min(i, m - 1) * k + l);
      if (BLOCKS) x *= s;
      for (int r = 0; r < R; r++) sum.v[r][i] = fma(w[r], x, sum.v[r][i]);
    }
  }
}

// One of the sums: its output, and its products from first to end. bias and addend are
// read if the bits of bound say so: 0 for bias, 1 for addend. types are those of output and
// addend.
struct lf_sum {
  device void* out;
  device const float* bias;
  device const void* addend;
  int n, first, end;
  uint bound;
  lf_mixed types;
};

// Element r, c of a sum from those of the warps.
template <int M, int R>
inline float lf_finish(threadgroup const float* shared, lf_sum of, int r, int c, int j) {
  float s = 0.0f;
  for (int w = 0; w < LF_LANES / 32; w++) s += shared[(w * R + r) * M + c];
  if (of.bound & 1) s += of.bias[j];
  if (of.bound & 2) s += lf_load(of.types, 1, of.addend, (long)c * of.n + j);
  return s;
}

// BLOCKS: blocks of B have scales, not rows.
template <bool BLOCKS, int M, int R>
inline void lf_gemv(lf_thread t, threadgroup float* shared, int m, int act, thread const lf_sum* sums, thread const lf_products& all) {
  // The sum of the threadgroup, and the threadgroup's number among those of the sum.
  int b = (int)t.group.x, b0 = (sums[0].n + R - 1) / R, b1 = (sums[1].n + R - 1) / R, s = act >= 0 || b < b0 ? 0 : b < b0 + b1 ? 1 : 2;
  lf_sum to = s == 0 ? sums[0] : s == 1 ? sums[1] : sums[2];
  int j0 = (s == 0 ? b : s == 1 ? b - b0 : b - b0 - b1) * R, room = LF_LANES / 32 * R * M;
  long row[R];
  for (int r = 0; r < R; r++) row[r] = min(j0 + r, to.n - 1); // past the end, the last rows again
  for (int part = 0; part <= (act >= 0 ? 1 : 0); part++) {
    lf_sums<R, M> total = {};
    for (int i = part ? sums[1].first : to.first; i < (part ? sums[1].end : to.end); i++) {
      lf_product p = lf_pick(all, i);
      lf_sums<R, M> sum = {};
      device const float* scales = lf_scales_of(all, p.flags);
      lf_dots<BLOCKS, R, M>(t, sum, p, row, m, scales);
      for (int r = 0; r < R; r++) {
        float scale = !BLOCKS && LF_SCALED(p.flags) ? scales[row[r]] : 1.0f;
        for (int c = 0; c < M; c++) total.v[r][c] = fma(p.alpha, sum.v[r][c] * scale, total.v[r][c]);
      }
    }
    for (int r = 0; r < R; r++)
      for (int c = 0; c < M; c++) {
        float v = lf_warp_sum(t, total.v[r][c]);
        if (t.lane == 0) shared[part * room + ((int)t.warp * R + r) * M + c] = v;
      }
  }
  lf_barrier();
  int r = (int)t.index / M, c = (int)t.index % M, j = j0 + r;
  if (r >= R || c >= m || j >= to.n) return;
  float y = lf_finish<M, R>(shared, to, r, c, j);
  if (act >= 0) y = lf_act(act, lf_rounded(sums[0].types, 4, y)) * lf_rounded(sums[1].types, 0, lf_finish<M, R>(shared + room, sums[1], r, c, j));
  lf_store(to.types, 0, to.out, (long)c * to.n + j, y);
}

struct gemv_args {
  LF_ARGS;
  int m, n0, n1, n2, ends, act, stored;
  LF_PRODUCT_ARGS_LIST;
};

#define LF_GEMV(name, BLOCKS, M, R)                                                                                \
  LF_KERNEL(LF_LANES) name##_##M(device uchar* out0 [[buffer(0)]], device const float* bias0 [[buffer(1)]],            \
                               device const uchar* addend0 [[buffer(2)]], device uchar* out1 [[buffer(3)]],           \
                               device const float* bias1 [[buffer(4)]], device const uchar* addend1 [[buffer(5)]],   \
                               device uchar* out2 [[buffer(6)]], device const float* bias2 [[buffer(7)]],            \
                               device const uchar* addend2 [[buffer(8)]],                                            \
                               LF_PRODUCTS(9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24),          \
                               LF_SCALES(25, 26, 27), constant gemv_args& a [[buffer(28)]], LF_THREAD) {            \
    LF_BEGIN;                                                                                                       \
    threadgroup float shared[2 * LF_LANES / 32 * R * M];                                                            \
    lf_products all = LF_PRODUCTS_FROM(a, 0, 0);                                                                    \
    lf_sum sums[LF_SUMS] = {{out0, bias0, addend0, a.n0, 0, a.ends & 255, a.bound >> 1 & 3, {a.stored}},            \
                            {out1, bias1, addend1, a.n1, a.ends & 255, a.ends >> 8 & 255, a.bound >> 4 & 3,         \
                             {a.stored >> 2}},                                                                      \
                            {out2, bias2, addend2, a.n2, a.ends >> 8 & 255, a.ends >> 16, a.bound >> 7 & 3,         \
                             {a.stored >> 4}}};                                                                     \
    lf_gemv<BLOCKS, M, R>(t, shared, a.m, a.act, sums, all);                                                                \
  }
LF_GEMV(gemv, false, 1, 2)
LF_GEMV(gemv, false, 2, 2)
LF_GEMV(gemv, false, 4, 2)
LF_GEMV(gemv, false, 8, 4)
LF_GEMV(gemv_blocks, true, 1, 2)
LF_GEMV(gemv_blocks, true, 2, 2)
LF_GEMV(gemv_blocks, true, 4, 2)
LF_GEMV(gemv_blocks, true, 8, 4)
