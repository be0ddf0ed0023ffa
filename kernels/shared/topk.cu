// The k largest numbers of each row, largest first, and their indices. Of equal numbers the
// one of lower index comes first; a NaN counts as +Inf, and −0 as 0.
//
// Layout: x [rows, n], values and indices [rows, k] (indices i32); keys [rows, chunks, k'],
//   k' = min(k, 4096), are the numbers that chunks of a row select.
// Method: a key has the number in its upper word, so that integers compare as the numbers
//   do, and the inverted index in its lower one; all keys of a row differ. Round r selects the
//   largest key below that of round r − 1. A thread keeps the largest of its own numbers and
//   looks for the next one only when that has been selected.
// Grid: a warp for a row of up to 1024 numbers (topk_warp_f32, 8 rows a block); else a block
//   of 256 threads for a chunk of 4096 numbers (topk_row_f32), and a block for the
//   keys of a row if it has several chunks (topk_merge_f32).
// Traffic: 4 bytes a number, 8 bytes a selected number, and 16 for each key; bound by memory for small
//   k, and by the latency of a round (about 250 cycles) for large k.
// Registers: at most 26, 32 and 32.
// Reference: for i { for r < k { j = the first largest number of x[i] that is not yet selected;
//                                values[i, r] = x[i, j]; indices[i, r] = j } }
#include "device.h"

#define LF_TOPK_WARPS 8
#define LF_TOPK_CHUNK 4096

// The key of a number; that of none is 0.
LF_DEVICE ulong lf_top_key(float x, uint index) {
  uint b = lf_bits(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) b = 0x7f800000u;
  if (b == 0x80000000u) b = 0;
  b = b >> 31 ? ~b : b | 0x80000000u;
  return (ulong)b << 32 | (ulong)(~index);
}
LF_DEVICE uint lf_top_index(ulong key) { return ~(uint)key; }

LF_DEVICE ulong lf_top_warp(lf_thread t, ulong key) {
#pragma unroll
  for (uint o = 16; o; o >>= 1) {
    ulong other = (ulong)lf_shuffle_xor(t, (uint)(key >> 32), o) << 32 | (ulong)lf_shuffle_xor(t, (uint)key, o);
    key = other > key ? other : key;
  }
  return key;
}

// The numbers from first to end of a row, and keys, by number.
struct lf_top_row {
  LF_GLOBAL const float* x;
  LF_DEVICE ulong at(int j) const { return lf_top_key(x[j], (uint)j); }
};
struct lf_top_keys {
  LF_GLOBAL const ulong* keys;
  LF_DEVICE ulong at(int j) const { return keys[j]; }
};

// The largest of the keys first, first + step, … that is below a limit.
template <class T>
LF_DEVICE ulong lf_top_below(T from, int first, int end, int step, ulong limit) {
  ulong best = 0;
#pragma unroll 4
  for (int j = first; j < end; j += step) {
    ulong key = from.at(j);
    if (key < limit && key > best) best = key;
  }
  return best;
}

LF_ENTRY(32 * LF_TOPK_WARPS, topk_warp_f32, ((float, values), (int, indices), (const float, x)), ((long, rows), (int, n), (int, k))) {
  long row = (long)t.group.x * LF_TOPK_WARPS + t.warp;
  if (LF_WARPS_RETURN && row >= rows) return;
  int end = row < rows ? n : 0;
  lf_top_row from = {x + (row < rows ? row * n : 0)};
  ulong best = lf_top_below(from, t.lane, end, 32, ~0ul);
  for (int r = 0; r < k; r++) {
    ulong key = lf_top_warp(t, best);
    if (key == best && key != 0) {
      int j = (int)lf_top_index(key);
      values[row * k + r] = from.x[j];
      indices[row * k + r] = j;
      best = lf_top_below(from, t.lane, end, 32, key);
    }
  }
}

// The key of round r for all threads of a block. part has room for two rounds of a number for each warp.
LF_DEVICE ulong lf_top_block(lf_thread t, ulong best, int r, LF_GROUP ulong* part) {
  LF_GROUP ulong* to = part + (r & 1) * LF_TOPK_WARPS;
  ulong key = lf_top_warp(t, best);
  if (t.lane == 0) to[t.warp] = key;
  lf_barrier();
  key = to[0];
#pragma unroll
  for (int w = 1; w < LF_TOPK_WARPS; w++) key = to[w] > key ? to[w] : key;
  return key;
}

// Of several chunks, each writes its keys; of one, it writes the results.
LF_ENTRY_SHARED(32 * LF_TOPK_WARPS, topk_row_f32, ((ulong, part, 2 * LF_TOPK_WARPS)),
                ((float, values), (int, indices), (ulong, keys), (const float, x)), ((int, n), (int, k), (int, chunks))) {
  const long row = (int)t.group.x / chunks;
  const int first = (int)t.group.x % chunks * LF_TOPK_CHUNK, end = n < first + LF_TOPK_CHUNK ? n : first + LF_TOPK_CHUNK;
  const bool whole = chunks == 1;
  const int rounds = k < LF_TOPK_CHUNK ? k : LF_TOPK_CHUNK;
  lf_top_row from = {x + row * n};
  ulong best = lf_top_below(from, first + (int)t.index, end, (int)t.size, ~0ul);
  for (int r = 0; r < rounds; r++) {
    ulong key = lf_top_block(t, best, r, part);
    if (!whole && t.index == 0) keys[(long)t.group.x * rounds + r] = key;
    if (key == best && key != 0) {
      if (whole) {
        int j = (int)lf_top_index(key);
        values[row * k + r] = from.x[j];
        indices[row * k + r] = j;
      }
      best = lf_top_below(from, first + (int)t.index, end, (int)t.size, key);
    }
  }
}

// A row has m keys.
LF_ENTRY_SHARED(32 * LF_TOPK_WARPS, topk_merge_f32, ((ulong, part, 2 * LF_TOPK_WARPS)),
                ((float, values), (int, indices), (const ulong, keys), (const float, x)), ((int, n), (int, k), (int, m))) {
  const long row = t.group.x;
  lf_top_keys from = {keys + row * m};
  ulong best = lf_top_below(from, (int)t.index, m, (int)t.size, ~0ul);
  for (int r = 0; r < k; r++) {
    ulong key = lf_top_block(t, best, r, part);
    if (key == best && key != 0) {
      int j = (int)lf_top_index(key);
      values[row * k + r] = x[row * n + j];
      indices[row * k + r] = j;
      best = lf_top_below(from, (int)t.index, m, (int)t.size, key);
    }
  }
}

#ifdef LF_RACE
LF_RACE_CASE(topk) {
  auto x = lf_race_noise<float>(2 * 5000);
  std::vector<float> values(20 * 3);
  std::vector<int> indices(20 * 3);
  std::vector<unsigned long> keys(2 * 2 * 3);
  lf_race_launch(topk_warp_f32, {3}, {256}, 0, values.data(), indices.data(), x.data(), 20, 70, 3);
  lf_race_launch(topk_row_f32, {2}, {256}, 0, values.data(), indices.data(), keys.data(), x.data(), 300, 3, 1);
  lf_race_launch(topk_row_f32, {4}, {256}, 0, values.data(), indices.data(), keys.data(), x.data(), 5000, 3, 2);
  lf_race_launch(topk_merge_f32, {2}, {256}, 0, values.data(), indices.data(), keys.data(), x.data(), 5000, 3, 6);
}
#endif
