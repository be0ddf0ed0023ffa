// The rounded product, which compilers do not contract with a sum.
#pragma once

#include "device.h"

LF_DEVICE float lf_product(float x, float y) { return __fmul_rn(x, y); }
