// Small launches for the race detector. A kernel's file may end with some:
//
//   #ifdef LF_RACE
//   #include "../sim/test/race.h"
//   LF_RACE_CASE(softmax_rows) {
//     auto x = lf_race_noise<float>(4 * 100);
//     lf_race_launch(softmax_f32, {4}, {64}, 0, x.data(), 100);
//   }
//   #endif
//
// ThreadSanitizer then sees every access of the kernel, each CUDA thread as a
// thread: shared memory without a barrier between, and blocks that write what
// others use. It takes about a megabyte for each, so launches are small.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <type_traits>
#include <vector>

#include "../device/device.h"

struct LfRaceCase {
  LfRaceCase(const char* name, void (*run)());
};

#define LF_RACE_CASE(name)                                                     \
  static void LFSIM_JOIN(lf_race_, name)();                                    \
  static const LfRaceCase LFSIM_JOIN(lf_race_case_, name)(#name, &LFSIM_JOIN(lf_race_, name)); \
  static void LFSIM_JOIN(lf_race_, name)()

// The launch itself, in race.cpp.
void lf_race_run(void* function, void (*call)(void*, void* const*), int nparams, void** params, dim3 grid, dim3 block, unsigned shared);

// An argument of a kernel. Kernels for operands of several types take addresses of bytes.
template <class A>
struct LfRaceArgument {
  A value;
  template <class B>
  LfRaceArgument(B x) {
    if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) value = (A)(void*)x;
    else value = (A)x;
  }
};

template <class... A>
void lf_race_launch(void (*kernel)(A...), dim3 grid, dim3 block, unsigned shared, std::common_type_t<LfRaceArgument<A>>... args) {
  void* params[] = {const_cast<void*>(static_cast<const void*>(&args.value))...};
  lf_race_run((void*)kernel, &lfsim::Register<A...>::call, (int)sizeof...(A), params, grid, block, shared);
}

// Some numbers, small whole ones for integers.
template <class T>
std::vector<T> lf_race_noise(size_t n) {
  std::vector<T> v(n);
  uint32_t x = 12345;
  for (T& t : v) {
    x = x * 1664525 + 1013904223;
    if constexpr (std::is_integral_v<T>) {
      t = (T)(x >> 28);
    } else if constexpr (std::is_same_v<T, lf_bf16>) {
      t = __float2bfloat16((float)(x >> 16) * 0x1p-16f - 0.5f);
    } else if constexpr (std::is_same_v<T, lf_f16>) {
      t = __float2half((float)(x >> 16) * 0x1p-16f - 0.5f);
    } else {
      t = (T)((float)(x >> 16) * 0x1p-16f - 0.5f);
    }
  }
  return v;
}
