// Rotary position embedding of queries and keys, in the rotate-half layout, and the write
// of keys and values to a cache, in one launch.
//
//   qo[i] = rope(q[i]);  ko[i] = rope(k[i])
//   keys[r] = ko[i];  values[r] = v[i], in the order of i
//
// where r is index[i], or index[0] + i if rows are consecutive.
//
// Layout: table [n, 2h]; q and qo [n, heads·2h], k, ko and v [n, kv·2h], keys and
//   values [rows, kv·2h]; qo may share the memory of q, and ko that of k.
// Grid: 256 threads; x runs over rows, y over a row: a thread for one or four pairs of
//   q, k or v (…_f32, …_v4_f32).
// Traffic: q, k and v once in and once out, and k once more to the cache.
// Reference: for i { qo[i] = rope(q[i]); ko[i] = rope(k[i])
//                    if index[i] >= 0 { keys[index[i]] = ko[i]; values[index[i]] = v[i] } }
#include "pack.h"
#include "scatter.h"

// Rotates V pairs of numbers that are h apart.
template <int V>
LF_DEVICE void lf_turn(LF_GLOBAL const float* x, LF_GLOBAL const float* table, int h, LF_PRIVATE lf_pack<V>& y1, LF_PRIVATE lf_pack<V>& y2) {
  lf_pack<V> x1, x2, c, s;
  x1.load(x), x2.load(x + h);
  c.load(table), s.load(table + h);
  for (int e = 0; e < V; e++) {
    y1.v[e] = x1.v[e] * c.v[e] - x2.v[e] * s.v[e];
    y2.v[e] = x2.v[e] * c.v[e] + x1.v[e] * s.v[e];
  }
}

#define LF_ROPE_CACHE(name, V)                                                                                              \
  LF_ENTRY_SHARED(LF_THREADS, name, ((int, hit, LF_THREADS)),                                                               \
                  ((float, qo), (const float, q), (float, ko), (const float, k), (const float, v), (const float, table),    \
                   (const int, index), (float, keys), (float, values), (long, trap)),                                       \
                  ((int, heads), (int, kv), (int, h), (int, n), (int, rows), (int, consecutive), (int, launch))) {          \
    const lf_target target = lf_scatter(t, hit, index, n, rows, consecutive, trap, launch);                                 \
    const int groups = h / V, i = (int)t.group.y * LF_THREADS + (int)t.index, head = i / groups, first = i % groups * V;    \
    const long row = t.group.x, narrow = 2L * h * kv;                                                                       \
    LF_GLOBAL const float* turns = table + row * 2 * h + first;                                                             \
    lf_pack<V> y1, y2;                                                                                                      \
    if (head < heads) {                                                                                                     \
      const long at = row * 2 * h * heads + 2L * h * head + first;                                                          \
      lf_turn<V>(q + at, turns, h, y1, y2);                                                                                 \
      y1.store(qo + at), y2.store(qo + at + h);                                                                             \
    } else if (head < heads + kv) {                                                                                         \
      const long there = 2L * h * (head - heads) + first, at = row * narrow + there, to = target.at * narrow + there;       \
      lf_turn<V>(k + at, turns, h, y1, y2);                                                                                 \
      y1.store(ko + at), y2.store(ko + at + h);                                                                             \
      if (target.write) y1.store(keys + to), y2.store(keys + to + h);                                                       \
    } else if (head < heads + 2 * kv && target.write) {                                                                     \
      const long there = 2L * h * (head - heads - kv) + first, at = row * narrow + there, to = target.at * narrow + there;  \
      y1.load(v + at), y2.load(v + at + h);                                                                                 \
      y1.store(values + to), y2.store(values + to + h);                                                                     \
    }                                                                                                                       \
  }
LF_ROPE_CACHE(rope_cache_f32, 1)
LF_ROPE_CACHE(rope_cache_v4_f32, 4)

#ifdef LF_RACE
LF_RACE_CASE(rope_cache) {
  const int n = 3, heads = 4, kv = 2, h = 8, rows = 5;
  auto q = lf_race_noise<float>(n * heads * 2 * h), k = lf_race_noise<float>(n * kv * 2 * h), v = lf_race_noise<float>(n * kv * 2 * h),
       table = lf_race_noise<float>(n * 2 * h), keys = lf_race_noise<float>(rows * kv * 2 * h), values = lf_race_noise<float>(rows * kv * 2 * h);
  int index[] = {1, 4, 1};
  long trap[3] = {};
  lf_race_launch(rope_cache_f32, {n, 1}, {256}, 0, q.data(), q.data(), k.data(), k.data(), v.data(), table.data(), index, keys.data(),
                 values.data(), trap, heads, kv, h, n, rows, 0, 0);
  lf_race_launch(rope_cache_v4_f32, {n, 1}, {256}, 0, q.data(), q.data(), k.data(), k.data(), v.data(), table.data(), index, keys.data(),
                 values.data(), trap, heads, kv, h, n, rows, 0, 0);
}
#endif
