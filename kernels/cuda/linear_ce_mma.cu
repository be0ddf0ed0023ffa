// The products of linear_ce.cu by the tensor cores, operands rounded to bfloat16
// and sums in float32:
//
//   logits: out[i, j] = Σ_l x[i, l] W[j, l]                       (lce_logits_mma)
//   back:   part[s, i, j] = Σ_l d[i, l] W[l, j], l in part s      (lce_back_mma)
//
// Layout: row major; x and d [per, k] (f32 or bf16), of which only the rows
//   before count − first are there; W [n, k] or [k, n] of any type of a weight. flags say
//   how both are read (products.cuh).
// Grid: 256 threads and 48 KiB and 128 bytes of shared memory for a tile of 128 by
//   128: x runs over the tiles, rows within columns, so that blocks that run at one
//   time share columns of W; y over the parts of k, which lce_scatter adds up in
//   their order.
// Traffic: W once from memory for all rows, which are few: tiles of the same columns
//   run together; x and d n/128 times, mostly from L2; the output once.
// Registers: 126 to 128, none spilled: two blocks on a multiprocessor.
// Reference: for i, j { s = 0; for l { s += bf16(x[i, l]) bf16(W[j, l]) }; out[i, j] = s }
#include "mma_tile.cuh"
#include "parts.cuh"

typedef lf_tile<128, 128, 64, 32, 4, false, false> lf_lce_tile;

// The tile of this block, of stages first to last of the k axis.
LF_DEVICE void lf_lce_mma(unsigned char* shared, float* out, const unsigned char* a, const unsigned char* w, unsigned flags, int m, int n,
                          int k, int tiles_m, int first, int last) {
  int m0 = blockIdx.x % tiles_m * 128, n0 = blockIdx.x / tiles_m * 128;
  if (m0 >= m) return;
  float* books = (float*)(shared + LF_STAGES * lf_lce_tile::stage_bytes);
  lf_open_books(books);
  __syncthreads();
  lf_products all = {};
  all.p[0] = {a, w, k, flags, 1.0f};
  lf_drop none = {};
  lf_lce_tile tile;
  tile.run(shared, books, all, first, last, m0, n0, m, n, none);
  tile.write(out, 0, 0, {0}, m0, n0, m, n);
}

extern "C" __global__ void __launch_bounds__(lf_lce_tile::threads, 2)
    lce_logits_mma(float* out, const void* x, const void* weights, unsigned flags, const int* count, int first, int per, int n, int k,
                   int tiles_m) {
  LF_DYN_SHARED(unsigned char, shared);
  lf_lce_mma(shared, out, (const unsigned char*)x, (const unsigned char*)weights, flags, min(per, *count - first), n, k, tiles_m, 0,
             lf_part(k, LF_TILE_K, 1, 1));
}
LF_KERNEL(lce_logits_mma);

extern "C" __global__ void __launch_bounds__(lf_lce_tile::threads, 2)
    lce_back_mma(float* partial, const void* d, const void* weights, unsigned flags, const int* count, int first, int per, int n, int k,
                 int tiles_m, int parts) {
  LF_DYN_SHARED(unsigned char, shared);
  int part = blockIdx.y;
  lf_lce_mma(shared, partial + (long long)part * per * n, (const unsigned char*)d, (const unsigned char*)weights, flags,
             min(per, *count - first), n, k, tiles_m, lf_part(k, LF_TILE_K, part, parts), lf_part(k, LF_TILE_K, part + 1, parts));
}
LF_KERNEL(lce_back_mma);

#ifdef LF_RACE
#include "../sim/test/race.h"
LF_RACE_CASE(linear_ce_mma) {
  auto x = lf_race_noise<float>(70 * 40);
  auto w = lf_race_noise<lf_bf16>(104 * 40);
  std::vector<float> logits(70 * 104), partial(2 * 70 * 40);
  std::vector<int> count(1, 69);
  unsigned along = 1 << 5, copied = LF_COPY | LF_KIND_BF16 << 2;
  int shared = LF_STAGES * lf_lce_tile::stage_bytes + 4 * LF_BOOKS;
  lf_race_launch(lce_logits_mma, {1}, {256}, shared, logits.data(), x.data(), w.data(), LF_WIDE | along | (copied | along) << 8, count.data(), 0,
                 70, 104, 40, 1);
  lf_race_launch(lce_back_mma, {1, 2}, {256}, shared, partial.data(), logits.data(), w.data(), LF_WIDE | along | copied << 8, count.data(), 0, 70,
                 40, 104, 1, 2);
}
#endif
