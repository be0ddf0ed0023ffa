// Rows written over a table by their numbers, of one table or of two that share
// the numbers (keys and values of a cache).
//
//   out[index[i], :] = x[i, :], in the order of i
//
// Layout: x [n, width], out [rows, width], in words of 2, 4 or 16 bytes, or one of them
//   f32 and the other bf16; index [n].
// Grid: a block of 256 threads for each row (x) and table (y).
// Traffic: the rows once in and once out; a block also reads the index from its
//   own number on, from cache.
// Reference: for i { if index[i] >= 0 { for j { out[index[i], j] = x[i, j] } } }
#include "scatter.h"

#define LF_SCATTER_ROWS(name, T, X, convert)                                                                           \
  LF_ENTRY_SHARED(LF_THREADS, name, ((int, hit, LF_THREADS)),                                                          \
                  ((T, out0), (const X, x0), (T, out1), (const X, x1), (const int, index), (long, trap)),              \
                  ((long, width), (int, n), (int, rows), (int, launch))) {                                             \
    lf_target target = lf_scatter(t, hit, index, n, rows, 0, trap, launch);                                            \
    LF_GLOBAL T* to = (t.group.y ? out1 : out0) + target.at * width;                                                   \
    LF_GLOBAL const X* from = (t.group.y ? x1 : x0) + t.group.x * width;                                               \
    for (long j = target.write ? (long)t.index : width; j < width; j += LF_THREADS) to[j] = convert(from[j]);          \
  }
LF_SCATTER_ROWS(scatter_rows_b2, ushort, ushort, )
LF_SCATTER_ROWS(scatter_rows_b4, uint, uint, )
LF_SCATTER_ROWS(scatter_rows_b16, uint4, uint4, )
LF_SCATTER_ROWS(scatter_rows_f32_bf16, lf_as_bf16::raw, float, lf_as_bf16::put)
LF_SCATTER_ROWS(scatter_rows_bf16_f32, float, lf_as_bf16::raw, lf_as_bf16::get)

#ifdef LF_RACE
LF_RACE_CASE(scatter_rows) {
  auto x = lf_race_noise<unsigned>(4 * 300), out = lf_race_noise<unsigned>(8 * 300);
  int index[] = {1, -1, 1, 9};
  long trap[3] = {};
  lf_race_launch(scatter_rows_b4, {4, 2}, {256}, 0, out.data(), x.data(), out.data() + 4 * 300, x.data(), index, trap, 300L, 4, 4, 0);
  auto narrow = lf_race_noise<ushort>(4 * 300);
  lf_race_launch(scatter_rows_bf16_f32, {4, 2}, {256}, 0, (float*)out.data(), narrow.data(), (float*)out.data() + 4 * 300, narrow.data(), index,
                 trap, 300L, 4, 4, 0);
}
#endif
