// <metal_simdgroup_matrix>: matrices of 8 by 8 that the lanes of a simdgroup hold
// together. Which lane has what is not said, and so no element can be reached.
#pragma once
#include "abi.h"

#if !__LF_NO_SIMD
namespace metal {

template <class T>
struct msl_of_matrix : false_type {};
template <>
struct msl_of_matrix<float> : true_type {};
template <>
struct msl_of_matrix<half> : true_type {};
#if LF_HAS_BFLOAT
template <>
struct msl_of_matrix<bfloat> : true_type {};
#endif

class msl_matrix_access;

template <class T, int Cols, int Rows>
class simdgroup_matrix {
  static_assert(Cols == 8 && Rows == 8, "matrices of simdgroups are of 8 by 8");
  static_assert(msl_of_matrix<T>::value, "matrices of simdgroups are of float, half or bfloat");

 public:
  simdgroup_matrix() {}
  explicit simdgroup_matrix(T diagonal) {
    uint lane = msl_lane(), row = lane / 4, col = lane % 4 * 2;
    e_[0] = row == col ? diagonal : (T)0;
    e_[1] = row == col + 1 ? diagonal : (T)0;
    from_ = 0;
  }

 private:
  friend class msl_matrix_access;
  T e_[2];
  ulong from_;
};

typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
#if LF_HAS_BFLOAT
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
#endif

// Lanes read and write their own elements when they come to it, each at its time: what
// lacks a barrier shows. That all have loaded the same is seen when they multiply.
class msl_matrix_access {
 public:
  template <class T, class P>
  static void load(simdgroup_matrix<T, 8, 8>& m, P p, ulong width, ulong2 origin, bool transposed) {
    uint lane = msl_lane(), row = lane / 4, col = lane % 4 * 2;
    for (uint i = 0; i < 2; i++) m.e_[i] = p[at(row, col + i, width, origin, transposed)];
    m.from_ = (((ulong)p * 31 + width) * 31 + origin.x) * 31 + origin.y * 2 + transposed;
  }
  template <class T, class P>
  static void store(const simdgroup_matrix<T, 8, 8>& m, P p, ulong width, ulong2 origin, bool transposed) {
    uint lane = msl_lane(), row = lane / 4, col = lane % 4 * 2;
    for (uint i = 0; i < 2; i++) p[at(row, col + i, width, origin, transposed)] = m.e_[i];
  }
  template <class T>
  static void fill(simdgroup_matrix<T, 8, 8>& m, T v) {
    m.e_[0] = m.e_[1] = v;
    m.from_ = 0;
  }
  template <class T, class A, class B>
  static lf_msl_product begin(const simdgroup_matrix<A, 8, 8>& a, const simdgroup_matrix<B, 8, 8>& b, const simdgroup_matrix<T, 8, 8>& c) {
    lf_msl_product p = {{(float)a.e_[0], (float)a.e_[1]}, {(float)b.e_[0], (float)b.e_[1]}, {(float)c.e_[0], (float)c.e_[1]}, a.from_, b.from_};
    return p;
  }
  template <class T>
  static void end(simdgroup_matrix<T, 8, 8>& d, const lf_msl_product& p) {
    d.e_[0] = (T)p.d[0];
    d.e_[1] = (T)p.d[1];
    d.from_ = 0;
  }

 private:
  static ulong at(uint row, uint col, ulong width, ulong2 origin, bool transposed) {
    return transposed ? (origin.y + col) * width + origin.x + row : (origin.y + row) * width + origin.x + col;
  }
};

template <class T, int Cols, int Rows = Cols>
inline simdgroup_matrix<T, Cols, Rows> make_filled_simdgroup_matrix(T v) {
  simdgroup_matrix<T, Cols, Rows> m;
  msl_matrix_access::fill(m, v);
  return m;
}

#define LF_MATRIX_MEMORY(space)                                                                                                                             \
  template <class T>                                                                                                                                        \
  inline void simdgroup_load(simdgroup_matrix<T, 8, 8>& d, const __attribute__((space)) T* p, ulong width = 8, ulong2 origin = ulong2{0, 0}, bool transposed = false) { \
    msl_matrix_access::load(d, p, width, origin, transposed);                                                                                                \
  }                                                                                                                                                         \
  template <class T>                                                                                                                                        \
  inline void simdgroup_store(simdgroup_matrix<T, 8, 8> a, __attribute__((space)) T* p, ulong width = 8, ulong2 origin = ulong2{0, 0}, bool transposed = false) { \
    msl_matrix_access::store(a, p, width, origin, transposed);                                                                                               \
  }
LF_MATRIX_MEMORY(opencl_global)
LF_MATRIX_MEMORY(opencl_local)
#undef LF_MATRIX_MEMORY

// d = a*b + c: sums are of float, by fma, in the order of k.
template <class T, class A, class B>
msl_inlined inline void simdgroup_multiply_accumulate(simdgroup_matrix<T, 8, 8>& d, simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b, simdgroup_matrix<T, 8, 8> c) {
  lf_msl_product p = msl_matrix_access::begin(a, b, c);
  lf_msl_multiply(&p);
  msl_matrix_access::end(d, p);
}
template <class T, class A, class B>
msl_inlined inline void simdgroup_multiply(simdgroup_matrix<T, 8, 8>& d, simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b) {
  simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<T, 8, 8>((T)0));
}

}  // namespace metal
#endif
