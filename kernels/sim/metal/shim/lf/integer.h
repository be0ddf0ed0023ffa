// <metal_integer>. Both arguments are of one type.
#pragma once

namespace metal {

#define LF_INTEGER(T, U, W, Bits)                                                    \
  inline T min(T x, T y) { return y < x ? y : x; }                                   \
  inline T max(T x, T y) { return x < y ? y : x; }                                   \
  inline T clamp(T x, T low, T high) { return min(max(x, low), high); }              \
  inline T mulhi(T x, T y) { return (T)((W)x * (W)y >> Bits); }                      \
  inline T popcount(T x) { return (T)__builtin_popcountll((ulong)(U)x); }            \
  inline T clz(T x) { return (T)((U)x ? __builtin_clzll((ulong)(U)x) - (64 - Bits) : Bits); } \
  inline T ctz(T x) { return (T)((U)x ? __builtin_ctzll((ulong)(U)x) : Bits); }      \
  inline T rotate(T x, T n) {                                                        \
    uint s = (uint)n & (Bits - 1);                                                   \
    return s ? (T)(U)((U)x << s | (U)x >> (Bits - s)) : x;                           \
  }                                                                                  \
  inline U absdiff(T x, T y) { return x > y ? (U)((U)x - (U)y) : (U)((U)y - (U)x); } \
  inline T reverse_bits(T x) {                                                       \
    U r = 0;                                                                         \
    for (uint i = 0; i < Bits; i++) r = (U)(r << 1 | ((U)x >> i & 1));               \
    return (T)r;                                                                     \
  }                                                                                  \
  inline T extract_bits(T x, uint offset, uint bits) {                               \
    return bits == 0 ? (T)0 : (T)((T)((U)x << (Bits - offset - bits)) >> (Bits - bits)); \
  }
LF_INTEGER(char, uchar, int, 8u)
LF_INTEGER(uchar, uchar, uint, 8u)
LF_INTEGER(short, ushort, int, 16u)
LF_INTEGER(ushort, ushort, uint, 16u)
LF_INTEGER(int, uint, long, 32u)
LF_INTEGER(uint, uint, ulong, 32u)
LF_INTEGER(long, ulong, __int128, 64u)
LF_INTEGER(ulong, ulong, unsigned __int128, 64u)
#undef LF_INTEGER

#define LF_SIGNED(T) \
  inline T abs(T x) { return x < 0 ? (T)-x : x; }
LF_SIGNED(char)
LF_SIGNED(short)
LF_SIGNED(int)
LF_SIGNED(long)
#undef LF_SIGNED

template <class T>
inline T madhi(T x, T y, T z) {
  return mulhi(x, y) + z;
}
inline int mul24(int x, int y) { return x * y; }
inline uint mul24(uint x, uint y) { return x * y; }

}  // namespace metal
