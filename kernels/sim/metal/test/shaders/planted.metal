// Kernels with a mistake each: what the simulator is made to find.
#include <metal_stdlib>
using namespace metal;

inline void meet() { threadgroup_barrier(mem_flags::mem_threadgroup); }

kernel void missing_barrier(device float* out [[buffer(0)]], device const float* x [[buffer(1)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float room[64];
  room[i] = x[i];
  out[i] = room[63 - i];
}
kernel void missing_simdgroup_barrier(device float* out [[buffer(0)]], device const float* x [[buffer(1)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float room[32];
  room[i] = x[i];
  out[i] = room[i ^ 1];
}
kernel void barrier_in_branch(device float* x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  if (i < 5) meet();
  x[i] = 1.0f;
}
kernel void two_barriers(device float* x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  if (i < 32) {
    x[i] = 1.0f;
    meet();
  } else {
    x[i] = 2.0f;
    meet();
  }
}
kernel void early_return(device float* x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  if (i > 40) return;
  meet();
  x[i] = 1.0f;
}
kernel void past_threadgroup_memory(device float* x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float room[64];
  threadgroup float* p = room;
  p[i + 1] = x[i];
}
kernel void past_bounds(device float* x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float room[8][8];
  room[i / 8][i % 8 + (i == 63)] = x[i];
}
kernel void past_dynamic(device float* x [[buffer(0)]], threadgroup float* room [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) { room[i] = x[i]; }
kernel void past_buffer(device float* out [[buffer(0)]], device const float* x [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  out[i] = x[i + 1];
}
kernel void null_pointer(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  device float* p = 0;
  if (i == 3) p[2] = out[0];
}
kernel void misaligned(device float* out [[buffer(0)]], device const float* x [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  float4 v = *(device const float4*)(x + i);
  out[i] = v.x;
}
kernel void misaligned_threadgroup(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float room[37];
  *(threadgroup float4*)room = float4(1.0f);
  out[i] = room[0];
}
kernel void unbound(device float* out [[buffer(0)]], device const float* x [[buffer(3)]], uint i [[thread_position_in_grid]]) { out[i] = x[i]; }
kernel void uninitialised(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float room[64];
  if (i < 63) room[i] = 1.0f;
  meet();
  out[i] = room[i];
}
kernel void uninitialised_local(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  float s;
  for (uint k = 0; k < i; k++) s += 1.0f;
  out[i] = s;
}
kernel void too_much(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float a[4096], b[4097];
  a[i] = b[i] = 1.0f;
  out[i] = a[i] + b[i];
}
kernel void diverged_simd(device float* x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  if (i < 7) x[i] = simd_sum(x[i]);
}
kernel void two_simds(device float* x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  float v = x[i];
  if (i & 1) {
    v = simd_shuffle_xor(v, 2);
    x[i] = v;
  } else {
    v = 2.0f * simd_shuffle_xor(v, 2);
    x[i] = v;
  }
}
kernel void shuffle_of_nobody(device float* x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) { x[i] = simd_shuffle(x[i], (ushort)(i + 8)); }
kernel void diverged_load(device float* x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  simdgroup_float8x8 a, c = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_load(a, x + (i == 9), 8);
  simdgroup_multiply_accumulate(c, a, a, c);
  simdgroup_store(c, x, 8);
}
kernel void half_a_simdgroup(device float* x [[buffer(0)]]) {
  simdgroup_float8x8 a = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
  simdgroup_multiply(a, a, a);
  simdgroup_store(a, x, 8);
}
[[max_total_threads_per_threadgroup(64)]] kernel void few_threads(device float* x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) { x[i] = 1.0f; }
kernel void zero_division(device int* x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) { x[i] = 7 / x[i]; }
kernel void wide_shift(device int* x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) { x[i] = 1 << (i + 1); }
inline int forever(int n);
int forever(int n) {
  volatile int room[64];
  room[n & 63] = n;
  return forever(n + room[n & 63]) + room[0];
}
kernel void recursion(device int* x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) { x[i] = forever(x[i]); }
struct wide_args {
  long rows;
  float eps;
};
kernel void short_numbers(device float* x [[buffer(0)]], constant wide_args& a [[buffer(1)]]) { x[0] = a.eps; }
