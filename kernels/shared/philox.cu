// Random words: Philox4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011), element i
// of a stream being word i%4 of the block whose counter is
// (i/4 low, i/4 high, stream, step). Bit for bit that of package internal/philox.
//
// philox_rows_u32: each row has a key of its own, and the words that the row of a
// given number has in a value of its own.
//
// Layout: key = {seed low, seed high, step}; keys [rows, 4] = that, and the number.
// Grid: a thread for a block of four words, 256 threads for 1024; by rows, where
//   blocks do not begin with a thread's words, a thread for a word.
// Traffic: the output once; twenty multiplications for 16 bytes, so bound by memory.
// Reference: for i { out[i] = Philox(seed, {i/4, stream, step})[i%4] }
#include "philox.h"

LF_ENTRY(256, philox_u32, ((uint, out), (const uint, key)), ((long, n), (uint, stream))) {
  long block = (long)t.group.x * 256 + t.index, i = 4 * block;
  if (i >= n) return;
  uint4 four = lf_philox(key, stream, block);
  uint w[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
  for (int k = 0; k < 4; k++)
    if (i + k < n) out[i + k] = w[k];
}

LF_ENTRY(256, philox_rows_u32, ((uint, out), (const uint, keys)), ((long, n), (long, cols), (uint, stream))) {
  long i = (long)t.group.x * 256 + t.index;
  if (i >= n) return;
  long row = (n >> 32) == 0 ? (long)((uint)i / (uint)cols) : i / cols; // division of 32-bit numbers is far cheaper
  LF_GLOBAL const uint* key = keys + 4 * row;
  long word = (long)key[3] * cols + i - row * cols;
  uint4 block = lf_philox(key, stream, word >> 2);
  uint low = word & 1 ? block.y : block.x, high = word & 1 ? block.w : block.z;
  out[i] = word & 2 ? high : low;
}
