// The scheduler. One thread of a block runs until it reaches a barrier or
// a warp primitive where others are missing; then the next ready one runs.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "block.h"

namespace lfsim {

thread_local Lane* current;
thread_local Block* running;
const Words cuda_words = {"__syncthreads", "block", "shared", "warp primitive", "warp"};
const Words metal_words = {"threadgroup_barrier", "threadgroup", "threadgroup", "simdgroup function", "simdgroup"};
Options options;
Describe describe_address;

static constexpr uint32_t all_lanes = 0xffffffffu;

// race_tag is released at the end of every thread and acquired at the end of the grid.
extern char race_tag;

static void run_thread() {
  Fiber* f = self();
  const Launch& l = *running->launch;
  l.kernel->call(l.kernel->function, l.params);
  end_of_copies(*f);
  race::release(&race_tag);
  running->finish(*f);
  for (;;) running->sleep();
}

// mix spreads a counter over all bits (splitmix64), so that the orders of
// neighbouring blocks have nothing in common.
static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

uint64_t Block::draw() {
  random ^= random << 13;
  random ^= random >> 7;
  random ^= random << 17;
  return random;
}

void Block::start(const Launch& l, uint64_t index) {
  launch = &l;
  place.grid_dim = l.grid;
  place.block_dim = l.block;
  place.block = {(unsigned)(index % l.grid.x), (unsigned)(index / l.grid.x % l.grid.y), (unsigned)(index / ((uint64_t)l.grid.x * l.grid.y))};
  work = threads = live = l.block.x * l.block.y * l.block.z;
  random = mix(options.seed ^ mix(index)) | 1;
  outcome = Outcome::Done;
  message.clear();
  shared.begin(l.dynamic_shared);
  for (Barrier& b : barriers) {
    b.arrived = b.expected = b.votes = 0;
    b.sleepers.clear();
  }
  tracked.adopt();

  unsigned nwarps = (threads + 31) / 32;
  counter.reset(l.counts ? new Counter(nwarps) : nullptr);
  if (fibers.size() < threads) fibers.resize(nwarps * 32);
  if (warps.size() < nwarps) warps.resize(nwarps);
  for (unsigned i = 0; i < threads; i++) {
    Fiber& f = fibers[i];
    f.thread = {i % l.block.x, i / l.block.x % l.block.y, i / (l.block.x * l.block.y)};
    f.lane = i & 31;
    f.warp = i >> 5;
    f.place = &place;
    f.done = false;
    f.waiting = Waiting::No;
    f.mask = 0;
    f.copies.clear();
    f.group = 0;
    f.epoch = 0;
    f.stack.reserve();
    f.tracked.destroy();
    f.tracked.create();
    prepare(f.context, f.stack, i * 5, run_thread);
  }
  for (unsigned w = 0; w < nwarps; w++) {
    unsigned n = threads - w * 32;
    warps[w].born = warps[w].live = warps[w].ready = n >= 32 ? all_lanes : (1u << n) - 1;
    warps[w].waiting = 0;
  }
}

// next returns the thread to run next, null if none is ready. Orders other
// than Random finish one warp before they come to the next.
Fiber* Block::next() {
  unsigned nwarps = (threads + 31) / 32;
  unsigned first = options.order == Order::Random ? (unsigned)(draw() % nwarps) : 0;
  for (unsigned i = 0; i < nwarps; i++) {
    unsigned w = options.order == Order::Reverse ? nwarps - 1 - i : (first + i) % nwarps;
    uint32_t ready = warps[w].ready;
    if (!ready) continue;
    int lane;
    switch (options.order) {
      case Order::Forward:
        lane = __builtin_ctz(ready);
        break;
      case Order::Reverse:
        lane = 31 - __builtin_clz(ready);
        break;
      default:
        for (unsigned n = (unsigned)(draw() % (unsigned)__builtin_popcount(ready)); n; n--) ready &= ready - 1;
        lane = __builtin_ctz(ready);
    }
    return &fibers[w * 32 + (unsigned)lane];
  }
  return nullptr;
}

void Block::run() {
  running = this;
  while (live && outcome == Outcome::Done) {
    Fiber* f = next();
    if (!f) {
      deadlock();
      break;
    }
    current = f;
    f->tracked.enter();
    switch_to(scheduler, f->context);
  }
  if (outcome == Outcome::Done) {
    std::string s = shared.trampled();
    if (s.empty() && shared.total() > launch->shared_limit) {
      s = std::to_string(shared.total()) + " bytes of " + options.words->shared + " memory, static and dynamic, of at most " + std::to_string(launch->shared_limit);
    }
    if (!s.empty()) {
      outcome = Outcome::Failed;
      message = std::string(launch->kernel->name) + ": " + options.words->block + " (" + std::to_string(place.block.x) + "," + std::to_string(place.block.y) + "," + std::to_string(place.block.z) + "): " + s;
    }
  }
  current = nullptr;
  running = nullptr;
}

void Block::discard() {
  for (Fiber& f : fibers) {
    f.tracked.destroy();
    f.stack.release();
  }
}

// Switches directly between fibers, and through the scheduler only if none is
// ready: each avoided switch saves a quarter of the cost of a warp primitive.
void Block::sleep() {
  Fiber& me = *self();
  Fiber* other = outcome == Outcome::Done ? next() : nullptr;
  if (other == &me) return;
  if (other) {
    current = other;
    other->tracked.enter();
    switch_to(me.context, other->context);
  } else {
    tracked.enter();
    switch_to(me.context, scheduler);
  }
}

void Block::wake(unsigned thread) {
  fibers[thread].waiting = Waiting::No;
  warps[thread / 32].ready |= 1u << (thread & 31);
}

void Block::release(Barrier& b) {
  work += b.arrived;
  for (unsigned t : b.sleepers) wake(t);
  b.sleepers.clear();
  b.result = b.votes;
  b.arrived = b.votes = b.expected = 0;
  b.generation++;
  if (counter) counter->counts.barriers++;
}

// A thread that has returned is not waited for, in CUDA.
void Block::finish(Fiber& f) {
  f.done = true;
  Warp& w = warps[f.warp];
  w.live &= ~(1u << f.lane);
  w.ready &= ~(1u << f.lane);
  live--;
  Barrier& b = barriers[0];
  if (live && !options.everybody && b.arrived == live) release(b);
  settle(*this, f);
}

void Block::fail(Outcome o, const std::string& what) {
  Fiber& f = *self();
  if (outcome == Outcome::Done) {
    char at[160];
    snprintf(at, sizeof at, ": %s (%u,%u,%u) thread (%u,%u,%u): ", options.words->block, place.block.x, place.block.y, place.block.z, f.thread.x, f.thread.y, f.thread.z);
    outcome = o;
    message = launch->kernel->name + std::string(at) + what;
  }
  warps[f.warp].ready &= ~(1u << f.lane);
  for (;;) sleep();
}

void fail(const char* format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  running->fail(Outcome::Failed, text);
}

std::string to_string(Site s) {
  if (!s.file) return "?";
  if (!s.line) {
    char text[32];
    snprintf(text, sizeof text, "code %p", static_cast<const void*>(s.file));
    return text;
  }
  const char* slash = strrchr(s.file, '/');
  return std::string(slash ? slash + 1 : s.file) + ":" + std::to_string(s.line);
}

// deadlock reports the waiting threads, grouped by reason.
void Block::deadlock() {
  std::string s;
  auto reason = [&](const Fiber& f) {
    if (f.done) return std::string("returned");
    if (f.waiting == Waiting::Collective) return std::string("at the ") + options.words->collective + " of " + to_string(f.site);
    if (f.barrier) return "at barrier " + std::to_string(f.barrier) + " of " + to_string(f.site);
    return std::string("at ") + options.words->barrier + " of " + to_string(f.site);
  };
  for (unsigned i = 0, first = 0; i < threads; i++) {
    std::string r = reason(fibers[i]);
    if (i + 1 < threads && reason(fibers[i + 1]) == r) continue;
    s += (s.empty() ? " threads " : ", ") + std::to_string(first) + "-" + std::to_string(i) + " " + r;
    first = i + 1;
    if (s.size() > 600) {
      s += ", …";
      break;
    }
  }
  outcome = Outcome::Failed;
  message = std::string(launch->kernel->name) + ": " + options.words->block + " (" + std::to_string(place.block.x) + "," + std::to_string(place.block.y) + "," + std::to_string(place.block.z) +
            "): deadlock, a divergent barrier or a lane missing from its mask:" + s;
}

void* dynamic_shared() {
  void* p = running->shared.dynamic();
  if (!p) fail("dynamic shared memory, but the launch asked for none");
  return p;
}

void* static_shared(const void* key, size_t bytes, size_t align, Site site) {
  race::Aside aside(running->tracked, self()->tracked);
  return running->shared.fixed(key, bytes, align, site);
}

}  // namespace lfsim
