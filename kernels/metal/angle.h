// Sine and cosine of large angles. Positions reach millions, and the sine of a large float
// needs more digits of π than a float has. The quarter turns are subtracted in integers
// (Payne and Hanek 1983, Radian reduction for trigonometric functions, SIGNUM Newsletter
// 18(1)), and Taylor series of pairs of floats do the rest.
#pragma once

#include "pair.h"

// The number of quarter turns in an angle from π/4 to 3·10⁹, to the nearest one and modulo whole
// turns, and the remainder between −π/4 and π/4. In an angle m·2^(s−24), with m of 24 bits, are
// m·((2/π)·2^s)·2^-24 quarter turns; what is left out of 2/π is below 2^-72 of one.
inline uint lf_quarters(float angle, thread lf_pair& left) {
  uint bits = as_type<uint>(angle), s = (bits >> 23) - 126;
  ulong m = (bits & 0x7fffffu) | 0x800000u;
  // (2/π)·2^s: 32 bits before the point, 96 after it.
  uint w0 = (uint)((0x00000000A2F9836Eul << s) >> 32);
  uint w1 = (uint)((0xA2F9836E4E441529ul << s) >> 32);
  uint w2 = (uint)((0x4E441529FC2757D1ul << s) >> 32);
  uint w3 = (uint)((0xFC2757D1F534DDC0ul << s) >> 32);
  ulong p3 = m * w3, p2 = m * w2 + (p3 >> 32), p1 = m * w1 + (p2 >> 32);
  uint p0 = (uint)m * w0 + (uint)(p1 >> 32);
  // The point is 8 bits into p0, followed by three parts that floats can hold.
  uint quarters = p0 >> 24, a = p0 & 0xffffffu, b = (uint)p1 >> 8, c = ((uint)p1 & 0xffu) << 16 | (uint)p2 >> 16;
  float sign = 1.0f;
  if (a >> 23) { // a half or more is taken from the next quarter
    quarters++;
    a ^= 0xffffffu, b ^= 0xffffffu, c ^= 0xffffffu;
    sign = -1.0f;
  }
  lf_pair r = lf_two_sum((float)a * 5.9604645e-08f, (float)b * 3.5527137e-15f), c2pi = {sign * 1.57079637f, sign * -4.37113883e-08f};
  r.lo += (float)c * 2.1175824e-22f;
  left = lf_pair_mul(r, c2pi);
  return quarters;
}

// c0 + z·(c1 + z·c), where the last coefficient is a float.
inline lf_pair lf_series(lf_pair z, lf_pair c0, lf_pair c1, float c) {
  lf_pair last = {z.hi * c, 0.0f};
  return lf_pair_add(c0, lf_pair_mul(z, lf_pair_add(c1, last)));
}

// Sine and cosine of an angle below 3·10⁹, each rounded about once.
inline float2 lf_sincos(float angle) {
  float size = fabs(angle);
  lf_pair r = {size, 0.0f}, one = {1.0f, 0.0f};
  uint q = 0;
  if (size > 0.785398f) q = lf_quarters(size, r);
  lf_pair z = lf_pair_mul(r, r);
  float s = fma(z.hi, 1.60590444e-10f, -2.50521079e-08f);
  s = fma(z.hi, s, 2.75573188e-06f);
  s = fma(z.hi, s, -0.000198412701f);
  float c = fma(z.hi, 2.08767559e-09f, -2.755732e-07f);
  c = fma(z.hi, c, 2.48015876e-05f);
  c = fma(z.hi, c, -0.00138888892f);
  lf_pair s2 = {-0.166666672f, 4.96705388e-09f}, s4 = {0.00833333377f, -4.34617203e-10f};
  lf_pair c2 = {-0.5f, 0.0f}, c4 = {0.0416666679f, -1.24176347e-09f};
  lf_pair sine = lf_pair_add(r, lf_pair_mul(lf_pair_mul(z, r), lf_series(z, s2, s4, s)));
  lf_pair cosine = lf_pair_add(one, lf_pair_mul(z, lf_series(z, c2, c4, c)));
  float fs = lf_pair_float(q & 1 ? cosine : sine), fc = lf_pair_float(q & 1 ? sine : cosine);
  if (q & 2) fs = -fs;
  if ((q + 1) & 2) fc = -fc;
  return float2(angle < 0.0f ? -fs : fs, fc);
}
