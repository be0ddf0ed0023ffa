// Pairs of bfloat16 in a word: the first element in the low half.
#pragma once

#include "element.h"

inline float2 lf_unpack_bf16(uint p) { return float2(as_type<float>(p << 16), as_type<float>(p & 0xffff0000u)); }
inline uint lf_pack_bf16(float lo, float hi) { return lf_as_bf16::put(lo) | (uint)lf_as_bf16::put(hi) << 16; }
