// Shared code of row-wise kernels: the sums of a block, whose order depends only on the
// sizes.
#pragma once

#include "pack.h"

// The longest row that a warp holds in its registers: 32 numbers a lane.
#define LF_WARP_ROW 1024

// The sum of v over the block, for all threads. part has room for one number
// of each warp, and is not to be used again before a barrier.
LF_DEVICE float lf_block_sum(lf_thread t, float v, LF_GROUP float* part) {
  v = lf_warp_sum(t, v);
  if (t.lane == 0) part[t.warp] = v;
  lf_barrier();
  return lf_warp_sum(t, t.lane < t.size / 32 ? part[t.lane] : 0.0f);
}
