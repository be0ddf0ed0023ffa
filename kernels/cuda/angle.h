// Sine and cosine of large angles. Positions reach millions, and the sine of a large float
// needs more digits of π than a float has. In double the quarter turns are subtracted in two
// steps of fma, which leaves an error below 1e-16 for all angles below 3·10⁹; a Taylor series
// does the rest. Metal has no double, and has its own file.
#pragma once

#include "device.h"

// Sine and cosine of an angle below 3·10⁹, each rounded once.
LF_DEVICE float2 lf_sincos(float angle) {
  double a = (double)angle;
  double turns = rint(a * 0.63661977236758138);  // 2/π
  double r = fma(-turns, 1.5707963267948966, a); // π/2 in 106 bits
  r = fma(-turns, 6.123233995736766e-17, r);
  double z = r * r;
  double s = fma(z, 1.6059043836821613e-10, -2.5052108385441720e-08);
  s = fma(z, s, 2.7557319223985893e-06);
  s = fma(z, s, -1.9841269841269841e-04);
  s = fma(z, s, 8.3333333333333332e-03);
  s = fma(z, s, -1.6666666666666666e-01);
  s = fma(z * r, s, r);
  double c = fma(z, -1.1470745597729725e-11, 2.0876756987868100e-09);
  c = fma(z, c, -2.7557319223985888e-07);
  c = fma(z, c, 2.4801587301587302e-05);
  c = fma(z, c, -1.3888888888888889e-03);
  c = fma(z, c, 4.1666666666666664e-02);
  c = fma(z, c, -0.5);
  c = fma(z, c, 1.0);
  int q = (int)turns;
  float fs = (float)(q & 1 ? c : s), fc = (float)(q & 1 ? s : c);
  return make_float2(q & 2 ? -fs : fs, (q + 1) & 2 ? -fc : fc);
}
