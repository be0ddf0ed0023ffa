// The products of linear_ce.cu in float32, every product of two numbers rounded
// once into its sum (FMA):
//
//   logits: out[i, j] = Σ_l x[i, l] W[j, l]                       (lce_logits_f32_…)
//   back:   part[s, i, j] = Σ_l d[i, l] W[l, j], l in part s      (lce_back_f32_…)
//
// Layout: row major; x and d [per, k] (f32), of which only the rows before
//   count − first are there; W [n, k] or [k, n] of the type in the kernel's name.
// Grid: 256 threads for a tile of 64 by 64, each for 4 by 4 of it: x runs over
//   tiles of columns, y over tiles of rows, z over the parts of k, which
//   lce_scatter adds up in their order.
// Traffic: W is read per/64 times and the rows n/64 times, mostly from L2; 16 of k
//   at a time are in shared memory, where W has already been widened.
// Registers: logits 63 to 80, back 63 to 66, on all targets.
// Reference: for i, j { s = 0; for l { s += x[i, l] W[j, l] }; out[i, j] = s }
#include "element.h"
#include "parts.cuh"

#define LF_TILE 64
#define LF_DEEP 16

template <class T>
struct lf_plain {
  static LF_DEVICE void start(float*) {}
  static LF_DEVICE float get(const void* w, long long i, const float*) { return T::get(((const typename T::raw*)w)[i]); }
};
struct lf_w_q8 {
  static LF_DEVICE void start(float*) {}
  static LF_DEVICE float get(const void* w, long long i, const float*) { return lf_q8((const unsigned char*)w, i); }
};
struct lf_w_nf4 {
  static LF_DEVICE void start(float* book) {
    if (threadIdx.x < 16) book[threadIdx.x] = lf_nf4(threadIdx.x);
  }
  static LF_DEVICE float get(const void* w, long long i, const float* book) { return lf_q4((const unsigned char*)w, i, book); }
};
struct lf_w_fp4 {
  static LF_DEVICE void start(float* book) {
    if (threadIdx.x < 16) book[threadIdx.x] = lf_fp4(threadIdx.x);
  }
  static LF_DEVICE float get(const void* w, long long i, const float* book) { return lf_q4((const unsigned char*)w, i, book); }
};
typedef lf_plain<lf_as_f32> lf_w_f32;
typedef lf_plain<lf_as_f16> lf_w_f16;
typedef lf_plain<lf_as_bf16> lf_w_bf16;

// ALONG_K: k is the contiguous axis of W.
template <class W, bool ALONG_K>
LF_DEVICE void lf_lce(float (*sa)[LF_TILE + 4], float (*sb)[LF_TILE + 4], float* book, float* out, const float* a, const void* w, int m, int n,
                      int k, int from, int to) {
  int m0 = blockIdx.y * LF_TILE, n0 = blockIdx.x * LF_TILE;
  if (m0 >= m) return;
  W::start(book);
  int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float sum[4][4] = {};
  for (int k0 = from; k0 < to; k0 += LF_DEEP) {
    __syncthreads(); // the previous tile has been read, and the codebook is loaded
#pragma unroll
    for (int q = 0; q < LF_DEEP * LF_TILE / 256; q++) {
      int e = threadIdx.x + 256 * q, l = e % LF_DEEP, i = e / LF_DEEP;
      sa[l][i] = m0 + i < m && k0 + l < to ? a[(long long)(m0 + i) * k + k0 + l] : 0.0f;
      if (!ALONG_K) i = e % LF_TILE, l = e / LF_TILE;
      long long row = k0 + l, col = n0 + i;
      sb[l][i] = row < to && col < n ? W::get(w, ALONG_K ? col * k + row : row * n + col, book) : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int l = 0; l < LF_DEEP; l++) {
      float x[4], y[4];
#pragma unroll
      for (int i = 0; i < 4; i++) x[i] = sa[l][4 * ty + i], y[i] = sb[l][4 * tx + i];
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      long long row = m0 + 4 * ty + i;
      int col = n0 + 4 * tx + j;
      if (row < m && col < n) out[row * n + col] = sum[i][j];
    }
}

#define LF_LCE(w)                                                                                                                   \
  extern "C" __global__ void __launch_bounds__(256)                                                                                 \
      lce_logits_f32_##w(float* out, const float* x, const void* weights, const int* count, int first, int per, int n, int k) {     \
    LF_SHARED(float, sa, [LF_DEEP][LF_TILE + 4]);                                                                                   \
    LF_SHARED(float, sb, [LF_DEEP][LF_TILE + 4]);                                                                                   \
    LF_SHARED(float, book, [16]);                                                                                                   \
    lf_lce<lf_w_##w, true>(sa, sb, book, out, x, weights, min(per, *count - first), n, k, 0, k);                                    \
  }                                                                                                                                 \
  LF_KERNEL(lce_logits_f32_##w);                                                                                                    \
  extern "C" __global__ void __launch_bounds__(256) lce_back_f32_##w(float* partial, const float* d, const void* weights, const int* count, \
                                                                     int first, int per, int n, int k, int parts) {                 \
    LF_SHARED(float, sa, [LF_DEEP][LF_TILE + 4]);                                                                                   \
    LF_SHARED(float, sb, [LF_DEEP][LF_TILE + 4]);                                                                                   \
    LF_SHARED(float, book, [16]);                                                                                                   \
    int part = blockIdx.z;                                                                                                          \
    lf_lce<lf_w_##w, false>(sa, sb, book, partial + (long long)part * per * n, d, weights, min(per, *count - first), n, k,          \
                            lf_part(k, LF_DEEP, part, parts) * LF_DEEP, min(k, lf_part(k, LF_DEEP, part + 1, parts) * LF_DEEP));     \
  }                                                                                                                                 \
  LF_KERNEL(lce_back_f32_##w);
LF_LCE(f32)
LF_LCE(f16)
LF_LCE(bf16)
LF_LCE(q8)
LF_LCE(nf4)
LF_LCE(fp4)

#ifdef LF_RACE
#include "../sim/test/race.h"
LF_RACE_CASE(linear_ce_f32) {
  auto x = lf_race_noise<float>(70 * 20), w = lf_race_noise<float>(65 * 20);
  auto codes = lf_race_noise<unsigned char>(36 * 6);
  std::vector<float> logits(70 * 65), parts(2 * 70 * 20);
  std::vector<int> count(1, 69);
  lf_race_launch(lce_logits_f32_f32, {2, 2}, {256}, 0, logits.data(), x.data(), w.data(), count.data(), 0, 70, 65, 20);
  lf_race_launch(lce_back_f32_f32, {1, 2, 2}, {256}, 0, parts.data(), logits.data(), w.data(), count.data(), 0, 70, 20, 65, 2);
  lf_race_launch(lce_logits_f32_nf4, {1, 2}, {256}, 0, logits.data(), x.data(), codes.data(), count.data(), 0, 70, 16, 20);
}
#endif
