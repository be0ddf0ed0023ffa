// Rotary position embedding of queries and keys, in the rotate-half layout, and the write
// of keys and values to a cache, in one launch.
//
//   qo[i] = rope(q[i]);  ko[i] = rope(k[i])
//   keys[r] = ko[i];  values[r] = v[i], in the order of i
//
// where r is index[i], or index[0] + i if rows are consecutive.
//
// Layout: table [n, 2h]; q and qo [n, heads·2h], k, ko and v [n, kv·2h], keys and
//   values [rows, kv·2h]; qo may share the memory of q, and ko that of k. Each but the
//   table is f32, or bf16 if it has a bit in the argument bf16.
// Grid: 256 threads; x runs over rows, y over a row: a thread for one or four pairs of
//   q, k or v (…_v4).
// Traffic: q, k and v once in and once out, and k once more to the cache.
// Reference: for i { qo[i] = rope(q[i]); ko[i] = rope(k[i])
//                    if index[i] >= 0 { keys[index[i]] = ko[i]; values[index[i]] = v[i] } }
#include "pack.h"
#include "scatter.h"

// Bits of the argument bf16.
enum { LF_QO, LF_Q, LF_KO, LF_K, LF_V, LF_KEYS, LF_VALUES };

// One or four numbers of bf16.
LF_DEVICE void lf_load_bf16(LF_GLOBAL const ushort* p, LF_PRIVATE lf_pack<1>& x) { x.v[0] = lf_as_bf16::get(*p); }
LF_DEVICE void lf_load_bf16(LF_GLOBAL const ushort* p, LF_PRIVATE lf_pack<4>& x) {
  const uint2 w = *(LF_GLOBAL const uint2*)p;
  x.v[0] = lf_from_bits(w.x << 16), x.v[1] = lf_from_bits(w.x & 0xffff0000u);
  x.v[2] = lf_from_bits(w.y << 16), x.v[3] = lf_from_bits(w.y & 0xffff0000u);
}
LF_DEVICE void lf_store_bf16(LF_GLOBAL ushort* p, LF_PRIVATE const lf_pack<1>& x) { *p = lf_as_bf16::put(x.v[0]); }
LF_DEVICE void lf_store_bf16(LF_GLOBAL ushort* p, LF_PRIVATE const lf_pack<4>& x) {
  uint2 w;
  w.x = lf_as_bf16::put(x.v[0]) | (uint)lf_as_bf16::put(x.v[1]) << 16;
  w.y = lf_as_bf16::put(x.v[2]) | (uint)lf_as_bf16::put(x.v[3]) << 16;
  *(LF_GLOBAL uint2*)p = w;
}

// V numbers from element at of a matrix on, of either type, and V numbers h further on.
template <int V>
LF_DEVICE void lf_load_pairs(LF_GLOBAL const void* x, int bf16, long at, int h, LF_PRIVATE lf_pack<V>& x1, LF_PRIVATE lf_pack<V>& x2) {
  if (bf16 & 1) {
    LF_GLOBAL const ushort* p = (LF_GLOBAL const ushort*)x + at;
    lf_load_bf16(p, x1), lf_load_bf16(p + h, x2);
  } else {
    LF_GLOBAL const float* p = (LF_GLOBAL const float*)x + at;
    x1.load(p), x2.load(p + h);
  }
}
template <int V>
LF_DEVICE void lf_store_pairs(LF_GLOBAL void* x, int bf16, long at, int h, LF_PRIVATE const lf_pack<V>& x1, LF_PRIVATE const lf_pack<V>& x2) {
  if (bf16 & 1) {
    LF_GLOBAL ushort* p = (LF_GLOBAL ushort*)x + at;
    lf_store_bf16(p, x1), lf_store_bf16(p + h, x2);
  } else {
    LF_GLOBAL float* p = (LF_GLOBAL float*)x + at;
    x1.store(p), x2.store(p + h);
  }
}

// Rotates V pairs of numbers that are h apart.
template <int V>
LF_DEVICE void lf_turn(LF_GLOBAL const float* table, int h, LF_PRIVATE lf_pack<V>& x1, LF_PRIVATE lf_pack<V>& x2) {
  lf_pack<V> c, s;
  c.load(table), s.load(table + h);
  for (int e = 0; e < V; e++) {
    const float a = x1.v[e], b = x2.v[e];
    x1.v[e] = a * c.v[e] - b * s.v[e];
    x2.v[e] = b * c.v[e] + a * s.v[e];
  }
}

#define LF_ROPE_CACHE(name, V)                                                                                              \
  LF_ENTRY_SHARED(LF_THREADS, name, ((int, hit, LF_THREADS)),                                                               \
                  ((uchar, qo), (const uchar, q), (uchar, ko), (const uchar, k), (const uchar, v), (const float, table),         \
                   (const int, index), (uchar, keys), (uchar, values), (long, trap)),                                         \
                  ((int, heads), (int, kv), (int, h), (int, n), (int, rows), (int, consecutive), (int, bf16),               \
                   (int, launch))) {                                                                                        \
    const lf_target target = lf_scatter(t, hit, index, n, rows, consecutive, trap, launch);                                 \
    const int groups = h / V, i = (int)t.group.y * LF_THREADS + (int)t.index, head = i / groups, first = i % groups * V;    \
    const long row = t.group.x, narrow = 2L * h * kv;                                                                       \
    LF_GLOBAL const float* turns = table + row * 2 * h + first;                                                             \
    lf_pack<V> y1, y2;                                                                                                      \
    if (head < heads) {                                                                                                     \
      const long at = row * 2 * h * heads + 2L * h * head + first;                                                          \
      lf_load_pairs<V>(q, bf16 >> LF_Q, at, h, y1, y2);                                                                     \
      lf_turn<V>(turns, h, y1, y2);                                                                                         \
      lf_store_pairs<V>(qo, bf16 >> LF_QO, at, h, y1, y2);                                                                  \
    } else if (head < heads + kv) {                                                                                         \
      const long there = 2L * h * (head - heads) + first, at = row * narrow + there, to = target.at * narrow + there;       \
      lf_load_pairs<V>(k, bf16 >> LF_K, at, h, y1, y2);                                                                     \
      lf_turn<V>(turns, h, y1, y2);                                                                                         \
      lf_store_pairs<V>(ko, bf16 >> LF_KO, at, h, y1, y2);                                                                  \
      if (target.write) lf_store_pairs<V>(keys, bf16 >> LF_KEYS, to, h, y1, y2);                                            \
    } else if (head < heads + 2 * kv && target.write) {                                                                     \
      const long there = 2L * h * (head - heads - kv) + first, at = row * narrow + there, to = target.at * narrow + there;  \
      lf_load_pairs<V>(v, bf16 >> LF_V, at, h, y1, y2);                                                                     \
      lf_store_pairs<V>(values, bf16 >> LF_VALUES, to, h, y1, y2);                                                          \
    }                                                                                                                       \
  }
LF_ROPE_CACHE(rope_cache, 1)
LF_ROPE_CACHE(rope_cache_v4, 4)

#ifdef LF_RACE
LF_RACE_CASE(rope_cache) {
  const int n = 3, heads = 4, kv = 2, h = 8, rows = 5, wide = n * heads * 2 * h, narrow = n * kv * 2 * h, all = rows * kv * 2 * h;
  auto q = lf_race_noise<uchar>(4 * wide), k = lf_race_noise<uchar>(4 * narrow), v = lf_race_noise<uchar>(4 * narrow);
  auto keys = lf_race_noise<uchar>(4 * all), values = lf_race_noise<uchar>(4 * all);
  auto table = lf_race_noise<float>(n * 2 * h);
  int index[] = {1, 4, 1};
  long trap[3] = {};
  for (int bf16 : {0, 127}) {
    lf_race_launch(rope_cache, {n, 1}, {256}, 0, q.data(), q.data(), k.data(), k.data(), v.data(), table.data(), index, keys.data(),
                   values.data(), trap, heads, kv, h, n, rows, 0, bf16, 0);
    lf_race_launch(rope_cache_v4, {n, 1}, {256}, 0, q.data(), q.data(), k.data(), k.data(), v.data(), table.data(), index, keys.data(),
                   values.data(), trap, heads, kv, h, n, rows, 0, bf16, 0);
  }
}
#endif
