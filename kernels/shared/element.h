// Shared code of element-wise kernels: the elements of a thread, the positions
// in broadcast operands, and the element types of package tensor as numbers.
// Conversions are written in integers, so that every machine gives the bits of
// package tensor, also one that takes subnormal floats for zeros.
#pragma once

#include "device.h"

// A block of elementwise kernels takes LF_BLOCK consecutive elements with
// LF_THREADS threads: neighbours read neighbours.
#define LF_THREADS 256
#define LF_BLOCK 1024

// Runs over the elements i of this thread, of n in all.
#define LF_EACH(i, n)                                                           \
  for (long i = (long)t.group.x * LF_BLOCK + t.index,                           \
            i##_end = lf_least((n), ((long)t.group.x + 1) * LF_BLOCK);          \
       i < i##_end; i += LF_THREADS)

LF_DEVICE long lf_least(long a, long b) { return a < b ? a : b; }

// The coordinates of element i of a shape [*, d1, d2, d3].
struct lf_place {
  long c0;
  uint c1, c2, c3;
  LF_DEVICE long at(long s0, long s1, long s2, long s3) const { return c0 * s0 + c1 * s1 + c2 * s2 + c3 * s3; }
};

LF_DEVICE lf_place lf_split(long i, int d1, int d2, int d3) {
  lf_place p = {i, 0, 0, 0};
  if ((d1 | d2 | d3) == 1) return p;
  if (i >> 32 == 0) { // division of 32-bit numbers is far cheaper
    uint u = (uint)i;
    p.c3 = u % (uint)d3, u /= (uint)d3;
    p.c2 = u % (uint)d2, u /= (uint)d2;
    p.c1 = u % (uint)d1, p.c0 = u / (uint)d1;
    return p;
  }
  p.c3 = (uint)(i % d3), i /= d3;
  p.c2 = (uint)(i % d2), i /= d2;
  p.c1 = (uint)(i % d1), p.c0 = i / d1;
  return p;
}

// Numbers of a strided operand, and its place p in it.
#define LF_STRIDES(x) (long, x##0), (long, x##1), (long, x##2), (long, x##3)
#define LF_AT(p, x) (p).at(x##0, x##1, x##2, x##3)

// An element type: how it lies in memory, and as a float.
struct lf_as_f32 {
  typedef float raw;
  static LF_DEVICE float get(raw x) { return x; }
  static LF_DEVICE raw put(float x) { return x; }
};

// Rounds to a multiple of 2^n, ties to even.
LF_DEVICE uint lf_round_bits(uint b, int n) { return b + ((1u << (n - 1)) - 1) + ((b >> n) & 1); }
LF_DEVICE ulong lf_round_bits(ulong b, int n) { return b + ((1ul << (n - 1)) - 1) + ((b >> n) & 1); }

struct lf_as_bf16 {
  typedef ushort raw;
  static LF_DEVICE float get(raw x) { return lf_from_bits((uint)x << 16); }
  static LF_DEVICE raw put(float f) {
    uint b = lf_bits(f);
    if ((b & 0x7fffffffu) > 0x7f800000u) return (raw)(b >> 16 | 0x40);
    return (raw)(lf_round_bits(b, 16) >> 16);
  }
};

struct lf_as_f16 {
  typedef ushort raw;
  static LF_DEVICE float get(raw h) {
    uint b = (uint)(h & 0x7fff) << 13; // exponent and mantissa where a float has them
    if (b < 1u << 23)
      b = lf_bits((float)b * 7.275957614183426e-12f); // a multiple of 2^-24: b 2^-37
    else if (b < 31u << 23)
      b += 112u << 23;
    else if (b == 31u << 23)
      b = 0x7f800000u;
    else
      b |= 0x7fc00000u;
    return lf_from_bits(b | (uint)(h & 0x8000) << 16);
  }
  static LF_DEVICE raw put(float f) {
    uint b = lf_bits(f), sign = b >> 16 & 0x8000u, abs = b & 0x7fffffffu;
    if (abs > 0x7f800000u) return (raw)(sign | 0x7e00u | (abs >> 13 & 0x1ffu));
    if (abs >= 0x477ff000u) return (raw)(sign | 0x7c00u);
    if (abs >= 0x38800000u) return (raw)(sign | (lf_round_bits(abs, 13) - (112u << 23)) >> 13);
    return (raw)(sign | (lf_bits(lf_from_bits(abs) + 0.5f) - 0x3f000000u));
  }
};

// Metal has no doubles: a ulong holds their bits. 11 exponent bits starting at
// bit 52, with a bias 896 larger than that of a float.
struct lf_as_f64 {
  typedef ulong raw;
  static LF_DEVICE float get(raw x) {
    uint sign = (uint)(x >> 32) & 0x80000000u;
    ulong abs = x & 0x7ffffffffffffffful;
    if (abs > 0x7ff0000000000000ul) return lf_from_bits(sign | 0x7fc00000u | ((uint)(abs >> 29) & 0x3fffffu));
    if (abs >= 1151ul << 52) return lf_from_bits(sign | 0x7f800000u); // 2^128 and more
    int e = (int)(abs >> 52);
    if (e > 896) return lf_from_bits(sign | ((uint)(lf_round_bits(abs, 29) >> 29) - (896u << 23)));
    if (e < 873) return lf_from_bits(sign); // less than half of 2^-149
    ulong m = (abs & 0xffffffffffffful) | 1ul << 52;
    return lf_from_bits(sign | (uint)(lf_round_bits(m, 926 - e) >> (926 - e)));
  }
  static LF_DEVICE raw put(float x) {
    uint b = lf_bits(x), abs = b & 0x7fffffffu;
    ulong sign = (ulong)(b & 0x80000000u) << 32;
    if (abs > 0x7f800000u) return sign | 0x7ff8000000000000ul | (ulong)(abs & 0x7fffffu) << 29;
    if (abs == 0x7f800000u) return sign | 0x7ff0000000000000ul;
    if (abs >= 0x00800000u) return sign | (((ulong)abs << 29) + (896ul << 52));
    if (abs == 0) return sign;
    ulong top = 31 - lf_clz(abs); // abs is the number of 2^-149
    return sign | ((874 + top) << 52) | (((ulong)abs << (52 - top)) & 0xffffffffffffful);
  }
};

struct lf_as_bool {
  typedef uchar raw;
  static LF_DEVICE float get(raw x) { return (float)x; }
  static LF_DEVICE raw put(float x) { return (lf_bits(x) & 0x7fffffffu) != 0; }
};

// For integers: the nearest number, ties to even; the smallest or largest one
// for values out of range, and 0 for NaN. LOW and PAST are the smallest number
// and the one past the largest, both of which a float holds.
#define LF_INTEGER(name, T, LOW, PAST, MIN, MAX)       \
  struct name {                                        \
    typedef T raw;                                     \
    static LF_DEVICE float get(raw x) { return (float)x; } \
    static LF_DEVICE raw put(float x) {                   \
      float r = lf_rint(x);                               \
      if (!(r >= LOW)) return x != x ? (raw)0 : (raw)(MIN); \
      if (r >= PAST) return (raw)(MAX);                \
      return (raw)r;                                   \
    }                                                  \
  }
LF_INTEGER(lf_as_u8, uchar, 0.0f, 256.0f, 0, 255);
LF_INTEGER(lf_as_i8, schar, -128.0f, 128.0f, -128, 127);
LF_INTEGER(lf_as_u16, ushort, 0.0f, 65536.0f, 0, 65535);
LF_INTEGER(lf_as_i16, short, -32768.0f, 32768.0f, -32768, 32767);
LF_INTEGER(lf_as_u32, uint, 0.0f, 4294967296.0f, 0, 0xffffffffu);
LF_INTEGER(lf_as_i32, int, -2147483648.0f, 2147483648.0f, -2147483647 - 1, 2147483647);
LF_INTEGER(lf_as_u64, ulong, 0.0f, 18446744073709551616.0f, 0, 0xfffffffffffffffful);
LF_INTEGER(lf_as_i64, long, -9223372036854775808.0f, 9223372036854775808.0f, -9223372036854775807l - 1, 9223372036854775807l);

// The code of the small float nearest to the float with bits abs, ties to
// even; codes continue past the largest one of the format.
LF_DEVICE uint lf_encode(uint abs, int mantissa, int bias) {
  if (abs >= (uint)(128 - bias) << 23) // the smallest normal number
    return (lf_round_bits(abs, 23 - mantissa) - ((uint)(127 - bias) << 23)) >> (23 - mantissa);
  // From here on floats are as far apart as the subnormals of the format: the
  // addition rounds, and its low bits are the result.
  uint magic = (uint)(127 + 24 - bias - mantissa) << 23;
  return lf_bits(lf_from_bits(abs) + lf_from_bits(magic)) - magic;
}

// The number of a code of 8 bits.
LF_DEVICE float lf_decode(uint code, int mantissa, int bias) {
  uint sign = code >> 7 << 31, abs = code & 0x7f;
  if (abs < 1u << mantissa) {
    float smallest = lf_from_bits((uint)(128 - bias - mantissa) << 23);
    return lf_from_bits(sign | lf_bits((float)abs * smallest));
  }
  return lf_from_bits(sign | ((abs << (23 - mantissa)) + ((uint)(127 - bias) << 23)));
}

// The 8-bit floats: E5M2 is the upper half of a 16-bit float; E4M3 has no
// infinities and stays at its largest number.
struct lf_as_f8_e5m2 {
  typedef uchar raw;
  static LF_DEVICE float get(raw x) { return lf_as_f16::get((ushort)(x << 8)); }
  static LF_DEVICE raw put(float f) {
    uint b = lf_bits(f), abs = b & 0x7fffffffu, sign = b >> 24 & 0x80u, code = lf_encode(abs, 2, 15);
    return (raw)(sign | (abs > 0x7f800000u ? 0x7fu : code < 0x7c ? code : 0x7cu));
  }
};
struct lf_as_f8_e4m3 {
  typedef uchar raw;
  static LF_DEVICE float get(raw x) {
    return (x & 0x7f) == 0x7f ? lf_from_bits((uint)x >> 7 << 31 | 0x7fc00000u) : lf_decode(x, 3, 7);
  }
  static LF_DEVICE raw put(float f) {
    uint b = lf_bits(f), abs = b & 0x7fffffffu, sign = b >> 24 & 0x80u, code = lf_encode(abs, 3, 7);
    return (raw)(sign | (abs > 0x7f800000u ? 0x7fu : code < 0x7e ? code : 0x7eu));
  }
};

// The code books of package quant.
LF_CONSTANT float lf_nf4_book[16] = {
    -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
    -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
    0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
    0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f};
LF_CONSTANT float lf_fp4_book[16] = {
    0.0f, 0.0625f / 12.0f, 8.0f / 12.0f, 1.0f, 4.0f / 12.0f, 6.0f / 12.0f, 2.0f / 12.0f, 3.0f / 12.0f,
    0.0f, -0.0625f / 12.0f, -8.0f / 12.0f, -1.0f, -4.0f / 12.0f, -6.0f / 12.0f, -2.0f / 12.0f, -3.0f / 12.0f};
LF_DEVICE float lf_nf4(int code) { return lf_nf4_book[code]; }
LF_DEVICE float lf_fp4(int code) { return lf_fp4_book[code]; }

// Quantized weights: blocks of 64 elements, codes followed by one float, the scale.
#define LF_QUANT_BLOCK 64

LF_DEVICE float lf_q8(LF_GLOBAL const uchar* blocks, long i) {
  LF_GLOBAL const uchar* b = blocks + (i >> 6) * 68;
  return (float)(schar)b[i & 63] * *(LF_GLOBAL const float*)(b + 64);
}

// Element i of a 4-bit type; book holds the values of its codes, at any alignment.
template <class Book>
LF_DEVICE float lf_q4(LF_GLOBAL const uchar* blocks, long i, Book book) {
  LF_GLOBAL const uchar* b = blocks + (i >> 6) * 36;
  int j = (int)(i & 63);
  return book[b[j & 31] >> (j >> 5) * 4 & 15] * *(LF_GLOBAL const float*)(b + 32);
}
