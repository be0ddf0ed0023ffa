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
