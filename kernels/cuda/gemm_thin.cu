// Up to three products of the same A with weights in bf16 or 8-bit floats for 9 to 64 rows,
// as batches of decoding have them. The weights are read once, at the rate of the memory:
//
//   out_s = addend_s + bias_s + alpha_s · scale_s · A · B_sᵀ,  A [m, k], B_s [n_s, k]
//
// Sums are q, k and v, or gate and up; with act, act(out_0)·out_1 is written instead. A
// row of an output has the same bits in any company.
//
// Layout: row major; A in bfloat16, B too, or F8_E4M3 (gemm_thin_f8), both on 16 bytes; k a
//   multiple of 256. gemm_thin_f8_blocks: blocks of B of at least 16 rows and 64 columns
//   have scales, whose size is in flags (operand.cuh). A thread reads 16 bytes of a row of B, 8 or 16 elements along k, into
//   the fragments of two or four mma.sync: k is permuted within blocks of 32 or 64, in A
//   in the same way. 8-bit floats become bfloat16 in registers, divided by 256, which
//   alpha contains; scale_s [n_s] or null is for the rows of B_s. Sums over 64 columns are
//   multiplied by the scales of blocks.
//   partial holds [parts_s, m, n_s] of each sum, one after the other.
// Grid: gemm_thin_M, for m up to M: 128 threads for 64 rows of B and one of the parts of
//   k. A warp has 16 rows of B and all of A. While it multiplies 256 elements along k, the
//   next ones are under way: 8 or 4 KB of B for each warp, and A for the block by cp.async.
//   gemm_thin_sum: 256 threads, an element of an output each. Bits of stored, two for each
//   sum: out is bf16, addend is; f32 otherwise.
// Traffic: B once; A n/64 times, from L2. On an H100, m = 64 and n of 4,096 to 28,672 took
//   0.6 to 0.8 of its bandwidth, m = 16 0.85.
// Registers: at most 255 of gemm_thin_M, none spilled.
// Reference: for s, i, j { t = 0; for l { t += A[i, l] B_s[j, l] }
//                          out_s[i, j] = addend_s[i, j] + bias_s[j] + alpha_s t }
#include "act.h"
#include "mixed.h"
#include "operand.cuh"

#define LF_THIN_K 256            // elements along k of a stage
#define LF_THIN_ROW (LF_THIN_K + 32) // of a row of A in shared memory: without bank conflicts
#define LF_THIN_STAGES 2

// One of the products, a tile of 64 rows of its B, and a part of k.
template <class B>
struct lf_thin_work {
  const B* w;
  float* to;
  int n, tile, from, end;
  const float* scale; // of blocks
  int flags;
};

// How a warp reads B of a type, 16 bytes of a row a thread: four threads have a block of a row.
template <class B>
struct lf_thin_of {
  static constexpr int each = 16 / sizeof(B), block = 4 * each, blocks = LF_THIN_K / block;
  // The rows of B of a thread: two for each block along k.
  typedef uint4 rows[blocks][2];

  // Where A has chunk c of eight elements in shared memory. The chunks that threads read at a
  // time are neighbours: with B in 8-bit floats a thread reads two, 32 elements apart.
  static LF_DEVICE int slot(int c) { return sizeof(B) == 2 ? c : (c & ~7) + (c & 1) * 4 + (c >> 1 & 3); }

  static LF_DEVICE void load(rows& v, const B* const (&row)[2], int stage) {
#pragma unroll
    for (int b = 0; b < blocks; b++)
#pragma unroll
      for (int r = 0; r < 2; r++) v[b][r] = *(const uint4*)(row[r] + stage * LF_THIN_K + block * b);
  }
};

// Four numbers of a word in 8-bit floats, divided by LF_F8_UNIT, as bfloat16.
LF_DEVICE uint2 lf_thin_widen(unsigned w) {
  float4 v = lf_codes_f8(w);
  return make_uint2(lf_pack_bf16(v.x, v.y), lf_pack_bf16(v.z, v.w));
}

template <int NT, class B>
LF_DEVICE void lf_thin_copy(lf_bf16* shared, const lf_bf16* x, int m, int k, int stage, bool valid) {
#pragma unroll 4
  for (int e = threadIdx.x; e < 8 * NT * LF_THIN_K / 8; e += 128) {
    int r = e / (LF_THIN_K / 8), c = e % (LF_THIN_K / 8);
    lf_cp_async16(shared + r * LF_THIN_ROW + lf_thin_of<B>::slot(c) * 8,
                  x + (long long)min(r, m - 1) * k + (valid ? stage * LF_THIN_K + c * 8 : 0), valid && r < m);
  }
  lf_cp_async_commit();
}

// Eight elements of two rows of B with those of A at x.
template <int NT>
LF_DEVICE void lf_thin_multiply8(float (&d)[NT][4], uint4 u, uint4 v, const lf_bf16* x) {
#pragma unroll
  for (int i = 0; i < NT; i++) {
    uint4 q = *(const uint4*)(x + 8 * i * LF_THIN_ROW);
    uint32_t first[4] = {u.x, v.x, u.y, v.y}, second[4] = {u.z, v.z, u.w, v.w};
    uint32_t low[2] = {q.x, q.y}, high[2] = {q.z, q.w};
    lf_mma_bf16_16816(d[i], first, low);
    lf_mma_bf16_16816(d[i], second, high);
  }
}

LF_DEVICE uint4 lf_thin_widen(unsigned lo, unsigned hi) {
  uint2 a = lf_thin_widen(lo), b = lf_thin_widen(hi);
  return make_uint4(a.x, a.y, b.x, b.y);
}

// The scales of the rows of a warp in a stage: one for each of lf_thin_of<B>::blocks.
template <class B, bool BLOCKS>
struct lf_thin_scales {
  float v[BLOCKS ? lf_thin_of<B>::blocks : 1];

  // p has those of all columns.
  LF_DEVICE void load(const float* p, int flags, int stage) {
#pragma unroll
    for (int b = 0; BLOCKS && b < lf_thin_of<B>::blocks; b++) v[b] = p[(stage * LF_THIN_K + lf_thin_of<B>::block * b) >> LF_BLOCK_COLUMNS(flags)];
  }
};

template <int NT>
LF_DEVICE void lf_thin_multiply16(float (&d)[NT][4], uint4 u, uint4 v, const lf_bf16* x) {
  lf_thin_multiply8(d, lf_thin_widen(u.x, u.y), lf_thin_widen(v.x, v.y), x);
  lf_thin_multiply8(d, lf_thin_widen(u.z, u.w), lf_thin_widen(v.z, v.w), x + 32);
}

template <int NT, class B, bool BLOCKS>
LF_DEVICE void lf_thin_multiply(float (&d)[NT][4], const typename lf_thin_of<B>::rows& v, const lf_thin_scales<B, BLOCKS>& scale, const lf_bf16* x) {
#pragma unroll
  for (int b = 0; b < lf_thin_of<B>::blocks; b++) {
    const lf_bf16* at = x + lf_thin_of<B>::block * b;
    if (sizeof(B) == 2) {
      lf_thin_multiply8(d, v[b][0], v[b][1], at);
    } else if (!BLOCKS) {
      lf_thin_multiply16(d, v[b][0], v[b][1], at);
    } else {
      constexpr int some = NT == 8 ? 2 : NT; // at a time: all eight spill registers on sm_80
#pragma unroll
      for (int first = 0; first < NT; first += some) {
        float part[some][4] = {};
        lf_thin_multiply16(part, v[b][0], v[b][1], at + 8 * first * LF_THIN_ROW);
#pragma unroll
        for (int i = 0; i < some; i++)
#pragma unroll
          for (int e = 0; e < 4; e++) d[first + i][e] = fmaf(part[i][e], scale.v[b], d[first + i][e]);
      }
    }
  }
}

template <int NT, class B, bool BLOCKS>
LF_DEVICE void lf_gemm_thin(lf_bf16* shared, const lf_bf16* x, int m, int k, const lf_thin_work<B>& work) {
  typedef lf_thin_of<B> of;
  constexpr int size = 8 * NT * LF_THIN_ROW; // of a stage of A
  int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, j0 = work.tile * 64 + threadIdx.x / 32 * 16 + g;
  const B* row[2] = {work.w + (long long)min(j0, work.n - 1) * k + of::each * t, work.w + (long long)min(j0 + 8, work.n - 1) * k + of::each * t};
  const float* scale = BLOCKS ? work.scale + lf_scale_at(work.flags, min(work.tile * 64 + (int)threadIdx.x / 32 * 16, work.n - 1), 0, k) : nullptr;
  float d[NT][4] = {};
  typename of::rows even, odd;
  lf_thin_scales<B, BLOCKS> scales;
  lf_thin_copy<NT, B>(shared, x, m, k, work.from, true);
  of::load(even, row, work.from);
  const lf_bf16* own = shared + g * LF_THIN_ROW + 8 * t;
#pragma unroll 1
  for (int s = work.from; s < work.end; s += 2) {
    of::load(odd, row, min(s + 1, work.end - 1));
    scales.load(scale, work.flags, s);
    lf_cp_async_wait<0>();
    __syncthreads(); // the other stage has been read, this one has landed
    lf_thin_copy<NT, B>(shared + size, x, m, k, s + 1, s + 1 < work.end);
    lf_thin_multiply<NT, B, BLOCKS>(d, even, scales, own);
    if (s + 1 == work.end) break;
    of::load(even, row, min(s + 2, work.end - 1));
    scales.load(scale, work.flags, s + 1);
    lf_cp_async_wait<0>();
    __syncthreads();
    lf_thin_copy<NT, B>(shared, x, m, k, s + 2, s + 2 < work.end);
    lf_thin_multiply<NT, B, BLOCKS>(d, odd, scales, own + size);
  }
  lf_cp_async_wait_all();
#pragma unroll
  for (int i = 0; i < NT; i++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int c = 8 * i + 2 * t + (e & 1), j = j0 + 8 * (e >> 1);
      if (c < m && j < work.n) work.to[(long long)c * work.n + j] = d[i][e];
    }
}

#define LF_GEMM_THIN(name, B, M, BLOCKS)                                                                                   \
  extern "C" __global__ void __launch_bounds__(128, 2)                                                                     \
      name##_##M(float* partial, const lf_bf16* x, const B* w0, const B* w1, const B* w2, const float* scale0,             \
                 const float* scale1, const float* scale2, int m, int k, int n0, int n1, int n2, int parts0, int parts1,   \
                 int parts2, int flags) {                                                                                  \
    LF_DYN_SHARED(lf_bf16, shared);                                                                                        \
    int b = blockIdx.x, blocks0 = (n0 + 63) / 64 * parts0, blocks1 = (n1 + 63) / 64 * parts1;                              \
    lf_thin_work<B> work = {w0, partial, n0, b, 0, 0, scale0, flags};                                                      \
    int parts = parts0;                                                                                                    \
    if (b >= blocks0) work = {w1, partial + (long long)m * n0 * parts0, n1, b - blocks0, 0, 0, scale1, flags}, parts = parts1; \
    if (b >= blocks0 + blocks1)                                                                                            \
      work = {w2, partial + (long long)m * n0 * parts0 + (long long)m * n1 * parts1, n2, b - blocks0 - blocks1, 0, 0,      \
              scale2, flags},                                                                                              \
      parts = parts2;                                                                                                      \
    int tiles = (work.n + 63) / 64, part = work.tile / tiles, stages = k / LF_THIN_K;                                      \
    work.tile %= tiles, work.to += (long long)part * m * work.n;                                                           \
    work.from = stages * part / parts, work.end = stages * (part + 1) / parts;                                             \
    lf_gemm_thin<M / 8, B, BLOCKS>(shared, x, m, k, work);                                                                 \
  }                                                                                                                        \
  LF_KERNEL(name##_##M)
LF_GEMM_THIN(gemm_thin, lf_bf16, 16, false);
LF_GEMM_THIN(gemm_thin, lf_bf16, 32, false);
LF_GEMM_THIN(gemm_thin, lf_bf16, 64, false);
LF_GEMM_THIN(gemm_thin_f8, unsigned char, 16, false);
LF_GEMM_THIN(gemm_thin_f8, unsigned char, 32, false);
LF_GEMM_THIN(gemm_thin_f8, unsigned char, 64, false);
LF_GEMM_THIN(gemm_thin_f8_blocks, unsigned char, 16, true);
LF_GEMM_THIN(gemm_thin_f8_blocks, unsigned char, 32, true);
LF_GEMM_THIN(gemm_thin_f8_blocks, unsigned char, 64, true);

// Element i of a sum [m, n] from its parts, and behind them.
LF_DEVICE float lf_thin_sum(const float* partial, long long i, int n, long long size, int parts, float alpha, const float* scale, const float* bias,
                            const void* addend, lf_mixed types) {
  float s = 0.0f;
#pragma unroll 4
  for (int p = 0; p < parts; p++) s += partial[p * size + i];
  s *= alpha;
  if (scale) s *= scale[i % n];
  if (bias) s += bias[i % n];
  if (addend) s += lf_load(types, 1, addend, i);
  return s;
}

extern "C" __global__ void __launch_bounds__(256)
    gemm_thin_sum(void* out0, const float* bias0, const void* addend0, void* out1, const float* bias1, const void* addend1, void* out2,
                  const float* bias2, const void* addend2, const float* partial, int m, int n0, int n1, int n2, int parts0, int parts1,
                  int parts2, float alpha0, float alpha1, float alpha2, const float* scale0, const float* scale1, const float* scale2, int act,
                  int stored) {
  long long i = (long long)blockIdx.x * 256 + threadIdx.x, size0 = (long long)m * n0, size1 = (long long)m * n1, size2 = (long long)m * n2;
  const float *partial1 = partial + size0 * parts0, *partial2 = partial1 + size1 * parts1;
  if (i < size0) {
    float y = lf_thin_sum(partial, i, n0, size0, parts0, alpha0, scale0, bias0, addend0, {stored});
    if (act >= 0) {
      lf_mixed second = {stored >> 2}; // both are rounded as they would be stored, the first by bit 4
      float up = lf_rounded(second, 0, lf_thin_sum(partial1, i, n1, size1, parts1, alpha1, scale1, bias1, addend1, second));
      y = lf_act(act, lf_rounded(lf_mixed{stored}, 4, y)) * up;
    }
    lf_store(lf_mixed{stored}, 0, out0, i, y);
  } else if (act < 0 && i < size0 + size1) {
    lf_mixed types = {stored >> 2};
    i -= size0;
    lf_store(types, 0, out1, i, lf_thin_sum(partial1, i, n1, size1, parts1, alpha1, scale1, bias1, addend1, types));
  } else if (act < 0 && i < size0 + size1 + size2) {
    lf_mixed types = {stored >> 4};
    i -= size0 + size1;
    lf_store(types, 0, out2, i, lf_thin_sum(partial2, i, n2, size2, parts2, alpha2, scale2, bias2, addend2, types));
  }
}
LF_KERNEL(gemm_thin_sum);

#ifdef LF_RACE
#include "../sim/test/race.h"

LF_RACE_CASE(gemm_thin_f8) {
  auto x = lf_race_noise<lf_bf16>(11 * 512);
  auto w = lf_race_noise<unsigned char>(70 * 512);
  std::vector<float> partial(11 * 2 * 70);
  lf_race_launch(gemm_thin_f8_16, {4}, {128}, LF_THIN_STAGES * 16 * LF_THIN_ROW * 2, partial.data(), x.data(), w.data(), nullptr, nullptr, nullptr,
                 nullptr, nullptr, 11, 512, 70, 0, 0, 2, 0, 0, 0);
}

// The last blocks of a column have a rest of the rows.
LF_RACE_CASE(gemm_thin_f8_blocks) {
  auto x = lf_race_noise<lf_bf16>(11 * 512);
  auto w = lf_race_noise<unsigned char>(70 * 512);
  auto scale = lf_race_noise<float>(3 * 4);
  std::vector<float> partial(11 * 2 * 70);
  lf_race_launch(gemm_thin_f8_blocks_16, {4}, {128}, LF_THIN_STAGES * 16 * LF_THIN_ROW * 2, partial.data(), x.data(), w.data(), nullptr, nullptr,
                 scale.data(), nullptr, nullptr, 11, 512, 70, 0, 0, 2, 0, 0, 5 << 8 | (7 ^ 31) << 13);
}

// Two sums, one of them in two parts, with a rest of the rows of B.
LF_RACE_CASE(gemm_thin) {
  auto x = lf_race_noise<lf_bf16>(11 * 512), w = lf_race_noise<lf_bf16>(70 * 512);
  std::vector<float> partial(11 * (2 * 70 + 9)), a(11 * 70), b(11 * 9);
  lf_race_launch(gemm_thin_16, {5}, {128}, LF_THIN_STAGES * 16 * LF_THIN_ROW * 2, partial.data(), x.data(), w.data(), w.data(), nullptr, nullptr,
                 nullptr, nullptr, 11, 512, 70, 9, 0, 2, 1, 0, 0);
  lf_race_launch(gemm_thin_sum, {4}, {256}, 0, a.data(), nullptr, a.data(), b.data(), nullptr, nullptr, nullptr, nullptr, nullptr,
                 partial.data(), 11, 70, 9, 0, 2, 1, 0, 1.0f, 0.5f, 0.0f, nullptr, nullptr, nullptr, -1, 0);
}
#endif
