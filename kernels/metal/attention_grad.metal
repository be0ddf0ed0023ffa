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
// Layout: as in attention.metal; stats [n, heads] of 16 bytes {lse, D, the first key and
//   the one after the last}; spans [tiles of queries] of int2, the keys that a query of
//   the tile may see. In the bfloat16 kernels q, do, k and v come from
//   attention_pack_bf16.
// Grid: attention_stats_f32: a warp for each query and head. attention_spans: a warp for
//   each tile. attention_dq_*: as forward. attention_dkv_*: x runs over tiles of 32
//   keys, y over key heads and the parts that a group's heads are divided
//   into; with more than one part, each writes sums of its own, which
//   attention_sum_parts adds in ascending order.
// Traffic: dq as forward, and do; dkv its keys and values with the queries and do of
//   the tiles whose span meets the keys, for each head. Flops: 6 d and 8 d a pair.
// Reference: for h, i { for j { p = exp(scale s − lse); ds = p (do·v − D)
//              dq[i] += scale ds k[j]; dk[j] += scale ds q[i]; dv[j] += p do[i] } }
#include "attention.h"
#include "attention_walk.h"

struct attention_stats_args { LF_ARGS; int n, keys, heads, d, window, rounded, vec, launch; };

// rounded: do is rounded as in the bfloat16 kernels, so that do·v − D is 0 for a
// query with one key, and small where it should be.
LF_KERNEL(256) attention_stats_f32(device uint4* stats [[buffer(0)]], device const float* dout [[buffer(1)]], device const float* o [[buffer(2)]],
                                   device const float* lse [[buffer(3)]], device const int* lo [[buffer(4)]], device const int* hi [[buffer(5)]],
                                   device long* trap [[buffer(6)]], constant attention_stats_args& a [[buffer(7)]], LF_THREAD) {
  LF_BEGIN;
  const long i = (long)t.group.x * 8 + t.warp;
  const bool valid = i < (long)a.n * a.heads;
  float sum = 0.0f;
  for (int c = 4 * (int)t.lane; c < a.d && valid; c += 128) {
    float4 x = a.rounded ? lf_rounded::four(dout + i * a.d, c, a.d, a.vec) : lf_four(dout + i * a.d, c, a.d, a.vec);
    float4 y = lf_four(o + i * a.d, c, a.d, a.vec);
    sum = fma(x.w, y.w, fma(x.z, y.z, fma(x.y, y.y, fma(x.x, y.x, sum))));
  }
  sum = lf_warp_sum(t, sum);
  if (!valid || t.lane) return;
  const int row = (int)(i / a.heads);
  if (i == (long)row * a.heads) lf_check_seen(lo, hi, row, a.n, a.keys, a.window, trap, a.launch);
  int2 seen = lf_seen(lo, hi, row, a.n, a.keys, a.window);
  stats[i] = uint4(as_type<uint>(lse[i]), as_type<uint>(sum), (uint)seen.x, (uint)seen.y);
}

struct attention_spans_args { LF_ARGS; int n, keys, window, tile; };

// The keys of tiles of the given number of queries.
LF_KERNEL(256) attention_spans(device int2* spans [[buffer(0)]], device const int* lo [[buffer(1)]], device const int* hi [[buffer(2)]],
                               constant attention_spans_args& a [[buffer(3)]], LF_THREAD) {
  LF_BEGIN;
  const int i = (int)(t.group.x * 8 + t.warp);
  const bool valid = (long)i * a.tile < a.n;
  int begin = LF_NO_KEY, end = 0;
  for (int r = (int)t.lane; r < a.tile && valid; r += 32) {
    int2 seen = lf_seen(lo, hi, i * a.tile + r, a.n, a.keys, a.window);
    if (seen.x < seen.y) begin = min(begin, seen.x);
    end = max(end, seen.y);
  }
  begin = lf_warp_min(t, begin);
  end = -lf_warp_min(t, -end);
  if (valid && t.lane == 0) spans[i] = int2(begin, end);
}

struct attention_sum_parts_args { LF_ARGS; int parts; long count; };

// dk and dv are sums of their parts: x [parts, count] of each.
LF_KERNEL(256) attention_sum_parts(device float* dk [[buffer(0)]], device float* dv [[buffer(1)]], device const float* xk [[buffer(2)]],
                                   device const float* xv [[buffer(3)]], constant attention_sum_parts_args& a [[buffer(4)]], LF_THREAD) {
  LF_BEGIN;
  device const float* x = t.group.y ? xv : xk;
  device float* out = t.group.y ? dv : dk;
  const long i = (long)t.group.x * 256 + t.index;
  if (i >= a.count) return;
  float sum = 0.0f;
  for (int p = 0; p < a.parts; p++) sum += x[p * a.count + i];
  out[i] = sum;
}

struct attention_dq_args { LF_ARGS; int n, keys, heads, group, d, window; float scale; int vec; };

template <class X, int DP>
inline void lf_attention_dq(lf_thread t, threadgroup float* ta, threadgroup float* tb, threadgroup float* ts, threadgroup float* tg,
                            device float* dq, device const typename X::raw* dout, device const typename X::raw* q,
                            device const typename X::raw* k, device const typename X::raw* v, device const uint4* stats,
                            device const int* lo, device const int* hi, constant attention_dq_args& a) {
  const int head = (int)t.group.x % a.heads, n = a.n, d = a.d, width = X::width(d, DP);
  const int first = ((int)t.groups.x / a.heads - 1 - (int)t.group.x / a.heads) * LF_TILE, row = first + (int)t.index / 8;
  const long wide = (long)a.heads * width, narrow = (long)(a.heads / a.group) * width;
  q += (long)head * width;
  dout += (long)head * width;
  k += (long)(head / a.group) * width;
  v += (long)(head / a.group) * width;

  lf_view view;
  view.load(t, lo, hi, first, n, a.keys, a.window);
  lf_stats stat;
  stat.load(stats, row, a.heads, head, n);
  lf_sums<DP> acc;
  acc.clear();
  const int mine = (int)t.index / 8 * LF_SPITCH + (int)t.index % 8;
  for (int key = view.next(t, 0); key != LF_NO_KEY; key = view.next(t, key + LF_TILE)) {
    lf_rows<X> queries = {q, wide, first, 0, n}, grads = {dout, wide, first, 0, n};
    lf_rows<X> here = {k, narrow, key, view.begin, view.end}, values = {v, narrow, key, view.begin, view.end};
    lf_score<X, X, DP>(t, ts, ta, tb, queries, here, d, a.vec);
    lf_score<X, X, DP>(t, tg, ta, tb, grads, values, d, a.vec);
    lf_barrier();
    for (int j = 0; j < 4; j++) {
      const int at = mine + 8 * j;
      float p = stat.sees(key + (int)t.index % 8 + 8 * j) ? exp(ts[at] * a.scale - stat.lse) : 0.0f;
      tg[at] = X::score(p * (tg[at] - stat.delta));
    }
    acc.template add<X>(t, tg, ta, tb, here, d, a.vec);
  }
  if (row < n) acc.store(t, dq + ((long)row * a.heads + head) * d, d, a.scale, true);
}

struct attention_dkv_args { LF_ARGS; int n, keys, heads, group, d, parts; float scale; int vec; };

// One of dk and dv, or both.
template <class X, int DP, bool DK, bool DV>
inline void lf_attention_dkv(lf_thread t, threadgroup float* ta, threadgroup float* tb, threadgroup float* ts, threadgroup float* tg,
                             device float* dk, device float* dv, device const typename X::raw* dout, device const typename X::raw* q,
                             device const typename X::raw* k, device const typename X::raw* v, device const uint4* stats,
                             device const int2* spans, constant attention_dkv_args& a) {
  const int n = a.n, keys = a.keys, d = a.d, width = X::width(d, DP), first = (int)t.group.x * LF_TILE, row = first + (int)t.index / 8;
  const int narrow_head = (int)t.group.y / a.parts, part = (int)t.group.y % a.parts;
  const long wide = (long)a.heads * width, narrow = (long)(a.heads / a.group) * width;
  const int share = a.group / a.parts, head0 = narrow_head * a.group + part * share;
  const lf_rows<X> here = {k + (long)narrow_head * width, narrow, first, 0, keys}, values = {v + (long)narrow_head * width, narrow, first, 0, keys};

  lf_sums<DP> kacc, vacc;
  kacc.clear();
  vacc.clear();
  const int mine = (int)t.index / 8 * LF_SPITCH + (int)t.index % 8;
  lf_walk walk;
  walk.start(t, spans, (n + LF_TILE - 1) / LF_TILE, first, min(first + LF_TILE, keys), head0, head0 + share);
  while (walk.next(t)) {
    const int query = walk.tile * LF_TILE;
    lf_rows<X> queries = {q + (long)walk.head * width, wide, query, 0, n}, grads = {dout + (long)walk.head * width, wide, query, 0, n};
    lf_score<X, X, DP>(t, ts, ta, tb, here, queries, d, a.vec);
    if (DK) lf_score<X, X, DP>(t, tg, ta, tb, values, grads, d, a.vec);
    lf_barrier();
    for (int j = 0; j < 4; j++) {
      const int at = mine + 8 * j;
      lf_stats stat;
      stat.load(stats, query + (int)t.index % 8 + 8 * j, a.heads, walk.head, n);
      float p = stat.sees(row) ? exp(ts[at] * a.scale - stat.lse) : 0.0f;
      ts[at] = X::score(p);
      if (DK) tg[at] = X::score(p * (tg[at] - stat.delta));
    }
    if (DV) vacc.template add<X>(t, ts, ta, tb, grads, d, a.vec);
    if (DK) kacc.template add<X>(t, tg, ta, tb, queries, d, a.vec);
  }
  if (row >= keys) return;
  const long to = (((long)part * keys + row) * (a.heads / a.group) + narrow_head) * d;
  if (DK) kacc.store(t, dk + to, d, a.scale, true);
  if (DV) vacc.store(t, dv + to, d, 1.0f, true);
}

#define LF_ATTENTION_DQ(NAME, X, RAW, DP)                                                                                       \
  LF_KERNEL(256) NAME(device float* dq [[buffer(0)]], device const RAW* dout [[buffer(1)]], device const RAW* q [[buffer(2)]],  \
                      device const RAW* k [[buffer(3)]], device const RAW* v [[buffer(4)]], device const uint4* stats [[buffer(5)]], \
                      device const int* lo [[buffer(6)]], device const int* hi [[buffer(7)]],                                   \
                      constant attention_dq_args& a [[buffer(8)]], LF_THREAD) {                                                 \
    LF_BEGIN;                                                                                                                   \
    LF_ATTENTION_ROOM;                                                                                                          \
    threadgroup float tg[LF_TILE * LF_SPITCH];                                                                                  \
    lf_attention_dq<X, DP>(t, ta, tb, ts, tg, dq, dout, q, k, v, stats, lo, hi, a);                                             \
  }
#define LF_ATTENTION_DKV(NAME, X, RAW, DP, DK, DV)                                                                              \
  LF_KERNEL(256) NAME(device float* dk [[buffer(0)]], device float* dv [[buffer(1)]], device const RAW* dout [[buffer(2)]],     \
                      device const RAW* q [[buffer(3)]], device const RAW* k [[buffer(4)]], device const RAW* v [[buffer(5)]],  \
                      device const uint4* stats [[buffer(6)]], device const int2* spans [[buffer(7)]],                          \
                      constant attention_dkv_args& a [[buffer(8)]], LF_THREAD) {                                                \
    LF_BEGIN;                                                                                                                   \
    LF_ATTENTION_ROOM;                                                                                                          \
    threadgroup float tg[LF_TILE * LF_SPITCH];                                                                                  \
    lf_attention_dkv<X, DP, DK, DV>(t, ta, tb, ts, tg, dk, dv, dout, q, k, v, stats, spans, a);                                 \
  }
LF_ATTENTION_DQ(attention_dq_f32_32, lf_exact, float, 32)
LF_ATTENTION_DQ(attention_dq_f32_64, lf_exact, float, 64)
LF_ATTENTION_DQ(attention_dq_f32_96, lf_exact, float, 96)
LF_ATTENTION_DQ(attention_dq_f32_128, lf_exact, float, 128)
LF_ATTENTION_DQ(attention_dq_f32_256, lf_exact, float, 256)
LF_ATTENTION_DQ(attention_dq_bf16_32, lf_packed, ushort, 32)
LF_ATTENTION_DQ(attention_dq_bf16_64, lf_packed, ushort, 64)
LF_ATTENTION_DQ(attention_dq_bf16_96, lf_packed, ushort, 96)
LF_ATTENTION_DQ(attention_dq_bf16_128, lf_packed, ushort, 128)
LF_ATTENTION_DQ(attention_dq_bf16_256, lf_packed, ushort, 256)
LF_ATTENTION_DKV(attention_dkv_f32_32, lf_exact, float, 32, true, true)
LF_ATTENTION_DKV(attention_dkv_f32_64, lf_exact, float, 64, true, true)
LF_ATTENTION_DKV(attention_dkv_f32_96, lf_exact, float, 96, true, true)
LF_ATTENTION_DKV(attention_dkv_f32_128, lf_exact, float, 128, true, true)
LF_ATTENTION_DKV(attention_dkv_f32_256, lf_exact, float, 256, true, true)
LF_ATTENTION_DKV(attention_dkv_bf16_32, lf_packed, ushort, 32, true, true)
LF_ATTENTION_DKV(attention_dkv_bf16_64, lf_packed, ushort, 64, true, true)
LF_ATTENTION_DKV(attention_dkv_bf16_96, lf_packed, ushort, 96, true, true)
LF_ATTENTION_DKV(attention_dkv_bf16_128, lf_packed, ushort, 128, true, true)
LF_ATTENTION_DKV(attention_dk_bf16_256, lf_packed, ushort, 256, true, false)
LF_ATTENTION_DKV(attention_dv_bf16_256, lf_packed, ushort, 256, false, true)
