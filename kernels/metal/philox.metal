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

struct philox_u32_args { LF_ARGS; long n; uint stream; };

LF_KERNEL(256)
philox_u32(device uint* out [[buffer(0)]], device const uint* key [[buffer(1)]], constant philox_u32_args& a [[buffer(2)]], LF_THREAD) {
  LF_BEGIN;
  long block = (long)t.group.x * 256 + t.index, i = 4 * block;
  if (i >= a.n) return;
  uint4 four = lf_philox(key, a.stream, block);
  uint w[4] = {four.x, four.y, four.z, four.w};
  for (int k = 0; k < 4; k++)
    if (i + k < a.n) out[i + k] = w[k];
}

struct philox_rows_u32_args { LF_ARGS; long n, cols; uint stream; };

LF_KERNEL(256)
philox_rows_u32(device uint* out [[buffer(0)]], device const uint* keys [[buffer(1)]], constant philox_rows_u32_args& a [[buffer(2)]],
                LF_THREAD) {
  LF_BEGIN;
  long i = (long)t.group.x * 256 + t.index;
  if (i >= a.n) return;
  long row = (a.n >> 32) == 0 ? (long)((uint)i / (uint)a.cols) : i / a.cols; // division of 32-bit numbers is far cheaper
  device const uint* key = keys + 4 * row;
  long word = (long)key[3] * a.cols + i - row * a.cols;
  uint4 four = lf_philox(key, a.stream, word >> 2);
  uint w[4] = {four.x, four.y, four.z, four.w};
  out[i] = w[word & 3];
}
