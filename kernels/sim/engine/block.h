// A block while it runs: its fibers, warps, barriers and shared memory. A
// worker thread has one and uses it for block after block.
#pragma once
#include <stdint.h>

#include <memory>
#include <string>
#include <vector>

#include "../device/tensor.h"
#include "counts.h"
#include "engine.h"
#include "fiber.h"
#include "race.h"
#include "shared.h"

namespace lfsim {

// PendingCopy is a cp.async that has not been waited for.
struct PendingCopy {
  void* dst;
  const void* src;
  int bytes, valid, group;
};

// Waiting is the position at which a fiber sleeps, for the report of a deadlock.
enum class Waiting { No, Barrier, Collective };

struct Fiber : Lane {
  Context context;
  Stack stack;
  race::Fiber tracked;
  bool done = true;

  Waiting waiting = Waiting::No;
  unsigned barrier = 0;
  Site site{};

  // The collective that this lane has come to.
  uint32_t mask = 0;
  Op op{};
  void* arg = nullptr;
  Collective fn = nullptr;
  bool whole = false;

  std::vector<PendingCopy> copies;
  int group = 0;
  unsigned epoch = 0;  // counts the points that all lanes of the warp pass
};

struct Warp {
  uint32_t born = 0, live = 0, ready = 0, waiting = 0;  // lanes
  unsigned generation = 0;
  bool mixed = false;  // the lanes that wait do not all wait for the same
  char tag[2];
};

// Barrier is a barrier of a block, which has 16.
struct Barrier {
  unsigned arrived = 0, expected = 0, votes = 0, result = 0, generation = 0;
  Site site{};
  std::vector<unsigned> sleepers;
  char tag[2];
};

struct Block {
  Place place{};
  const Launch* launch = nullptr;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  Barrier barriers[16];
  SharedMemory shared;
  std::unique_ptr<Counter> counter;  // null: nothing is counted
  unsigned threads = 0, live = 0;
  uint64_t work = 0;  // threads, barriers of each thread, warp primitives of each lane

  Context scheduler;
  race::Fiber tracked;
  uint64_t random = 1;
  Outcome outcome = Outcome::Done;
  std::string message;

  void start(const Launch&, uint64_t index);
  void run();        // to the end of all threads, or the first failure
  void discard();    // fibers and stacks, for race mode

  // Called on a fiber.
  void sleep();      // until somebody makes the lane ready
  void wake(unsigned thread);
  void release(Barrier&);
  void finish(Fiber&);
  [[noreturn]] void fail(Outcome, const std::string& what);

 private:
  Fiber* next();
  void deadlock();
  uint64_t draw();
};

// running is the block of this OS thread, self its fiber; null outside of kernels.
extern thread_local Block* running __attribute__((tls_model("initial-exec")));
inline Fiber* self() { return static_cast<Fiber*>(current); }

std::string to_string(Site);

// prepare_thread prepares a host thread for handling faults of its kernels.
void prepare_thread();

// settle completes the collectives that the other lanes of f's warp wait for, once f has returned.
void settle(Block&, Fiber& f);

// end_of_copies fails if a thread returns with pending copies.
void end_of_copies(Fiber&);

}  // namespace lfsim
