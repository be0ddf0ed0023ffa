// Functions by the names that device.h of kernels/cuda gives them.
#pragma once

inline uint lf_bits(float x) { return as_type<uint>(x); }
inline float lf_from_bits(uint x) { return as_type<float>(x); }
inline uint lf_mulhi(uint a, uint b) { return mulhi(a, b); }
inline int lf_clz(uint x) { return (int)clz(x); }
inline int lf_popcount(uint x) { return (int)popcount(x); }
inline float lf_fmax(float x, float y) { return fmax(x, y); }
inline float2 make_float2(float x, float y) { return float2(x, y); }
inline float4 make_float4(float x, float y, float z, float w) { return float4(x, y, z, w); }
inline uint4 make_uint4(uint x, uint y, uint z, uint w) { return uint4(x, y, z, w); }

inline float lf_rint(float x) { return rint(x); }
inline float lf_abs(float x) { return fabs(x); }
inline float lf_fma(float x, float y, float z) { return fma(x, y, z); }
inline float lf_exp(float x) { return precise::exp(x); }
inline float lf_log(float x) { return precise::log(x); }
inline float lf_sqrt(float x) { return precise::sqrt(x); }
inline float lf_sin(float x) { return precise::sin(x); }
inline float lf_cos(float x) { return precise::cos(x); }

// tanh x = x (1 − x²/3 + …): below 2^-12 that is x, and from 10 on it is 1, where
// quotients of exponentials would overflow.
inline float lf_tanh(float x) {
  float m = fabs(x);
  if (m < 0.000244140625f) return x;
  return m > 10.0f ? copysign(1.0f, x) : precise::tanh(x);
}

// erf x = x + x p(x²) below 0.92, and 1 − exp(−q(x)) above: p and q are the
// polynomials of degree 6 nearest to erf(√u)/√u − 1 and −ln(1 − erf x) (Remez; the
// second in parts of 1 − erf x), to 2^-29 of erf. In all within 1.1 units of the last
// place, where exp is exact. From 3.95 on 1 is the nearest number.
inline float lf_erf(float x) {
  float m = fabs(x);
  if (!(m >= 0.92f)) {
    float u = x * x, p = 8.39729088e-05f;
    p = fma(p, u, -0.000814968832f);
    p = fma(p, u, 0.00520170588f);
    p = fma(p, u, -0.0268596982f);
    p = fma(p, u, 0.112837015f);
    p = fma(p, u, -0.376126342f);
    p = fma(p, u, 0.128379167f);
    return fma(x, p, x);
  }
  if (m > 3.95f) return copysign(1.0f, x);
  float q = -0.000194945687f;
  q = fma(q, m, 0.00303368257f);
  q = fma(q, m, -0.02218974f);
  q = fma(q, m, 0.103856303f);
  q = fma(q, m, 0.637265829f);
  q = fma(q, m, 1.12762736f);
  q = fma(q, m, 0.000207018233f);
  return copysign(1.0f - precise::exp(-q), x);
}

// 1 − erf(x), with a small relative error if it is a normal number. Near 0 it is
// what is left of 1. Above that, (1 + 2x) exp(x²) erfc(x) is smooth, and a polynomial in
// (x − 3)/(x + 3) (Shepherd and Laframboise 1981, Chebyshev approximation of
// (1 + 2x) exp(x²) erfc x in 0 ≤ x < ∞, Math. Comp. 36). Both are fitted at Chebyshev's
// points. As a float erfc is 0 from 10.06 on.
inline float lf_erfc(float x) {
  float a = fabs(x), square = a * a;
  if (a < 0.5f) {
    float p = fma(square, 0.00471908273f, -0.026757732f);
    p = fma(p, square, 0.112828314f);
    p = fma(p, square, -0.376126081f);
    return fma(-x, fma(p, square, 1.12837911f), 1.0f);
  }
  if (a > 10.5f) a = 10.5f, square = a * a; // no number stays none
  float t = (a - 3.0f) / (a + 3.0f);
  float p = fma(t, -0.000273596001f, -0.000788120728f);
  p = fma(p, t, 0.00200177124f);
  p = fma(p, t, 0.00257685641f);
  p = fma(p, t, -0.0237946641f);
  p = fma(p, t, 0.0682930276f);
  p = fma(p, t, -0.119271919f);
  p = fma(p, t, 0.129646719f);
  p = fma(p, t, -0.0475623198f);
  p = fma(p, t, -0.135621145f);
  p = 1.25300801f + fma(p, t, 5.01338029e-08f);
  // The quotient by 1 + 2x, and the rounding errors of quotient and square.
  float f = 1.0f / fma(2.0f, a, 1.0f), q = p * f;
  float rest = fma(-2.0f * a, q, p) - q;
  q += fma(rest, f, -q * fma(a, a, -square));
  q *= exp(-square);
  return x < 0.0f ? 2.0f - q : q;
}
