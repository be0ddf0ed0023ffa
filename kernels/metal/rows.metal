// Rows of tables by their numbers.
//
//   gather:      out[i, :] = table[ids[i], :], as f32
//   scatter add: out[ids[i], :] += x[i, :], in the order of i, from zeros on
//   update:      out[off + i, :] = x[i, :]
//
// Numbers that the table has no row for are found by check_ids, which runs first
// and reports the first of them; the others read and write nothing for these.
//
// Grid: gather and scatter, a threadgroup for each i and 1024 columns; the check,
//   one threadgroup. A threadgroup of scatter does something for the first i of each
//   id only, and then for all of that id: no two of them write the same row, and each
//   sum has one order.
// Traffic: the rows once; scatter reads all ids once for each i (from cache: for
//   n tokens 4n² bytes, 16 MB for 2048) and its output rows as often as they occur.
// Reference: for i { for j { out[i, j] = table[ids[i], j] } }
//            for i { for j { out[ids[i], j] += x[i, j] } }
#include "element.h"
#include "report.h"

struct check_ids_args {
  LF_ARGS;
  int n, rows, launch;
};
LF_KERNEL(256) check_ids(device const int* ids [[buffer(0)]], device long* trap [[buffer(1)]],
                         constant check_ids_args& a [[buffer(2)]], LF_THREAD) {
  LF_BEGIN;
  threadgroup int first[256];
  int bad = a.n;
  for (int i = (int)t.index; i < a.n && bad == a.n; i += 256)
    if (ids[i] < 0 || ids[i] >= a.rows) bad = i;
  first[t.index] = bad;
  for (uint m = 128; m; m >>= 1) {
    lf_barrier();
    if (t.index < m && first[t.index + m] < first[t.index]) first[t.index] = first[t.index + m];
  }
  if (t.index == 0 && first[0] < a.n) lf_report(trap, a.launch, first[0], ids[first[0]]);
}

struct gather_rows_args {
  LF_ARGS;
  int rows, cols;
};
#define LF_GATHER(name)                                                                                            \
  LF_KERNEL(LF_THREADS) gather_rows_##name(device float* out [[buffer(0)]],                                        \
                                           device const lf_as_##name::raw* table [[buffer(1)]],                    \
                                           device const int* ids [[buffer(2)]],                                    \
                                           constant gather_rows_args& a [[buffer(3)]], LF_THREAD) {                \
    LF_BEGIN;                                                                                                      \
    long i = t.group.x;                                                                                            \
    int id = ids[i], end = min(a.cols, (int)(t.group.y + 1) * LF_BLOCK);                                           \
    for (int j = (int)(t.group.y * LF_BLOCK + t.index); j < end; j += LF_THREADS)                                  \
      out[i * a.cols + j] = id >= 0 && id < a.rows ? lf_as_##name::get(table[(long)id * a.cols + j]) : 0.0f;       \
  }
LF_GATHER(f32)
LF_GATHER(bf16)
LF_GATHER(f16)
LF_GATHER(f64)
LF_GATHER(f8_e5m2)
LF_GATHER(f8_e4m3)

struct scatter_add_rows_args {
  LF_ARGS;
  int n, rows, cols;
};
LF_KERNEL(LF_THREADS) scatter_add_rows_f32(device float* out [[buffer(0)]], device const float* x [[buffer(1)]],
                                           device const int* ids [[buffer(2)]],
                                           constant scatter_add_rows_args& a [[buffer(3)]], LF_THREAD) {
  LF_BEGIN;
  threadgroup int hit[LF_THREADS];
  int i = (int)t.group.x, me = (int)t.index, id = ids[i];
  // An i that is not the first of its id leaves the work to the one that is, and
  // there is none where the table has no such row.
  int none = id < 0 || id >= a.rows;
  for (int j = me; j < i; j += LF_THREADS) none |= ids[j] == id;
  hit[me] = none;
  for (int m = LF_THREADS / 2; m; m >>= 1) {
    lf_barrier();
    if (me < m) hit[me] |= hit[me + m];
  }
  lf_barrier();
  int n = hit[0] ? 0 : a.n; // the same for all threads
  int first = (int)(t.group.y * LF_BLOCK) + me, end = min(a.cols, (int)(t.group.y + 1) * LF_BLOCK);
  for (int from = i; from < n; from += LF_THREADS) {
    lf_barrier();
    hit[me] = from + me < n && ids[from + me] == id;
    lf_barrier();
    for (int k = 0; k < LF_THREADS; k++) {
      if (!hit[k]) continue;
      device const float* row = x + (long)(from + k) * a.cols;
      device float* to = out + (long)id * a.cols;
      for (int j = first; j < end; j += LF_THREADS) to[j] += row[j];
    }
  }
}

// Rows of width words; if they do not all fit, nothing is written.
struct update_rows_args {
  LF_ARGS;
  long width;
  int n, rows, launch;
};
#define LF_UPDATE(name, T)                                                                                    \
  LF_KERNEL(LF_THREADS) name(device T* out [[buffer(0)]], device const T* x [[buffer(1)]],                    \
                             device const int* offset [[buffer(2)]], device long* trap [[buffer(3)]],         \
                             constant update_rows_args& a [[buffer(4)]], LF_THREAD) {                         \
    LF_BEGIN;                                                                                                 \
    int off = offset[0];                                                                                      \
    if (off >= 0 && off <= a.rows - a.n) {                                                                    \
      LF_EACH(i, a.width * a.n) out[off * a.width + i] = x[i];                                                \
    } else if (t.group.x == 0 && t.index == 0) {                                                              \
      lf_report(trap, a.launch, 0, off);                                                                      \
    }                                                                                                         \
  }
LF_UPDATE(update_rows_b1, uchar)
LF_UPDATE(update_rows_b2, ushort)
LF_UPDATE(update_rows_b4, uint)
LF_UPDATE(update_rows_b8, ulong)
