// Simulated versions of the PTX in device.cuh: tensor cores, the loads that
// feed them, and asynchronous copies.
#pragma once
#include <stdint.h>

#include "half.h"
#include "warp.h"

namespace lfsim {

struct LdmatrixArg {
  const void* row;
  uint32_t* regs;
};

struct MmaArg {
  float* d;
  const uint32_t *a, *b;
};

// The operations for a whole warp; args as the collectives have them.
template <int X, bool Trans>
void ldmatrix(void** args, uint32_t);
void mma_bf16_16816(void** args, uint32_t);
void mma_f16_16816(void** args, uint32_t);

// will_load announces to the race detector the row that this lane supplies, if any.
void will_load(const void* row, int matrices);

// cp_async copies valid bytes and zeroes the rest of bytes, once waited for.
void cp_async(void* shared, const void* global, int bytes, int valid, Site site);
void cp_async_commit();
void cp_async_wait(int keep);
void cp_async_wait_all();

template <int X, bool Trans>
inline void load_matrix(uint32_t* regs, const void* row, Site site) {
  will_load(row, X);
  LdmatrixArg arg{row, regs};
  collective(0xffffffffu, Op::Ldmatrix, site, true, &arg, &ldmatrix<X, Trans>);
}

}  // namespace lfsim

inline void lf_ldmatrix_x1(uint32_t& r, const void* row, lfsim::Site site = lfsim::Site::here()) { lfsim::load_matrix<1, false>(&r, row, site); }
inline void lf_ldmatrix_x2(uint32_t (&r)[2], const void* row, lfsim::Site site = lfsim::Site::here()) { lfsim::load_matrix<2, false>(r, row, site); }
inline void lf_ldmatrix_x4(uint32_t (&r)[4], const void* row, lfsim::Site site = lfsim::Site::here()) { lfsim::load_matrix<4, false>(r, row, site); }
inline void lf_ldmatrix_x1_trans(uint32_t& r, const void* row, lfsim::Site site = lfsim::Site::here()) { lfsim::load_matrix<1, true>(&r, row, site); }
inline void lf_ldmatrix_x2_trans(uint32_t (&r)[2], const void* row, lfsim::Site site = lfsim::Site::here()) { lfsim::load_matrix<2, true>(r, row, site); }
inline void lf_ldmatrix_x4_trans(uint32_t (&r)[4], const void* row, lfsim::Site site = lfsim::Site::here()) { lfsim::load_matrix<4, true>(r, row, site); }

inline void lf_mma_bf16_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], lfsim::Site site = lfsim::Site::here()) {
  lfsim::MmaArg arg{d, a, b};
  lfsim::collective(0xffffffffu, lfsim::Op::Mma, site, true, &arg, &lfsim::mma_bf16_16816);
}
inline void lf_mma_f16_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], lfsim::Site site = lfsim::Site::here()) {
  lfsim::MmaArg arg{d, a, b};
  lfsim::collective(0xffffffffu, lfsim::Op::Mma, site, true, &arg, &lfsim::mma_f16_16816);
}

inline void lf_cp_async16(void* shared, const void* global, bool valid = true, lfsim::Site site = lfsim::Site::here()) {
  lfsim::cp_async(shared, global, 16, valid ? 16 : 0, site);
}
inline void lf_cp_async8(void* shared, const void* global, bool valid = true, lfsim::Site site = lfsim::Site::here()) {
  lfsim::cp_async(shared, global, 8, valid ? 8 : 0, site);
}
inline void lf_cp_async4(void* shared, const void* global, bool valid = true, lfsim::Site site = lfsim::Site::here()) {
  lfsim::cp_async(shared, global, 4, valid ? 4 : 0, site);
}
// The first n bytes of 16 are copied, the rest are zeros.
inline void lf_cp_async16_n(void* shared, const void* global, int n, lfsim::Site site = lfsim::Site::here()) {
  lfsim::cp_async(shared, global, 16, n, site);
}
inline void lf_cp_async_commit() { lfsim::cp_async_commit(); }
template <int N>
inline void lf_cp_async_wait() {
  lfsim::cp_async_wait(N);
}
inline void lf_cp_async_wait_all() { lfsim::cp_async_wait_all(); }
