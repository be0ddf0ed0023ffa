// The codes of int8 weights, by doubles. In Metal, which has no double, integers give the
// same.
#pragma once

#include "device.h"

typedef double lf_ratio;

// 127 divided by the number whose bits are most.
LF_DEVICE lf_ratio lf_open_ratio(uint most) { return 127.0 / (double)lf_from_bits(most); }
// The integer nearest to the product of x and r, ties to even.
LF_DEVICE int lf_code8(float x, lf_ratio r) { return (int)rint((double)x * r); }
