// Kernels that must give the right numbers in every order of threads.
#include <metal_stdlib>
using namespace metal;

constant float table[3] = {1.0f, 10.0f, 100.0f};
constant int size = 4;

template <class P>
inline float third(P p) {
  return p[2];
}
inline float first(device const float* p) { return p[0]; }
inline float first(threadgroup const float* p) { return p[0] + 1000.0f; }

// Vectors: constructors, parts, conversions, literals.
kernel void vectors(device float4* out [[buffer(0)]], device const packed_float4* odd [[buffer(1)]]) {
  float2 a = float2(1, 2);
  float4 b = float4(a, 3.0f, 4);
  out[0] = float4(b.yx, b.wz);
  out[1] = float4(uint4(7.9f, 3u, 2, 255));
  out[2] = b * 2 + float4(0.5f);
  out[3] = float4(half4(b) * 0.1h);
  out[4] = odd[0] + odd[1];
  out[5] = vec<float, 4>(as_type<float2>(uint2(0x3f800000u, 0x40000000u)), float(uchar(300)), float(ulong2(5, 6).y));
  out[6] = select(b, float4(0.0f), b > float4(2.5f));
  out[7] = float4(any(b > float4(3.5f)), all(b > float4(3.5f)), dot(b, b), float(short(-7)));
  out[8] = float4(1.0 / 3, as_type<float>(as_type<uint>(1.5f)), sizeof(float3), sizeof(packed_float4));
  float part[size];
  for (int i = 0; i < size; i++) part[i] = table[i % 3] * b[i];
  out[9] = float4(part[0], part[1], part[2], part[3]);
}

// Template functions over address spaces, and overloads by them.
kernel void spaces(device float* out [[buffer(0)]], device const float* x [[buffer(1)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float copy[3], pair[2][3];
  if (i < 3) copy[i] = x[i], pair[1][i] = 2 * x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  threadgroup float(*rows)[3] = pair;
  if (i == 0) {
    out[0] = third(x);
    out[1] = third(copy);
    out[2] = first(x);
    out[3] = first(copy);
    out[4] = rows[1][2];
  }
}

struct grid_args {
  uint bound, wide;
  long n;
  float scale;
};
kernel void grid(device uint* out [[buffer(0)]], constant grid_args& a [[buffer(1)]], uint3 p [[thread_position_in_grid]], uint3 n [[threads_per_grid]], ushort2 t [[thread_position_in_threadgroup]],
                 uint3 g [[threadgroup_position_in_grid]], uint2 groups [[threadgroups_per_grid]], uint3 size [[threads_per_threadgroup]], uint index [[thread_index_in_threadgroup]],
                 uint lane [[thread_index_in_simdgroup]], uint warp [[simdgroup_index_in_threadgroup]]) {
  ulong at = ((ulong)p.z * n.y + p.y) * n.x + p.x;
  bool ok = p.x == g.x * size.x + t.x && p.y == g.y * size.y + t.y && groups.x * size.x == n.x && index == (p.z % size.z * size.y + t.y) * size.x + t.x && lane == index % 32 && warp == index / 32;
  if ((long)at < a.n) out[at] = ok ? (uint)((float)at * a.scale) : 0xffffffffu;
}

// A sum of a threadgroup by simdgroups, and one by memory that the dispatch gives.
kernel void sum(device float* out [[buffer(0)]], device const float* x [[buffer(1)]], uint i [[thread_position_in_grid]], uint g [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                uint warp [[simdgroup_index_in_threadgroup]], uint warps [[simdgroups_per_threadgroup]]) {
  threadgroup float part[32];
  float s = simd_sum(x[i]);
  if (lane == 0) part[warp] = s;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (warp == 0) {
    s = simd_sum(lane < warps ? part[lane] : 0.0f);
    if (lane == 0) out[g] = s;
  }
}
[[max_total_threads_per_threadgroup(128)]] kernel void reverse(device float* x [[buffer(0)]], threadgroup float* room [[threadgroup(1)]], uint i [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  room[i] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[i] = room[n - 1 - i];
}

// Exchanges between lanes.
kernel void lanes(device int* out [[buffer(0)]], device float* sums [[buffer(1)]], uint i [[thread_index_in_simdgroup]]) {
  int v = (int)(i * i) - 100;
  int r[16];
  r[0] = simd_shuffle(v, (ushort)(31 - i));
  r[1] = simd_shuffle_xor(v, 5);
  r[2] = simd_shuffle_up(v, 3);
  r[3] = simd_shuffle_down(v, 3);
  r[4] = simd_broadcast(v, 7);
  r[5] = simd_broadcast_first(v);
  r[6] = simd_max(v);
  r[7] = simd_min(v);
  r[8] = simd_prefix_exclusive_sum(v);
  r[9] = simd_prefix_inclusive_sum(v);
  r[10] = (int)(uint)(ulong)simd_ballot(v > 0);
  r[11] = simd_any(v == 125);
  r[12] = simd_all(v >= -100);
  r[13] = simd_and(v | 1024) + simd_or(v & 7) + simd_xor(v);
  r[14] = simd_shuffle_xor(short2(v, 2 * v), 1).y;
  r[15] = (int)simd_sum((half)i);
  for (int k = 0; k < 16; k++) out[k * 32 + (int)i] = r[k];
  sums[i] = simd_sum((float)v * 0.1f);
}

// Lanes of a simdgroup that write for each other.
kernel void neighbours(device float* x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float room[64];
  room[i] = x[i];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  x[i] = room[i ^ 1];
}

// d = a*b + c by matrices of simdgroups: a and b from device or threadgroup memory, plain
// or transposed, T by T into float.
template <class T>
inline void multiply(device float* d, device const T* a, device const T* b, threadgroup T* room, uint lane) {
  for (uint i = lane; i < 16 * 24; i += 32) room[i] = b[i];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_matrix<T, 8, 8> x, y;
  simdgroup_float8x8 c = make_filled_simdgroup_matrix<float, 8>(0.5f), sum;
  simdgroup_load(x, a, 16, ulong2(8, 4));
  simdgroup_load(y, (threadgroup const T*)room, 24, ulong2(16, 8), true);
  simdgroup_multiply_accumulate(sum, x, y, c);
  simdgroup_store(sum, d, 12, ulong2(4, 0));
  simdgroup_multiply(sum, y, x);
  simdgroup_store(sum, d + 96, 8, 0, true);
}
kernel void multiply_float(device float* d [[buffer(0)]], device const float* a [[buffer(1)]], device const float* b [[buffer(2)]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float room[16 * 24];
  multiply<float>(d, a, b, room, lane);
}
kernel void multiply_half(device float* d [[buffer(0)]], device const half* a [[buffer(1)]], device const half* b [[buffer(2)]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup half room[16 * 24];
  multiply<half>(d, a, b, room, lane);
}
#if __HAVE_BFLOAT__
kernel void multiply_bfloat(device float* d [[buffer(0)]], device const bfloat* a [[buffer(1)]], device const bfloat* b [[buffer(2)]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup bfloat room[16 * 24];
  multiply<bfloat>(d, a, b, room, lane);
}
kernel void narrow(device bfloat* out [[buffer(0)]], device const float* x [[buffer(1)]], uint i [[thread_position_in_grid]]) { out[i] = bfloat(x[i]); }
#endif

// Each operation of half rounds.
kernel void rounds(device half* out [[buffer(0)]], device const half* x [[buffer(1)]], uint i [[thread_position_in_grid]]) { out[i] = x[i] * x[i] + x[i]; }

kernel void functions(device float* out [[buffer(0)]], device const float* x [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  float v = x[i], c;
  float s = sincos(v, c);
  float r[16] = {exp(v), precise::exp2(v), fast::log(abs(v)), sqrt(fabs(v)), rsqrt(fabs(v)), tanh(v), s, c, fma(v, v, -1.0f), clamp(v, -0.5f, 0.5f), rint(v * 4), pow(fabs(v), 1.5f), floor(v), min(v, 0.25f),
                 precise::divide(1.0f, v), fmax(v, NAN)};
  for (int k = 0; k < 16; k++) out[i * 16 + k] = r[k];
}

kernel void integers(device uint* out [[buffer(0)]]) {
  uint x = 0xdeadbeefu;
  out[0] = mulhi(x, 0x9e3779b9u);
  out[1] = popcount(x);
  out[2] = clz(1u << 9);
  out[3] = ctz(1u << 9);
  out[4] = rotate(x, 8u);
  out[5] = reverse_bits(x);
  out[6] = extract_bits(x, 8, 12);
  out[7] = (uint)abs(-5) + absdiff(3u, 10u) + clamp(20u, 3u, 9u);
  out[8] = (uint)(mulhi((ulong)1 << 63, (ulong)6));
  out[9] = (uint)max(-3, 2) + min(7u, 8u);
}
