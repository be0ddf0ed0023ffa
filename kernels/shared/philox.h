// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011), bit-identical to
// package internal/philox. Element i of a stream is word i%4 of the block with
// counter (i/4 low, i/4 high, stream, step).
#pragma once

#include "device.h"

// The four words of elements 4·block to 4·block+3; key = {seed low, seed high, step}.
LF_DEVICE uint4 lf_philox(LF_GLOBAL const uint* key, uint stream, long block) {
  uint c0 = (uint)block, c1 = (uint)(block >> 32), c2 = stream, c3 = key[2];
  uint k0 = key[0], k1 = key[1];
#pragma unroll
  for (int r = 0; r < 10; r++) {
    uint hi0 = lf_mulhi(0xD2511F53u, c0), lo0 = 0xD2511F53u * c0;
    uint hi1 = lf_mulhi(0xCD9E8D57u, c2), lo1 = 0xCD9E8D57u * c2;
    c0 = hi1 ^ c1 ^ k0, c1 = lo1;
    c2 = hi0 ^ c3 ^ k1, c3 = lo0;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return make_uint4(c0, c1, c2, c3);
}
