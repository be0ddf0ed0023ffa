// Sums of many floats with more digits than a float: in double. In Metal, which has no
// double, they are pairs of floats.
#pragma once

#include "device.h"

typedef double lf_total;
typedef double lf_total_raw; // as it lies in memory

LF_DEVICE lf_total lf_total_of(float x) { return (double)x; }
LF_DEVICE lf_total_raw lf_total_put(lf_total x) { return x; }
LF_DEVICE lf_total lf_total_get(lf_total_raw x) { return x; }
LF_DEVICE lf_total lf_total_add(lf_total x, lf_total y) { return x + y; }
LF_DEVICE float lf_total_float(lf_total x) { return (float)x; }

// The sum of v over a warp, for all lanes.
LF_DEVICE lf_total lf_warp_sum(lf_thread t, lf_total v) {
#pragma unroll
  for (int o = 16; o; o >>= 1) v += lf_shuffle_xor(t, v, o);
  return v;
}

// The sum of v over the block, for all threads; part as for lf_block_sum of row.h.
LF_DEVICE lf_total lf_block_sum(lf_thread t, lf_total v, lf_total_raw* part) {
  v = lf_warp_sum(t, v);
  if (t.lane == 0) part[t.warp] = v;
  lf_barrier();
  return lf_warp_sum(t, t.lane < t.size / 32 ? part[t.lane] : 0.0);
}
