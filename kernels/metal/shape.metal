// Elements in another order: out[i·t] = x[i·s] over a shape [*, d1, d2, d3] with
// strides t and s. Reshape, transpose, broadcast, slice and concat are all this;
// elements are words of 1, 2, 4, 8 or 16 bytes, as wide as the host finds that
// neighbours stay neighbours.
//
// Grid: a threadgroup of 256 threads for 1024 words; of the transposition, one
//   threadgroup for a tile of 32 by 32 elements of one matrix of the batch.
// Traffic: operand and output once; bound by memory. The transposition turns
//   tiles around in threadgroup memory, so that both sides are read in their order.
// Reference: for i { out[place_t(i)] = x[place_s(i)] }
#include "element.h"

struct copy_args {
  LF_ARGS;
  long n;
  int d1, d2, d3;
  LF_STRIDES(t);
  LF_STRIDES(s);
};
#define LF_COPY(name, T)                                                                      \
  LF_KERNEL(LF_THREADS) name(device T* out [[buffer(0)]], device const T* x [[buffer(1)]],    \
                             constant copy_args& a [[buffer(2)]], LF_THREAD) {                \
    LF_BEGIN;                                                                                 \
    LF_EACH(i, a.n) {                                                                         \
      lf_place p = lf_split(i, a.d1, a.d2, a.d3);                                             \
      out[LF_AT(p, a, t)] = x[LF_AT(p, a, s)];                                                \
    }                                                                                         \
  }
LF_COPY(copy_b1, uchar)
LF_COPY(copy_b2, ushort)
LF_COPY(copy_b4, uint)
LF_COPY(copy_b8, ulong)
LF_COPY(copy_b16, uint4)

// out[b, j, i] = x[b, i, j] for matrices of rows by cols. The tile has one
// extra column, so that columns are in different banks.
#define LF_TILE 32
struct transpose_args {
  LF_ARGS;
  int rows, cols, batch;
};
#define LF_TRANSPOSE(name, T)                                                                                   \
  LF_KERNEL(LF_THREADS) name(device T* out [[buffer(0)]], device const T* x [[buffer(1)]],                      \
                             constant transpose_args& a [[buffer(2)]], LF_THREAD) {                             \
    LF_BEGIN;                                                                                                   \
    threadgroup T tile[LF_TILE][LF_TILE + 1];                                                                   \
    int rows = a.rows, cols = a.cols;                                                                           \
    int across = (cols + LF_TILE - 1) / LF_TILE, group = (int)t.group.x;                                        \
    int i0 = group / across * LF_TILE, j0 = group % across * LF_TILE;                                           \
    int tx = (int)t.index % LF_TILE, ty = (int)t.index / LF_TILE;                                               \
    for (int b = (int)t.group.y; b < a.batch; b += (int)t.groups.y) {                                           \
      device const T* from = x + (long)b * rows * cols;                                                         \
      device T* to = out + (long)b * rows * cols;                                                               \
      for (int r = ty; r < LF_TILE; r += LF_THREADS / LF_TILE)                                                  \
        if (i0 + r < rows && j0 + tx < cols) tile[r][tx] = from[(long)(i0 + r) * cols + j0 + tx];               \
      lf_barrier();                                                                                             \
      for (int r = ty; r < LF_TILE; r += LF_THREADS / LF_TILE)                                                  \
        if (j0 + r < cols && i0 + tx < rows) to[(long)(j0 + r) * rows + i0 + tx] = tile[tx][r];                 \
      lf_barrier();                                                                                             \
    }                                                                                                           \
  }
LF_TRANSPOSE(transpose_b1, uchar)
LF_TRANSPOSE(transpose_b2, ushort)
LF_TRANSPOSE(transpose_b4, uint)
LF_TRANSPOSE(transpose_b8, ulong)
