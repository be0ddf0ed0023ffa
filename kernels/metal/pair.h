// Numbers as sums of two floats, hi + lo, with more digits than a float: Metal has
// no double.
#pragma once

#include "device.h"

struct lf_pair {
  float hi, lo;
};

// x + y, exactly (Knuth, The Art of Computer Programming 2, 4.2.2, theorem B).
inline lf_pair lf_two_sum(float x, float y) {
  lf_pair r;
  r.hi = x + y;
  float z = r.hi - x;
  r.lo = (x - (r.hi - z)) + (y - z);
  return r;
}

// The sum of two pairs, of (a, b) the same bits as of (b, a). Their low parts are only
// added up, which makes long sums as exact as in twice the digits (Ogita, Rump and Oishi
// 2005, Accurate sum and dot product, SIAM J. Sci. Comput. 26(6), Sum2).
inline lf_pair lf_pair_add(lf_pair a, lf_pair b) {
  lf_pair r = lf_two_sum(a.hi, b.hi);
  r.lo += a.lo + b.lo;
  return r;
}

// The product (Dekker 1971, A floating-point technique for extending the available
// precision, Numer. Math. 18(3)), where fma computes the error of the first digits.
inline lf_pair lf_pair_mul(lf_pair a, lf_pair b) {
  lf_pair r;
  r.hi = a.hi * b.hi;
  r.lo = fma(a.hi, b.hi, -r.hi);
  r.lo = fma(a.hi, b.lo, r.lo);
  r.lo = fma(a.lo, b.hi, r.lo);
  return r;
}

// The nearest float. The low part of a number that is not finite is NaN.
inline float lf_pair_float(lf_pair a) { return (as_type<uint>(a.hi) & 0x7f800000u) == 0x7f800000u ? a.hi : a.hi + a.lo; }

// One butterfly for all: every lane ends with the same bits.
inline lf_pair lf_warp_sum(lf_thread t, lf_pair v) {
  for (uint o = 16; o; o >>= 1) {
    lf_pair other = {lf_shuffle_xor(t, v.hi, o), lf_shuffle_xor(t, v.lo, o)};
    v = lf_pair_add(v, other);
  }
  return v;
}

// The sum of v over the threadgroup, for all threads; part as for lf_block_sum.
inline lf_pair lf_block_sum(lf_thread t, lf_pair v, threadgroup float2* part) {
  v = lf_warp_sum(t, v);
  if (t.lane == 0) part[t.warp] = float2(v.hi, v.lo);
  lf_barrier();
  v.hi = 0.0f, v.lo = 0.0f;
  if (t.lane < t.size / 32) v.hi = part[t.lane].x, v.lo = part[t.lane].y;
  return lf_warp_sum(t, v);
}
