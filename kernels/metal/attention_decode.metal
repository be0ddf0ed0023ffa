// Attention of few queries over many keys (decoding). Formulas and layout are the
// same as in attention.metal. The work is reading k and v once, so the keys of a
// query are cut into chunks that threadgroups read at the same time; a second kernel
// merges what the chunks have found, in ascending order. Chunks are counted from the
// query's first key, so its result does not depend on the other queries, on the
// position of its keys in k and v, or on the number of threadgroups.
//
// All products are float32. A threadgroup has one query, and G heads that share a key
// head: each row of k and v is read once for all of them.
//
// Grid: attention_decode_*: 128 threads; x runs over the chunks (threadgroup x takes
//   the chunks x, x + groups.x, …), y over key heads and the parts of G of the
//   heads of a group, z over queries. attention_merge_f32: a threadgroup for each query
//   and head.
// Threadgroup memory: q [G][DP]; scores [256][G], and in their place, when they have
//   been used, the sums of 4 warps [4][G][DP].
// Traffic: k and v of the query's keys once, by 16 bytes a thread and 8 lanes a
//   row (without simdgroups, a thread for a row of k); d+2 floats for each head and
//   chunk. Flops: 4 d heads for each key.
// Reference: for c { m_c = max_j s; l_c = Σ_j exp(s − m_c); o_c = Σ_j exp(s − m_c) v[j] }
//            m = max m_c; l = Σ l_c exp(m_c − m); o = Σ o_c exp(m_c − m) / l
#include "attention.h"

#define LF_DECODE_KEYS 256

struct attention_decode_args {
  LF_ARGS;
  int n, keys, heads, group, d, window;
  float scale;
  int chunk, chunks, vec, launch;
};

// q·k, four products at a time.
inline float lf_dot4(float4 x, float4 y, float s) { return fma(x.w, y.w, fma(x.z, y.z, fma(x.y, y.y, fma(x.x, y.x, s)))); }

// ps[j, h] = scale q[h]·k[j] for the given number of keys, −inf for the rest of the 256.
template <int DP, int G>
inline void lf_decode_scores(lf_thread t, threadgroup float* ps, threadgroup const float4* qs, device const float* k, long narrow, int here,
                             int d, float scale, int vec) {
#if LF_SIMD
  constexpr int STEPS = DP / 32; // float4 of a lane of a key: 8 lanes have one
  for (int j = (int)t.index / 8; j < LF_DECODE_KEYS; j += 16) {
    float4 x[STEPS];
    for (int c = 0; c < STEPS; c++) x[c] = j < here ? lf_four(k + j * narrow, (int)(t.lane % 8) * 4 + 32 * c, d, vec) : float4(0.0f);
    for (int h = 0; h < G; h++) {
      float s = 0.0f;
      for (int c = 0; c < STEPS; c++) s = lf_dot4(x[c], qs[h * (DP / 4) + (int)(t.lane % 8) + 8 * c], s);
      s = lf_row_sum(t, s);
      if (t.lane % 8 == 0) ps[j * G + h] = j < here ? s * scale : -INFINITY;
    }
  }
#else
  for (int j = (int)t.index; j < LF_DECODE_KEYS; j += 128) {
    float s[G];
    for (int h = 0; h < G; h++) s[h] = 0.0f;
    for (int c = 0; c < DP / 4 && j < here; c++) {
      float4 x = lf_four(k + j * narrow, 4 * c, d, vec);
      for (int h = 0; h < G; h++) s[h] = lf_dot4(x, qs[h * (DP / 4) + c], s[h]);
    }
    for (int h = 0; h < G; h++) ps[j * G + h] = j < here ? s[h] * scale : -INFINITY;
  }
#endif
}

// With one chunk, part is null and o and lse are written directly. Else it
// has, for each query, head and chunk, d sums and then, from stat on, {m, l}.
template <int DP, int G>
inline void lf_decode(lf_thread t, threadgroup float4* qs, threadgroup float* room, threadgroup float* tops, threadgroup float* totals,
                      threadgroup float* shrinks, device float* o, device float* lse, device float* part, device float2* stat,
                      device const float* q, device const float* k, device const float* v, device const int* lo, device const int* hi,
                      device long* trap, constant attention_decode_args& a) {
  constexpr int WIDE = DP / 4 < 32 ? DP / 4 : 32; // lanes of a value
  constexpr int ACROSS = DP / 4 / WIDE;           // float4 of each
  constexpr int VALUES = 32 / WIDE;               // values that a warp takes at a time
  const int tid = (int)t.index, lane = (int)t.lane, warp = (int)t.warp, d = a.d, vec = a.vec;
  const int split = (a.group + G - 1) / G, key_head = (int)t.group.y / split, from = (int)t.group.y % split * G;
  const int count = min(G, a.group - from), head = key_head * a.group + from, row = (int)t.group.z;
  const long narrow = (long)(a.heads / a.group) * d;
  const bool parts = LF_BOUND(a, 2);
  q += ((long)row * a.heads + head) * d;
  k += (long)key_head * d;
  v += (long)key_head * d;

  const int2 seen = lf_seen(lo, hi, row, a.n, a.keys, a.window);
  if (tid == 0 && t.group.x == 0 && t.group.y == 0) lf_check_seen(lo, hi, row, a.n, a.keys, a.window, trap, a.launch);
  for (int e = tid; e < G * DP / 4; e += 128) {
    int h = e / (DP / 4), c = e % (DP / 4) * 4;
    qs[e] = h < count ? lf_four(q + (long)h * d, c, d, 0) : float4(0.0f);
  }
  for (int index = (int)t.group.x; index < a.chunks; index += (int)t.groups.x) {
    const int begin = seen.x + (int)lf_least((long)index * a.chunk, seen.y - seen.x);
    const int end = (int)lf_least(seen.y, (long)begin + a.chunk);
    if (begin >= end && parts) break; // for all threads alike, as all loops are
    float4 acc[G][ACROSS];
    for (int h = 0; h < G; h++)
      for (int c = 0; c < ACROSS; c++) acc[h][c] = float4(0.0f);
    if (tid < G) {
      tops[tid] = -INFINITY;
      totals[tid] = 0.0f;
    }
    for (int base = begin; base < end; base += LF_DECODE_KEYS) {
      const int here = min(LF_DECODE_KEYS, end - base);
      lf_barrier(); // q has arrived, and the last scores have been used
      lf_decode_scores<DP, G>(t, room, qs, k + base * narrow, narrow, here, d, a.scale, vec);
      lf_barrier();
      // The running softmax: a warp for each head.
      for (int first = 0; first < G; first += 4) {
        const int h = first + warp;
        const bool mine = h < G;
        float most = -INFINITY, total = 0.0f;
        for (int j = lane; j < LF_DECODE_KEYS && mine; j += 32) most = fmax(most, room[j * G + h]);
        const float before = mine ? tops[h] : 0.0f;
        const float top = fmax(before, lf_warp_max(t, most)), floor = top == -INFINITY ? 0.0f : top;
        for (int j = lane; j < LF_DECODE_KEYS && mine; j += 32) {
          float p = exp(room[j * G + h] - floor);
          total += p;
          room[j * G + h] = p;
        }
        total = lf_warp_sum(t, total); // by now all lanes have read the top
        if (mine && lane == 0) {
          float shrink = exp(before - floor);
          shrinks[h] = shrink;
          totals[h] = totals[h] * shrink + total;
          tops[h] = top;
        }
      }
      lf_barrier();
      // Sums of values: each warp its share of the keys.
#pragma unroll
      for (int h = 0; h < G; h++) {
        float f = shrinks[h];
#pragma unroll
        for (int c = 0; c < ACROSS; c++) acc[h][c] *= f;
      }
      for (int j = warp * VALUES + lane / WIDE; j < here; j += 4 * VALUES) {
#pragma unroll
        for (int c = 0; c < ACROSS; c++) {
          float4 x = lf_four(v + (base + j) * narrow, lane % WIDE * 4 + 128 * c, d, vec);
#pragma unroll
          for (int h = 0; h < G; h++) acc[h][c] = fma(float4(room[j * G + h]), x, acc[h][c]);
        }
      }
    }
    lf_barrier(); // the scores have been used; the sums replace them
    // The lanes of a warp that had the same columns, then the warps in order.
#pragma unroll
    for (int h = 0; h < G; h++)
#pragma unroll
      for (int c = 0; c < ACROSS; c++) {
        float4 x = acc[h][c];
        for (uint b = WIDE; b < 32; b *= 2) {
          x.x += lf_shuffle_xor(t, x.x, b);
          x.y += lf_shuffle_xor(t, x.y, b);
          x.z += lf_shuffle_xor(t, x.z, b);
          x.w += lf_shuffle_xor(t, x.w, b);
        }
        if (lane < WIDE) lf_put4(room + (warp * G + h) * DP + lane * 4 + 128 * c, x);
      }
    lf_barrier();
    const long place = ((long)row * a.heads + head) * a.chunks + index;
    for (int e = tid; e < G * DP; e += 128) {
      int h = e / DP, c = e % DP;
      if (h >= count || c >= d) continue;
      float x = ((room[e] + room[G * DP + e]) + room[2 * G * DP + e]) + room[3 * G * DP + e];
      if (parts)
        part[(place + (long)h * a.chunks) * d + c] = x;
      else
        o[((long)row * a.heads + head + h) * d + c] = begin < end ? x / totals[h] : 0.0f;
    }
    if (tid < count) {
      if (parts)
        stat[place + (long)tid * a.chunks] = float2(tops[tid], totals[tid]);
      else
        lse[(long)row * a.heads + head + tid] = begin < end ? tops[tid] + log(totals[tid]) : -INFINITY;
    }
    lf_barrier(); // the sums have been used
  }
}

struct attention_merge_args { LF_ARGS; int n, keys, heads, d, window, chunk, chunks; };

LF_KERNEL(128) attention_merge_f32(device float* o [[buffer(0)]], device float* lse [[buffer(1)]], device const float* part [[buffer(2)]],
                                   device const float2* stat [[buffer(3)]], device const int* lo [[buffer(4)]],
                                   device const int* hi [[buffer(5)]], constant attention_merge_args& a [[buffer(6)]], LF_THREAD) {
  LF_BEGIN;
  const int2 seen = lf_seen(lo, hi, (int)t.group.x / a.heads, a.n, a.keys, a.window);
  const int count = (seen.y - seen.x + a.chunk - 1) / a.chunk;
  part += (long)t.group.x * a.chunks * a.d;
  stat += (long)t.group.x * a.chunks;
  float top = -INFINITY, total = 0.0f;
  for (int c = 0; c < count; c++) top = fmax(top, stat[c].x);
  const float floor = top == -INFINITY ? 0.0f : top;
  for (int c = 0; c < count; c++) total = fma(stat[c].y, exp(stat[c].x - floor), total);
  for (int i = (int)t.index; i < a.d; i += 128) {
    float x = 0.0f;
    for (int c = 0; c < count; c++) x = fma(part[(long)c * a.d + i], exp(stat[c].x - floor), x);
    o[(long)t.group.x * a.d + i] = count ? x / total : 0.0f;
  }
  if (t.index == 0) lse[t.group.x] = count ? top + log(total) : -INFINITY;
}

#define LF_DECODE(DP, G)                                                                                                                \
  LF_KERNEL(128) attention_decode_##DP##_##G(                                                                                           \
      device float* o [[buffer(0)]], device float* lse [[buffer(1)]], device float* part [[buffer(2)]], device float2* stat [[buffer(3)]], \
      device const float* q [[buffer(4)]], device const float* k [[buffer(5)]], device const float* v [[buffer(6)]],                    \
      device const int* lo [[buffer(7)]], device const int* hi [[buffer(8)]], device long* trap [[buffer(9)]],                          \
      constant attention_decode_args& a [[buffer(10)]], LF_THREAD) {                                                                    \
    LF_BEGIN;                                                                                                                           \
    threadgroup float4 qs[G * DP / 4];                                                                                                  \
    threadgroup float room[G * (DP < 64 ? LF_DECODE_KEYS : 4 * DP)];                                                                    \
    threadgroup float tops[G], totals[G], shrinks[G];                                                                                   \
    lf_decode<DP, G>(t, qs, room, tops, totals, shrinks, o, lse, part, stat, q, k, v, lo, hi, trap, a);                                 \
  }
#define LF_DECODE_ALL(DP) LF_DECODE(DP, 1) LF_DECODE(DP, 2) LF_DECODE(DP, 4)
LF_DECODE_ALL(32) LF_DECODE(32, 8)
LF_DECODE_ALL(64) LF_DECODE(64, 8)
LF_DECODE_ALL(128) LF_DECODE(128, 8)
LF_DECODE_ALL(256)
