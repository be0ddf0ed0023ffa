// <metal_math>: the precise functions call the C library. Metal has no erf, and
// none is offered here. Arguments of mixed types do not compile, as in Metal.
#pragma once

extern "C" float exp10f(float);

namespace metal {

// One argument: float and half, and vectors of them.
#define LF_MATH1(name, expression)                                        \
  inline float name(float x) { return expression; }                       \
  inline half name(half h) {                                              \
    float x = (float)h;                                                   \
    return (half)(expression);                                            \
  }                                                                       \
  template <class T, int N>                                               \
  inline vec<T, N> name(vec<T, N> v) {        \
    for (int i = 0; i < N; i++) v[i] = name((T)v[i]);                     \
    return v;                                                             \
  }
LF_MATH1(acos, __builtin_acosf(x))
LF_MATH1(acosh, __builtin_acoshf(x))
LF_MATH1(asin, __builtin_asinf(x))
LF_MATH1(asinh, __builtin_asinhf(x))
LF_MATH1(atan, __builtin_atanf(x))
LF_MATH1(atanh, __builtin_atanhf(x))
LF_MATH1(ceil, __builtin_ceilf(x))
LF_MATH1(cos, __builtin_cosf(x))
LF_MATH1(cosh, __builtin_coshf(x))
LF_MATH1(exp, __builtin_expf(x))
LF_MATH1(exp2, __builtin_exp2f(x))
LF_MATH1(exp10, ::exp10f(x))
LF_MATH1(fabs, __builtin_fabsf(x))
LF_MATH1(floor, __builtin_floorf(x))
LF_MATH1(fract, __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f))
LF_MATH1(log, __builtin_logf(x))
LF_MATH1(log2, __builtin_log2f(x))
LF_MATH1(log10, __builtin_log10f(x))
LF_MATH1(rint, __builtin_rintf(x))
LF_MATH1(round, __builtin_roundf(x))
LF_MATH1(rsqrt, 1.0f / __builtin_sqrtf(x))
LF_MATH1(saturate, x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f)
LF_MATH1(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? x : 0.0f)
LF_MATH1(sin, __builtin_sinf(x))
LF_MATH1(sinh, __builtin_sinhf(x))
LF_MATH1(sqrt, __builtin_sqrtf(x))
LF_MATH1(tan, __builtin_tanf(x))
LF_MATH1(tanh, __builtin_tanhf(x))
LF_MATH1(trunc, __builtin_truncf(x))
#undef LF_MATH1
inline float abs(float x) { return __builtin_fabsf(x); }
inline half abs(half x) { return (half)__builtin_fabsf((float)x); }

#define LF_MATH2(name, expression)                                                                      \
  inline float name(float x, float y) { return expression; }                                            \
  inline half name(half h, half g) {                                                                    \
    float x = (float)h, y = (float)g;                                                                   \
    return (half)(expression);                                                                          \
  }                                                                                                     \
  template <class T, int N>                                                                             \
  inline vec<T, N> name(vec<T, N> v, vec<T, N> w) { \
    for (int i = 0; i < N; i++) v[i] = name((T)v[i], (T)w[i]);                                          \
    return v;                                                                                           \
  }
LF_MATH2(atan2, __builtin_atan2f(x, y))
LF_MATH2(copysign, __builtin_copysignf(x, y))
LF_MATH2(fdim, __builtin_fdimf(x, y))
LF_MATH2(fmax, __builtin_fmaxf(x, y))
LF_MATH2(fmin, __builtin_fminf(x, y))
LF_MATH2(fmod, __builtin_fmodf(x, y))
LF_MATH2(pow, __builtin_powf(x, y))
LF_MATH2(powr, __builtin_powf(x, y))
LF_MATH2(step, y < x ? 0.0f : 1.0f)
LF_MATH2(max, __builtin_fmaxf(x, y))
LF_MATH2(min, __builtin_fminf(x, y))
#undef LF_MATH2

#define LF_MATH3(name, expression)                                                                      \
  inline float name(float x, float y, float z) { return expression; }                                   \
  inline half name(half h, half g, half f) {                                                            \
    float x = (float)h, y = (float)g, z = (float)f;                                                     \
    return (half)(expression);                                                                          \
  }                                                                                                     \
  template <class T, int N>                                                                             \
  inline vec<T, N> name(vec<T, N> v, vec<T, N> w, vec<T, N> u) { \
    for (int i = 0; i < N; i++) v[i] = name((T)v[i], (T)w[i], (T)u[i]);                                 \
    return v;                                                                                           \
  }
LF_MATH3(fma, __builtin_fmaf(x, y, z))
LF_MATH3(clamp, __builtin_fminf(__builtin_fmaxf(x, y), z))
LF_MATH3(mix, x + (y - x) * z)
#undef LF_MATH3

inline float ldexp(float x, int k) { return __builtin_ldexpf(x, k); }
inline float sincos(float x, float& c) {
  c = __builtin_cosf(x);
  return __builtin_sinf(x);
}
inline float frexp(float x, int& e) { return __builtin_frexpf(x, &e); }
inline float modf(float x, float& whole) { return __builtin_modff(x, &whole); }
inline float nextafter(float x, float y) { return __builtin_nextafterf(x, y); }

#define LF_TEST(name, expression)                     \
  inline bool name(float x) { return expression; }    \
  inline bool name(half x) { return name((float)x); }
LF_TEST(isnan, __builtin_isnan(x))
LF_TEST(isinf, __builtin_isinf(x))
LF_TEST(isfinite, __builtin_isfinite(x))
LF_TEST(isnormal, __builtin_isnormal(x))
LF_TEST(signbit, __builtin_signbit(x))
#undef LF_TEST

template <class T>
inline T select(T a, T b, bool c) {
  return c ? b : a;
}
template <class T, class C, int N>
inline vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<C, N> c) {
  for (int i = 0; i < N; i++) a[i] = c[i] ? b[i] : a[i];
  return a;
}
template <class T, int N>
inline bool any(vec<T, N> v) {
  bool r = false;
  for (int i = 0; i < N; i++) r |= v[i] != 0;
  return r;
}
template <class T, int N>
inline bool all(vec<T, N> v) {
  bool r = true;
  for (int i = 0; i < N; i++) r &= v[i] != 0;
  return r;
}
template <class T, int N>
inline T dot(vec<T, N> a, vec<T, N> b) {
  T s = a[0] * b[0];
  for (int i = 1; i < N; i++) s += a[i] * b[i];
  return s;
}
template <int N>
inline float length(vec<float, N> a) {
  return sqrt(dot(a, a));
}

// The functions that exist in both forms, for float.
#define LF_FORMS1(F) F(acos) F(acosh) F(asin) F(asinh) F(atan) F(atanh) F(ceil) F(cos) F(cosh) F(exp) F(exp2) F(exp10) F(fabs) F(floor) F(fract) \
  F(log) F(log2) F(log10) F(rint) F(round) F(rsqrt) F(saturate) F(sin) F(sinh) F(sqrt) F(tan) F(tanh) F(trunc)
#define LF_FORMS2(F) F(atan2) F(fmax) F(fmin) F(fmod) F(pow) F(powr) F(max) F(min)
#define LF_FORM1(name) \
  inline float name(float x) { return metal::name(x); }
#define LF_FORM2(name) \
  inline float name(float x, float y) { return metal::name(x, y); }
namespace precise {
LF_FORMS1(LF_FORM1)
LF_FORMS2(LF_FORM2)
inline float divide(float x, float y) { return x / y; }
inline float clamp(float x, float y, float z) { return metal::clamp(x, y, z); }
inline float sincos(float x, float& c) { return metal::sincos(x, c); }
}  // namespace precise
namespace fast {
LF_FORMS1(LF_FORM1)
LF_FORMS2(LF_FORM2)
inline float divide(float x, float y) { return x / y; }
inline float clamp(float x, float y, float z) { return metal::clamp(x, y, z); }
inline float sincos(float x, float& c) { return metal::sincos(x, c); }
}  // namespace fast
#undef LF_FORMS1
#undef LF_FORMS2
#undef LF_FORM1
#undef LF_FORM2

}  // namespace metal

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VALF __builtin_inff()
#define MAXFLOAT 0x1.fffffep127f
#define FLT_MAX 0x1.fffffep127f
#define FLT_MIN 0x1p-126f
#define FLT_EPSILON 0x1p-23f
#define HALF_MAX ((half)65504.0f)
#define M_E_F 2.71828182845904523536028747135266250f
#define M_LOG2E_F 1.44269504088896340735992468100189214f
#define M_LOG10E_F 0.434294481903251827651128918916605082f
#define M_LN2_F 0.693147180559945309417232121458176568f
#define M_LN10_F 2.30258509299404568401799145468436421f
#define M_PI_F 3.14159265358979323846264338327950288f
#define M_PI_2_F 1.57079632679489661923132169163975144f
#define M_PI_4_F 0.785398163397448309615660845819875721f
#define M_1_PI_F 0.318309886183790671537767526745028724f
#define M_2_PI_F 0.636619772367581343075535053490057448f
#define M_2_SQRTPI_F 1.12837916709551257389615890312154517f
#define M_SQRT2_F 1.41421356237309504880168872420969808f
#define M_SQRT1_2_F 0.707106781186547524400844362104849039f
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define LONG_MAX 9223372036854775807l
#define LONG_MIN (-9223372036854775807l - 1)
#define ULONG_MAX 18446744073709551615ul
