// A convolution of images, channels last, as one matrix product (implicit GEMM):
//
//   out[b, y, z, o] = bias[o] + sum over ky, kx, c of x[b, y·stride+ky−top, z·stride+kx−left, c] · w[o, ky, kx, c]
//
// The first factor has a row for each pixel of the result and k = kh·kw·c columns. It is
// gathered from x as its tiles are written to threadgroup memory, zero outside of the
// image, and lies nowhere else. Sums in float32, operands rounded to bfloat16
// (conv2d_mma_64) or exact (conv2d_mma_f32_64).
//
// Layout: x [b, height, width, c], w [n, kh, kw, c] f32, f16 or bf16, bias [n] or null,
//   out [m, n] with m = b·out_height·out_width; out and x in f32 or bf16, by bits 0 and 1 of
//   stored.
// Grid: tiles of the output of 64 by 64 in the order of lf_tile_order; 128 threads.
// Traffic: x once for each 64 columns of the output, the windows of neighbouring pixels
//   share all but one of kw of theirs; w m/64 times, from the cache.
// Reference: for i, o { s = 0; for l { s += A[i, l] w[o, l] }; out[i, o] = bias[o] + s }, where
//            A[i, l] is the channel l%c of the pixel l/c of window i, or zero
#include "image.h"
#include "tile.h"

// The two chunks of a tile of the image that a thread copies, as lf_stager's.
template <class C>
struct lf_gatherer {
  lf_image image;
  lf_window window[2];
  bool some[2];
  float4 lo[2], hi[2];

  void set(lf_thread t, lf_image of, int first, int rows) {
    image = of;
    for (int q = 0; q < 2; q++) {
      int r = first + (int)t.index / 4 + q * LF_TILE_THREADS / 4;
      some[q] = r < rows;
      window[q] = image.at(some[q] ? r : 0);
    }
  }

  void fetch(uint thread_index, lf_operand o, int k0) {
    int k = k0 + (int)thread_index % 4 * 8;
    for (int q = 0; q < 2; q++) {
      lo[q] = image.four(window[q], k, some[q] ? o.k : 0);
      hi[q] = image.four(window[q], k + 4, some[q] ? o.k : 0);
    }
  }

  void store(uint thread_index, lf_operand, int, threadgroup typename C::cell* tile, lf_drop) const {
    for (int q = 0; q < 2; q++) {
      int e = (int)thread_index + q * LF_TILE_THREADS;
      C::put(tile + e / 4 * C::along + e % 4 * 8, lo[q], hi[q]);
    }
  }
};

struct conv2d_args {
  LF_ARGS;
  int m, n, k;
  uint flags;
  int tiles_m, tiles_n, height, width, c, out_height, out_width, kernel_width, stride, top, left, stored;
};

#define LF_CONV2D(name, C)                                                                                                      \
  LF_KERNEL(128) name(device uchar* out [[buffer(0)]], device const float* bias [[buffer(1)]],                                  \
                      device const uchar* x [[buffer(2)]], device const uchar* w [[buffer(3)]],                                 \
                      constant conv2d_args& a [[buffer(4)]], LF_THREAD) {                                                       \
    LF_BEGIN;                                                                                                                   \
    threadgroup uint4 shared[C::words];                                                                                         \
    lf_image image = {x, {a.stored}, a.height, a.width, a.c, a.out_height, a.out_width, a.kernel_width, a.stride, a.top, a.left,            \
                      LF_FOURS(a, a.c, 4u)};                                                                                    \
    lf_products all = lf_one_product(x, w, a.k, a.flags);                                                  \
    int ti, tj;                                                                                                                 \
    lf_tile_order((int)t.group.x, a.tiles_m, a.tiles_n, ti, tj);                                                                \
    lf_gatherer<C> gatherer;                                                                                                    \
    gatherer.set(t, image, ti * LF_TILE, a.m);                                                                                  \
    lf_tile<C, false, false> tile;                                                                                              \
    tile.run(gatherer, t, shared, all, 0, (a.k + LF_TILE_K - 1) / LF_TILE_K, ti * LF_TILE, tj * LF_TILE, a.m, a.n, lf_no_drop()); \
    tile.write(t, shared, image.types, out, LF_BOUND(a, 1), bias, false, bias, 0, ti * LF_TILE, tj * LF_TILE, a.m, a.n);                \
  }
LF_CONV2D(conv2d_mma_64, lf_cells_bf16)
LF_CONV2D(conv2d_mma_f32_64, lf_cells_f32)
