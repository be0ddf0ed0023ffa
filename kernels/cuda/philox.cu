// Random words: Philox4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011), element i
// of a stream being word i%4 of the block whose counter is
// (i/4 low, i/4 high, stream, step). Bit for bit that of package internal/philox.
//
// Layout: key = {seed low, seed high, step}.
// Grid: a thread for a block of four words, 256 threads for 1024.
// Traffic: the output once; twenty multiplications for 16 bytes, so bound by memory.
// Reference: for i { out[i] = Philox(seed, {i/4, stream, step})[i%4] }
#include "device.cuh"

extern "C" __global__ void __launch_bounds__(256) philox_u32(unsigned* out, const unsigned* key, long long n, unsigned stream) {
  long long b = (long long)blockIdx.x * 256 + threadIdx.x;
  if (4 * b >= n) return;
  unsigned c0 = (unsigned)b, c1 = (unsigned)(b >> 32), c2 = stream, c3 = key[2];
  unsigned k0 = key[0], k1 = key[1];
  for (int r = 0; r < 10; r++) {
    unsigned long long p = 0xD2511F53ull * c0, q = 0xCD9E8D57ull * c2;
    c0 = (unsigned)(q >> 32) ^ c1 ^ k0, c1 = (unsigned)q;
    c2 = (unsigned)(p >> 32) ^ c3 ^ k1, c3 = (unsigned)p;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  unsigned w[4] = {c0, c1, c2, c3};
#pragma unroll
  for (int j = 0; j < 4; j++)
    if (4 * b + j < n) out[4 * b + j] = w[j];
}
LF_KERNEL(philox_u32);
