// A sum of up to eight matrix products on the tensor cores, with their k axes
// concatenated:
//
//   out = addend + bias + sum over p of alpha_p · op(A_p) · op(B_p)
//
// operands rounded to bfloat16, sums in float32; the output and the addend may be stored
// as bfloat16. A linear with its adapter is two
// products, [x | h] · [W | B]ᵀ with alpha 1 and s, and so is its backward pass,
// [dy | dh] · [W ; A]: the adapter is a longer k, without a pass over y or dx.
//
// Layout: row major. A_p is [m, k], or [k, m], of f32, f16 or bf16; B_p is [k, n],
//   or [n, k], of these, quantised or in 8-bit floats, whose rows may have scales; flags
//   say which and how it is read (products.cuh). bias [n] and addend [m, n] may be null, and the addend may be out.
//   Bits of stored: out is bf16, addend is; f32 otherwise.
//   A batch has one product, whose matrices are step_a and step_b bytes apart.
// Grid: tiles of the output in the order of lf_tile_order, for each part of the k
//   axis, for each matrix of a batch. A part writes its sums to partial [batch, parts, m, n],
//   and gemm_sum adds them up in their order: no atomics, the same bytes every run.
//   gemm_mma_128: 256 threads, tiles of 128 by 128, 48 KiB of shared memory
//   and 128 bytes;
//   gemm_mma_64: 128 threads, tiles of 64 by 64, 24 KiB, for small or thin outputs.
// Traffic: A is read n/128 times and B m/128 times, of which L2 serves all but about
//   one in four (a wave of tiles is eight tiles high); the output once. A stage of
//   128 by 128 by 32 is 512 cycles of mma.sync on an A100 for 24 KiB from L2 with f32
//   A and bf16 B: 48 bytes a cycle of about 64 that an SM gets.
// Registers: 128 and 117 on sm_80 and sm_90a, none spilled: two blocks of the large
//   tile, or four of the small one, on a multiprocessor.
// Reference: for i, j { s = 0; for p { t = 0; for l { t += A_p[i, l] B_p[l, j] }
//                       s += alpha_p t }; out[i, j] = addend[i, j] + bias[j] + s }
#include "mma_tile.cuh"

template <class T>
LF_DEVICE void lf_gemm_mma(unsigned char* shared, void* out, float* partial, const float* bias, const void* addend, int m,
                           int n, int tiles_m, int tiles_n, int size, int parts, int stored, int count,
                           lf_products& all) {
  float* books = (float*)(shared + LF_STAGES * T::stage_bytes);
  lf_open_books(books);
  __syncthreads();
  int tiles = tiles_m * tiles_n, z = blockIdx.x / tiles, ti, tj;
  lf_tile_order(blockIdx.x % tiles, tiles_m, tiles_n, &ti, &tj);
  int m0 = ti * size, n0 = tj * size, stages = lf_stages_of(all, count), part = z % parts;
  all.matrix = z / parts;
  lf_drop none = {};
  T tile;
  tile.run(shared, books, all, (int)((long long)stages * part / parts), (int)((long long)stages * (part + 1) / parts), m0, n0, m, n, none);
  if (parts > 1) {
    tile.write(partial + (long long)z * m * n, 0, 0, {0}, m0, n0, m, n);
    return;
  }
  lf_mixed types = {stored};
  long long first = (long long)all.matrix * m * n;
  tile.write(lf_number_at(types, LF_OUT, out, first), bias, addend ? lf_number_at(types, LF_ADDEND, addend, first) : 0, types, m0, n0, m, n);
}

typedef lf_tile<128, 128, 64, 32, 4, false, false> lf_tile_128;
typedef lf_tile<64, 64, 32, 32, 8, false, false> lf_tile_64;

#define LF_GEMM_MMA(size, resident)                                                                                                     \
  extern "C" __global__ void __launch_bounds__(lf_tile_##size::threads, resident)                                                      \
      gemm_mma_##size(void* out, float* partial, const float* bias, const void* addend, int m, int n, int tiles_m, int tiles_n,         \
                      int parts, int stored, int count, LF_PRODUCTS, LF_SCALES) {                                                       \
    LF_DYN_SHARED(unsigned char, shared);                                                                                               \
    lf_products all = LF_PRODUCTS_OF;                                                                                                   \
    all.scale0 = scale0, all.scale1 = scale1, all.scale2 = scale2;                                                                      \
    lf_gemm_mma<lf_tile_##size>(shared, out, partial, bias, addend, m, n, tiles_m, tiles_n, size, parts, stored, count, all);          \
  }                                                                                                                                     \
  LF_KERNEL(gemm_mma_##size)
LF_GEMM_MMA(128, 2);
LF_GEMM_MMA(64, 4);

// Adds up the parts of gemm_mma: out = addend + bias + the sum over s
// of partial[z, s, i, j], in the order of s.
//
// Grid: x 256 elements of [m, n], four threads' worth of loads apart, y matrices.
// Traffic: parts reads and one write of the output.
extern "C" __global__ void __launch_bounds__(256)
    gemm_sum(long long size, int n, int batch, int parts, int stored, void* out, const float* partial, const float* bias, const void* addend) {
  long long i = (long long)blockIdx.x * 256 + threadIdx.x;
  lf_mixed types = {stored};
  if (i >= size) return;
  for (int z = blockIdx.y; z < batch; z += gridDim.y) {
    const float* p = partial + (long long)z * parts * size + i;
    float sum = 0.0f;
#pragma unroll 4
    for (int s = 0; s < parts; s++) sum += p[s * size];
    if (bias) sum += bias[i % n];
    if (addend) sum += lf_load(types, LF_ADDEND, addend, z * size + i);
    lf_store(types, LF_OUT, out, z * size + i, sum);
  }
}
LF_KERNEL(gemm_sum);

#ifdef LF_RACE
#include "../sim/test/race.h"
#define LF_NO_PRODUCT nullptr, nullptr, 0, 0u, 0.0f
#define LF_NO_PRODUCTS LF_NO_PRODUCT, LF_NO_PRODUCT, LF_NO_PRODUCT, LF_NO_PRODUCT, LF_NO_PRODUCT, LF_NO_PRODUCT
#define LF_BYTES(v) (const unsigned char*)v.data()

// Two tiles in two parts each: a copied and a widened operand, then an adapter's
// product, and the beginning of the sum of the parts.
LF_RACE_CASE(gemm_mma_parts) {
  auto x = lf_race_noise<float>(70 * 104), h = lf_race_noise<float>(70 * 6), b = lf_race_noise<float>(40 * 6);
  auto w = lf_race_noise<lf_bf16>(40 * 104);
  std::vector<float> out(70 * 40), partial(2 * 70 * 40);
  unsigned along = 1 << 5, wide = LF_WIDE | along, copied = LF_COPY | LF_KIND_BF16 << 2 | along;
  lf_race_launch(gemm_mma_64, {4}, {128}, LF_STAGES * lf_tile_64::stage_bytes + 4 * LF_BOOKS, out.data(), partial.data(), nullptr, nullptr, 70,
                 40, 2, 1, 2, 0, 2, 0, 0, LF_BYTES(x), LF_BYTES(w), 104, wide | copied << 8, 1.0f, LF_BYTES(h), LF_BYTES(b), 6,
                 along | along << 8, 0.5f, LF_NO_PRODUCTS, nullptr, nullptr, nullptr);
  lf_race_launch(gemm_sum, {4}, {256}, 0, 70 * 40, 40, 1, 2, 0, out.data(), partial.data(), nullptr, out.data());
}

// The second product has scaled 8-bit floats.
LF_RACE_CASE(gemm_mma_large) {
  auto x = lf_race_noise<float>(104 * 72), scale = lf_race_noise<float>(104);
  auto w = lf_race_noise<lf_bf16>(104 * 64);
  auto v = lf_race_noise<unsigned char>(104 * 64);
  std::vector<float> out(72 * 64);
  lf_race_launch(gemm_mma_128, {1}, {256}, LF_STAGES * lf_tile_128::stage_bytes + 4 * LF_BOOKS, out.data(), nullptr, nullptr, nullptr, 72, 64, 1,
                 1, 1, 0, 2, 0, 0, LF_BYTES(x), LF_BYTES(w), 104, LF_WIDE | (LF_COPY | LF_KIND_BF16 << 2) << 8, 1.0f, LF_BYTES(x), LF_BYTES(v), 104,
                 LF_WIDE | (LF_WIDE | LF_KIND_F8 << 2 | 1 << 6) << 8, 1.0f, LF_NO_PRODUCTS, scale.data(), nullptr, nullptr);
}
#endif
