// Weights become blocks of 64 elements with one scale on their way to the
// device, with the bytes of package quant.
//
//   q8:  scale = m/127, code = nearest multiple of it, where m is the largest
//        magnitude; the product with 127/m is double, ties go to even
//   nf4: scale = m, code = the number of the code book nearest to x·(1/m), the
//        lower one half way between two; x/m in a block that is not full
//
// Layout: x [n] contiguous, consecutive blocks: q8 64 codes and the scale,
//   68 bytes; nf4 32 bytes and the scale, 36: byte j has element j in its lower
//   half and 32+j in the upper one.
// Grid: a warp for 64 elements, 256 threads for 512; lane j has the elements j
//   and 32+j.
// Traffic: x and the blocks once; bound by memory.
// Registers: 24 (nf4) and 28 (q8) on sm_80 and sm_90a.
// Reference: for each 64 { m = max |x|; for i { code[i] = nearest(x[i], m) } }
// A block with an element that is not finite is reported, and not written.
#include "element.h"
#include "report.cuh"

#define LF_WARPS 8

// The larger of two magnitudes, as bits, which have the same order as the
// numbers; NaN and infinity are last.
LF_DEVICE unsigned lf_warp_most(unsigned m) {
#pragma unroll
  for (int o = 16; o; o >>= 1) {
    unsigned other = __shfl_xor_sync(0xffffffffu, m, o);
    m = m > other ? m : other;
  }
  return m;
}

// The NF4 code of x in [-1, 1]: the number of midpoints between code values
// that are below x.
LF_DEVICE unsigned lf_nearest_nf4(float x) {
  unsigned code = 0;
#pragma unroll
  for (int i = 0; i < 15; i++) code += x > (lf_nf4(i) + lf_nf4(i + 1)) / 2.0f;
  return code;
}

// The elements of a block that this lane holds, zero past the last one, and the
// largest magnitude of all 64. Returns false if they are not finite, or there
// are none.
template <class T>
LF_DEVICE bool lf_open_block(const typename T::raw* x, long long b, long long n, float& lo, float& hi, float& most, long long* trap, int launch) {
  if (b * LF_QUANT_BLOCK >= n) return false;
  long long i = b * LF_QUANT_BLOCK + (threadIdx.x & 31);
  lo = i < n ? T::get(x[i]) : 0.0f;
  hi = i + 32 < n ? T::get(x[i + 32]) : 0.0f;
  unsigned l = __float_as_uint(lo) & 0x7fffffffu, h = __float_as_uint(hi) & 0x7fffffffu;
  unsigned m = lf_warp_most(l > h ? l : h);
  most = __uint_as_float(m);
  if (m < 0x7f800000u) return true;
  if ((threadIdx.x & 31) == 0) lf_report(trap, launch, b, 0);
  return false;
}

#define LF_BLOCK_NUMBER ((long long)blockIdx.x * LF_WARPS + threadIdx.x / 32)

template <class T>
LF_DEVICE void lf_quantize_q8(unsigned char* out, const typename T::raw* x, long long n, long long* trap, int launch) {
  long long b = LF_BLOCK_NUMBER;
  float lo, hi, most;
  if (!lf_open_block<T>(x, b, n, lo, hi, most, trap, launch)) return;
  unsigned char* to = out + b * (LF_QUANT_BLOCK + 4);
  int lane = threadIdx.x & 31;
  double times = most == 0.0f ? 0.0 : 127.0 / (double)most;
  to[lane] = (unsigned char)(int)rint((double)lo * times);
  to[32 + lane] = (unsigned char)(int)rint((double)hi * times);
  if (lane == 0) *(float*)(to + LF_QUANT_BLOCK) = most / 127.0f;
}

template <class T>
LF_DEVICE void lf_quantize_nf4(unsigned char* out, const typename T::raw* x, long long n, long long* trap, int launch) {
  long long b = LF_BLOCK_NUMBER;
  float lo, hi, most;
  if (!lf_open_block<T>(x, b, n, lo, hi, most, trap, launch)) return;
  unsigned char* to = out + b * (LF_QUANT_BLOCK / 2 + 4);
  int lane = threadIdx.x & 31;
  float divisor = most > 1e-38f ? most : 1e-38f;
  long long left = n - b * LF_QUANT_BLOCK;
  unsigned first, second;
  if (left >= LF_QUANT_BLOCK) {
    float reciprocal = 1.0f / divisor;
    first = lf_nearest_nf4(lo * reciprocal), second = lf_nearest_nf4(hi * reciprocal);
  } else { // codes past the end are unused and 0
    first = lane < left ? lf_nearest_nf4(lo / divisor) : 0;
    second = 32 + lane < left ? lf_nearest_nf4(hi / divisor) : 0;
  }
  to[lane] = (unsigned char)(first | second << 4);
  if (lane == 0) *(float*)(to + LF_QUANT_BLOCK / 2) = most;
}

#define LF_QUANTIZE(name, T)                                                                                             \
  extern "C" __global__ void __launch_bounds__(LF_WARPS * 32)                                                            \
      quantize_##name##_##T(unsigned char* out, const lf_as_##T::raw* x, long long n, long long* trap, int launch) {     \
    lf_quantize_##name<lf_as_##T>(out, x, n, trap, launch);                                                              \
  }                                                                                                                      \
  LF_KERNEL(quantize_##name##_##T);
LF_QUANTIZE(q8, f32)
LF_QUANTIZE(q8, f16)
LF_QUANTIZE(q8, bf16)
LF_QUANTIZE(nf4, f32)
LF_QUANTIZE(nf4, f16)
LF_QUANTIZE(nf4, bf16)

#ifdef LF_RACE
#include "../sim/test/race.h"
LF_RACE_CASE(quantize) {
  auto x = lf_race_noise<float>(1000);
  std::vector<unsigned char> out(16 * 68);
  std::vector<long long> trap(8);
  lf_race_launch(quantize_q8_f32, {2}, {256}, 0, out.data(), x.data(), 1000, trap.data(), 0);
  lf_race_launch(quantize_nf4_f32, {2}, {256}, 0, out.data(), x.data(), 1000, trap.data(), 0);
}
#endif
