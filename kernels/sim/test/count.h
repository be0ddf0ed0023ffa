// Kernels with known counts, for the tests of engine/counts.cpp.
#pragma once
#include "../device/device.h"

using LfCountKernel = void (*)(float* out, const float* in);

struct LfCountCase {
  LfCountCase(const char* name, LfCountKernel kernel, const char* want, unsigned threads = 32);
};

// LF_COUNT_CASE(name, counts, threads) { … } is a kernel of one block, which has 32 threads
// if they are not given, with 1,024 floats in and out.
#define LF_COUNT_CASE(name, ...)                                        \
  static void LFSIM_JOIN(lf_count_, name)(float* out, const float* in); \
  static const LfCountCase LFSIM_JOIN(lf_count_case_, name)(#name, &LFSIM_JOIN(lf_count_, name), __VA_ARGS__); \
  static void LFSIM_JOIN(lf_count_, name)(float* out, const float* in)
