// Shared code of row-wise kernels in this folder.
#pragma once

#include "row.h"

// Whether rows of n numbers at p, q, … can be taken by four.
LF_DEVICE bool lf_fours(long long n, const void* p, const void* q = 0, const void* r = 0, const void* s = 0, const void* t = 0) {
  return ((n & 3) | (((long long)p | (long long)q | (long long)r | (long long)s | (long long)t) & 15)) == 0;
}
