// Peak rates of a device, for benchmarks: products of simdgroup matrices and in
// float32 within registers, and memory reads. Nothing else uses these. The results
// have no meaning. They are written so that no compiler removes the work.
#include "device.h"
#if LF_SIMD
#include <metal_simdgroup_matrix>
#endif

#define LF_PEAK_THREADS 256

// noise returns bits that look random, so that power draw and clock rate are
// as with real data.
inline uint lf_noise(uint x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

// A number of 0.5 to 1, or its negative, that bf16 holds: the upper half of a float.
inline ushort lf_noise_bf16(uint x) { return (ushort)((lf_noise(x) & 0x807fu) | 0x3f00u); }

// out[thread] = sum over what the thread holds of n products of f32, f16 or bf16 with f32
// sums.
//   layout: out f32[256·groups]. grid: enough threadgroups for all cores, 8 warps with
//   16 independent sums of 8x8 each; threadgroup: 256.
//   traffic: out once. operations: 262144 n a threadgroup.
//   for i in 0..n: for a in 0..4: for b in 0..4: for k in 0..2: D[a][b] += A[a][k]·B[k][b]   (8x8 times 8x8)
// Without the type bfloat the factors of bf16 are floats; without simdgroups a thread makes
// products of floats, as many: the device has nothing faster.
struct peak_mma_args {
  LF_ARGS;
  int n;
};

#if LF_SIMD
#define LF_PEAK_NUMBERS (64 + LF_PEAK_THREADS / 32 * 16)
template <class T>
inline float lf_peak_mma(lf_thread t, threadgroup T* numbers, threadgroup float* room, int n) {
  for (uint i = t.index; i < LF_PEAK_NUMBERS; i += LF_PEAK_THREADS)
    numbers[i] = (T)as_type<float>((uint)lf_noise_bf16(t.group.x << 10 | i) << 16);
  lf_barrier();
  // Each matrix begins at another of the numbers.
  simdgroup_matrix<T, 8, 8> a[8], b[8];
  simdgroup_float8x8 d[16];
  for (uint i = 0; i < 8; i++) {
    simdgroup_load(a[i], numbers + t.warp * 16 + i, 8);
    simdgroup_load(b[i], numbers + t.warp * 16 + 8 + i, 8);
  }
  for (uint i = 0; i < 16; i++) d[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (int i = 0; i < n; i++)
    for (uint j = 0; j < 32; j++) {
      uint to = j % 16, k = j / 16;
      simdgroup_multiply_accumulate(d[to], a[to / 4 * 2 + k], b[to % 4 * 2 + k], d[to]);
    }
  float sum = 0.0f;
  room += t.warp * 64;
  for (uint i = 0; i < 16; i++) {
    simdgroup_store(d[i], room, 8);
    lf_warp_barrier();
    sum += room[t.lane] + room[t.lane + 32];
    lf_warp_barrier();
  }
  return sum;
}
#else
#define LF_PEAK_NUMBERS 1
template <class T>
inline float lf_peak_mma(lf_thread t, threadgroup T* numbers, threadgroup float* room, int n) {
  const uint id = t.group.x * LF_PEAK_THREADS + t.index;
  float a[16], b[16], d[32], sum = 0.0f;
  for (uint i = 0; i < 16; i++) {
    a[i] = as_type<float>((uint)lf_noise_bf16(32 * id + i) << 16);
    b[i] = as_type<float>((uint)lf_noise_bf16(32 * id + 16 + i) << 16);
  }
  for (uint j = 0; j < 32; j++) d[j] = 0.0f;
  for (int i = 0; i < n; i++)
    for (uint k = 0; k < 16; k++)
      for (uint j = 0; j < 32; j++) d[j] = fma(a[(j + k) % 16], b[k], d[j]);
  for (uint j = 0; j < 32; j++) sum += d[j];
  return sum;
}
#endif

#define LF_PEAK_MMA(name, T)                                                                                                  \
  LF_KERNEL(LF_PEAK_THREADS) name(device float* out [[buffer(0)]], constant peak_mma_args& args [[buffer(1)]], LF_THREAD) { \
    LF_BEGIN_OF(args);                                                                                                        \
    threadgroup T numbers[LF_PEAK_NUMBERS];                                                                                   \
    threadgroup float room[LF_PEAK_THREADS * 2];                                                                              \
    out[t.group.x * LF_PEAK_THREADS + t.index] = lf_peak_mma<T>(t, numbers, room, args.n);                                    \
  }
LF_PEAK_MMA(peak_mma_f32, float)
LF_PEAK_MMA(peak_mma_f16, half)
#if LF_BFLOAT
LF_PEAK_MMA(peak_mma_bf16, bfloat)
#else
LF_PEAK_MMA(peak_mma_bf16, float)
#endif

// out[thread] = sum of 16 numbers after n multiplications and additions of each.
//   layout, grid, threadgroup and traffic as above. operations: 8192 n a threadgroup.
//   for i in 0..n: for j in 0..16: x[j] = x[j]*a + b
struct peak_fma_args {
  LF_ARGS;
  int n;
};
LF_KERNEL(LF_PEAK_THREADS) peak_fma_f32(device float* out [[buffer(0)]], constant peak_fma_args& args [[buffer(1)]], LF_THREAD) {
  LF_BEGIN_OF(args);
  const uint id = t.group.x * LF_PEAK_THREADS + t.index;
  const float part = 1.0f / 262144.0f, whole = 1.0f / 65536.0f;
  const float a = 0.5f + (float)(lf_noise(id) & 0xffff) * part, b = 0.25f + (float)(lf_noise(~id) & 0xffff) * part;
  float x[16], sum = 0.0f;
  for (uint j = 0; j < 16; j++) x[j] = (float)(lf_noise(16 * id + j) & 0xffff) * whole;
  for (int i = 0; i < args.n; i++)
    for (uint j = 0; j < 16; j++) x[j] = fma(x[j], a, b);
  for (uint j = 0; j < 16; j++) sum += x[j];
  out[id] = sum;
}

// out[thread] = the exclusive or of the words that the thread reads.
//   layout: x u128[n], 16-byte aligned; out u32[256·groups]. grid: any; threadgroup: 256.
//   traffic: 16 n bytes, four loads under way at a time, and out.
//   for i in thread..n step threads: out[thread] ^= each word of x[i]
struct peak_read_args {
  LF_ARGS;
  long n;
};
LF_KERNEL(LF_PEAK_THREADS) peak_read(device uint* out [[buffer(0)]], device const uint4* x [[buffer(1)]],
                                     constant peak_read_args& args [[buffer(2)]], LF_THREAD) {
  LF_BEGIN_OF(args);
  const long id = (long)t.group.x * LF_PEAK_THREADS + t.index, step = (long)t.groups.x * LF_PEAK_THREADS, n = args.n;
  uint4 sum = uint4(0, 0, 0, 0);
  long i = id;
  for (; i + 3 * step < n; i += 4 * step) {
    const uint4 a = x[i], b = x[i + step], c = x[i + 2 * step], d = x[i + 3 * step];
    sum ^= a ^ b ^ c ^ d;
  }
  for (; i < n; i += step) sum ^= x[i];
  out[id] = sum.x ^ sum.y ^ sum.z ^ sum.w;
}
