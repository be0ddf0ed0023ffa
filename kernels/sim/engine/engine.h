// The engine's face towards the driver: find a kernel, run a grid of it.
#pragma once
#include <stdint.h>

#include <atomic>
#include <string>
#include <vector>

#include "../device/kernel.h"
#include "counts.h"

namespace lfsim {

// Order is in which order the threads of a block, and the blocks of a grid,
// get their turn. A result that depends on it is a missing barrier.
enum class Order { Forward, Reverse, Random };

// Words are the terms of a language, for messages.
struct Words {
  const char *barrier, *block, *shared, *collective, *warp;
};
extern const Words cuda_words, metal_words;

struct Options {
  Order order = Order::Forward;
  uint64_t seed = 1;
  bool eager_copies = false;  // cp.async copies at once, not when waited for
  int threads = 1;            // of the host, each with a block at a time
  const Words* words = &cuda_words;
  bool everybody = false;       // barriers and collectives wait for threads that have returned
  bool code_addresses = false;  // faults say where in the code: "code 0x…"
};
extern Options options;

// Why a grid ended.
enum class Outcome { Done, IllegalAddress, Misaligned, IllegalInstruction, Failed };

struct Launch {
  const KernelDef* kernel;
  void* const* params;
  dim3 grid, block;
  unsigned dynamic_shared;
  unsigned shared_limit;  // of static and dynamic shared memory together
  Counts* counts = nullptr;  // of the launch, if it is to be counted
  std::atomic<uint64_t>* work = nullptr;  // gets the threads, and what each passes of barriers and warp primitives
};

// run runs a grid to its end. On failure *message names kernel, block and
// thread. Calls from several threads share the same workers.
Outcome run(const Launch& launch, std::string* message);

const KernelDef* find_kernel(const std::string& name);
std::vector<std::string> kernel_names();

// describe_address lets the driver say what an address that faulted was.
using Describe = std::string (*)(const void* address);
extern Describe describe_address;

// install_fault_handlers turns faults inside of kernels into failed launches.
// Others go to who handled them before: Go's runtime, the debugger.
void install_fault_handlers();

}  // namespace lfsim
