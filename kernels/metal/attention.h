// Shared code of the attention kernels: the keys that a query sees, tiles in threadgroup
// memory, and the two matrix products that they all compute, with float32 sums:
//
//   scores   S  = A Bᵀ   rows of A and B, by chunks of their columns
//   values   O += P X    P [rows of S, k] and a chunk of the columns of X [k, columns]
//
// Forward:  S = Q Kᵀ, O += P V.
// For dQ:   S = Q Kᵀ, dP = dO Vᵀ, dQ += dS K.
// For dK, dV, where rows are keys: Sᵀ = K Qᵀ, dPᵀ = V dOᵀ, dV += Pᵀ dO, dK += dSᵀ Q.
//
// A threadgroup has 256 threads, 32 rows and 32 columns of scores for all head sizes:
// threadgroup memory is small, so it holds only a chunk of the columns at a time, which
// is read again from device memory for the next product. Thread i has row i/8 of S and
// O, and of each chunk the columns i%8 + 8 j.
//
// DP is the head size that a kernel is made for. Smaller ones are padded by zeros, and
// the columns from d on are not written. Tiles hold floats in both precisions; in bf16
// these have been rounded, so that their products are exact.
//
// Operands that are in memory as bfloat16, or aligned for vectors, have a bit each in
// the arguments bf16 and vec, at the positions that follow. The sums are the same.
#pragma once
#include "bf16.h"

enum { LF_Q, LF_K, LF_V, LF_O, LF_DO, LF_DQ, LF_DK, LF_DV };
#define LF_IS(flags, operand) (((flags) >> (operand) & 1) != 0)

#define LF_NO_KEY 0x7fffffff
#define LF_TILE 32                                             // rows and columns of scores
#define LF_CHUNK(DP) ((DP) == 96 ? 48 : (DP) < 64 ? (DP) : 64) // available columns of a row
#define LF_PITCH (64 + 4)                                      // floats from row to row of a chunk
#define LF_SPITCH (LF_TILE + 4)                                // and of scores

// The memory of a threadgroup: two chunks of rows, and a matrix of scores.
#define LF_ATTENTION_ROOM \
  threadgroup float ta[LF_TILE * LF_PITCH], tb[LF_TILE * LF_PITCH], ts[LF_TILE * LF_SPITCH]

// The keys [x, y) that query i sees; none if i is out of range.
inline int2 lf_seen(device const int* lo, device const int* hi, int i, int n, int keys, int window) {
  if (i >= n) return int2(0, 0);
  int a = lo[i], b = hi[i];
  if (window > 0 && b > window) a = max(a, b - window);
  a = max(a, 0);
  b = min(b, keys);
  return a < b ? int2(a, b) : int2(0, 0);
}

// Reports a query whose interval leaves the keys; of several, any: what each
// writes is true by itself, and the launch is the same for all.
inline void lf_check_seen(device const int* lo, device const int* hi, int i, int n, int keys, int window, device long* trap,
                          int launch) {
  if (i >= n) return;
  int a = lo[i], b = hi[i];
  if (window > 0 && b > window) a = max(a, b - window);
  if (a >= b || (a >= 0 && b <= keys) || trap[0] != 0) return;
  trap[1] = i;
  trap[0] = (long)launch + 1;
}

// The least of a warp, for all of its lanes.
inline int lf_warp_min(lf_thread t, int v) {
#if LF_SIMD
  for (uint o = 16; o; o >>= 1) v = min(v, simd_shuffle_xor(v, (ushort)o));
#else
  threadgroup_barrier(mem_flags::mem_threadgroup); // what was exchanged before has been read
  t.room[t.index] = (uint)v;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint from = t.index & ~31u;
  for (uint l = 0; l < 32; l++) v = min(v, (int)t.room[from + l]);
#endif
  return v;
}

// The keys that the 32 queries starting at first see. Each warp has the whole of it
// in its lanes, so that all of them know the next tile.
struct lf_view {
  int2 seen;
  int begin, end; // of all keys that are seen

  inline void load(lf_thread t, device const int* lo, device const int* hi, int first, int n, int keys, int window) {
    seen = lf_seen(lo, hi, first + (int)t.lane, n, keys, window);
    begin = lf_warp_min(t, seen.x < seen.y ? seen.x : LF_NO_KEY);
    end = -lf_warp_min(t, -seen.y);
  }

  // The first tile of keys from key k on that a query sees a key of. Tiles begin at
  // multiples of their size, so the result of a query depends only on its own
  // interval, not on the other queries of its threadgroup.
  inline int next(lf_thread t, int k) const {
    int a = max(seen.x, k);
    int first = lf_warp_min(t, a < seen.y ? a : LF_NO_KEY);
    return first == LF_NO_KEY ? first : first / LF_TILE * LF_TILE;
  }
};

// The nearest number of bfloat16.
inline float lf_round_bf16(float x) { return lf_as_bf16::get(lf_as_bf16::put(x)); }

// The four elements of a row from column c on, zeros from d on.
inline float4 lf_four(device const float* row, int c, int d, bool vec) {
  if (vec) return c < d ? *(device const float4*)(row + c) : float4(0.0f);
  return float4(c < d ? row[c] : 0.0f, c + 1 < d ? row[c + 1] : 0.0f, c + 2 < d ? row[c + 2] : 0.0f, c + 3 < d ? row[c + 3] : 0.0f);
}
inline float4 lf_four(device const ushort* row, int c, int d, bool vec) {
  uint2 x = uint2(0);
  if (!vec) x = uint2(c < d ? row[c] : 0u, c + 2 < d ? row[c + 2] : 0u) | uint2(c + 1 < d ? row[c + 1] : 0u, c + 3 < d ? row[c + 3] : 0u) << 16;
  else if (c < d) x = *(device const uint2*)(row + c);
  return float4(lf_unpack_bf16(x.x), lf_unpack_bf16(x.y));
}
// The same of a row that begins at element at of a matrix of either type.
inline float4 lf_four(device const void* x, bool bf16, long at, int c, int d, bool vec) {
  if (bf16) return lf_four((device const ushort*)x + at, c, d, vec);
  return lf_four((device const float*)x + at, c, d, vec);
}

// Stores element at of a matrix of either type.
inline void lf_store_one(device void* x, bool bf16, long at, float u) {
  if (bf16) ((device ushort*)x)[at] = lf_as_bf16::put(u);
  else ((device float*)x)[at] = u;
}

inline void lf_put4(threadgroup float* to, float4 x) {
  to[0] = x.x;
  to[1] = x.y;
  to[2] = x.z;
  to[3] = x.w;
}

// The storage of matrix elements: the number of them per head, four of them, and the
// conversion of the scores that they are multiplied by.
struct lf_exact { // float32, unconverted
  static inline int width(int d, int, bool) { return d; }
  static inline float4 four(device const void* x, bool, long at, int c, int d, bool vec) { return lf_four((device const float*)x + at, c, d, vec); }
  static inline float score(float p) { return p; }
};
struct lf_rounded { // float32, rounded, or bfloat16
  static inline int width(int d, int, bool) { return d; }
  static inline float4 four(device const void* x, bool bf16, long at, int c, int d, bool vec) {
    float4 y = lf_four(x, bf16, at, c, d, vec);
    if (!bf16) y = float4(lf_round_bf16(y.x), lf_round_bf16(y.y), lf_round_bf16(y.z), lf_round_bf16(y.w));
    return y;
  }
};
struct lf_narrow { // bfloat16, or what attention_pack has made: the same, with zeros from d to dp
  static inline int width(int d, int dp, bool bf16) { return bf16 ? d : dp; }
  static inline float4 four(device const void* x, bool, long at, int c, int d, bool vec) { return lf_four((device const ushort*)x + at, c, d, vec); }
  static inline float score(float p) { return lf_round_bf16(p); }
};

// A head of a matrix: all rows, from element at on.
template <class X>
struct lf_matrix {
  device const void* x;
  long at;
  int stride, d;
  bool bf16, vec;

  // Head number head of count; the bits are those of the operand.
  inline void place(device const void* matrix, int head, int count, int columns, int dp, int stored, int aligned, int operand) {
    x = matrix;
    bf16 = LF_IS(stored, operand);
    vec = LF_IS(aligned, operand);
    d = X::width(columns, dp, bf16);
    at = (long)head * d;
    stride = count * d;
  }
};

// 32 rows of it; those outside [begin, end) are zeros, and are not read.
template <class X>
struct lf_rows {
  lf_matrix<X> m;
  int first, begin, end;
};

// Copies their columns from c0 on to a tile.
template <class X, int CH>
inline void lf_load(lf_thread t, threadgroup float* tile, lf_rows<X> r, int c0) {
  for (int e = (int)t.index; e < LF_TILE * CH / 4; e += 256) {
    int i = e / (CH / 4), c = e % (CH / 4) * 4, row = r.first + i;
    float4 x = float4(0.0f);
    if (row >= r.begin && row < r.end) x = X::four(r.m.x, r.m.bf16, r.m.at + row * (long)r.m.stride, c0 + c, r.m.d, r.m.vec);
    lf_put4(tile + i * LF_PITCH + c, x);
  }
}

// S of one threadgroup, while it is summed up. By simdgroups: 8 of them have two blocks of
// 8 by 8 each, side by side. By threads: each has the scores of its row and columns.
struct lf_scores {
#if LF_SIMD
  simdgroup_float8x8 s[2];
#else
  float s[4];
#endif

  inline void clear() {
#if LF_SIMD
    for (int j = 0; j < 2; j++) s[j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
#else
    for (int j = 0; j < 4; j++) s[j] = 0.0f;
#endif
  }

  // Adds the products of the given number of columns, a multiple of 8.
  inline void add(lf_thread t, threadgroup const float* a, threadgroup const float* b, int columns) {
#if LF_SIMD
    threadgroup const float* pa = a + t.warp / 2 * 8 * LF_PITCH;
    threadgroup const float* pb = b + t.warp % 2 * 16 * LF_PITCH;
    for (int c = 0; c < columns; c += 8) {
      simdgroup_float8x8 x, y;
      simdgroup_load(x, pa + c, LF_PITCH);
      for (int j = 0; j < 2; j++) {
        simdgroup_load(y, pb + j * 8 * LF_PITCH + c, LF_PITCH, ulong2(0, 0), true);
        simdgroup_multiply_accumulate(s[j], x, y, s[j]);
      }
    }
#else
    threadgroup const float* pa = a + t.index / 8 * LF_PITCH;
    threadgroup const float* pb = b + t.index % 8 * LF_PITCH;
    for (int c = 0; c < columns; c++)
      for (int j = 0; j < 4; j++) s[j] = fma(pa[c], pb[j * 8 * LF_PITCH + c], s[j]);
#endif
  }

  inline void store(lf_thread t, threadgroup float* to) {
#if LF_SIMD
    to += t.warp / 2 * 8 * LF_SPITCH + t.warp % 2 * 16;
    for (int j = 0; j < 2; j++) simdgroup_store(s[j], to + j * 8, LF_SPITCH);
#else
    to += t.index / 8 * LF_SPITCH + t.index % 8;
    for (int j = 0; j < 4; j++) to[j * 8] = s[j];
#endif
  }
};

// to = A Bᵀ over the d columns of 32 rows of each. When all threads have arrived here,
// the tiles and to have been read. A thread that reads to must first wait for all of
// them.
template <class A, class B, int DP>
inline void lf_score(lf_thread t, threadgroup float* to, threadgroup float* ta, threadgroup float* tb, lf_rows<A> a, lf_rows<B> b,
                     int d) {
  lf_scores s;
  s.clear();
  for (int c = 0; c < d; c += LF_CHUNK(DP)) {
    lf_barrier();
    lf_load<A, LF_CHUNK(DP)>(t, ta, a, c);
    lf_load<B, LF_CHUNK(DP)>(t, tb, b, c);
    lf_barrier();
    s.add(t, ta, tb, min(LF_CHUNK(DP), (d - c + 7) / 8 * 8));
  }
  s.store(t, to);
}

// Sums of a row over the columns of a head, as a thread has them: index i of chunk c is
// column LF_CHUNK c + t.index%8 + 8 i.
template <int DP>
struct lf_sums {
  float x[DP / LF_CHUNK(DP)][LF_CHUNK(DP) / 8];

  inline void clear() {
#pragma unroll
    for (int c = 0; c < DP / LF_CHUNK(DP); c++)
#pragma unroll
      for (int i = 0; i < LF_CHUNK(DP) / 8; i++) x[c][i] = 0.0f;
  }

  inline void scale(float f) {
#pragma unroll
    for (int c = 0; c < DP / LF_CHUNK(DP); c++)
#pragma unroll
      for (int i = 0; i < LF_CHUNK(DP) / 8; i++) x[c][i] *= f;
  }

  // += P X: P [32, 32] in threadgroup memory, as another thread may just have written it;
  // 32 rows of X, which come to tb. In ta the simdgroups leave their products.
  template <class X>
  inline void add(lf_thread t, threadgroup const float* p, threadgroup float* ta, threadgroup float* tb, lf_rows<X> m, int d) {
#pragma unroll
    for (int c = 0; c < DP / LF_CHUNK(DP); c++) {
      if (c * LF_CHUNK(DP) >= d) continue; // for all threads alike
      lf_barrier();
      lf_load<X, LF_CHUNK(DP)>(t, tb, m, c * LF_CHUNK(DP));
      lf_barrier();
#if LF_SIMD
      const uint at = t.warp / 2 * 8, half_of = t.warp % 2 * (LF_CHUNK(DP) / 2);
      simdgroup_float8x8 o[LF_CHUNK(DP) / 16];
      for (int j = 0; j < LF_CHUNK(DP) / 16; j++) o[j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
      for (int k = 0; k < LF_TILE; k += 8) {
        simdgroup_float8x8 w, y;
        simdgroup_load(w, p + at * LF_SPITCH + k, LF_SPITCH);
        for (int j = 0; j < LF_CHUNK(DP) / 16; j++) {
          simdgroup_load(y, tb + k * LF_PITCH + half_of + j * 8, LF_PITCH);
          simdgroup_multiply_accumulate(o[j], w, y, o[j]);
        }
      }
      for (int j = 0; j < LF_CHUNK(DP) / 16; j++) simdgroup_store(o[j], ta + at * LF_PITCH + half_of + j * 8, LF_PITCH);
      lf_barrier();
#pragma unroll
      for (int i = 0; i < LF_CHUNK(DP) / 8; i++) x[c][i] += ta[t.index / 8 * LF_PITCH + t.index % 8 + 8 * i];
#else
      for (int k = 0; k < LF_TILE; k++) {
        float w = p[t.index / 8 * LF_SPITCH + k];
#pragma unroll
        for (int i = 0; i < LF_CHUNK(DP) / 8; i++) x[c][i] = fma(w, tb[k * LF_PITCH + t.index % 8 + 8 * i], x[c][i]);
      }
#endif
    }
  }

  // Writes the row times f, or zeros if it is absent, to a matrix from element to on.
  inline void store(lf_thread t, device void* out, bool bf16, long to, int d, float f, bool some) const {
#pragma unroll
    for (int c = 0; c < DP / LF_CHUNK(DP); c++)
#pragma unroll
      for (int i = 0; i < LF_CHUNK(DP) / 8; i++) {
        int at = c * LF_CHUNK(DP) + (int)(t.index % 8) + 8 * i;
        if (at < d) lf_store_one(out, bf16, to + at, some ? x[c][i] * f : 0.0f);
      }
  }
};

// Over the eight threads of a row, for all of them.
inline float lf_row_max(lf_thread t, float v) {
  for (uint o = 4; o; o >>= 1) v = fmax(v, lf_shuffle_xor(t, v, o));
  return v;
}
inline float lf_row_sum(lf_thread t, float v) {
  for (uint o = 4; o; o >>= 1) v += lf_shuffle_xor(t, v, o);
  return v;
}
