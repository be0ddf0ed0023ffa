// The rounded product, which compilers do not contract with a sum.
#pragma once

#include "device.h"

inline float lf_product(float x, float y) { return x * y; } // device.h forbids contraction
