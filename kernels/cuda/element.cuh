// Shared code of element-wise kernels: the elements of a thread, the positions
// in broadcast operands, and the element types of package tensor as numbers.
// Conversions are written in integers, so that every machine gives the bits of
// package tensor.
#pragma once

#include "device.cuh"

// A block of elementwise kernels takes LF_BLOCK consecutive elements with
// LF_THREADS threads: neighbours read neighbours.
#define LF_THREADS 256
#define LF_BLOCK 1024

// Runs over the elements i of this thread, of n in all.
#define LF_EACH(i, n)                                                               \
  for (long long i = (long long)blockIdx.x * LF_BLOCK + threadIdx.x,                \
                 i##_end = lf_least((n), ((long long)blockIdx.x + 1) * LF_BLOCK);   \
       i < i##_end; i += LF_THREADS)

LF_DEVICE long long lf_least(long long a, long long b) { return a < b ? a : b; }

// The coordinates of element i of a shape [*, d1, d2, d3].
struct lf_place {
  long long c0;
  unsigned c1, c2, c3;
  LF_DEVICE long long at(long long s0, long long s1, long long s2, long long s3) const {
    return c0 * s0 + c1 * s1 + c2 * s2 + c3 * s3;
  }
};

LF_DEVICE lf_place lf_split(long long i, int d1, int d2, int d3) {
  lf_place p = {i, 0, 0, 0};
  if ((d1 | d2 | d3) == 1) return p;
  if (i >> 32 == 0) { // division of 32-bit numbers is far cheaper
    unsigned u = (unsigned)i;
    p.c3 = u % (unsigned)d3, u /= (unsigned)d3;
    p.c2 = u % (unsigned)d2, u /= (unsigned)d2;
    p.c1 = u % (unsigned)d1, p.c0 = u / (unsigned)d1;
    return p;
  }
  p.c3 = (unsigned)(i % d3), i /= d3;
  p.c2 = (unsigned)(i % d2), i /= d2;
  p.c1 = (unsigned)(i % d1), p.c0 = i / d1;
  return p;
}

// Parameters of a strided operand.
#define LF_STRIDES(x) long long x##0, long long x##1, long long x##2, long long x##3
#define LF_AT(p, x) (p).at(x##0, x##1, x##2, x##3)

// An element type: how it lies in memory, and as a float.
struct lf_as_f32 {
  typedef float raw;
  static LF_DEVICE float get(raw x) { return x; }
  static LF_DEVICE raw put(float x) { return x; }
};

LF_DEVICE unsigned lf_round_bits(unsigned b, int n) { return b + ((1u << (n - 1)) - 1) + ((b >> n) & 1); }

struct lf_as_bf16 {
  typedef unsigned short raw;
  static LF_DEVICE float get(raw x) { return __uint_as_float((unsigned)x << 16); }
  static LF_DEVICE raw put(float f) {
    unsigned b = __float_as_uint(f);
    if ((b & 0x7fffffffu) > 0x7f800000u) return (raw)(b >> 16 | 0x40);
    return (raw)(lf_round_bits(b, 16) >> 16);
  }
};

struct lf_as_f16 {
  typedef unsigned short raw;
  static LF_DEVICE float get(raw h) {
    unsigned b = (unsigned)(h & 0x7fff) << 13; // exponent and mantissa where a float has them
    if (b < 1u << 23)
      b = __float_as_uint((float)b * 7.275957614183426e-12f); // a multiple of 2^-24: b 2^-37
    else if (b < 31u << 23)
      b += 112u << 23;
    else if (b == 31u << 23)
      b = 0x7f800000u;
    else
      b |= 0x7fc00000u;
    return __uint_as_float(b | (unsigned)(h & 0x8000) << 16);
  }
  static LF_DEVICE raw put(float f) {
    unsigned b = __float_as_uint(f), sign = b >> 16 & 0x8000u, abs = b & 0x7fffffffu;
    if (abs > 0x7f800000u) return (raw)(sign | 0x7e00u | (abs >> 13 & 0x1ffu));
    if (abs >= 0x477ff000u) return (raw)(sign | 0x7c00u);
    if (abs >= 0x38800000u) return (raw)(sign | (lf_round_bits(abs, 13) - (112u << 23)) >> 13);
    return (raw)(sign | (__float_as_uint(__uint_as_float(abs) + 0.5f) - 0x3f000000u));
  }
};

struct lf_as_f64 {
  typedef double raw;
  static LF_DEVICE float get(raw x) { return (float)x; }
  static LF_DEVICE raw put(float x) { return (double)x; }
};

struct lf_as_bool {
  typedef unsigned char raw;
  static LF_DEVICE float get(raw x) { return (float)x; }
  static LF_DEVICE raw put(float x) { return x != 0.0f; }
};

// For integers: the nearest number, ties to even; the smallest or largest one
// for values out of range, and 0 for NaN. LOW and PAST are the smallest number
// and the one past the largest, both of which a float holds.
#define LF_INTEGER(name, T, LOW, PAST, MIN, MAX)       \
  struct name {                                        \
    typedef T raw;                                     \
    static LF_DEVICE float get(raw x) { return (float)x; } \
    static LF_DEVICE raw put(float x) {                \
      float r = rintf(x);                              \
      if (!(r >= LOW)) return x != x ? (raw)0 : (raw)(MIN); \
      if (r >= PAST) return (raw)(MAX);                \
      return (raw)r;                                   \
    }                                                  \
  }
LF_INTEGER(lf_as_u8, unsigned char, 0.0f, 256.0f, 0, 255);
LF_INTEGER(lf_as_i8, signed char, -128.0f, 128.0f, -128, 127);
LF_INTEGER(lf_as_u16, unsigned short, 0.0f, 65536.0f, 0, 65535);
LF_INTEGER(lf_as_i16, short, -32768.0f, 32768.0f, -32768, 32767);
LF_INTEGER(lf_as_u32, unsigned, 0.0f, 4294967296.0f, 0, 0xffffffffu);
LF_INTEGER(lf_as_i32, int, -2147483648.0f, 2147483648.0f, -2147483647 - 1, 2147483647);
LF_INTEGER(lf_as_u64, unsigned long long, 0.0f, 18446744073709551616.0f, 0, 0xffffffffffffffffull);
LF_INTEGER(lf_as_i64, long long, -9223372036854775808.0f, 9223372036854775808.0f, -9223372036854775807ll - 1, 9223372036854775807ll);

// The code of the small float nearest to the float with bits abs, ties to
// even; codes continue past the largest one of the format.
LF_DEVICE unsigned lf_encode(unsigned abs, int mantissa, int bias) {
  if (abs >= (unsigned)(128 - bias) << 23) // the smallest normal number
    return (lf_round_bits(abs, 23 - mantissa) - ((unsigned)(127 - bias) << 23)) >> (23 - mantissa);
  // From here on floats are as far apart as the subnormals of the format: the
  // addition rounds, and its low bits are the result.
  unsigned magic = (unsigned)(127 + 24 - bias - mantissa) << 23;
  return __float_as_uint(__uint_as_float(abs) + __uint_as_float(magic)) - magic;
}

// The number of a code of 8 bits.
LF_DEVICE float lf_decode(unsigned code, int mantissa, int bias) {
  unsigned sign = code >> 7 << 31, abs = code & 0x7f;
  if (abs < 1u << mantissa) {
    float smallest = __uint_as_float((unsigned)(128 - bias - mantissa) << 23);
    return __uint_as_float(sign | __float_as_uint((float)abs * smallest));
  }
  return __uint_as_float(sign | ((abs << (23 - mantissa)) + ((unsigned)(127 - bias) << 23)));
}

// The 8-bit floats: E5M2 is the upper half of a 16-bit float; E4M3 has no
// infinities and stays at its largest number.
struct lf_as_f8_e5m2 {
  typedef unsigned char raw;
  static LF_DEVICE float get(raw x) { return lf_as_f16::get((unsigned short)(x << 8)); }
  static LF_DEVICE raw put(float f) {
    unsigned b = __float_as_uint(f), abs = b & 0x7fffffffu, sign = b >> 24 & 0x80u, code = lf_encode(abs, 2, 15);
    return (raw)(sign | (abs > 0x7f800000u ? 0x7fu : code < 0x7c ? code : 0x7cu));
  }
};
struct lf_as_f8_e4m3 {
  typedef unsigned char raw;
  static LF_DEVICE float get(raw x) {
    return (x & 0x7f) == 0x7f ? __uint_as_float((unsigned)x >> 7 << 31 | 0x7fc00000u) : lf_decode(x, 3, 7);
  }
  static LF_DEVICE raw put(float f) {
    unsigned b = __float_as_uint(f), abs = b & 0x7fffffffu, sign = b >> 24 & 0x80u, code = lf_encode(abs, 3, 7);
    return (raw)(sign | (abs > 0x7f800000u ? 0x7fu : code < 0x7e ? code : 0x7eu));
  }
};

// Quantized weights: blocks of 64 elements, codes followed by one float, the scale.
#define LF_QUANT_BLOCK 64

LF_DEVICE float lf_q8(const unsigned char* blocks, long long i) {
  const unsigned char* b = blocks + (i >> 6) * 68;
  return (float)(signed char)b[i & 63] * *(const float*)(b + 64);
}

// Element i of a 4-bit type; book has the numbers of its codes.
LF_DEVICE float lf_q4(const unsigned char* blocks, long long i, const float* book) {
  const unsigned char* b = blocks + (i >> 6) * 36;
  int j = (int)(i & 63);
  return book[b[j & 31] >> (j >> 5) * 4 & 15] * *(const float*)(b + 32);
}

// The code books of package quant. A switch over constants needs only
// registers and code; an array would be placed in each thread's local memory.
LF_DEVICE float lf_nf4(int code) {
  switch (code) {
    case 0: return -1.0f;
    case 1: return -0.6961928009986877f;
    case 2: return -0.5250730514526367f;
    case 3: return -0.39491748809814453f;
    case 4: return -0.28444138169288635f;
    case 5: return -0.18477343022823334f;
    case 6: return -0.09105003625154495f;
    case 7: return 0.0f;
    case 8: return 0.07958029955625534f;
    case 9: return 0.16093020141124725f;
    case 10: return 0.24611230194568634f;
    case 11: return 0.33791524171829224f;
    case 12: return 0.44070982933044434f;
    case 13: return 0.5626170039176941f;
    case 14: return 0.7229568362236023f;
  }
  return 1.0f;
}

LF_DEVICE float lf_fp4(int code) {
  float x = 0.0f;
  switch (code & 7) {
    case 1: x = (float)(0.0625 / 12.0); break;
    case 2: x = (float)(8 / 12.0); break;
    case 3: x = 1.0f; break;
    case 4: x = (float)(4 / 12.0); break;
    case 5: x = (float)(6 / 12.0); break;
    case 6: x = (float)(2 / 12.0); break;
    case 7: x = (float)(3 / 12.0); break;
  }
  return code & 8 ? -x : x;
}
