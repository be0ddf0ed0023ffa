// Rows written over a table by their numbers, of one table or of two that share
// the numbers (keys and values of a cache).
//
//   out[index[i], :] = x[i, :], in the order of i
//
// A row with a negative index is not written, and of several rows with one index
// the last is. An index that the table has no row for is reported, the first of
// them; its row is not written.
//
// Layout: x [n, width], out [rows, width], in words of 2, 4 or 16 bytes; index [n].
// Grid: a block of 256 threads for each row (x) and table (y).
// Traffic: the rows once in and once out; a block also reads the index from its
//   own number on, from cache. Registers: 32, or 40 for words of 16 bytes, on sm_90a.
// Reference: for i { if index[i] >= 0 { for j { out[index[i], j] = x[i, j] } } }
#include "element.h"
#include "report.cuh"

#define LF_SCATTER_ROWS(name, T)                                                                                     \
  extern "C" __global__ void __launch_bounds__(LF_THREADS)                                                           \
      name(T* out0, const T* x0, T* out1, const T* x1, const int* index, long long width, int n, int rows,           \
           long long* trap, int launch) {                                                                            \
    int i = blockIdx.x, at = index[i], other = 0;                                                                    \
    if (at < 0) return;                                                                                              \
    if (at < rows) {                                                                                                 \
      for (int j = i + 1 + threadIdx.x; j < n; j += LF_THREADS) other |= index[j] == at;                             \
    } else {                                                                                                         \
      for (int j = threadIdx.x; j < i; j += LF_THREADS) other |= index[j] >= rows;                                   \
    }                                                                                                                \
    if (__syncthreads_or(other)) return;                                                                             \
    if (at >= rows) {                                                                                                \
      if (blockIdx.y == 0 && threadIdx.x == 0) lf_report(trap, launch, i, at);                                       \
      return;                                                                                                        \
    }                                                                                                                \
    T* to = (blockIdx.y ? out1 : out0) + at * width;                                                                 \
    const T* from = (blockIdx.y ? x1 : x0) + i * width;                                                              \
    for (long long j = threadIdx.x; j < width; j += LF_THREADS) to[j] = from[j];                                     \
  }                                                                                                                  \
  LF_KERNEL(name);
LF_SCATTER_ROWS(scatter_rows_b2, unsigned short)
LF_SCATTER_ROWS(scatter_rows_b4, unsigned)
LF_SCATTER_ROWS(scatter_rows_b16, uint4)

#ifdef LF_RACE
#include "../sim/test/race.h"
LF_RACE_CASE(scatter_rows) {
  auto x = lf_race_noise<unsigned>(5 * 300), out = lf_race_noise<unsigned>(8 * 300);
  int index[] = {1, 3, -1, 1, 9};
  long long trap[3] = {};
  lf_race_launch(scatter_rows_b4, {5, 2}, {256}, 0, out.data(), x.data(), out.data() + 4 * 300, x.data(), index, 300LL, 5, 4, trap, 0);
}
#endif
