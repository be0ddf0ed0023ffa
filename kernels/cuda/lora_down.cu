// The rank-sized half of a LoRA linear, h = dropout(x) Aᵀ, and its gradient,
// dA = dhᵀ dropout(x), with the mask drawn again in each: dropped inputs and masks
// never lie in memory.
//
// Layout: row major. x [n, width] f32 or bf16, A [rank, width] and dh [n, rank] f32, f16
//   or bf16. Element i of x is kept if word i of the random stream is at least threshold
//   (package internal/philox: bit for bit), and multiplied by scale = 1/(1-p).
//   Up to three products of one x, such as those of q, k and v, have operands of the same
//   sizes and a stream of random words each; the pointers of the others are not read.
// Grid: x as gemm_mma, tiles for each part of the long axis; y products. Partial sums
//   [products, parts, m, n] are for lora_down_sum. *_mma: 128 threads, 64 by 64, operands rounded
//   to bfloat16; *_f32_R: 256 threads, 64 rows of x (or columns, of dA) by R of rank.
// Traffic: x once for each 64 of the rank, and ten rounds of Philox for 16 bytes of
//   it: 20 µs beside 34 for reading 8192 by 4096 at 4 TB/s. n parts of a short and wide
//   output keep enough reads under way.
// Registers: 121 (*_mma) and at most 80 (*_f32), none spilled.
// Reference: for i, r { h[i, r] = sum over l of drop(x)[i, l] A[r, l] }
//            for r, l { dA[r, l] = sum over i of dh[i, r] drop(x)[i, l] }
#include "mma_tile.cuh"
#include "parts.cuh"

// The arguments of up to three products of one kind.
#define LF_THREE(type, name) type name, type name##1, type name##2
// That of the product that a block computes.
#define LF_OWN(name) (blockIdx.y == 0 ? name : blockIdx.y == 1 ? name##1 : name##2)

#define LF_DOWN_PARAMS \
  LF_THREE(float*, out), float *partial, LF_THREE(const void*, a), LF_THREE(const void*, b), int m, int n, int k, LF_THREE(unsigned, flags), \
      int tiles_m, int tiles_n, int parts, const unsigned *key, LF_THREE(unsigned, stream), unsigned threshold, float scale
#define LF_DOWN_ARGS                                                                                                                  \
  LF_OWN(out), partial + (long long)blockIdx.y * parts * m * n, LF_OWN(a), LF_OWN(b), m, n, k, LF_OWN(flags), tiles_m, tiles_n, parts, \
      lf_open_drop(key, LF_OWN(stream), threshold, scale)

typedef lf_tile<64, 64, 32, 32, 8, true, false> lf_down_tile;
typedef lf_tile<64, 64, 32, 32, 8, false, true> lf_down_grad_tile;

template <class T>
LF_DEVICE void lf_down_mma(unsigned char* shared, float* out, float* partial, const void* a, const void* b, int m, int n, int k,
                           unsigned flags, int tiles_m, int tiles_n, int parts, const lf_drop& drop) {
  float* books = (float*)(shared + LF_STAGES * T::stage_bytes);
  lf_open_books(books);
  __syncthreads();
  int tiles = tiles_m * tiles_n, part = blockIdx.x / tiles, ti, tj;
  lf_tile_order(blockIdx.x % tiles, tiles_m, tiles_n, &ti, &tj);
  lf_products all = {};
  all.p[0] = {(const unsigned char*)a, (const unsigned char*)b, k, flags, 1.0f};
  T tile;
  tile.run(shared, books, all, lf_part(k, LF_TILE_K, part, parts), lf_part(k, LF_TILE_K, part + 1, parts), ti * 64, tj * 64, m, n, drop);
  tile.write(parts == 1 ? out : partial + (long long)part * m * n, 0, 0, {0}, ti * 64, tj * 64, m, n);
}

#define LF_DOWN_MMA(name, tile)                                     \
  extern "C" __global__ void __launch_bounds__(128, 4) name(LF_DOWN_PARAMS) { \
    LF_DYN_SHARED(unsigned char, shared);                           \
    lf_down_mma<tile>(shared, LF_DOWN_ARGS);                        \
  }                                                                 \
  LF_KERNEL(name)
LF_DOWN_MMA(lora_down_mma, lf_down_tile);
LF_DOWN_MMA(lora_down_grad_mma, lf_down_grad_tile);

#define LF_K 32 // elements of the k axis in shared memory

// Four elements of a row of the operand, with dropout if DROP; zeros behind its end.
template <bool DROP>
LF_DEVICE float4 lf_four(const unsigned char* p, int kind, long long at, int left, const float* books, const lf_drop& drop) {
  if (left <= 0) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float4 v;
  if (kind == LF_KIND_F32 && left >= 4 && ((size_t)(p + 4 * at) & 15) == 0) {
    v = *(const float4*)(p + 4 * at);
  } else {
    v.x = lf_element(kind, p, at, books);
    v.y = left > 1 ? lf_element(kind, p, at + 1, books) : 0.0f;
    v.z = left > 2 ? lf_element(kind, p, at + 2, books) : 0.0f;
    v.w = left > 3 ? lf_element(kind, p, at + 3, books) : 0.0f;
  }
  return DROP ? lf_dropped(drop, at, v) : v;
}

// Fills tile[l][i] with rows first+i of op(M) at k0+l, R of them.
template <int R, bool ALONG_K, bool DROP>
LF_DEVICE void lf_fill(float (*tile)[R + 4], const unsigned char* p, int kind, int first, int rows, int k0, int k, const float* books,
                       const lf_drop& drop) {
#pragma unroll 1
  for (int e = threadIdx.x; e < R * LF_K / 4; e += 256) {
    if (ALONG_K) {
      int i = e / (LF_K / 4), l = e % (LF_K / 4) * 4;
      float4 v = lf_four<DROP>(p, kind, (long long)(first + i) * k + k0 + l, first + i < rows ? k - k0 - l : 0, books, drop);
      tile[l][i] = v.x, tile[l + 1][i] = v.y, tile[l + 2][i] = v.z, tile[l + 3][i] = v.w;
    } else {
      int l = e / (R / 4), i = e % (R / 4) * 4;
      *(float4*)&tile[l][i] = lf_four<DROP>(p, kind, (long long)(k0 + l) * rows + first + i, k0 + l < k ? rows - first - i : 0, books, drop);
    }
  }
}

// out = op(A) op(B), both [k, …] if GRAD, with dropout of B, else both along k, with
// dropout of A. A thread has BM/16 by BN/16 of the tile.
template <int BM, int BN, bool GRAD>
LF_DEVICE void lf_down_f32(float (*sa)[BM + 4], float (*sb)[BN + 4], float* out, float* partial, const void* a, const void* b, int m, int n,
                           int k, unsigned flags, int tiles_m, int tiles_n, int parts, const lf_drop& drop) {
  constexpr int tm = BM / 16, tn = BN / 16;
  int tiles = tiles_m * tiles_n, part = blockIdx.x / tiles, ti, tj;
  lf_tile_order(blockIdx.x % tiles, tiles_m, tiles_n, &ti, &tj);
  int m0 = ti * BM, n0 = tj * BN, ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  int end = lf_part(k, LF_K, part + 1, parts);
  float sum[tm][tn] = {};
  for (int s = lf_part(k, LF_K, part, parts); s < end; s++) {
    __syncthreads(); // the tiles before have been read
    lf_fill<BM, !GRAD, !GRAD>(sa, (const unsigned char*)a, LF_KIND(flags), m0, m, s * LF_K, k, 0, drop);
    lf_fill<BN, !GRAD, GRAD>(sb, (const unsigned char*)b, LF_KIND(flags >> 8), n0, n, s * LF_K, k, 0, drop);
    __syncthreads();
#pragma unroll 8
    for (int l = 0; l < LF_K; l++) {
      float x[tm], y[tn];
#pragma unroll
      for (int i = 0; i < tm; i++) x[i] = sa[l][ty + 16 * i];
#pragma unroll
      for (int j = 0; j < tn; j++) y[j] = sb[l][tx + 16 * j];
#pragma unroll
      for (int i = 0; i < tm; i++)
#pragma unroll
        for (int j = 0; j < tn; j++) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
    }
  }
  float* to = parts == 1 ? out : partial + (long long)part * m * n;
#pragma unroll
  for (int i = 0; i < tm; i++)
#pragma unroll
    for (int j = 0; j < tn; j++) {
      int row = m0 + ty + 16 * i, col = n0 + tx + 16 * j;
      if (row < m && col < n) to[(long long)row * n + col] = sum[i][j];
    }
}

#define LF_DOWN_F32(name, BM, BN, GRAD)                                \
  extern "C" __global__ void __launch_bounds__(256, 3) name(LF_DOWN_PARAMS) { \
    LF_SHARED(float, sa, [LF_K][BM + 4]);                              \
    LF_SHARED(float, sb, [LF_K][BN + 4]);                              \
    lf_down_f32<BM, BN, GRAD>(sa, sb, LF_DOWN_ARGS);                   \
  }                                                                    \
  LF_KERNEL(name)
LF_DOWN_F32(lora_down_f32_16, 64, 16, false);
LF_DOWN_F32(lora_down_f32_64, 64, 64, false);
LF_DOWN_F32(lora_down_grad_f32_16, 16, 64, true);
LF_DOWN_F32(lora_down_grad_f32_64, 64, 64, true);

// Adds up the parts of the kernels above: out = addend + the sum over s of
// partial[product, s, i], in the order of s. The addend may be absent.
//
// Grid: x 256 elements of [m, n], y products.
// Traffic: parts reads, one of the addend and one write of the output.
extern "C" __global__ void __launch_bounds__(256)
    lora_down_sum(long long size, int parts, LF_THREE(float*, out), const float* partial, LF_THREE(const float*, addend)) {
  long long i = (long long)blockIdx.x * 256 + threadIdx.x;
  if (i >= size) return;
  const float *p = partial + (long long)blockIdx.y * parts * size + i, *more = LF_OWN(addend);
  float sum = 0.0f;
#pragma unroll 4
  for (int s = 0; s < parts; s++) sum += p[s * size];
  LF_OWN(out)[i] = more ? sum + more[i] : sum;
}
LF_KERNEL(lora_down_sum);

#ifdef LF_RACE
#include "../sim/test/race.h"

#define LF_SAME(x) x, x, x // of products that share it
#define LF_FIRST(x) x, nullptr, nullptr

LF_RACE_CASE(lora_down) {
  auto x = lf_race_noise<float>(70 * 100), a = lf_race_noise<float>(5 * 100), dh = lf_race_noise<float>(70 * 5);
  auto key = lf_race_noise<unsigned>(3);
  std::vector<float> h(70 * 5), g(70 * 5), da(5 * 100), db(5 * 100), partial(2 * 2 * (70 * 5 + 5 * 100));
  unsigned along = (LF_WIDE | 1 << 5) * 0x101;
  int shared = LF_STAGES * lf_down_tile::stage_bytes + 4 * LF_BOOKS;
  lf_race_launch(lora_down_mma, {4, 2}, {128}, shared, h.data(), g.data(), nullptr, partial.data(), LF_SAME(x.data()), LF_SAME(a.data()), 70, 5, 100,
                 LF_SAME(along), 2, 1, 2, key.data(), 3, 4, 0, 1u << 31, 2.0f);
  lf_race_launch(lora_down_sum, {2, 2}, {256}, 0, 70 * 5, 2, h.data(), g.data(), nullptr, partial.data(), h.data(), nullptr, nullptr);
  lf_race_launch(lora_down_grad_mma, {4, 2}, {128}, shared, da.data(), db.data(), nullptr, partial.data(), LF_SAME(dh.data()), LF_SAME(x.data()), 5, 100,
                 70, LF_SAME(LF_WIDE << 8), 1, 2, 2, key.data(), 3, 4, 0, 1u << 31, 2.0f);
}

LF_RACE_CASE(lora_down_f32) {
  auto x = lf_race_noise<float>(70 * 100), a = lf_race_noise<float>(5 * 100), dh = lf_race_noise<float>(70 * 5);
  auto key = lf_race_noise<unsigned>(3);
  std::vector<float> h(70 * 5), g(70 * 5), da(5 * 100), partial(2 * 2 * 70 * 5);
  lf_race_launch(lora_down_f32_16, {4, 2}, {256}, 0, h.data(), g.data(), nullptr, partial.data(), LF_SAME(x.data()), LF_SAME(a.data()), 70, 5, 100, LF_SAME(0),
                 2, 1, 2, key.data(), 3, 4, 0, 1u << 31, 2.0f);
  lf_race_launch(lora_down_grad_f32_64, {2}, {256}, 0, LF_FIRST(da.data()), nullptr, LF_FIRST(dh.data()), LF_FIRST(x.data()), 5, 100, 70, LF_SAME(0), 1, 2, 1,
                 key.data(), 3, 0, 0, 1u << 31, 2.0f);
}
#endif
