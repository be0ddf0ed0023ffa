// Shared code of row-wise kernels: 16-byte accesses if a row allows them, and
// the sums and maxima of a block, whose order depends only on the sizes.
#pragma once

#include "device.cuh"

// The longest row that a warp holds in its registers: 32 numbers a lane.
#define LF_WARP_ROW 1024

// V consecutive numbers in memory, aligned to 4·V bytes.
template <int V>
struct lf_pack {
  float v[V];
  LF_DEVICE void load(const float* p) {
    if constexpr (V == 4) {
      float4 x = *(const float4*)p;
      v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
    } else {
      v[0] = *p;
    }
  }
  LF_DEVICE void store(float* p) const {
    if constexpr (V == 4)
      *(float4*)p = make_float4(v[0], v[1], v[2], v[3]);
    else
      *p = v[0];
  }
};

// Whether rows of n numbers at p, q, … can be taken by four.
LF_DEVICE bool lf_fours(long long n, const void* p, const void* q = 0, const void* r = 0, const void* s = 0, const void* t = 0) {
  return ((n & 3) | (((long long)p | (long long)q | (long long)r | (long long)s | (long long)t) & 15)) == 0;
}

// The sum of v over the block, for all threads. part has room for one number of
// each warp, and is not to be used again before a barrier.
template <class T>
LF_DEVICE T lf_block_sum(T v, T* part) {
#pragma unroll
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  if (lane == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = lane < warps ? part[lane] : T(0);
#pragma unroll
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  return v;
}

// The largest number m of a row and Σ exp(x − m), over as much of it as was
// added (Milakov and Gimelshein 2018, arXiv 1805.02867).
struct lf_softmax {
  float m, s;
  LF_DEVICE void start() { m = __uint_as_float(0xff800000u), s = 0.0f; }

  // The number to subtract: 0 for a row of −Inf only, so that exp(x) = 0.
  LF_DEVICE float shift() const { return m == __uint_as_float(0xff800000u) ? 0.0f : m; }

  template <int V>
  LF_DEVICE void add(const lf_pack<V>& x) {
    float top = x.v[0];
#pragma unroll
    for (int i = 1; i < V; i++) top = fmaxf(top, x.v[i]);
    if (top > m) {
      s *= expf(m - top);
      m = top;
    }
    float c = shift();
#pragma unroll
    for (int i = 0; i < V; i++) s += expf(x.v[i] - c);
  }

  // The two in one; of (a, b) the same bits as of (b, a).
  LF_DEVICE void join(lf_softmax o) {
    lf_softmax r;
    r.m = fmaxf(m, o.m);
    float c = r.shift();
    r.s = s * expf(m - c) + o.s * expf(o.m - c);
    *this = r;
  }

  LF_DEVICE lf_softmax lane(int mask) const {
    lf_softmax o = {__shfl_xor_sync(0xffffffffu, m, mask), __shfl_xor_sync(0xffffffffu, s, mask)};
    return o;
  }
  LF_DEVICE void join_warp() {
#pragma unroll
    for (int o = 16; o; o >>= 1) join(lane(o));
  }

  // Over the block, for all threads; part as for lf_block_sum.
  LF_DEVICE void join_block(lf_softmax* part) {
    join_warp();
    int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    if (lane == 0) part[threadIdx.x / 32] = *this;
    __syncthreads();
    start();
    if (lane < warps) *this = part[lane];
    join_warp();
  }
};

// All of a row by the threads of a block.
template <int V>
LF_DEVICE lf_softmax lf_softmax_row(const float* x, int n, lf_softmax* part) {
  lf_softmax a;
  a.start();
  lf_pack<V> v;
  for (int j = threadIdx.x * V; j < n; j += blockDim.x * V) {
    v.load(x + j);
    a.add(v);
  }
  a.join_block(part);
  return a;
}
