// Places of 16-byte chunks in tiles in shared memory.
#pragma once

#include "device.cuh"

// The position of chunk c of row r in a tile whose rows are WIDTH bytes. The eight rows of an
// ldmatrix lie in different banks.
template <int WIDTH>
LF_DEVICE int lf_swizzled(int r, int c) {
  return r * WIDTH + ((c ^ (r & 7)) << 4);
}
