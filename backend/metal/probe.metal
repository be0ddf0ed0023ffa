// probe is a test that a device must pass before kernels are compiled with LF_SIMD or
// LF_BFLOAT: 32 threads; thread i writes out[i].
#include <metal_stdlib>
using namespace metal;

// As in device.h.
#pragma METAL fp contract(off)

[[max_total_threads_per_threadgroup(32)]] kernel void probe(device float* out [[buffer(0)]],
                                                            uint i [[thread_index_in_threadgroup]]) {
  float x = (float)(i + 1);
#if LF_SIMD
  // 32 ones of a product of 8 by 8, the sum of all, a neighbour and a vote.
  threadgroup float tile[64];
  tile[i] = 1.0f;
  tile[i + 32] = 1.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_float8x8 a, c = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_load(a, tile, 8);
  simdgroup_multiply_accumulate(c, a, a, c);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_store(c, tile, 8);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  float votes = ((ulong)simd_ballot(i < 4)) == 15 ? 1.0f : 0.0f;
  x = simd_sum(x) + simd_shuffle_xor(x, (ushort)1) / 64.0f + tile[i] * votes;
#endif
#if LF_BFLOAT
  x += (float)(bfloat)0.5f;
#endif
  out[i] = x;
}

// x[i] = a·b − p and x[i + 32] = fma(a, b, −p), for a, b and p = fl(a·b) of the host in x[i],
// x[i + 32] and x[i + 64]. The first is 0 unless the compiler contracts it to the second,
// which is the rounding error of p.
[[max_total_threads_per_threadgroup(32)]] kernel void contraction(device float* x [[buffer(0)]],
                                                                  uint i [[thread_index_in_threadgroup]]) {
  float a = x[i], b = x[i + 32], p = x[i + 64];
  x[i] = a * b - p;
  x[i + 32] = fma(a, b, -p);
}

// A buffer that is bound, and one whose address is in a table. x is added to, and then doubled.
[[max_total_threads_per_threadgroup(32)]] kernel void bound(device float* x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  x[i] += (float)(i + 1);
}

struct entry {
  device float* at;
};
[[max_total_threads_per_threadgroup(32)]] kernel void addressed(device const entry* table [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  table->at[i] *= 2.0f;
}
