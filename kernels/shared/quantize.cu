// Weights become blocks of 64 elements with one scale on their way to the
// device, with the bytes of package quant.
//
//   q8:  scale = m/127, code = nearest multiple of it, where m is the largest
//        magnitude; the product with 127/m is rounded as a double, ties go to even
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
#include "code8.h"
#include "element.h"
#include "most.h"
#include "report.h"

#define LF_WARPS 8

// The NF4 code of x in [-1, 1]: the number of midpoints between code values
// that are below x.
LF_DEVICE uint lf_nearest_nf4(float x) {
  uint code = 0;
#pragma unroll
  for (int i = 0; i < 15; i++) code += x > (lf_nf4_book[i] + lf_nf4_book[i + 1]) / 2.0f;
  return code;
}

// The elements of a block that this lane holds, zero past the last one, and the
// largest magnitude of all 64, as bits. full is false if they are not finite,
// or there are none, so that nothing must be written.
struct lf_opened {
  float lo, hi;
  uint most;
  bool full;
};
template <class T>
LF_DEVICE lf_opened lf_open_block(lf_thread t, LF_GLOBAL const typename T::raw* x, long b, long n, LF_GLOBAL long* trap, int launch) {
  lf_opened o;
  long i = b * LF_QUANT_BLOCK + t.lane;
  o.lo = i < n ? T::get(x[i]) : 0.0f;
  o.hi = i + 32 < n ? T::get(x[i + 32]) : 0.0f;
  uint l = lf_bits(o.lo) & 0x7fffffffu, h = lf_bits(o.hi) & 0x7fffffffu;
  o.most = lf_warp_most(t, l > h ? l : h);
  o.full = o.most < 0x7f800000u;
  if (!o.full && t.lane == 0) lf_report(trap, launch, b, 0);
  o.full = o.full && b * LF_QUANT_BLOCK < n;
  return o;
}

LF_DEVICE long lf_block_number(lf_thread t) { return (long)t.group.x * LF_WARPS + t.warp; }

template <class T>
LF_DEVICE void lf_quantize_q8(lf_thread t, LF_GLOBAL uchar* out, LF_GLOBAL const typename T::raw* x, long n, LF_GLOBAL long* trap, int launch) {
  long b = lf_block_number(t);
  lf_opened o = lf_open_block<T>(t, x, b, n, trap, launch);
  if (!o.full) return; // no more exchanges follow
  LF_GLOBAL uchar* to = out + b * (LF_QUANT_BLOCK + 4);
  int lo = 0, hi = 0;
  if (o.most != 0) {
    lf_ratio r = lf_open_ratio(o.most);
    lo = lf_code8(o.lo, r), hi = lf_code8(o.hi, r);
  }
  to[t.lane] = (uchar)lo;
  to[32 + t.lane] = (uchar)hi;
  if (t.lane == 0) *(LF_GLOBAL float*)(to + LF_QUANT_BLOCK) = lf_from_bits(o.most) / 127.0f;
}

template <class T>
LF_DEVICE void lf_quantize_nf4(lf_thread t, LF_GLOBAL uchar* out, LF_GLOBAL const typename T::raw* x, long n, LF_GLOBAL long* trap, int launch) {
  long b = lf_block_number(t);
  lf_opened o = lf_open_block<T>(t, x, b, n, trap, launch);
  if (!o.full) return; // no more exchanges follow
  LF_GLOBAL uchar* to = out + b * (LF_QUANT_BLOCK / 2 + 4);
  float most = lf_from_bits(o.most), divisor = most > 1e-38f ? most : 1e-38f;
  long left = n - b * LF_QUANT_BLOCK, lane = t.lane;
  uint first, second;
  if (left >= LF_QUANT_BLOCK) {
    float reciprocal = 1.0f / divisor;
    first = lf_nearest_nf4(o.lo * reciprocal), second = lf_nearest_nf4(o.hi * reciprocal);
  } else { // codes past the end are unused and 0
    first = lane < left ? lf_nearest_nf4(o.lo / divisor) : 0;
    second = 32 + lane < left ? lf_nearest_nf4(o.hi / divisor) : 0;
  }
  to[t.lane] = (uchar)(first | second << 4);
  if (t.lane == 0) *(LF_GLOBAL float*)(to + LF_QUANT_BLOCK / 2) = most;
}

#define LF_QUANTIZE(name, T)                                                                                             \
  LF_ENTRY(LF_WARPS * 32, quantize_##name##_##T, ((uchar, out), (const lf_as_##T::raw, x), (long, trap)),                \
           ((long, n), (int, launch))) {                                                                                 \
    lf_quantize_##name<lf_as_##T>(t, out, x, n, trap, launch);                                                           \
  }
LF_QUANTIZE(q8, f32)
LF_QUANTIZE(q8, f16)
LF_QUANTIZE(q8, bf16)
LF_QUANTIZE(nf4, f32)
LF_QUANTIZE(nf4, f16)
LF_QUANTIZE(nf4, bf16)

#ifdef LF_RACE
LF_RACE_CASE(quantize) {
  auto x = lf_race_noise<float>(1000);
  std::vector<unsigned char> out(16 * 68);
  std::vector<long> trap(8);
  lf_race_launch(quantize_q8_f32, {2}, {256}, 0, out.data(), x.data(), trap.data(), 1000, 0);
  lf_race_launch(quantize_nf4_f32, {2}, {256}, 0, out.data(), x.data(), trap.data(), 1000, 0);
}
#endif
