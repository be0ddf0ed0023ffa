// GroupNorm (Wu and He 2018, arXiv 1803.08494): mean and variance of each sample over the
// pixels and the channels of a group:
//
//   y = (x − mean) / √(variance + eps) · w + b
//
// Layout: x and y [samples, pixels, c], w and b [c]; y may share the memory of x.
// Grid: 256 threads for each part of the pixels of a sample, neighbours in neighbouring
//   channels. group_norm_sums writes mean and squared deviations of each channel of a part,
//   from differences to its first pixel, so that squares do not cancel. group_norm_stats, a
//   block for a group, joins them (Chan et al. 1979) in an order that the sizes of a sample
//   fix, and writes mean and factor of each channel; group_norm applies them.
// Traffic: 12 bytes an element; bound by memory.
// Registers: 54, 40 and 40 on sm_80, 46, 40 and 48 on sm_90a.
// Reference: for s, g { m = Σ x/n, v = Σ (x − m)²/n over the group;
//            for pixels p, channels j of g { y[s,p,j] = (x[s,p,j] − m)/sqrt(v + eps) w[j] + b[j] } }
#include "device.h"

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

// The threads of a block by channel: width neighbours in a pixel, of so many pixels at once.
struct lf_pixels {
  int width, rows, row, channel; // this thread's pixel and channel; row = rows if it has none
  long first, last;              // pixels of the part
  LF_DEVICE void set(lf_thread t, long pixels, int c, int part, int number) {
    width = c < 256 ? c : 256, rows = 256 / width;
    row = (int)t.index / width, channel = (int)t.index % width;
    first = (long)number * part, last = first + part < pixels ? first + part : pixels;
  }
  // The number of pixels of the threads of a row.
  LF_DEVICE float count(int row) const { return (float)((last - first - row + rows - 1) / rows); }
};

LF_ENTRY_SHARED(256, group_norm_sums_f32, ((float2, room, 256)), ((float2, sums), (const float, x)),
                ((long, pixels), (int, c), (int, part), (int, parts))) {
  long sample = t.group.x / parts;
  lf_pixels p;
  p.set(t, pixels, c, part, (int)(t.group.x % parts));
  for (int from = 0; from < c; from += p.width) {
    int channel = from + p.channel;
    float k = 0.0f, sum = 0.0f, squares = 0.0f;
    long at = p.first + p.row;
    bool some = p.row < p.rows && channel < c && at < p.last;
    if (some) {
      LF_GLOBAL const float* of = x + sample * pixels * c + channel;
      k = of[at * c];
#pragma unroll 4
      for (; at < p.last; at += p.rows) {
        float d = of[at * c] - k;
        sum += d;
        squares = lf_fma(d, d, squares);
      }
      float n = p.count(p.row);
      squares -= sum * (sum / n);
      room[t.index] = make_float2(k + sum / n, squares < 0.0f ? 0.0f : squares);
    }
    lf_barrier();
    if (some && p.row == 0) {
      lf_moments m = {p.count(0), room[t.index].x, room[t.index].y};
      for (int r = 1; r < p.rows; r++) m.join(p.count(r), room[r * p.width + t.index]);
      sums[(long)t.group.x * c + channel] = make_float2(m.mean, m.squares);
    }
    lf_barrier();
  }
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

LF_ENTRY(256, group_norm_f32, ((float, out), (const float, x), (const float2, stats), (const float, b)),
         ((long, pixels), (int, c), (int, part), (int, parts))) {
  long sample = t.group.x / parts;
  lf_pixels p;
  p.set(t, pixels, c, part, (int)(t.group.x % parts));
  if (p.row >= p.rows) return;
  for (int channel = p.channel; channel < c; channel += p.width) {
    float2 of = stats[sample * c + channel];
    float shift = b[channel];
    long base = sample * pixels * c + channel;
#pragma unroll 4
    for (long at = p.first + p.row; at < p.last; at += p.rows) out[base + at * c] = (x[base + at * c] - of.x) * of.y + shift;
  }
}

#ifdef LF_RACE
LF_RACE_CASE(group_norm) {
  auto x = lf_race_noise<float>(2 * 21 * 12), w = lf_race_noise<float>(12), b = w;
  std::vector<float2> sums(2 * 2 * 12), stats(2 * 12);
  lf_race_launch(group_norm_sums_f32, {4}, {256}, 0, sums.data(), x.data(), 21, 12, 16, 2);
  lf_race_launch(group_norm_stats_f32, {6}, {256}, 0, stats.data(), sums.data(), w.data(), 21, 12, 4, 16, 2, 1e-6f);
  lf_race_launch(group_norm_f32, {4}, {256}, 0, x.data(), x.data(), stats.data(), b.data(), 21, 12, 16, 2);
}
#endif
