// Operands of products, eight elements at a time: how they lie in memory and how
// they become bfloat16 pairs for the tensor cores, or floats. A launch chooses
// the load method of an operand by address and row length. Operands that wide
// loads cannot read use LF_ANY, element by element and byte by byte.
#pragma once

#include "element.h"
#include "philox.h"

// Element types of an operand. Quantised ones and F8 are of second operands alone.
#define LF_KIND_F32 0
#define LF_KIND_F16 1
#define LF_KIND_BF16 2
#define LF_KIND_Q8 3
#define LF_KIND_NF4 4
#define LF_KIND_FP4 5
#define LF_KIND_F8 6 // F8_E4M3; the launch may have scales of rows or of blocks

// Ways of an operand into shared memory or registers.
#define LF_ANY 0  // any address and row length
#define LF_COPY 1 // bf16, rows of a multiple of 8 elements on 16 bytes: copied unchanged
#define LF_WIDE 2 // f32 and f16, rows of a multiple of 16 bytes on 16 bytes; quantised, rows of whole blocks on 4 bytes;
                  // F8, rows of a multiple of 16 bytes on 16 bytes

#define LF_BOOKS 32 // numbers of both code books, NF4's first

LF_DEVICE void lf_open_books(float* books) {
  if (threadIdx.x < 16) books[threadIdx.x] = lf_nf4(threadIdx.x), books[16 + threadIdx.x] = lf_fp4(threadIdx.x);
}

LF_DEVICE const float* lf_book(int kind, const float* books) { return books + (kind == LF_KIND_FP4 ? 16 : 0); }

// Words at any address.
LF_DEVICE unsigned lf_word16(const unsigned char* p) {
  if (((size_t)p & 1) == 0) return *(const unsigned short*)p;
  return p[0] | (unsigned)p[1] << 8;
}
LF_DEVICE unsigned lf_word32(const unsigned char* p) {
  if (((size_t)p & 3) == 0) return *(const unsigned*)p;
  return lf_word16(p) | lf_word16(p + 2) << 16;
}

// Element i of an operand at any alignment.
LF_DEVICE float lf_element(int kind, const unsigned char* p, long long i, const float* books) {
  switch (kind) {
    case LF_KIND_F32: return __uint_as_float(lf_word32(p + 4 * i));
    case LF_KIND_F16: return lf_unpack_f16(lf_word16(p + 2 * i)).x;
    case LF_KIND_BF16: return lf_unpack_bf16(lf_word16(p + 2 * i)).x;
    case LF_KIND_Q8: {
      const unsigned char* b = p + (i >> 6) * 68;
      return (float)(signed char)b[i & 63] * __uint_as_float(lf_word32(b + 64));
    }
    case LF_KIND_F8: return lf_as_f8_e4m3::get(p[i]);
  }
  const unsigned char* b = p + (i >> 6) * 36;
  int j = (int)(i & 63);
  return lf_book(kind, books)[b[j & 31] >> (j >> 5) * 4 & 15] * __uint_as_float(lf_word32(b + 32));
}

// The four codes of a word of Q8, times their scale.
LF_DEVICE float4 lf_codes8(unsigned w, float scale) {
  return make_float4((float)(signed char)w * scale, (float)(signed char)(w >> 8) * scale, (float)(signed char)(w >> 16) * scale,
                     (float)(signed char)(w >> 24) * scale);
}

// The lower code of each byte of a word of a 4-bit type, times their scale.
LF_DEVICE float4 lf_codes4(unsigned w, float scale, const float* book) {
  return make_float4(book[w & 15] * scale, book[w >> 8 & 15] * scale, book[w >> 16 & 15] * scale, book[w >> 24 & 15] * scale);
}

#define LF_F8_UNIT 256.0f

// The four numbers of a word of F8, divided by LF_F8_UNIT: their bits where a 16-bit float has
// them, whose exponent is 8 larger for the same number. A byte of bits 0x7f is not a number.
LF_DEVICE float4 lf_codes_f8(unsigned w) {
  unsigned nan = (w & 0x7f7f7f7fu) + 0x01010101u; // the highest bit of a byte
  float2 odd = lf_unpack_f16((w & 0x80008000u) | ((w & 0x7f007f00u) | (nan & 0x80008000u)) >> 1);
  w <<= 8, nan <<= 8;
  float2 even = lf_unpack_f16((w & 0x80008000u) | ((w & 0x7f007f00u) | (nan & 0x80008000u)) >> 1);
  return make_float4(even.x, odd.x, even.y, odd.y);
}

// The same, times a scale.
LF_DEVICE float4 lf_codes_f8(unsigned w, float scale) {
  float4 v = lf_codes_f8(w);
  scale *= LF_F8_UNIT;
  return make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
}

// The rows and columns of F8 that share a scale, as powers of two, from the flags of the operand: bits 8 to 12, and 31
// minus bits 13 to 17. Blocks have at least 4 rows and 8 columns; no bits are scales of rows.
#define LF_BLOCK_ROWS(flags) ((int)((flags) >> 8) & 31)
#define LF_BLOCK_COLUMNS(flags) (((int)((flags) >> 13) & 31) ^ 31)

// The number of the scale of an element of F8, with the given number of columns in a row of memory.
LF_DEVICE int lf_scale_at(unsigned flags, int row, int column, int columns) {
  int c = LF_BLOCK_COLUMNS(flags);
  return (row >> LF_BLOCK_ROWS(flags)) * (((columns - 1) >> c) + 1) + (column >> c);
}

// Dropout: the elements of x that are kept, according to internal/philox, and
// their factor.
struct lf_drop {
  unsigned key[3], stream, threshold;  // key: seed low, seed high, step
  float scale;
};

LF_DEVICE lf_drop lf_open_drop(const unsigned* key, unsigned stream, unsigned threshold, float scale) {
  lf_drop d = {{key[0], key[1], key[2]}, stream, threshold, scale};
  return d;
}

// dropout of the four elements from i on.
LF_DEVICE float4 lf_dropped(const lf_drop& d, long long i, float4 v) {
  uint4 w = lf_philox(d.key, d.stream, i >> 2);
  int skip = (int)(i & 3);
  if (skip) { // they are in two blocks of words
    uint4 n = lf_philox(d.key, d.stream, (i >> 2) + 1);
    if (skip == 1) w = make_uint4(w.y, w.z, w.w, n.x);
    else if (skip == 2) w = make_uint4(w.z, w.w, n.x, n.y);
    else w = make_uint4(w.w, n.x, n.y, n.z);
  }
  return make_float4(w.x >= d.threshold ? v.x * d.scale : 0.0f, w.y >= d.threshold ? v.y * d.scale : 0.0f,
                     w.z >= d.threshold ? v.z * d.scale : 0.0f, w.w >= d.threshold ? v.w * d.scale : 0.0f);
}
