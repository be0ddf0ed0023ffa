// A convolution of images, channels last, as one matrix product (implicit GEMM):
//
//   out[b, y, z, o] = bias[o] + sum over ky, kx, c of x[b, y·stride+ky−top, z·stride+kx−left, c] · w[o, ky, kx, c]
//
// The first factor has a row for each pixel of the result and k = kh·kw·c columns. It is
// gathered from x as its tiles are written to shared memory, zero outside of the image,
// and lies nowhere else.
//
// Layout: x [b, height, width, c], w [n, kh, kw, c] f32, f16 or bf16, bias [n] or null,
//   out [m, n] with m = b·out_height·out_width; out and x in f32 or bf16, by bits 0 and 1 of
//   stored.
// Grid: tiles of the output in the order of lf_tile_order. *_mma_128: 256 threads, tiles of
//   128 by 128; *_mma_64: 128 threads, 64 by 64; operands rounded to bfloat16, sums in
//   float32. *_f32: 256 threads, 64 by 64, exactly.
// Traffic: x once for each 128 (64) columns of the output: the windows of neighbouring
//   pixels share all but one of kw of theirs, which L1 and L2 serve; w m/128 times from L2.
// Registers: 162 (128), 128 (64) and 64 (f32) on sm_80, 160, 128 and 70 on sm_90a, none spilled.
// Reference: for i, o { s = 0; for l { s += A[i, l] w[o, l] }; out[i, o] = bias[o] + s }, where
//            A[i, l] is the channel l%c of the pixel l/c of window i, or zero
#include "image.h"
#include "mma_tile.cuh"

// The chunks of a tile of the image that this thread copies, as lf_stager's: bf16 of eight
// channels by cp.async.
template <int R, int THREADS>
struct lf_gatherer {
  static constexpr int count = R * 4 / THREADS;
  lf_image image;
  lf_window window[count];
  bool some[count], eights;
  float4 w[count][2];

  LF_DEVICE void set(const lf_image& of, int first, int rows) {
    image = of;
    eights = of.types.bf16(1) && (of.c & 7) == 0 && ((size_t)of.x & 15) == 0;
#pragma unroll
    for (int q = 0; q < count; q++) {
      int r = first + (int)threadIdx.x / 4 + q * (THREADS / 4);
      some[q] = r < rows;
      window[q] = image.at(some[q] ? r : 0);
    }
  }

  LF_DEVICE void fetch(const lf_operand& o, int k0, unsigned char* tile, const float*, const lf_drop&) {
    int k = k0 + (int)threadIdx.x % 4 * 8;
    unsigned char* to = lf_stager<R, THREADS, 8, false>::slot(o, tile);
#pragma unroll
    for (int q = 0; q < count; q++) {
      if (eights) {
        long i = some[q] && k < o.k ? image.find(window[q], k) : -1;
        lf_cp_async16(to + 16 * THREADS * q, (const lf_bf16*)image.x + (i < 0 ? 0 : i), i >= 0);
        continue;
      }
#pragma unroll
      for (int h = 0; h < 2; h++) w[q][h] = image.four(window[q], k + 4 * h, some[q] ? o.k : 0);
    }
  }

  LF_DEVICE void store(const lf_operand& o, int, unsigned char* tile, const float*, const lf_drop&) const {
    if (eights) return;
    unsigned char* to = lf_stager<R, THREADS, 8, false>::slot(o, tile);
#pragma unroll
    for (int q = 0; q < count; q++) *(uint4*)(to + 16 * THREADS * q) = lf_pack8(w[q][0], w[q][1]);
  }
};

template <class T, int SIZE>
LF_DEVICE void lf_conv2d(unsigned char* shared, void* out, const float* bias, const lf_image& image, const void* w, int m, int n, int k,
                         unsigned flags, int tiles_m, int tiles_n) {
  float* books = (float*)(shared + LF_STAGES * T::stage_bytes);
  int ti, tj;
  lf_tile_order(blockIdx.x, tiles_m, tiles_n, &ti, &tj);
  lf_products all = {};
  all.p[0] = {(const unsigned char*)image.x, (const unsigned char*)w, k, flags, 1.0f};
  lf_drop none = {};
  lf_gatherer<SIZE, T::threads> a;
  a.set(image, ti * SIZE, m);
  T tile;
  tile.run(a, shared, books, all, 0, (k + LF_TILE_K - 1) / LF_TILE_K, ti * SIZE, tj * SIZE, m, n, none);
  tile.write(out, bias, 0, image.types, ti * SIZE, tj * SIZE, m, n);
}

typedef lf_tile<128, 128, 64, 32, 4, false, false> lf_tile_128;
typedef lf_tile<64, 64, 32, 32, 8, false, false> lf_tile_64;

#define LF_IMAGE_PARAMS int height, int width, int c, int out_height, int out_width, int kernel_width, int stride, int top, int left, int stored
#define LF_IMAGE {x, {stored}, height, width, c, out_height, out_width, kernel_width, stride, top, left, (c & 3) == 0 && ((size_t)x & 15) == 0}

#define LF_CONV2D(size, resident)                                                                                                        \
  extern "C" __global__ void __launch_bounds__(lf_tile_##size::threads, resident)                                                        \
      conv2d_mma_##size(void* out, const float* bias, const void* x, const void* w, int m, int n, int k, unsigned flags, int tiles_m,     \
                        int tiles_n, LF_IMAGE_PARAMS) {                                                                                  \
    LF_DYN_SHARED(unsigned char, shared);                                                                                                \
    lf_image image = LF_IMAGE;                                                                                                           \
    lf_conv2d<lf_tile_##size, size>(shared, out, bias, image, w, m, n, k, flags, tiles_m, tiles_n);                                      \
  }                                                                                                                                      \
  LF_KERNEL(conv2d_mma_##size)
LF_CONV2D(128, 1);
LF_CONV2D(64, 3);

#define LF_K 32 // of the k axis in shared memory

extern "C" __global__ void __launch_bounds__(256, 3)
    conv2d_f32(void* out, const float* bias, const void* x, const void* w, int m, int n, int k, unsigned flags, int tiles_m, int tiles_n,
               LF_IMAGE_PARAMS) {
  LF_SHARED(float, sa, [LF_K][68]);
  LF_SHARED(float, sb, [LF_K][68]);
  lf_image image = LF_IMAGE;
  int ti, tj, e = threadIdx.x, ty = e / 16, tx = e % 16, kind = LF_KIND(flags >> 8);
  lf_tile_order(blockIdx.x, tiles_m, tiles_n, &ti, &tj);
  int m0 = ti * 64, n0 = tj * 64, row = e / 8, l0 = e % 8 * 4; // rows row and row + 32, four of the k axis
  lf_window window[2] = {image.at(min(m0 + row, m - 1)), image.at(min(m0 + row + 32, m - 1))};
  float sum[4][4] = {};
  for (int k0 = 0; k0 < k; k0 += LF_K) {
    __syncthreads(); // the tiles before have been read
#pragma unroll
    for (int q = 0; q < 2; q++) {
      float4 v = image.four(window[q], k0 + l0, k);
      int i = row + 32 * q, o = n0 + i;
      sa[l0][i] = v.x, sa[l0 + 1][i] = v.y, sa[l0 + 2][i] = v.z, sa[l0 + 3][i] = v.w;
#pragma unroll
      for (int j = 0; j < 4; j++)
        sb[l0 + j][i] = o < n && k0 + l0 + j < k ? lf_element(kind, (const unsigned char*)w, (long long)o * k + k0 + l0 + j, 0) : 0.0f;
    }
    __syncthreads();
#pragma unroll 8
    for (int l = 0; l < LF_K; l++) {
      float u[4], v[4];
#pragma unroll
      for (int i = 0; i < 4; i++) u[i] = sa[l][ty + 16 * i], v[i] = sb[l][tx + 16 * i];
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sum[i][j] = fmaf(u[i], v[j], sum[i][j]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      int r = m0 + ty + 16 * i, o = n0 + tx + 16 * j;
      if (r < m && o < n) lf_store(image.types, 0, out, (long)r * n + o, sum[i][j] + (bias ? bias[o] : 0.0f));
    }
}
LF_KERNEL(conv2d_f32);

#ifdef LF_RACE
#include "../sim/test/race.h"

LF_RACE_CASE(conv2d) {
  auto x = lf_race_noise<float>(2 * 5 * 7 * 8), bias = lf_race_noise<float>(9), w = lf_race_noise<float>(9 * 72);
  std::vector<float> out(2 * 5 * 7 * 9);
  unsigned flags = 1 << 5 | (LF_WIDE | 1 << 5) << 8;
  int shared = LF_STAGES * lf_tile_64::stage_bytes + 4 * LF_BOOKS;
  for (int stored : {0, 3}) {
    lf_race_launch(conv2d_mma_64, {2}, {128}, shared, out.data(), bias.data(), x.data(), w.data(), 70, 9, 72, flags, 2, 1, 5, 7, 8, 5, 7, 3, 1, 1, 1, stored);
    lf_race_launch(conv2d_mma_128, {1}, {256}, LF_STAGES * lf_tile_128::stage_bytes + 4 * LF_BOOKS, out.data(), bias.data(), x.data(), w.data(), 70, 9, 72, flags,
                   1, 1, 5, 7, 8, 5, 7, 3, 1, 1, 1, stored);
    lf_race_launch(conv2d_f32, {2}, {256}, 0, out.data(), nullptr, x.data(), w.data(), 70, 9, 72, flags, 2, 1, 5, 7, 8, 5, 7, 3, 1, 1, 1, stored);
  }
}
#endif
