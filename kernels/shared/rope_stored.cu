// Rotary position embedding of values that are f32 or bf16 in memory; rope has the
// formulas, and the kernels of f32.
//
//   y[j] = x[j] cos − x[j+h] sin,  y[j+h] = x[j+h] cos + x[j] sin
//   neighbours: the same with 2j and 2j+1 in the place of j and j+h
//
// Layout: x and y [n, heads·2h], table [n, 2h] of cosines and sines in f32; y may share the
//   memory of x. Bit 0 of stored: y is bf16; bit 1: x is.
// Grid: 256 threads, a thread for one or four pairs (…_v4_…).
// Traffic: x and y 2 or 4 bytes an element each, and the table once for each row, from
//   cache for all heads but the first.
// Registers: 24 to 30 on sm_80 and sm_90a.
// Reference: for i, j { y[i, j] = x[i, j]·cos[i, j] − x[i, j+h]·sin[i, j]
//                       y[i, j+h] = x[i, j+h]·cos[i, j] + x[i, j]·sin[i, j] }
#include "mixed.h"

// pairs counts groups of V pairs: a row has heads·h/V.
template <int V, bool NEIGHBOURS>
LF_DEVICE void lf_rope_stored(lf_thread t, LF_GLOBAL void* out, LF_GLOBAL const void* x, LF_GLOBAL const float* table, long pairs, int heads,
                              int h, float sign, lf_mixed types) {
  long i = (long)t.group.x * 256 + t.index;
  if (i >= pairs) return;
  int groups = h / V, j;
  long row;
  if (i >> 32 == 0) { // division of 32-bit numbers is far cheaper
    j = (int)((uint)i % (uint)groups);
    row = (uint)i / (uint)groups / (uint)heads;
  } else {
    j = (int)(i % groups);
    row = i / groups / heads;
  }
  // The first numbers of the pairs and the second ones, of neighbours the first half of all
  // numbers and the second half.
  long from = 2 * (i - j) * V + (NEIGHBOURS ? 2 : 1) * j * V, next = from + (NEIGHBOURS ? V : h);
  lf_pack<V> p, q, c, s;
  lf_load(types, 1, x, from, p), lf_load(types, 1, x, next, q);
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
  lf_store(types, 0, out, from, p), lf_store(types, 0, out, next, q);
}

#define LF_ROPE_STORED(name, V, NEIGHBOURS)                                                              \
  LF_ENTRY(256, name, ((uchar, out), (const uchar, x), (const float, table)),                              \
           ((long, pairs), (int, heads), (int, h), (float, sign), (int, stored))) {                      \
    lf_mixed types = {stored};                                                                           \
    lf_rope_stored<V, NEIGHBOURS>(t, out, x, table, pairs, heads, h, sign, types);                       \
  }
LF_ROPE_STORED(rope_stored, 1, false)
LF_ROPE_STORED(rope_v4_stored, 4, false)
LF_ROPE_STORED(rope_neighbours_stored, 1, true)
LF_ROPE_STORED(rope_neighbours_v4_stored, 4, true)

#ifdef LF_RACE
LF_RACE_CASE(rope_stored) {
  auto x = lf_race_noise<float>(3 * 4 * 16), table = lf_race_noise<float>(3 * 16);
  lf_race_launch(rope_stored, {1}, {256}, 0, x.data(), x.data(), table.data(), 3 * 4 * 8, 4, 8, 1.0f, 3);
  lf_race_launch(rope_v4_stored, {1}, {256}, 0, x.data(), x.data(), table.data(), 3 * 4 * 2, 4, 8, -1.0f, 3);
  lf_race_launch(rope_neighbours_stored, {1}, {256}, 0, x.data(), x.data(), table.data(), 3 * 4 * 8, 4, 8, 1.0f, 3);
  lf_race_launch(rope_neighbours_v4_stored, {1}, {256}, 0, x.data(), x.data(), table.data(), 3 * 4 * 2, 4, 8, -1.0f, 3);
}
#endif
