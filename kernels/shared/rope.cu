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
// Angles are exact (angle.h).
// Registers: table 20 on sm_80, 22 on sm_90a; 24, and 28 for four pairs, on both;
//   26 or 27 for four pairs of neighbours.
// Reference: for i, j { a = float32(position[i])·frequency[j]
//                       table[i, j], table[i, h+j] = scale·cos(a), scale·sin(a) }
#include "angle.h"
#include "pack.h"

LF_ENTRY(256, rope_table_f32, ((float, out), (const int, positions), (const float, frequencies)), ((int, n), (int, h), (float, scale))) {
  long i = (long)t.group.x * 256 + t.index;
  if (i >= (long)n * h) return;
  long row = i >> 32 == 0 ? (long)((uint)i / (uint)h) : i / h; // division of 32-bit numbers is far cheaper
  int j = (int)(i - row * h);
  // An angle that is NaN, or past all positions, has neither.
  float angle = (float)positions[row] * frequencies[j];
  float2 sc = make_float2(lf_from_bits(0x7fc00000u), lf_from_bits(0x7fc00000u));
  if (lf_abs(angle) < 3e9f) sc = lf_sincos(angle);
  out[row * 2 * h + j] = sc.y * scale;
  out[row * 2 * h + h + j] = sc.x * scale;
}

// The numbers of V pairs of neighbours, those before and those behind: the 2·V of p
// and q are theirs in turn. The other function computes p and q from the rotated pairs.
template <int V>
LF_DEVICE void lf_apart(LF_PRIVATE const lf_pack<V>& p, LF_PRIVATE const lf_pack<V>& q, LF_PRIVATE lf_pack<V>& x1, LF_PRIVATE lf_pack<V>& x2) {
#pragma unroll
  for (int k = 0; k < V; k++) {
    x1.v[k] = 2 * k < V ? p.v[2 * k % V] : q.v[2 * k % V];
    x2.v[k] = 2 * k + 1 < V ? p.v[(2 * k + 1) % V] : q.v[(2 * k + 1) % V];
  }
}
template <int V>
LF_DEVICE void lf_in_turn(LF_PRIVATE const lf_pack<V>& y1, LF_PRIVATE const lf_pack<V>& y2, LF_PRIVATE lf_pack<V>& p, LF_PRIVATE lf_pack<V>& q) {
#pragma unroll
  for (int k = 0; k < V; k++) {
    p.v[k] = k % 2 == 0 ? y1.v[k / 2] : y2.v[k / 2];
    q.v[k] = (V + k) % 2 == 0 ? y1.v[(V + k) / 2] : y2.v[(V + k) / 2];
  }
}

// pairs counts groups of V pairs: a row has heads·h/V.
template <int V, bool NEIGHBOURS>
LF_DEVICE void lf_rope(lf_thread t, LF_GLOBAL float* out, LF_GLOBAL const float* x, LF_GLOBAL const float* table, long pairs, int heads, int h,
                    float sign) {
  long i = (long)t.group.x * 256 + t.index;
  if (i >= pairs) return;
  int groups = h / V, j;
  long row;
  if (i >> 32 == 0) { // division of 32-bit numbers is far cheaper
    uint u = (uint)i;
    j = (int)(u % (uint)groups);
    row = u / (uint)groups / (uint)heads;
  } else {
    j = (int)(i % groups);
    row = i / groups / heads;
  }
  long at = (i - j) * V; // the pairs before this head
  int first = NEIGHBOURS ? 2 * j * V : j * V, next = NEIGHBOURS ? V : h; // in the head
  LF_GLOBAL const float* from = x + 2 * at + first;
  LF_GLOBAL float* to = out + 2 * at + first;
  LF_GLOBAL const float* turns = table + row * 2 * h + j * V;
  lf_pack<V> x1, x2, c, s, y1, y2;
  x1.load(from), x2.load(from + next);
  if (NEIGHBOURS) {
    lf_pack<V> p = x1, q = x2;
    lf_apart(p, q, x1, x2);
  }
  c.load(turns), s.load(turns + h);
#pragma unroll
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

#define LF_ROPE(name, V, NEIGHBOURS)                                                                     \
  LF_ENTRY(256, name, ((float, out), (const float, x), (const float, table)),                            \
           ((long, pairs), (int, heads), (int, h), (float, sign))) {                                     \
    lf_rope<V, NEIGHBOURS>(t, out, x, table, pairs, heads, h, sign);                                     \
  }
LF_ROPE(rope_f32, 1, false)
LF_ROPE(rope_v4_f32, 4, false)
LF_ROPE(rope_neighbours_f32, 1, true)
LF_ROPE(rope_neighbours_v4_f32, 4, true)

#ifdef LF_RACE
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
