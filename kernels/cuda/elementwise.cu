// Elementwise operations: out[i] = f(x[i], y[i]).
//
// Layout: values are contiguous; an operand that is repeated has strides of 0
//   over the output's shape [*, d1, d2, d3], whose axes the host has joined
//   where it could. Without repetition d1 = d2 = d3 = 1 and the stride is 1.
// Grid: a block of 256 threads for 1024 elements.
// Traffic: each operand and the output once; bound by memory.
// Reference: for i { out[i] = f(x[place(i)], y[place(i)]) }
// An operand that is not repeated may share the memory of the output.
#include "element.cuh"

#define LF_FILL(name, T)                                                                             \
  extern "C" __global__ void __launch_bounds__(LF_THREADS) name(T* out, T value, long long n) { \
    LF_EACH(i, n) out[i] = value;                                                                    \
  }                                                                                                  \
  LF_KERNEL(name);
LF_FILL(fill_b4, unsigned)

extern "C" __global__ void __launch_bounds__(LF_THREADS) fill_b1(unsigned char* out, int value, long long n) {
  LF_EACH(i, n) out[i] = (unsigned char)value;
}
LF_KERNEL(fill_b1);

// The index along an axis of count elements, each of which spans inner.
extern "C" __global__ void __launch_bounds__(LF_THREADS) iota_i32(int* out, long long n, long long inner, long long count) {
  LF_EACH(i, n) out[i] = (int)(i / inner % count);
}
LF_KERNEL(iota_i32);

#define LF_UNARY(name, f)                                                                                               \
  extern "C" __global__ void __launch_bounds__(LF_THREADS) unary_##name##_f32(float* out, const float* x, long long n) { \
    LF_EACH(i, n) {                                                                                                     \
      float v = x[i];                                                                                                   \
      out[i] = f;                                                                                                       \
    }                                                                                                                   \
  }                                                                                                                     \
  LF_KERNEL(unary_##name##_f32);
LF_UNARY(neg, -v)
LF_UNARY(exp, expf(v))
LF_UNARY(log, logf(v))
LF_UNARY(sqrt, sqrtf(v))
LF_UNARY(rsqrt, 1.0f / sqrtf(v))
LF_UNARY(reciprocal, 1.0f / v)
LF_UNARY(tanh, tanhf(v))
LF_UNARY(sigmoid, 1.0f / (1.0f + expf(-v)))
LF_UNARY(erf, erff(v))
LF_UNARY(sin, sinf(v))
LF_UNARY(cos, cosf(v))
LF_UNARY(abs, fabsf(v))
LF_UNARY(isfinite, (__float_as_uint(v) & 0x7f800000u) != 0x7f800000u ? 1.0f : 0.0f)

// NaN wins, and of two zeros that of the right sign.
LF_DEVICE float lf_max(float a, float b) {
  if (a != a) return a;
  if (b != b) return b;
  if (a == b) return __uint_as_float(__float_as_uint(a) & __float_as_uint(b));
  return a > b ? a : b;
}
LF_DEVICE float lf_min(float a, float b) {
  if (a != a) return a;
  if (b != b) return b;
  if (a == b) return __uint_as_float(__float_as_uint(a) | __float_as_uint(b));
  return a < b ? a : b;
}
LF_DEVICE int lf_max(int a, int b) { return a > b ? a : b; }
LF_DEVICE int lf_min(int a, int b) { return a < b ? a : b; }
LF_DEVICE unsigned lf_max(unsigned a, unsigned b) { return a > b ? a : b; }
LF_DEVICE unsigned lf_min(unsigned a, unsigned b) { return a < b ? a : b; }

// Integers wrap around as unsigned numbers do.
LF_DEVICE int lf_add(int a, int b) { return (int)((unsigned)a + (unsigned)b); }
LF_DEVICE int lf_sub(int a, int b) { return (int)((unsigned)a - (unsigned)b); }
LF_DEVICE int lf_mul(int a, int b) { return (int)((unsigned)a * (unsigned)b); }
template <class T>
LF_DEVICE T lf_add(T a, T b) { return a + b; }
template <class T>
LF_DEVICE T lf_sub(T a, T b) { return a - b; }
template <class T>
LF_DEVICE T lf_mul(T a, T b) { return a * b; }

#define LF_PAIR(name, O, T, f)                                                                             \
  extern "C" __global__ void __launch_bounds__(LF_THREADS)                                                 \
      name(O* out, const T* x, const T* y, long long n, int d1, int d2, int d3, LF_STRIDES(x), LF_STRIDES(y)) { \
    LF_EACH(i, n) {                                                                                        \
      lf_place p = lf_split(i, d1, d2, d3);                                                                \
      T a = x[LF_AT(p, x)], b = y[LF_AT(p, y)];                                                            \
      out[i] = f;                                                                                          \
    }                                                                                                      \
  }                                                                                                        \
  LF_KERNEL(name);
#define LF_BINARY(suffix, T)                           \
  LF_PAIR(binary_add_##suffix, T, T, lf_add(a, b))     \
  LF_PAIR(binary_sub_##suffix, T, T, lf_sub(a, b))     \
  LF_PAIR(binary_mul_##suffix, T, T, lf_mul(a, b))     \
  LF_PAIR(binary_max_##suffix, T, T, lf_max(a, b))     \
  LF_PAIR(binary_min_##suffix, T, T, lf_min(a, b))     \
  LF_PAIR(compare_less_##suffix, unsigned char, T, a < b)          \
  LF_PAIR(compare_lessequal_##suffix, unsigned char, T, a <= b)    \
  LF_PAIR(compare_equal_##suffix, unsigned char, T, a == b)        \
  LF_PAIR(compare_notequal_##suffix, unsigned char, T, a != b)     \
  LF_PAIR(compare_greaterequal_##suffix, unsigned char, T, a >= b) \
  LF_PAIR(compare_greater_##suffix, unsigned char, T, a > b)
LF_BINARY(f32, float)
LF_BINARY(i32, int)
LF_BINARY(u32, unsigned)
LF_PAIR(binary_div_f32, float, float, a / b)

// out = c ? x : y, on the bits of elements.
#define LF_WHERE(name, T)                                                                                       \
  extern "C" __global__ void __launch_bounds__(LF_THREADS)                                                      \
      name(T* out, const unsigned char* c, const T* x, const T* y, long long n, int d1, int d2, int d3,         \
           LF_STRIDES(c), LF_STRIDES(x), LF_STRIDES(y)) {                                                       \
    LF_EACH(i, n) {                                                                                             \
      lf_place p = lf_split(i, d1, d2, d3);                                                                     \
      out[i] = c[LF_AT(p, c)] ? x[LF_AT(p, x)] : y[LF_AT(p, y)];                                                \
    }                                                                                                           \
  }                                                                                                             \
  LF_KERNEL(name);
LF_WHERE(where_b4, unsigned)
LF_WHERE(where_b1, unsigned char)
