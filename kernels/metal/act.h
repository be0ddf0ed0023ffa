// Activations and their slopes:
//
//   silu:      x σ(x)
//   gelu:      x Φ(x), Φ the normal distribution function
//   gelu_tanh: ½x (1 + tanh(u/2)) = x σ(u), u = 2√(2/π) (x + 0.044715 x³)
#pragma once

#include "device.h"

struct lf_act_value {
  float value, slope;
};

// σ(x), and σ'(x) without the cancellation of 1 − σ(x).
inline lf_act_value lf_sigmoid(float x) {
  float e = exp(-fabs(x)), inv = 1.0f / (1.0f + e);
  lf_act_value r = {x < 0.0f ? e * inv : inv, e * inv * inv};
  return r;
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

struct lf_silu {
  static float value(float x) { return x * lf_sigmoid(x).value; }
  static lf_act_value both(float x) {
    lf_act_value g = lf_sigmoid(x), r = {x * g.value, g.value + x * g.slope};
    return r;
  }
};

struct lf_gelu {
  static float cdf(float x) { return 0.5f * lf_erfc(-0.70710678f * x); }
  static float value(float x) { return x * cdf(x); }
  static lf_act_value both(float x) {
    float p = cdf(x);
    lf_act_value r = {x * p, p + x * (0.39894228f * exp(-0.5f * x * x))};
    return r;
  }
};

struct lf_gelu_tanh {
  static float inner(float x) { return 1.5957691216f * (x + 0.044715f * x * x * x); }
  static float value(float x) { return x * lf_sigmoid(inner(x)).value; }
  static lf_act_value both(float x) {
    lf_act_value g = lf_sigmoid(inner(x));
    lf_act_value r = {x * g.value, g.value + x * g.slope * (1.5957691216f * (1.0f + 0.134145f * x * x))};
    return r;
  }
};

// The activation with the number that ir.Activation has, of GLUs.
inline float lf_act(int act, float x) {
  switch (act) {
    case 0: return lf_silu::value(x);
    case 1: return lf_gelu::value(x);
  }
  return lf_gelu_tanh::value(x);
}
