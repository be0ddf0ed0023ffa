// The parts of the rewriter's wrappers of kernels.
#pragma once
#include "abi.h"

// msl_axes is a position or a size as a kernel asks for it: of one, two or three axes.
template <class T>
struct msl_axes {
  static T of(const uint* v) { return (T)v[0]; }
};
template <class T>
struct msl_axes<T __attribute__((ext_vector_type(2)))> {
  static metal::vec<T, 2> of(const uint* v) { return msl_make<metal::vec<T, 2>>(v[0], v[1]); }
};
template <class T>
struct msl_axes<T __attribute__((ext_vector_type(3)))> {
  static metal::vec<T, 3> of(const uint* v) { return msl_make<metal::vec<T, 3>>(v[0], v[1], v[2]); }
};

// msl_attributes are a thread's answers to the attributes of a kernel's parameters.
class msl_attributes {
 public:
  msl_attributes() {
    lf_msl_where(&p_);
    index_ = (p_.thread[2] * p_.threads[1] + p_.thread[1]) * p_.threads[0] + p_.thread[0];
    size_ = p_.threads[0] * p_.threads[1] * p_.threads[2];
    for (uint i = 0; i < 3; i++) {
      position_[i] = p_.group[i] * p_.threads[i] + p_.thread[i];
      extent_[i] = p_.groups[i] * p_.threads[i];
    }
  }
#define LF_AXES(name, value) \
  template <class T>         \
  T name() const {           \
    return msl_axes<T>::of(value); \
  }
  LF_AXES(thread_position_in_threadgroup, p_.thread)
  LF_AXES(threadgroup_position_in_grid, p_.group)
  LF_AXES(threads_per_threadgroup, p_.threads)
  LF_AXES(dispatch_threads_per_threadgroup, p_.threads)
  LF_AXES(threadgroups_per_grid, p_.groups)
  LF_AXES(thread_position_in_grid, position_)
  LF_AXES(threads_per_grid, extent_)
#undef LF_AXES
#define LF_NUMBER(name, value) \
  template <class T>           \
  T name() const {             \
    static_assert((int)msl_element<T>::n == 1, #name " is one number"); \
    return (T)(value);         \
  }
  LF_NUMBER(thread_index_in_threadgroup, index_)
#if !__LF_NO_SIMD
  LF_NUMBER(thread_index_in_simdgroup, index_ % 32)
  LF_NUMBER(simdgroup_index_in_threadgroup, index_ / 32)
  LF_NUMBER(simdgroups_per_threadgroup, (size_ + 31) / 32)
  LF_NUMBER(threads_per_simdgroup, 32)
  LF_NUMBER(thread_execution_width, 32)
#endif
#undef LF_NUMBER

 private:
  lf_msl_place p_;
  uint index_, size_, position_[3], extent_[3];
};

extern "C" const lf_msl_shared __start_lf_msl_shared[] __attribute__((weak, visibility("hidden")));
extern "C" const lf_msl_shared __stop_lf_msl_shared[] __attribute__((weak, visibility("hidden")));

// libgcc may lack these.
#if LF_HAS_BFLOAT
extern "C" __attribute__((weak, visibility("hidden"))) bfloat __truncsfbf2(float f) {
  uint u = __builtin_bit_cast(uint, f);
  ushort h = (u & 0x7fffffffu) > 0x7f800000u ? (ushort)(u >> 16 | 0x40) : (ushort)((u + 0x7fff + (u >> 16 & 1)) >> 16);
  return __builtin_bit_cast(bfloat, h);
}
#endif
