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
//   one matrix share what is read of it. The first threadgroup also looks for an index
//   that no matrix has.
// Traffic: W_e once for each four adjacent rows that use it, x width/16 times, both
//   mostly from the cache: for adapters of rank r, n/4·r·width·4 bytes. Threadgroup
//   memory: 512 bytes, for the check alone.
// Reference: for i, j { e = index[i]; s = 0; for l < reads { s += x[i, l] W[e][j, l] }
//                       out[i, j] = addend[i, j] + bias[e, j] + scale[e] s }
#include "element.h"
#include "report.h"

#define LF_ROWS 4 // of a threadgroup
#define LF_COLS 4 // of a warp
#define LF_LANES 128

struct lf_table {
  device const uchar* w;
  int reads, gives, kind; // 0: f32, 1: f16, 2: bf16
};

struct lf_tables {
  lf_table t[8];
  int first, tables;
  long step; // 0: they are separate
};

inline bool lf_has(thread const lf_tables& s, int e) { return e >= s.first && e < s.first + s.tables; }

// The table of matrix e; a switch, since an index that is not known would keep all of
// them in the memory of each thread.
inline lf_table lf_table_of(thread const lf_tables& s, int e) {
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

struct lf_row_sums {
  float s[LF_COLS][LF_ROWS];

  void clear() {
    for (int c = 0; c < LF_COLS; c++)
      for (int r = 0; r < LF_ROWS; r++) s[c][r] = 0.0f;
  }

  // Adds the products of this lane's part of l with four rows of a matrix, from row j
  // on, to the sums of those rows of x, from row i on, that are marked.
  template <class T>
  void add(lf_thread t, device const float* x, int k, int i, uint marked, lf_table m, int j) {
    device const typename T::raw* w[LF_COLS];
    for (int c = 0; c < LF_COLS; c++) w[c] = (device const typename T::raw*)m.w + (long)min(j + c, m.gives - 1) * m.reads;
    for (int l = (int)t.lane; l < m.reads; l += 32) {
      float b[LF_COLS];
      for (int c = 0; c < LF_COLS; c++) b[c] = T::get(w[c][l]);
      for (int r = 0; r < LF_ROWS; r++) {
        if (!(marked >> r & 1)) continue;
        float a = x[(long)(i + r) * k + l];
        for (int c = 0; c < LF_COLS; c++) s[c][r] = fma(b[c], a, s[c][r]);
      }
    }
  }
};

// Reports the first index that is past all matrices.
inline void lf_check(lf_thread t, threadgroup int* bad, device const int* index, int n, int matrices, device long* trap, int launch) {
  int at = n;
  for (int i = (int)t.index; i < n; i += LF_LANES)
    if (index[i] >= matrices) {
      at = i;
      break;
    }
  bad[t.index] = at;
  for (uint m = LF_LANES / 2; m; m >>= 1) {
    lf_barrier();
    if (t.index < m && bad[t.index + m] < bad[t.index]) bad[t.index] = bad[t.index + m];
  }
  if (t.index == 0 && bad[0] < n) lf_report(trap, launch, bad[0], index[bad[0]]);
}

#define LF_TABLE_ARGS(i) int reads##i, gives##i, kind##i
struct rows_gemm_args {
  LF_ARGS;
  int n, k, width, matrices, first, tables;
  long step;
  LF_TABLE_ARGS(0);
  LF_TABLE_ARGS(1);
  LF_TABLE_ARGS(2);
  LF_TABLE_ARGS(3);
  LF_TABLE_ARGS(4);
  LF_TABLE_ARGS(5);
  LF_TABLE_ARGS(6);
  LF_TABLE_ARGS(7);
  int launch;
};

#define LF_TABLE_OF(a, i) {w##i, a.reads##i, a.gives##i, a.kind##i}

LF_KERNEL(LF_LANES)
rows_gemm(device float* out [[buffer(0)]], device const float* x [[buffer(1)]], device const int* index [[buffer(2)]],
          device const float* scale [[buffer(3)]], device const float* bias [[buffer(4)]], device const float* addend [[buffer(5)]],
          device const uchar* w0 [[buffer(6)]], device const uchar* w1 [[buffer(7)]], device const uchar* w2 [[buffer(8)]],
          device const uchar* w3 [[buffer(9)]], device const uchar* w4 [[buffer(10)]], device const uchar* w5 [[buffer(11)]],
          device const uchar* w6 [[buffer(12)]], device const uchar* w7 [[buffer(13)]], device long* trap [[buffer(14)]],
          constant rows_gemm_args& a [[buffer(15)]], LF_THREAD) {
  LF_BEGIN;
  threadgroup int bad[LF_LANES];
  lf_tables all = {{LF_TABLE_OF(a, 0), LF_TABLE_OF(a, 1), LF_TABLE_OF(a, 2), LF_TABLE_OF(a, 3), LF_TABLE_OF(a, 4), LF_TABLE_OF(a, 5),
                    LF_TABLE_OF(a, 6), LF_TABLE_OF(a, 7)},
                   a.first, a.tables, a.step};
  if (t.group.x == 0 && a.first == 0) lf_check(t, bad, index, a.n, a.matrices, trap, a.launch);
  int across = (a.width + 15) / 16, lane = (int)t.lane;
  int i0 = (int)t.group.x / across * LF_ROWS, j0 = (int)t.group.x % across * 16 + (int)t.warp * LF_COLS;
  int of[LF_ROWS]; // their matrices
  for (int r = 0; r < LF_ROWS; r++) of[r] = i0 + r < a.n ? index[i0 + r] : -1;
  lf_row_sums sums;
  sums.clear();
  for (int r = 0; r < LF_ROWS; r++) {
    uint same = 0;
    for (int q = 0; q < LF_ROWS; q++) same |= (uint)(of[q] == of[r]) << q;
    if (!lf_has(all, of[r]) || (same & ((1u << r) - 1))) continue; // not here, or done with a row before
    lf_table m = lf_table_of(all, of[r]);
    if (m.kind == 0) sums.add<lf_as_f32>(t, x, a.k, i0, same, m, j0);
    else if (m.kind == 1) sums.add<lf_as_f16>(t, x, a.k, i0, same, m, j0);
    else sums.add<lf_as_bf16>(t, x, a.k, i0, same, m, j0);
  }
  float mine = 0.0f; // lane 4c + r has column c of row r
  int e = -1;
  for (int c = 0; c < LF_COLS; c++)
    for (int r = 0; r < LF_ROWS; r++) {
      float s = lf_warp_sum(t, sums.s[c][r]);
      if (lane == LF_ROWS * c + r) mine = s, e = of[r];
    }
  int i = i0 + lane % LF_ROWS, j = j0 + lane / LF_ROWS;
  if (lane >= LF_ROWS * LF_COLS || i >= a.n || j >= a.width || !(lf_has(all, e) || (e < 0 && a.first == 0))) return;
  long at = (long)i * a.width + j;
  float v = LF_BOUND(a, 5) ? addend[at] : 0.0f;
  if (e >= 0) {
    if (LF_BOUND(a, 4)) v += bias[(long)e * a.width + j];
    if (j < lf_table_of(all, e).gives) v += LF_BOUND(a, 3) ? scale[e] * mine : mine;
  }
  out[at] = v;
}
