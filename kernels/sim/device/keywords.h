// CUDA's keywords and built-in names as macros: after all other headers, since
// system headers use some of these words.
#pragma once
#include "kernel.h"

#define __global__ __attribute__((visibility("hidden")))
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict
#define __shared__ static_assert(false, "declare shared memory by LF_SHARED or LF_DYN_SHARED: the simulator poisons and guards it")

#define threadIdx (lfsim::current->thread)
#define blockIdx (lfsim::current->place->block)
#define blockDim (lfsim::current->place->block_dim)
#define gridDim (lfsim::current->place->grid_dim)

#define LFSIM_JOIN_(a, b) a##b
#define LFSIM_JOIN(a, b) LFSIM_JOIN_(a, b)
#define LF_KERNEL(name) static const lfsim::Register LFSIM_JOIN(lfsim_kernel_, name)(#name, &name)
#define LF_DYN_SHARED(T, name) T* const name = static_cast<T*>(lfsim::dynamic_shared())
#define LF_SHARED(T, name, dims)                                                     \
  using LFSIM_JOIN(lfsim_type_, name) = T dims;                                      \
  static const char LFSIM_JOIN(lfsim_key_, name) = 0;                                \
  auto& name = *static_cast<LFSIM_JOIN(lfsim_type_, name)*>(                         \
      lfsim::static_shared(&LFSIM_JOIN(lfsim_key_, name), sizeof(LFSIM_JOIN(lfsim_type_, name)), 16))
