// Attention by blocks of queries and blocks of keys, with a running softmax
// (Dao, FlashAttention-2, arXiv 2307.08691):
//
//   o[i, h, :] = Σ_j p_j v[j, g, :] / Σ_j p_j,  p_j = exp(scale q[i, h, :]·k[j, g, :] − m)
//   lse[i, h]  = m + log Σ_j p_j
//
// over the keys j in [max(lo[i], hi[i]−window), hi[i]), with g = h/group. A
// query that sees none gets zeros and −inf.
//
// Layout: q and o [n, heads·d], k and v [m, heads/group·d], lse [n, heads], f32;
//   attention_bf16_* take each but lse as bfloat16 too. attention_pack_bf16 rounds k
//   and v in f32 once to rows of DP elements per head, so that the other blocks,
//   n/BQ · group times, copy half the bytes to shared memory and convert nothing.
// Grid: attention_f32_*, attention_bf16_*: one block for BQ queries of a head,
//   heads next to each other (those of a group find their keys in L2), the last
//   queries first (they see most).
// Traffic, for each block: its queries and results once; k and v of the tiles
//   of keys that one of its queries sees. Tiles that none sees are neither read
//   nor computed. Flops: 4 d for each pair of a query and a key of those tiles.
// Reference: for i, h { m = max_j s; for j { p = exp(s − m); l += p; o += p v[j] }
//                       o /= l; lse = m + log(l) }
#include "attention.cuh"

// ---- float32: 256 threads; TM = BQ/16 rows and BK/16 scores of each a thread.
template <int BQ, int BK, int DP>
LF_DEVICE void lf_attention_f32(float* o, float* lse, const float* q, const float* k, const float* v, const int* lo,
                                const int* hi, int n, int keys, int heads, int group, int d, int window, float scale,
                                int vec, long long* trap, int launch) {
  constexpr int TM = BQ / 16, TN = BK / 16, PITCH = DP + 4;
  LF_DYN_SHARED(float, shared);
  float *qs = shared, *ks = qs + BQ * PITCH, *vs = ks + BK * PITCH, *ps = vs + BK * PITCH;
  const int head = blockIdx.x % heads, ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  const int first = (gridDim.x / heads - 1 - blockIdx.x / heads) * BQ;
  const long long wide = (long long)heads * d, narrow = (long long)(heads / group) * d;
  q += (long long)head * d;
  k += (long long)(head / group) * d;
  v += (long long)(head / group) * d;

  lf_view<BQ> view;
  view.load(lo, hi, first, n, keys, window);
  if (head == 0 && threadIdx.x < BQ) lf_check_seen(lo, hi, first + threadIdx.x, n, keys, window, trap, launch);
  int2 seen[TM];
  float top[TM], sum[TM], acc[TM][DP / 16];
#pragma unroll
  for (int i = 0; i < TM; i++) {
    seen[i] = lf_seen(lo, hi, first + ty * TM + i, n, keys, window);
    top[i] = -INFINITY;
    sum[i] = 0.0f;
#pragma unroll
    for (int c = 0; c < DP / 16; c++) acc[i][c] = 0.0f;
  }
  int key = view.template next<BK>(0);
  lf_tile_f32<BQ, DP, 256>(qs, q, wide, first, 0, n, d, vec);
  if (key != LF_NO_KEY) lf_tile_f32<BK, DP, 256>(ks, k, narrow, key, view.begin, view.end, d, vec);
  lf_cp_async_commit();
  while (key != LF_NO_KEY) {
    lf_cp_async_wait<0>();
    __syncthreads();  // the keys have arrived, and the last values have been used
    lf_tile_f32<BK, DP, 256>(vs, v, narrow, key, view.begin, view.end, d, vec);
    lf_cp_async_commit();
    float s[TM][TN];
    lf_scores_f32<TM, TN, DP>(s, qs, ks, d);
#pragma unroll
    for (int i = 0; i < TM; i++) {
      float most = -INFINITY;
#pragma unroll
      for (int j = 0; j < TN; j++) {
        int at = key + tx + 16 * j;
        s[i][j] = at >= seen[i].x && at < seen[i].y ? s[i][j] * scale : -INFINITY;
        most = fmaxf(most, s[i][j]);
      }
      most = fmaxf(top[i], lf_half_warp_max(most));
      float base = most == -INFINITY ? 0.0f : most, shrink = expf(top[i] - base);
      top[i] = most;
      sum[i] *= shrink;
#pragma unroll
      for (int j = 0; j < TN; j++) {
        float p = expf(s[i][j] - base);
        sum[i] += p;
        ps[(ty * TM + i) * (BK + 4) + tx + 16 * j] = p;
      }
#pragma unroll
      for (int c = 0; c < DP / 16; c++) acc[i][c] *= shrink;
    }
    lf_cp_async_wait<0>();
    __syncthreads();  // the values have arrived, and the keys have been used
    const int next = view.template next<BK>(key + BK);
    if (next != LF_NO_KEY) lf_tile_f32<BK, DP, 256>(ks, k, narrow, next, view.begin, view.end, d, vec);
    lf_cp_async_commit();
    lf_values_f32<TM, BK, DP>(acc, ps, vs);
    key = next;
  }
  lf_cp_async_wait_all();
#pragma unroll
  for (int i = 0; i < TM; i++) {
    int row = first + ty * TM + i;
    float total = lf_half_warp_sum(sum[i]);
    bool some = seen[i].x < seen[i].y;
    float inverse = some ? 1.0f / total : 0.0f;
    if (row >= n) continue;
    float* out = o + row * wide + (long long)head * d;
#pragma unroll
    for (int c = 0; c < DP / 32; c++)
      lf_store_two(out, 2 * tx + 32 * c, d, vec, some ? acc[i][2 * c] * inverse : 0.0f, some ? acc[i][2 * c + 1] * inverse : 0.0f);
    if (tx == 0) lse[(long long)row * heads + head] = some ? top[i] + logf(total) : -INFINITY;
  }
}

#define LF_ATTENTION_F32(DP, BQ, BK, BLOCKS)                                                                              \
  extern "C" __global__ void __launch_bounds__(256, BLOCKS) attention_f32_##DP(                                            \
      float* o, float* lse, const float* q, const float* k, const float* v, const int* lo, const int* hi, int n,          \
      int keys, int heads, int group, int d, int window, float scale, int vec, long long* trap, int launch) {             \
    lf_attention_f32<BQ, BK, DP>(o, lse, q, k, v, lo, hi, n, keys, heads, group, d, window, scale, vec, trap, launch);    \
  }                                                                                                                       \
  LF_KERNEL(attention_f32_##DP);
LF_ATTENTION_F32(32, 64, 64, 2)
LF_ATTENTION_F32(64, 64, 64, 1)
LF_ATTENTION_F32(96, 64, 32, 2)
LF_ATTENTION_F32(128, 64, 32, 1)
LF_ATTENTION_F32(256, 32, 16, 2)

// ---- bfloat16.

// out[y][i, 0:dp] = x[y][i, 0:d] and zeros, for the given number of vectors i
// of two matrices y. A thread makes 16 bytes.
extern "C" __global__ void __launch_bounds__(256)
    attention_pack_bf16(lf_bf16* out0, const float* x0, lf_bf16* out1, const float* x1, long long vectors, int d, int dp, int vec) {
  const float* x = blockIdx.y ? x1 : x0;
  lf_bf16* out = blockIdx.y ? out1 : out0;
  const int steps = dp / 8;
  long long e = blockIdx.x * 256LL + threadIdx.x;
  if (e >= vectors * steps) return;
  long long i = e / steps;
  int c = (int)(e % steps) * 8;
  float4 a = lf_four(x + i * d, c, d, vec), b = lf_four(x + i * d, c + 4, d, vec);
  *reinterpret_cast<uint4*>(out + i * dp + c) =
      make_uint4(lf_pack_bf16(a.x, a.y), lf_pack_bf16(a.z, a.w), lf_pack_bf16(b.x, b.y), lf_pack_bf16(b.z, b.w));
}
LF_KERNEL(attention_pack_bf16);

// 4 warps, each for MT times 16 of the BQ = 64 MT queries. k and v are packed unless
// they are in memory as bfloat16.
template <int MT, int BK, int DP>
LF_DEVICE void lf_attention_bf16(void* o, float* lse, const void* q, const lf_bf16* k, const lf_bf16* v, const int* lo,
                                 const int* hi, int n, int keys, int heads, int group, int d, int window, float scale,
                                 int bf16, int vec, long long* trap, int launch) {
  constexpr int BQ = 64 * MT, NT = BK / 8, PITCH = DP + 8;
  LF_DYN_SHARED(lf_bf16, shared);
  lf_bf16 *qs = shared, *ks = qs + BQ * PITCH, *vs = ks + BK * PITCH;
  const int head = blockIdx.x % heads, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int first = (gridDim.x / heads - 1 - blockIdx.x / heads) * BQ;
  const int mine = warp * 16 * MT, at = 2 * (lane & 3);
  const long long wide = (long long)heads * d;
  const int dk = LF_IS(bf16, LF_K) ? d : DP, dv = LF_IS(bf16, LF_V) ? d : DP;
  k += (long long)(head / group) * dk;
  v += (long long)(head / group) * dv;

  lf_view<BQ> view;
  view.load(lo, hi, first, n, keys, window);
  if (head == 0 && threadIdx.x < BQ) lf_check_seen(lo, hi, first + threadIdx.x, n, keys, window, trap, launch);
  int key = view.template next<BK>(0);
  if (key != LF_NO_KEY) lf_tile_bf16<BK, DP, 128>(ks, k, heads / group * dk, key, view.begin, view.end, dk, LF_IS(vec, LF_K));
  lf_cp_async_commit();
  for (int e = threadIdx.x; e < BQ * (DP / 4); e += 128) {
    int r = e / (DP / 4), c = e % (DP / 4) * 4;
    float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (first + r < n) x = lf_four(q, LF_IS(bf16, LF_Q), (first + r) * wide + (long long)head * d, c, d, LF_IS(vec, LF_Q));
    *reinterpret_cast<uint2*>(qs + r * PITCH + c) = make_uint2(lf_pack_bf16(x.x, x.y), lf_pack_bf16(x.z, x.w));
  }
  int2 seen[2 * MT];
  float top[MT][2], sum[MT][2], acc[MT][DP / 8][4];
#pragma unroll
  for (int i = 0; i < MT; i++) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      seen[2 * i + r] = lf_seen(lo, hi, first + mine + i * 16 + r * 8 + (lane >> 2), n, keys, window);
      top[i][r] = -INFINITY;
      sum[i][r] = 0.0f;
    }
#pragma unroll
    for (int j = 0; j < DP / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) acc[i][j][e] = 0.0f;
  }
  // Powers of 2. A factor is positive, so that the largest score has the largest power and −∞ stays.
  const float factor = fmaxf(fabsf(scale) * LF_LOG2E, 1e-30f);
  while (key != LF_NO_KEY) {
    lf_cp_async_wait<0>();
    __syncthreads();  // the keys have arrived, and the last values have been used
    lf_tile_bf16<BK, DP, 128>(vs, v, heads / group * dv, key, view.begin, view.end, dv, LF_IS(vec, LF_V));
    lf_cp_async_commit();
    float s[MT][NT][4];
    lf_scores_bf16<MT, NT, DP>(s, qs, mine, ks);
    if (scale < 0.0f) lf_negate(s);
    if (!lf_all_seen(seen, key, BK)) {
#pragma unroll
      for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
          for (int e = 0; e < 4; e++) {
            int x = key + 8 * j + at + e % 2;
            if (x < seen[2 * i + e / 2].x || x >= seen[2 * i + e / 2].y) s[i][j][e] = -INFINITY;
          }
    }
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        float most = -INFINITY;
#pragma unroll
        for (int j = 0; j < NT; j++) most = fmaxf(most, fmaxf(s[i][j][2 * r], s[i][j][2 * r + 1]));
        most = fmaxf(top[i][r], lf_quad_max(most) * factor);
        float base = most == -INFINITY ? 0.0f : most, shrink = lf_exp2(top[i][r] - base);
        top[i][r] = most;
        sum[i][r] *= shrink;
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
          for (int e = 0; e < 2; e++) {
            float& y = s[i][j][2 * r + e];
            y = lf_exp2(fmaf(y, factor, -base));
            sum[i][r] += y;
          }
#pragma unroll
        for (int j = 0; j < DP / 8; j++) {
          acc[i][j][2 * r] *= shrink;
          acc[i][j][2 * r + 1] *= shrink;
        }
      }
    lf_cp_async_wait<0>();
    __syncthreads();  // the values have arrived, and the keys have been used
    const int next = view.template next<BK>(key + BK);
    if (next != LF_NO_KEY) lf_tile_bf16<BK, DP, 128>(ks, k, heads / group * dk, next, view.begin, view.end, dk, LF_IS(vec, LF_K));
    lf_cp_async_commit();
    lf_values_bf16<MT, NT, DP>(acc, s, vs);
    key = next;
  }
  lf_cp_async_wait_all();
#pragma unroll
  for (int i = 0; i < MT; i++)
#pragma unroll
    for (int r = 0; r < 2; r++) {
      int row = first + mine + i * 16 + r * 8 + (lane >> 2);
      float total = lf_quad_sum(sum[i][r]);
      bool some = seen[2 * i + r].x < seen[2 * i + r].y;
      float inverse = some ? 1.0f / total : 0.0f;
      if (row >= n) continue;
      const long long to = row * wide + (long long)head * d;
#pragma unroll
      for (int j = 0; j < DP / 8; j++)
        lf_store_two(o, LF_IS(bf16, LF_O), to, 8 * j + at, d, LF_IS(vec, LF_O), some ? acc[i][j][2 * r] * inverse : 0.0f, some ? acc[i][j][2 * r + 1] * inverse : 0.0f);
      if ((lane & 3) == 0) lse[(long long)row * heads + head] = some ? (top[i][r] + log2f(total)) * LF_LN2 : -INFINITY;
    }
}

#define LF_ATTENTION_BF16(DP, MT, BK)                                                                                     \
  extern "C" __global__ void __launch_bounds__(128, 2) attention_bf16_##DP(                                               \
      void* o, float* lse, const void* q, const lf_bf16* k, const lf_bf16* v, const int* lo, const int* hi, int n,        \
      int keys, int heads, int group, int d, int window, float scale, int bf16, int vec, long long* trap, int launch) {   \
    lf_attention_bf16<MT, BK, DP>(o, lse, q, k, v, lo, hi, n, keys, heads, group, d, window, scale, bf16, vec, trap,      \
                                  launch);                                                                                \
  }                                                                                                                       \
  LF_KERNEL(attention_bf16_##DP);
LF_ATTENTION_BF16(32, 2, 64)
LF_ATTENTION_BF16(64, 2, 64)
LF_ATTENTION_BF16(96, 2, 32)
LF_ATTENTION_BF16(128, 2, 32)
LF_ATTENTION_BF16(256, 1, 32)

#ifdef LF_RACE
#include "../sim/test/race.h"

// Two blocks of queries, two heads of one group, two tiles of keys.
struct lf_attention_race {
  static constexpr int keys = 100, d = 20;
  int n;
  std::vector<float> q, k, v, o, lse;
  std::vector<int> lo, hi;
  std::vector<long long> trap;
  explicit lf_attention_race(int rows)
      : n(rows), q(lf_race_noise<float>(n * 2 * d)), k(lf_race_noise<float>(keys * d)), v(lf_race_noise<float>(keys * d)),
        o(n * 2 * d), lse(n * 2), lo(n), hi(n), trap(4) {
    for (int i = 0; i < n; i++) hi[i] = i < keys ? i + 1 : keys;
  }
};

LF_RACE_CASE(attention_f32) {
  lf_attention_race r(70);
  lf_race_launch(attention_f32_32, {4}, {256}, 4 * (3 * 64 * 36 + 64 * 68), r.o.data(), r.lse.data(), r.q.data(), r.k.data(),
                 r.v.data(), r.lo.data(), r.hi.data(), r.n, r.keys, 2, 2, r.d, 0, 0.2f, 1, r.trap.data(), 0);
}

LF_RACE_CASE(attention_bf16) {
  lf_attention_race r(130);
  std::vector<lf_bf16> k(r.keys * 32), v(r.keys * 32);
  lf_race_launch(attention_pack_bf16, {2, 2}, {256}, 0, k.data(), r.k.data(), v.data(), r.v.data(), (long long)r.keys, r.d, 32, 1);
  lf_race_launch(attention_bf16_32, {4}, {128}, 2 * (128 + 2 * 64) * 40, r.o.data(), r.lse.data(), r.q.data(), k.data(), v.data(),
                 r.lo.data(), r.hi.data(), r.n, r.keys, 2, 2, r.d, 0, 0.2f, 0, 255, r.trap.data(), 0);
  // All operands in bfloat16, k and v not aligned.
  auto q = lf_race_noise<lf_bf16>(r.n * 2 * r.d);
  lf_race_launch(attention_bf16_32, {4}, {128}, 2 * (128 + 2 * 64) * 40, q.data(), r.lse.data(), q.data(), k.data(), v.data(),
                 r.lo.data(), r.hi.data(), r.n, r.keys, 2, 2, r.d, 0, 0.2f, 255, 1 << LF_Q | 1 << LF_O, r.trap.data(), 0);
}
#endif
