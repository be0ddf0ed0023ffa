// Shared code of the attention kernels: the keys that a query sees, tiles in shared
// memory, and the two matrix products that they all compute, in float32 (FMA)
// and in bfloat16 (tensor cores, sums in float32):
//
//   scores   S  = A Bᵀ   rows of A and B lie in shared memory, S in registers
//   values   O += P X    P [rows of S, k] and X [k, columns]
//
// Forward:  S = Q Kᵀ, O += P V.
// For dQ:   S = Q Kᵀ, dP = dO Vᵀ, dQ += dS K.
// For dK, dV, where rows are keys: Sᵀ = K Qᵀ, dPᵀ = V dOᵀ, dV += Pᵀ dO, dK += dSᵀ Q.
//
// DP is the head size that a kernel is made for. Smaller ones are padded by
// zeros in shared memory, and the columns from d on are not written.
//
// Operands that are in memory as bfloat16, or aligned for vectors, have a bit each in
// the arguments bf16 and vec, at the positions that follow. The sums are the same.
#pragma once
#include "device.cuh"

enum { LF_Q, LF_K, LF_V, LF_O, LF_DO, LF_DQ, LF_DK, LF_DV };
#define LF_IS(flags, operand) ((flags) >> (operand) & 1)

#define LF_NO_KEY 0x7fffffff
#define LF_LOG2E 1.4426950408889634f
#define LF_LN2 0.6931471805599453f

// The keys [x, y) that query i sees; none if i is out of range.
LF_DEVICE int2 lf_seen(const int* lo, const int* hi, int i, int n, int keys, int window) {
  if (i >= n) return make_int2(0, 0);
  int a = lo[i], b = hi[i];
  if (window > 0 && b > window) a = max(a, b - window);
  a = max(a, 0);
  b = min(b, keys);
  return a < b ? make_int2(a, b) : make_int2(0, 0);
}

// Reports a query whose interval leaves the keys; of several, any: what each
// writes is true by itself, and the launch is the same for all.
LF_DEVICE void lf_check_seen(const int* lo, const int* hi, int i, int n, int keys, int window, long long* trap, int launch) {
  if (i >= n) return;
  int a = lo[i], b = hi[i];
  if (window > 0 && b > window) a = max(a, b - window);
  if (a >= b || (a >= 0 && b <= keys) || trap[0]) return;
  trap[1] = i;
  trap[0] = launch + 1;
}

LF_DEVICE int lf_warp_min_int(int v) {
#pragma unroll
  for (int o = 16; o; o >>= 1) v = min(v, __shfl_xor_sync(0xffffffffu, v, o));
  return v;
}

// The view of ROWS queries starting at first: the keys that they see. Each warp of a block
// holds the whole view in its lanes, so that all of them know the next tile without a barrier.
template <int ROWS>
struct lf_view {
  static constexpr int PER = (ROWS + 31) / 32;
  int2 seen[PER];
  int begin, end;  // of all keys that are seen

  LF_DEVICE void load(const int* lo, const int* hi, int first, int n, int keys, int window) {
    int lane = threadIdx.x & 31;
    begin = LF_NO_KEY;
    end = 0;
#pragma unroll
    for (int i = 0; i < PER; i++) {
      int r = i * 32 + lane;
      seen[i] = lf_seen(lo, hi, r < ROWS ? first + r : n, n, keys, window);
      if (seen[i].x < seen[i].y) begin = min(begin, seen[i].x);
      end = max(end, seen[i].y);
    }
    begin = lf_warp_min_int(begin);
    end = -lf_warp_min_int(-end);
  }

  // The first tile of SIZE keys from key k on that a query sees a key of. Tiles
  // begin at multiples of their size, so the result of a query depends only on
  // its own interval, not on the other queries of its block.
  template <int SIZE>
  LF_DEVICE int next(int k) const {
    int first = LF_NO_KEY;
#pragma unroll
    for (int i = 0; i < PER; i++) {
      int a = max(seen[i].x, k);
      if (a < seen[i].y) first = min(first, a);
    }
    first = lf_warp_min_int(first);
    return first == LF_NO_KEY ? first : first / SIZE * SIZE;
  }
};

// Rows [row, row+ROWS) of a matrix of float32 as a tile of DP+4 floats a row;
// rows outside [begin, end) and columns from d on are zeros, and are not read.
template <int ROWS, int DP, int THREADS>
LF_DEVICE void lf_tile_f32(float* tile, const float* x, long long stride, int row, int begin, int end, int d, int vec) {
  constexpr int STEPS = DP / 4;
  for (int e = threadIdx.x; e < ROWS * STEPS; e += THREADS) {
    int r = e / STEPS, c = e % STEPS * 4;
    bool valid = row + r >= begin && row + r < end;
    const float* from = valid ? x + (row + r) * stride : x;
    float* to = tile + r * (DP + 4) + c;
    if (vec) {
      bool in = valid && c < d;
      lf_cp_async16(to, in ? from + c : x, in);
    } else {
#pragma unroll
      for (int j = 0; j < 4; j++) {
        bool in = valid && c + j < d;
        lf_cp_async4(to + j, in ? from + c + j : x, in);
      }
    }
  }
}

// The same of bfloat16, DP+8 a row: a matrix with heads of d columns or, if
// attention_pack has made it, of DP.
template <int ROWS, int DP, int THREADS>
LF_DEVICE void lf_tile_bf16(lf_bf16* tile, const lf_bf16* x, int stride, int row, int begin, int end, int d, int vec) {
  constexpr int STEPS = DP / 8;
#pragma unroll 1  // the registers are full of sums
  for (int e = threadIdx.x; e < ROWS * STEPS; e += THREADS) {
    int r = e / STEPS, c = e % STEPS * 8;
    bool valid = row + r >= begin && row + r < end && c < d;
    const lf_bf16* from = valid ? x + (row + r) * (long long)stride + c : x;
    lf_bf16* to = tile + r * (DP + 8) + c;
    if (vec) {
      lf_cp_async16(to, from, valid);
    } else {
#pragma unroll 1
      for (int j = 0; j < 8; j++) to[j] = valid && c + j < d ? from[j] : lf_type<lf_bf16>::from(0.0f);
    }
  }
}

// The four elements of a row from column c on, zeros from d on.
LF_DEVICE float4 lf_four(const float* row, int c, int d, int vec) {
  if (vec) return c < d ? *reinterpret_cast<const float4*>(row + c) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  return make_float4(c < d ? row[c] : 0.0f, c + 1 < d ? row[c + 1] : 0.0f, c + 2 < d ? row[c + 2] : 0.0f,
                     c + 3 < d ? row[c + 3] : 0.0f);
}
LF_DEVICE float4 lf_four(const lf_bf16* row, int c, int d, int vec) {
  if (vec) {
    uint2 x = c < d ? *reinterpret_cast<const uint2*>(row + c) : make_uint2(0, 0);
    float2 a = lf_unpack_bf16(x.x), b = lf_unpack_bf16(x.y);
    return make_float4(a.x, a.y, b.x, b.y);
  }
  return make_float4(c < d ? lf_float(row[c]) : 0.0f, c + 1 < d ? lf_float(row[c + 1]) : 0.0f, c + 2 < d ? lf_float(row[c + 2]) : 0.0f,
                     c + 3 < d ? lf_float(row[c + 3]) : 0.0f);
}
// The same of a row that begins at element at of a matrix of either type.
LF_DEVICE float4 lf_four(const void* x, bool bf16, long long at, int c, int d, int vec) {
  if (bf16) return lf_four(static_cast<const lf_bf16*>(x) + at, c, d, vec);
  return lf_four(static_cast<const float*>(x) + at, c, d, vec);
}

// Stores two neighbouring elements of a row; elements past its end are skipped.
LF_DEVICE void lf_store_two(float* row, int c, int d, int vec, float x, float y) {
  if (vec) {
    if (c < d) *reinterpret_cast<float2*>(row + c) = make_float2(x, y);
    return;
  }
  if (c < d) row[c] = x;
  if (c + 1 < d) row[c + 1] = y;
}
LF_DEVICE void lf_store_two(lf_bf16* row, int c, int d, int vec, float x, float y) {
  if (vec) {
    if (c < d) *reinterpret_cast<uint32_t*>(row + c) = lf_pack_bf16(x, y);
    return;
  }
  if (c < d) row[c] = lf_type<lf_bf16>::from(x);
  if (c + 1 < d) row[c + 1] = lf_type<lf_bf16>::from(y);
}
LF_DEVICE void lf_store_two(void* x, bool bf16, long long at, int c, int d, int vec, float u, float v) {
  if (bf16) lf_store_two(static_cast<lf_bf16*>(x) + at, c, d, vec, u, v);
  else lf_store_two(static_cast<float*>(x) + at, c, d, vec, u, v);
}

// Stores element at of a matrix of either type.
LF_DEVICE void lf_store_one(void* x, bool bf16, long long at, float u) {
  if (bf16) static_cast<lf_bf16*>(x)[at] = lf_type<lf_bf16>::from(u);
  else static_cast<float*>(x)[at] = u;
}

// ---- float32: 256 threads as 16 by 16. Thread (y, x) has rows y TM + i of S
// and O, columns x + 16 j of S, and columns 2x + 32 c (+1) of O. The 16 threads
// of a row are half a warp.

template <int TM, int TN, int DP>
LF_DEVICE void lf_scores_f32(float (&s)[TM][TN], const float* a, const float* b, int d) {
  constexpr int PITCH = DP + 4;
  const float* pa = a + (threadIdx.x / 16) * TM * PITCH;
  const float* pb = b + (threadIdx.x % 16) * PITCH;
#pragma unroll
  for (int i = 0; i < TM; i++)
#pragma unroll
    for (int j = 0; j < TN; j++) s[i][j] = 0.0f;
#pragma unroll 2
  for (int c = 0; c < d; c += 4) {
    float4 y[TN];
#pragma unroll
    for (int j = 0; j < TN; j++) y[j] = *reinterpret_cast<const float4*>(pb + j * 16 * PITCH + c);
#pragma unroll
    for (int i = 0; i < TM; i++) {
      float4 x = *reinterpret_cast<const float4*>(pa + i * PITCH + c);
#pragma unroll
      for (int j = 0; j < TN; j++)
        s[i][j] = fmaf(x.w, y[j].w, fmaf(x.z, y[j].z, fmaf(x.y, y[j].y, fmaf(x.x, y[j].x, s[i][j]))));
    }
  }
}

template <int TM, int K, int DP>
LF_DEVICE void lf_values_f32(float (&o)[TM][DP / 16], const float* p, const float* x) {
  constexpr int PITCH = DP + 4;
  const float* pp = p + (threadIdx.x / 16) * TM * (K + 4);
  const float* px = x + (threadIdx.x % 16) * 2;
#pragma unroll 1
  for (int k = 0; k < K; k += 4) {
    float4 w[TM];
#pragma unroll
    for (int i = 0; i < TM; i++) w[i] = *reinterpret_cast<const float4*>(pp + i * (K + 4) + k);
#pragma unroll
    for (int kk = 0; kk < 4; kk++)
#pragma unroll
      for (int c = 0; c < DP / 32; c++) {
        float2 v = *reinterpret_cast<const float2*>(px + (k + kk) * PITCH + c * 32);
#pragma unroll
        for (int i = 0; i < TM; i++) {
          float f = kk == 0 ? w[i].x : kk == 1 ? w[i].y : kk == 2 ? w[i].z : w[i].w;
          o[i][2 * c] = fmaf(f, v.x, o[i][2 * c]);
          o[i][2 * c + 1] = fmaf(f, v.y, o[i][2 * c + 1]);
        }
      }
  }
}

LF_DEVICE float lf_half_warp_max(float v) {
#pragma unroll
  for (int o = 8; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
  return v;
}
LF_DEVICE float lf_half_warp_sum(float v) {
#pragma unroll
  for (int o = 8; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  return v;
}

// ---- bfloat16: 4 warps, each for MT times 16 rows of S and O. Lane l has the
// rows l/4 and l/4+8 of each, and columns 8 j + 2 (l%4) (+1), as mma leaves them.

// The address that a lane gives ldmatrix for a 16 by 16 block of the operand A.
template <int DP>
LF_DEVICE const lf_bf16* lf_block_a(const lf_bf16* tile, int row) {
  int l = threadIdx.x & 31;
  return tile + (row + (l & 15)) * (DP + 8) + (l >> 4) * 8;
}
// For 16 rows that become columns of S.
template <int DP>
LF_DEVICE const lf_bf16* lf_block_b(const lf_bf16* tile) {
  int l = threadIdx.x & 31;
  return tile + ((l >> 4) * 8 + (l & 7)) * (DP + 8) + (l >> 3 & 1) * 8;
}

// s = A Bᵀ: rows from row on of a, 8 NT rows of b.
template <int MT, int NT, int DP>
LF_DEVICE void lf_scores_bf16(float (&s)[MT][NT][4], const lf_bf16* a, int row, const lf_bf16* b) {
  const lf_bf16 *pa = lf_block_a<DP>(a, row), *pb = lf_block_b<DP>(b);
#pragma unroll
  for (int i = 0; i < MT; i++)
#pragma unroll
    for (int j = 0; j < NT; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) s[i][j][e] = 0.0f;
#pragma unroll
  for (int c = 0; c < DP; c += 16) {
    uint32_t x[MT][4];
#pragma unroll
    for (int i = 0; i < MT; i++) lf_ldmatrix_x4(x[i], pa + i * 16 * (DP + 8) + c);
#pragma unroll
    for (int j = 0; j < NT; j += 2) {
      uint32_t y[4];
      lf_ldmatrix_x4(y, pb + j * 8 * (DP + 8) + c);
      uint32_t y0[2] = {y[0], y[1]}, y1[2] = {y[2], y[3]};
#pragma unroll
      for (int i = 0; i < MT; i++) {
        lf_mma_bf16_16816(s[i][j], x[i], y0);
        lf_mma_bf16_16816(s[i][j + 1], x[i], y1);
      }
    }
  }
}

// o += P X, with P in the register layout of S, rounded; 8 NT rows of x.
template <int MT, int NT, int DP>
LF_DEVICE void lf_values_bf16(float (&o)[MT][DP / 8][4], const float (&p)[MT][NT][4], const lf_bf16* x) {
  const lf_bf16* px = lf_block_a<DP>(x, 0);
#pragma unroll
  for (int k = 0; k < NT; k += 2) {
    uint32_t a[MT][4];
#pragma unroll
    for (int i = 0; i < MT; i++) {
      a[i][0] = lf_pack_bf16(p[i][k][0], p[i][k][1]);
      a[i][1] = lf_pack_bf16(p[i][k][2], p[i][k][3]);
      a[i][2] = lf_pack_bf16(p[i][k + 1][0], p[i][k + 1][1]);
      a[i][3] = lf_pack_bf16(p[i][k + 1][2], p[i][k + 1][3]);
    }
#pragma unroll
    for (int j = 0; j < DP / 8; j += 2) {
      uint32_t y[4];
      lf_ldmatrix_x4_trans(y, px + k * 8 * (DP + 8) + j * 8);
      uint32_t y0[2] = {y[0], y[1]}, y1[2] = {y[2], y[3]};
#pragma unroll
      for (int i = 0; i < MT; i++) {
        lf_mma_bf16_16816(o[i][j], a[i], y0);
        lf_mma_bf16_16816(o[i][j + 1], a[i], y1);
      }
    }
  }
}

// Whether all rows of the warp see all keys [first, first + count): no element has to be masked. seen has the ranges of
// this lane's rows.
template <int N>
LF_DEVICE bool lf_all_seen(const int2 (&seen)[N], int first, int count) {
  bool all = true;
#pragma unroll
  for (int r = 0; r < N; r++) all = all && seen[r].x <= first && seen[r].y >= first + count;
  return __all_sync(0xffffffffu, all);
}

template <int MT, int NT>
LF_DEVICE void lf_negate(float (&s)[MT][NT][4]) {
#pragma unroll
  for (int i = 0; i < MT; i++)
#pragma unroll
    for (int j = 0; j < NT; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) s[i][j][e] = -s[i][j][e];
}

// Over the four lanes of a row.
LF_DEVICE float lf_quad_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
  return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
LF_DEVICE float lf_quad_sum(float v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}
