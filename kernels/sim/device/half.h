// bfloat16 and float16: storage, and conversions that round to nearest even as
// the device's cvt.rn does.
#pragma once
#include <stdint.h>
#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "vector.h"

struct lf_bf16 {
  uint16_t bits;
};
struct lf_f16 {
  uint16_t bits;
};

namespace lfsim {

inline uint32_t float_bits(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}

inline float bits_float(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}

inline float widen_bf16(uint16_t h) { return bits_float((uint32_t)h << 16); }

inline uint16_t narrow_bf16(float f) {
  uint32_t u = float_bits(f);
  if ((u & 0x7fffffff) > 0x7f800000) return 0x7fff;  // the device's one NaN
  return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

#if defined(__F16C__)
inline float widen_f16(uint16_t h) { return _cvtsh_ss(h); }
#else
inline float widen_f16(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
  if (rest >= 0x7c00) return bits_float(sign | 0x7f800000 | (rest & 0x3ff) << 13);  // infinity, NaN
  if (rest < 0x400) return bits_float(sign | float_bits((float)rest * 0x1p-24f));   // subnormal
  return bits_float(sign | ((rest << 13) + (112u << 23)));
}
#endif

inline uint16_t narrow_f16(float f) {
  uint32_t u = float_bits(f);
  if ((u & 0x7fffffff) > 0x7f800000) return 0x7fff;
#if defined(__F16C__)
  return (uint16_t)_cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT);
#else
  uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
  u &= 0x7fffffff;
  if (u >= 0x477ff000) return sign | 0x7c00;  // 65520 and above round to infinity
  if (u < 0x38800000) {                       // below 2^-14: adding 0.5 lets the sum round at 2^-24
    return sign | (uint16_t)(float_bits(bits_float(u) + 0.5f) - 0x3f000000);
  }
  return sign | (uint16_t)((u - (112u << 23) + 0xfff + (u >> 13 & 1)) >> 13);
#endif
}

}  // namespace lfsim

inline float __bfloat162float(lf_bf16 h) { return lfsim::widen_bf16(h.bits); }
inline lf_bf16 __float2bfloat16(float f) { return {lfsim::narrow_bf16(f)}; }
inline lf_bf16 __float2bfloat16_rn(float f) { return __float2bfloat16(f); }
inline float __half2float(lf_f16 h) { return lfsim::widen_f16(h.bits); }
inline lf_f16 __float2half(float f) { return {lfsim::narrow_f16(f)}; }
inline lf_f16 __float2half_rn(float f) { return __float2half(f); }

// Pairs as the tensor cores take them: the first element in the low half.
inline uint32_t lf_pack_bf16(float lo, float hi) {
  return lfsim::narrow_bf16(lo) | (uint32_t)lfsim::narrow_bf16(hi) << 16;
}
inline float2 lf_unpack_bf16(uint32_t p) { return {lfsim::widen_bf16((uint16_t)p), lfsim::widen_bf16((uint16_t)(p >> 16))}; }
inline uint32_t lf_pack_f16(float lo, float hi) {
  return lfsim::narrow_f16(lo) | (uint32_t)lfsim::narrow_f16(hi) << 16;
}
inline float2 lf_unpack_f16(uint32_t p) { return {lfsim::widen_f16((uint16_t)p), lfsim::widen_f16((uint16_t)(p >> 16))}; }
