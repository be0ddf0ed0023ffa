// The products of linear_ce.metal by the matrices of simdgroups, operands rounded to
// bfloat16 and sums in float32:
//
//   logits: out[i, j] = Σ_l x[i, l] W[j, l]                       (lce_logits_mma)
//   back:   part[s, i, j] = Σ_l d[i, l] W[l, j], l in part s      (lce_back_mma)
//
// Layout: row major; x and d [per, k] (f32 or bf16), of which only the rows
//   before count − first are there; W [n, k] or [k, n] of any type of a weight. flags say
//   how both are read (products.h).
// Grid: 128 threads for a tile of 64 by 64 (tile.h): x runs over the tiles, rows within
//   columns, so that threadgroups that run at one time share columns of W; y over the
//   parts of k, which lce_scatter adds up in their order. Threadgroups without rows end
//   at once.
// Traffic: W once from memory for all rows, which are few: tiles of the same columns
//   run together; x and d n/64 times; the output once.
// Reference: for i, j { s = 0; for l { s += bf16(x[i, l]) bf16(W[j, l]) }; out[i, j] = s }
#include "parts.h"
#include "tile.h"

// The tile of this threadgroup, of stages first to last of the k axis.
inline void lf_lce_mma(lf_thread t, threadgroup uint4* shared, device float* out, device const uchar* a, device const uchar* w, uint flags,
                       int m, int n, int k, int tiles_m, int first, int last) {
  int m0 = (int)t.group.x % tiles_m * LF_TILE, n0 = (int)t.group.x / tiles_m * LF_TILE;
  if (m0 >= m) return;
  lf_products all = lf_one_product(a, w, k, flags);
  lf_drop none = {(device const uint*)0, 0, 0, 1.0f};
  lf_tile<lf_cells_bf16, false, false> tile;
  tile.run(t, shared, all, first, last, m0, n0, m, n, none);
  lf_mixed f32 = {0};
  tile.write(t, shared, f32, out, false, out, false, out, 0, m0, n0, m, n);
}

struct lce_logits_mma_args {
  LF_ARGS;
  uint flags;
  int first, per, n, k, tiles_m;
};

LF_KERNEL(LF_TILE_THREADS) lce_logits_mma(device float* out [[buffer(0)]], device const uchar* x [[buffer(1)]],
                                          device const uchar* weights [[buffer(2)]], device const int* count [[buffer(3)]],
                                          constant lce_logits_mma_args& a [[buffer(4)]], LF_THREAD) {
  LF_BEGIN;
  threadgroup uint4 shared[lf_cells_bf16::words];
  lf_lce_mma(t, shared, out, x, weights, a.flags, min(a.per, *count - a.first), a.n, a.k, a.tiles_m, 0, lf_part(a.k, LF_TILE_K, 1, 1));
}

struct lce_back_mma_args {
  LF_ARGS;
  uint flags;
  int first, per, n, k, tiles_m, parts;
};

LF_KERNEL(LF_TILE_THREADS) lce_back_mma(device float* partial [[buffer(0)]], device const uchar* d [[buffer(1)]],
                                        device const uchar* weights [[buffer(2)]], device const int* count [[buffer(3)]],
                                        constant lce_back_mma_args& a [[buffer(4)]], LF_THREAD) {
  LF_BEGIN;
  threadgroup uint4 shared[lf_cells_bf16::words];
  int part = (int)t.group.y;
  lf_lce_mma(t, shared, partial + (long)part * a.per * a.n, d, weights, a.flags, min(a.per, *count - a.first), a.n, a.k, a.tiles_m,
             lf_part(a.k, LF_TILE_K, part, a.parts), lf_part(a.k, LF_TILE_K, part + 1, a.parts));
}
