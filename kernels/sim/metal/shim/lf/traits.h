// The parts of <metal_type_traits> and <metal_limits> that kernels use.
#pragma once

namespace metal {

template <class T, T V>
struct integral_constant {
  static constexpr T value = V;
};
typedef integral_constant<bool, true> true_type;
typedef integral_constant<bool, false> false_type;

template <bool, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  typedef T type;
};
template <bool B, class T = void>
using enable_if_t = typename enable_if<B, T>::type;

template <bool, class A, class B>
struct conditional {
  typedef A type;
};
template <class A, class B>
struct conditional<false, A, B> {
  typedef B type;
};
template <bool C, class A, class B>
using conditional_t = typename conditional<C, A, B>::type;

template <class A, class B>
struct is_same : false_type {};
template <class A>
struct is_same<A, A> : true_type {};
template <class A, class B>
constexpr bool is_same_v = is_same<A, B>::value;

template <class T>
struct is_floating_point : integral_constant<bool, __is_floating_point(T)> {};
template <class T>
constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <class T>
struct is_integral : integral_constant<bool, __is_integral(T)> {};
template <class T>
constexpr bool is_integral_v = is_integral<T>::value;

template <class T>
struct numeric_limits;
#define LF_LIMITS(T, LOW, HIGH)                \
  template <>                                  \
  struct numeric_limits<T> {                   \
    static constexpr T min() { return LOW; }    \
    static constexpr T lowest() { return LOW; } \
    static constexpr T max() { return HIGH; }   \
  };
LF_LIMITS(char, -128, 127)
LF_LIMITS(uchar, 0, 255)
LF_LIMITS(short, -32768, 32767)
LF_LIMITS(ushort, 0, 65535)
LF_LIMITS(int, -2147483647 - 1, 2147483647)
LF_LIMITS(uint, 0, 4294967295u)
LF_LIMITS(long, -9223372036854775807l - 1, 9223372036854775807l)
LF_LIMITS(ulong, 0, 18446744073709551615ul)
#undef LF_LIMITS
template <>
struct numeric_limits<float> {
  static constexpr float min() { return 0x1p-126f; }
  static constexpr float max() { return 0x1.fffffep127f; }
  static constexpr float lowest() { return -0x1.fffffep127f; }
  static constexpr float epsilon() { return 0x1p-23f; }
  static constexpr float infinity() { return __builtin_inff(); }
  static constexpr float quiet_NaN() { return __builtin_nanf(""); }
};
template <>
struct numeric_limits<half> {
  static constexpr half min() { return (half)0x1p-14f; }
  static constexpr half max() { return (half)65504.0f; }
  static constexpr half lowest() { return (half)-65504.0f; }
  static constexpr half epsilon() { return (half)0x1p-10f; }
  static constexpr half infinity() { return (half)__builtin_inff(); }
  static constexpr half quiet_NaN() { return (half)__builtin_nanf(""); }
};

}  // namespace metal
