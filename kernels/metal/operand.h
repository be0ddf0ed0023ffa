// Operands of products, eight elements at a time: how they lie in memory and how
// they become numbers. A launch chooses the load method of an operand by address
// and row length. Operands that wide loads cannot read use LF_ANY, element by
// element. Elements are aligned to their own size, quantized blocks to 4 bytes.
#pragma once

#include "bf16.h"
#include "philox.h"

// Element types of an operand. Quantised ones and F8 are of second operands alone.
#define LF_KIND_F32 0
#define LF_KIND_F16 1
#define LF_KIND_BF16 2
#define LF_KIND_Q8 3
#define LF_KIND_NF4 4
#define LF_KIND_FP4 5
#define LF_KIND_F8 6 // F8_E4M3; the launch may have scales of rows or of blocks

// Ways of an operand into threadgroup memory or registers.
#define LF_ANY 0  // any row length
#define LF_COPY 1 // bf16, rows of a multiple of 8 elements on 16 bytes
#define LF_WIDE 2 // f32 and f16, rows of a multiple of 16 bytes on 16 bytes; quantised, rows of whole blocks;
                  // F8, rows of a multiple of 16 bytes on 16 bytes

inline constant float* lf_book(int kind) { return kind == LF_KIND_FP4 ? lf_fp4_book : lf_nf4_book; }

// Two halves of a word, the first in its lower bits.
inline float2 lf_halves(uint w) { return float2(lf_as_f16::get((ushort)w), lf_as_f16::get((ushort)(w >> 16))); }

// Element i of an operand, however long its rows are.
inline float lf_element(int kind, device const uchar* p, long i) {
  switch (kind) {
    case LF_KIND_F32: return ((device const float*)p)[i];
    case LF_KIND_F16: return lf_as_f16::get(((device const ushort*)p)[i]);
    case LF_KIND_BF16: return lf_as_bf16::get(((device const ushort*)p)[i]);
    case LF_KIND_Q8: return lf_q8(p, i);
    case LF_KIND_F8: return lf_as_f8_e4m3::get(p[i]);
  }
  return lf_q4(p, i, lf_book(kind));
}

// The four codes of a word of Q8, times their scale.
inline float4 lf_codes8(uint w, float scale) {
  return float4((float)(char)w * scale, (float)(char)(w >> 8) * scale, (float)(char)(w >> 16) * scale, (float)(char)(w >> 24) * scale);
}

// The lower code of each byte of a word of a 4-bit type, times their scale.
inline float4 lf_codes4(uint w, float scale, constant float* book) {
  return float4(book[w & 15] * scale, book[w >> 8 & 15] * scale, book[w >> 16 & 15] * scale, book[w >> 24 & 15] * scale);
}

// The four numbers of a word of F8.
inline float4 lf_codes_f8(uint w) {
  return float4(lf_as_f8_e4m3::get((uchar)w), lf_as_f8_e4m3::get((uchar)(w >> 8)), lf_as_f8_e4m3::get((uchar)(w >> 16)),
                lf_as_f8_e4m3::get((uchar)(w >> 24)));
}

// The rows and columns of F8 that share a scale, as powers of two, from the flags of the operand: bits 8 to 12, and 31
// minus bits 13 to 17. Blocks have at least 4 rows and 8 columns; no bits are scales of rows.
#define LF_BLOCK_ROWS(flags) ((int)((flags) >> 8) & 31)
#define LF_BLOCK_COLUMNS(flags) (((int)((flags) >> 13) & 31) ^ 31)

// The number of the scale of an element of F8, with the given number of columns in a row of memory.
inline int lf_scale_at(uint flags, int row, int column, int columns) {
  int c = LF_BLOCK_COLUMNS(flags);
  return (row >> LF_BLOCK_ROWS(flags)) * (((columns - 1) >> c) + 1) + (column >> c);
}

// Dropout: the elements of x that are kept, according to internal/philox, and
// their factor.
struct lf_drop {
  device const uint* key; // seed low, seed high, step
  uint stream, threshold;
  float scale;
};

// For tiles without dropout.
inline lf_drop lf_no_drop() {
  lf_drop d = {nullptr, 0, 0, 1.0f};
  return d;
}

// dropout of the four elements from i on.
inline float4 lf_dropped(lf_drop d, long i, float4 v) {
  uint4 w = lf_philox(d.key, d.stream, i >> 2);
  int skip = (int)(i & 3);
  if (skip) { // they are in two blocks of words
    uint4 n = lf_philox(d.key, d.stream, (i >> 2) + 1);
    if (skip == 1) w = uint4(w.y, w.z, w.w, n.x);
    else if (skip == 2) w = uint4(w.z, w.w, n.x, n.y);
    else w = uint4(w.w, n.x, n.y, n.z);
  }
  return float4(w.x >= d.threshold ? v.x * d.scale : 0.0f, w.y >= d.threshold ? v.y * d.scale : 0.0f,
                w.z >= d.threshold ? v.z * d.scale : 0.0f, w.w >= d.threshold ? v.w * d.scale : 0.0f);
}
