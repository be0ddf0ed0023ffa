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
//   the tile may see. The bfloat16 kernels take q, do, k and v from memory if they
//   are bfloat16 there, else from attention_pack_bf16. All of them and o, dq, dk and dv
//   may be bfloat16.
// Grid: attention_stats: a warp for each query and head. attention_spans: a warp for
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

struct attention_stats_args { LF_ARGS; int n, keys, heads, d, window, rounded, bf16, vec, launch; };

// rounded: do is rounded as in the bfloat16 kernels, so that do·v − D is 0 for a
// query with one key, and small where it should be.
LF_KERNEL(256) attention_stats(device uint4* stats [[buffer(0)]], device const uchar* dout [[buffer(1)]], device const uchar* o [[buffer(2)]],
                               device const float* lse [[buffer(3)]], device const int* lo [[buffer(4)]], device const int* hi [[buffer(5)]],
                               device long* trap [[buffer(6)]], constant attention_stats_args& a [[buffer(7)]], LF_THREAD) {
  LF_BEGIN;
  const long i = (long)t.group.x * 8 + t.warp;
  const bool valid = i < (long)a.n * a.heads;
  float sum = 0.0f;
  for (int c = 4 * (int)t.lane; c < a.d && valid; c += 128) {
    const bool narrow = LF_IS(a.bf16, LF_DO), vec = LF_IS(a.vec, LF_DO);
    float4 x = a.rounded ? lf_rounded::four(dout, narrow, i * a.d, c, a.d, vec) : lf_four(dout, narrow, i * a.d, c, a.d, vec);
    float4 y = lf_four(o, LF_IS(a.bf16, LF_O), i * a.d, c, a.d, LF_IS(a.vec, LF_O));
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

struct attention_sum_parts_args { LF_ARGS; int parts; long count; int bf16; };

// dk and dv are sums of their parts: x [parts, count] of each.
LF_KERNEL(256) attention_sum_parts(device uchar* dk [[buffer(0)]], device uchar* dv [[buffer(1)]], device const float* xk [[buffer(2)]],
                                   device const float* xv [[buffer(3)]], constant attention_sum_parts_args& a [[buffer(4)]], LF_THREAD) {
  LF_BEGIN;
  device const float* x = t.group.y ? xv : xk;
  const long i = (long)t.group.x * 256 + t.index;
  if (i >= a.count) return;
  float sum = 0.0f;
  for (int p = 0; p < a.parts; p++) sum += x[p * a.count + i];
  lf_store_one(t.group.y ? dv : dk, LF_IS(a.bf16, t.group.y ? LF_DV : LF_DK), i, sum);
}

struct attention_dq_args { LF_ARGS; int n, keys, heads, group, d, window; float scale; int vec; };
struct attention_dq_bf16_args { LF_ARGS; int n, keys, heads, group, d, window; float scale; int bf16, vec; };

template <class X, int DP, class A>
inline void lf_attention_dq(lf_thread t, threadgroup float* ta, threadgroup float* tb, threadgroup float* ts, threadgroup float* tg,
                            device void* dq, device const void* dout, device const void* q, device const void* k, device const void* v,
                            device const uint4* stats, device const int* lo, device const int* hi, constant A& a, int bf16, int vec) {
  const int head = (int)t.group.x % a.heads, n = a.n, d = a.d;
  const int first = ((int)t.groups.x / a.heads - 1 - (int)t.group.x / a.heads) * LF_TILE, row = first + (int)t.index / 8;
  lf_matrix<X> mq, mo, mk, mv;
  mq.place(q, head, a.heads, d, DP, bf16, vec, LF_Q);
  mo.place(dout, head, a.heads, d, DP, bf16, vec, LF_DO);
  mk.place(k, head / a.group, a.heads / a.group, d, DP, bf16, vec, LF_K);
  mv.place(v, head / a.group, a.heads / a.group, d, DP, bf16, vec, LF_V);

  lf_view view;
  view.load(t, lo, hi, first, n, a.keys, a.window);
  lf_stats stat;
  stat.load(stats, row, a.heads, head, n);
  lf_sums<DP> acc;
  acc.clear();
  const int mine = (int)t.index / 8 * LF_SPITCH + (int)t.index % 8;
  for (int key = view.next(t, 0); key != LF_NO_KEY; key = view.next(t, key + LF_TILE)) {
    lf_rows<X> queries = {mq, first, 0, n}, grads = {mo, first, 0, n};
    lf_rows<X> here = {mk, key, view.begin, view.end}, values = {mv, key, view.begin, view.end};
    lf_score<X, X, DP>(t, ts, ta, tb, queries, here, d);
    lf_score<X, X, DP>(t, tg, ta, tb, grads, values, d);
    lf_barrier();
    for (int j = 0; j < 4; j++) {
      const int at = mine + 8 * j;
      float p = stat.sees(key + (int)t.index % 8 + 8 * j) ? exp(ts[at] * a.scale - stat.lse) : 0.0f;
      tg[at] = X::score(p * (tg[at] - stat.delta));
    }
    acc.template add<X>(t, tg, ta, tb, here, d);
  }
  if (row < n) acc.store(t, dq, LF_IS(bf16, LF_DQ), ((long)row * a.heads + head) * d, d, a.scale, true);
}

struct attention_dkv_args { LF_ARGS; int n, keys, heads, group, d, parts; float scale; int vec; };
struct attention_dkv_bf16_args { LF_ARGS; int n, keys, heads, group, d, parts; float scale; int bf16, vec; };

// One of dk and dv, or both. Sums of parts are float32.
template <class X, int DP, bool DK, bool DV, class A>
inline void lf_attention_dkv(lf_thread t, threadgroup float* ta, threadgroup float* tb, threadgroup float* ts, threadgroup float* tg,
                             device void* dk, device void* dv, device const void* dout, device const void* q, device const void* k,
                             device const void* v, device const uint4* stats, device const int2* spans, constant A& a, int bf16, int vec) {
  const int n = a.n, keys = a.keys, d = a.d, first = (int)t.group.x * LF_TILE, row = first + (int)t.index / 8;
  const int narrow_head = (int)t.group.y / a.parts, part = (int)t.group.y % a.parts;
  const int share = a.group / a.parts, head0 = narrow_head * a.group + part * share;
  lf_matrix<X> mq, mo, mk, mv;
  mk.place(k, narrow_head, a.heads / a.group, d, DP, bf16, vec, LF_K);
  mv.place(v, narrow_head, a.heads / a.group, d, DP, bf16, vec, LF_V);
  const lf_rows<X> here = {mk, first, 0, keys}, values = {mv, first, 0, keys};

  lf_sums<DP> kacc, vacc;
  kacc.clear();
  vacc.clear();
  const int mine = (int)t.index / 8 * LF_SPITCH + (int)t.index % 8;
  lf_walk walk;
  walk.start(t, spans, (n + LF_TILE - 1) / LF_TILE, first, min(first + LF_TILE, keys), head0, head0 + share);
  while (walk.next(t)) {
    const int query = walk.tile * LF_TILE;
    mq.place(q, walk.head, a.heads, d, DP, bf16, vec, LF_Q);
    mo.place(dout, walk.head, a.heads, d, DP, bf16, vec, LF_DO);
    const lf_rows<X> queries = {mq, query, 0, n}, grads = {mo, query, 0, n};
    lf_score<X, X, DP>(t, ts, ta, tb, here, queries, d);
    if (DK) lf_score<X, X, DP>(t, tg, ta, tb, values, grads, d);
    lf_barrier();
    for (int j = 0; j < 4; j++) {
      const int at = mine + 8 * j;
      lf_stats stat;
      stat.load(stats, query + (int)t.index % 8 + 8 * j, a.heads, walk.head, n);
      float p = stat.sees(row) ? exp(ts[at] * a.scale - stat.lse) : 0.0f;
      ts[at] = X::score(p);
      if (DK) tg[at] = X::score(p * (tg[at] - stat.delta));
    }
    if (DV) vacc.template add<X>(t, ts, ta, tb, grads, d);
    if (DK) kacc.template add<X>(t, tg, ta, tb, queries, d);
  }
  if (row >= keys) return;
  const long to = (((long)part * keys + row) * (a.heads / a.group) + narrow_head) * d;
  if (DK) kacc.store(t, dk, LF_IS(bf16, LF_DK), to, d, a.scale, true);
  if (DV) vacc.store(t, dv, LF_IS(bf16, LF_DV), to, d, 1.0f, true);
}

#define LF_ATTENTION_DQ(NAME, ARGS, X, DP, BF16, VEC)                                                                           \
  LF_KERNEL(256) NAME(device uchar* dq [[buffer(0)]], device const uchar* dout [[buffer(1)]], device const uchar* q [[buffer(2)]], \
                      device const uchar* k [[buffer(3)]], device const uchar* v [[buffer(4)]], device const uint4* stats [[buffer(5)]], \
                      device const int* lo [[buffer(6)]], device const int* hi [[buffer(7)]], constant ARGS& a [[buffer(8)]], LF_THREAD) { \
    LF_BEGIN;                                                                                                                   \
    LF_ATTENTION_ROOM;                                                                                                          \
    threadgroup float tg[LF_TILE * LF_SPITCH];                                                                                  \
    lf_attention_dq<X, DP>(t, ta, tb, ts, tg, dq, dout, q, k, v, stats, lo, hi, a, BF16, VEC);                                  \
  }
#define LF_ATTENTION_DKV(NAME, ARGS, X, DP, DK, DV, BF16, VEC)                                                                  \
  LF_KERNEL(256) NAME(device uchar* dk [[buffer(0)]], device uchar* dv [[buffer(1)]], device const uchar* dout [[buffer(2)]],      \
                      device const uchar* q [[buffer(3)]], device const uchar* k [[buffer(4)]], device const uchar* v [[buffer(5)]], \
                      device const uint4* stats [[buffer(6)]], device const int2* spans [[buffer(7)]],                          \
                      constant ARGS& a [[buffer(8)]], LF_THREAD) {                                                              \
    LF_BEGIN;                                                                                                                   \
    LF_ATTENTION_ROOM;                                                                                                          \
    threadgroup float tg[LF_TILE * LF_SPITCH];                                                                                  \
    lf_attention_dkv<X, DP, DK, DV>(t, ta, tb, ts, tg, dk, dv, dout, q, k, v, stats, spans, a, BF16, VEC);                      \
  }
#define LF_GRAD_F32(DP)                                                                                \
  LF_ATTENTION_DQ(attention_dq_f32_##DP, attention_dq_args, lf_exact, DP, 0, a.vec ? ~0 : 0)           \
  LF_ATTENTION_DKV(attention_dkv_f32_##DP, attention_dkv_args, lf_exact, DP, true, true, 0, a.vec ? ~0 : 0)
#define LF_DQ_BF16(DP) LF_ATTENTION_DQ(attention_dq_bf16_##DP, attention_dq_bf16_args, lf_narrow, DP, a.bf16, a.vec)
#define LF_DKV_BF16(NAME, DP, DK, DV) \
  LF_ATTENTION_DKV(attention_##NAME##_bf16_##DP, attention_dkv_bf16_args, lf_narrow, DP, DK, DV, a.bf16, a.vec)
LF_GRAD_F32(32)
LF_GRAD_F32(64)
LF_GRAD_F32(96)
LF_GRAD_F32(128)
LF_GRAD_F32(256)
LF_DQ_BF16(32)
LF_DQ_BF16(64)
LF_DQ_BF16(96)
LF_DQ_BF16(128)
LF_DQ_BF16(256)
LF_DKV_BF16(dkv, 32, true, true)
LF_DKV_BF16(dkv, 64, true, true)
LF_DKV_BF16(dkv, 96, true, true)
LF_DKV_BF16(dkv, 128, true, true)
LF_DKV_BF16(dk, 256, true, false)
LF_DKV_BF16(dv, 256, false, true)
