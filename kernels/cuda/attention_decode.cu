// Attention of few queries over many keys (decoding), and of all queries whose
// keys lie in pages or whose scores are capped or biased. Formulas and layout are the
// same as in attention.cu; key j of paged k and v is row pages[j/page]·page + j%page,
// and s = cap·tanh(scale q·k/cap) + bias, where bias is element h·bias_head +
// i·bias_query + j·bias_key or, with a reach r ≥ 0, h·bias_head + r + min(max(j−i, −r), r).
//
// The work is reading k and v once, so the keys of a query are cut into chunks that
// blocks read at the same time; a second kernel merges what the chunks have found,
// in ascending order. Chunks are counted from lo, and their size depends on the
// number of keys that the query sees, so its result does not depend on the other
// queries, on the position of its keys in k and v, or on the number of blocks.
//
// All products are float32; q, k, v and o may be in memory as bfloat16. A block reads
// each row of k and v once for R pairs of a query and a head. attention_decode_* has
// one query, and R heads that share a key head. attention_queries_* has `tile` queries
// of R / tile heads each, for prompts: of each tile of queries it takes those whose
// neighbour has the same chunks, and the other kernel takes the rest. Both compute
// the same bits.
//
// Grid: 128 threads; x runs over queries or tiles of them, y over key heads and the
//   parts of the heads of a group, z over chunks (block z takes the chunks z,
//   z + gridDim.z, …). attention_merge: a block for each query and head.
// Shared: q [R][DP]; scores [256][R], of a tile [256][R+4], and in their place, when they
//   have been used, the sums of 4 warps [4][R][DP]; the rows of the keys of two rounds
//   [2][256].
// Traffic: k and v of the keys of a query or a tile once, by four elements a thread and
//   8 lanes a row, and their pages; d+2 floats for each query, head and chunk if there
//   are several.
//   Flops: 4 d heads for each key.
// Reference: for c { m_c = max_j s; l_c = Σ_j exp(s − m_c); o_c = Σ_j exp(s − m_c) v[j] }
//            m = max m_c; l = Σ l_c exp(m_c − m); o = Σ o_c exp(m_c − m) / l
#include "attention.cuh"

#define LF_DECODE_KEYS 256   // of a round
#define LF_DECODE_CHUNK 128  // chunks are multiples of it

// The keys that a query sees, in count chunks of size keys. The first begins at key start.
struct lf_chunks {
  int begin, end, start, size, count;
};

LF_DEVICE lf_chunks lf_cut(const int* lo, const int* hi, int row, int n, int keys, int window, int chunks) {
  const int2 seen = lf_seen(lo, hi, row, n, keys, window);
  if (seen.x >= seen.y) return {0, 0, 0, LF_DECODE_CHUNK, 0};
  const int origin = max(lo[row], 0), span = seen.y - (chunks > 1 ? seen.x : origin);
  lf_chunks c = {seen.x, seen.y, 0, LF_DECODE_CHUNK * ((span - 1) / (LF_DECODE_CHUNK * chunks) + 1), 0};
  const int first = (seen.x - origin) / c.size;
  c.start = origin + first * c.size;
  c.count = (seen.y - origin - 1) / c.size + 1 - first;
  return c;
}

// Reports whether a query and the next one are in one tile and their keys are cut at the same
// places. They are computed together.
LF_DEVICE bool lf_joined(int row, int tile, const int* lo, const int* hi, int n, int keys, int window, int chunks) {
  if (row < 0 || row + 1 >= n || (row + 1) % tile == 0) return false;
  const lf_chunks x = lf_cut(lo, hi, row, n, keys, window, chunks), y = lf_cut(lo, hi, row + 1, n, keys, window, chunks);
  return x.count > 0 && y.count > 0 && x.start == y.start && x.size == y.size;
}

// Reports the first page of [from, to) that the cache does not have.
LF_DEVICE void lf_check_pages(const int* pages, int from, int to, int most, long long* trap, int launch) {
  int bad = LF_NO_KEY;
  for (int i = from + (int)threadIdx.x; i < to && bad == LF_NO_KEY; i += 128)
    if (pages[i] < 0 || pages[i] >= most) bad = i;
  bad = lf_warp_min_int(bad);
  if ((threadIdx.x & 31) || bad == LF_NO_KEY || trap[0]) return;
  trap[1] = -1 - bad;
  trap[2] = pages[bad];
  trap[0] = launch + 1;
}

// ps[j, h] = scale q[h]·k[at[j]], −inf for j outside of [skip, here). 16 keys at a
// time, 8 lanes for each. S floats lie between the scores of two keys.
template <class T, int DP, int R, int S>
LF_DEVICE void lf_decode_scores(float* ps, const float* qs, const int* at, const T* k, long long narrow, int skip, int here, int d,
                                float scale, int vec) {
  constexpr int STEPS = DP / 32;  // times four elements of a lane of a key
  const int tid = threadIdx.x, lane = tid & 31;
#pragma unroll(R > 8 || DP > 256 ? 1 : 2)  // more rows or longer ones hide the latency
  for (int j = tid / 8; j < (here + 15) / 16 * 16; j += 16) {
    const bool seen = j >= skip && j < here;
    float4 x[STEPS];
#pragma unroll
    for (int c = 0; c < STEPS; c++)
      x[c] = seen ? lf_four(k + at[j] * narrow, (lane & 7) * 4 + 32 * c, d, vec) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int h = 0; h < R; h++) {
      float s = 0.0f;
#pragma unroll
      for (int c = 0; c < STEPS; c++) {
        float4 y = *reinterpret_cast<const float4*>(qs + h * DP + (lane & 7) * 4 + 32 * c);
        s = fmaf(x[c].w, y.w, fmaf(x[c].z, y.z, fmaf(x[c].y, y.y, fmaf(x[c].x, y.x, s))));
      }
#pragma unroll
      for (int b = 4; b; b >>= 1) s += __shfl_xor_sync(0xffffffffu, s, b);
      if ((lane & 7) == 0) ps[j * S + h] = seen ? s * scale : -INFINITY;
    }
  }
}

// Returns x + p y.
LF_DEVICE float4 lf_fma4(float p, float4 y, float4 x) {
  return make_float4(fmaf(p, y.x, x.x), fmaf(p, y.y, x.y), fmaf(p, y.z, x.z), fmaf(p, y.w, x.w));
}

// acc[h] += Σ_j ps[j, h] v[at[j]] over the warp's share of the keys j in [skip, here). In
// a tile, all queries see the keys of [all.x, all.y), and pair h those of spans[h]: a value
// that it does not see may be infinite.
template <class T, int DP, int R, int S, bool TILE>
LF_DEVICE void lf_decode_values(float4 (&acc)[R][(DP + 127) / 128], const float* ps, const int* at, const T* v, long long narrow, int skip,
                                int here, int d, int vec, int base, int2 all, const int2* spans) {
  constexpr int WIDE = DP / 4 < 32 ? DP / 4 : 32;  // lanes of a value
  constexpr int VALUES = 32 / WIDE;                // values that a warp takes at a time
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll(TILE ? 2 : 4)
  for (int j = warp * VALUES + lane / WIDE; j < here; j += 4 * VALUES) {
    const int key = base + j;
    const bool every = key >= all.x && key < all.y;
#pragma unroll
    for (int c = 0; c < (DP + 127) / 128; c++) {
      float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (j >= skip) x = lf_four(v + at[j] * narrow, (lane % WIDE) * 4 + 128 * c, d, vec);
      if (!TILE) {
#pragma unroll
        for (int h = 0; h < R; h++) acc[h][c] = lf_fma4(ps[j * S + h], x, acc[h][c]);
      } else if (every) {
#pragma unroll
        for (int h = 0; h + 4 <= R; h += 4) {
          const float4 p = *reinterpret_cast<const float4*>(ps + j * S + h);
          acc[h][c] = lf_fma4(p.x, x, acc[h][c]);
          acc[h + 1][c] = lf_fma4(p.y, x, acc[h + 1][c]);
          acc[h + 2][c] = lf_fma4(p.z, x, acc[h + 2][c]);
          acc[h + 3][c] = lf_fma4(p.w, x, acc[h + 3][c]);
        }
      } else {
#pragma unroll
        for (int h = 0; h < R; h++)
          if (key >= spans[h].x && key < spans[h].y) acc[h][c] = lf_fma4(ps[j * S + h], x, acc[h][c]);
      }
    }
  }
}

// Computes the queries [row, row + queries), of which a tile has several that are computed
// together. Pair h of the block is query row + h / across and head h % across of those heads
// of the group that the block takes. One chunk is written to o and lse. Of several, part has,
// for each query, head and chunk, d sums, and stat {m, l}; slots is the number of chunks that
// there is room for.
template <int DP, int R, bool TILE>
LF_DEVICE void lf_decode(int row, int queries, int across, void* o, float* lse, float* part, float2* stat, const void* q, const void* k,
                         const void* v, const int* lo, const int* hi, const int* pages, const float* bias, int n, int keys, int heads,
                         int group, int d, int window, float scale, float cap, long long bias_head, long long bias_query, int bias_key,
                         int reach, int page, int cached, int chunks, int slots, int bf16, int vec) {
  constexpr int WIDE = DP / 4 < 32 ? DP / 4 : 32; // lanes of a value
  constexpr int ACROSS = (DP + 127) / 128;        // float4 of each
  constexpr int S = TILE ? R + 4 : R;             // four scores of a key are aligned, those of eight keys are in all banks
  LF_DYN_SHARED(float, shared);
  float *qs = shared, *ps = qs + R * DP, *sums = ps;  // the sums replace the scores
  LF_SHARED(float, tops, [R]);
  LF_SHARED(float, totals, [R]);
  LF_SHARED(float, shrinks, [R]);
  LF_SHARED(int2, spans, [R]);
  LF_SHARED(int, rows, [2 * LF_DECODE_KEYS]);
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const int split = (group + across - 1) / across, key_head = blockIdx.y / split, from = blockIdx.y % split * across;
  const int count = min(across, group - from), head = key_head * group + from;
  const long long narrow = (long long)(heads / group) * d, first = (long long)key_head * d;

  lf_chunks cut = lf_cut(lo, hi, row, n, keys, window, chunks);
  int2 all = make_int2(cut.begin, cut.end);
  for (int i = 1; TILE && i < queries; i++) {
    const lf_chunks c = lf_cut(lo, hi, row + i, n, keys, window, chunks);
    all = make_int2(max(all.x, c.begin), min(all.y, c.end));
    cut.begin = min(cut.begin, c.begin);
    cut.end = max(cut.end, c.end);
    cut.count = max(cut.count, c.count);
  }
  if (TILE && tid < R) spans[tid] = tid / across < queries ? lf_seen(lo, hi, row + tid / across, n, keys, window) : make_int2(0, 0);
  for (int e = tid; e < R * DP; e += 128) {
    const int h = e / DP, c = e % DP, of = h / across, at = h % across;
    if (of >= queries || at >= count || c >= d) {
      qs[e] = 0.0f;
      continue;
    }
    const long long from = ((long long)(row + of) * heads + head + at) * d + c;
    qs[e] = LF_IS(bf16, LF_Q) ? lf_float(static_cast<const lf_bf16*>(q)[from]) : static_cast<const float*>(q)[from];
  }
  int odd = 0;
  for (int index = blockIdx.z; index < max(cut.count, 1); index += gridDim.z) {
    const int begin = cut.start + index * cut.size, end = min(cut.end, begin + cut.size);
    float4 acc[R][ACROSS];
#pragma unroll
    for (int h = 0; h < R; h++)
#pragma unroll
      for (int c = 0; c < ACROSS; c++) acc[h][c] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (tid < R) {
      tops[tid] = -INFINITY;
      totals[tid] = 0.0f;
    }
    for (int base = begin; base < end; base += LF_DECODE_KEYS) {
      const int here = min(LF_DECODE_KEYS, end - base), skip = max(0, cut.begin - base);
      if (skip >= here) continue;
      int* at = rows + odd;  // those of the last round may still be read
      odd ^= LF_DECODE_KEYS;
      for (int j = tid; j < here; j += 128) {
        const int key = base + j;
        at[j] = page && j >= skip ? max(0, min(pages[key / page], cached / page - 1)) * page + key % page : key;
      }
      __syncthreads();  // q and rows have arrived, and the last scores have been used
      if (LF_IS(bf16, LF_K))
        lf_decode_scores<lf_bf16, DP, R, S>(ps, qs, at, static_cast<const lf_bf16*>(k) + first, narrow, skip, here, d, scale, LF_IS(vec, LF_K));
      else
        lf_decode_scores<float, DP, R, S>(ps, qs, at, static_cast<const float*>(k) + first, narrow, skip, here, d, scale, LF_IS(vec, LF_K));
      __syncthreads();
      // The running softmax: a warp for each pair.
      for (int h = warp; h < R; h += 4) {
        const int2 span = TILE ? spans[h] : make_int2(cut.begin, cut.end);
        const bool hidden = TILE && (span.x > base + skip || span.y < base + here);  // keys of other queries
        const int of = row + h / across, mine = h % across;
        if (cap > 0.0f || bias || hidden)
#pragma unroll 1  // registers are for loads of keys and values
          for (int j = lane; j < here; j += 32) {
            float s = ps[j * S + h];
            if (cap > 0.0f && j >= skip) s = cap * tanhf(s / cap);
            if (bias && mine < count && of < n)
              s += bias[(head + mine) * bias_head + (reach < 0 ? of * bias_query + (base + j) * (long long)bias_key
                                                               : reach + max(-reach, min(base + j - of, reach)))];
            if (hidden && (base + j < span.x || base + j >= span.y)) s = -INFINITY;
            ps[j * S + h] = s;
          }
        float most = -INFINITY, total = 0.0f;
        for (int j = lane; j < here; j += 32) most = fmaxf(most, ps[j * S + h]);
        float before = tops[h], top = fmaxf(before, lf_warp_max(most)), floor = top == -INFINITY ? 0.0f : top;
        for (int j = lane; j < here; j += 32) {
          float p = expf(ps[j * S + h] - floor);
          total += p;
          ps[j * S + h] = p;
        }
        total = lf_warp_sum(total);
        __syncwarp();
        if (lane == 0) {
          float shrink = expf(before - floor);
          shrinks[h] = shrink;
          totals[h] = totals[h] * shrink + total;
          tops[h] = top;
        }
      }
      __syncthreads();
      // Sums of values: each warp its share of the keys.
#pragma unroll
      for (int h = 0; h < R; h++) {
        float f = shrinks[h];
#pragma unroll
        for (int c = 0; c < ACROSS; c++) {
          acc[h][c].x *= f;
          acc[h][c].y *= f;
          acc[h][c].z *= f;
          acc[h][c].w *= f;
        }
      }
      if (LF_IS(bf16, LF_V))
        lf_decode_values<lf_bf16, DP, R, S, TILE>(acc, ps, at, static_cast<const lf_bf16*>(v) + first, narrow, skip, here, d, LF_IS(vec, LF_V), base, all, spans);
      else
        lf_decode_values<float, DP, R, S, TILE>(acc, ps, at, static_cast<const float*>(v) + first, narrow, skip, here, d, LF_IS(vec, LF_V), base, all, spans);
    }
    __syncthreads();  // the scores have been used; the sums replace them
    // The lanes of a warp that had the same columns, then the warps in order.
#pragma unroll
    for (int h = 0; h < R; h++)
#pragma unroll
      for (int c = 0; c < ACROSS; c++) {
        float4 x = acc[h][c];
#pragma unroll
        for (int b = WIDE; b < 32; b *= 2) {
          x.x += __shfl_xor_sync(0xffffffffu, x.x, b);
          x.y += __shfl_xor_sync(0xffffffffu, x.y, b);
          x.z += __shfl_xor_sync(0xffffffffu, x.z, b);
          x.w += __shfl_xor_sync(0xffffffffu, x.w, b);
        }
        if (lane < WIDE) *reinterpret_cast<float4*>(sums + (warp * R + h) * DP + lane * 4 + 128 * c) = x;
      }
    __syncthreads();
    // Each pair has chunks of its own number: a query of a tile may see fewer than the last.
    for (int e = tid; e < R * DP + R; e += 128) {
      const int h = e < R * DP ? e / DP : e - R * DP, c = e % DP, of = h / across, at = h % across;
      if (of >= queries || at >= count || (e < R * DP && c >= d)) continue;
      const int chunk = TILE ? (spans[h].y - cut.start - 1) / cut.size + 1 : cut.count;
      if (TILE && index >= chunk) continue;
      const long long pair = (long long)(row + of) * heads + head + at;
      if (e < R * DP) {
        float x = ((sums[e] + sums[R * DP + e]) + sums[2 * R * DP + e]) + sums[3 * R * DP + e];
        if (chunk <= 1) lf_store_one(o, LF_IS(bf16, LF_O), pair * d + c, chunk ? x / totals[h] : 0.0f);
        else part[(pair * slots + index) * d + c] = x;
      } else if (chunk <= 1) {
        lse[pair] = chunk ? tops[h] + logf(totals[h]) : -INFINITY;
      } else {
        stat[pair * slots + index] = make_float2(tops[h], totals[h]);
      }
    }
    __syncthreads();  // the sums have been used
  }
}

extern "C" __global__ void __launch_bounds__(128)
    attention_merge(void* o, float* lse, const float* part, const float2* stat, const int* lo, const int* hi, int n,
                    int keys, int heads, int d, int window, int chunks, int slots, int bf16) {
  const int count = lf_cut(lo, hi, blockIdx.x / heads, n, keys, window, chunks).count;
  if (count <= 1) return;
  part += (long long)blockIdx.x * slots * d;
  stat += (long long)blockIdx.x * slots;
  float top = -INFINITY, total = 0.0f;
  for (int c = 0; c < count; c++) top = fmaxf(top, stat[c].x);
  const float floor = top == -INFINITY ? 0.0f : top;
  for (int c = 0; c < count; c++) total = fmaf(stat[c].y, expf(stat[c].x - floor), total);
  for (int i = threadIdx.x; i < d; i += 128) {
    float x = 0.0f;
    for (int c = 0; c < count; c++) x = fmaf(part[(long long)c * d + i], expf(stat[c].x - floor), x);
    lf_store_one(o, LF_IS(bf16, LF_O), (long long)blockIdx.x * d + i, x / total);
  }
  if (threadIdx.x == 0) lse[blockIdx.x] = top + logf(total);
}
LF_KERNEL(attention_merge);

#define LF_DECODE_KERNEL(NAME, BLOCKS, ...)                                                                               \
  extern "C" __global__ void __launch_bounds__(128, BLOCKS) NAME(                                                         \
      void* o, float* lse, float* part, float2* stat, const void* q, const void* k, const void* v, const int* lo,         \
      const int* hi, const int* pages, const float* bias, int n, int keys, int heads, int group, int d, int window,       \
      float scale, float cap, long long bias_head, long long bias_query, int bias_key, int reach, int page, int cached,   \
      int chunks, int slots, int bf16, int vec, int tile, long long* trap, int launch) {                                  \
    __VA_ARGS__                                                                                                            \
  }                                                                                                                       \
  LF_KERNEL(NAME);
#define LF_DECODE_CALL(DP, R, TILE, ROW, QUERIES, ACROSS)                                                                 \
  lf_decode<DP, R, TILE>(ROW, QUERIES, ACROSS, o, lse, part, stat, q, k, v, lo, hi, pages, bias, n, keys, heads, group,   \
                         d, window, scale, cap, bias_head, bias_query, bias_key, reach, page, cached, chunks, slots,      \
                         bf16, vec)

// One query. It also checks the intervals and the pages.
#define LF_DECODE(DP, G, BLOCKS)                                                                                          \
  LF_DECODE_KERNEL(attention_decode_##DP##_##G, BLOCKS, {                                                                 \
    const int row = blockIdx.x;                                                                                           \
    if (blockIdx.z == 0 && blockIdx.y == 0) {                                                                             \
      if (threadIdx.x == 0) lf_check_seen(lo, hi, row, n, keys, window, trap, launch);                                    \
      const int all = page ? keys / page : 0, share = (all + n - 1) / n;                                                  \
      lf_check_pages(pages, min(all, row * share), min(all, (row + 1) * share), page ? cached / page : 0, trap, launch);  \
    }                                                                                                                     \
    if (tile > 1 && (lf_joined(row - 1, tile, lo, hi, n, keys, window, chunks) ||                                         \
                     lf_joined(row, tile, lo, hi, n, keys, window, chunks)))                                              \
      return;                                                                                                             \
    LF_DECODE_CALL(DP, G, false, row, 1, G);                                                                              \
  })
#define LF_DECODE_ALL(DP, BLOCKS) LF_DECODE(DP, 1, BLOCKS) LF_DECODE(DP, 2, BLOCKS) LF_DECODE(DP, 4, BLOCKS)
LF_DECODE_ALL(32, 4) LF_DECODE(32, 8, 3)
LF_DECODE_ALL(64, 4) LF_DECODE(64, 8, 3)
LF_DECODE_ALL(128, 4) LF_DECODE(128, 8, 2)
LF_DECODE_ALL(256, 2)  // 8 heads of 256 do not fit the registers
LF_DECODE_ALL(512, 2)

// The queries of a tile that are computed together, one run of them after the other.
#define LF_QUERIES(DP, R, BLOCKS)                                                                                         \
  LF_DECODE_KERNEL(attention_queries_##DP, BLOCKS, {                                                                      \
    const int last = min(n, ((int)blockIdx.x + 1) * tile);                                                                \
    for (int row = blockIdx.x * tile, next; row < last; row = next) {                                                     \
      for (next = row + 1; lf_joined(next - 1, tile, lo, hi, n, keys, window, chunks); next++);                           \
      if (next - row > 1) LF_DECODE_CALL(DP, R, true, row, next - row, R / tile);                                         \
    }                                                                                                                     \
  })
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define LF_QUERIES_BLOCKS 3
#else
#define LF_QUERIES_BLOCKS 2  // with 3, ptxas spills for sm_80
#endif
LF_QUERIES(32, 16, LF_QUERIES_BLOCKS)
LF_QUERIES(64, 16, LF_QUERIES_BLOCKS)
LF_QUERIES(128, 16, LF_QUERIES_BLOCKS)
LF_QUERIES(256, 8, 2)

#ifdef LF_RACE
#include "../sim/test/race.h"

// Three chunks for two blocks, the heads of one group, two queries, pages of 64 keys. The
// second pair of launches takes the same memory as bfloat16.
#define LF_RACE_DECODE(DP, G)                                                                                                        \
  {                                                                                                                                  \
    const int n = 2, keys = 704, d = 20, slots = 6;                                                                                  \
    auto q = lf_race_noise<float>(n * G * d), k = lf_race_noise<float>(keys * d), v = lf_race_noise<float>(keys * d),                \
         bias = lf_race_noise<float>(7);                                                                                             \
    std::vector<float> o(n * G * d), lse(n * G), part(n * G * slots * d);                                                            \
    std::vector<float2> stat(n * G * slots);                                                                                         \
    std::vector<int> lo{0, 5}, hi{300, 700}, pages{9, 1, 4, 3, 2, 5, 6, 0, 8, 7, 10};                                                \
    std::vector<long long> trap(4);                                                                                                  \
    for (int bf16 : {0, 255}) {                                                                                                      \
      lf_race_launch(attention_decode_##DP##_##G, {2, 1, 2}, {128}, 4 * G * (DP + (DP < 64 ? 256 : 4 * DP)), o.data(), lse.data(), part.data(),       \
                     stat.data(), q.data(), k.data(), v.data(), lo.data(), hi.data(), pages.data(), bias.data(), n, keys, G, G, d,   \
                     0, 0.2f, 0.0f, 0LL, 0LL, 0, 3, 64, keys, 2, slots, bf16, 255, 0, trap.data(), 0);                                  \
      lf_race_launch(attention_merge, {n * G}, {128}, 0, o.data(), lse.data(), part.data(), stat.data(), lo.data(), hi.data(), n,    \
                     keys, G, d, 0, 2, slots, bf16);                                                                                 \
    }                                                                                                                                \
  }
LF_RACE_CASE(attention_decode_few) {
  LF_RACE_DECODE(32, 1) LF_RACE_DECODE(32, 2) LF_RACE_DECODE(32, 4) LF_RACE_DECODE(64, 1) LF_RACE_DECODE(64, 2) LF_RACE_DECODE(64, 4)
}
LF_RACE_CASE(attention_decode_many) { LF_RACE_DECODE(32, 8) LF_RACE_DECODE(64, 8) LF_RACE_DECODE(128, 8) }
LF_RACE_CASE(attention_decode_wide) {
  LF_RACE_DECODE(128, 1) LF_RACE_DECODE(128, 2) LF_RACE_DECODE(128, 4) LF_RACE_DECODE(256, 1) LF_RACE_DECODE(256, 2) LF_RACE_DECODE(256, 4)
}
LF_RACE_CASE(attention_decode_wider) { LF_RACE_DECODE(512, 1) LF_RACE_DECODE(512, 2) LF_RACE_DECODE(512, 4) }

// A tile of queries that are computed together, by two blocks for its two chunks; the last tile has two runs.
#define LF_RACE_QUERIES(DP, R)                                                                                                        \
  {                                                                                                                                  \
    const int tile = R / 2, n = tile + 4, keys = 704, d = 20, slots = 3;                                                             \
    auto q = lf_race_noise<float>(n * 2 * d), k = lf_race_noise<float>(keys * d), v = lf_race_noise<float>(keys * d);                \
    std::vector<float> o(n * 2 * d), lse(n * 2), part(n * 2 * slots * d);                                                            \
    std::vector<float2> stat(n * 2 * slots);                                                                                         \
    std::vector<int> lo(n), hi(n), pages{9, 1, 4, 3, 2, 5, 6, 0, 8, 7, 10};                                                          \
    for (int i = 0; i < n; i++) lo[i] = i < n - 2 ? 0 : 64, hi[i] = 600 + i;                                                         \
    std::vector<long long> trap(4);                                                                                                  \
    for (int bf16 : {0, 255})                                                                                                        \
      lf_race_launch(attention_queries_##DP, {2, 1, 2}, {128}, 4 * (R * DP + (DP <= 64 ? 256 * (R + 4) : 4 * R * DP)), o.data(), lse.data(),        \
                     part.data(), stat.data(), q.data(), k.data(), v.data(), lo.data(), hi.data(), pages.data(), nullptr, n, keys, 2, \
                     2, d, 0, 0.2f, 0.0f, 0LL, 0LL, 0, -1, 64, keys, 2, slots, bf16, 255, tile, trap.data(), 0);                     \
  }
LF_RACE_CASE(attention_queries) { LF_RACE_QUERIES(32, 16) LF_RACE_QUERIES(64, 16) LF_RACE_QUERIES(128, 16) LF_RACE_QUERIES(256, 8) }
#endif
