// Sums of many floats with more digits than a float: pairs of floats.
#pragma once

#include "pair.h"

typedef lf_pair lf_total;
typedef float2 lf_total_raw; // as it lies in memory

inline lf_total lf_total_of(float x) {
  lf_total v = {x, 0.0f};
  return v;
}
inline lf_total_raw lf_total_put(lf_total x) { return float2(x.hi, x.lo); }
inline lf_total lf_total_get(lf_total_raw x) {
  lf_total v = {x.x, x.y};
  return v;
}
inline lf_total lf_total_add(lf_total x, lf_total y) { return lf_pair_add(x, y); }
inline float lf_total_float(lf_total x) { return lf_pair_float(x); }
