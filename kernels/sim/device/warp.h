// Barriers, shuffles and votes. Each is a collective: a lane leaves its
// arguments on its own stack and sleeps; the last to come does the operation
// for all of them. So lanes that are missing, diverged or not in the mask are detected.
#pragma once
#include <math.h>
#include <stdint.h>

#include "kernel.h"

namespace lfsim {

enum class Op { SyncWarp, Shuffle, Vote, Match, Ldmatrix, Mma, Metal };  // Metal and beyond: the operations of its simdgroups

// Collective is the work of the last lane: args[l] for the lanes of mask.
using Collective = void (*)(void** args, uint32_t mask);

// collective returns when fn has run. whole says that all 32 lanes must take
// part, as instructions that PTX calls .aligned demand.
void collective(uint32_t mask, Op op, Site site, bool whole, void* arg, Collective fn);

// barrier implements bar.sync id for n threads (0: all live threads of the block). It
// returns the number of threads whose predicate is not 0.
unsigned barrier(unsigned id, unsigned n, bool predicate, bool wait, Site site);

// block_live returns the number of threads of the block that have not returned.
unsigned block_live();

template <class T>
struct Exchange {
  T in, out;
  int source;
};

template <class T>
T shuffle(uint32_t mask, T value, int source, Site site) {
  static_assert(sizeof(T) <= 8, "shuffles move at most 8 bytes");
  Exchange<T> arg{value, value, source};
  collective(mask, Op::Shuffle, site, false, &arg, [](void** args, uint32_t lanes) LFSIM_UNWATCHED {
    for (uint32_t m = lanes; m; m &= m - 1) {
      auto* x = static_cast<Exchange<T>*>(args[__builtin_ctz(m)]);
      if (!(lanes >> x->source & 1)) fail("shuffle: lane %d reads lane %d, which takes no part", __builtin_ctz(m), x->source);
      x->out = static_cast<Exchange<T>*>(args[x->source])->in;
    }
  });
  return arg.out;
}

struct Ballot {
  bool predicate;
  uint32_t out;
};

template <class T>
struct Matching {
  T value;
  uint32_t out;
};

}  // namespace lfsim

inline void __syncthreads(lfsim::Site site = lfsim::Site::here()) { lfsim::barrier(0, 0, false, true, site); }
inline int __syncthreads_count(int p, lfsim::Site site = lfsim::Site::here()) { return (int)lfsim::barrier(0, 0, p != 0, true, site); }
inline int __syncthreads_or(int p, lfsim::Site site = lfsim::Site::here()) { return lfsim::barrier(0, 0, p != 0, true, site) != 0; }
inline int __syncthreads_and(int p, lfsim::Site site = lfsim::Site::here()) { return lfsim::barrier(0, 0, p == 0, true, site) == 0; }

// lf_bar_sync waits at barrier id (1 to 15) for n threads, whole warps;
// lf_bar_arrive is counted there without waiting.
inline void lf_bar_sync(unsigned id, unsigned n, lfsim::Site site = lfsim::Site::here()) { lfsim::barrier(id, n, false, true, site); }
inline void lf_bar_arrive(unsigned id, unsigned n, lfsim::Site site = lfsim::Site::here()) { lfsim::barrier(id, n, false, false, site); }

inline void __syncwarp(uint32_t mask = 0xffffffffu, lfsim::Site site = lfsim::Site::here()) {
  lfsim::collective(mask, lfsim::Op::SyncWarp, site, false, nullptr, [](void**, uint32_t) {});
}

// The shuffles clamp to segments of width lanes: a source outside of the
// caller's segment is the caller itself.
template <class T>
T __shfl_sync(uint32_t mask, T v, int source, int width = 32, lfsim::Site site = lfsim::Site::here()) {
  int lane = (int)lfsim::current->lane;
  return lfsim::shuffle(mask, v, (lane & ~(width - 1)) | (source & (width - 1)), site);
}
template <class T>
T __shfl_up_sync(uint32_t mask, T v, unsigned delta, int width = 32, lfsim::Site site = lfsim::Site::here()) {
  int lane = (int)lfsim::current->lane, source = lane - (int)delta;
  return lfsim::shuffle(mask, v, source < (lane & ~(width - 1)) ? lane : source, site);
}
template <class T>
T __shfl_down_sync(uint32_t mask, T v, unsigned delta, int width = 32, lfsim::Site site = lfsim::Site::here()) {
  int lane = (int)lfsim::current->lane, source = lane + (int)delta;
  return lfsim::shuffle(mask, v, source > (lane | (width - 1)) ? lane : source, site);
}
template <class T>
T __shfl_xor_sync(uint32_t mask, T v, int bits, int width = 32, lfsim::Site site = lfsim::Site::here()) {
  int lane = (int)lfsim::current->lane, source = lane ^ bits;
  return lfsim::shuffle(mask, v, source > (lane | (width - 1)) ? lane : source, site);
}

inline unsigned __ballot_sync(uint32_t mask, int predicate, lfsim::Site site = lfsim::Site::here()) {
  lfsim::Ballot arg{predicate != 0, 0};
  lfsim::collective(mask, lfsim::Op::Vote, site, false, &arg, [](void** args, uint32_t lanes) LFSIM_UNWATCHED {
    uint32_t votes = 0;
    for (uint32_t m = lanes; m; m &= m - 1) {
      int l = __builtin_ctz(m);
      votes |= (uint32_t) static_cast<lfsim::Ballot*>(args[l])->predicate << l;
    }
    for (uint32_t m = lanes; m; m &= m - 1) static_cast<lfsim::Ballot*>(args[__builtin_ctz(m)])->out = votes;
  });
  return arg.out;
}
inline int __any_sync(uint32_t mask, int p, lfsim::Site site = lfsim::Site::here()) { return __ballot_sync(mask, p, site) != 0; }
inline int __all_sync(uint32_t mask, int p, lfsim::Site site = lfsim::Site::here()) { return __ballot_sync(mask, !p, site) == 0; }

template <class T>
unsigned __match_any_sync(uint32_t mask, T value, lfsim::Site site = lfsim::Site::here()) {
  lfsim::Matching<T> arg{value, 0};
  lfsim::collective(mask, lfsim::Op::Match, site, false, &arg, [](void** args, uint32_t lanes) LFSIM_UNWATCHED {
    for (uint32_t m = lanes; m; m &= m - 1) {
      auto* a = static_cast<lfsim::Matching<T>*>(args[__builtin_ctz(m)]);
      for (uint32_t n = lanes; n; n &= n - 1) {
        int l = __builtin_ctz(n);
        a->out |= (uint32_t)(static_cast<lfsim::Matching<T>*>(args[l])->value == a->value) << l;
      }
    }
  });
  return arg.out;
}

// One butterfly for all: every lane ends with the same bits.
inline float lf_warp_sum(float v, lfsim::Site site = lfsim::Site::here()) {
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o, 32, site);
  return v;
}
inline float lf_warp_max(float v, lfsim::Site site = lfsim::Site::here()) {
  for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o, 32, site));
  return v;
}
