// GroupNorm (Wu and He 2018, arXiv 1803.08494): mean and variance of each sample over the
// pixels and the channels of a group:
//
//   y = (x − mean) / √(variance + eps) · w + b
//
// Layout: x and y [samples, pixels, c], w and b [c]; y may share the memory of x. Kernels that
//   end in _stored take y and x in f32 or bf16, by bits 0 and 1 of stored.
// Grid: 256 threads for each part of the pixels of a sample, neighbours in neighbouring
//   channels, one or four of each thread. group_norm_sums writes mean and squared deviations
//   of each channel of a part, from differences to its first pixel, so that squares do not
//   cancel. group_norm_stats, a block for a group, joins them (Chan et al. 1979) in an order
//   that the sizes of a sample fix, and writes mean and factor of each channel; group_norm
//   applies them.
// Traffic: 12 bytes an element, or 6; bound by memory.
// Registers: sums 58 and 64 (stored) on sm_80, 56 and 60 on sm_90a; stats 38 and 40; group_norm
//   56 and 60, 56 and 64.
// Reference: for s, g { m = Σ x/n, v = Σ (x − m)²/n over the group;
//            for pixels p, channels j of g { y[s,p,j] = (x[s,p,j] − m)/sqrt(v + eps) w[j] + b[j] } }
#define LF_BLOCKS 4 // CUDA: else ptxas spills for a fifth
#include "mixed.h"

// The count, mean and sum of squared deviations of some numbers.
struct lf_moments {
  float n, mean, squares;
  LF_DEVICE void join(float on, float2 o) {
    if (on == 0.0f) return;
    float d = o.x - mean, all = n + on, share = on / all;
    mean += d * share;
    squares += o.y + d * d * (n * share);
    n = all;
  }
};

// The threads of a block by channel: width neighbours in a pixel, with V channels each, of so
// many pixels at once.
template <int V>
struct lf_pixels {
  int width, rows, row, channel; // this thread's pixel and first channel; row >= rows if it has none
  long first, last;              // pixels of the part
  LF_DEVICE void set(lf_thread t, long pixels, int c, int part, int number) {
    width = c / V < 256 ? c / V : 256, rows = 256 / width;
    row = (int)t.index / width, channel = (int)t.index % width * V;
    first = (long)number * part, last = first + part < pixels ? first + part : pixels;
  }
  // The number of pixels of the threads of a row.
  LF_DEVICE float count(int row) const { return (float)((last - first - row + rows - 1) / rows); }
};

template <int V, class S>
LF_DEVICE void lf_group_norm_sums(lf_thread t, LF_GLOBAL float2* sums, LF_GLOBAL const void* x, long pixels, int c, int part, int parts,
                                  LF_GROUP float2* room, S types) {
  long sample = t.group.x / parts;
  lf_pixels<V> p;
  p.set(t, pixels, c, part, (int)(t.group.x % parts));
  for (int from = 0; from < c; from += p.width * V) {
    int channel = from + p.channel;
    long at = p.first + p.row, base = sample * pixels * c + channel;
    bool some = p.row < p.rows && channel < c && at < p.last;
    if (some) {
      lf_pack<V> k, v, sum = {}, squares = {};
      lf_load(types, 1, x, base + at * c, k);
#pragma unroll 2
      for (; at < p.last; at += p.rows) {
        lf_load(types, 1, x, base + at * c, v);
#pragma unroll
        for (int i = 0; i < V; i++) {
          float d = v.v[i] - k.v[i];
          sum.v[i] += d;
          squares.v[i] = lf_fma(d, d, squares.v[i]);
        }
      }
      float n = p.count(p.row);
#pragma unroll
      for (int i = 0; i < V; i++) {
        float q = squares.v[i] - sum.v[i] * (sum.v[i] / n);
        room[256 * i + t.index] = make_float2(k.v[i] + sum.v[i] / n, q < 0.0f ? 0.0f : q);
      }
    }
    lf_barrier();
    if (some && p.row == 0) {
      for (int i = 0; i < V; i++) {
        LF_GROUP const float2* of = room + 256 * i + t.index;
        lf_moments m = {p.count(0), of[0].x, of[0].y};
        for (int r = 1; r < p.rows; r++) m.join(p.count(r), of[r * p.width]);
        sums[(long)t.group.x * c + channel + i] = make_float2(m.mean, m.squares);
      }
    }
    lf_barrier();
  }
}

#define LF_GROUP_NORM_SUMS(types)                                               \
  if ((c & 3) == 0 && LF_ALIGNED(x))                                            \
    lf_group_norm_sums<4>(t, sums, x, pixels, c, part, parts, room, types);     \
  else                                                                          \
    lf_group_norm_sums<1>(t, sums, x, pixels, c, part, parts, room, types);
LF_ENTRY_SHARED(256, group_norm_sums_f32, ((float2, room, 1024)), ((float2, sums), (const float, x)),
                ((long, pixels), (int, c), (int, part), (int, parts))) {
  lf_all_f32 types;
  LF_GROUP_NORM_SUMS(types)
}
LF_ENTRY_SHARED(256, group_norm_sums_stored, ((float2, room, 1024)), ((float2, sums), (const uchar, x)),
                ((long, pixels), (int, c), (int, part), (int, parts), (int, stored))) {
  lf_mixed types = {stored};
  LF_GROUP_NORM_SUMS(types)
}

LF_ENTRY_SHARED(256, group_norm_stats_f32, ((float2, room, 256), (float, counts, 256)), ((float2, stats), (const float2, sums), (const float, w)),
                ((long, pixels), (int, c), (int, size), (int, part), (int, parts), (float, eps))) {
  int groups = c / size, first = (int)(t.group.x % groups) * size;
  long sample = t.group.x / groups;
  lf_moments m = {0.0f, 0.0f, 0.0f};
  for (long i = t.index; i < (long)parts * size; i += 256) {
    long number = i / size, left = pixels - number * part;
    m.join((float)(left < part ? left : part), sums[(sample * parts + number) * c + first + i % size]);
  }
  for (int half_of = 128; half_of; half_of >>= 1) {
    room[t.index] = make_float2(m.mean, m.squares);
    counts[t.index] = m.n;
    lf_barrier();
    if ((int)t.index < half_of) m.join(counts[t.index + half_of], room[t.index + half_of]);
    lf_barrier();
  }
  if (t.index == 0) room[0] = make_float2(m.mean, 1.0f / lf_sqrt(m.squares / ((float)pixels * (float)size) + eps));
  lf_barrier();
  for (int j = first + (int)t.index; j < first + size; j += 256) stats[sample * c + j] = make_float2(room[0].x, room[0].y * w[j]);
}

template <int V, class S>
LF_DEVICE void lf_group_norm(lf_thread t, LF_GLOBAL void* out, LF_GLOBAL const void* x, LF_GLOBAL const float2* stats, LF_GLOBAL const float* b,
                             long pixels, int c, int part, int parts, S types) {
  long sample = t.group.x / parts;
  lf_pixels<V> p;
  p.set(t, pixels, c, part, (int)(t.group.x % parts));
  if (p.row >= p.rows) return;
  for (int channel = p.channel; channel < c; channel += p.width * V) {
    lf_pack<V> v, mean, factor, shift;
    shift.load(b + channel);
#pragma unroll
    for (int i = 0; i < V; i++) {
      float2 of = stats[sample * c + channel + i];
      mean.v[i] = of.x, factor.v[i] = of.y;
    }
    long base = sample * pixels * c + channel;
#pragma unroll 4
    for (long at = p.first + p.row; at < p.last; at += p.rows) {
      lf_load(types, 1, x, base + at * c, v);
#pragma unroll
      for (int i = 0; i < V; i++) v.v[i] = (v.v[i] - mean.v[i]) * factor.v[i] + shift.v[i];
      lf_store(types, 0, out, base + at * c, v);
    }
  }
}

#define LF_GROUP_NORM(types)                                                     \
  if ((c & 3) == 0 && LF_ALIGNED(out) && LF_ALIGNED(x) && LF_ALIGNED(b))         \
    lf_group_norm<4>(t, out, x, stats, b, pixels, c, part, parts, types);        \
  else                                                                           \
    lf_group_norm<1>(t, out, x, stats, b, pixels, c, part, parts, types);
LF_ENTRY(256, group_norm_f32, ((float, out), (const float, x), (const float2, stats), (const float, b)),
         ((long, pixels), (int, c), (int, part), (int, parts))) {
  lf_all_f32 types;
  LF_GROUP_NORM(types)
}
LF_ENTRY(256, group_norm_stored, ((uchar, out), (const uchar, x), (const float2, stats), (const float, b)),
         ((long, pixels), (int, c), (int, part), (int, parts), (int, stored))) {
  lf_mixed types = {stored};
  LF_GROUP_NORM(types)
}

#ifdef LF_RACE
LF_RACE_CASE(group_norm) {
  auto x = lf_race_noise<float>(2 * 21 * 12), w = lf_race_noise<float>(12), b = w;
  std::vector<float2> sums(2 * 2 * 12), stats(2 * 12);
  lf_race_launch(group_norm_sums_f32, {4}, {256}, 0, sums.data(), x.data(), 21, 12, 16, 2);
  lf_race_launch(group_norm_stats_f32, {6}, {256}, 0, stats.data(), sums.data(), w.data(), 21, 12, 4, 16, 2, 1e-6f);
  lf_race_launch(group_norm_f32, {4}, {256}, 0, x.data(), x.data(), stats.data(), b.data(), 21, 12, 16, 2);
  lf_race_launch(group_norm_sums_stored, {4}, {256}, 0, sums.data(), (uchar*)x.data(), 21, 12, 16, 2, 3);
  lf_race_launch(group_norm_stored, {4}, {256}, 0, (uchar*)x.data(), (uchar*)x.data(), stats.data(), b.data(), 21, 12, 16, 2, 3);
}
#endif
