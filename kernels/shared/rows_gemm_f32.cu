// A product that chooses its weights by row, as a batch of many adapters has it, in float32:
//
//   out[i, j] = addend[i, j] + bias[e, j] + scale[e] · Σ_l x[i, l] W_e[l, j],  e = index[i]
//
// and its gradients for the matrices. Operands are decoded exactly. W_e reads the first reads columns of
// a row and computes the first gives columns of the result; the sum is zero in later columns. A row of a
// negative index is its addend, or zeros. The result of a row depends on that row and its matrix alone,
// bit for bit.
//
// Layout: row major. x [n, k]; W_e [gives, reads] (*_nt) or [reads, gives] (*_nn), of f32, f16 or bf16;
//   bias [matrices, width]; out and addend [n, width]. x, out, addend and dy are of f32, or bf16 if a flag
//   says so. scale, bias and addend may be null, and the addend may be out. A launch has matrices first to first + tables: up to 16 that lie by themselves, or
//   all of them, step bytes apart. It leaves the rows of other matrices as they are.
//   rows_layers_f32 (W_e [gives, reads]) reads the operands of several products from a table of lf_layer, with any number
//   of matrices that lie by themselves. rows_tables copies the tables of a program to the device.
// Grid: 256 threads for a tile of 32 rows of one matrix, and 128 columns; where k is more than 256 (flag
//   LF_ROWS_DEEP) 16 columns, and each warp has an eighth of the k axis. Tiles of columns before tiles of
//   rows. Without order, the block behind the matrices' first tiles looks for an index without a matrix.
//   rows_grad_f32: a block for 16 by 32 of a matrix (x) of each group (y).
// Traffic: W_e once for each tile of its rows, x once for each tile of columns, mostly from caches; the
//   result once. For adapters of rank r: x or the result once, and W_e n/32 times at most.
// Shared memory: 21.5 KB. Registers: at most 128, none spilled.
// Reference: for i, j { e = index[i]; s = 0; for l < reads { s += x[i, l] W[e][l, j] }
//                       out[i, j] = addend[i, j] + bias[e, j] + scale[e] s }
//            for e, l, j { s = 0; for i with index[i] = e { s += x[i, l] dy[i, j] }; dW[e][l, j] = scale[e] s }
#define LF_BLOCKS 2 // CUDA: else ptxas spills for a third
#include "rows_gemm.h"

// Arithmetic in float32.
struct lf_rows_f32 {
  enum { tiles = 4, grad_tiles = 4 };

  template <class T, bool TB>
  static LF_DEVICE lf_four column4(lf_matrix m, int j, int l, int left) {
    LF_GLOBAL const typename T::raw* w = (LF_GLOBAL const typename T::raw*)m.w;
    j = min(j, m.gives - 1);
    lf_four f;
    if (TB) {
      f = lf_row4<T>(w + (long)j * m.reads + l, left, m.wide);
    } else {
#pragma unroll
      for (int c = 0; c < 4; c++) f.v[c] = c < left ? T::get(w[(long)(l + c) * m.gives + j]) : 0.0f;
    }
    return f;
  }

  // Adds every step-th block from one to another to the sums of a warp.
  template <class T, bool TB, int NT, class X>
  static LF_DEVICE void add(lf_thread t, LF_PRIVATE lf_row_sums<NT>& s, X x, lf_matrix m, int j, int from, int to, int step) {
    int g = (int)t.lane / 4, q = (int)t.lane % 4 * 2;
    for (int b = from; b < to; b += step) {
      int end = min((b + 1) * LF_ROWS_K, m.reads);
      for (int l = b * LF_ROWS_K; l < end; l += 4) {
        lf_four w0 = column4<T, TB>(m, j + g, l, end - l), w1 = column4<T, TB>(m, j + g + 8, l, end - l);
#pragma unroll
        for (int i = 0; i < NT; i++)
#pragma unroll
          for (int u = 0; u < 2; u++) {
            lf_four v = lf_row4<typename X::type>(x.at(8 * i + q + u) + l, end - l, x.wide);
#pragma unroll
            for (int c = 0; c < 4; c++) {
              s.d[i][u] = lf_fma(w0.v[c], v.v[c], s.d[i][u]);
              s.d[i][u + 2] = lf_fma(w1.v[c], v.v[c], s.d[i][u + 2]);
            }
          }
      }
    }
  }

  template <class L, int NT>
  static LF_DEVICE void add_rows(lf_thread t, LF_PRIVATE lf_row_sums<NT>& s, lf_rows_factors f, L list, int count, int m0, int n0, int from, int to, int step) {
    int g = (int)t.lane / 4, a0 = min(m0 + g, f.m - 1), a1 = min(m0 + g + 8, f.m - 1), b0 = n0 + (int)t.lane % 4 * 2 * NT;
    for (int b = from; b < to; b += step) {
      int end = min((b + 1) * LF_ROWS_K, count);
      for (int i = b * LF_ROWS_K; i < end; i++) {
        float p0 = f.one(list[i], a0), p1 = f.one(list[i], a1);
#pragma unroll
        for (int c = 0; c < 2 * NT; c += 4) {
          lf_four v = f.four(list[i], b0 + c, f.n - b0 - c, f.wide);
#pragma unroll
          for (int e = 0; e < 4; e++) {
            int u = (c + e) / NT, at = (c + e) % NT;
            s.d[at][u] = lf_fma(p0, v.v[e], s.d[at][u]);
            s.d[at][u + 2] = lf_fma(p1, v.v[e], s.d[at][u + 2]);
          }
        }
      }
    }
  }
};

#define LF_ROWS_ROOM ((float, part, 5120), (int, rows, LF_ROWS_SCAN), (uint, votes, LF_ROWS_WARPS))

LF_ENTRY_SHARED(LF_ROWS_THREADS, rows_gemm_f32_nt, LF_ROWS_ROOM, LF_ROWS_POINTERS(const uchar), LF_ROWS_NUMBERS) { LF_ROWS_GEMM(lf_rows_f32, true); }
LF_ENTRY_SHARED(LF_ROWS_THREADS, rows_gemm_f32_nn, LF_ROWS_ROOM, LF_ROWS_POINTERS(const uchar), LF_ROWS_NUMBERS) { LF_ROWS_GEMM(lf_rows_f32, false); }
LF_ENTRY_SHARED(LF_ROWS_THREADS, rows_grad_f32, LF_ROWS_ROOM, LF_ROWS_GRAD_POINTERS, LF_ROWS_GRAD_NUMBERS) { LF_ROWS_GRAD(lf_rows_f32); }
LF_ENTRY_SHARED(LF_ROWS_THREADS, rows_layers_f32, LF_ROWS_ROOM, LF_LAYERS_POINTERS, LF_LAYERS_NUMBERS) {
  lf_rows_layers<lf_rows_f32>(t, part, rows, votes, table, trap, n, layers, launch);
}

LF_ENTRY(256, rows_tables, ((long, table), (const long, words)), ((int, count))) {
  for (int i = (int)(t.group.x * 256 + t.index); i < count; i += 256 * (int)t.groups.x) table[i] = words[i];
}

#ifdef LF_RACE
LF_RACE_CASE(rows_gemm_f32) {
  auto x = lf_race_noise<float>(7 * 300), w = lf_race_noise<float>(20 * 300), y = lf_race_noise<float>(7 * 20), scale = lf_race_noise<float>(2);
  auto v = lf_race_noise<unsigned short>(17 * 300);
  auto dw = lf_race_noise<float>(20 * 300), dv = lf_race_noise<float>(17 * 300);
  int index[7] = {1, 0, -1, 1, 0, 0, 1};
  long trap[3] = {}, w_size = 300 | 20L << 30 | 1L << 62, v_size = 300 | 17L << 30 | 2L << 60;
#define LF_NO_MATRIX nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr
#define LF_NO_SIZE 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
  lf_race_launch(rows_gemm_f32_nt, {6}, {256}, 0, y.data(), x.data(), index, nullptr, scale.data(), nullptr, y.data(), (uchar*)w.data(),
                 (uchar*)v.data(), LF_NO_MATRIX, trap, 7, 300, 20, 2, 0, 2, 2, LF_ROWS_DEEP | LF_ROWS_WIDE, 0L, w_size, v_size, LF_NO_SIZE, 0);
  long words[26] = {(long)y.data(), (long)x.data(), (long)index, 0, (long)scale.data(), 0, (long)y.data(), 300 | 20L << 32, 2 | 22L << 32, 0, 1 | 3L << 32};
  for (int i = 0; i < 11; i++) words[11 + i] = words[i];
  std::vector<float> z(7 * 20);
  std::vector<long> table(26);
  words[11] = (long)z.data(), words[17] = 0, words[20] = 3;
  words[22] = (long)w.data(), words[23] = w_size, words[24] = (long)v.data(), words[25] = v_size;
  lf_race_launch(rows_tables, {2}, {256}, 0, table.data(), words, 26);
  lf_race_launch(rows_layers_f32, {6}, {256}, 0, (const lf_layer*)table.data(), trap, 7, 2, 0);
  lf_race_launch(rows_grad_f32, {4, 2}, {256}, 0, y.data(), x.data(), index, nullptr, scale.data(), dw.data(), dv.data(), LF_NO_MATRIX, 7, 20, 300, 2, 0, 2,
                 2, 0, 1, 0L, 20 | 60L << 30, 17 | 60L << 30, LF_NO_SIZE);
}
#endif
