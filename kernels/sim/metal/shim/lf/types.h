// Metal's scalar and vector types, and constructors of vectors: the rewriter makes
// msl_make<float4>(…) of float4(…).
#pragma once

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef _Float16 half;
#if __METAL_VERSION__ >= 310 && !__LF_NO_BFLOAT
#define LF_HAS_BFLOAT 1
typedef __bf16 bfloat;
#endif

// Vectors of three are padded to four; packed ones have the alignment of an element.
#define LF_VECTORS(T)                                                        \
  typedef T T##2 __attribute__((ext_vector_type(2)));                        \
  typedef T T##3 __attribute__((ext_vector_type(3)));                        \
  typedef T T##4 __attribute__((ext_vector_type(4)));                        \
  typedef T packed_##T##2 __attribute__((ext_vector_type(2), aligned(sizeof(T)))); \
  typedef T packed_##T##4 __attribute__((ext_vector_type(4), aligned(sizeof(T))));
LF_VECTORS(char)
LF_VECTORS(uchar)
LF_VECTORS(short)
LF_VECTORS(ushort)
LF_VECTORS(int)
LF_VECTORS(uint)
LF_VECTORS(long)
LF_VECTORS(ulong)
LF_VECTORS(float)
LF_VECTORS(half)
#if LF_HAS_BFLOAT
LF_VECTORS(bfloat)
#endif
#undef LF_VECTORS

namespace metal {
template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));
}

// msl_element is the element and the number of elements of a vector; of a scalar, itself.
template <class V>
struct msl_element {
  typedef V type;
  enum { n = 1 };
};
template <class T, int N>
struct msl_element<T __attribute__((ext_vector_type(N)))> {
  typedef T type;
  enum { n = N };
};

template <class... A>
struct msl_count;
template <>
struct msl_count<> {
  enum { n = 0 };
};
template <class A, class... B>
struct msl_count<A, B...> {
  enum { n = msl_element<A>::n + msl_count<B...>::n };
};

template <int N>
struct msl_piece {
  template <class V, class A>
  static void put(V& v, int at, A a) {
    for (int i = 0; i < N; i++) v[at + i] = (typename msl_element<V>::type)a[i];
  }
};
template <>
struct msl_piece<1> {
  template <class V, class A>
  static void put(V& v, int at, A a) {
    v[at] = (typename msl_element<V>::type)a;
  }
};

template <class V>
inline void msl_put(V&, int) {}
template <class V, class A, class... B>
inline void msl_put(V& v, int at, A a, B... b) {
  msl_piece<msl_element<A>::n>::put(v, at, a);
  msl_put(v, at + msl_element<A>::n, b...);
}

// One scalar fills a vector; otherwise the parts must have the same number of elements in total.
template <class V, bool Fill>
struct msl_maker {
  template <class... A>
  static V make(A... a) {
    static_assert((int)msl_count<A...>::n == (int)msl_element<V>::n, "a vector is made of as many elements as it has, or of one scalar");
    V v;
    msl_put(v, 0, a...);
    return v;
  }
};
template <class V>
struct msl_maker<V, true> {
  template <class A>
  static V make(A a) {
    return (V)(typename msl_element<V>::type)a;
  }
};
template <class V, class... A>
inline V msl_make(A... a) {
  return msl_maker<V, sizeof...(A) == 1 && (int)msl_count<A...>::n == 1>::make(a...);
}

namespace metal {
template <class D, class S>
inline D as_type(S s) {
  static_assert(sizeof(D) == sizeof(S), "as_type: the two types have different sizes");
  return __builtin_bit_cast(D, s);
}
}
using metal::as_type;  // a keyword in Metal
