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
//   [n, heads·2h], y may share the memory of x. A launch may rotate a second value, such as
//   the keys with the queries: out1 and x1, of pairs1 and heads1. Kernels that end in
//   _stored take x and y in f32 or bf16: bit 0 of stored is set if y is bf16, bit 1 if x is,
//   bits 2 and 3 for the second value.
// Grid: 256 threads; a thread for one angle of the table, and for one or four
//   pairs of x (…_v4_…).
// Traffic: the table 8 bytes an angle; x and y 4 or 2 bytes an element each, and the table
//   once for each row, from cache for all heads but the first.
// Angles are exact (angle.h).
// Registers: table 22; 24 to 26, and up to 30 for four pairs.
// Reference: for i, j { a = float32(position[i])·frequency[j]
//                       table[i, j], table[i, h+j] = scale·cos(a), scale·sin(a) }
#include "angle.h"
#include "mixed.h"

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

// pairs counts groups of V pairs: a row has heads·h/V.
template <int V, bool NEIGHBOURS, class S>
LF_DEVICE void lf_rope(lf_thread t, LF_GLOBAL void* out, LF_GLOBAL const void* x, LF_GLOBAL const float* table, LF_GLOBAL void* out1,
                       LF_GLOBAL const void* x1, long pairs, int heads, long pairs1, int heads1, int h, float sign, S types) {
  long i = (long)t.group.x * 256 + t.index;
  int operand = 0;
  if (i >= pairs) {
    i -= pairs, operand = 2;
    if (i >= pairs1) return;
    out = out1, x = x1, heads = heads1;
  }
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
  // The first numbers of the pairs and the second ones, of neighbours the first half of all
  // numbers and the second half.
  long from = 2 * (i - j) * V + (NEIGHBOURS ? 2 : 1) * j * V, next = from + (NEIGHBOURS ? V : h);
  lf_pack<V> p, q, c, s;
  lf_load(types, operand + 1, x, from, p), lf_load(types, operand + 1, x, next, q);
  LF_GLOBAL const float* turns = table + row * 2 * h + j * V;
  c.load(turns), s.load(turns + h);
  float y[2 * V];
#pragma unroll
  for (int k = 0; k < V; k++) {
    int first = NEIGHBOURS ? 2 * k : k, second = NEIGHBOURS ? 2 * k + 1 : k + V;
    float a = first < V ? p.v[first % V] : q.v[first % V], b = second < V ? p.v[second % V] : q.v[second % V];
    float turn = sign * s.v[k];
    y[first] = a * c.v[k] - b * turn;
    y[second] = b * c.v[k] + a * turn;
  }
#pragma unroll
  for (int k = 0; k < V; k++) p.v[k] = y[k], q.v[k] = y[k + V];
  lf_store(types, operand, out, from, p), lf_store(types, operand, out, next, q);
}

#define LF_ROPE(name, V, NEIGHBOURS)                                                                                          \
  LF_ENTRY(256, name##_f32, ((float, out), (const float, x), (const float, table), (float, out1), (const float, x1)),         \
           ((long, pairs), (int, heads), (long, pairs1), (int, heads1), (int, h), (float, sign))) {                           \
    lf_all_f32 types;                                                                                                         \
    lf_rope<V, NEIGHBOURS>(t, out, x, table, out1, x1, pairs, heads, pairs1, heads1, h, sign, types);                         \
  }                                                                                                                           \
  LF_ENTRY(256, name##_stored, ((uchar, out), (const uchar, x), (const float, table), (uchar, out1), (const uchar, x1)),      \
           ((long, pairs), (int, heads), (long, pairs1), (int, heads1), (int, h), (float, sign), (int, stored))) {            \
    lf_mixed types = {stored};                                                                                                \
    lf_rope<V, NEIGHBOURS>(t, out, x, table, out1, x1, pairs, heads, pairs1, heads1, h, sign, types);                         \
  }
LF_ROPE(rope, 1, false)
LF_ROPE(rope_v4, 4, false)
LF_ROPE(rope_neighbours, 1, true)
LF_ROPE(rope_neighbours_v4, 4, true)

#ifdef LF_RACE
LF_RACE_CASE(rope) {
  auto x = lf_race_noise<float>(3 * 4 * 16), k = lf_race_noise<float>(3 * 2 * 16), f = lf_race_noise<float>(8);
  auto positions = lf_race_noise<int>(3);
  std::vector<float> table(3 * 16);
  lf_race_launch(rope_table_f32, {1}, {256}, 0, table.data(), positions.data(), f.data(), 3, 8, 1.0f);
  lf_race_launch(rope_f32, {1}, {256}, 0, x.data(), x.data(), table.data(), nullptr, nullptr, 3 * 4 * 8, 4, 0, 0, 8, 1.0f);
  lf_race_launch(rope_v4_f32, {1}, {256}, 0, x.data(), x.data(), table.data(), k.data(), k.data(), 3 * 4 * 2, 4, 3 * 2 * 2, 2, 8, -1.0f);
  lf_race_launch(rope_neighbours_f32, {1}, {256}, 0, x.data(), x.data(), table.data(), nullptr, nullptr, 3 * 4 * 8, 4, 0, 0, 8, 1.0f);
  lf_race_launch(rope_neighbours_v4_f32, {1}, {256}, 0, x.data(), x.data(), table.data(), nullptr, nullptr, 3 * 4 * 2, 4, 0, 0, 8, -1.0f);
  lf_race_launch(rope_stored, {1}, {256}, 0, x.data(), x.data(), table.data(), nullptr, nullptr, 3 * 4 * 8, 4, 0, 0, 8, 1.0f, 3);
  lf_race_launch(rope_v4_stored, {1}, {256}, 0, x.data(), x.data(), table.data(), nullptr, nullptr, 3 * 4 * 2, 4, 0, 0, 8, -1.0f, 3);
  lf_race_launch(rope_neighbours_stored, {1}, {256}, 0, x.data(), x.data(), table.data(), nullptr, nullptr, 3 * 4 * 8, 4, 0, 0, 8, 1.0f, 3);
  lf_race_launch(rope_neighbours_v4_stored, {1}, {256}, 0, x.data(), x.data(), table.data(), nullptr, nullptr, 3 * 4 * 2, 4, 0, 0, 8, -1.0f, 3);
}
#endif
