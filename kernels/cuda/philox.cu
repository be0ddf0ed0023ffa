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
#include "philox.cuh"

extern "C" __global__ void __launch_bounds__(256) philox_u32(unsigned* out, const unsigned* key, long long n, unsigned stream) {
  long long b = (long long)blockIdx.x * 256 + threadIdx.x;
  if (4 * b >= n) return;
  uint4 block = lf_philox(key, stream, b);
  unsigned w[4] = {block.x, block.y, block.z, block.w};
#pragma unroll
  for (int j = 0; j < 4; j++)
    if (4 * b + j < n) out[4 * b + j] = w[j];
}
LF_KERNEL(philox_u32);

extern "C" __global__ void __launch_bounds__(256)
    philox_rows_u32(unsigned* out, const unsigned* keys, long long n, long long cols, unsigned stream) {
  long long i = (long long)blockIdx.x * 256 + threadIdx.x;
  if (i >= n) return;
  long long row = i / cols;
  const unsigned* key = keys + 4 * row;
  long long word = (long long)key[3] * cols + i - row * cols;
  uint4 block = lf_philox(key, stream, word >> 2);
  unsigned low = word & 1 ? block.y : block.x, high = word & 1 ? block.w : block.z;
  out[i] = word & 2 ? high : low;
}
LF_KERNEL(philox_rows_u32);
