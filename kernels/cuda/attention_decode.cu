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
// All products are float32; q, k, v and o may be in memory as bfloat16. A block has
// one query, and G heads that share a key head: each row of k and v is read once for
// all of them.
//
// Grid: attention_decode_*: 128 threads; x runs over queries, y over key heads and
//   the parts of G of the heads of a group, z over chunks (block z takes the chunks
//   z, z + gridDim.z, …). attention_merge: a block for each query and head.
// Shared: q [G][DP], scores [256][G], and the sums of 4 warps [4][G][DP]; the rows
//   of the keys of two rounds [2][256].
// Traffic: k and v of the query's keys once, by four elements a thread and 8 lanes a
//   row, and their pages; d+2 floats for each head and chunk if there are several.
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
// time, 8 lanes for each.
template <class T, int DP, int G>
LF_DEVICE void lf_decode_scores(float* ps, const float* qs, const int* at, const T* k, long long narrow, int skip, int here, int d,
                                float scale, int vec) {
  constexpr int STEPS = DP / 32;  // times four elements of a lane of a key
  const int tid = threadIdx.x, lane = tid & 31;
#pragma unroll 2
  for (int j = tid / 8; j < (here + 15) / 16 * 16; j += 16) {
    const bool seen = j >= skip && j < here;
    float4 x[STEPS];
#pragma unroll
    for (int c = 0; c < STEPS; c++)
      x[c] = seen ? lf_four(k + at[j] * narrow, (lane & 7) * 4 + 32 * c, d, vec) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int h = 0; h < G; h++) {
      float s = 0.0f;
#pragma unroll
      for (int c = 0; c < STEPS; c++) {
        float4 y = *reinterpret_cast<const float4*>(qs + h * DP + (lane & 7) * 4 + 32 * c);
        s = fmaf(x[c].w, y.w, fmaf(x[c].z, y.z, fmaf(x[c].y, y.y, fmaf(x[c].x, y.x, s))));
      }
#pragma unroll
      for (int b = 4; b; b >>= 1) s += __shfl_xor_sync(0xffffffffu, s, b);
      if ((lane & 7) == 0) ps[j * G + h] = seen ? s * scale : -INFINITY;
    }
  }
}

// acc[h] += Σ_j ps[j, h] v[at[j]] over the warp's share of the keys j in [skip, here).
template <class T, int DP, int G>
LF_DEVICE void lf_decode_values(float4 (&acc)[G][(DP + 127) / 128], const float* ps, const int* at, const T* v, long long narrow, int skip,
                                int here, int d, int vec) {
  constexpr int WIDE = DP / 4 < 32 ? DP / 4 : 32;  // lanes of a value
  constexpr int VALUES = 32 / WIDE;                // values that a warp takes at a time
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll 4
  for (int j = warp * VALUES + lane / WIDE; j < here; j += 4 * VALUES) {
#pragma unroll
    for (int c = 0; c < (DP + 127) / 128; c++) {
      float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (j >= skip) x = lf_four(v + at[j] * narrow, (lane % WIDE) * 4 + 128 * c, d, vec);
#pragma unroll
      for (int h = 0; h < G; h++) {
        float p = ps[j * G + h];
        acc[h][c].x = fmaf(p, x.x, acc[h][c].x);
        acc[h][c].y = fmaf(p, x.y, acc[h][c].y);
        acc[h][c].z = fmaf(p, x.z, acc[h][c].z);
        acc[h][c].w = fmaf(p, x.w, acc[h][c].w);
      }
    }
  }
}

// One chunk is written to o and lse. Of several, part has, for each query, head and
// chunk, d sums, and stat {m, l}; slots is the number of chunks that there is room for.
template <int DP, int G>
LF_DEVICE void lf_decode(void* o, float* lse, float* part, float2* stat, const void* q, const void* k, const void* v,
                         const int* lo, const int* hi, const int* pages, const float* bias, int n, int keys, int heads, int group, int d,
                         int window, float scale, float cap, long long bias_head, long long bias_query, int bias_key, int reach,
                         int page, int cached, int chunks, int slots, int bf16, int vec, long long* trap, int launch) {
  constexpr int WIDE = DP / 4 < 32 ? DP / 4 : 32; // lanes of a value
  constexpr int ACROSS = (DP + 127) / 128;        // float4 of each
  LF_DYN_SHARED(float, shared);
  float *qs = shared, *ps = qs + G * DP, *sums = ps + G * LF_DECODE_KEYS;
  LF_SHARED(float, tops, [G]);
  LF_SHARED(float, totals, [G]);
  LF_SHARED(float, shrinks, [G]);
  LF_SHARED(int, rows, [2 * LF_DECODE_KEYS]);
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const int split = (group + G - 1) / G, key_head = blockIdx.y / split, from = blockIdx.y % split * G;
  const int count = min(G, group - from), head = key_head * group + from;
  const int row = blockIdx.x;
  const long long narrow = (long long)(heads / group) * d, first = (long long)key_head * d;

  const lf_chunks cut = lf_cut(lo, hi, row, n, keys, window, chunks);
  if (blockIdx.z == 0 && blockIdx.y == 0) {
    if (tid == 0) lf_check_seen(lo, hi, row, n, keys, window, trap, launch);
    const int all = page ? keys / page : 0, share = (all + n - 1) / n;
    lf_check_pages(pages, min(all, row * share), min(all, (row + 1) * share), page ? cached / page : 0, trap, launch);
  }
  for (int e = tid; e < G * DP; e += 128) {
    int h = e / DP, c = e % DP;
    const long long from = ((long long)row * heads + head + h) * d + c;
    if (h >= count || c >= d) qs[e] = 0.0f;
    else qs[e] = LF_IS(bf16, LF_Q) ? lf_float(static_cast<const lf_bf16*>(q)[from]) : static_cast<const float*>(q)[from];
  }
  int odd = 0;
  for (int index = blockIdx.z; index < max(cut.count, 1); index += gridDim.z) {
    const int begin = cut.start + index * cut.size, end = min(cut.end, begin + cut.size);
    float4 acc[G][ACROSS];
#pragma unroll
    for (int h = 0; h < G; h++)
#pragma unroll
      for (int c = 0; c < ACROSS; c++) acc[h][c] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (tid < G) {
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
        lf_decode_scores<lf_bf16, DP, G>(ps, qs, at, static_cast<const lf_bf16*>(k) + first, narrow, skip, here, d, scale, LF_IS(vec, LF_K));
      else
        lf_decode_scores<float, DP, G>(ps, qs, at, static_cast<const float*>(k) + first, narrow, skip, here, d, scale, LF_IS(vec, LF_K));
      __syncthreads();
      // The running softmax: a warp for each head.
      for (int h = warp; h < G; h += 4) {
        if (cap > 0.0f || bias)
#pragma unroll 1  // registers are for loads of keys and values
          for (int j = lane; j < here; j += 32) {
            float s = ps[j * G + h];
            if (cap > 0.0f && j >= skip) s = cap * tanhf(s / cap);
            if (bias && h < count)
              s += bias[(head + h) * bias_head + (reach < 0 ? row * bias_query + (base + j) * (long long)bias_key
                                                            : reach + max(-reach, min(base + j - row, reach)))];
            ps[j * G + h] = s;
          }
        float most = -INFINITY, total = 0.0f;
        for (int j = lane; j < here; j += 32) most = fmaxf(most, ps[j * G + h]);
        float before = tops[h], top = fmaxf(before, lf_warp_max(most)), floor = top == -INFINITY ? 0.0f : top;
        for (int j = lane; j < here; j += 32) {
          float p = expf(ps[j * G + h] - floor);
          total += p;
          ps[j * G + h] = p;
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
      for (int h = 0; h < G; h++) {
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
        lf_decode_values<lf_bf16, DP, G>(acc, ps, at, static_cast<const lf_bf16*>(v) + first, narrow, skip, here, d, LF_IS(vec, LF_V));
      else
        lf_decode_values<float, DP, G>(acc, ps, at, static_cast<const float*>(v) + first, narrow, skip, here, d, LF_IS(vec, LF_V));
    }
    // The lanes of a warp that had the same columns, then the warps in order.
#pragma unroll
    for (int h = 0; h < G; h++)
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
        if (lane < WIDE) *reinterpret_cast<float4*>(sums + (warp * G + h) * DP + lane * 4 + 128 * c) = x;
      }
    __syncthreads();
    const bool alone = cut.count <= 1;
    const long long place = ((long long)row * heads + head) * slots + index;
    for (int e = tid; e < G * DP; e += 128) {
      int h = e / DP, c = e % DP;
      if (h >= count || c >= d) continue;
      float x = ((sums[e] + sums[G * DP + e]) + sums[2 * G * DP + e]) + sums[3 * G * DP + e];
      if (alone) lf_store_one(o, LF_IS(bf16, LF_O), ((long long)row * heads + head + h) * d + c, cut.count ? x / totals[h] : 0.0f);
      else part[(place + (long long)h * slots) * d + c] = x;
    }
    if (tid < count) {
      if (alone) lse[(long long)row * heads + head + tid] = cut.count ? tops[tid] + logf(totals[tid]) : -INFINITY;
      else stat[place + (long long)tid * slots] = make_float2(tops[tid], totals[tid]);
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

#define LF_DECODE(DP, G, BLOCKS)                                                                                          \
  extern "C" __global__ void __launch_bounds__(128, BLOCKS) attention_decode_##DP##_##G(                                  \
      void* o, float* lse, float* part, float2* stat, const void* q, const void* k, const void* v, const int* lo,         \
      const int* hi, const int* pages, const float* bias, int n, int keys, int heads, int group, int d, int window,       \
      float scale, float cap, long long bias_head, long long bias_query, int bias_key, int reach, int page, int cached,   \
      int chunks, int slots, int bf16, int vec, long long* trap, int launch) {                                            \
    lf_decode<DP, G>(o, lse, part, stat, q, k, v, lo, hi, pages, bias, n, keys, heads, group, d, window, scale, cap,      \
                     bias_head, bias_query, bias_key, reach, page, cached, chunks, slots, bf16, vec, trap, launch);       \
  }                                                                                                                       \
  LF_KERNEL(attention_decode_##DP##_##G);
#define LF_DECODE_ALL(DP, BLOCKS) LF_DECODE(DP, 1, BLOCKS) LF_DECODE(DP, 2, BLOCKS) LF_DECODE(DP, 4, BLOCKS)
LF_DECODE_ALL(32, 4) LF_DECODE(32, 8, 3)
LF_DECODE_ALL(64, 4) LF_DECODE(64, 8, 3)
LF_DECODE_ALL(128, 4) LF_DECODE(128, 8, 2)
LF_DECODE_ALL(256, 2)  // 8 heads of 256 do not fit the registers

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
      lf_race_launch(attention_decode_##DP##_##G, {2, 1, 2}, {128}, 4 * G * (5 * DP + 256), o.data(), lse.data(), part.data(),       \
                     stat.data(), q.data(), k.data(), v.data(), lo.data(), hi.data(), pages.data(), bias.data(), n, keys, G, G, d,   \
                     0, 0.2f, 0.0f, 0LL, 0LL, 0, 3, 64, keys, 2, slots, bf16, 255, trap.data(), 0);                                  \
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
#endif
