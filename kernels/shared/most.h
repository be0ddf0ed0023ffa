// Largest magnitudes.
#pragma once

#include "device.h"

// The largest magnitude of a warp, as bits, which have the same order as the numbers; NaN
// and infinity are last.
LF_DEVICE uint lf_warp_most(lf_thread t, uint m) {
#pragma unroll
  for (uint o = 16; o; o >>= 1) {
    uint other = lf_shuffle_xor(t, m, o);
    m = m > other ? m : other;
  }
  return m;
}
