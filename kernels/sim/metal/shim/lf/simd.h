// Barriers, and exchanges between the threads of a simdgroup. All that live must come to the
// same call; a lane's number that none has is an error.
#pragma once
#include "abi.h"

namespace metal {

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4, mem_threadgroup_imageblock = 8 };
inline constexpr mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((int)a | (int)b); }

msl_inlined inline void threadgroup_barrier(mem_flags) { lf_msl_barrier(); }

#if !__LF_NO_SIMD

msl_inlined inline void simdgroup_barrier(mem_flags) { lf_msl_simdgroup_barrier(); }

// The operations that a lane may be at, to tell one from another.
enum { msl_op_shuffle = 1, msl_op_vote, msl_op_reduce, msl_op_scan };

// Numbers of at most 4 bytes and vectors of them are exchanged; bool, bfloat and 64 bits are not.
template <class T>
struct msl_exchanged : false_type {};
#define LF_EXCHANGED(T) \
  template <>           \
  struct msl_exchanged<T> : true_type {};
LF_EXCHANGED(char)
LF_EXCHANGED(uchar)
LF_EXCHANGED(short)
LF_EXCHANGED(ushort)
LF_EXCHANGED(int)
LF_EXCHANGED(uint)
LF_EXCHANGED(float)
LF_EXCHANGED(half)
#undef LF_EXCHANGED
#define LF_CHECK_EXCHANGED(T) static_assert(msl_exchanged<typename msl_element<T>::type>::value, "simd functions take half, float and integers of at most 32 bits")

inline uint msl_lane() { return lf_msl_lane(); }

template <class T>
struct msl_exchange {
  T in, out;
  uint source;

  static void work(void** args, uint mask) {
    for (uint m = mask; m; m &= m - 1) {
      msl_exchange* x = (msl_exchange*)args[__builtin_ctz(m)];
      if (x->source > 31 || !(mask >> x->source & 1)) lf_msl_fail("simd_shuffle: lane %u reads lane %u, which takes no part", (uint)__builtin_ctz(m), x->source);
      x->out = ((msl_exchange*)args[x->source])->in;
    }
  }
};

template <class T>
msl_inlined inline T msl_shuffle_from(T v, uint source) {
  LF_CHECK_EXCHANGED(T);
  msl_exchange<T> arg = {v, v, source};
  lf_msl_collective(msl_op_shuffle, &arg, &msl_exchange<T>::work);
  return arg.out;
}
template <class T>
msl_inlined inline T simd_shuffle(T v, ushort lane) {
  return msl_shuffle_from(v, lane);
}
template <class T>
msl_inlined inline T simd_broadcast(T v, ushort lane) {
  return msl_shuffle_from(v, lane);
}
template <class T>
msl_inlined inline T simd_broadcast_first(T v) {
  return msl_shuffle_from(v, 0);
}
template <class T>
msl_inlined inline T simd_shuffle_xor(T v, ushort mask) {
  return msl_shuffle_from(v, msl_lane() ^ mask);
}
template <class T>
msl_inlined inline T simd_shuffle_up(T v, ushort delta) {
  uint lane = msl_lane();
  return msl_shuffle_from(v, lane < delta ? lane : lane - delta);
}
template <class T>
msl_inlined inline T simd_shuffle_down(T v, ushort delta) {
  uint lane = msl_lane();
  return msl_shuffle_from(v, lane + delta > 31 ? lane : lane + delta);
}

// simd_vote is the lanes that said yes; it becomes a number by a conversion that is written.
class simd_vote {
 public:
  typedef ulong vote_t;
  explicit simd_vote(vote_t v = 0) : votes(v) {}
  explicit operator vote_t() const { return votes; }
  bool all() const { return votes == 0xffffffffu; }
  bool any() const { return votes != 0; }

 private:
  vote_t votes;
};

struct msl_vote {
  bool in;
  uint out, mask;

  static void work(void** args, uint mask) {
    uint votes = 0;
    for (uint m = mask; m; m &= m - 1) votes |= (uint)((msl_vote*)args[__builtin_ctz(m)])->in << __builtin_ctz(m);
    for (uint m = mask; m; m &= m - 1) {
      msl_vote* v = (msl_vote*)args[__builtin_ctz(m)];
      v->out = votes;
      v->mask = mask;
    }
  }
};
msl_inlined inline simd_vote simd_ballot(bool p) {
  msl_vote arg = {p, 0, 0};
  lf_msl_collective(msl_op_vote, &arg, &msl_vote::work);
  return simd_vote(arg.out);
}
msl_inlined inline bool simd_any(bool p) {
  msl_vote arg = {p, 0, 0};
  lf_msl_collective(msl_op_vote, &arg, &msl_vote::work);
  return arg.out != 0;
}
msl_inlined inline bool simd_all(bool p) {
  msl_vote arg = {p, 0, 0};
  lf_msl_collective(msl_op_vote, &arg, &msl_vote::work);
  return arg.out == arg.mask;
}

// Reductions, as a tree: every lane gets the same bits.
struct msl_add { template <class T> static T of(T a, T b) { return a + b; } };
struct msl_mul { template <class T> static T of(T a, T b) { return a * b; } };
struct msl_min { template <class T> static T of(T a, T b) { return min(a, b); } };
struct msl_max { template <class T> static T of(T a, T b) { return max(a, b); } };
struct msl_and { template <class T> static T of(T a, T b) { return a & b; } };
struct msl_or { template <class T> static T of(T a, T b) { return a | b; } };
struct msl_xor { template <class T> static T of(T a, T b) { return a ^ b; } };

template <class T, class F>
struct msl_reduction {
  T v;

  static void work(void** args, uint mask) {
    T x[32];
    bool has[32];
    for (uint l = 0; l < 32; l++) {
      has[l] = mask >> l & 1;
      if (has[l]) x[l] = ((msl_reduction*)args[l])->v;
    }
    for (uint o = 16; o; o >>= 1) {
      for (uint l = 0; l < o; l++) {
        if (!has[l + o]) continue;
        x[l] = has[l] ? F::of(x[l], x[l + o]) : x[l + o];
        has[l] = true;
      }
    }
    for (uint m = mask; m; m &= m - 1) ((msl_reduction*)args[__builtin_ctz(m)])->v = x[0];
  }
};
// Prefixes, in the order of the lanes.
template <class T, class F>
struct msl_scan {
  T v, before;

  static void work(void** args, uint mask) {
    T sum = ((msl_scan*)args[__builtin_ctz(mask)])->before;
    for (uint m = mask; m; m &= m - 1) {
      msl_scan* s = (msl_scan*)args[__builtin_ctz(m)];
      s->before = sum;
      sum = F::of(sum, s->v);
      s->v = sum;
    }
  }
};
#define LF_REDUCTION(name, F)                                                \
  template <class T>                                                         \
  msl_inlined inline T name(T v) {                                                       \
    LF_CHECK_EXCHANGED(T);                                                   \
    msl_reduction<T, F> arg = {v};                                            \
    lf_msl_collective(msl_op_reduce, &arg, &msl_reduction<T, F>::work);        \
    return arg.v;                                                            \
  }
LF_REDUCTION(simd_sum, msl_add)
LF_REDUCTION(simd_product, msl_mul)
LF_REDUCTION(simd_min, msl_min)
LF_REDUCTION(simd_max, msl_max)
LF_REDUCTION(simd_and, msl_and)
LF_REDUCTION(simd_or, msl_or)
LF_REDUCTION(simd_xor, msl_xor)
#undef LF_REDUCTION
#define LF_SCAN(name, F, first, what)                                        \
  template <class T>                                                         \
  msl_inlined inline T name(T v) {                                                       \
    LF_CHECK_EXCHANGED(T);                                                   \
    msl_scan<T, F> arg = {v, (T)first};                                       \
    lf_msl_collective(msl_op_scan, &arg, &msl_scan<T, F>::work);               \
    return arg.what;                                                         \
  }
LF_SCAN(simd_prefix_inclusive_sum, msl_add, 0, v)
LF_SCAN(simd_prefix_exclusive_sum, msl_add, 0, before)
LF_SCAN(simd_prefix_inclusive_product, msl_mul, 1, v)
LF_SCAN(simd_prefix_exclusive_product, msl_mul, 1, before)
#undef LF_SCAN
#undef LF_CHECK_EXCHANGED

#endif  // !__LF_NO_SIMD

}  // namespace metal
