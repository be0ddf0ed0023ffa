// Products of a large bf16 matrix X [m, k] with narrow f32 ones, as adapters have them. One
// pass over X computes all of them on the tensor cores:
//
//   gemm_narrow_down   h_s  = alpha_s · X A_sᵀ     A_s [n_s, k],  up to three s
//   gemm_narrow_grad   dA_s = alpha_s · dh_sᵀ X    dh_s [m, n_s], up to three s
//   gemm_narrow_back   dB = alpha · Xᵀ h and dh = beta · X B, h [m, n], B [k, n], for up to
//                      three X_s with an h_s and a B_s each
//
// Narrow operands are rounded to bfloat16, sums are float32. A result has the same bits
// whatever else the launch computes.
//
// Layout: row major; n_s are multiples of 8 and k of 8, and all rows start on 16 bytes. The
//   kernels write sums of parts: partial of h is [parts, m, n], of dA [parts, n, k], of dB
//   [parts, k, n], and of dh [strips, m, n]. gemm_narrow_sum multiplies their sums by the
//   factor and adds an addend, which may be null or the output.
// Grid: 256 threads. *_32 and *_64: the narrow matrices of a block have up to 32 or 64 columns
//   together.
//   gemm_narrow_down: 128 rows of X, for each of parts of k. A warp has 16 rows.
//   gemm_narrow_grad, gemm_narrow_back: strips of 256 columns of X, for each of parts of the
//   rows. A warp has 32 columns of dA or dB, whose sums it holds; products of B, which the
//   block holds as bf16, are written for each stage: 16 rows by half of n are a warp's.
// Pipeline: three stages of 32 KiB of X by cp.async; 128 by 128, or 64 by 256. The narrow
//   operand of a stage is read into registers before the products of the stage two before,
//   and rounded after them.
// Traffic: X once, bound by memory. A_s m/128 times and dh_s or h k/256 times, from L2.
//   Partial sums once, beside X: n·(parts − 1)/k of its elements, or n/256 of dh.
// Registers: at most 128 of *_32 and 198 of *_64, none spilled.
// Reference: for s, i, j { h_s[i, j] = alpha_s · sum over l of X[i, l] A_s[j, l] }
//            for s, j, l { dA_s[j, l] = alpha_s · sum over i of dh_s[i, j] X[i, l] }
//            for l, j { dB[l, j] = alpha · sum over i of X[i, l] h[i, j] }
//            for i, j { dh[i, j] = beta · sum over l of X[i, l] B[l, j] }
#include "mma_tile.cuh"
#include "swizzle.cuh"

#define LF_NARROW_TILE 32768 // bytes of X of a stage

// The narrow matrices of a block side by side, with n0, n1 and n2 columns.
template <class T>
struct lf_narrow_row {
  T *p0, *p1, *p2;
  int n0, n1, n2;

  // The matrix that columns 8·c to 8·c+7 belong to. Its c is the number of these columns
  // within it, and its n is 0 if there are none.
  struct columns {
    T* p;
    int n, c;
  };
  LF_DEVICE columns pick(int c) const {
    int a = n0 >> 3, b = n1 >> 3, d = n2 >> 3;
    columns first = {p0, n0, c}, second = {p1, n1, c - a}, third = {p2, n2, c - a - b}, none = {p0, 0, 0};
    return c < a ? first : c < a + b ? second : c < a + b + d ? third : none;
  }
  // Fragments of 16 columns.
  LF_DEVICE int fragments() const { return (n0 + n1 + n2 + 15) >> 4; }
};

// The rows ROWS by WIDTH bytes of X of a stage, from row i0 and column j0 on; zeros outside.
template <int ROWS, int WIDTH>
LF_DEVICE void lf_narrow_copy(unsigned char* tile, const lf_bf16* x, int i0, int j0, int m, int k) {
  constexpr int across = WIDTH / 16, apart = 256 / across;
  int r = threadIdx.x / across, c = threadIdx.x % across, j = j0 + 8 * c;
#pragma unroll
  for (int q = 0; q < ROWS / apart; q++) {
    bool valid = i0 + r + q * apart < m && j < k;
    lf_cp_async16(tile + lf_swizzled<WIDTH>(r + q * apart, c), valid ? x + (long long)(i0 + r + q * apart) * k + j : x, valid);
  }
}

// Eight numbers of a narrow operand on their way.
struct lf_narrow_chunk {
  float4 u, v;
  LF_DEVICE void load(const float* p, bool valid) {
    u = v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (valid) u = *(const float4*)p, v = *(const float4*)(p + 4);
  }
  LF_DEVICE uint4 rounded() const { return lf_pack8(u, v); }
};

// MAX: columns of the narrow matrices.
template <int MAX>
LF_DEVICE void lf_narrow_down(unsigned char* shared, const lf_narrow_row<float>& to, const lf_bf16* x, const lf_narrow_row<const float>& a, int m,
                              int k, int parts) {
  int tiles = (m + 127) / 128, m0 = blockIdx.x % tiles * 128, part = blockIdx.x / tiles, stages = (k + 127) / 128;
  int first = (int)((long long)stages * part / parts), last = (int)((long long)stages * (part + 1) / parts);
  int count = a.fragments(), stage_bytes = LF_NARROW_TILE + 4096 * count;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, r = lane % 8, h = lane / 8 % 2, v = lane / 16;
  float sum[MAX / 8][4] = {};
  lf_narrow_chunk next[MAX / 16];
  int slot = 1; // of stage t
#pragma unroll 1
  for (int t = first - (LF_STAGES - 1); t < last; t++) { // what comes before first only fills
    if (t >= first) {
      lf_cp_async_wait<LF_STAGES - 2>();
      __syncthreads(); // stage t has arrived, and stage t-1 has been read
    }
    bool more = t + LF_STAGES - 1 < last;
    unsigned char* filled = shared + (slot == 0 ? LF_STAGES - 1 : slot - 1) * stage_bytes;
    const unsigned char *tile = shared + slot * stage_bytes, *narrow = tile + LF_NARROW_TILE;
    int row = threadIdx.x / 16, chunk = threadIdx.x % 16, j = (t + LF_STAGES - 1) * 128 + 8 * chunk;
    if (more) {
      lf_narrow_copy<128, 256>(filled, x, m0, (t + LF_STAGES - 1) * 128, m, k);
#pragma unroll
      for (int q = 0; q < MAX / 16; q++) {
        if (q >= count) continue;
        lf_narrow_row<const float>::columns own = a.pick(2 * q + row / 8);
        next[q].load(own.p + (long long)(8 * own.c + row % 8) * k + j, own.n > 0 && j < k);
      }
    }
    if (t >= first) {
#pragma unroll
      for (int s = 0; s < 8; s++) {
        unsigned f[4];
        lf_ldmatrix_x4(f, tile + lf_swizzled<256>(16 * warp + 8 * h + r, 2 * s + v));
#pragma unroll
        for (int q = 0; q < MAX / 16; q++) {
          if (q >= count) continue;
          unsigned w[4];
          lf_ldmatrix_x4(w, narrow + lf_swizzled<256>(16 * q + 8 * v + r, 2 * s + h));
          unsigned low[2] = {w[0], w[1]}, high[2] = {w[2], w[3]};
          lf_mma_bf16_16816(sum[2 * q], f, low);
          lf_mma_bf16_16816(sum[2 * q + 1], f, high);
        }
      }
    }
    if (more) {
#pragma unroll
      for (int q = 0; q < MAX / 16; q++)
        if (q < count) *(uint4*)(filled + LF_NARROW_TILE + lf_swizzled<256>(16 * q + row, chunk)) = next[q].rounded();
    }
    lf_cp_async_commit();
    slot = slot == LF_STAGES - 1 ? 0 : slot + 1;
  }
  lf_cp_async_wait_all();
#pragma unroll
  for (int q = 0; q < MAX / 8; q++) {
    lf_narrow_row<float>::columns own = to.pick(q);
    if (own.n == 0) continue;
#pragma unroll
    for (int e = 0; e < 2; e++) {
      int i = m0 + 16 * warp + 8 * e + lane / 4;
      if (i < m) *(float2*)(own.p + ((long long)part * m + i) * own.n + 8 * own.c + 2 * (lane % 4)) = make_float2(sum[q][2 * e], sum[q][2 * e + 1]);
    }
  }
}

// A strip of X, and one of parts of its rows.
struct lf_narrow_work {
  const lf_bf16* x;
  int k, strip, part, parts;
};

// Products of B with a stage of X, for gemm_narrow_back.
template <int MAX>
LF_DEVICE void lf_narrow_times(float* to, const unsigned char* tile, const unsigned char* strip, int count, int n, int i0, int m) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, r = lane % 8, h = lane / 8 % 2, v = lane / 16;
  int rows = 16 * (warp % 4), first = warp / 4 * count; // of eight columns
  float sum[MAX / 16][4] = {};
#pragma unroll 4 // all eight spill registers on sm_100
  for (int s = 0; s < 8; s++) {
    unsigned f[4], g[4];
    lf_ldmatrix_x4(f, tile + lf_swizzled<512>(rows + 8 * h + r, 4 * s + v));
    lf_ldmatrix_x4(g, tile + lf_swizzled<512>(rows + 8 * h + r, 4 * s + 2 + v));
#pragma unroll
    for (int q = 0; q < MAX / 16; q++) {
      if (q >= count) continue;
      unsigned w[4];
      lf_ldmatrix_x4(w, strip + lf_swizzled<512>(8 * (first + q) + r, 4 * s + lane / 8));
      unsigned low[2] = {w[0], w[1]}, high[2] = {w[2], w[3]};
      lf_mma_bf16_16816(sum[q], f, low);
      lf_mma_bf16_16816(sum[q], g, high);
    }
  }
#pragma unroll
  for (int q = 0; q < MAX / 16; q++) {
    if (q >= count || 8 * (first + q) >= n) continue;
#pragma unroll
    for (int e = 0; e < 2; e++) {
      int i = i0 + rows + 8 * e + lane / 4;
      if (i < m) *(float2*)(to + (long long)i * n + 8 * (first + q) + 2 * (lane % 4)) = make_float2(sum[q][2 * e], sum[q][2 * e + 1]);
    }
  }
}

// MAX as above. BACK: X is multiplied by b too, and the sums over rows are written as [k, n].
template <int MAX, bool BACK>
LF_DEVICE void lf_narrow_columns(unsigned char* shared, const lf_narrow_row<float>& to, const lf_narrow_work& work,
                                 const lf_narrow_row<const float>& narrow, int m, float* to_rows, const float* b) {
  int j0 = work.strip * 256, k = work.k, stages = (m + 63) / 64;
  int first = (int)((long long)stages * work.part / work.parts), last = (int)((long long)stages * (work.part + 1) / work.parts);
  int count = narrow.fragments(), width = 32 * count + 16; // bytes of a row of the narrow tile: without bank conflicts
  unsigned char *tiles = shared + LF_STAGES * LF_NARROW_TILE, *strip = tiles + LF_STAGES * 64 * width;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, r = lane % 8, h = lane / 8 % 2, v = lane / 16;
  if (BACK) {
#pragma unroll 1
    for (int c = 0; c < 2 * count; c++) {
      lf_narrow_chunk e;
      e.load(b + (long long)(j0 + threadIdx.x) * narrow.n0 + 8 * c, j0 + (int)threadIdx.x < k && 8 * c < narrow.n0);
      uint4 p = e.rounded();
      unsigned words[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
      for (int i = 0; i < 8; i++)
        *(unsigned short*)(strip + lf_swizzled<512>(8 * c + i, threadIdx.x / 8) + threadIdx.x % 8 * 2) = (unsigned short)(words[i / 2] >> (i % 2 * 16));
    }
  }
  float sum[MAX / 16][4][4] = {};
  lf_narrow_chunk next[(MAX + 31) / 32];
  int slot = 1; // of stage t
#pragma unroll 1
  for (int t = first - (LF_STAGES - 1); t < last; t++) { // what comes before first only fills
    if (t >= first) {
      lf_cp_async_wait<LF_STAGES - 2>();
      __syncthreads(); // stage t has arrived, and stage t-1 has been read
    }
    bool more = t + LF_STAGES - 1 < last;
    int free = slot == 0 ? LF_STAGES - 1 : slot - 1;
    const unsigned char *tile = shared + slot * LF_NARROW_TILE, *other = tiles + slot * 64 * width;
    int row = threadIdx.x % 64, chunk = threadIdx.x / 64; // the first of this thread in the narrow tile; others are four chunks on
    if (more) {
      int i0 = (t + LF_STAGES - 1) * 64;
      lf_narrow_copy<64, 512>(shared + free * LF_NARROW_TILE, work.x, i0, j0, m, k);
#pragma unroll
      for (int q = 0; q < (MAX + 31) / 32; q++) {
        lf_narrow_row<const float>::columns own = narrow.pick(chunk + 4 * q);
        next[q].load(own.p + (long long)(i0 + row) * own.n + 8 * own.c, own.n > 0 && i0 + row < m);
      }
    }
    if (t >= first) {
#pragma unroll
      for (int s = 0; s < 4; s++) {
        unsigned x[4][2];
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
          unsigned w[4];
          lf_ldmatrix_x4_trans(w, tile + lf_swizzled<512>(16 * s + 8 * h + r, 4 * warp + j + v));
          x[j][0] = w[0], x[j][1] = w[1], x[j + 1][0] = w[2], x[j + 1][1] = w[3];
        }
#pragma unroll
        for (int q = 0; q < MAX / 16; q++) {
          if (q >= count) continue;
          unsigned f[4];
          lf_ldmatrix_x4_trans(f, other + (16 * s + 8 * v + r) * width + (2 * q + h) * 16);
#pragma unroll
          for (int j = 0; j < 4; j++) lf_mma_bf16_16816(sum[q][j], f, x[j]);
        }
      }
      if (BACK) lf_narrow_times<MAX>(to_rows + (long long)work.strip * m * narrow.n0, tile, strip, count, narrow.n0, t * 64, m);
    }
    if (more) {
#pragma unroll
      for (int q = 0; q < (MAX + 31) / 32; q++)
        if (chunk + 4 * q < 2 * count) *(uint4*)(tiles + free * 64 * width + row * width + (chunk + 4 * q) * 16) = next[q].rounded();
    }
    lf_cp_async_commit();
    slot = slot == LF_STAGES - 1 ? 0 : slot + 1;
  }
  lf_cp_async_wait_all();
#pragma unroll
  for (int q = 0; q < MAX / 8; q++) {
    lf_narrow_row<float>::columns own = to.pick(q);
    if (own.n == 0) continue;
    int i = 8 * own.c + lane / 4;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      int l = j0 + 32 * warp + 8 * j + 2 * (lane % 4);
      if (l >= k) continue;
      float u = sum[q / 2][j][q % 2 * 2], w = sum[q / 2][j][q % 2 * 2 + 1];
      if (BACK) {
        float* at = own.p + ((long long)work.part * k + l) * own.n + i;
        at[0] = u, at[own.n] = w;
      } else {
        *(float2*)(own.p + ((long long)work.part * own.n + i) * k + l) = make_float2(u, w);
      }
    }
  }
}

#define LF_GEMM_NARROW(MAX, resident)                                                                                                   \
  extern "C" __global__ void __launch_bounds__(256, resident)                                                                           \
      gemm_narrow_down_##MAX(float* partial0, float* partial1, float* partial2, const lf_bf16* x, const float* a0, const float* a1,     \
                             const float* a2, int m, int k, int n0, int n1, int n2, int parts) {                                        \
    LF_DYN_SHARED(unsigned char, shared);                                                                                               \
    lf_narrow_down<MAX>(shared, {partial0, partial1, partial2, n0, n1, n2}, x, {a0, a1, a2, n0, n1, n2}, m, k, parts);                  \
  }                                                                                                                                     \
  LF_KERNEL(gemm_narrow_down_##MAX);                                                                                                    \
  extern "C" __global__ void __launch_bounds__(256, resident)                                                                           \
      gemm_narrow_grad_##MAX(float* partial0, float* partial1, float* partial2, const lf_bf16* x, const float* a0, const float* a1,     \
                             const float* a2, int m, int k, int n0, int n1, int n2, int parts) {                                        \
    LF_DYN_SHARED(unsigned char, shared);                                                                                               \
    int strips = (k + 255) / 256;                                                                                                       \
    lf_narrow_work work = {x, k, (int)blockIdx.x % strips, (int)blockIdx.x / strips, parts};                                            \
    lf_narrow_columns<MAX, false>(shared, {partial0, partial1, partial2, n0, n1, n2}, work, {a0, a1, a2, n0, n1, n2}, m, 0, 0);         \
  }                                                                                                                                     \
  LF_KERNEL(gemm_narrow_grad_##MAX);                                                                                                    \
  extern "C" __global__ void __launch_bounds__(256, resident)                                                                           \
      gemm_narrow_back_##MAX(int m, LF_NARROW_OF(0), LF_NARROW_OF(1), LF_NARROW_OF(2)) {                                                \
    LF_DYN_SHARED(unsigned char, shared);                                                                                               \
    int block = blockIdx.x, strips = (k0 + 255) / 256, n = n0;                                                                          \
    lf_narrow_work work = {x0, k0, 0, 0, parts0};                                                                                       \
    float *to = partial0, *to_rows = rows0;                                                                                             \
    const float *h = h0, *b = b0;                                                                                                       \
    if (block >= strips * parts0) {                                                                                                     \
      block -= strips * parts0, strips = (k1 + 255) / 256;                                                                              \
      work = {x1, k1, 0, 0, parts1}, to = partial1, to_rows = rows1, h = h1, b = b1, n = n1;                                            \
      if (block >= strips * parts1) {                                                                                                   \
        block -= strips * parts1, strips = (k2 + 255) / 256;                                                                            \
        work = {x2, k2, 0, 0, parts2}, to = partial2, to_rows = rows2, h = h2, b = b2, n = n2;                                          \
      }                                                                                                                                 \
    }                                                                                                                                   \
    work.strip = block % strips, work.part = block / strips;                                                                            \
    lf_narrow_columns<MAX, true>(shared, {to, 0, 0, n, 0, 0}, work, {h, 0, 0, n, 0, 0}, m, to_rows, b);                                 \
  }                                                                                                                                     \
  LF_KERNEL(gemm_narrow_back_##MAX)
#define LF_NARROW_OF(s) \
  float *partial##s, float *rows##s, const lf_bf16 *x##s, const float *h##s, const float *b##s, int k##s, int n##s, int parts##s
LF_GEMM_NARROW(32, 2);
LF_GEMM_NARROW(64, 1);

// out = addend + alpha · the sum over p of partial[p], in their order, for each of six outputs
// of multiples of 4 elements.
//
// Grid: x 256 threads for 4 elements each of the longest output, y the outputs.
// Traffic: parts reads and one write of the output.
// Reference: for i { t = 0; for p { t += partial[p, i] }; out[i] = addend[i] + alpha t }
#define LF_NARROW_SUM(i) float *out##i, const float *addend##i, const float *partial##i, long long size##i, int parts##i, float alpha##i
#define LF_NARROW_TAKE(i) out = out##i, addend = addend##i, partial = partial##i, size = size##i, parts = parts##i, alpha = alpha##i
extern "C" __global__ void __launch_bounds__(256)
    gemm_narrow_sum(LF_NARROW_SUM(0), LF_NARROW_SUM(1), LF_NARROW_SUM(2), LF_NARROW_SUM(3), LF_NARROW_SUM(4), LF_NARROW_SUM(5)) {
  float *out = out0, alpha = alpha0;
  const float *addend = addend0, *partial = partial0;
  long long size = size0, i = (blockIdx.x * 256LL + threadIdx.x) * 4;
  int parts = parts0;
  if (blockIdx.y == 1) LF_NARROW_TAKE(1);
  if (blockIdx.y == 2) LF_NARROW_TAKE(2);
  if (blockIdx.y == 3) LF_NARROW_TAKE(3);
  if (blockIdx.y == 4) LF_NARROW_TAKE(4);
  if (blockIdx.y == 5) LF_NARROW_TAKE(5);
  if (i >= size) return;
  float4 t = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
  for (int p = 0; p < parts; p++) {
    float4 v = *(const float4*)(partial + p * size + i);
    t.x += v.x, t.y += v.y, t.z += v.z, t.w += v.w;
  }
  t.x *= alpha, t.y *= alpha, t.z *= alpha, t.w *= alpha;
  if (addend) {
    float4 v = *(const float4*)(addend + i);
    t.x += v.x, t.y += v.y, t.z += v.z, t.w += v.w;
  }
  *(float4*)(out + i) = t;
}
LF_KERNEL(gemm_narrow_sum);

#ifdef LF_RACE
#include "../sim/test/race.h"
#define LF_NONE nullptr, nullptr, nullptr, 0LL, 0, 0.0f

// Two tiles or strips, with a rest of the rows and columns, in two parts each.
template <class DOWN, class BACK>
void lf_race_narrow(DOWN down, DOWN grad, BACK back) {
  const int m = 140, k = 264;
  auto x = lf_race_noise<lf_bf16>(m * k);
  auto a = lf_race_noise<float>(k * 24), h = lf_race_noise<float>(m * 24);
  std::vector<float> rows(2 * m * 24), columns(2 * k * 24), out(k * 24);
  float *p = rows.data(), *q = columns.data();
  lf_race_launch(down, {4}, {256}, 3 * (LF_NARROW_TILE + 4096 * 2), p, p + 2 * m * 8, nullptr, x.data(), a.data(), a.data(), nullptr, m, k, 8, 16, 0,
                 2);
  lf_race_launch(grad, {4}, {256}, 3 * (LF_NARROW_TILE + 64 * 80), q, q + 2 * k * 8, nullptr, x.data(), h.data(), h.data(), nullptr, m, k, 8, 16, 0,
                 2);
  lf_race_launch(back, {4}, {256}, 3 * (LF_NARROW_TILE + 64 * 80) + 512 * 32, m, q, p, x.data(), h.data(), a.data(), k, 24, 2, nullptr, nullptr,
                 nullptr, nullptr, nullptr, 0, 0, 0, nullptr, nullptr, nullptr, nullptr, nullptr, 0, 0, 0);
  lf_race_launch(gemm_narrow_sum, {4, 2}, {256}, 0, out.data(), out.data(), q, m * 24LL, 2, 0.5f, a.data(), nullptr, p, m * 24LL, 2, 1.0f,
                 LF_NONE, LF_NONE, LF_NONE, LF_NONE);
}
LF_RACE_CASE(gemm_narrow_32) { lf_race_narrow(gemm_narrow_down_32, gemm_narrow_grad_32, gemm_narrow_back_32); }
LF_RACE_CASE(gemm_narrow_64) { lf_race_narrow(gemm_narrow_down_64, gemm_narrow_grad_64, gemm_narrow_back_64); }
#endif
