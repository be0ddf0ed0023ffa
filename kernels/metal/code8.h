// The codes of int8 weights. Metal has no double: integers give what doubles would.
#pragma once

#include "device.h"

// A magnitude m·2^e that is not zero, with 24 bits in m.
struct lf_scaled {
  uint m;
  int e;
};
inline lf_scaled lf_open_bits(uint bits) {
  lf_scaled x;
  if (bits >= 0x00800000u) {
    x.m = (bits & 0x7fffffu) | 0x800000u, x.e = (int)(bits >> 23) - 150;
  } else {
    int by = (int)clz(bits) - 8;
    x.m = bits << by, x.e = -149 - by;
  }
  return x;
}

// 127/most as a double: t·2^e with 53 bits in t, to nearest, ties to even.
struct lf_ratio {
  ulong t;
  int e;
};
inline lf_ratio lf_open_ratio(uint most) {
  lf_scaled d = lf_open_bits(most);
  // Long division: 127·2^57, of 64 bits, and 13 places more: 53 or 54 bits.
  ulong first = (127ul << 57) / d.m, rest = ((127ul << 57) - first * d.m) << 13, second = rest / d.m;
  ulong q = first << 13 | second;
  bool more = rest != second * d.m;
  lf_ratio r = {q, -70 - d.e};
  if (q >> 53) { // 54 bits: the last of them and the remainder decide
    r.t = (q >> 1) + ((q & 1) && (more || (q & 2)));
    r.e += 1;
  } else {
    ulong left = rest - second * d.m;
    r.t = q + (2 * left > d.m || (2 * left == d.m && (q & 1)));
  }
  return r;
}

// v / 2^n, to nearest, ties to even; n from 1 to 63.
inline ulong lf_shift_nearest(ulong v, int n) {
  ulong half_way = 1ul << (n - 1), left = v & (2 * half_way - 1), q = v >> n;
  return q + (left > half_way || (left == half_way && (q & 1)));
}

// The nearest integer to the product of x and r, a double.
inline int lf_code8(float x, lf_ratio r) {
  uint bits = as_type<uint>(x) & 0x7fffffffu;
  if (bits == 0) return 0;
  lf_scaled s = lf_open_bits(bits);
  // 24 times 53 bits are 76 or 77; s.m goes to the top of its word, so that the upper
  // word of the product has 53 bits or 52.
  ulong m = (ulong)s.m << 40, high = mulhi(m, r.t), low = m * r.t;
  int e = s.e + r.e + 24; // high is the number of 2^e
  if (high >> 52 == 0) high = high << 1 | low >> 63, low <<= 1, e -= 1;
  // To 53 bits, as the product of doubles is…
  ulong p = high + (low > 1ul << 63 || (low == 1ul << 63 && (high & 1)));
  // …and to an integer, of 7 bits at most.
  if (e <= -54) return 0;
  int code = (int)lf_shift_nearest(p, -e);
  return as_type<int>(x) < 0 ? -code : code;
}
