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
// Grid: a threadgroup of 256 threads for each row (x) and table (y).
// Traffic: the rows once in and once out; a threadgroup also reads the index from
//   its own number on, from cache.
// Reference: for i { if index[i] >= 0 { for j { out[index[i], j] = x[i, j] } } }
#include "element.h"
#include "report.h"

struct scatter_rows_args {
  LF_ARGS;
  long width;
  int n, rows, launch;
};
#define LF_SCATTER_ROWS(name, T)                                                                                       \
  LF_KERNEL(LF_THREADS) name(device T* out0 [[buffer(0)]], device const T* x0 [[buffer(1)]],                           \
                             device T* out1 [[buffer(2)]], device const T* x1 [[buffer(3)]],                           \
                             device const int* index [[buffer(4)]], device long* trap [[buffer(5)]],                   \
                             constant scatter_rows_args& a [[buffer(6)]], LF_THREAD) {                                 \
    LF_BEGIN;                                                                                                          \
    threadgroup int hit[LF_THREADS];                                                                                   \
    const int i = (int)t.group.x, me = (int)t.index, at = index[i];                                                    \
    const bool fits = at < a.rows;                                                                                     \
    int other = at < 0;                                                                                                \
    for (int j = fits ? i + 1 + me : a.n; j < a.n; j += LF_THREADS) other |= index[j] == at;                           \
    for (int j = fits ? i : me; j < i; j += LF_THREADS) other |= index[j] >= a.rows;                                   \
    hit[me] = other;                                                                                                   \
    for (int m = LF_THREADS / 2; m; m >>= 1) {                                                                         \
      lf_barrier();                                                                                                    \
      if (me < m) hit[me] |= hit[me + m];                                                                              \
    }                                                                                                                  \
    lf_barrier();                                                                                                      \
    if (hit[0]) return; /* all threads alike */                                                                        \
    if (!fits) {                                                                                                       \
      if (t.group.y == 0 && me == 0) lf_report(trap, a.launch, i, at);                                                 \
      return;                                                                                                          \
    }                                                                                                                  \
    device T* to = (t.group.y ? out1 : out0) + at * a.width;                                                           \
    device const T* from = (t.group.y ? x1 : x0) + i * a.width;                                                        \
    for (long j = me; j < a.width; j += LF_THREADS) to[j] = from[j];                                                   \
  }
LF_SCATTER_ROWS(scatter_rows_b2, ushort)
LF_SCATTER_ROWS(scatter_rows_b4, uint)
LF_SCATTER_ROWS(scatter_rows_b16, uint4)
