// The products of a launch. A kernel takes them as plain parameters, five for each of up to eight
// products, after step_a and step_b, and selects one by a switch. Parameters are in constant memory,
// and a dynamic index would first copy all of them. LF_SCALES, for kernels that take B in 8-bit
// floats, are the scales of the rows or blocks of up to three B.
#pragma once

#include "operand.cuh"

// The description of an operand by a launch, six bits each: load method,
// kind, and whether the k axis is contiguous. Of B two bits follow for its scales, and ten for
// their blocks.
#define LF_WAY(flags) ((int)(flags) & 3)
#define LF_KIND(flags) ((int)((flags) >> 2) & 7)
#define LF_ALONG_K(flags) ((flags) >> 5 & 1)
// The number of the scales of B, from 1 on, or 0, from the flags of both operands.
#define LF_SCALED(flags) ((flags) >> 14 & 3)

struct lf_product {
  const unsigned char *a, *b;
  int k;
  unsigned flags; // of A, and of B from bit 8 on
  float alpha;
};

struct lf_products {
  lf_product p[8];
  long long step_a, step_b; // bytes between the matrices of a batch, which has one product
  int matrix;
  const float *scale0, *scale1, *scale2;
};

// The scales of B of a product, or null.
LF_DEVICE const float* lf_scales_of(const lf_products& s, unsigned flags) {
  unsigned i = LF_SCALED(flags);
  return i == 0 ? nullptr : i == 1 ? s.scale0 : i == 2 ? s.scale1 : s.scale2;
}

LF_DEVICE lf_product lf_pick(const lf_products& s, int i) {
  switch (i) {
    case 0: {
      lf_product p = s.p[0];
      p.a += s.matrix * s.step_a, p.b += s.matrix * s.step_b;
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

#define LF_PRODUCT(i) const unsigned char *a##i, const unsigned char *b##i, int k##i, unsigned flags##i, float alpha##i
#define LF_PRODUCT_LIST \
  LF_PRODUCT(0), LF_PRODUCT(1), LF_PRODUCT(2), LF_PRODUCT(3), LF_PRODUCT(4), LF_PRODUCT(5), LF_PRODUCT(6), LF_PRODUCT(7)
#define LF_PRODUCTS long long step_a, long long step_b, LF_PRODUCT_LIST
#define LF_SCALES const float *scale0, const float *scale1, const float *scale2
#define LF_PRODUCT_OF(i) {a##i, b##i, k##i, flags##i, alpha##i}
#define LF_PRODUCTS_FROM(step_a, step_b)                                                                          \
  {                                                                                                               \
    {                                                                                                             \
      LF_PRODUCT_OF(0), LF_PRODUCT_OF(1), LF_PRODUCT_OF(2), LF_PRODUCT_OF(3), LF_PRODUCT_OF(4), LF_PRODUCT_OF(5), \
          LF_PRODUCT_OF(6), LF_PRODUCT_OF(7)                                                                      \
    }, step_a, step_b, 0, nullptr, nullptr, nullptr                                                               \
  }
#define LF_PRODUCTS_OF LF_PRODUCTS_FROM(step_a, step_b)
