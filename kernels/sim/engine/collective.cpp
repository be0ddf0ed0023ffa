// Barriers of a block and collectives of a warp: who has come, who is missing,
// and who has gone elsewhere.
#include "block.h"

namespace lfsim {

static constexpr uint32_t all_lanes = 0xffffffffu;

static bool same(Site a, Site b) { return a.line == b.line && a.file == b.file; }

unsigned barrier(unsigned id, unsigned n, bool predicate, bool wait, Site site) {
  Block& block = *running;
  Fiber& f = *self();
  if (id > 15) fail("barrier %u: there are 16, 0 to 15", id);
  if (id && (n == 0 || n % 32 || n > block.threads)) fail("barrier %u of %u threads: whole warps of the block's %u take part", id, n, block.threads);
  Barrier& b = block.barriers[id];
  if (b.arrived == 0) {
    b.site = site;
    b.expected = n;
  } else if (id == 0 && !same(b.site, site)) {
    fail("divergent barrier: %s of %s, others of the %s wait at %s", options.words->barrier, to_string(site).c_str(), options.words->block, to_string(b.site).c_str());
  } else if (b.expected != n) {
    fail("barrier %u of %u threads, others came for %u", id, n, b.expected);
  }
  // Two tags by turns: one that leaves late must not see who comes to the next barrier.
  char* tag = &b.tag[b.generation & 1];
  race::release(tag);
  b.arrived++;
  b.votes += predicate;
  if (b.arrived == (id ? n : options.everybody ? block.threads : block.live)) {
    block.release(b);
    if (wait && options.order == Order::Random) {  // the last to come need not be the first to go
      f.waiting = Waiting::No;
      block.sleep();
    }
  } else if (wait) {
    f.waiting = Waiting::Barrier;
    f.barrier = id;
    f.site = site;
    {
      race::Aside aside(block.tracked, f.tracked);
      b.sleepers.push_back(f.warp * 32 + f.lane);
    }
    block.warps[f.warp].ready &= ~(1u << f.lane);
    block.sleep();
  }
  if (!wait) return b.result;
  f.epoch++;
  race::acquire(tag);
  return b.result;
}

unsigned block_live() { return running->live; }

// Lanes of a warp nearly always come to the same primitive with the same mask,
// and then counting them is enough. Warps whose halves have gone their own
// ways (mixed) are looked through lane by lane.
static bool complete(Warp& w, Fiber* lanes, uint32_t mask) {
  uint32_t wanted = mask & (options.everybody ? w.born : w.live);  // lanes that have returned, or are past the block's end, are not waited for
  if ((w.waiting & wanted) != wanted) return false;
  if (!w.mixed) return true;
  for (uint32_t m = wanted; m; m &= m - 1) {
    if (lanes[__builtin_ctz(m)].mask != mask) return false;
  }
  return true;
}

// perform does the collective of mask; lane f may be none of them.
static void perform(Block& block, Warp& w, Fiber* lanes, uint32_t mask, Fiber& f) {
  const Fiber& first = lanes[__builtin_ctz(w.waiting & mask)];
  if (first.whole && w.live != all_lanes) fail("%s: all 32 lanes must take part, of this %s only %08x run", to_string(first.site).c_str(), options.words->warp, w.live);
  mask &= w.live;
  void* args[32];
  Collective fn = nullptr;
  for (uint32_t m = mask; m; m &= m - 1) {
    int l = __builtin_ctz(m);
    args[l] = lanes[l].arg;
    fn = lanes[l].fn;
  }
  fn(args, mask);
  block.work += (unsigned)__builtin_popcount(mask);
  w.waiting &= ~mask;
  w.generation++;
  for (uint32_t m = mask; m; m &= m - 1) {
    Fiber& o = lanes[__builtin_ctz(m)];
    if (&o != &f) block.wake(o.warp * 32 + o.lane);
  }
}

void collective(uint32_t mask, Op op, Site site, bool whole, void* arg, Collective fn) {
  Block& block = *running;
  Fiber& f = *self();
  Warp& w = block.warps[f.warp];
  Fiber* lanes = &block.fibers[f.warp * 32];
  uint32_t bit = 1u << f.lane;
  if (!(mask & bit)) fail("warp primitive of %s: the calling lane %u is not in its mask %08x", to_string(site).c_str(), f.lane, mask);
  f.mask = mask;
  f.op = op;
  f.site = site;
  f.arg = arg;
  f.fn = fn;
  f.whole = whole;
  if (w.waiting == 0) {
    w.mixed = false;
  } else {
    const Fiber& o = lanes[__builtin_ctz(w.waiting)];
    if (o.mask != mask) {
      w.mixed = true;
    } else if (o.op != op || !same(o.site, site)) {
      fail("lanes of one %s are at different %ss: lane %u at %s, lane %u at %s", options.words->warp, options.words->collective, f.lane, to_string(site).c_str(), o.lane, to_string(o.site).c_str());
    }
  }
  if (w.mixed) {
    for (uint32_t m = w.waiting & mask; m; m &= m - 1) {
      const Fiber& o = lanes[__builtin_ctz(m)];
      if ((o.mask & bit) && (o.mask != mask || o.op != op || !same(o.site, site))) {
        fail("lanes of one warp are at different warp primitives: lane %u at %s with mask %08x, lane %u at %s with mask %08x", f.lane, to_string(site).c_str(), mask, o.lane,
             to_string(o.site).c_str(), o.mask);
      }
    }
  }
  w.waiting |= bit;
  char* tag = &w.tag[w.generation & 1];
  if (op == Op::SyncWarp) race::release(tag);
  if (complete(w, lanes, mask)) {
    perform(block, w, lanes, mask, f);
    if (options.order == Order::Random) block.sleep();  // still ready: whose turn it is, is drawn anew
  } else {
    w.ready &= ~bit;
    f.waiting = Waiting::Collective;
    block.sleep();
  }
  f.epoch += mask == all_lanes;
  if (op == Op::SyncWarp) race::acquire(tag);
}

// settle completes the collectives that were waiting for a lane that has returned.
void settle(Block& block, Fiber& f) {
  Warp& w = block.warps[f.warp];
  if (!w.waiting) return;
  Fiber* lanes = &block.fibers[f.warp * 32];
  uint32_t mask = lanes[__builtin_ctz(w.waiting)].mask;
  if (complete(w, lanes, mask)) perform(block, w, lanes, mask, f);
}

}  // namespace lfsim
