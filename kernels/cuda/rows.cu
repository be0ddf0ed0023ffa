// Rows of tables by their numbers.
//
//   gather:      out[i, :] = table[ids[i], :], as f32
//   scatter add: out[ids[i], :] += x[i, :], in the order of i, from zeros on
//   update:      out[off + i, :] = x[i, :]
//
// Numbers that the table has no row for are found by check_ids, which runs first
// and reports the first of them; the others read and write nothing for these.
//
// Grid: gather and scatter, a block for each i and 1024 columns; the check, one
//   block. A block of scatter does something for the first i of each id only, and
//   then for all of that id: no two blocks write the same row, and each sum has
//   one order.
// Traffic: the rows once; scatter reads all ids once for each i (from cache: for
//   n tokens 4n² bytes, 16 MB for 2048) and its output rows as often as they occur.
// Reference: for i { for j { out[i, j] = table[ids[i], j] } }
//            for i { for j { out[ids[i], j] += x[i, j] } }
#include "element.h"
#include "report.cuh"

extern "C" __global__ void __launch_bounds__(256) check_ids(const int* ids, int n, int rows, long long* trap, int launch) {
  LF_SHARED(int, first, [256]);
  int t = threadIdx.x, bad = n;
  for (int i = t; i < n; i += 256)
    if (ids[i] < 0 || ids[i] >= rows) {
      bad = i;
      break;
    }
  first[t] = bad;
  for (int m = 128; m; m >>= 1) {
    __syncthreads();
    if (t < m && first[t + m] < first[t]) first[t] = first[t + m];
  }
  if (t == 0 && first[0] < n) lf_report(trap, launch, first[0], ids[first[0]]);
}
LF_KERNEL(check_ids);

#define LF_GATHER(name)                                                                                            \
  extern "C" __global__ void __launch_bounds__(LF_THREADS)                                                         \
      gather_rows_##name(float* out, const lf_as_##name::raw* table, const int* ids, int rows, int cols) {         \
    long long i = blockIdx.x;                                                                                      \
    int id = ids[i], end = min(cols, (int)(blockIdx.y + 1) * LF_BLOCK);                                            \
    for (int j = blockIdx.y * LF_BLOCK + threadIdx.x; j < end; j += LF_THREADS)                                    \
      out[i * cols + j] = id >= 0 && id < rows ? lf_as_##name::get(table[(long long)id * cols + j]) : 0.0f;        \
  }                                                                                                                \
  LF_KERNEL(gather_rows_##name);
LF_GATHER(f32)
LF_GATHER(bf16)
LF_GATHER(f16)
LF_GATHER(f64)
LF_GATHER(f8_e5m2)
LF_GATHER(f8_e4m3)

extern "C" __global__ void __launch_bounds__(LF_THREADS)
    scatter_add_rows_f32(float* out, const float* x, const int* ids, int n, int rows, int cols) {
  LF_SHARED(int, hit, [LF_THREADS]);
  int i = blockIdx.x, t = threadIdx.x, id = ids[i];
  if (id < 0 || id >= rows) return;
  // An i that is not the first of its id leaves the work to the one that is.
  int earlier = 0;
  for (int j = t; j < i; j += LF_THREADS) earlier |= ids[j] == id;
  hit[t] = earlier;
  for (int m = LF_THREADS / 2; m; m >>= 1) {
    __syncthreads();
    if (t < m) hit[t] |= hit[t + m];
  }
  __syncthreads();
  if (hit[0]) return;
  int first = blockIdx.y * LF_BLOCK + t, end = min(cols, (int)(blockIdx.y + 1) * LF_BLOCK);
  float* to = out + (long long)id * cols;
  for (int from = i; from < n; from += LF_THREADS) {
    __syncthreads();
    hit[t] = from + t < n && ids[from + t] == id;
    __syncthreads();
    for (int k = 0; k < LF_THREADS; k++) {
      if (!hit[k]) continue;
      const float* row = x + (long long)(from + k) * cols;
      for (int j = first; j < end; j += LF_THREADS) to[j] += row[j];
    }
  }
}
LF_KERNEL(scatter_add_rows_f32);

// Rows of width words; if they do not all fit, nothing is written.
#define LF_UPDATE(name, T)                                                                                           \
  extern "C" __global__ void __launch_bounds__(LF_THREADS)                                                           \
      name(T* out, const T* x, const int* offset, long long width, int n, int rows, long long* trap, int launch) {   \
    int off = offset[0];                                                                                             \
    if (off < 0 || off > rows - n) {                                                                                 \
      if (blockIdx.x == 0 && threadIdx.x == 0) lf_report(trap, launch, 0, off);                                      \
      return;                                                                                                        \
    }                                                                                                                \
    const lf_thread t = lf_here();                                                                                   \
    LF_EACH(i, width * n) out[off * width + i] = x[i];                                                               \
  }                                                                                                                  \
  LF_KERNEL(name);
LF_UPDATE(update_rows_b1, unsigned char)
LF_UPDATE(update_rows_b2, unsigned short)
LF_UPDATE(update_rows_b4, unsigned)
LF_UPDATE(update_rows_b8, unsigned long long)

#ifdef LF_RACE
#include "../sim/test/race.h"
LF_RACE_CASE(rows) {
  auto x = lf_race_noise<float>(5 * 70), out = lf_race_noise<float>(4 * 70);
  int ids[] = {1, 3, 1, 7, 1};
  long long trap[3] = {};
  lf_race_launch(check_ids, {1}, {256}, 0, ids, 5, 4, trap, 0);
  lf_race_launch(scatter_add_rows_f32, {5, 1}, {256}, 0, out.data(), x.data(), ids, 5, 4, 70);
}
#endif
