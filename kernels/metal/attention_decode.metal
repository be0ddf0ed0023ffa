// Attention of few queries over many keys (decoding), and of all queries whose
// keys lie in pages or whose scores are capped or biased. Formulas and layout are the
// same as in attention.metal; key j of paged k and v is row pages[j/page]·page + j%page,
// and s = cap·tanh(scale q·k/cap) + bias, where bias is element h·bias_head +
// i·bias_query + j·bias_key or, with a reach r ≥ 0, h·bias_head + r + min(max(j−i, −r), r).
//
// The work is reading k and v once, so the keys of a query are cut into chunks that
// threadgroups read at the same time; a second kernel merges what the chunks have found,
// in ascending order. Chunks are counted from lo, and their size depends on the
// number of keys that the query sees, so its result does not depend on the other
// queries, on the position of its keys in k and v, or on the number of threadgroups.
//
// All products are float32; q, k, v and o may be in memory as bfloat16. A threadgroup
// reads each row of k and v once for R pairs of a query and a head. attention_decode_*
// has one query, and R heads that share a key head. attention_queries_* has `tile`
// queries of R / tile heads each, for prompts: of each tile of queries it takes those
// whose neighbour has the same chunks, and the other kernel takes the rest. Both
// compute the same bits.
//
// Grid: 128 threads; x runs over queries or tiles of them, y over key heads and the
//   parts of the heads of a group, z over chunks (threadgroup z takes the chunks z,
//   z + groups.z, …). attention_merge: a threadgroup for each query and head.
// Threadgroup memory: q [R][DP]; scores [256][R], and in their place, when they have
//   been used, the sums of 4 warps [4][R][DP]; the rows of the keys of two rounds
//   [2][256].
// Traffic: k and v of the keys of a query or a tile once, by four elements a thread and
//   8 lanes a row (without simdgroups, a thread for a row of k), and their pages; d+2
//   floats for each query, head and chunk if there are several.
//   Flops: 4 d heads for each key.
// Reference: for c { m_c = max_j s; l_c = Σ_j exp(s − m_c); o_c = Σ_j exp(s − m_c) v[j] }
//            m = max m_c; l = Σ l_c exp(m_c − m); o = Σ o_c exp(m_c − m) / l
#include "attention.h"

#define LF_DECODE_KEYS 256   // of a round
#define LF_DECODE_CHUNK 128  // chunks are multiples of it

// The keys that a query sees, in count chunks of size keys. The first begins at key start.
struct lf_chunks {
  int begin, end, start, size, count;
};

inline lf_chunks lf_cut(device const int* lo, device const int* hi, int row, int n, int keys, int window, int chunks) {
  const int2 seen = lf_seen(lo, hi, row, n, keys, window);
  lf_chunks c = {0, 0, 0, LF_DECODE_CHUNK, 0};
  if (seen.x >= seen.y) return c;
  const int origin = max(lo[row], 0), span = seen.y - (chunks > 1 ? seen.x : origin);
  c.begin = seen.x;
  c.end = seen.y;
  c.size = LF_DECODE_CHUNK * ((span - 1) / (LF_DECODE_CHUNK * chunks) + 1);
  const int first = (seen.x - origin) / c.size;
  c.start = origin + first * c.size;
  c.count = (seen.y - origin - 1) / c.size + 1 - first;
  return c;
}

// Reports whether a query and the next one are in one tile and their keys are cut at the same
// places. They are computed together.
inline bool lf_joined(int row, int tile, device const int* lo, device const int* hi, int n, int keys, int window, int chunks) {
  if (row < 0 || row + 1 >= n || (row + 1) % tile == 0) return false;
  const lf_chunks x = lf_cut(lo, hi, row, n, keys, window, chunks), y = lf_cut(lo, hi, row + 1, n, keys, window, chunks);
  return x.count > 0 && y.count > 0 && x.start == y.start && x.size == y.size;
}

struct attention_decode_args {
  LF_ARGS;
  int n, keys, heads, group, d, window;
  float scale, cap;
  long bias_head, bias_query;
  int bias_key, reach, page, cached, chunks, slots, bf16, vec, tile, launch;
};

// Reports the first page of [from, to) that the cache does not have.
inline void lf_check_pages(lf_thread t, device const int* pages, int from, int to, device long* trap, constant attention_decode_args& a) {
  int bad = LF_NO_KEY;
  for (int i = from + (int)t.index; i < to && bad == LF_NO_KEY; i += 128)
    if (pages[i] < 0 || pages[i] >= a.cached / a.page) bad = i;
  bad = lf_warp_min(t, bad);
  if (t.lane != 0 || bad == LF_NO_KEY || trap[0] != 0) return;
  trap[1] = -1 - (long)bad;
  trap[2] = pages[bad];
  trap[0] = (long)a.launch + 1;
}

// q·k, four products at a time.
inline float lf_dot4(float4 x, float4 y, float s) { return fma(x.w, y.w, fma(x.z, y.z, fma(x.y, y.y, fma(x.x, y.x, s)))); }

// cap tanh(s/cap). From 10 on the tangent is 1, where powers of e would overflow.
inline float lf_capped(float s, float cap) {
  if (cap <= 0.0f) return s;
  const float x = s / cap;
  return cap * (fabs(x) > 10.0f ? copysign(1.0f, x) : precise::tanh(x));
}

// The bias of a head, a query and a key.
inline float lf_bias(device const float* bias, int head, int row, int key, constant attention_decode_args& a) {
  if (!LF_BOUND(a, 10) || head >= a.heads || row >= a.n) return 0.0f;
  return bias[head * a.bias_head +
              (a.reach < 0 ? row * a.bias_query + key * (long)a.bias_key : (long)(a.reach + max(-a.reach, min(key - row, a.reach))))];
}

// ps[j, h] = scale q[h]·k[at[j]], −inf for j outside of [skip, here).
template <int DP, int R>
inline void lf_decode_scores(lf_thread t, threadgroup float* ps, threadgroup const float4* qs, threadgroup const int* at, device const void* k,
                             long from, long narrow, int skip, int here, constant attention_decode_args& a) {
  const int d = a.d;
  const bool bf16 = LF_IS(a.bf16, LF_K), vec = LF_IS(a.vec, LF_K);
#if LF_SIMD
  constexpr int STEPS = DP / 32; // float4 of a lane of a key: 8 lanes have one
  for (int j = (int)t.index / 8; j < (here + 15) / 16 * 16; j += 16) {
    const bool seen = j >= skip && j < here;
    float4 x[STEPS];
    for (int c = 0; c < STEPS; c++) x[c] = seen ? lf_four(k, bf16, from + at[j] * narrow, (int)(t.lane % 8) * 4 + 32 * c, d, vec) : float4(0.0f);
    for (int h = 0; h < R; h++) {
      float s = 0.0f;
      for (int c = 0; c < STEPS; c++) s = lf_dot4(x[c], qs[h * (DP / 4) + (int)(t.lane % 8) + 8 * c], s);
      s = lf_row_sum(t, s);
      if (t.lane % 8 == 0) ps[j * R + h] = seen ? s * a.scale : -INFINITY;
    }
  }
#else
  for (int j = (int)t.index; j < here; j += 128) {
    float s[R];
    for (int h = 0; h < R; h++) s[h] = 0.0f;
    for (int c = 0; c < DP / 4 && j >= skip; c++) {
      float4 x = lf_four(k, bf16, from + at[j] * narrow, 4 * c, d, vec);
      for (int h = 0; h < R; h++) s[h] = lf_dot4(x, qs[h * (DP / 4) + c], s[h]);
    }
    for (int h = 0; h < R; h++) ps[j * R + h] = j >= skip ? s[h] * a.scale : -INFINITY;
  }
#endif
}

// Computes the queries [row, row + queries), of which a tile has several that are computed
// together. Pair h of the threadgroup is query row + h / across and head h % across of those
// heads of the group that the threadgroup takes. One chunk is written to o and lse. Of
// several, part has, for each query, head and chunk, d sums, and stat {m, l}; slots is the
// number of chunks that there is room for.
template <int DP, int R, bool TILE>
inline void lf_decode(lf_thread t, int row, int queries, int across, threadgroup float4* qs, threadgroup float* room, threadgroup float* tops,
                      threadgroup float* totals, threadgroup float* shrinks, threadgroup int2* spans, threadgroup int* rows, device void* o,
                      device float* lse, device float* part, device float2* stat, device const void* q, device const void* k,
                      device const void* v, device const int* lo, device const int* hi, device const int* pages, device const float* bias,
                      constant attention_decode_args& a) {
  constexpr int WIDE = DP / 4 < 32 ? DP / 4 : 32; // lanes of a value
  constexpr int ACROSS = DP / 4 / WIDE;           // float4 of each
  constexpr int VALUES = 32 / WIDE;               // values that a warp takes at a time
  const int tid = (int)t.index, lane = (int)t.lane, warp = (int)t.warp, d = a.d;
  const int split = (a.group + across - 1) / across, key_head = (int)t.group.y / split, from = (int)t.group.y % split * across;
  const int count = min(across, a.group - from), head = key_head * a.group + from;
  const long narrow = (long)(a.heads / a.group) * d, first_key = (long)key_head * d;

  lf_chunks cut = lf_cut(lo, hi, row, a.n, a.keys, a.window, a.chunks);
  int2 all = int2(cut.begin, cut.end); // keys that all queries see
  for (int i = 1; TILE && i < queries; i++) {
    const lf_chunks c = lf_cut(lo, hi, row + i, a.n, a.keys, a.window, a.chunks);
    all = int2(max(all.x, c.begin), min(all.y, c.end));
    cut.begin = min(cut.begin, c.begin);
    cut.end = max(cut.end, c.end);
    cut.count = max(cut.count, c.count);
  }
  if (TILE && tid < R) spans[tid] = tid / across < queries ? lf_seen(lo, hi, row + tid / across, a.n, a.keys, a.window) : int2(0, 0);
  for (int e = tid; e < R * DP / 4; e += 128) {
    const int h = e / (DP / 4), c = e % (DP / 4) * 4, of = h / across, at = h % across;
    qs[e] = of < queries && at < count ? lf_four(q, LF_IS(a.bf16, LF_Q), ((long)(row + of) * a.heads + head + at) * d, c, d, false) : float4(0.0f);
  }
  int odd = 0;
  for (int index = (int)t.group.z; index < max(cut.count, 1); index += (int)t.groups.z) { // for all threads alike, as all loops are
    const int begin = cut.start + index * cut.size, end = min(cut.end, begin + cut.size);
    float4 acc[R][ACROSS];
    for (int h = 0; h < R; h++)
      for (int c = 0; c < ACROSS; c++) acc[h][c] = float4(0.0f);
    if (tid < R) {
      tops[tid] = -INFINITY;
      totals[tid] = 0.0f;
    }
    for (int base = begin; base < end; base += LF_DECODE_KEYS) {
      const int here = min(LF_DECODE_KEYS, end - base), skip = max(0, cut.begin - base);
      if (skip >= here) continue;
      threadgroup int* at = rows + odd; // those of the last round may still be read
      odd ^= LF_DECODE_KEYS;
      for (int j = tid; j < here; j += 128) {
        const int key = base + j;
        at[j] = a.page && j >= skip ? max(0, min(pages[key / a.page], a.cached / a.page - 1)) * a.page + key % a.page : key;
      }
      lf_barrier(); // q and rows have arrived, and the last scores have been used
      lf_decode_scores<DP, R>(t, room, qs, at, k, first_key, narrow, skip, here, a);
      lf_barrier();
      // The running softmax: a warp for each pair.
      for (int first = 0; first < R; first += 4) {
        const int h = first + warp;
        const bool mine = h < R;
        const int2 span = TILE && mine ? spans[h] : int2(cut.begin, cut.end);
        for (int j = lane; j < here && mine; j += 32)
          if (base + j < span.x || base + j >= span.y)
            room[j * R + h] = -INFINITY; // another query sees it
          else
            room[j * R + h] = lf_capped(room[j * R + h], a.cap) + lf_bias(bias, head + h % across, row + h / across, base + j, a);
        float most = -INFINITY, total = 0.0f;
        for (int j = lane; j < here && mine; j += 32) most = fmax(most, room[j * R + h]);
        const float before = mine ? tops[h] : 0.0f;
        const float top = fmax(before, lf_warp_max(t, most)), floor = top == -INFINITY ? 0.0f : top;
        for (int j = lane; j < here && mine; j += 32) {
          float p = exp(room[j * R + h] - floor);
          total += p;
          room[j * R + h] = p;
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
      for (int h = 0; h < R; h++) {
        float f = shrinks[h];
#pragma unroll
        for (int c = 0; c < ACROSS; c++) acc[h][c] *= f;
      }
      for (int j = warp * VALUES + lane / WIDE; j < here; j += 4 * VALUES) {
        const int key = base + j;
        const bool every = !TILE || (key >= all.x && key < all.y); // or a value that a query does not see could be infinite
#pragma unroll
        for (int c = 0; c < ACROSS; c++) {
          float4 x = float4(0.0f);
          if (j >= skip) x = lf_four(v, LF_IS(a.bf16, LF_V), first_key + at[j] * narrow, lane % WIDE * 4 + 128 * c, d, LF_IS(a.vec, LF_V));
#pragma unroll
          for (int h = 0; h < R; h++)
            if (every || (key >= spans[h].x && key < spans[h].y)) acc[h][c] = fma(float4(room[j * R + h]), x, acc[h][c]);
        }
      }
    }
    lf_barrier(); // the scores have been used; the sums replace them
    // The lanes of a warp that had the same columns, then the warps in order.
#pragma unroll
    for (int h = 0; h < R; h++)
#pragma unroll
      for (int c = 0; c < ACROSS; c++) {
        float4 x = acc[h][c];
        for (uint b = WIDE; b < 32; b *= 2) {
          x.x += lf_shuffle_xor(t, x.x, b);
          x.y += lf_shuffle_xor(t, x.y, b);
          x.z += lf_shuffle_xor(t, x.z, b);
          x.w += lf_shuffle_xor(t, x.w, b);
        }
        if (lane < WIDE) lf_put4(room + (warp * R + h) * DP + lane * 4 + 128 * c, x);
      }
    lf_barrier();
    // Each pair has chunks of its own number: a query of a tile may see fewer than the last.
    for (int e = tid; e < R * DP + R; e += 128) {
      const int h = e < R * DP ? e / DP : e - R * DP, c = e % DP, of = h / across, at = h % across;
      if (of >= queries || at >= count || (e < R * DP && c >= d)) continue;
      const int chunk = TILE ? (spans[h].y - cut.start - 1) / cut.size + 1 : cut.count;
      if (TILE && index >= chunk) continue;
      const long pair = (long)(row + of) * a.heads + head + at;
      if (e < R * DP) {
        const float x = ((room[e] + room[R * DP + e]) + room[2 * R * DP + e]) + room[3 * R * DP + e];
        if (chunk <= 1)
          lf_store_one(o, LF_IS(a.bf16, LF_O), pair * d + c, chunk ? x / totals[h] : 0.0f);
        else
          part[(pair * a.slots + index) * d + c] = x;
      } else if (chunk <= 1) {
        lse[pair] = chunk ? tops[h] + log(totals[h]) : -INFINITY;
      } else {
        stat[pair * a.slots + index] = float2(tops[h], totals[h]);
      }
    }
    lf_barrier(); // the sums have been used
  }
}

struct attention_merge_args { LF_ARGS; int n, keys, heads, d, window, chunks, slots, bf16; };

LF_KERNEL(128) attention_merge(device uchar* o [[buffer(0)]], device float* lse [[buffer(1)]], device const float* part [[buffer(2)]],
                               device const float2* stat [[buffer(3)]], device const int* lo [[buffer(4)]],
                               device const int* hi [[buffer(5)]], constant attention_merge_args& a [[buffer(6)]], LF_THREAD) {
  LF_BEGIN;
  const int count = lf_cut(lo, hi, (int)t.group.x / a.heads, a.n, a.keys, a.window, a.chunks).count;
  if (count <= 1) return;
  part += (long)t.group.x * a.slots * a.d;
  stat += (long)t.group.x * a.slots;
  float top = -INFINITY, total = 0.0f;
  for (int c = 0; c < count; c++) top = fmax(top, stat[c].x);
  const float floor = top == -INFINITY ? 0.0f : top;
  for (int c = 0; c < count; c++) total = fma(stat[c].y, exp(stat[c].x - floor), total);
  for (int i = (int)t.index; i < a.d; i += 128) {
    float x = 0.0f;
    for (int c = 0; c < count; c++) x = fma(part[(long)c * a.d + i], exp(stat[c].x - floor), x);
    lf_store_one(o, LF_IS(a.bf16, LF_O), (long)t.group.x * a.d + i, x / total);
  }
  if (t.index == 0) lse[t.group.x] = top + log(total);
}

#define LF_DECODE_KERNEL(NAME, DP, R, ...)                                                                                              \
  LF_KERNEL(128) NAME(                                                                                                                  \
      device uchar* o [[buffer(0)]], device float* lse [[buffer(1)]], device float* part [[buffer(2)]], device float2* stat [[buffer(3)]], \
      device const uchar* q [[buffer(4)]], device const uchar* k [[buffer(5)]], device const uchar* v [[buffer(6)]],                       \
      device const int* lo [[buffer(7)]], device const int* hi [[buffer(8)]], device const int* pages [[buffer(9)]],                    \
      device const float* bias [[buffer(10)]], device long* trap [[buffer(11)]], constant attention_decode_args& a [[buffer(12)]], LF_THREAD) { \
    LF_BEGIN;                                                                                                                           \
    threadgroup float4 qs[R * DP / 4];                                                                                                  \
    threadgroup float room[R * (DP < 64 ? LF_DECODE_KEYS : 4 * DP)];                                                                    \
    threadgroup float tops[R], totals[R], shrinks[R];                                                                                   \
    threadgroup int2 spans[R];                                                                                                          \
    threadgroup int rows[2 * LF_DECODE_KEYS];                                                                                           \
    __VA_ARGS__                                                                                                                         \
  }
#define LF_DECODE_CALL(DP, R, TILE, ROW, QUERIES, ACROSS)                                                                               \
  lf_decode<DP, R, TILE>(t, ROW, QUERIES, ACROSS, qs, room, tops, totals, shrinks, spans, rows, o, lse, part, stat, q, k, v, lo, hi,     \
                         pages, bias, a)

// One query. It also checks the intervals and the pages.
#define LF_DECODE(DP, G)                                                                                                                \
  LF_DECODE_KERNEL(attention_decode_##DP##_##G, DP, G, {                                                                                \
    const int row = (int)t.group.x;                                                                                                     \
    if (t.group.z == 0 && t.group.y == 0) {                                                                                             \
      if (t.index == 0) lf_check_seen(lo, hi, row, a.n, a.keys, a.window, trap, a.launch);                                              \
      const int all = a.page ? a.keys / a.page : 0, share = (all + a.n - 1) / a.n;                                                      \
      lf_check_pages(t, pages, min(all, row * share), min(all, (row + 1) * share), trap, a);                                            \
    }                                                                                                                                   \
    if (a.tile > 1 && (lf_joined(row - 1, a.tile, lo, hi, a.n, a.keys, a.window, a.chunks) ||                                           \
                       lf_joined(row, a.tile, lo, hi, a.n, a.keys, a.window, a.chunks)))                                                \
      return;                                                                                                                           \
    LF_DECODE_CALL(DP, G, false, row, 1, G);                                                                                            \
  })
#define LF_DECODE_ALL(DP) LF_DECODE(DP, 1) LF_DECODE(DP, 2) LF_DECODE(DP, 4)
LF_DECODE_ALL(32) LF_DECODE(32, 8)
LF_DECODE_ALL(64) LF_DECODE(64, 8)
LF_DECODE_ALL(128) LF_DECODE(128, 8)
LF_DECODE_ALL(256)
LF_DECODE(512, 1) LF_DECODE(512, 2)

// The queries of a tile that are computed together, one run of them after the other. R pairs fit
// 32 KB of threadgroup memory.
#define LF_QUERIES(DP, R)                                                                                                               \
  LF_DECODE_KERNEL(attention_queries_##DP, DP, R, {                                                                                     \
    const int last = min(a.n, ((int)t.group.x + 1) * a.tile);                                                                           \
    for (int row = (int)t.group.x * a.tile, next = 0; row < last; row = next) {                                                         \
      for (next = row + 1; lf_joined(next - 1, a.tile, lo, hi, a.n, a.keys, a.window, a.chunks); next++) {}                             \
      if (next - row > 1) LF_DECODE_CALL(DP, R, true, row, next - row, R / a.tile);                                                     \
    }                                                                                                                                   \
  })
LF_QUERIES(32, 16)
LF_QUERIES(64, 16)
LF_QUERIES(128, 8)
LF_QUERIES(256, 4)
