// The gradients of attention (Dao et al., arXiv 2205.14135, appendix B). With
// p = exp(scale q·k − lse) of the keys that a query sees, which is made again:
//
//   D[i, h] = Σ_c do[i, h, c] o[i, h, c]      ds = p (do·v − D[i, h])
//   dq[i] = scale Σ_j ds k[j]   dk[j] = scale Σ_{h, i} ds q[i]   dv[j] = Σ_{h, i} p do[i]
//
// Two passes, so that no sum needs atomics: dq by queries, dk and dv by keys,
// with the heads of a group and their queries in ascending order. 7 products
// instead of 5, the same bytes every run.
//
// Layout: as in attention.cu; stats [n, heads] of float4 {lse, D, and the bits
//   of the first key and the one after the last}; spans [tiles of queries] of
//   int2, the keys that a query of the tile may see. The bfloat16 kernels take q,
//   do, k and v from memory if they are bfloat16 there, else from
//   attention_pack_bf16. All of them and o, dq, dk and dv may be bfloat16.
// Grid: attention_stats: a warp for each query and head. attention_spans: a warp for
//   each tile. attention_dq_*: as forward. attention_dkv_*: x runs over tiles
//   of keys, y over key heads and the parts that a group's heads are divided
//   into; with more than one part, each writes sums of its own, which
//   attention_sum_parts adds in ascending order.
// Traffic: dq as forward, and do; dkv its keys once and for each head the queries
//   and do of the tiles whose span meets the keys. Flops: 6 d and 8 d a pair.
// Reference: for h, i { for j { p = exp(scale s − lse); ds = p (do·v − D)
//              dq[i] += scale ds k[j]; dk[j] += scale ds q[i]; dv[j] += p do[i] } }
#include "attention.cuh"
#include "attention_walk.cuh"

// rounded: do is rounded as in the bfloat16 kernels, so that do·v − D is 0 for a
// query with one key, and small where it should be.
extern "C" __global__ void __launch_bounds__(256)
    attention_stats(float4* stats, const void* dout, const void* o, const float* lse, const int* lo, const int* hi, int n,
                    int keys, int heads, int d, int window, int rounded, int bf16, int vec, long long* trap, int launch) {
  const int lane = threadIdx.x & 31;
  const long long i = blockIdx.x * 8LL + (threadIdx.x >> 5);
  if (i >= (long long)n * heads) return;
  float sum = 0.0f;
  for (int c = 4 * lane; c < d; c += 128) {
    float4 x = lf_four(dout, LF_IS(bf16, LF_DO), i * d, c, d, LF_IS(vec, LF_DO));
    float4 y = lf_four(o, LF_IS(bf16, LF_O), i * d, c, d, LF_IS(vec, LF_O));
    if (rounded) {
      float2 a = lf_unpack_bf16(lf_pack_bf16(x.x, x.y)), b = lf_unpack_bf16(lf_pack_bf16(x.z, x.w));
      x = make_float4(a.x, a.y, b.x, b.y);
    }
    sum = fmaf(x.w, y.w, fmaf(x.z, y.z, fmaf(x.y, y.y, fmaf(x.x, y.x, sum))));
  }
  sum = lf_warp_sum(sum);
  if (lane) return;
  const int row = (int)(i / heads);
  if (i % heads == 0) lf_check_seen(lo, hi, row, n, keys, window, trap, launch);
  int2 seen = lf_seen(lo, hi, row, n, keys, window);
  stats[i] = make_float4(lse[i], sum, __int_as_float(seen.x), __int_as_float(seen.y));
}
LF_KERNEL(attention_stats);

// The keys of tiles of the given number of queries, a multiple of 16 up to 64.
extern "C" __global__ void __launch_bounds__(256)
    attention_spans(int2* spans, const int* lo, const int* hi, int n, int keys, int window, int tile) {
  const int t = blockIdx.x * 8 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
  if ((long long)t * tile >= n) return;
  int begin = LF_NO_KEY, end = 0;
  for (int r = lane; r < tile; r += 32) {
    int2 seen = lf_seen(lo, hi, t * tile + r, n, keys, window);
    if (seen.x < seen.y) begin = min(begin, seen.x);
    end = max(end, seen.y);
  }
  begin = lf_warp_min_int(begin);
  end = -lf_warp_min_int(-end);
  if (lane == 0) spans[t] = make_int2(begin, end);
}
LF_KERNEL(attention_spans);

// dk and dv are sums of their parts: x [parts, count] of each.
extern "C" __global__ void __launch_bounds__(256)
    attention_sum_parts(void* dk, void* dv, const float* xk, const float* xv, int parts, long long count, int bf16) {
  const float* x = blockIdx.y ? xv : xk;
  long long i = blockIdx.x * 256LL + threadIdx.x;
  if (i >= count) return;
  float sum = 0.0f;
  for (int p = 0; p < parts; p++) sum += x[p * count + i];
  lf_store_one(blockIdx.y ? dv : dk, LF_IS(bf16, blockIdx.y ? LF_DV : LF_DK), i, sum);
}
LF_KERNEL(attention_sum_parts);

// ---- float32.

template <int BQ, int BK, int DP>
LF_DEVICE void lf_attention_dq_f32(float* dq, const float* dout, const float* q, const float* k, const float* v,
                                   const float4* stats, const int* lo, const int* hi, int n, int keys, int heads,
                                   int group, int d, int window, float scale, int vec) {
  constexpr int TM = BQ / 16, TN = BK / 16, PITCH = DP + 4;
  LF_DYN_SHARED(float, shared);
  float *qs = shared, *os = qs + BQ * PITCH, *ks = os + BQ * PITCH, *vs = ks + BK * PITCH, *gs = vs + BK * PITCH;
  const int head = blockIdx.x % heads, ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  const int first = (gridDim.x / heads - 1 - blockIdx.x / heads) * BQ;
  const long long wide = (long long)heads * d, narrow = (long long)(heads / group) * d;
  k += (long long)(head / group) * d;
  v += (long long)(head / group) * d;

  lf_view<BQ> view;
  view.load(lo, hi, first, n, keys, window);
  lf_stats stat[TM];
  float acc[TM][DP / 16];
#pragma unroll
  for (int i = 0; i < TM; i++) {
    stat[i].load(stats, first + ty * TM + i, heads, head, n);
#pragma unroll
    for (int c = 0; c < DP / 16; c++) acc[i][c] = 0.0f;
  }
  lf_tile_f32<BQ, DP, 256>(qs, q + (long long)head * d, wide, first, 0, n, d, vec);
  lf_tile_f32<BQ, DP, 256>(os, dout + (long long)head * d, wide, first, 0, n, d, vec);
  int key = view.template next<BK>(0);
  while (key != LF_NO_KEY) {
    __syncthreads();  // the last keys have been used
    lf_tile_f32<BK, DP, 256>(ks, k, narrow, key, view.begin, view.end, d, vec);
    lf_cp_async_commit();
    lf_tile_f32<BK, DP, 256>(vs, v, narrow, key, view.begin, view.end, d, vec);
    lf_cp_async_commit();
    lf_cp_async_wait<1>();
    __syncthreads();
    float s[TM][TN], g[TM][TN];
    lf_scores_f32<TM, TN, DP>(s, qs, ks, d);
    lf_cp_async_wait<0>();
    __syncthreads();
    lf_scores_f32<TM, TN, DP>(g, os, vs, d);
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
      for (int j = 0; j < TN; j++) {
        float p = stat[i].sees(key + tx + 16 * j) ? expf(s[i][j] * scale - stat[i].lse) : 0.0f;
        gs[(ty * TM + i) * (BK + 4) + tx + 16 * j] = p * (g[i][j] - stat[i].delta);
      }
    __syncwarp();
    lf_values_f32<TM, BK, DP>(acc, gs, ks);
    __syncwarp();
    key = view.template next<BK>(key + BK);
  }
  lf_cp_async_wait_all();
#pragma unroll
  for (int i = 0; i < TM; i++) {
    int row = first + ty * TM + i;
    if (row >= n) continue;
    float* out = dq + row * wide + (long long)head * d;
#pragma unroll
    for (int c = 0; c < DP / 32; c++) lf_store_two(out, 2 * tx + 32 * c, d, vec, acc[i][2 * c] * scale, acc[i][2 * c + 1] * scale);
  }
}

template <int BQ, int BK, int DP>
LF_DEVICE void lf_attention_dkv_f32(float* dk, float* dv, const float* dout, const float* q, const float* k, const float* v,
                                    const float4* stats, const int2* spans, int n, int keys, int heads, int group, int d,
                                    int parts, float scale, int vec) {
  constexpr int TM = BK / 16, TN = BQ / 16, PITCH = DP + 4;
  LF_DYN_SHARED(float, shared);
  float *ks = shared, *vs = ks + BK * PITCH, *qs = vs + BK * PITCH, *os = qs + BQ * PITCH;
  float *ps = os + BQ * PITCH, *gs = ps + BK * (BQ + 4);
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16, first = blockIdx.x * BK;
  const int narrow_head = blockIdx.y / parts, part = blockIdx.y % parts;
  const long long wide = (long long)heads * d, narrow = (long long)(heads / group) * d;
  const int share = group / parts, head0 = narrow_head * group + part * share;

  float kacc[TM][DP / 16], vacc[TM][DP / 16];
#pragma unroll
  for (int i = 0; i < TM; i++)
#pragma unroll
    for (int c = 0; c < DP / 16; c++) kacc[i][c] = vacc[i][c] = 0.0f;
  lf_tile_f32<BK, DP, 256>(ks, k + (long long)narrow_head * d, narrow, first, 0, keys, d, vec);
  lf_tile_f32<BK, DP, 256>(vs, v + (long long)narrow_head * d, narrow, first, 0, keys, d, vec);
  lf_walk walk;
  walk.start(spans, (n + BQ - 1) / BQ, first, min(first + BK, keys), head0, head0 + share);
  while (walk.next()) {
    const int query = walk.tile * BQ;
    __syncthreads();  // the last queries have been used
    lf_tile_f32<BQ, DP, 256>(qs, q + (long long)walk.head * d, wide, query, 0, n, d, vec);
    lf_cp_async_commit();
    lf_tile_f32<BQ, DP, 256>(os, dout + (long long)walk.head * d, wide, query, 0, n, d, vec);
    lf_cp_async_commit();
    lf_stats stat[TN];
#pragma unroll
    for (int j = 0; j < TN; j++) stat[j].load(stats, query + tx + 16 * j, heads, walk.head, n);
    lf_cp_async_wait<1>();
    __syncthreads();
    float s[TM][TN], g[TM][TN];
    lf_scores_f32<TM, TN, DP>(s, ks, qs, d);
    lf_cp_async_wait<0>();
    __syncthreads();
    lf_scores_f32<TM, TN, DP>(g, vs, os, d);
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
      for (int j = 0; j < TN; j++) {
        int at = (ty * TM + i) * (BQ + 4) + tx + 16 * j;
        float p = stat[j].sees(first + ty * TM + i) ? expf(s[i][j] * scale - stat[j].lse) : 0.0f;
        ps[at] = p;
        gs[at] = p * (g[i][j] - stat[j].delta);
      }
    __syncwarp();
    lf_values_f32<TM, BQ, DP>(vacc, ps, os);
    lf_values_f32<TM, BQ, DP>(kacc, gs, qs);
    __syncwarp();
  }
  lf_cp_async_wait_all();
#pragma unroll
  for (int i = 0; i < TM; i++) {
    int row = first + ty * TM + i;
    if (row >= keys) continue;
    long long to = ((long long)part * keys + row) * narrow + (long long)narrow_head * d;
#pragma unroll
    for (int c = 0; c < DP / 32; c++) {
      lf_store_two(dk + to, 2 * tx + 32 * c, d, vec, kacc[i][2 * c] * scale, kacc[i][2 * c + 1] * scale);
      lf_store_two(dv + to, 2 * tx + 32 * c, d, vec, vacc[i][2 * c], vacc[i][2 * c + 1]);
    }
  }
}

#define LF_ATTENTION_GRAD_F32(DP, BQ1, BK1, BQ2, BK2, BLOCKS)                                                             \
  extern "C" __global__ void __launch_bounds__(256, BLOCKS) attention_dq_f32_##DP(                                        \
      float* dq, const float* dout, const float* q, const float* k, const float* v, const float4* stats, const int* lo,   \
      const int* hi, int n, int keys, int heads, int group, int d, int window, float scale, int vec) {                    \
    lf_attention_dq_f32<BQ1, BK1, DP>(dq, dout, q, k, v, stats, lo, hi, n, keys, heads, group, d, window, scale, vec);    \
  }                                                                                                                       \
  LF_KERNEL(attention_dq_f32_##DP);                                                                                       \
  extern "C" __global__ void __launch_bounds__(256, BLOCKS) attention_dkv_f32_##DP(                                       \
      float* dk, float* dv, const float* dout, const float* q, const float* k, const float* v, const float4* stats,       \
      const int2* spans, int n, int keys, int heads, int group, int d, int parts, float scale, int vec) {                 \
    lf_attention_dkv_f32<BQ2, BK2, DP>(dk, dv, dout, q, k, v, stats, spans, n, keys, heads, group, d, parts, scale, vec); \
  }                                                                                                                       \
  LF_KERNEL(attention_dkv_f32_##DP);
LF_ATTENTION_GRAD_F32(32, 64, 32, 32, 64, 1)
LF_ATTENTION_GRAD_F32(64, 64, 32, 32, 64, 1)
LF_ATTENTION_GRAD_F32(96, 32, 32, 32, 32, 2)
LF_ATTENTION_GRAD_F32(128, 32, 32, 32, 32, 2)
LF_ATTENTION_GRAD_F32(256, 16, 16, 16, 16, 2)

// ---- bfloat16: 4 warps, each for 16 rows; two tiles in flight.

template <int BK, int DP>
LF_DEVICE void lf_attention_dq_bf16(void* dq, const lf_bf16* dout, const lf_bf16* q, const lf_bf16* k, const lf_bf16* v,
                                    const float4* stats, const int* lo, const int* hi, int n, int keys, int heads,
                                    int group, int d, int window, float scale, int bf16, int vec) {
  constexpr int BQ = 64, NT = BK / 8, PITCH = DP + 8;
  LF_DYN_SHARED(lf_bf16, shared);
  lf_bf16 *qs = shared, *os = qs + BQ * PITCH, *tiles = os + BQ * PITCH;
  const int head = blockIdx.x % heads, lane = threadIdx.x & 31, mine = (threadIdx.x >> 5) * 16, at = 2 * (lane & 3);
  const int first = (gridDim.x / heads - 1 - blockIdx.x / heads) * BQ;
  const int width_q = LF_IS(bf16, LF_Q) ? d : DP, width_do = LF_IS(bf16, LF_DO) ? d : DP;
  const int width_k = LF_IS(bf16, LF_K) ? d : DP, width_v = LF_IS(bf16, LF_V) ? d : DP;
  const int pitch_k = heads / group * width_k, pitch_v = heads / group * width_v;
  k += (long long)(head / group) * width_k;
  v += (long long)(head / group) * width_v;

  lf_view<BQ> view;
  view.load(lo, hi, first, n, keys, window);
  lf_stats stat[2];
  float acc[1][DP / 8][4];
#pragma unroll
  for (int r = 0; r < 2; r++) {
    stat[r].load(stats, first + mine + 8 * r + (lane >> 2), heads, head, n);
    stat[r].lse *= LF_LOG2E;
  }
#pragma unroll
  for (int j = 0; j < DP / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) acc[0][j][e] = 0.0f;
  const float scale2 = scale * LF_LOG2E;
  int key = view.template next<BK>(0), stage = 0;
  lf_tile_bf16<BQ, DP, 128>(qs, q + (long long)head * width_q, heads * width_q, first, 0, n, width_q, LF_IS(vec, LF_Q));
  lf_tile_bf16<BQ, DP, 128>(os, dout + (long long)head * width_do, heads * width_do, first, 0, n, width_do, LF_IS(vec, LF_DO));
  if (key != LF_NO_KEY) {
    lf_tile_bf16<BK, DP, 128>(tiles, k, pitch_k, key, view.begin, view.end, width_k, LF_IS(vec, LF_K));
    lf_tile_bf16<BK, DP, 128>(tiles + BK * PITCH, v, pitch_v, key, view.begin, view.end, width_v, LF_IS(vec, LF_V));
  }
  lf_cp_async_commit();
  while (key != LF_NO_KEY) {
    const int next = view.template next<BK>(key + BK);
    lf_bf16 *ks = tiles + stage * 2 * BK * PITCH, *vs = ks + BK * PITCH;
    stage ^= 1;
    if (next != LF_NO_KEY) {
      lf_bf16* to = tiles + stage * 2 * BK * PITCH;
      lf_tile_bf16<BK, DP, 128>(to, k, pitch_k, next, view.begin, view.end, width_k, LF_IS(vec, LF_K));
      lf_tile_bf16<BK, DP, 128>(to + BK * PITCH, v, pitch_v, next, view.begin, view.end, width_v, LF_IS(vec, LF_V));
    }
    lf_cp_async_commit();
    lf_cp_async_wait<1>();
    __syncthreads();
    float s[1][NT][4], g[1][NT][4];
    lf_scores_bf16<1, NT, DP>(s, qs, mine, ks);
    lf_scores_bf16<1, NT, DP>(g, os, mine, vs);
    const int2 seen[2] = {make_int2(stat[0].begin, stat[0].end), make_int2(stat[1].begin, stat[1].end)};
    const bool all = DP < 256 && lf_all_seen(seen, key, BK);  // registers are short at 256
#pragma unroll
    for (int j = 0; j < NT; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const lf_stats& t = stat[e >> 1];
        float p = lf_exp2(fmaf(s[0][j][e], scale2, -t.lse));
        if (!all && !t.sees(key + 8 * j + at + (e & 1))) p = 0.0f;
        g[0][j][e] = p * (g[0][j][e] - t.delta);
      }
    lf_values_bf16<1, NT, DP>(acc, g, ks);
    __syncthreads();  // these keys have been used
    key = next;
  }
  lf_cp_async_wait_all();
#pragma unroll
  for (int r = 0; r < 2; r++) {
    int row = first + mine + 8 * r + (lane >> 2);
    if (row >= n) continue;
    const long long to = ((long long)row * heads + head) * d;
#pragma unroll
    for (int j = 0; j < DP / 8; j++)
      lf_store_two(dq, LF_IS(bf16, LF_DQ), to, 8 * j + at, d, LF_IS(vec, LF_DQ), acc[0][j][2 * r] * scale, acc[0][j][2 * r + 1] * scale);
  }
}

// One of dk and dv, or both: for heads of 256 the sums of both do not fit
// into the registers, so each has its own kernel. Sums of parts are float32.
template <int BQ, int DP, bool DK, bool DV>
LF_DEVICE void lf_attention_dkv_bf16(void* dk, void* dv, const lf_bf16* dout, const lf_bf16* q, const lf_bf16* k,
                                     const lf_bf16* v, const float4* stats, const int2* spans, int n, int keys, int heads,
                                     int group, int d, int parts, float scale, int bf16, int vec) {
  constexpr int BK = 64, NT = BQ / 8, PITCH = DP + 8;
  LF_DYN_SHARED(lf_bf16, shared);
  lf_bf16 *ks = shared, *vs = ks + BK * PITCH, *tiles = DK ? vs + BK * PITCH : vs;
  float4* stat = (float4*)(tiles + 4 * BQ * PITCH);  // of the queries of two tiles
  const int lane = threadIdx.x & 31, mine = (threadIdx.x >> 5) * 16, at = 2 * (lane & 3), first = blockIdx.x * BK;
  const int narrow_head = blockIdx.y / parts, part = blockIdx.y % parts;
  const int width_q = LF_IS(bf16, LF_Q) ? d : DP, width_do = LF_IS(bf16, LF_DO) ? d : DP;
  const int width_k = LF_IS(bf16, LF_K) ? d : DP, width_v = LF_IS(bf16, LF_V) ? d : DP;
  const int share = group / parts, head0 = narrow_head * group + part * share;

  float kacc[1][DP / 8][4], vacc[1][DP / 8][4];
#pragma unroll
  for (int j = 0; j < DP / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) kacc[0][j][e] = vacc[0][j][e] = 0.0f;
  const float scale2 = scale * LF_LOG2E;
  lf_walk walk;
  walk.start(spans, (n + BQ - 1) / BQ, first, min(first + BK, keys), head0, head0 + share);
  bool more = walk.next();
  int stage = 0;
  lf_tile_bf16<BK, DP, 128>(ks, k + (long long)narrow_head * width_k, heads / group * width_k, first, 0, keys, width_k, LF_IS(vec, LF_K));
  if (DK)
    lf_tile_bf16<BK, DP, 128>(vs, v + (long long)narrow_head * width_v, heads / group * width_v, first, 0, keys, width_v, LF_IS(vec, LF_V));
  if (more) {
    lf_tile_bf16<BQ, DP, 128>(tiles, q + (long long)walk.head * width_q, heads * width_q, walk.tile * BQ, 0, n, width_q, LF_IS(vec, LF_Q));
    lf_tile_bf16<BQ, DP, 128>(tiles + BQ * PITCH, dout + (long long)walk.head * width_do, heads * width_do, walk.tile * BQ, 0, n, width_do,
                              LF_IS(vec, LF_DO));
    lf_tile_stats<BQ>(stat, stats, walk.tile * BQ, heads, walk.head, n);
  }
  lf_cp_async_commit();
  while (more) {
    lf_bf16 *qs = tiles + stage * 2 * BQ * PITCH, *os = qs + BQ * PITCH;
    const float4* own = stat + stage * BQ;
    stage ^= 1;
    more = walk.next();
    if (more) {
      lf_bf16* to = tiles + stage * 2 * BQ * PITCH;
      lf_tile_bf16<BQ, DP, 128>(to, q + (long long)walk.head * width_q, heads * width_q, walk.tile * BQ, 0, n, width_q, LF_IS(vec, LF_Q));
      lf_tile_bf16<BQ, DP, 128>(to + BQ * PITCH, dout + (long long)walk.head * width_do, heads * width_do, walk.tile * BQ, 0, n, width_do,
                                LF_IS(vec, LF_DO));
      lf_tile_stats<BQ>(stat + stage * BQ, stats, walk.tile * BQ, heads, walk.head, n);
    }
    lf_cp_async_commit();
    lf_cp_async_wait<1>();
    __syncthreads();
    float s[1][NT][4], g[1][NT][4];
    lf_scores_bf16<1, NT, DP>(s, ks, mine, qs);
    if (DK) lf_scores_bf16<1, NT, DP>(g, vs, mine, os);
#pragma unroll
    for (int j = 0; j < NT; j++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        lf_stats t;
        t.set(own[8 * j + at + e]);
#pragma unroll
        for (int r = 0; r < 4; r += 2) {
          float p = lf_exp2(fmaf(s[0][j][r + e], scale2, -t.lse * LF_LOG2E));
          if (!t.sees(first + mine + 4 * r + (lane >> 2))) p = 0.0f;
          s[0][j][r + e] = p;
          if (DK) g[0][j][r + e] = p * (g[0][j][r + e] - t.delta);
        }
      }
    if (DV) lf_values_bf16<1, NT, DP>(vacc, s, os);
    if (DK) lf_values_bf16<1, NT, DP>(kacc, g, qs);
    __syncthreads();  // these queries have been used
  }
  lf_cp_async_wait_all();
#pragma unroll
  for (int r = 0; r < 2; r++) {
    int row = first + mine + 8 * r + (lane >> 2);
    if (row >= keys) continue;
    long long to = (((long long)part * keys + row) * (heads / group) + narrow_head) * d;
#pragma unroll
    for (int j = 0; j < DP / 8; j++) {
      if (DK)
        lf_store_two(dk, LF_IS(bf16, LF_DK), to, 8 * j + at, d, LF_IS(vec, LF_DK), kacc[0][j][2 * r] * scale, kacc[0][j][2 * r + 1] * scale);
      if (DV) lf_store_two(dv, LF_IS(bf16, LF_DV), to, 8 * j + at, d, LF_IS(vec, LF_DV), vacc[0][j][2 * r], vacc[0][j][2 * r + 1]);
    }
  }
}

#define LF_ATTENTION_DQ_BF16(DP, BK)                                                                                      \
  extern "C" __global__ void __launch_bounds__(128, 2) attention_dq_bf16_##DP(                                            \
      void* dq, const lf_bf16* dout, const lf_bf16* q, const lf_bf16* k, const lf_bf16* v, const float4* stats,           \
      const int* lo, const int* hi, int n, int keys, int heads, int group, int d, int window, float scale, int bf16,      \
      int vec) {                                                                                                          \
    lf_attention_dq_bf16<BK, DP>(dq, dout, q, k, v, stats, lo, hi, n, keys, heads, group, d, window, scale, bf16, vec);   \
  }                                                                                                                       \
  LF_KERNEL(attention_dq_bf16_##DP);
#define LF_ATTENTION_DKV_BF16(NAME, DP, BQ, DK, DV)                                                                       \
  extern "C" __global__ void __launch_bounds__(128, 2) attention_##NAME##_bf16_##DP(                                      \
      void* dk, void* dv, const lf_bf16* dout, const lf_bf16* q, const lf_bf16* k, const lf_bf16* v,                      \
      const float4* stats, const int2* spans, int n, int keys, int heads, int group, int d, int parts, float scale,       \
      int bf16, int vec) {                                                                                                \
    lf_attention_dkv_bf16<BQ, DP, DK, DV>(dk, dv, dout, q, k, v, stats, spans, n, keys, heads, group, d, parts, scale,    \
                                          bf16, vec);                                                                     \
  }                                                                                                                       \
  LF_KERNEL(attention_##NAME##_bf16_##DP);
LF_ATTENTION_DQ_BF16(32, 64)
LF_ATTENTION_DQ_BF16(64, 64)
LF_ATTENTION_DQ_BF16(96, 32)
LF_ATTENTION_DQ_BF16(128, 32)
LF_ATTENTION_DQ_BF16(256, 16)
LF_ATTENTION_DKV_BF16(dkv, 32, 64, true, true)
LF_ATTENTION_DKV_BF16(dkv, 64, 64, true, true)
LF_ATTENTION_DKV_BF16(dkv, 96, 32, true, true)
LF_ATTENTION_DKV_BF16(dkv, 128, 32, true, true)
LF_ATTENTION_DKV_BF16(dk, 256, 16, true, false)
LF_ATTENTION_DKV_BF16(dv, 256, 16, false, true)

#ifdef LF_RACE
#include "../sim/test/race.h"

// Two heads of one group that sum apart, more queries and keys than a tile has.
struct lf_attention_grad_race {
  static constexpr int n = 70, keys = 70, d = 20, dp = 32;
  std::vector<float> dout = lf_race_noise<float>(n * 2 * d), q = lf_race_noise<float>(n * 2 * d);
  std::vector<float> k = lf_race_noise<float>(keys * d), v = lf_race_noise<float>(keys * d), o = q;
  std::vector<float> lse = std::vector<float>(n * 2, 3.0f), dq = q, dk = k, dv = v, xk, xv;
  std::vector<float4> stats;
  std::vector<int2> spans;
  std::vector<int> lo, hi;
  std::vector<long long> trap;
  explicit lf_attention_grad_race(int tile) : xk(2 * keys * d), xv(xk), stats(n * 2), spans(8), lo(n), hi(n), trap(4) {
    for (int i = 0; i < n; i++) hi[i] = i + 1;
    lf_race_launch(attention_stats, {8}, {256}, 0, stats.data(), dout.data(), o.data(), lse.data(), lo.data(), hi.data(), n,
                   keys, 2, d, 0, 1, 0, 255, trap.data(), 0);
    lf_race_launch(attention_spans, {1}, {256}, 0, spans.data(), lo.data(), hi.data(), n, keys, 0, tile);
  }
  void sum() { lf_race_launch(attention_sum_parts, {3, 2}, {256}, 0, dk.data(), dv.data(), xk.data(), xv.data(), 2, 600LL, 0); }
};

LF_RACE_CASE(attention_grad_f32) {
  lf_attention_grad_race r(32);
  lf_race_launch(attention_dq_f32_32, {4}, {256}, 4 * (2 * (64 + 32) * 36 + 64 * 36), r.dq.data(), r.dout.data(), r.q.data(),
                 r.k.data(), r.v.data(), r.stats.data(), r.lo.data(), r.hi.data(), r.n, r.keys, 2, 2, r.d, 0, 0.2f, 1);
  lf_race_launch(attention_dkv_f32_32, {2, 2}, {256}, 4 * (2 * (64 + 32) * 36 + 2 * 64 * 36), r.xk.data(), r.xv.data(),
                 r.dout.data(), r.q.data(), r.k.data(), r.v.data(), r.stats.data(), r.spans.data(), r.n, r.keys, 2, 2, r.d, 2,
                 0.2f, 1);
  r.sum();
}

// The operands as the bfloat16 kernels find them: packed, or in memory and not aligned.
LF_RACE_CASE(attention_grad_bf16) {
  lf_attention_grad_race r(64);
  auto q = lf_race_noise<lf_bf16>(r.n * 2 * r.dp), dout = q, k = lf_race_noise<lf_bf16>(r.keys * r.dp), v = k;
  const int in = 1 << LF_Q | 1 << LF_K | 1 << LF_V | 1 << LF_DO;
  for (int bf16 : {0, in | 1 << LF_DQ}) {
    const int vec = bf16 ? ~in : 255;
    lf_race_launch(attention_dq_bf16_32, {4}, {128}, 2 * 2 * (64 + 2 * 64) * 40, r.dq.data(), dout.data(), q.data(), k.data(),
                   v.data(), r.stats.data(), r.lo.data(), r.hi.data(), r.n, r.keys, 2, 2, r.d, 0, 0.2f, bf16, vec);
    lf_race_launch(attention_dkv_bf16_32, {2, 2}, {128}, 2 * (2 * 64 + 4 * 64) * 40 + 2 * 16 * 64, r.xk.data(), r.xv.data(), dout.data(),
                   q.data(), k.data(), v.data(), r.stats.data(), r.spans.data(), r.n, r.keys, 2, 2, r.d, 2, 0.2f, bf16, vec);
  }
  r.sum();
}
#endif
