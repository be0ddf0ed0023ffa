// A product that chooses its weights by row, as a batch of many adapters has it, by the tensor cores:
//
//   out[i, j] = addend[i, j] + bias[e, j] + scale[e] · Σ_l x[i, l] W_e[l, j],  e = index[i]
//
// and its gradients for the matrices; operands rounded to bfloat16, sums in float32. rows_gemm_f32.cu of
// kernels/shared describes the operands. The result of a row depends on that row and its matrix alone,
// bit for bit.
//
// Layout: as rows_gemm_f32.cu. A lane reads 8 consecutive elements of a row along k straight into the
//   fragments of two mma.sync: k is permuted within blocks of 32, in W and in x in the same way. Columns
//   of gradients are permuted, so that a lane reads 8 consecutive ones of q.
// Grid: 256 threads for a tile of 64 rows of one matrix, and 128 columns; where k is more than 256
//   (LF_ROWS_DEEP) 16 columns, and each warp has an eighth of the k axis. Tiles of columns before tiles of
//   rows. rows_grad_mma: a block for 16 by 64 of a matrix (x) of each group (y), an eighth of its rows for
//   each warp.
// Traffic: W_e once for each tile of its rows, x once for each tile of columns, the result once; what is
//   read again comes from L2. Adapters of rank 16: x or the result once, from memory, and W_e n/64 times.
//   A warp has 1 to 3 KB under way, eight warps a block.
// Shared memory: 42 KB. Registers: at most 246 (rows_layers_mma), 111 of rows_grad_mma, none spilled.
// Reference: rows_gemm_f32.cu's, of operands rounded to bfloat16.
#define LF_BLOCKS 1 // else ptxas spills for a second
#include "rows_gemm.h"

template <class T>
struct lf_is_bf16 {
  enum { value = 0 };
};
template <>
struct lf_is_bf16<lf_as_bf16> {
  enum { value = 1 };
};

// Eight elements of a row as bfloat16; those from left on are zero.
template <class T>
LF_DEVICE uint4 lf_row8(const typename T::raw* p, int left, bool wide) {
  if (wide && left >= 8) {
    uint4 u = *(const uint4*)p;
    if (sizeof(typename T::raw) == 4) {
      uint4 v = *(const uint4*)(p + 4);
      return make_uint4(lf_pack_bf16(lf_from_bits(u.x), lf_from_bits(u.y)), lf_pack_bf16(lf_from_bits(u.z), lf_from_bits(u.w)),
                        lf_pack_bf16(lf_from_bits(v.x), lf_from_bits(v.y)), lf_pack_bf16(lf_from_bits(v.z), lf_from_bits(v.w)));
    }
    if (lf_is_bf16<T>::value) return u;
    uint w[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
    for (int c = 0; c < 4; c++) w[c] = lf_pack_bf16(T::get((typename T::raw)w[c]), T::get((typename T::raw)(w[c] >> 16)));
    return make_uint4(w[0], w[1], w[2], w[3]);
  }
  uint w[4];
#pragma unroll
  for (int c = 0; c < 4; c++)
    w[c] = lf_pack_bf16(2 * c < left ? T::get(p[2 * c]) : 0.0f, 2 * c + 1 < left ? T::get(p[2 * c + 1]) : 0.0f);
  return make_uint4(w[0], w[1], w[2], w[3]);
}

// Arithmetic of tensor cores.
struct lf_rows_mma {
  enum { tiles = 8, grad_tiles = 8 };

  template <class T, bool TB>
  static LF_DEVICE uint4 column8(const lf_matrix& m, int j, int l, int left, bool wide) {
    const typename T::raw* w = (const typename T::raw*)m.w;
    j = min(j, m.gives - 1);
    if (TB) return lf_row8<T>(w + (long)j * m.reads + l, left, wide);
    w += (long)l * m.gives + j;
    uint v[4];
#pragma unroll
    for (int c = 0; c < 4; c++)
      v[c] = lf_pack_bf16(2 * c < left ? T::get(w[(long)(2 * c) * m.gives]) : 0.0f, 2 * c + 1 < left ? T::get(w[(long)(2 * c + 1) * m.gives]) : 0.0f);
    return make_uint4(v[0], v[1], v[2], v[3]);
  }

  // Adds block b to the sums; a whole one has 32 elements in aligned rows.
  template <class T, bool TB, bool WHOLE, int NT, class X>
  static LF_DEVICE void block(const lf_thread& t, lf_row_sums<NT>& s, const X& x, const lf_matrix& m, int j, int b) {
    int l = b * LF_ROWS_K + (int)t.lane % 4 * 8, left = WHOLE ? 8 : m.reads - l, g = (int)t.lane / 4;
    uint4 u = column8<T, TB>(m, j + g, l, left, WHOLE), v = column8<T, TB>(m, j + g + 8, l, left, WHOLE);
    uint32_t first[4] = {u.x, v.x, u.y, v.y}, second[4] = {u.z, v.z, u.w, v.w};
    uint4 q[NT];
#pragma unroll
    for (int i = 0; i < NT; i++) q[i] = lf_row8<typename X::type>(x.at(8 * i + g) + l, left, WHOLE);
#pragma unroll
    for (int i = 0; i < NT; i++) {
      uint32_t low[2] = {q[i].x, q[i].y}, high[2] = {q[i].z, q[i].w};
      lf_mma_bf16_16816(s.d[i], first, low);
      lf_mma_bf16_16816(s.d[i], second, high);
    }
  }

  template <class T, bool TB, int NT, class X>
  static LF_DEVICE void add(const lf_thread& t, lf_row_sums<NT>& s, const X& x, const lf_matrix& m, int j, int from, int to, int step) {
    int b = from, whole = min(to, x.wide && (m.wide || !TB) ? m.reads / LF_ROWS_K : 0);
#pragma unroll(NT == 1 ? 4 : 1)
    for (; b < whole; b += step) block<T, TB, true>(t, s, x, m, j, b);
#pragma unroll 1
    for (; b < to; b += step) block<T, TB, false>(t, s, x, m, j, b);
  }

  // Adds block b of the rows of a group; a whole one has 32 rows, and eight aligned columns of q.
  template <bool WHOLE, class L, int NT>
  static LF_DEVICE void row_block(const lf_thread& t, lf_row_sums<NT>& s, const lf_rows_factors& f, L list, int count, int m0, int n0, int b) {
    int g = (int)t.lane / 4, a0 = min(m0 + g, f.m - 1), a1 = min(m0 + g + 8, f.m - 1), i0 = b * LF_ROWS_K + (int)t.lane % 4 * 8, c0 = n0 + NT * g;
#pragma unroll
    for (int half = 0; half < 2; half++) { // of the eight rows of a lane: one mma.sync
      uint32_t u[4], v[NT][2];
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float p[2][2], q[2][NT];
#pragma unroll
        for (int r = 0; r < 2; r++) {
          int i = i0 + 4 * half + 2 * h + r;
          bool some = WHOLE || i < count;
          int row = some ? list[i] : 0;
          p[r][0] = some ? f.one(row, a0) : 0.0f, p[r][1] = some ? f.one(row, a1) : 0.0f;
#pragma unroll
          for (int c = 0; c < NT; c += 4) {
            lf_four w = f.four(row, c0 + c, WHOLE ? 4 : some ? f.n - c0 - c : 0, WHOLE);
            q[r][c] = w.v[0], q[r][c + 1] = w.v[1], q[r][c + 2] = w.v[2], q[r][c + 3] = w.v[3];
          }
        }
        u[2 * h] = lf_pack_bf16(p[0][0], p[1][0]), u[2 * h + 1] = lf_pack_bf16(p[0][1], p[1][1]);
#pragma unroll
        for (int c = 0; c < NT; c++) v[c][h] = lf_pack_bf16(q[0][c], q[1][c]);
      }
#pragma unroll
      for (int c = 0; c < NT; c++) lf_mma_bf16_16816(s.d[c], u, v[c]);
    }
  }

  template <class L, int NT>
  static LF_DEVICE void add_rows(const lf_thread& t, lf_row_sums<NT>& s, const lf_rows_factors& f, L list, int count, int m0, int n0, int from, int to, int step) {
    int b = from, whole = f.wide && n0 + 8 * NT <= f.n ? count / LF_ROWS_K : 0;
#pragma unroll 1
    for (; b < whole; b += step) row_block<true>(t, s, f, list, count, m0, n0, b);
#pragma unroll 1
    for (; b < to; b += step) row_block<false>(t, s, f, list, count, m0, n0, b);
  }
};

#define LF_ROWS_ROOM ((float, part, 10240), (int, rows, LF_ROWS_SCAN), (uint, votes, LF_ROWS_WARPS))

LF_ENTRY_SHARED(LF_ROWS_THREADS, rows_gemm_mma_nt, LF_ROWS_ROOM, LF_ROWS_POINTERS(const uchar), LF_ROWS_NUMBERS) { LF_ROWS_GEMM(lf_rows_mma, true); }
LF_ENTRY_SHARED(LF_ROWS_THREADS, rows_gemm_mma_nn, LF_ROWS_ROOM, LF_ROWS_POINTERS(const uchar), LF_ROWS_NUMBERS) { LF_ROWS_GEMM(lf_rows_mma, false); }
LF_ENTRY_SHARED(LF_ROWS_THREADS, rows_grad_mma, LF_ROWS_ROOM, LF_ROWS_GRAD_POINTERS, LF_ROWS_GRAD_NUMBERS) { LF_ROWS_GRAD(lf_rows_mma); }

LF_ENTRY_SHARED(LF_ROWS_THREADS, rows_layers_mma, LF_ROWS_ROOM, LF_LAYERS_POINTERS, LF_LAYERS_NUMBERS) {
  lf_rows_layers<lf_rows_mma>(t, part, rows, votes, table, trap, n, layers, launch);
}

#ifdef LF_RACE
#define LF_NO_MATRIX nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr
#define LF_NO_SIZE 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
LF_RACE_CASE(rows_gemm_mma) {
  auto x = lf_race_noise<float>(7 * 300), w = lf_race_noise<float>(20 * 300), y = lf_race_noise<float>(7 * 20), scale = lf_race_noise<float>(2);
  auto v = lf_race_noise<unsigned short>(17 * 300);
  auto dw = lf_race_noise<float>(20 * 300), dv = lf_race_noise<float>(17 * 300);
  int index[7] = {1, 0, -1, 1, 0, 0, 1};
  long trap[3] = {}, w_size = 300 | 20L << 30 | 1L << 62, v_size = 300 | 17L << 30 | 2L << 60;
  lf_race_launch(rows_gemm_mma_nt, {6}, {256}, 0, y.data(), x.data(), index, nullptr, scale.data(), nullptr, y.data(), (uchar*)w.data(),
                 (uchar*)v.data(), LF_NO_MATRIX, trap, 7, 300, 20, 2, 0, 2, 2, LF_ROWS_DEEP | LF_ROWS_WIDE, 0L, w_size, v_size, LF_NO_SIZE, 0);
  long table[26] = {(long)y.data(), (long)x.data(), (long)index, 0, (long)scale.data(), 0, (long)y.data(), 300 | 20L << 32, 2 | 22L << 32, 0, 1 | 3L << 32};
  for (int i = 0; i < 11; i++) table[11 + i] = table[i];
  std::vector<float> z(7 * 20);
  table[11] = (long)z.data(), table[17] = 0, table[20] = 3;
  table[22] = (long)w.data(), table[23] = w_size, table[24] = (long)v.data(), table[25] = v_size;
  lf_race_launch(rows_layers_mma, {6}, {256}, 0, (const lf_layer*)table, trap, 7, 2, 0);
  lf_race_launch(rows_grad_mma, {4, 2}, {256}, 0, y.data(), x.data(), index, nullptr, scale.data(), dw.data(), dv.data(), LF_NO_MATRIX, 7, 20, 300, 2, 0, 2,
                 2, 0, 1, 0L, 20 | 90L << 30, 17 | 90L << 30, LF_NO_SIZE);
}
#endif
