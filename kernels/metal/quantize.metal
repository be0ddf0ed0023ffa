// Weights become blocks of 64 elements with one scale on their way to the
// device, with the bytes of package quant.
//
//   q8:  scale = m/127, code = nearest multiple of it, where m is the largest
//        magnitude; the product with 127/m is rounded as doubles are, by integers,
//        ties go to even
//   nf4: scale = m, code = the number of the code book nearest to x·(1/m), the
//        lower one half way between two; x/m in a block that is not full
//
// Layout: x [n] contiguous, consecutive blocks: q8 64 codes and the scale,
//   68 bytes; nf4 32 bytes and the scale, 36: byte j has element j in its lower
//   half and 32+j in the upper one.
// Grid: a warp for 64 elements, 256 threads for 512; lane j has the elements j
//   and 32+j.
// Traffic: x and the blocks once; bound by memory.
// Reference: for each 64 { m = max |x|; for i { code[i] = nearest(x[i], m) } }
// A block with an element that is not finite is reported, and not written.
#include "element.h"
#include "report.h"

#define LF_WARPS 8

// The larger of two magnitudes, as bits, which have the same order as the
// numbers; NaN and infinity are last.
inline uint lf_warp_most(lf_thread t, uint m) {
  for (uint o = 16; o; o >>= 1) {
    uint other = lf_shuffle_xor(t, m, o);
    m = m > other ? m : other;
  }
  return m;
}

// The NF4 code of x in [-1, 1]: the number of midpoints between code values
// that are below x.
inline uint lf_nearest_nf4(float x) {
  uint code = 0;
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
inline lf_opened lf_open_block(lf_thread t, device const typename T::raw* x, long b, long n, device long* trap, int launch) {
  lf_opened o;
  long i = b * LF_QUANT_BLOCK + t.lane;
  o.lo = i < n ? T::get(x[i]) : 0.0f;
  o.hi = i + 32 < n ? T::get(x[i + 32]) : 0.0f;
  uint l = as_type<uint>(o.lo) & 0x7fffffffu, h = as_type<uint>(o.hi) & 0x7fffffffu;
  o.most = lf_warp_most(t, l > h ? l : h);
  o.full = o.most < 0x7f800000u;
  if (!o.full && t.lane == 0) lf_report(trap, launch, b, 0);
  o.full = o.full && b * LF_QUANT_BLOCK < n;
  return o;
}

// A magnitude m·2^e that is not zero, with 24 bits in m.
struct lf_scaled {
  uint m;
  int e;
};
inline lf_scaled lf_open_bits(uint bits) {
  lf_scaled x;
  if (bits >= 0x00800000u) {
    x.m = (bits & 0x7fffffu) | 0x800000u, x.e = (int)(bits >> 23) - 150;
  } else {
    int by = (int)clz(bits) - 8;
    x.m = bits << by, x.e = -149 - by;
  }
  return x;
}

// 127/most as a double: t·2^e with 53 bits in t, to nearest, ties to even.
struct lf_ratio {
  ulong t;
  int e;
};
inline lf_ratio lf_open_ratio(uint most) {
  lf_scaled d = lf_open_bits(most);
  // Long division: 127·2^57, of 64 bits, and 13 places more: 53 or 54 bits.
  ulong first = (127ul << 57) / d.m, rest = ((127ul << 57) - first * d.m) << 13, second = rest / d.m;
  ulong q = first << 13 | second;
  bool more = rest != second * d.m;
  lf_ratio r = {q, -70 - d.e};
  if (q >> 53) { // 54 bits: the last of them and the remainder decide
    r.t = (q >> 1) + ((q & 1) && (more || (q & 2)));
    r.e += 1;
  } else {
    ulong left = rest - second * d.m;
    r.t = q + (2 * left > d.m || (2 * left == d.m && (q & 1)));
  }
  return r;
}

// v / 2^n, to nearest, ties to even; n from 1 to 63.
inline ulong lf_shift_nearest(ulong v, int n) {
  ulong half_way = 1ul << (n - 1), left = v & (2 * half_way - 1), q = v >> n;
  return q + (left > half_way || (left == half_way && (q & 1)));
}

// The nearest integer to the product of x and r, a double.
inline int lf_code8(float x, lf_ratio r) {
  uint bits = as_type<uint>(x) & 0x7fffffffu;
  if (bits == 0) return 0;
  lf_scaled s = lf_open_bits(bits);
  // 24 times 53 bits are 76 or 77; s.m goes to the top of its word, so that the upper
  // word of the product has 53 bits or 52.
  ulong m = (ulong)s.m << 40, high = mulhi(m, r.t), low = m * r.t;
  int e = s.e + r.e + 24; // high is the number of 2^e
  if (high >> 52 == 0) high = high << 1 | low >> 63, low <<= 1, e -= 1;
  // To 53 bits, as the product of doubles is…
  ulong p = high + (low > 1ul << 63 || (low == 1ul << 63 && (high & 1)));
  // …and to an integer, of 7 bits at most.
  if (e <= -54) return 0;
  int code = (int)lf_shift_nearest(p, -e);
  return as_type<int>(x) < 0 ? -code : code;
}

inline long lf_block_number(lf_thread t) { return (long)t.group.x * LF_WARPS + t.warp; }

template <class T>
inline void lf_quantize_q8(lf_thread t, device uchar* out, device const typename T::raw* x, long n, device long* trap, int launch) {
  long b = lf_block_number(t);
  lf_opened o = lf_open_block<T>(t, x, b, n, trap, launch);
  if (!o.full) return; // no more exchanges follow
  device uchar* to = out + b * (LF_QUANT_BLOCK + 4);
  int lo = 0, hi = 0;
  if (o.most != 0) {
    lf_ratio r = lf_open_ratio(o.most);
    lo = lf_code8(o.lo, r), hi = lf_code8(o.hi, r);
  }
  to[t.lane] = (uchar)lo;
  to[32 + t.lane] = (uchar)hi;
  if (t.lane == 0) *(device float*)(to + LF_QUANT_BLOCK) = as_type<float>(o.most) / 127.0f;
}

template <class T>
inline void lf_quantize_nf4(lf_thread t, device uchar* out, device const typename T::raw* x, long n, device long* trap, int launch) {
  long b = lf_block_number(t);
  lf_opened o = lf_open_block<T>(t, x, b, n, trap, launch);
  if (!o.full) return; // no more exchanges follow
  device uchar* to = out + b * (LF_QUANT_BLOCK / 2 + 4);
  float most = as_type<float>(o.most), divisor = most > 1e-38f ? most : 1e-38f;
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
  if (t.lane == 0) *(device float*)(to + LF_QUANT_BLOCK / 2) = most;
}

struct quantize_args {
  LF_ARGS;
  long n;
  int launch;
};
#define LF_QUANTIZE(name, T)                                                                          \
  LF_KERNEL(LF_WARPS * 32) quantize_##name##_##T(device uchar* out [[buffer(0)]],                     \
                                                 device const lf_as_##T::raw* x [[buffer(1)]],        \
                                                 device long* trap [[buffer(2)]],                     \
                                                 constant quantize_args& a [[buffer(3)]], LF_THREAD) { \
    LF_BEGIN;                                                                                         \
    lf_quantize_##name<lf_as_##T>(t, out, x, a.n, trap, a.launch);                                    \
  }
LF_QUANTIZE(q8, f32)
LF_QUANTIZE(q8, f16)
LF_QUANTIZE(q8, bf16)
LF_QUANTIZE(nf4, f32)
LF_QUANTIZE(nf4, f16)
LF_QUANTIZE(nf4, bf16)
