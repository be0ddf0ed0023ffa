// Activations and their slopes:
//
//   silu:      x σ(x)
//   gelu:      x Φ(x), Φ the normal distribution function
//   gelu_tanh: ½x (1 + tanh(u/2)) = x σ(u), u = 2√(2/π) (x + 0.044715 x³)
//   quick_gelu: x σ(1.702 x)
#pragma once

#include "device.h"

struct lf_act_value {
  float value, slope;
};

// σ(x), and σ'(x) without the cancellation of 1 − σ(x).
LF_DEVICE lf_act_value lf_sigmoid(float x) {
  float e = lf_exp(-lf_abs(x)), inv = 1.0f / (1.0f + e);
  lf_act_value r = {x < 0.0f ? e * inv : inv, e * inv * inv};
  return r;
}

struct lf_silu {
  static LF_DEVICE float value(float x) { return x * lf_sigmoid(x).value; }
  static LF_DEVICE lf_act_value both(float x) {
    lf_act_value g = lf_sigmoid(x), r = {x * g.value, g.value + x * g.slope};
    return r;
  }
};

struct lf_gelu {
  static LF_DEVICE float cdf(float x) { return 0.5f * lf_erfc(-0.70710678f * x); }
  static LF_DEVICE float value(float x) { return x * cdf(x); }
  static LF_DEVICE lf_act_value both(float x) {
    float p = cdf(x);
    lf_act_value r = {x * p, p + x * (0.39894228f * lf_exp(-0.5f * x * x))};
    return r;
  }
};

struct lf_gelu_tanh {
  static LF_DEVICE float inner(float x) { return 1.5957691216f * (x + 0.044715f * x * x * x); }
  static LF_DEVICE float value(float x) { return x * lf_sigmoid(inner(x)).value; }
  static LF_DEVICE lf_act_value both(float x) {
    lf_act_value g = lf_sigmoid(inner(x));
    lf_act_value r = {x * g.value, g.value + x * g.slope * (1.5957691216f * (1.0f + 0.134145f * x * x))};
    return r;
  }
};

struct lf_quick_gelu {
  static LF_DEVICE float value(float x) { return x * lf_sigmoid(1.702f * x).value; }
  static LF_DEVICE lf_act_value both(float x) {
    lf_act_value g = lf_sigmoid(1.702f * x), r = {x * g.value, g.value + 1.702f * x * g.slope};
    return r;
  }
};

// The activation with the number that ir.Activation has, of GLUs.
LF_DEVICE float lf_act(int act, float x) {
  switch (act) {
    case 0: return lf_silu::value(x);
    case 1: return lf_gelu::value(x);
  }
  return lf_gelu_tanh::value(x);
}
// The activation with that number, and its slope.
LF_DEVICE lf_act_value lf_act_both(int act, float x) {
  switch (act) {
    case 0: return lf_silu::both(x);
    case 1: return lf_gelu::both(x);
  }
  return lf_gelu_tanh::both(x);
}
