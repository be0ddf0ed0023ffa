// Rotary position embedding (Su et al. 2021, arXiv 2104.09864), in the
// rotate-half layout of Hugging Face, and of neighbours (…_neighbours_…), as
// diffusion transformers have it.
//
//   table:   a = round32(position · frequency); row = scale·[cos a …, sin a …]
//   forward: y[j] = x[j] cos − x[j+h] sin,  y[j+h] = x[j+h] cos + x[j] sin
//   neighbours: y[2j] = x[2j] cos − x[2j+1] sin,  y[2j+1] = x[2j+1] cos + x[2j] sin
//   inverse: the same with −sin, which is the gradient
//
// Layout: positions [n] (i32), frequencies [h], table [n, 2h]; x and y
//   [n, heads·2h], y may share the memory of x.
// Grid: 256 threads; a thread for one angle of the table, and for one or four
//   pairs of x (…_f32, …_v4_f32).
// Traffic: the table 8 bytes an angle; x and y 8 bytes an element, and the table
//   once for each row, from cache for all heads but the first.
// Angles are exact: positions reach millions, and the sine of a large float needs
//   more digits of π than a float has. The quarter turns are taken off in integers
//   (Payne and Hanek 1983, Radian reduction for trigonometric functions, SIGNUM
//   Newsletter 18(1)), and Taylor series of pairs of floats do the rest.
// Reference: for i, j { a = float32(position[i])·frequency[j]
//                       table[i, j], table[i, h+j] = scale·cos(a), scale·sin(a) }
#include "pair.h"
#include "row.h"

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

struct rope_table_f32_args { LF_ARGS; int n, h; float scale; };

LF_KERNEL(256)
rope_table_f32(device float* out [[buffer(0)]], device const int* positions [[buffer(1)]], device const float* frequencies [[buffer(2)]],
               constant rope_table_f32_args& a [[buffer(3)]], LF_THREAD) {
  LF_BEGIN;
  long i = (long)t.group.x * 256 + t.index;
  if (i >= (long)a.n * a.h) return;
  long row = (i >> 32) == 0 ? (long)((uint)i / (uint)a.h) : i / a.h; // division of 32-bit numbers is far cheaper
  int j = (int)(i - row * a.h);
  // An angle that is no number, or past all positions, has neither.
  float angle = (float)positions[row] * frequencies[j];
  float2 sc = float2(as_type<float>(0x7fc00000u), as_type<float>(0x7fc00000u));
  if (fabs(angle) < 3e9f) sc = lf_sincos(angle);
  out[row * 2 * a.h + j] = sc.y * a.scale;
  out[row * 2 * a.h + a.h + j] = sc.x * a.scale;
}

// The numbers of V pairs of neighbours, those before and those behind: the 2·V of p
// and q are theirs in turn. The other function computes p and q from the rotated pairs.
template <int V>
inline void lf_apart(thread const lf_pack<V>& p, thread const lf_pack<V>& q, thread lf_pack<V>& x1, thread lf_pack<V>& x2) {
  for (int k = 0; k < V; k++) {
    x1.v[k] = 2 * k < V ? p.v[2 * k % V] : q.v[2 * k % V];
    x2.v[k] = 2 * k + 1 < V ? p.v[(2 * k + 1) % V] : q.v[(2 * k + 1) % V];
  }
}
template <int V>
inline void lf_in_turn(thread const lf_pack<V>& y1, thread const lf_pack<V>& y2, thread lf_pack<V>& p, thread lf_pack<V>& q) {
  for (int k = 0; k < V; k++) {
    p.v[k] = k % 2 == 0 ? y1.v[k / 2] : y2.v[k / 2];
    q.v[k] = (V + k) % 2 == 0 ? y1.v[(V + k) / 2] : y2.v[(V + k) / 2];
  }
}

// pairs counts groups of V pairs: a row has heads·h/V.
template <int V, bool NEIGHBOURS>
inline void lf_rope(lf_thread t, device float* out, device const float* x, device const float* table, long pairs, int heads, int h,
                    float sign) {
  long i = (long)t.group.x * 256 + t.index;
  if (i >= pairs) return;
  int groups = h / V, j;
  long row;
  if ((i >> 32) == 0) {
    uint u = (uint)i;
    j = (int)(u % (uint)groups);
    row = u / (uint)groups / (uint)heads;
  } else {
    j = (int)(i % groups);
    row = i / groups / heads;
  }
  long at = (i - j) * V; // the pairs before this head
  int first = NEIGHBOURS ? 2 * j * V : j * V, next = NEIGHBOURS ? V : h; // in the head
  device const float* from = x + 2 * at + first;
  device float* to = out + 2 * at + first;
  device const float* turns = table + row * 2 * h + j * V;
  lf_pack<V> x1, x2, c, s, y1, y2;
  x1.load(from), x2.load(from + next);
  if (NEIGHBOURS) {
    lf_pack<V> p = x1, q = x2;
    lf_apart(p, q, x1, x2);
  }
  c.load(turns), s.load(turns + h);
  for (int k = 0; k < V; k++) {
    float turn = sign * s.v[k];
    y1.v[k] = x1.v[k] * c.v[k] - x2.v[k] * turn;
    y2.v[k] = x2.v[k] * c.v[k] + x1.v[k] * turn;
  }
  if (NEIGHBOURS) {
    lf_pack<V> p = y1, q = y2;
    lf_in_turn(p, q, y1, y2);
  }
  y1.store(to), y2.store(to + next);
}

#define LF_ROPE(name, V, NEIGHBOURS)                                                                                           \
  struct name##_args { LF_ARGS; long pairs; int heads, h; float sign; };                                                       \
  LF_KERNEL(256)                                                                                                               \
  name(device float* out [[buffer(0)]], device const float* x [[buffer(1)]], device const float* table [[buffer(2)]],          \
       constant name##_args& a [[buffer(3)]], LF_THREAD) {                                                                     \
    LF_BEGIN;                                                                                                                  \
    lf_rope<V, NEIGHBOURS>(t, out, x, table, a.pairs, a.heads, a.h, a.sign);                                                   \
  }
LF_ROPE(rope_f32, 1, false)
LF_ROPE(rope_v4_f32, 4, false)
LF_ROPE(rope_neighbours_f32, 1, true)
LF_ROPE(rope_neighbours_v4_f32, 4, true)
