// Rows of tables by their numbers.
//
//   gather:      out[i, :] = table[ids[i], :], as f32 or bf16
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
#include "report.h"

LF_ENTRY_SHARED(256, check_ids, ((int, first, 256)), ((const int, ids), (long, trap)), ((int, n), (int, rows), (int, launch))) {
  int bad = n;
  for (int i = (int)t.index; i < n && bad == n; i += 256)
    if (ids[i] < 0 || ids[i] >= rows) bad = i;
  first[t.index] = bad;
  for (uint m = 128; m; m >>= 1) {
    lf_barrier();
    if (t.index < m && first[t.index + m] < first[t.index]) first[t.index] = first[t.index + m];
  }
  if (t.index == 0 && first[0] < n) lf_report(trap, launch, first[0], ids[first[0]]);
}

#define LF_GATHER(from, to)                                                                                        \
  LF_ENTRY(LF_THREADS, gather_rows_##from##_##to, ((lf_as_##to::raw, out), (const lf_as_##from::raw, table), (const int, ids)), \
           ((int, rows), (int, cols))) {                                                                           \
    long i = t.group.x;                                                                                            \
    int id = ids[i], end = min(cols, (int)(t.group.y + 1) * LF_BLOCK);                                             \
    for (int j = (int)(t.group.y * LF_BLOCK + t.index); j < end; j += LF_THREADS)                                  \
      out[i * cols + j] = lf_as_##to::put(id >= 0 && id < rows ? lf_as_##from::get(table[(long)id * cols + j]) : 0.0f); \
  }
LF_GATHER(f32, f32)
LF_GATHER(bf16, f32)
LF_GATHER(f16, f32)
LF_GATHER(f64, f32)
LF_GATHER(f8_e5m2, f32)
LF_GATHER(f8_e4m3, f32)
LF_GATHER(f32, bf16)
LF_GATHER(bf16, bf16)
LF_GATHER(f16, bf16)
LF_GATHER(f64, bf16)
LF_GATHER(f8_e5m2, bf16)
LF_GATHER(f8_e4m3, bf16)

LF_ENTRY_SHARED(LF_THREADS, scatter_add_rows_f32, ((int, hit, LF_THREADS)), ((float, out), (const float, x), (const int, ids)),
                ((int, n), (int, rows), (int, cols))) {
  int i = (int)t.group.x, me = (int)t.index, id = ids[i];
  if (id < 0 || id >= rows) return; // the same for all threads
  // An i that is not the first of its id leaves the work to the one that is.
  int earlier = 0;
  for (int j = me; j < i; j += LF_THREADS) earlier |= ids[j] == id;
  hit[me] = earlier;
  for (int m = LF_THREADS / 2; m; m >>= 1) {
    lf_barrier();
    if (me < m) hit[me] |= hit[me + m];
  }
  lf_barrier();
  if (hit[0]) return;
  int first = (int)(t.group.y * LF_BLOCK) + me, end = min(cols, (int)(t.group.y + 1) * LF_BLOCK);
  LF_GLOBAL float* to = out + (long)id * cols;
  for (int from = i; from < n; from += LF_THREADS) {
    lf_barrier();
    hit[me] = from + me < n && ids[from + me] == id;
    lf_barrier();
    for (int k = 0; k < LF_THREADS; k++) {
      if (!hit[k]) continue;
      LF_GLOBAL const float* row = x + (long)(from + k) * cols;
      for (int j = first; j < end; j += LF_THREADS) to[j] += row[j];
    }
  }
}

// Rows of width words; if they do not all fit, nothing is written.
#define LF_UPDATE(name, T, X, convert)                                                                             \
  LF_ENTRY(LF_THREADS, name, ((T, out), (const X, x), (const int, offset), (long, trap)),                          \
           ((long, width), (int, n), (int, rows), (int, launch))) {                                                \
    int off = offset[0];                                                                                           \
    if (off >= 0 && off <= rows - n) {                                                                             \
      LF_EACH(i, width * n) out[off * width + i] = convert(x[i]);                                                  \
    } else if (t.group.x == 0 && t.index == 0) {                                                                   \
      lf_report(trap, launch, 0, off);                                                                             \
    }                                                                                                              \
  }
LF_UPDATE(update_rows_b1, uchar, uchar, )
LF_UPDATE(update_rows_b2, ushort, ushort, )
LF_UPDATE(update_rows_b4, uint, uint, )
LF_UPDATE(update_rows_b8, ulong, ulong, )
LF_UPDATE(update_rows_f32_bf16, ushort, float, lf_as_bf16::put)
LF_UPDATE(update_rows_bf16_f32, float, ushort, lf_as_bf16::get)

#ifdef LF_RACE
LF_RACE_CASE(rows) {
  auto x = lf_race_noise<float>(5 * 70), out = lf_race_noise<float>(4 * 70);
  int ids[] = {1, 3, 1, 7, 1};
  long trap[3] = {};
  lf_race_launch(check_ids, {1}, {256}, 0, ids, trap, 5, 4, 0);
  auto ushorts = (const ushort*)x.data();
  auto bytes = (const uchar*)x.data();
  auto narrow = (ushort*)out.data();
  lf_race_launch(gather_rows_f16_f32, {2, 1}, {256}, 0, out.data(), ushorts, ids, 3, 70);
  lf_race_launch(gather_rows_f16_bf16, {2, 1}, {256}, 0, narrow, ushorts, ids, 3, 70);
  lf_race_launch(gather_rows_f64_f32, {2, 1}, {256}, 0, out.data(), (const ulong*)x.data(), ids, 2, 70);
  lf_race_launch(gather_rows_f64_bf16, {2, 1}, {256}, 0, narrow, (const ulong*)x.data(), ids, 2, 70);
  lf_race_launch(gather_rows_f8_e4m3_f32, {2, 1}, {256}, 0, out.data(), bytes, ids, 4, 70);
  lf_race_launch(gather_rows_f8_e4m3_bf16, {2, 1}, {256}, 0, narrow, bytes, ids, 4, 70);
  lf_race_launch(gather_rows_f8_e5m2_f32, {2, 1}, {256}, 0, out.data(), bytes, ids, 4, 70);
  lf_race_launch(gather_rows_f8_e5m2_bf16, {2, 1}, {256}, 0, narrow, bytes, ids, 4, 70);
  lf_race_launch(scatter_add_rows_f32, {5, 1}, {256}, 0, out.data(), x.data(), ids, 5, 4, 70);
}
#endif
