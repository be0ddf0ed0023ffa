// The products of linear_ce.metal in float32, every product of two numbers rounded
// once into its sum (FMA):
//
//   logits: out[i, j] = Σ_l x[i, l] W[j, l]                       (lce_logits_f32_…)
//   back:   part[s, i, j] = Σ_l d[i, l] W[l, j], l in part s      (lce_back_f32_…)
//
// Layout: row major; x and d [per, k] (f32), of which only the rows before
//   count − first are there; W [n, k] or [k, n] of the type in the kernel's name.
// Grid: 256 threads for a tile of 64 by 64, each for 4 by 4 of it: x runs over
//   tiles of columns, y over tiles of rows, z over the parts of k, which
//   lce_scatter adds up in their order. Threadgroups without rows end at once.
// Traffic: W is read per/64 times and the rows n/64 times; 16 of k at a time are in
//   threadgroup memory, where W has already been widened.
// Reference: for i, j { s = 0; for l { s += x[i, l] W[j, l] }; out[i, j] = s }
#include "element.h"
#include "parts.h"

#define LF_TILE 64
#define LF_DEEP 16

template <class T>
struct lf_plain {
  static inline float get(device const uchar* w, long i) { return T::get(((device const typename T::raw*)w)[i]); }
};
struct lf_w_q8 {
  static inline float get(device const uchar* w, long i) { return lf_q8(w, i); }
};
struct lf_w_nf4 {
  static inline float get(device const uchar* w, long i) { return lf_q4(w, i, lf_nf4_book); }
};
struct lf_w_fp4 {
  static inline float get(device const uchar* w, long i) { return lf_q4(w, i, lf_fp4_book); }
};
typedef lf_plain<lf_as_f32> lf_w_f32;
typedef lf_plain<lf_as_f16> lf_w_f16;
typedef lf_plain<lf_as_bf16> lf_w_bf16;

// ALONG_K: k is the contiguous axis of W.
template <class W, bool ALONG_K>
inline void lf_lce(lf_thread t, threadgroup float (*sa)[LF_TILE + 4], threadgroup float (*sb)[LF_TILE + 4], device float* out,
                   device const float* a, device const uchar* w, int m, int n, int k, int from, int to) {
  int m0 = (int)t.group.y * LF_TILE, n0 = (int)t.group.x * LF_TILE;
  if (m0 >= m) return;
  int tx = (int)t.index % 16, ty = (int)t.index / 16;
  float sum[4][4] = {};
  for (int k0 = from; k0 < to; k0 += LF_DEEP) {
    lf_barrier(); // the tile before has been read
    for (int q = 0; q < LF_DEEP * LF_TILE / 256; q++) {
      int e = (int)t.index + 256 * q, l = e % LF_DEEP, i = e / LF_DEEP;
      sa[l][i] = m0 + i < m && k0 + l < to ? a[(long)(m0 + i) * k + k0 + l] : 0.0f;
      if (!ALONG_K) i = e % LF_TILE, l = e / LF_TILE;
      long row = k0 + l, col = n0 + i;
      sb[l][i] = row < to && col < n ? W::get(w, ALONG_K ? col * k + row : row * n + col) : 0.0f;
    }
    lf_barrier();
    for (int l = 0; l < LF_DEEP; l++) {
      float x[4], y[4];
      for (int i = 0; i < 4; i++) x[i] = sa[l][4 * ty + i], y[i] = sb[l][4 * tx + i];
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) sum[i][j] = fma(x[i], y[j], sum[i][j]);
    }
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) {
      long row = m0 + 4 * ty + i;
      int col = n0 + 4 * tx + j;
      if (row < m && col < n) out[row * n + col] = sum[i][j];
    }
}

struct lce_logits_f32_args { LF_ARGS; int first, per, n, k; };
struct lce_back_f32_args { LF_ARGS; int first, per, n, k, parts; };

#define LF_LCE(w)                                                                                                                    \
  LF_KERNEL(256) lce_logits_f32_##w(device float* out [[buffer(0)]], device const float* x [[buffer(1)]],                            \
                                    device const uchar* weights [[buffer(2)]], device const int* count [[buffer(3)]],                \
                                    constant lce_logits_f32_args& a [[buffer(4)]], LF_THREAD) {                                      \
    LF_BEGIN;                                                                                                                        \
    threadgroup float sa[LF_DEEP][LF_TILE + 4];                                                                                      \
    threadgroup float sb[LF_DEEP][LF_TILE + 4];                                                                                      \
    lf_lce<lf_w_##w, true>(t, sa, sb, out, x, weights, min(a.per, *count - a.first), a.n, a.k, 0, a.k);                        \
  }                                                                                                                                  \
  LF_KERNEL(256) lce_back_f32_##w(device float* partial [[buffer(0)]], device const float* d [[buffer(1)]],                          \
                                  device const uchar* weights [[buffer(2)]], device const int* count [[buffer(3)]],                  \
                                  constant lce_back_f32_args& a [[buffer(4)]], LF_THREAD) {                                          \
    LF_BEGIN;                                                                                                                        \
    threadgroup float sa[LF_DEEP][LF_TILE + 4];                                                                                      \
    threadgroup float sb[LF_DEEP][LF_TILE + 4];                                                                                      \
    int part = (int)t.group.z;                                                                                                       \
    lf_lce<lf_w_##w, false>(t, sa, sb, partial + (long)part * a.per * a.n, d, weights, min(a.per, *count - a.first), a.n, a.k, \
                            lf_part(a.k, LF_DEEP, part, a.parts) * LF_DEEP,                                                          \
                            min(a.k, lf_part(a.k, LF_DEEP, part + 1, a.parts) * LF_DEEP));                                           \
  }
LF_LCE(f32)
LF_LCE(f16)
LF_LCE(bf16)
LF_LCE(q8)
LF_LCE(nf4)
LF_LCE(fp4)
