// Elements in another order: out[i·t] = x[i·s] over a shape [*, d1, d2, d3] with
// strides t and s. Reshape, transpose, broadcast, slice and concat are all this;
// elements are words of 1, 2, 4, 8 or 16 bytes, as wide as the host finds that
// neighbours stay neighbours. copy_f32_bf16 and copy_bf16_f32 convert too.
//
// Grid: a block of 256 threads for 1024 words; of the transposition, one block
//   for a tile of 32 by 32 elements of one matrix of the batch.
// Traffic: operand and output once; bound by memory. The transposition turns
//   tiles around in shared memory, so that both sides are read in their order.
// Reference: for i { out[place_t(i)] = x[place_s(i)] }
#include "element.h"

#define LF_COPY(name, T, X, convert)                                                                           \
  LF_ENTRY(LF_THREADS, name, ((T, out), (const X, x)),                                                         \
           ((long, n), (int, d1), (int, d2), (int, d3), LF_STRIDES(t), LF_STRIDES(s))) {                       \
    LF_EACH(i, n) {                                                                                            \
      lf_place p = lf_split(i, d1, d2, d3);                                                                    \
      out[LF_AT(p, t)] = convert(x[LF_AT(p, s)]);                                                              \
    }                                                                                                          \
  }
LF_COPY(copy_b1, uchar, uchar, )
LF_COPY(copy_b2, ushort, ushort, )
LF_COPY(copy_b4, uint, uint, )
LF_COPY(copy_b8, ulong, ulong, )
LF_COPY(copy_b16, uint4, uint4, )
LF_COPY(copy_f32_bf16, ushort, float, lf_as_bf16::put)
LF_COPY(copy_bf16_f32, float, ushort, lf_as_bf16::get)

// out[b, j, i] = x[b, i, j] for matrices of rows by cols. The rows of the tile are one
// element longer, so that columns are in different banks.
#define LF_TILE 32
#define LF_TRANSPOSE(name, T)                                                                                  \
  LF_ENTRY_SHARED(LF_THREADS, name, ((T, tile, LF_TILE * (LF_TILE + 1))), ((T, out), (const T, x)),            \
                  ((int, rows), (int, cols), (int, batch))) {                                                  \
    int across = (cols + LF_TILE - 1) / LF_TILE, group = (int)t.group.x;                                       \
    int i0 = group / across * LF_TILE, j0 = group % across * LF_TILE;                                          \
    int tx = (int)t.index % LF_TILE, ty = (int)t.index / LF_TILE;                                              \
    for (int b = (int)t.group.y; b < batch; b += (int)t.groups.y) {                                            \
      LF_GLOBAL const T* from = x + (long)b * rows * cols;                                                     \
      LF_GLOBAL T* to = out + (long)b * rows * cols;                                                           \
      for (int r = ty; r < LF_TILE; r += LF_THREADS / LF_TILE)                                                 \
        if (i0 + r < rows && j0 + tx < cols) tile[r * (LF_TILE + 1) + tx] = from[(long)(i0 + r) * cols + j0 + tx]; \
      lf_barrier();                                                                                            \
      for (int r = ty; r < LF_TILE; r += LF_THREADS / LF_TILE)                                                 \
        if (j0 + r < cols && i0 + tx < rows) to[(long)(j0 + r) * rows + i0 + tx] = tile[tx * (LF_TILE + 1) + r]; \
      lf_barrier();                                                                                            \
    }                                                                                                          \
  }
LF_TRANSPOSE(transpose_b1, uchar)
LF_TRANSPOSE(transpose_b2, ushort)
LF_TRANSPOSE(transpose_b4, uint)
LF_TRANSPOSE(transpose_b8, ulong)

#ifdef LF_RACE
LF_RACE_CASE(transpose) {
  auto x = lf_race_noise<unsigned>(2 * 35 * 40), out = x;
  lf_race_launch(transpose_b4, {4, 1}, {256}, 0, out.data(), x.data(), 35, 40, 2);
}
#endif
