// A sum of up to eight matrix products in one launch, with their k axes concatenated:
//
//   out = addend + bias + sum over p of alpha_p · op(A_p) · op(B_p)
//
// sums in float32; operands rounded to bfloat16 (gemm_mma_64), or exactly decoded
// (gemm_mma_f32_64). A linear with its adapter is two products, [x | h] · [W | B]ᵀ with
// alpha 1 and s, and so is its backward pass, [dy | dh] · [W ; A]: the adapter is a
// longer k, without a pass over y or dx.
//
// Layout: row major. A_p is [m, k], or [k, m], of f32, f16 or bf16; B_p is [k, n],
//   or [n, k], of these, quantised or in 8-bit floats, whose rows may have scales; flags
//   say which and how it is read (products.h). bias [n] and addend [m, n] may be null, and the addend may be out.
//   Bits of stored: out is bf16, addend is; f32 otherwise.
//   A batch has one product, whose matrices are step_a and step_b bytes apart.
// Grid: tiles of the output of 64 by 64 in the order of lf_tile_order, for each part of
//   the k axis, for each matrix of a batch; 128 threads. A part writes its sums to
//   partial [batch, parts, m, n], and gemm_sum adds them up in their order: no atomics,
//   the same bytes every run.
// Traffic: A is read n/64 times and B m/64 times, of which the cache serves what the
//   eight rows of tiles that run at one time share; the output once. Threadgroup memory
//   10 KiB (bfloat) or 18 KiB, of 32: the tiles of one stage of 32 of the k axis.
// Reference: for i, j { s = 0; for p { t = 0; for l { t += A_p[i, l] B_p[l, j] }
//                       s += alpha_p t }; out[i, j] = addend[i, j] + bias[j] + s }
#include "tile.h"

struct gemm_mma_args {
  LF_ARGS;
  int m, n, tiles_m, tiles_n, parts, stored, count;
  LF_PRODUCTS_ARGS;
};

template <class C>
inline void lf_gemm_mma(lf_thread t, threadgroup uint4* shared, device void* out, device float* partial, device const float* bias,
                        device const void* addend, constant gemm_mma_args& a, thread lf_products& all) {
  int tiles = a.tiles_m * a.tiles_n, z = (int)t.group.x / tiles, ti, tj;
  lf_tile_order((int)t.group.x % tiles, a.tiles_m, a.tiles_n, ti, tj);
  int m0 = ti * LF_TILE, n0 = tj * LF_TILE, stages = lf_stages_of(all, a.count), part = z % a.parts;
  all.matrix = z / a.parts;
  lf_tile<C, false, false> tile;
  tile.run(t, shared, all, (int)((long)stages * part / a.parts), (int)((long)stages * (part + 1) / a.parts), m0, n0, a.m, a.n, lf_no_drop());
  long size = (long)a.m * a.n;
  bool whole = a.parts == 1; // then z is the matrix
  lf_mixed types = {whole ? a.stored : 0};
  tile.write(t, shared, types, whole ? (device void*)out : partial, whole && LF_BOUND(a, 2), bias, whole && LF_BOUND(a, 3), addend, z * size, m0, n0, a.m, a.n);
}

#define LF_GEMM_MMA(name, C)                                                                                                \
  LF_KERNEL(128) name(device uchar* out [[buffer(0)]], device float* partial [[buffer(1)]],                                  \
                      device const float* bias [[buffer(2)]], device const uchar* addend [[buffer(3)]],                      \
                      LF_PRODUCTS(4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19),                                \
                      LF_SCALES(20, 21, 22), constant gemm_mma_args& a [[buffer(23)]], LF_THREAD) {                         \
    LF_BEGIN;                                                                                                               \
    threadgroup uint4 shared[C::words];                                                                                     \
    lf_products all = LF_PRODUCTS_OF(a);                                                                                    \
    lf_gemm_mma<C>(t, shared, out, partial, bias, addend, a, all);                                                          \
  }
LF_GEMM_MMA(gemm_mma_64, lf_cells_bf16)
LF_GEMM_MMA(gemm_mma_f32_64, lf_cells_f32)

// Adds up the parts of gemm_mma, gemm_f32 and lora_down: out = addend + bias + the sum
// over s of partial[z, s, i, j], in the order of s.
//
// Grid: x 256 elements of [m, n], y matrices.
// Traffic: parts reads and one write of the output.
struct gemm_sum_args {
  LF_ARGS;
  long size;
  int n, batch, parts, stored;
};

LF_KERNEL(256) gemm_sum(device uchar* out [[buffer(0)]], device const float* partial [[buffer(1)]], device const float* bias [[buffer(2)]],
                        device const uchar* addend [[buffer(3)]], constant gemm_sum_args& a [[buffer(4)]], LF_THREAD) {
  LF_BEGIN;
  long i = (long)t.group.x * 256 + t.index;
  lf_mixed types = {a.stored};
  if (i >= a.size) return;
  for (int z = (int)t.group.y; z < a.batch; z += (int)t.groups.y) {
    device const float* p = partial + (long)z * a.parts * a.size + i;
    float sum = 0.0f;
    for (int s = 0; s < a.parts; s++) sum += p[s * a.size];
    if (LF_BOUND(a, 2)) sum += bias[i % a.n];
    if (LF_BOUND(a, 3)) sum += lf_load(types, 1, addend, z * a.size + i);
    lf_store(types, 0, out, z * a.size + i, sum);
  }
}
