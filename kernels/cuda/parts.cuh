// Sums computed in parts, because the output has fewer tiles than the device has
// multiprocessors. A block sums one part of the k axis of its tile and stores
// the sum in memory. Then a kernel such as gemm_sum, or the reader of the output,
// adds the parts in order. No atomics: the same bytes every run.
#pragma once

#include "device.cuh"

// The step of a k axis at which part p of the given number begins; it ends
// where part p + 1 begins.
LF_DEVICE int lf_part(int k, int step, int p, int parts) { return (int)((long long)((k + step - 1) / step) * p / parts); }
