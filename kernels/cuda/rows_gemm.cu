// A product that chooses its weights by row, as a batch of many adapters has it:
//
//   out[i, j] = addend[i, j] + bias[e, j] + scale[e] · Σ_l x[i, l] W_e[j, l],  e = index[i]
//
// in float32, with exactly decoded operands. W_e reads the first reads columns of a
// row and computes the first gives columns of the result; the sum is zero in later
// columns. A row of a negative index is its addend, or zeros. The result of a row
// depends on that row and its matrix alone, bit for bit.
//
// Layout: row major. x [n, k] f32, W_e [gives, reads] of f32, f16 or bf16, bias
//   [matrices, width], out and addend [n, width]. scale, bias and addend may be null, and
//   the addend may be out. A launch has matrices first to first + tables: up to eight
//   that lie by themselves, or all of them, step bytes apart. It leaves the rows of
//   other matrices as they are.
// Grid: 128 threads for four rows and 16 columns, column tiles before row tiles; each
//   warp has four columns, its lanes take turns along l and add up by shuffles. Rows of
//   one matrix share what is read of it. The first block also looks for an index that no
//   matrix has.
// Traffic: W_e once for each four adjacent rows that use it, x width/16 times, both
//   mostly from L2: for adapters of rank r, n/4·r·width·4 bytes.
// Reference: for i, j { e = index[i]; s = 0; for l < reads { s += x[i, l] W[e][j, l] }
//                       out[i, j] = addend[i, j] + bias[e, j] + scale[e] s }
#include "element.h"
#include "report.h"

#define LF_ROWS 4 // of a block
#define LF_COLS 4 // of a warp
#define LF_LANES 128

struct lf_table {
  const unsigned char* w;
  int reads, gives, kind; // 0: f32, 1: f16, 2: bf16
};

struct lf_tables {
  lf_table t[8];
  int first, tables;
  long long step; // 0: they are separate
};

LF_DEVICE bool lf_has(const lf_tables& s, int e) { return e >= s.first && e < s.first + s.tables; }

// The table of matrix e; a switch, since parameters have no index.
LF_DEVICE lf_table lf_table_of(const lf_tables& s, int e) {
  if (s.step) {
    lf_table t = s.t[0];
    t.w += e * s.step;
    return t;
  }
  switch (e - s.first) {
    case 0: return s.t[0];
    case 1: return s.t[1];
    case 2: return s.t[2];
    case 3: return s.t[3];
    case 4: return s.t[4];
    case 5: return s.t[5];
    case 6: return s.t[6];
  }
  return s.t[7];
}

// Adds the products of this lane's part of l with four rows of a matrix, from row j on,
// to the sums of those rows of x that are marked.
template <class T>
LF_DEVICE void lf_add(float (&sum)[LF_COLS][LF_ROWS], const float* x, int k, int i, unsigned marked, const lf_table& t, int j) {
  const typename T::raw* w[LF_COLS];
#pragma unroll
  for (int c = 0; c < LF_COLS; c++) w[c] = (const typename T::raw*)t.w + (long long)min(j + c, t.gives - 1) * t.reads;
#pragma unroll 2
  for (int l = threadIdx.x % 32; l < t.reads; l += 32) {
    float b[LF_COLS];
#pragma unroll
    for (int c = 0; c < LF_COLS; c++) b[c] = T::get(w[c][l]);
#pragma unroll
    for (int r = 0; r < LF_ROWS; r++) {
      if (!(marked >> r & 1)) continue;
      float a = x[(long long)(i + r) * k + l];
#pragma unroll
      for (int c = 0; c < LF_COLS; c++) sum[c][r] = fmaf(b[c], a, sum[c][r]);
    }
  }
}

// Reports the first index that is past all matrices.
LF_DEVICE void lf_check(int* bad, const int* index, int n, int matrices, long* trap, int launch) {
  int t = threadIdx.x, at = n;
  for (int i = t; i < n; i += LF_LANES)
    if (index[i] >= matrices) {
      at = i;
      break;
    }
  bad[t] = at;
  for (int m = LF_LANES / 2; m; m >>= 1) {
    __syncthreads();
    if (t < m && bad[t + m] < bad[t]) bad[t] = bad[t + m];
  }
  if (t == 0 && bad[0] < n) lf_report(trap, launch, bad[0], index[bad[0]]);
}

#define LF_TABLE(i) const unsigned char *w##i, int reads##i, int gives##i, int kind##i
#define LF_TABLE_OF(i) {w##i, reads##i, gives##i, kind##i}

extern "C" __global__ void __launch_bounds__(LF_LANES)
    rows_gemm(float* out, const float* x, const int* index, const float* scale, const float* bias, const float* addend, int n, int k, int width,
              int matrices, int first, int tables, long long step, LF_TABLE(0), LF_TABLE(1), LF_TABLE(2), LF_TABLE(3), LF_TABLE(4), LF_TABLE(5),
              LF_TABLE(6), LF_TABLE(7), long* trap, int launch) {
  LF_SHARED(int, bad, [LF_LANES]);
  lf_tables all = {{LF_TABLE_OF(0), LF_TABLE_OF(1), LF_TABLE_OF(2), LF_TABLE_OF(3), LF_TABLE_OF(4), LF_TABLE_OF(5), LF_TABLE_OF(6), LF_TABLE_OF(7)},
                   first, tables, step};
  if (blockIdx.x == 0 && first == 0) lf_check(bad, index, n, matrices, trap, launch);
  int across = (width + 15) / 16, lane = threadIdx.x % 32;
  int i0 = blockIdx.x / across * LF_ROWS, j0 = blockIdx.x % across * 16 + (int)threadIdx.x / 32 * LF_COLS;
  int of[LF_ROWS]; // their matrices
#pragma unroll
  for (int r = 0; r < LF_ROWS; r++) of[r] = i0 + r < n ? index[i0 + r] : -1;
  float sum[LF_COLS][LF_ROWS] = {};
#pragma unroll
  for (int r = 0; r < LF_ROWS; r++) {
    unsigned same = 0;
#pragma unroll
    for (int q = 0; q < LF_ROWS; q++) same |= (unsigned)(of[q] == of[r]) << q;
    if (!lf_has(all, of[r]) || (same & ((1u << r) - 1))) continue; // not here, or done with a row before
    lf_table t = lf_table_of(all, of[r]);
    if (t.kind == 0) lf_add<lf_as_f32>(sum, x, k, i0, same, t, j0);
    else if (t.kind == 1) lf_add<lf_as_f16>(sum, x, k, i0, same, t, j0);
    else lf_add<lf_as_bf16>(sum, x, k, i0, same, t, j0);
  }
  float mine = 0.0f; // lane 4c + r has column c of row r
  int e = -1;
#pragma unroll
  for (int c = 0; c < LF_COLS; c++)
#pragma unroll
    for (int r = 0; r < LF_ROWS; r++) {
      float s = lf_warp_sum(sum[c][r]);
      if (lane == LF_ROWS * c + r) mine = s, e = of[r];
    }
  int i = i0 + lane % LF_ROWS, j = j0 + lane / LF_ROWS;
  if (lane >= LF_ROWS * LF_COLS || i >= n || j >= width || !(lf_has(all, e) || (e < 0 && first == 0))) return;
  long long at = (long long)i * width + j;
  float v = addend ? addend[at] : 0.0f;
  if (e >= 0) {
    if (bias) v += bias[(long long)e * width + j];
    if (j < lf_table_of(all, e).gives) v += scale ? scale[e] * mine : mine;
  }
  out[at] = v;
}
LF_KERNEL(rows_gemm);

#ifdef LF_RACE
#include "../sim/test/race.h"
#define LF_NONE nullptr, 0, 0, 0
LF_RACE_CASE(rows_gemm) {
  auto x = lf_race_noise<float>(7 * 40), w = lf_race_noise<float>(9 * 40), c = lf_race_noise<float>(7 * 20), scale = lf_race_noise<float>(2);
  auto v = lf_race_noise<lf_bf16>(20 * 33);
  int index[7] = {1, 0, -1, 1, 0, 0, 1};
  long trap[3] = {};
  lf_race_launch(rows_gemm, {4}, {LF_LANES}, 0, c.data(), x.data(), index, scale.data(), nullptr, c.data(), 7, 40, 20, 2, 0, 2, 0,
                 (const unsigned char*)w.data(), 40, 9, 0, (const unsigned char*)v.data(), 33, 20, 2, LF_NONE, LF_NONE, LF_NONE, LF_NONE, LF_NONE,
                 LF_NONE, trap, 0);
}
#endif
