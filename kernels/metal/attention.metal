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
//   and v in f32 once to rows of DP elements per head, so that the other threadgroups,
//   n/32 · group times, read half the bytes and round nothing.
// Grid: attention_f32_*, attention_bf16_*: one threadgroup for 32 queries of a head,
//   heads next to each other (those of a group find their keys in the caches), the last
//   queries first (they see most).
// Traffic, for each threadgroup: k and v of the tiles of keys that one of its queries
//   sees, and its queries with each of them (attention.h); its results once. Tiles that
//   none sees are neither read nor computed. Flops: 4 d for each pair of a query and a
//   key of those tiles.
// Reference: for i, h { m = max_j s; for j { p = exp(s − m); l += p; o += p v[j] }
//                       o /= l; lse = m + log(l) }
#include "attention.h"

struct attention_args { LF_ARGS; int n, keys, heads, group, d, window; float scale; int vec, launch; };
struct attention_bf16_args { LF_ARGS; int n, keys, heads, group, d, window; float scale; int bf16, vec, launch; };

template <class Q, class K, int DP, class A>
inline void lf_attention(lf_thread t, threadgroup float* ta, threadgroup float* tb, threadgroup float* ts, device void* o,
                         device float* lse, device const void* q, device const void* k, device const void* v, device const int* lo,
                         device const int* hi, device long* trap, constant A& a, int bf16, int vec) {
  const int head = (int)t.group.x % a.heads, n = a.n, keys = a.keys, d = a.d;
  const int first = ((int)t.groups.x / a.heads - 1 - (int)t.group.x / a.heads) * LF_TILE;
  const int row = first + (int)t.index / 8;
  lf_matrix<Q> mq;
  lf_matrix<K> mk, mv;
  mq.place(q, head, a.heads, d, DP, bf16, vec, LF_Q);
  mk.place(k, head / a.group, a.heads / a.group, d, DP, bf16, vec, LF_K);
  mv.place(v, head / a.group, a.heads / a.group, d, DP, bf16, vec, LF_V);

  lf_view view;
  view.load(t, lo, hi, first, n, keys, a.window);
  if (head == 0 && t.index < LF_TILE) lf_check_seen(lo, hi, first + (int)t.index, n, keys, a.window, trap, a.launch);
  const int2 seen = lf_seen(lo, hi, row, n, keys, a.window);
  float top = -INFINITY, sum = 0.0f;
  lf_sums<DP> acc;
  acc.clear();
  for (int key = view.next(t, 0); key != LF_NO_KEY; key = view.next(t, key + LF_TILE)) {
    lf_rows<Q> queries = {mq, first, 0, n};
    lf_rows<K> here = {mk, key, view.begin, view.end}, values = {mv, key, view.begin, view.end};
    lf_score<Q, K, DP>(t, ts, ta, tb, queries, here, d);
    lf_barrier();
    threadgroup float* mine = ts + t.index / 8 * LF_SPITCH + t.index % 8;
    float s[4], most = -INFINITY;
    for (int j = 0; j < 4; j++) {
      int at = key + (int)(t.index % 8) + 8 * j;
      s[j] = at >= seen.x && at < seen.y ? mine[8 * j] * a.scale : -INFINITY;
      most = fmax(most, s[j]);
    }
    most = fmax(top, lf_row_max(t, most));
    const float base = most == -INFINITY ? 0.0f : most, shrink = exp(top - base);
    top = most;
    sum *= shrink;
    for (int j = 0; j < 4; j++) {
      float p = exp(s[j] - base);
      sum += p;
      mine[8 * j] = K::score(p);
    }
    acc.scale(shrink);
    acc.template add<K>(t, ts, ta, tb, values, d);
  }
  const float total = lf_row_sum(t, sum);
  if (row >= n) return;
  const bool some = seen.x < seen.y;
  acc.store(t, o, LF_IS(bf16, LF_O), ((long)row * a.heads + head) * d, d, 1.0f / total, some);
  if (t.index % 8 == 0) lse[(long)row * a.heads + head] = some ? top + log(total) : -INFINITY;
}

#define LF_ATTENTION(NAME, ARGS, Q, K, DP, BF16, VEC)                                                                          \
  LF_KERNEL(256) NAME(device uchar* o [[buffer(0)]], device float* lse [[buffer(1)]], device const uchar* q [[buffer(2)]],       \
                      device const uchar* k [[buffer(3)]], device const uchar* v [[buffer(4)]], device const int* lo [[buffer(5)]], \
                      device const int* hi [[buffer(6)]], device long* trap [[buffer(7)]],                                     \
                      constant ARGS& a [[buffer(8)]], LF_THREAD) {                                                             \
    LF_BEGIN;                                                                                                                  \
    LF_ATTENTION_ROOM;                                                                                                         \
    lf_attention<Q, K, DP>(t, ta, tb, ts, o, lse, q, k, v, lo, hi, trap, a, BF16, VEC);                                        \
  }
#define LF_ATTENTION_F32(DP) LF_ATTENTION(attention_f32_##DP, attention_args, lf_exact, lf_exact, DP, 0, a.vec ? ~0 : 0)
#define LF_ATTENTION_BF16(DP) LF_ATTENTION(attention_bf16_##DP, attention_bf16_args, lf_rounded, lf_narrow, DP, a.bf16, a.vec)
LF_ATTENTION_F32(32)
LF_ATTENTION_F32(64)
LF_ATTENTION_F32(96)
LF_ATTENTION_F32(128)
LF_ATTENTION_F32(256)
LF_ATTENTION_BF16(32)
LF_ATTENTION_BF16(64)
LF_ATTENTION_BF16(96)
LF_ATTENTION_BF16(128)
LF_ATTENTION_BF16(256)

struct attention_pack_args { LF_ARGS; long vectors; int d, dp, vec; };

// out[y][i, 0:dp] = x[y][i, 0:d] and zeros, for the given number of vectors i
// of two matrices y. A thread makes 16 bytes.
LF_KERNEL(256) attention_pack_bf16(device ushort* out0 [[buffer(0)]], device const float* x0 [[buffer(1)]], device ushort* out1 [[buffer(2)]],
                                   device const float* x1 [[buffer(3)]], constant attention_pack_args& a [[buffer(4)]], LF_THREAD) {
  LF_BEGIN;
  device const float* x = t.group.y ? x1 : x0;
  device ushort* out = t.group.y ? out1 : out0;
  const int steps = a.dp / 8;
  const long e = (long)t.group.x * 256 + t.index;
  if (e >= a.vectors * steps) return;
  const long i = e / steps;
  const int c = (int)(e - i * steps) * 8;
  float4 y = lf_four(x + i * a.d, c, a.d, a.vec), z = lf_four(x + i * a.d, c + 4, a.d, a.vec);
  *(device uint4*)(out + i * a.dp + c) = uint4(lf_pack_bf16(y.x, y.y), lf_pack_bf16(y.z, y.w), lf_pack_bf16(z.x, z.y), lf_pack_bf16(z.z, z.w));
}
