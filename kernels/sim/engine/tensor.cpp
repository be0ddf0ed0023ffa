// ldmatrix and mma for a whole warp, by the fragment layouts of the PTX manual.
#include "block.h"

namespace lfsim {

void will_load(const void* row, int matrices) {
  if (race::on && (int)self()->lane < matrices * 8) race::read(row, 16);
}

// Row r of matrix m is 16 bytes at the address that lane 8m+r gave.
template <int X, bool Trans>
void ldmatrix(void** args, uint32_t) {
  const uint16_t* rows[X * 8];
  for (int i = 0; i < X * 8; i++) {
    const void* row = static_cast<LdmatrixArg*>(args[i])->row;
    Fiber& f = running->fibers[self()->warp * 32 + (unsigned)i];
    if ((uintptr_t)row & 15) running->fail(Outcome::Misaligned, "ldmatrix of " + to_string(f.site) + ": the address of lane " + std::to_string(i) + " does not lie on 16 bytes");
    if (!running->shared.contains(row, 16)) fail("ldmatrix of %s: the row of lane %d is not shared memory of this block", to_string(f.site).c_str(), i);
    rows[i] = static_cast<const uint16_t*>(row);
  }
  for (int m = 0; running->counter && m < X; m++) running->counter->matrix(rows + m * 8);
  for (int l = 0; l < 32; l++) {
    uint32_t* regs = static_cast<LdmatrixArg*>(args[l])->regs;
    int g = l / 4, t = l % 4 * 2;
    for (int m = 0; m < X; m++) {
      const uint16_t* const* r = rows + m * 8;
      uint16_t lo = Trans ? r[t][g] : r[g][t], hi = Trans ? r[t + 1][g] : r[g][t + 1];
      regs[m] = lo | (uint32_t)hi << 16;
    }
  }
}

template void ldmatrix<1, false>(void**, uint32_t);
template void ldmatrix<2, false>(void**, uint32_t);
template void ldmatrix<4, false>(void**, uint32_t);
template void ldmatrix<1, true>(void**, uint32_t);
template void ldmatrix<2, true>(void**, uint32_t);
template void ldmatrix<4, true>(void**, uint32_t);

// Products of bf16 and of f16 are exact in f32; the device's order of sums is
// not specified, so here it is that of k.
template <float (*Widen)(uint16_t)>
static void mma_16816(void** args) {
  if (running->counter) running->counter->counts.mma++;
  alignas(32) float a[16][16], b[16][8], d[16][8];
  for (int l = 0; l < 32; l++) {
    auto* m = static_cast<MmaArg*>(args[l]);
    int g = l / 4, t = l % 4 * 2;
    for (int i = 0; i < 4; i++) {
      int r = g + i % 2 * 8, k = t + i / 2 * 8;
      a[r][k] = Widen((uint16_t)m->a[i]);
      a[r][k + 1] = Widen((uint16_t)(m->a[i] >> 16));
      d[g + i / 2 * 8][t + i % 2] = m->d[i];
    }
    for (int i = 0; i < 2; i++) {
      b[t + i * 8][g] = Widen((uint16_t)m->b[i]);
      b[t + i * 8 + 1][g] = Widen((uint16_t)(m->b[i] >> 16));
    }
  }
  for (int r = 0; r < 16; r++) {
    float s[8] = {};
    for (int k = 0; k < 16; k++) {
      for (int c = 0; c < 8; c++) s[c] += a[r][k] * b[k][c];
    }
    for (int c = 0; c < 8; c++) d[r][c] += s[c];
  }
  for (int l = 0; l < 32; l++) {
    auto* m = static_cast<MmaArg*>(args[l]);
    int g = l / 4, t = l % 4 * 2;
    for (int i = 0; i < 4; i++) m->d[i] = d[g + i / 2 * 8][t + i % 2];
  }
}

void mma_bf16_16816(void** args, uint32_t) { mma_16816<widen_bf16>(args); }
void mma_f16_16816(void** args, uint32_t) { mma_16816<widen_f16>(args); }

}  // namespace lfsim
