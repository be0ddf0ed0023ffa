// Functions called by compiled shaders: barriers, collectives, threadgroup memory, matrices.
#include <string.h>

#include "../engine/block.h"
#include "shim/lf/abi.h"

using lfsim::Op;
using lfsim::Site;

static constexpr uint32_t all_lanes = 0xffffffffu;

// A call is identified by its return address minus one, which is within the call.
#define CALLER Site::code(static_cast<char*>(__builtin_return_address(0)) - 1)

void lf_msl_barrier() { lfsim::barrier(0, 0, false, true, CALLER); }

void lf_msl_simdgroup_barrier() {
  lfsim::collective(all_lanes, Op::SyncWarp, CALLER, false, nullptr, [](void**, uint32_t) {});
}

void lf_msl_collective(int op, void* arg, void (*work)(void**, uint32_t)) { lfsim::collective(all_lanes, static_cast<Op>(static_cast<int>(Op::Metal) + op), CALLER, false, arg, work); }

void lf_msl_where(lf_msl_place* p) {
  const lfsim::Lane& l = *lfsim::current;
  const lfsim::Place& g = *l.place;
  *p = {{l.thread.x, l.thread.y, l.thread.z, 0},
        {g.block.x, g.block.y, g.block.z, 0},
        {g.block_dim.x, g.block_dim.y, g.block_dim.z, 0},
        {g.grid_dim.x, g.grid_dim.y, g.grid_dim.z, 0}};
}

uint32_t lf_msl_lane() { return lfsim::current->lane; }

void* lf_msl_static(const lf_msl_shared* key, const char* file, int line) { return lfsim::static_shared(key, key->size, key->align, Site{file, line}); }

void* lf_msl_dynamic(const lf_msl_args* a, uint32_t index) { return lfsim::static_shared(&a->threadgroup[index], a->threadgroup[index], 16, Site{"threadgroup memory", (int)index}); }

void lf_msl_fail(const char* what, uint32_t lane, uint32_t other) {
  char text[256];
  snprintf(text, sizeof text, what, lane, other);
  lfsim::fail("%s: %s", to_string(lfsim::self()->site).c_str(), text);
}

// The elements of a matrix are distributed over the lanes in order: 8 by 8, by rows.
static void multiply(void** args, uint32_t) {
  alignas(32) float a[64], b[64], d[64];
  const auto* first = static_cast<const lf_msl_product*>(args[0]);
  for (int l = 0; l < 32; l++) {
    const auto* p = static_cast<const lf_msl_product*>(args[l]);
    if (p->from_a != first->from_a || p->from_b != first->from_b) lf_msl_fail("lanes %u and %u have loaded a matrix from different places", 0, (uint32_t)l);
    memcpy(a + 2 * l, p->a, 8);
    memcpy(b + 2 * l, p->b, 8);
    memcpy(d + 2 * l, p->d, 8);
  }
  for (int r = 0; r < 8; r++) {
    for (int k = 0; k < 8; k++) {
      for (int c = 0; c < 8; c++) d[8 * r + c] = __builtin_fmaf(a[8 * r + k], b[8 * k + c], d[8 * r + c]);
    }
  }
  for (int l = 0; l < 32; l++) memcpy(static_cast<lf_msl_product*>(args[l])->d, d + 2 * l, 8);
}

void lf_msl_multiply(lf_msl_product* p) { lfsim::collective(all_lanes, Op::Mma, CALLER, true, p, multiply); }
