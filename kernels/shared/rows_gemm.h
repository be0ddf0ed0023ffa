// Products whose matrix depends on the row, and their gradients: what rows_gemm.cu of kernels/cuda,
// for tensor cores, and rows_gemm_f32.cu, for float32, have in common.
//
// Rows are grouped by matrix; a group is multiplied in tiles of P::tiles · 8 rows, P being the
//   arithmetic. Groups come from index alone if there are at most LF_ROWS_SCAN rows, else from
//   order, which rows_order has written.
// Order of sums: element l of the k axis belongs to block l/32, and block b to sum b % 8, in the
//   order of l; then the sums are added in their order. It depends on neither the rows of a tile
//   nor the way: a warp has each sum, or (k of at most 256) one warp has all of them.
// Fragments: a warp has 16 columns of the result by 8 rows for each of NT tiles, laid out as by
//   mma.sync: lane 4g + t has columns g and g + 8 of rows 2t and 2t + 1.
#pragma once

#include "element.h"
#include "many_params.h"
#include "report.h"

#define LF_ROWS_THREADS 256
#define LF_ROWS_WARPS 8
#define LF_ROWS_K 32    // elements of the k axis of a block
#define LF_ROWS_COLS 16 // of a warp
#define LF_ROWS_PAD 20  // floats from one row to the next in shared memory
#define LF_ROWS_SCAN 256
#define LF_ROWS_DEEP 1 // flags: each warp has a part of the k axis, instead of columns of its own
#define LF_ROWS_WIDE 2 // rows of x are aligned to 16 bytes
#define LF_ROWS_BF16 4    // x is bfloat16
#define LF_ROWS_NARROW 8  // the result is bfloat16
#define LF_ROWS_ADDEND 16 // the addend is bfloat16
#define LF_GRAD_WIDE 1    // flags of gradients: rows of q are aligned to 16 bytes
#define LF_GRAD_P 2       // p is bfloat16
#define LF_GRAD_Q 4       // q is bfloat16

// A matrix as stored: [gives, reads], or [reads, gives]. kind: 0 f32, 1 f16, 2 bf16; wide: rows are
// aligned to 16 bytes.
struct lf_matrix {
  LF_GLOBAL const uchar* w;
  int reads, gives, kind;
  bool wide;
};

LF_DEVICE lf_matrix lf_matrix_of(LF_GLOBAL const uchar* w, long size) {
  lf_matrix m = {w, (int)(size & 0x3fffffff), (int)(size >> 30 & 0x3fffffff), (int)(size >> 60 & 3), (size >> 62 & 1) != 0};
  return m;
}

// The 16 matrices of a launch, as parameters: addresses w0 to w15 and sizes. A switch selects one,
// since an index that is not known would copy all of them.
#define LF_MATRIX_POINTERS(T)                                                                                              \
  (T, w0), (T, w1), (T, w2), (T, w3), (T, w4), (T, w5), (T, w6), (T, w7), (T, w8), (T, w9), (T, w10), (T, w11), (T, w12),  \
      (T, w13), (T, w14), (T, w15)
#define LF_MATRIX_SIZES                                                                                                    \
  (long, size0), (long, size1), (long, size2), (long, size3), (long, size4), (long, size5), (long, size6), (long, size7),  \
      (long, size8), (long, size9), (long, size10), (long, size11), (long, size12), (long, size13), (long, size14), (long, size15)
#define LF_MATRIX_CASE(i) \
  case i: to = w##i, size = size##i; break;
#define LF_PICK_MATRIX(at)                                                                                          \
  switch (at) {                                                                                                     \
    LF_MATRIX_CASE(1) LF_MATRIX_CASE(2) LF_MATRIX_CASE(3) LF_MATRIX_CASE(4) LF_MATRIX_CASE(5) LF_MATRIX_CASE(6)     \
    LF_MATRIX_CASE(7) LF_MATRIX_CASE(8) LF_MATRIX_CASE(9) LF_MATRIX_CASE(10) LF_MATRIX_CASE(11) LF_MATRIX_CASE(12)  \
    LF_MATRIX_CASE(13) LF_MATRIX_CASE(14) LF_MATRIX_CASE(15)                                                        \
  }

// Writes numbers skip to skip + most of the rows of a group, of at most LF_ROWS_SCAN rows in all, and
// returns the number of the group's rows. Group matrices is that of rows without a matrix.
LF_DEVICE int lf_scan_rows(lf_thread t, LF_GROUP int* rows, LF_GROUP uint* votes, LF_GLOBAL const int* index, int n, int matrices, int group,
                           int skip, int most) {
  int i = (int)t.index, e = i < n ? index[i] : matrices;
  bool own = i < n && (e < 0 ? group == matrices : e == group && e < matrices);
  uint vote = lf_ballot(t, own);
  if (t.lane == 0) votes[t.warp] = vote;
  lf_barrier();
  int before = -skip, all = 0;
  for (uint w = 0; w < LF_ROWS_WARPS; w++) {
    if (w == t.warp) before += all;
    all += lf_popcount(votes[w]);
  }
  before += lf_popcount(vote & ((1u << t.lane) - 1));
  if (own && before >= 0 && before < most) rows[before] = i;
  lf_barrier();
  return all;
}

// Reports the first of at most LF_ROWS_SCAN indices that no matrix has.
LF_DEVICE void lf_check_rows(lf_thread t, LF_GROUP uint* votes, LF_GLOBAL const int* index, int n, int matrices, LF_GLOBAL long* trap, int launch) {
  uint vote = lf_ballot(t, (int)t.index < n && index[t.index] >= matrices);
  if (t.lane == 0) votes[t.warp] = vote;
  lf_barrier();
  if (t.index != 0) return;
  for (int w = 0; w < LF_ROWS_WARPS; w++)
    for (int l = 0; l < 32; l++)
      if (votes[w] >> l & 1) {
        lf_report(trap, launch, 32 * w + l, index[32 * w + l]);
        return;
      }
}

// A tile of rows of a group. The group after the launch's last matrix has the rows without one, in
// the launch of matrix 0.
struct lf_rows_tile {
  int group, count;
};

// Writes the rows of tile number item to rows, most of them. There are tiles for every group in turn
// if there is no order, which begins with the first places of all groups and their end.
LF_DEVICE lf_rows_tile lf_find_rows(lf_thread t, LF_GROUP int* rows, LF_GROUP uint* votes, LF_GLOBAL const int* index, bool has_order,
                                    LF_GLOBAL const int* order, int item, int most, int n, int matrices, int first, int tables) {
  lf_rows_tile tile = {matrices, 0};
  int groups = tables + (first == 0);
  if (!has_order) {
    int at = item % groups, skip = item / groups * most;
    if (at < tables) tile.group = first + at;
    tile.count = min(lf_scan_rows(t, rows, votes, index, n, matrices, tile.group, skip, most) - skip, most);
    return tile;
  }
  for (int at = 0; at < groups; at++) {
    int e = at < tables ? first + at : matrices, begin = order[e], size = order[e + 1] - begin, tiles = (size + most - 1) / most;
    if (item < tiles) {
      tile.group = e, tile.count = min(size - item * most, most);
      if ((int)t.index < tile.count) rows[t.index] = order[matrices + 2 + begin + item * most + t.index];
      break;
    }
    item -= tiles;
  }
  lf_barrier();
  return tile;
}

struct lf_four {
  float v[4];
};

// Four elements of a row; those from left on are zero.
template <class T>
LF_DEVICE lf_four lf_row4(LF_GLOBAL const typename T::raw* p, int left, bool wide) {
  lf_four f;
  if (wide && left >= 4) {
    if (sizeof(typename T::raw) == 4) {
      float4 v = *(LF_GLOBAL const float4*)p;
      f.v[0] = v.x, f.v[1] = v.y, f.v[2] = v.z, f.v[3] = v.w;
    } else {
      uint2 v = *(LF_GLOBAL const uint2*)p;
      f.v[0] = T::get((typename T::raw)(v.x & 0xffffu)), f.v[1] = T::get((typename T::raw)(v.x >> 16));
      f.v[2] = T::get((typename T::raw)(v.y & 0xffffu)), f.v[3] = T::get((typename T::raw)(v.y >> 16));
    }
    return f;
  }
#pragma unroll
  for (int c = 0; c < 4; c++) f.v[c] = c < left ? T::get(p[c]) : 0.0f;
  return f;
}

// Where sums of a group go: out = addend + bias + scale · sum.
struct lf_rows_result {
  LF_GLOBAL float* out; // or bfloat16, as the addend; see flags
  LF_GLOBAL const float* addend;
  LF_GLOBAL const float* bias; // of the matrix
  bool has_addend, has_bias;
  int flags;
  int width, gives;
  float scale;

  LF_DEVICE void put(int row, int j, float sum) const {
    if (j >= width) return;
    long at = (long)row * width + j;
    float v = 0.0f;
    if (has_addend) v = flags & LF_ROWS_ADDEND ? lf_as_bf16::get(((LF_GLOBAL const ushort*)addend)[at]) : addend[at];
    if (has_bias) v += bias[j];
    if (j < gives) v += scale * sum;
    if (flags & LF_ROWS_NARROW) ((LF_GLOBAL ushort*)out)[at] = lf_as_bf16::put(v);
    else out[at] = v;
  }

  // Reports whether the addend is already the result of rows without a matrix.
  LF_DEVICE bool in_place() const { return has_addend && addend == out && !(flags & LF_ROWS_NARROW) == !(flags & LF_ROWS_ADDEND); }
};

template <int NT>
struct lf_row_sums {
  float d[NT][4];

  LF_DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < NT; i++)
#pragma unroll
      for (int e = 0; e < 4; e++) d[i][e] = 0.0f;
  }
};

// Rows of x, of elements T.
template <class T>
struct lf_rows_input {
  typedef T type;
  LF_GLOBAL const typename T::raw* x;
  LF_GROUP const int* rows;
  int k, count;
  bool wide;

  LF_DEVICE LF_GLOBAL const typename T::raw* at(int i) const { return x + (long)rows[min(i, count - 1)] * k; }
};

// A tile of rows by 16 columns from j on, of each warp or of the block.
template <class P, class T, bool TB, int NT, class X>
LF_DEVICE void lf_rows_tile_multiply(lf_thread t, LF_GROUP float* part, X x, lf_matrix m, lf_rows_result r, int j, bool deep) {
  lf_row_sums<NT> sums;
  int g = (int)t.lane / 4, q = (int)t.lane % 4 * 2, blocks = (m.reads + LF_ROWS_K - 1) / LF_ROWS_K;
  if (!deep) {
    lf_row_sums<NT> all;
    all.clear();
    for (int b = 0; b < blocks; b++) {
      sums.clear();
      P::template add<T, TB>(t, sums, x, m, j, b, b + 1, 1);
#pragma unroll
      for (int i = 0; i < NT; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) all.d[i][e] += sums.d[i][e];
    }
#pragma unroll
    for (int i = 0; i < NT; i++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        int at = 8 * i + q + (e & 1);
        if (at < x.count) r.put(x.rows[at], j + g + 8 * (e >> 1), all.d[i][e]);
      }
    return;
  }
  sums.clear();
  P::template add<T, TB>(t, sums, x, m, j, (int)t.warp, blocks, LF_ROWS_WARPS);
  enum { size = 8 * NT * LF_ROWS_PAD };
#pragma unroll
  for (int i = 0; i < NT; i++)
#pragma unroll
    for (int e = 0; e < 4; e++) part[t.warp * size + (8 * i + q + (e & 1)) * LF_ROWS_PAD + g + 8 * (e >> 1)] = sums.d[i][e];
  lf_barrier();
  for (int e = (int)t.index; e < LF_ROWS_COLS * x.count; e += LF_ROWS_THREADS) {
    int at = e / LF_ROWS_COLS, col = e % LF_ROWS_COLS;
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < LF_ROWS_WARPS; w++) sum += part[w * size + at * LF_ROWS_PAD + col];
    r.put(x.rows[at], j + col, sum);
  }
}

template <class P, class T, bool TB, class X>
LF_DEVICE void lf_rows_multiply(lf_thread t, LF_GROUP float* part, X x, lf_matrix m, lf_rows_result r, int j, bool deep) {
  if (x.count <= 8) lf_rows_tile_multiply<P, T, TB, 1>(t, part, x, m, r, j, deep);
  else lf_rows_tile_multiply<P, T, TB, P::tiles>(t, part, x, m, r, j, deep);
}

// Columns of a block: 16, or 16 for each warp. across is the number of blocks of a tile of rows.
template <class P, bool TB, class X>
LF_DEVICE void lf_rows_gemm(lf_thread t, LF_GROUP float* part, X x, lf_matrix m, lf_rows_result r, int column, bool deep) {
  int j = deep ? column * LF_ROWS_COLS : (column * LF_ROWS_WARPS + (int)t.warp) * LF_ROWS_COLS;
  if (m.gives <= (deep ? j : column * LF_ROWS_WARPS * LF_ROWS_COLS)) { // no columns of the matrix, or no matrix
    int cols = deep ? LF_ROWS_COLS : LF_ROWS_WARPS * LF_ROWS_COLS;
    if (m.gives == 0 && r.in_place()) return;
    for (int e = (int)t.index; e < cols * x.count; e += LF_ROWS_THREADS) r.put(x.rows[e / cols], column * cols + e % cols, 0.0f);
    return;
  }
  if (m.kind == 0) lf_rows_multiply<P, lf_as_f32, TB>(t, part, x, m, r, j, deep);
  else if (m.kind == 1) lf_rows_multiply<P, lf_as_f16, TB>(t, part, x, m, r, j, deep);
  else lf_rows_multiply<P, lf_as_bf16, TB>(t, part, x, m, r, j, deep);
}

// x is of f32, or of bfloat16.
template <class P, bool TB>
LF_DEVICE void lf_rows_gemm_of(lf_thread t, LF_GROUP float* part, LF_GROUP const int* rows, LF_GLOBAL const float* x, int k, int count, int flags,
                               lf_matrix m, lf_rows_result r, int column) {
  bool wide = (flags & LF_ROWS_WIDE) != 0, deep = (flags & LF_ROWS_DEEP) != 0;
  if (flags & LF_ROWS_BF16) {
    lf_rows_input<lf_as_bf16> in = {(LF_GLOBAL const ushort*)x, rows, k, count, wide};
    lf_rows_gemm<P, TB>(t, part, in, m, r, column, deep);
  } else {
    lf_rows_input<lf_as_f32> in = {x, rows, k, count, wide};
    lf_rows_gemm<P, TB>(t, part, in, m, r, column, deep);
  }
}

#define LF_ROWS_POINTERS(W)                                                                                                     \
  ((float, out), (const float, x), (const int, index), (const int, order), (const float, scale), (const float, bias),           \
   (const float, addend), LF_MATRIX_POINTERS(W), (long, trap))
#define LF_ROWS_NUMBERS                                                                                                         \
  ((int, n), (int, k), (int, width), (int, matrices), (int, first), (int, tables), (int, across), (int, flags), (long, step),   \
   LF_MATRIX_SIZES, (int, launch))

// The body of a kernel with these parameters, and part, rows and votes in shared memory.
#define LF_ROWS_GEMM(P, TB)                                                                                                     \
  lf_rows_tile tile = lf_find_rows(t, rows, votes, index, LF_HAS(order), order, (int)t.group.x / across, 8 * P::tiles, n,       \
                                   matrices, first, tables);                                                                    \
  if (!LF_HAS(order) && t.group.x == (uint)(tables * across) && first == 0) lf_check_rows(t, votes, index, n, matrices, trap, launch); \
  if (tile.count <= 0) return;                                                                                                  \
  lf_rows_result r = {out, addend, bias, LF_HAS(addend), false, flags, width, 0, 1.0f};                                         \
  lf_matrix m = {w0, 0, 0, 0, false};                                                                                           \
  if (tile.group < matrices) {                                                                                                  \
    LF_GLOBAL const uchar* to = w0;                                                                                             \
    long size = size0;                                                                                                          \
    if (step) to += tile.group * step;                                                                                          \
    else LF_PICK_MATRIX(tile.group - first)                                                                                     \
    m = lf_matrix_of(to, size);                                                                                                 \
    r.gives = m.gives, r.has_bias = LF_HAS(bias);                                                                               \
    if (r.has_bias) r.bias = bias + (long)tile.group * width;                                                                   \
    if (LF_HAS(scale)) r.scale = scale[tile.group];                                                                             \
  }                                                                                                                             \
  lf_rows_gemm_of<P, TB>(t, part, rows, x, k, tile.count, flags, m, r, (int)t.group.x % across)

// A layer in the table of a launch of several, whose rows are of the same matrices of [gives, reads]. The matrices of
// all layers are behind the layers.
struct lf_layer {
  LF_GLOBAL float* out; // out to addend are those of LF_ROWS_POINTERS
  LF_GLOBAL const float* x;
  LF_GLOBAL const int *index, *order;
  LF_GLOBAL const float *scale, *bias, *addend;
  int k, width;
  int matrices, at;  // how many, and the word of the table where they begin
  int block, unused; // its first
  int spread, flags; // the number of blocks of a tile of rows, which share its columns
};
struct lf_layer_matrix {
  LF_GLOBAL const uchar* w;
  long size;
};

#define LF_LAYERS_POINTERS ((const lf_layer, table), (long, trap))
#define LF_LAYERS_NUMBERS ((int, n), (int, layers), (int, launch))

template <class P>
LF_DEVICE void lf_rows_layers(lf_thread t, LF_GROUP float* part, LF_GROUP int* rows, LF_GROUP uint* votes, LF_GLOBAL const lf_layer* table,
                              LF_GLOBAL long* trap, int n, int layers, int launch) {
  LF_GLOBAL const lf_layer* own = table;
  int block = (int)t.group.x;
  for (int i = 1; i < layers && block >= table[i].block; i++) own++;
  block -= own->block;
  LF_GLOBAL const int *index = own->index, *order = own->order;
  LF_GLOBAL const float *scale = own->scale, *bias = own->bias, *addend = own->addend;
  int k = own->k, width = own->width, matrices = own->matrices, spread = own->spread, flags = own->flags;
  int cols = flags & LF_ROWS_DEEP ? LF_ROWS_COLS : LF_ROWS_COLS * LF_ROWS_WARPS, across = (width + cols - 1) / cols;
  lf_rows_tile tile = lf_find_rows(t, rows, votes, index, order != 0, order, block / spread, 8 * P::tiles, n, matrices, 0, matrices);
  if (order == 0 && block == matrices * spread) lf_check_rows(t, votes, index, n, matrices, trap, launch);
  if (tile.count <= 0) return;
  lf_rows_result r = {own->out, addend, bias, addend != 0, false, flags, width, 0, 1.0f};
  lf_matrix m = {0, 0, 0, 0, false};
  if (tile.group < matrices) {
    LF_GLOBAL const lf_layer_matrix* w = (LF_GLOBAL const lf_layer_matrix*)((LF_GLOBAL const long*)table + own->at) + tile.group;
    m = lf_matrix_of(w->w, w->size);
    r.gives = m.gives, r.has_bias = bias != 0;
    if (r.has_bias) r.bias = bias + (long)tile.group * width;
    if (scale != 0) r.scale = scale[tile.group];
  }
#pragma unroll 1
  for (int column = block % spread; column < across; column += spread) {
    lf_rows_gemm_of<P, true>(t, part, rows, own->x, k, tile.count, flags, m, r, column);
    lf_barrier(); // part has been read
  }
}

// The gradient of a matrix: out = scale · Σ_i p[i, :]ᵀ q[i, :] over the rows of its group. A tile has 16
// columns of p by 8 · NT of q, of which lane 4g + t has 2NT consecutive ones: n = NT (2t + u) + i.
struct lf_rows_factors {
  LF_GLOBAL const float* p; // or bfloat16, as q
  LF_GLOBAL const float* q;
  int across_p, across_q; // columns in memory
  int m, n;               // columns of the matrix
  bool wide;              // rows of q are aligned to 16 bytes
  int flags;

  // An element of p, and four of q, of which those from left on are zero.
  LF_DEVICE float one(int row, int column) const {
    long at = (long)row * across_p + column;
    return flags & LF_GRAD_P ? lf_as_bf16::get(((LF_GLOBAL const ushort*)p)[at]) : p[at];
  }
  LF_DEVICE lf_four four(int row, int column, int left, bool whole) const {
    long at = (long)row * across_q + column;
    return flags & LF_GRAD_Q ? lf_row4<lf_as_bf16>((LF_GLOBAL const ushort*)q + at, left, whole) : lf_row4<lf_as_f32>(q + at, left, whole);
  }
};

struct lf_rows_grad {
  LF_GLOBAL float* out;
  bool turned; // out is [n, m]
  float scale;
};

template <class P, class L>
LF_DEVICE void lf_rows_add_up(lf_thread t, LF_GROUP float* part, lf_rows_factors f, lf_rows_grad r, L list, int count, int m0, int n0) {
  enum { NT = P::grad_tiles, pad = 8 * NT + 4, size = LF_ROWS_COLS * pad };
  lf_row_sums<NT> sums;
  sums.clear();
  P::add_rows(t, sums, f, list, count, m0, n0, (int)t.warp, (count + LF_ROWS_K - 1) / LF_ROWS_K, LF_ROWS_WARPS);
  int g = (int)t.lane / 4, q = (int)t.lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < NT; i++)
#pragma unroll
    for (int e = 0; e < 4; e++) part[t.warp * size + (g + 8 * (e >> 1)) * pad + NT * (q + (e & 1)) + i] = sums.d[i][e];
  lf_barrier();
  for (int e = (int)t.index; e < LF_ROWS_COLS * 8 * NT; e += LF_ROWS_THREADS) {
    int a = r.turned ? e % LF_ROWS_COLS : e / (8 * NT), b = r.turned ? e / LF_ROWS_COLS : e % (8 * NT);
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < LF_ROWS_WARPS; w++) sum += part[w * size + a * pad + b];
    a += m0, b += n0;
    if (a < f.m && b < f.n) r.out[r.turned ? (long)b * f.m + a : (long)a * f.n + b] = r.scale * sum;
  }
}

#define LF_ROWS_GRAD_POINTERS                                                                                                   \
  ((const float, p), (const float, q), (const int, index), (const int, order), (const float, scale), LF_MATRIX_POINTERS(float))
#define LF_ROWS_GRAD_NUMBERS                                                                                                    \
  ((int, n), (int, across_p), (int, across_q), (int, matrices), (int, first), (int, tables), (int, tiles_n), (int, turned),     \
   (int, flags), (long, step), LF_MATRIX_SIZES)

// The body of a kernel with these parameters, and part, rows and votes in shared memory. The matrix is
// reads by gives: [m, n], or [n, m] if it is turned.
#define LF_ROWS_GRAD(P)                                                                                                         \
  int at = (int)t.group.y, group = first + at, m0 = (int)t.group.x / tiles_n * LF_ROWS_COLS, n0 = (int)t.group.x % tiles_n * 8 * P::grad_tiles; \
  LF_GLOBAL float* to = w0;                                                                                                     \
  long size = size0;                                                                                                            \
  if (step) to += group * step;                                                                                                 \
  else LF_PICK_MATRIX(at)                                                                                                       \
  int high = (int)(size & 0x3fffffff), low = (int)(size >> 30 & 0x3fffffff);                                                    \
  lf_rows_factors f = {p, q, across_p, across_q, turned ? low : high, turned ? high : low, (flags & LF_GRAD_WIDE) != 0, flags}; \
  if (m0 >= f.m || n0 >= f.n) return;                                                                                           \
  lf_rows_grad r = {to, turned != 0, LF_HAS(scale) ? scale[group] : 1.0f};                                                      \
  if (LF_HAS(order)) {                                                                                                          \
    int begin = order[group];                                                                                                   \
    lf_rows_add_up<P>(t, part, f, r, order + matrices + 2 + begin, order[group + 1] - begin, m0, n0);                           \
    return;                                                                                                                     \
  }                                                                                                                             \
  int count = lf_scan_rows(t, rows, votes, index, n, matrices, group, 0, LF_ROWS_SCAN);                                         \
  lf_rows_add_up<P>(t, part, f, r, (LF_GROUP const int*)rows, count, m0, n0)
