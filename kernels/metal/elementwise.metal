// Elementwise operations: out[i] = f(x[i], y[i]).
//
// Layout: values are contiguous; an operand that is repeated has strides of 0
//   over the output's shape [*, d1, d2, d3], whose axes the host has joined
//   where it could. Without repetition d1 = d2 = d3 = 1 and the stride is 1.
// Grid: a threadgroup of 256 threads for 1024 elements.
// Traffic: each operand and the output once; bound by memory.
// Reference: for i { out[i] = f(x[place(i)], y[place(i)]) }
// An operand that is not repeated may share the memory of the output.
#include "element.h"

struct fill_b4_args {
  LF_ARGS;
  uint value;
  long n;
};
LF_KERNEL(LF_THREADS) fill_b4(device uint* out [[buffer(0)]], constant fill_b4_args& a [[buffer(1)]], LF_THREAD) {
  LF_BEGIN;
  LF_EACH(i, a.n) out[i] = a.value;
}

struct fill_b1_args {
  LF_ARGS;
  int value;
  long n;
};
LF_KERNEL(LF_THREADS) fill_b1(device uchar* out [[buffer(0)]], constant fill_b1_args& a [[buffer(1)]], LF_THREAD) {
  LF_BEGIN;
  LF_EACH(i, a.n) out[i] = (uchar)a.value;
}

// The index along an axis of count elements, each of which spans inner.
struct iota_args {
  LF_ARGS;
  long n, inner, count;
};
LF_KERNEL(LF_THREADS) iota_i32(device int* out [[buffer(0)]], constant iota_args& a [[buffer(1)]], LF_THREAD) {
  LF_BEGIN;
  if (a.n >> 32 == 0) { // then all of them are numbers of 32 bits
    LF_EACH(i, a.n) out[i] = (int)((uint)i / (uint)a.inner % (uint)a.count);
  } else {
    LF_EACH(i, a.n) out[i] = (int)(i / a.inner % a.count);
  }
}

// tanh x = x (1 − x²/3 + …): below 2^-12 that is x, and from 10 on it is 1, where
// quotients of exponentials would overflow.
inline float lf_tanh(float x) {
  float m = fabs(x);
  if (m < 0.000244140625f) return x;
  return m > 10.0f ? copysign(1.0f, x) : precise::tanh(x);
}

// erf x = x + x p(x²) below 0.92, and 1 − exp(−q(x)) above: p and q are the
// polynomials of degree 6 nearest to erf(√u)/√u − 1 and −ln(1 − erf x) (Remez; the
// second in parts of 1 − erf x), to 2^-29 of erf. In all within 1.1 units of the last
// place, where exp is exact. From 3.95 on 1 is the nearest number.
inline float lf_erf(float x) {
  float m = fabs(x);
  if (!(m >= 0.92f)) {
    float u = x * x, p = 8.39729088e-05f;
    p = fma(p, u, -0.000814968832f);
    p = fma(p, u, 0.00520170588f);
    p = fma(p, u, -0.0268596982f);
    p = fma(p, u, 0.112837015f);
    p = fma(p, u, -0.376126342f);
    p = fma(p, u, 0.128379167f);
    return fma(x, p, x);
  }
  if (m > 3.95f) return copysign(1.0f, x);
  float q = -0.000194945687f;
  q = fma(q, m, 0.00303368257f);
  q = fma(q, m, -0.02218974f);
  q = fma(q, m, 0.103856303f);
  q = fma(q, m, 0.637265829f);
  q = fma(q, m, 1.12762736f);
  q = fma(q, m, 0.000207018233f);
  return copysign(1.0f - precise::exp(-q), x);
}

struct unary_args {
  LF_ARGS;
  long n;
};
#define LF_UNARY(name, f)                                                                             \
  LF_KERNEL(LF_THREADS) unary_##name##_f32(device float* out [[buffer(0)]], device const float* x [[buffer(1)]], \
                                           constant unary_args& a [[buffer(2)]], LF_THREAD) {         \
    LF_BEGIN;                                                                                         \
    LF_EACH(i, a.n) {                                                                                 \
      float v = x[i];                                                                                 \
      out[i] = f;                                                                                     \
    }                                                                                                 \
  }
LF_UNARY(neg, -v)
LF_UNARY(exp, precise::exp(v))
LF_UNARY(log, precise::log(v))
LF_UNARY(sqrt, precise::sqrt(v))
LF_UNARY(rsqrt, 1.0f / precise::sqrt(v))
LF_UNARY(reciprocal, 1.0f / v)
LF_UNARY(tanh, lf_tanh(v))
LF_UNARY(sigmoid, 1.0f / (1.0f + precise::exp(-v)))
LF_UNARY(erf, lf_erf(v))
LF_UNARY(sin, precise::sin(v))
LF_UNARY(cos, precise::cos(v))
LF_UNARY(abs, fabs(v))
LF_UNARY(isfinite, (as_type<uint>(v) & 0x7f800000u) != 0x7f800000u ? 1.0f : 0.0f)

// NaN wins, and of two zeros that of the right sign.
inline float lf_max(float a, float b) {
  if (a != a) return a;
  if (b != b) return b;
  if (a == b) return as_type<float>(as_type<uint>(a) & as_type<uint>(b));
  return a > b ? a : b;
}
inline float lf_min(float a, float b) {
  if (a != a) return a;
  if (b != b) return b;
  if (a == b) return as_type<float>(as_type<uint>(a) | as_type<uint>(b));
  return a < b ? a : b;
}
inline int lf_max(int a, int b) { return a > b ? a : b; }
inline int lf_min(int a, int b) { return a < b ? a : b; }
inline uint lf_max(uint a, uint b) { return a > b ? a : b; }
inline uint lf_min(uint a, uint b) { return a < b ? a : b; }

// Integers wrap around as unsigned numbers do.
inline int lf_add(int a, int b) { return (int)((uint)a + (uint)b); }
inline int lf_sub(int a, int b) { return (int)((uint)a - (uint)b); }
inline int lf_mul(int a, int b) { return (int)((uint)a * (uint)b); }
template <class T>
inline T lf_add(T a, T b) { return a + b; }
template <class T>
inline T lf_sub(T a, T b) { return a - b; }
template <class T>
inline T lf_mul(T a, T b) { return a * b; }

struct pair_args {
  LF_ARGS;
  long n;
  int d1, d2, d3;
  LF_STRIDES(x);
  LF_STRIDES(y);
};
#define LF_PAIR(name, O, T, f)                                                                            \
  LF_KERNEL(LF_THREADS) name(device O* out [[buffer(0)]], device const T* x [[buffer(1)]],                \
                             device const T* y [[buffer(2)]], constant pair_args& s [[buffer(3)]], LF_THREAD) { \
    LF_BEGIN;                                                                                             \
    LF_EACH(i, s.n) {                                                                                     \
      lf_place p = lf_split(i, s.d1, s.d2, s.d3);                                                         \
      T a = x[LF_AT(p, s, x)], b = y[LF_AT(p, s, y)];                                                     \
      out[i] = f;                                                                                         \
    }                                                                                                     \
  }
#define LF_BINARY(suffix, T)                           \
  LF_PAIR(binary_add_##suffix, T, T, lf_add(a, b))     \
  LF_PAIR(binary_sub_##suffix, T, T, lf_sub(a, b))     \
  LF_PAIR(binary_mul_##suffix, T, T, lf_mul(a, b))     \
  LF_PAIR(binary_max_##suffix, T, T, lf_max(a, b))     \
  LF_PAIR(binary_min_##suffix, T, T, lf_min(a, b))     \
  LF_PAIR(compare_less_##suffix, uchar, T, a < b)          \
  LF_PAIR(compare_lessequal_##suffix, uchar, T, a <= b)    \
  LF_PAIR(compare_equal_##suffix, uchar, T, a == b)        \
  LF_PAIR(compare_notequal_##suffix, uchar, T, a != b)     \
  LF_PAIR(compare_greaterequal_##suffix, uchar, T, a >= b) \
  LF_PAIR(compare_greater_##suffix, uchar, T, a > b)
LF_BINARY(f32, float)
LF_BINARY(i32, int)
LF_BINARY(u32, uint)
LF_PAIR(binary_div_f32, float, float, a / b)

// out = c ? x : y, on the bits of elements.
struct where_args {
  LF_ARGS;
  long n;
  int d1, d2, d3;
  LF_STRIDES(c);
  LF_STRIDES(x);
  LF_STRIDES(y);
};
#define LF_WHERE(name, T)                                                                                 \
  LF_KERNEL(LF_THREADS) name(device T* out [[buffer(0)]], device const uchar* c [[buffer(1)]],            \
                             device const T* x [[buffer(2)]], device const T* y [[buffer(3)]],            \
                             constant where_args& a [[buffer(4)]], LF_THREAD) {                           \
    LF_BEGIN;                                                                                             \
    LF_EACH(i, a.n) {                                                                                     \
      lf_place p = lf_split(i, a.d1, a.d2, a.d3);                                                         \
      out[i] = c[LF_AT(p, a, c)] ? x[LF_AT(p, a, x)] : y[LF_AT(p, a, y)];                                 \
    }                                                                                                     \
  }
LF_WHERE(where_b4, uint)
LF_WHERE(where_b1, uchar)
