// One step of AdamW with moments of 8 bits (Dettmers et al. 2021, arXiv 2110.02861), of
// blocks of 256 elements with one scale for each moment:
//
//   m = signed[m code]·m scale,  v = unsigned[v code]·v scale
//   g' = g·scale,  m = β₁ m + (1 − β₁) g',  v = β₂ v + (1 − β₂) g'²
//   p  = p·decay − step·m / (√v/root + eps)
//   scales = max |m|, max |v|;  codes = those nearest to m/scale and v/scale
//
// Each product and sum is rounded as by the CPU, so that codes and scales have the same bits.
// A quotient is first rounded to a grid of 65536 numbers, as in bitsandbytes. rates and scale
// are those of adamw.h.
#pragma once

#include "most.h"
#include "product.h"

// Elements of a block of moments, and of a block of 256 threads.
#define LF_MOMENTS 256
#define LF_ADAMW8 (8 * LF_MOMENTS)

// Numbers of the codes of m and v, and the midpoints between them.
#define LF_BOOKS 1024

// Loads the books from maps [2, 256]; all threads of the block call it.
LF_DEVICE void lf_load_books(lf_thread t, LF_GROUP float* books, LF_GLOBAL const float* maps) {
  for (int i = t.index; i < 512; i += t.size) books[i] = maps[i];
  lf_barrier();
  for (int i = t.index; i < 512; i += t.size) books[512 + i] = (i & 255) < 255 ? 0.5f * (books[i] + books[i + 1]) : 0.0f;
  lf_barrier();
}

// The code of x by the midpoints of a book. A NaN has the code of 1.
LF_DEVICE uchar lf_moment_code(LF_GROUP const float* middles, float x) {
  x = x < 1.0f ? x : 1.0f;
  x = x > -1.0f ? x : -1.0f;
  int point = (int)(lf_product((x + 1.0f) * 0.5f, 65535.0f) + 0.5f);
  float value = -1.0f + (float)(2 * point) / 65535.0f;
  int code = 0;
#pragma unroll
  for (int step = 128; step; step >>= 1)
    if (middles[code + step - 1] < value) code += step;
  return (uchar)code;
}

struct lf_adamw8 {
  float beta1, beta1c, beta2, beta2c, eps, decay, step, root, scale;
  bool on;

  LF_DEVICE void start(LF_GLOBAL const float* rates, LF_GLOBAL const float* scale_at, float b1, float b1c, float b2, float b2c, float e) {
    beta1 = b1, beta1c = b1c, beta2 = b2, beta2c = b2c, eps = e;
    decay = rates[0], step = rates[1], root = rates[2], scale = *scale_at;
    on = (lf_bits(scale) & 0x7f800000u) != 0x7f800000u;
  }

  // The scale of a moment and its codes. All lanes of a warp call it; lane has elements lane + 32·j of the block.
  LF_DEVICE void encode(lf_thread t, LF_GROUP const float* middles, LF_PRIVATE const float (&x)[8], LF_GLOBAL uchar* codes, LF_GLOBAL float* scale_at,
                        int left) const {
    uint most = 0;
#pragma unroll
    for (int j = 0; j < 8; j++) {
      uint b = lf_bits(x[j]) & 0x7fffffffu;
      most = b > most ? b : most;
    }
    most = lf_warp_most(t, most);
    float inverse = 1.0f / lf_from_bits(most);
#pragma unroll
    for (int j = 0; j < 8; j++) {
      int i = t.lane + 32 * j;
      if (i < left) codes[i] = most ? lf_moment_code(middles, x[j] * inverse) : (uchar)0;
    }
    if (t.lane == 0 && left > 0) *scale_at = lf_from_bits(most);
  }

  // The block of moments with a number; left of its elements exist, none if it is past the last.
  LF_DEVICE void run(lf_thread t, LF_GROUP const float* books, LF_GLOBAL float* p, LF_GLOBAL uchar* mc, LF_GLOBAL uchar* vc, LF_GLOBAL float* ms,
                     LF_GLOBAL float* vs, LF_GLOBAL const float* p0, LF_GLOBAL const uchar* mc0, LF_GLOBAL const uchar* vc0,
                     LF_GLOBAL const float* ms0, LF_GLOBAL const float* vs0, LF_GLOBAL const float* g, long block, int left) const {
    const long base = block * LF_MOMENTS;
    float m[8] = {}, v[8] = {};
    // The lane that writes the scales reads them.
    const bool reads = t.lane == 0 && left > 0;
    const float m_scale = lf_warp_sum(t, reads ? ms0[block] : 0.0f), v_scale = lf_warp_sum(t, reads ? vs0[block] : 0.0f);
#pragma unroll
    for (int j = 0; j < 8; j++) {
      int i = t.lane + 32 * j;
      if (i >= left) continue;
      float slope = g[base + i] * scale;
      float a = lf_product(lf_product(books[mc0[base + i]], m_scale), beta1);
      float b = lf_product(lf_product(books[256 + vc0[base + i]], v_scale), beta2);
      m[j] = lf_fma(slope, beta1c, a);
      v[j] = lf_fma(lf_product(beta2c, slope), slope, b);
      float quotient = lf_product(step, m[j]) / (lf_sqrt(v[j]) / root + eps);
      p[base + i] = lf_product(p0[base + i], decay) - quotient;
    }
    encode(t, books + 512, m, mc + base, ms + block, left);
    encode(t, books + 768, v, vc + base, vs + block, left);
  }
};

// The elements of block number of n that exist.
LF_DEVICE int lf_moments_left(long block, long n) {
  long left = n - block * LF_MOMENTS;
  return left < 0 ? 0 : left < LF_MOMENTS ? (int)left : LF_MOMENTS;
}
