// Up to three independent sums of matrix products in one launch, each as in
// gemm_mma.metal:
//
//   out_s = addend_s + bias_s + sum over p of alpha_p · op(A_p) · op(B_p),  s = 0, 1, 2
//
// such as q, k and v, or the gradients of the factors of several adapters, which are too
// few tiles to fill a device. Each sum has the bytes that gemm_mma gives it by itself.
//
// Layout: row major. out_s and addend_s [m_s, n_s], bias_s [n_s]; a missing sum has no
//   rows. The sums have the first products, the next ones and so on: ends has the number
//   of the product after the last of sum s in byte s. Bits 2s and 2s + 1 of stored: out_s
//   is bf16, addend_s is.
// Grid: the tiles of sum 0 for each part of its k axis, then those of sums 1 and 2; 128
//   threads. Sums in several parts write them to partial [parts, m, n], one sum after the
//   other, and gemm_group_sum adds them up in their order.
// Traffic: that of gemm_mma for each sum. Threadgroup memory 10 KiB (bfloat) or 18 KiB.
// Reference: for s { gemm_mma of sum s }
#include "tile.h"

#define LF_GROUP_SIZES int m0, m1, m2, n0, n1, n2, parts0, parts1, parts2, ends, stored

struct gemm_group_args {
  LF_ARGS;
  LF_GROUP_SIZES;
  LF_PRODUCTS_ARGS;
};

// One sum of a launch.
struct lf_group_sum {
  int m, n, parts;
  int first, end; // of its products
  int stored;
  long partial; // floats of the parts of the sums before it
};

inline int lf_group_tiles(int n) { return (n + LF_TILE - 1) / LF_TILE; }

// Moves to a sum of m by n.
inline void lf_group_next(thread lf_group_sum& s, int m, int n, int parts, int ends, int stored) {
  if (s.parts > 1) s.partial += (long)s.parts * s.m * s.n;
  s.m = m, s.n = n, s.parts = parts, s.first = s.end, s.end = ends & 255, s.stored = stored & 3;
}

// The threadgroups that compute the products of a sum, and those that add up its parts.
inline int lf_group_units(thread const lf_group_sum& s) { return lf_group_tiles(s.m) * lf_group_tiles(s.n) * s.parts; }
inline int lf_group_blocks(thread const lf_group_sum& s) { return s.parts > 1 ? (int)(((long)s.m * s.n + 255) / 256) : 0; }

// Declares s, the sum that threadgroup t of a launch works on, with its operands, and block,
// the number of the threadgroup in it. SIZE returns the threadgroups of a sum.
#define LF_GROUP_NEXT(i, SIZE)                                                                    \
  if (block >= own) {                                                                             \
    block -= own;                                                                                 \
    lf_group_next(s, a.m##i, a.n##i, a.parts##i, a.ends >> (8 * i), a.stored >> (2 * i));         \
    out = out##i, bias = bias##i, addend = addend##i;                                             \
    has_bias = LF_BOUND(a, 4 + i), has_addend = LF_BOUND(a, 7 + i);                               \
    own = SIZE(s);                                                                                \
  }
#define LF_GROUP_PICK(SIZE)                                                                       \
  lf_group_sum s = {a.m0, a.n0, a.parts0, 0, a.ends & 255, a.stored & 3, 0};                      \
  device uchar* out = out0;                                                                       \
  device const float* bias = bias0;                                                               \
  device const uchar* addend = addend0;                                                           \
  bool has_bias = LF_BOUND(a, 4), has_addend = LF_BOUND(a, 7);                                    \
  int block = (int)t.group.x, own = SIZE(s);                                                      \
  LF_GROUP_NEXT(1, SIZE)                                                                          \
  LF_GROUP_NEXT(2, SIZE)

template <class C>
inline void lf_gemm_group(lf_thread t, threadgroup uint4* shared, device uchar* out, device float* partial, bool has_bias, device const float* bias,
                          bool has_addend, device const uchar* addend, thread const lf_group_sum& s, int block, thread lf_products& all) {
  int tiles_m = lf_group_tiles(s.m), tiles_n = lf_group_tiles(s.n), tiles = tiles_m * tiles_n, part = block / tiles, ti, tj;
  lf_tile_order(block % tiles, tiles_m, tiles_n, ti, tj);
  int m0 = ti * LF_TILE, n0 = tj * LF_TILE, from = lf_stages_of(all, s.first), stages = lf_stages_of(all, s.end) - from;
  lf_tile<C, false, false> tile;
  tile.run(t, shared, all, from + (int)((long)stages * part / s.parts), from + (int)((long)stages * (part + 1) / s.parts), m0, n0, s.m, s.n, lf_no_drop());
  bool whole = s.parts == 1;
  lf_mixed types = {whole ? s.stored : 0};
  tile.write(t, shared, types, whole ? (device void*)out : partial + s.partial, whole && has_bias, bias, whole && has_addend, addend,
             whole ? 0 : (long)part * s.m * s.n, m0, n0, s.m, s.n);
}

#define LF_GEMM_GROUP(name, C)                                                                                                       \
  LF_KERNEL(128) name(device uchar* out0 [[buffer(0)]], device uchar* out1 [[buffer(1)]], device uchar* out2 [[buffer(2)]],           \
                      device float* partial [[buffer(3)]], device const float* bias0 [[buffer(4)]], device const float* bias1 [[buffer(5)]], \
                      device const float* bias2 [[buffer(6)]], device const uchar* addend0 [[buffer(7)]],                            \
                      device const uchar* addend1 [[buffer(8)]], device const uchar* addend2 [[buffer(9)]],                          \
                      LF_PRODUCTS(10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25), LF_SCALES(26, 27, 28),            \
                      constant gemm_group_args& a [[buffer(29)]], LF_THREAD) {                                                       \
    LF_BEGIN;                                                                                                                        \
    threadgroup uint4 shared[C::words];                                                                                              \
    lf_products all = LF_PRODUCTS_OF(a);                                                                                             \
    LF_GROUP_PICK(lf_group_units)                                                                                                    \
    lf_gemm_group<C>(t, shared, out, partial, has_bias, bias, has_addend, addend, s, block, all);                                    \
  }
LF_GEMM_GROUP(gemm_group_64, lf_cells_bf16)
LF_GEMM_GROUP(gemm_group_f32_64, lf_cells_f32)

// Adds up the parts of the sums of a gemm_group that have several, in their order:
// out_s = addend_s + bias_s + the sum over p of partial_s[p, i, j].
//
// Grid: 256 elements of the sums with several parts, one sum after the other.
// Traffic: parts reads and one write of each output.
struct gemm_group_sum_args {
  LF_ARGS;
  LF_GROUP_SIZES;
};

LF_KERNEL(256) gemm_group_sum(device uchar* out0 [[buffer(0)]], device uchar* out1 [[buffer(1)]], device uchar* out2 [[buffer(2)]],
                              device const float* partial [[buffer(3)]], device const float* bias0 [[buffer(4)]],
                              device const float* bias1 [[buffer(5)]], device const float* bias2 [[buffer(6)]],
                              device const uchar* addend0 [[buffer(7)]], device const uchar* addend1 [[buffer(8)]],
                              device const uchar* addend2 [[buffer(9)]], constant gemm_group_sum_args& a [[buffer(10)]], LF_THREAD) {
  LF_BEGIN;
  LF_GROUP_PICK(lf_group_blocks)
  long size = (long)s.m * s.n, i = (long)block * 256 + t.index;
  if (i >= size) return;
  device const float* p = partial + s.partial + i;
  float sum = 0.0f;
  for (int k = 0; k < s.parts; k++) sum += p[k * size];
  if (has_bias) sum += bias[i % s.n];
  lf_mixed types = {s.stored};
  if (has_addend) sum += lf_load(types, 1, addend, i);
  lf_store(types, 0, out, i, sum);
}
