// CUDA's arithmetic that C's <math.h> lacks. The fast functions (__expf …) are
// exact here: kernels are compared with tolerances that hold for both.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>

// GNU's sincosf and friends have CUDA's signatures already.
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __exp2f(float x) { return exp2f(x); }
inline float lf_exp2(float x) {
  float y = exp2f(x);
  return y < 1.17549435e-38f ? 0.0f : y; // ex2.approx.ftz has no subnormal results
}
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline void __sincosf(float x, float* s, float* c) {
  *s = sinf(x);
  *c = cosf(x);
}
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return (float)(1.0 / sqrt((double)x)); }
// These never become part of an fma: the simulator is compiled without contraction.
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

inline float __int_as_float(int i) {
  float f;
  memcpy(&f, &i, 4);
  return f;
}
inline float __uint_as_float(unsigned u) { return __int_as_float((int)u); }
inline int __float_as_int(float f) {
  int i;
  memcpy(&i, &f, 4);
  return i;
}
inline unsigned __float_as_uint(float f) { return (unsigned)__float_as_int(f); }

// Conversions saturate and make 0 of NaN, as cvt does.
namespace lfsim {
inline int saturate_int(float x) {
  if (x != x) return 0;
  return x >= 2147483648.0f ? INT32_MAX : x < -2147483648.0f ? INT32_MIN : (int)x;
}
}  // namespace lfsim
inline int __float2int_rn(float x) { return lfsim::saturate_int(rintf(x)); }
inline int __float2int_rz(float x) { return lfsim::saturate_int(truncf(x)); }
inline int __float2int_rd(float x) { return lfsim::saturate_int(floorf(x)); }
inline int __float2int_ru(float x) { return lfsim::saturate_int(ceilf(x)); }
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((uint64_t)x * y >> 32); }
inline int __mulhi(int x, int y) { return (int)((int64_t)x * y >> 32); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return (unsigned long long)((unsigned __int128)x * y >> 64);
}
inline unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; i++) r |= (x >> i & 1) << (31 - i);
  return r;
}
// prmt in its default mode: a selector's fourth bit spreads the byte's sign.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
  uint64_t bytes = (uint64_t)y << 32 | x;
  unsigned r = 0;
  for (int i = 0; i < 4; i++) {
    unsigned pick = s >> (4 * i) & 7; // bit 3 of a selector is ignored, unlike in PTX's prmt
    r |= (unsigned)(bytes >> (8 * pick) & 0xff) << (8 * i);
  }
  return r;
}
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n) {
  return (unsigned)((((uint64_t)hi << 32 | lo) << (n & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n) {
  return (unsigned)(((uint64_t)hi << 32 | lo) >> (n & 31));
}

// min and max of the device mix signed and unsigned as C's operators would;
// here both must be of one type, so that a mistake does not compile.
template <class T, class = std::enable_if_t<std::is_integral<T>::value>>
inline T min(T a, T b) {
  return b < a ? b : a;
}
template <class T, class = std::enable_if_t<std::is_integral<T>::value>>
inline T max(T a, T b) {
  return a < b ? b : a;
}
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

// Cache hints.
template <class T>
inline T __ldg(const T* p) {
  return *p;
}
template <class T>
inline T __ldcs(const T* p) {
  return *p;
}
template <class T>
inline void __stcs(T* p, T v) {
  *p = v;
}
