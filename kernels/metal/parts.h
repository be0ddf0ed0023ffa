// Sums computed in parts, because the output has fewer tiles than the device has
// cores. A threadgroup sums one part of the k axis of its tile and stores the sum in
// memory. Then gemm_sum of gemm_mma.metal, or the reader of the output, adds the
// parts in order. No atomics: the same bytes every run.
#pragma once

#include "device.h"

// The step of a k axis at which part p of the given number begins; it ends
// where part p + 1 begins.
inline int lf_part(int k, int step, int p, int parts) { return (int)((long)((k + step - 1) / step) * p / parts); }
