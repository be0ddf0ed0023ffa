// CUDA's vector types, with its sizes and alignments: a float4 that is not
// aligned to 16 bytes is an error on the device, and the sanitizer's
// alignment check (engine/undefined.cpp) finds it here.
#pragma once
#include <stdint.h>

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

#define LFSIM_VECTORS(name, T, bytes)                                      \
  struct alignas(2 * bytes) name##2 {                                      \
    T x, y;                                                                \
  };                                                                       \
  struct name##3 {                                                         \
    T x, y, z;                                                             \
  };                                                                       \
  struct alignas(4 * bytes > 16 ? 16 : 4 * bytes) name##4 {                \
    T x, y, z, w;                                                          \
  };                                                                       \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }               \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }       \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

namespace lfsim_detail {
using schar = signed char;
}
LFSIM_VECTORS(char, lfsim_detail::schar, 1)
LFSIM_VECTORS(uchar, unsigned char, 1)
LFSIM_VECTORS(short, short, 2)
LFSIM_VECTORS(ushort, unsigned short, 2)
LFSIM_VECTORS(int, int, 4)
LFSIM_VECTORS(float, float, 4)
LFSIM_VECTORS(longlong, long long, 8)
LFSIM_VECTORS(double, double, 8)
#undef LFSIM_VECTORS

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
