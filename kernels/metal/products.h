// The products of a launch, up to eight. A kernel takes their operands as sixteen
// buffers, LF_PRODUCTS, and the other numbers as fields of its arguments,
// LF_PRODUCTS_ARGS; LF_PRODUCTS_OF combines the two. LF_SCALES, for kernels that take B in
// 8-bit floats, are buffers with the scales of the rows or blocks of up to three B.
#pragma once

#include "operand.h"

// The description of an operand by a launch, six bits each: load method,
// kind, and whether the k axis is contiguous. Of B two bits follow for its scales, and ten for
// their blocks.
#define LF_WAY(flags) ((int)(flags) & 3)
#define LF_KIND(flags) ((int)((flags) >> 2) & 7)
#define LF_ALONG_K(flags) (((flags) >> 5 & 1) != 0)
// The number of the scales of B, from 1 on, or 0, from the flags of both operands.
#define LF_SCALED(flags) ((flags) >> 14 & 3)

struct lf_product {
  device const uchar* a;
  device const uchar* b;
  int k;
  uint flags; // of A, and of B from bit 8 on
  float alpha;
};

struct lf_products {
  lf_product p[8];
  long step_a, step_b; // bytes between the matrices of a batch, which has one product
  int matrix;
  device const float* scale[3];
};

// The scales of B of a product, if LF_SCALED.
inline device const float* lf_scales_of(thread const lf_products& s, uint flags) {
  uint i = LF_SCALED(flags);
  return i < 2 ? s.scale[0] : i == 2 ? s.scale[1] : s.scale[2];
}

// Product i: a switch, since an index that is not known would keep all of them in the
// memory of each thread.
inline lf_product lf_pick(thread const lf_products& s, int i) {
  switch (i) {
    case 0: {
      lf_product p = s.p[0];
      p.a += s.matrix * s.step_a;
      p.b += s.matrix * s.step_b;
      return p;
    }
    case 1: return s.p[1];
    case 2: return s.p[2];
    case 3: return s.p[3];
    case 4: return s.p[4];
    case 5: return s.p[5];
    case 6: return s.p[6];
  }
  return s.p[7];
}

// The one product of a launch that has no more.
inline lf_products lf_one_product(device const uchar* a, device const uchar* b, int k, uint flags) {
  lf_product one = {a, b, k, flags, 1.0f}, none = {a, b, 0, 0, 0.0f};
  lf_products all = {{one, none, none, none, none, none, none, none}, 0, 0, 0, {}};
  return all;
}

// The parameters, with the numbers of their buffers.
#define LF_PRODUCT(i, A, B) device const uchar *a##i [[buffer(A)]], device const uchar *b##i [[buffer(B)]]
#define LF_PRODUCTS(A0, B0, A1, B1, A2, B2, A3, B3, A4, B4, A5, B5, A6, B6, A7, B7)                                         \
  LF_PRODUCT(0, A0, B0), LF_PRODUCT(1, A1, B1), LF_PRODUCT(2, A2, B2), LF_PRODUCT(3, A3, B3), LF_PRODUCT(4, A4, B4),        \
      LF_PRODUCT(5, A5, B5), LF_PRODUCT(6, A6, B6), LF_PRODUCT(7, A7, B7)

#define LF_SCALES(S0, S1, S2)                                                                      \
  device const float *scale0 [[buffer(S0)]], device const float *scale1 [[buffer(S1)]], device const float *scale2 [[buffer(S2)]]

#define LF_PRODUCT_ARGS(i) \
  int k##i;                \
  uint flags##i;           \
  float alpha##i
#define LF_PRODUCT_ARGS_LIST \
  LF_PRODUCT_ARGS(0);        \
  LF_PRODUCT_ARGS(1);        \
  LF_PRODUCT_ARGS(2);        \
  LF_PRODUCT_ARGS(3);        \
  LF_PRODUCT_ARGS(4);        \
  LF_PRODUCT_ARGS(5);        \
  LF_PRODUCT_ARGS(6);        \
  LF_PRODUCT_ARGS(7)
#define LF_PRODUCTS_ARGS \
  long step_a, step_b;   \
  LF_PRODUCT_ARGS_LIST

#define LF_PRODUCT_OF(a, i) {a##i, b##i, a.k##i, a.flags##i, a.alpha##i}
#define LF_PRODUCTS_FROM(a, step_a, step_b)                                                                    \
  {                                                                                                            \
    {                                                                                                          \
      LF_PRODUCT_OF(a, 0), LF_PRODUCT_OF(a, 1), LF_PRODUCT_OF(a, 2), LF_PRODUCT_OF(a, 3), LF_PRODUCT_OF(a, 4), \
          LF_PRODUCT_OF(a, 5), LF_PRODUCT_OF(a, 6), LF_PRODUCT_OF(a, 7)                                        \
    }, step_a, step_b, 0, {scale0, scale1, scale2}                                                             \
  }
#define LF_PRODUCTS_OF(a) LF_PRODUCTS_FROM(a, a.step_a, a.step_b)
