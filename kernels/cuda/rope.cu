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
// Angles are exact: positions reach millions, and the sine of a large float32
//   needs more digits of π than float32 has. In double the quarter turns are
//   taken off in two steps of fma, which leaves an error below 1e-16 for all
//   angles below 3·10⁹; a Taylor series does the rest.
// Registers: table 20 on sm_80, 22 on sm_90a; 24, and 28 for four pairs, on both;
//   26 or 27 for four pairs of neighbours.
// Reference: for i, j { a = float32(position[i])·frequency[j]
//                       table[i, j], table[i, h+j] = scale·cos(a), scale·sin(a) }
#include "row.cuh"

// Sine and cosine of an angle below 3·10⁹, each rounded once.
LF_DEVICE void lf_sincos(float angle, float* sine, float* cosine) {
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
  *sine = q & 2 ? -fs : fs;
  *cosine = (q + 1) & 2 ? -fc : fc;
}

extern "C" __global__ void __launch_bounds__(256)
    rope_table_f32(float* out, const int* positions, const float* frequencies, int n, int h, float scale) {
  long long i = (long long)blockIdx.x * 256 + threadIdx.x;
  if (i >= (long long)n * h) return;
  long long row = i / h;
  int j = (int)(i % h);
  // An angle that is no number, or past all positions, has neither.
  float angle = __fmul_rn((float)positions[row], frequencies[j]);
  float s = __uint_as_float(0x7fc00000u), c = s;
  if (fabsf(angle) < 3e9f) lf_sincos(angle, &s, &c);
  out[row * 2 * h + j] = __fmul_rn(c, scale);
  out[row * 2 * h + h + j] = __fmul_rn(s, scale);
}
LF_KERNEL(rope_table_f32);

// The numbers of V pairs of neighbours, those before and those behind: the 2·V of p
// and q are theirs in turn. The other function computes p and q from the rotated pairs.
template <int V>
LF_DEVICE void lf_apart(const lf_pack<V>& p, const lf_pack<V>& q, lf_pack<V>& x1, lf_pack<V>& x2) {
#pragma unroll
  for (int k = 0; k < V; k++) {
    x1.v[k] = 2 * k < V ? p.v[2 * k % V] : q.v[2 * k % V];
    x2.v[k] = 2 * k + 1 < V ? p.v[(2 * k + 1) % V] : q.v[(2 * k + 1) % V];
  }
}
template <int V>
LF_DEVICE void lf_in_turn(const lf_pack<V>& y1, const lf_pack<V>& y2, lf_pack<V>& p, lf_pack<V>& q) {
#pragma unroll
  for (int k = 0; k < V; k++) {
    p.v[k] = k % 2 == 0 ? y1.v[k / 2] : y2.v[k / 2];
    q.v[k] = (V + k) % 2 == 0 ? y1.v[(V + k) / 2] : y2.v[(V + k) / 2];
  }
}

// pairs counts groups of V pairs: a row has heads·h/V.
template <int V, bool NEIGHBOURS>
LF_DEVICE void lf_rope(float* out, const float* x, const float* table, long long pairs, int heads, int h, float sign) {
  long long i = (long long)blockIdx.x * 256 + threadIdx.x;
  if (i >= pairs) return;
  int groups = h / V, j;
  long long row;
  if (i >> 32 == 0) { // division of 32-bit numbers is far cheaper
    unsigned u = (unsigned)i;
    j = (int)(u % (unsigned)groups);
    row = u / (unsigned)groups / (unsigned)heads;
  } else {
    j = (int)(i % groups);
    row = i / groups / heads;
  }
  long long at = (i - j) * V; // the pairs before this head
  int first = NEIGHBOURS ? 2 * j * V : j * V, next = NEIGHBOURS ? V : h; // in the head
  const float* a = x + 2 * at + first;
  float* b = out + 2 * at + first;
  const float* t = table + row * 2 * h + j * V;
  lf_pack<V> x1, x2, c, s, y1, y2;
  x1.load(a), x2.load(a + next);
  if constexpr (NEIGHBOURS) {
    lf_pack<V> p = x1, q = x2;
    lf_apart(p, q, x1, x2);
  }
  c.load(t), s.load(t + h);
#pragma unroll
  for (int k = 0; k < V; k++) {
    float turn = sign * s.v[k];
    y1.v[k] = x1.v[k] * c.v[k] - x2.v[k] * turn;
    y2.v[k] = x2.v[k] * c.v[k] + x1.v[k] * turn;
  }
  if constexpr (NEIGHBOURS) {
    lf_pack<V> p = y1, q = y2;
    lf_in_turn(p, q, y1, y2);
  }
  y1.store(b), y2.store(b + next);
}

#define LF_ROPE(name, V, NEIGHBOURS)                                                                                \
  extern "C" __global__ void __launch_bounds__(256)                                                                 \
      name(float* out, const float* x, const float* table, long long pairs, int heads, int h, float sign) {         \
    lf_rope<V, NEIGHBOURS>(out, x, table, pairs, heads, h, sign);                                                   \
  }                                                                                                                 \
  LF_KERNEL(name);
LF_ROPE(rope_f32, 1, false)
LF_ROPE(rope_v4_f32, 4, false)
LF_ROPE(rope_neighbours_f32, 1, true)
LF_ROPE(rope_neighbours_v4_f32, 4, true)

#ifdef LF_RACE
#include "../sim/test/race.h"
LF_RACE_CASE(rope) {
  auto x = lf_race_noise<float>(3 * 4 * 16), f = lf_race_noise<float>(8);
  auto positions = lf_race_noise<int>(3);
  std::vector<float> table(3 * 16);
  lf_race_launch(rope_table_f32, {1}, {256}, 0, table.data(), positions.data(), f.data(), 3, 8, 1.0f);
  lf_race_launch(rope_f32, {1}, {256}, 0, x.data(), x.data(), table.data(), 3 * 4 * 8, 4, 8, 1.0f);
  lf_race_launch(rope_v4_f32, {1}, {256}, 0, x.data(), x.data(), table.data(), 3 * 4 * 2, 4, 8, -1.0f);
  lf_race_launch(rope_neighbours_f32, {1}, {256}, 0, x.data(), x.data(), table.data(), 3 * 4 * 8, 4, 8, 1.0f);
  lf_race_launch(rope_neighbours_v4_f32, {1}, {256}, 0, x.data(), x.data(), table.data(), 3 * 4 * 2, 4, 8, -1.0f);
}
#endif
