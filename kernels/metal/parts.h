// Sums that are computed in parts, since their outputs are too few tiles for all
// cores: a threadgroup adds up one part of the k axis of its tile and leaves the sum
// in memory, and gemm_sum of gemm_mma.metal, or what reads the output, adds the parts
// up in their order. No atomics: the same bytes every run.
#pragma once

#include "device.h"

// At which of the steps of a k axis part p of so many begins; part p + 1 begins
// where it ends.
inline int lf_part(int k, int step, int p, int parts) { return (int)((long)((k + step - 1) / step) * p / parts); }
